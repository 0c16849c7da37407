//! HTTP errors of the generation worker.

use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;
use http_body_util::BodyExt;
use tokio_test::assert_ready_err;

use super::*;
use crate::{
    buffer::BufferBudget,
    error::{GenerationError, GenerationErrorKind, find},
    trtllm::MAX_RELAYED_ERROR,
};

fn settler() -> Settler {
    Settler::new(Duration::from_secs(30))
}

#[tokio::test]
async fn a_refusal_is_relayed() {
    for (status, body) in [
        (400, r#"{"error":"max_tokens is too large"}"#),
        (404, r#"{"detail":"Not Found"}"#),
        (429, ""),
        (500, "Internal Server Error"),
        (503, r#"{"object":"error","message":"loading"}"#),
        (307, ""),
    ] {
        let mut s = setup(GenerationLayer::new(), settler());
        let head = Response::builder()
            .status(status)
            .header("content-type", "text/event-stream")
            .header("retry-after", "7")
            .header("location", "/elsewhere")
            .header("connection", "x-hop")
            .header("x-hop", "1")
            .header("transfer-encoding", "chunked");
        let (mut call, answer, mut end) = s.answered(head).await;
        assert!(answer.is_none(), "not before it is known what it says");
        assert_eq!(s.ends(), ["refused"], "by the head");
        end.send(body);
        end.end();
        let response = assert_ready_ok!(call.poll());
        assert_eq!(response.status(), status);
        let headers = response.headers();
        assert_eq!(
            (&headers["content-type"], &headers["retry-after"]),
            (&"text/event-stream".parse().unwrap(), &"7".parse().unwrap())
        );
        assert_eq!(
            (&headers["content-length"], headers.len()),
            (&body.len().to_string().parse().unwrap(), 4)
        );
        assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), body);
        assert_eq!((s.ends(), s.settler.active()), (vec!["refused"], 0));
    }
}

#[tokio::test]
async fn a_refusal_that_could_carry_state_is_replaced() {
    let big = |len: usize| Bytes::from("x".repeat(len));
    let state = r#"{"error":"Input should be valid, input={'encoded_opaque_state': 'CANARYSTATEQUFBQUFBQUFBQUFBQUFBQUFBQQ=='}"}"#;
    let cases: [(&str, Bytes, bool, bool); 7] = [
        ("", state.into(), false, false),
        ("", "cannot connect to 10.0.0.5:37771".into(), false, false),
        ("", big(MAX_RELAYED_ERROR), false, true),
        ("", big(MAX_RELAYED_ERROR + 1), false, false),
        ("", "half".into(), true, false),
        ("gzip", "\u{1f}".into(), false, false),
        ("identity", "plain".into(), false, true),
    ];
    for (case, (encoding, body, breaks, relayed)) in cases.into_iter().enumerate() {
        let mut s = setup(GenerationLayer::new(), settler());
        let mut head = json().status(422).header("retry-after", "7");
        if !encoding.is_empty() {
            head = head.header("content-encoding", encoding);
        }
        let (mut call, _, mut end) = s.answered(head).await;
        end.send(body.clone());
        if breaks {
            end.fail();
        }
        end.end();
        if relayed {
            let response = assert_ready_ok!(call.poll());
            assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), body, "case {case}");
        } else {
            let error = assert_ready_err!(call.poll());
            let error = find::<GenerationError>(&*error).unwrap();
            assert_eq!(error.kind(), GenerationErrorKind::Rejected(StatusCode::UNPROCESSABLE_ENTITY));
            let answer = error.reply();
            assert_eq!((answer.status.as_u16(), answer.code), (422, "generation_rejected"), "case {case}");
            assert_eq!(answer.retry_after.unwrap(), "7");
            assert!(!format!("{error:?}{}", answer.message).contains(CANARY));
            assert!(std::error::Error::source(error).is_none());
        }
        drop(call);
        assert!(end.is_dropped());
        assert_eq!((s.ends(), s.settler.active()), (vec!["refused"], 0), "case {case}");
    }
}

/// The limit is one of reading, too: a worker may write without end.
#[tokio::test]
async fn a_refusal_is_read_no_further_than_it_may_be_relayed() {
    let mut s = setup(GenerationLayer::new(), settler());
    let (mut call, _, end) = s.answered(json().status(400)).await;
    end.send("x".repeat(MAX_RELAYED_ERROR));
    assert_pending!(call.poll());
    end.send("x");
    end.send("x");
    assert_ready_err!(call.poll());
    assert_eq!(end.read(), MAX_RELAYED_ERROR + 1);
}

#[tokio::test]
async fn a_refusal_that_finds_no_room_is_replaced() {
    let mut s = setup(GenerationLayer::new().budget(BufferBudget::new(3)), settler());
    let (mut call, _, end) = s.answered(json().status(400)).await;
    end.send("four");
    let error = assert_ready_err!(call.poll());
    let error = find::<GenerationError>(&*error).unwrap();
    assert_eq!(error.kind(), GenerationErrorKind::Rejected(StatusCode::BAD_REQUEST));
}

#[tokio::test]
async fn a_client_that_leaves_a_refusal_leaves_nothing() {
    let mut s = setup(GenerationLayer::new(), settler());
    let (call, _, end) = s.answered(json().status(400)).await;
    drop(call);
    assert!(end.is_dropped());
    assert_eq!((s.ends(), s.settler.active()), (vec!["refused"], 0));
}
