//! Replies that are no stream.

use std::time::Duration;

use http_body::Body as _;
use http_body_util::BodyExt;
use tokio_test::{assert_ready, assert_ready_err};

use super::*;
use crate::{
    buffer::BufferBudget,
    error::{ErrorReply, GenerationError, GenerationErrorKind, find},
    test_util::Recorded,
};

const STATE: &str = r#"{"id":"x","choices":[{"index":0,"message":{"content":"Hi"},"disaggregated_params":{"encoded_opaque_state":"CANARY"}}],"prompt_token_ids":[1,2],"usage":null}"#;
const CLEANED: &str = r#"{"id":"x","choices":[{"index":0,"message":{"content":"Hi"}}],"usage":null}"#;

fn settler() -> Settler {
    Settler::new(Duration::from_secs(30))
}

/// The answer to a reply that comes in these pieces, polled as they come.
async fn reply(
    layer: GenerationLayer,
    head: http::response::Builder,
    parts: &[&'static str],
) -> (Setup, Response<RelayBody<Pipe>>) {
    let mut s = setup(layer, settler());
    let (mut call, answer, mut end) = s.answered(head).await;
    let mut answer = answer.map(Result::unwrap);
    for part in parts {
        end.send(*part);
        if answer.is_none()
            && let std::task::Poll::Ready(response) = call.poll()
        {
            answer = Some(response.unwrap());
        }
    }
    end.end();
    let response = match answer {
        Some(answer) => answer,
        None => assert_ready_ok!(call.poll()),
    };
    (s, response)
}

#[tokio::test]
async fn a_whole_reply_is_cleaned_and_has_its_length() {
    let cases: [(&[&str], &str); 7] = [
        (&[STATE], CLEANED),
        (&[r#"{"choices":[{"index":0}"#, r#"],"prompt_token_ids":[1]}"#], r#"{"choices":[{"index":0}]}"#),
        (&[CLEANED], CLEANED),
        (&["{ \"choices\" : [ ] ,\n\"x\":1e400}"], "{ \"choices\" : [ ] ,\n\"x\":1e400}"),
        (&["no ", "JSON"], "no JSON"),
        (&["[1]"], "[1]"),
        (&[""], ""),
    ];
    for (parts, expected) in cases {
        let head = json()
            .status(201)
            .header("x-worker", "1")
            .header("content-length", "4")
            .header("connection", "close");
        let (s, response) = reply(GenerationLayer::new(), head, parts).await;
        assert_eq!(response.status(), 201);
        assert_eq!(response.headers().len(), 3, "{:?}", response.headers());
        assert_eq!(
            (&response.headers()["x-worker"], &response.headers()["content-type"]),
            (&"1".parse().unwrap(), &"application/json".parse().unwrap())
        );
        assert_eq!(response.headers()["content-length"], expected.len().to_string().as_str());
        let body = response.into_body();
        assert_eq!(
            (body.size_hint().exact(), body.is_end_stream()),
            (Some(expected.len() as u64), expected.is_empty())
        );
        assert_eq!(body.collect().await.unwrap().to_bytes(), expected);
        // What came without a byte shows nothing.
        let end = if expected.is_empty() { "failed" } else { "collected" };
        assert_eq!((s.ends(), s.settler.active()), (vec![end], 0));
    }
}

#[tokio::test]
async fn a_reply_of_any_other_type_is_read_whole() {
    for head in [
        Response::builder(),
        Response::builder().header("content-type", "text/plain"),
        Response::builder().header("content-type", "text/event"),
    ] {
        let mut s = setup(GenerationLayer::new(), settler());
        let (_call, answer, _end) = s.answered(head).await;
        assert!(answer.is_none());
    }
}

#[tokio::test]
async fn the_cap_is_a_limit_of_cleaning_only() {
    let limit = STATE.len() as u64;
    let cases = [
        (GenerationLayer::new().max_whole(limit), CLEANED, None),
        (GenerationLayer::new().max_whole(limit - 1), STATE, Some(1.0)),
        (GenerationLayer::new().max_whole(0), STATE, Some(1.0)),
        (GenerationLayer::new().budget(BufferBudget::new(limit)), CLEANED, None),
    ];
    for (case, (layer, expected, uncleaned)) in cases.into_iter().enumerate() {
        for length in [None, Some(STATE.len())] {
            let recorded = Recorded::default();
            let _guard = metrics::set_default_local_recorder(&recorded);
            let head = match length {
                Some(length) => json().header("content-length", length),
                None => json(),
            };
            let (one, two) = STATE.split_at(STATE.len() / 2);
            let (s, response) = reply(layer.clone(), head, &[one, "", two]).await;
            let header =
                response.headers().get("content-length").map(|value| value.to_str().unwrap().to_owned());
            let known = expected == CLEANED || length.is_some();
            assert_eq!(header, known.then(|| expected.len().to_string()), "case {case}");
            let body = response.into_body();
            let lower = body.size_hint().lower();
            let body = body.collect().await.unwrap().to_bytes();
            assert!(lower <= body.len() as u64);
            assert_eq!(body, expected, "case {case}");
            assert_eq!(recorded.value("disagg_uncleaned_replies_total"), uncleaned, "case {case}");
            assert_eq!((s.ends(), s.settler.active()), (vec!["collected"], 0), "case {case}");
            assert!(!recorded.all().keys().any(|name| name.contains("streams")), "it is no stream");
        }
    }
}

#[tokio::test]
async fn a_budget_is_given_back() {
    let budget = BufferBudget::new(1 << 20);
    let (_s, response) = reply(GenerationLayer::new().budget(budget.clone()), json(), &[STATE]).await;
    assert_eq!(budget.held(), STATE.len() as u64);
    drop(response);
    assert_eq!(budget.held(), 0);
}

/// Length that is known beforehand makes the decision before a byte is read.
#[tokio::test]
async fn a_reply_over_the_cap_is_relayed_as_it_comes() {
    let mut s = setup(GenerationLayer::new().max_whole(4), settler());
    let (mut call, answer, end) = s.answered(json()).await;
    assert!(answer.is_none());
    end.send("abc");
    assert_pending!(call.poll());
    assert_eq!(s.ends(), ["collected"], "by the first byte, not by the last");
    end.send("de");
    let mut body = task::spawn(assert_ready_ok!(call.poll()).into_body());
    assert_eq!((body.size_hint().lower(), body.size_hint().upper(), body.is_end_stream()), (5, None, false));
    let first = assert_ready!(body.enter(|cx, body| body.poll_frame(cx))).unwrap().unwrap();
    assert_eq!(first.into_data().unwrap(), "abcde");
    assert_pending!(body.enter(|cx, body| body.poll_frame(cx)));
    end.send("f");
    let next = assert_ready!(body.enter(|cx, body| body.poll_frame(cx))).unwrap().unwrap();
    assert_eq!(next.into_data().unwrap(), "f");
    end.fail();
    assert!(assert_ready!(body.enter(|cx, body| body.poll_frame(cx))).unwrap().is_err());
}

/// What fills the budget is anybody's upload, and must not show another one internal state.
#[tokio::test]
async fn a_reply_that_finds_no_room_is_not_shown() {
    for room in [0, STATE.len() as u64 - 1] {
        let error = refused(GenerationLayer::new().budget(BufferBudget::new(room)), json(), STATE).await;
        assert_eq!((error.status.as_u16(), error.code), (503, "overloaded"));
    }
}

#[tokio::test]
async fn a_reply_that_cannot_be_searched_or_holds_the_state_elsewhere_is_not_shown() {
    let encoded = |encoding| json().header("content-encoding", encoding);
    for (head, body) in [
        (encoded("gzip"), "\u{1f}..."),
        (json(), "{\0\"\0a\0\"\0:\0"), // UTF-16
        (json(), r#"{"error":"input: {'encoded_opaque_state': 'CANARYSTATEQUFBQUFBQUFBQUFBQUFBQUFBQQ=='}"}"#),
        (
            json(),
            r#"{"choices":[{"disaggregated_params":{"encoded_opaque_state":"CANARYSTATEQUFBQUFBQUFBQUFBQUFBQUFBQQ=="},"x":NaN}]}"#,
        ),
    ] {
        let error = refused(GenerationLayer::new(), head, body).await;
        assert_eq!((error.status.as_u16(), error.code), (502, "invalid_generation_reply"), "{body}");
    }
    // The names alone are no secret, and a model may write as many backslashes as it likes.
    for body in
        [r#"{"choices":[{"message":{"content":"encoded_opaque_state"}}]}"#.to_owned(), "\\".repeat(2000)]
    {
        let body: &'static str = body.leak();
        let (_s, response) = reply(GenerationLayer::new(), encoded("identity"), &[body]).await;
        assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), body);
    }
}

/// What the client is told instead of this reply.
async fn refused(layer: GenerationLayer, head: http::response::Builder, body: &'static str) -> ErrorReply {
    let mut s = setup(layer, settler());
    let (mut call, _, mut end) = s.answered(head).await;
    end.send(body);
    end.end();
    let error = tokio_test::assert_ready_err!(call.poll());
    assert!(!error.to_string().contains("CANARYSTATEQUFBQUFBQUFBQUFBQUFBQUFBQQ=="));
    ErrorReply::of(&*error)
}

#[tokio::test]
async fn a_whole_reply_that_breaks_off_is_an_error_and_no_answer() {
    for (sent, end) in [(None, "failed"), (Some("{"), "collected")] {
        let mut s = setup(GenerationLayer::new(), settler());
        let (mut call, _, pipe) = s.answered(json()).await;
        if let Some(sent) = sent {
            pipe.send(sent);
        }
        pipe.fail();
        let error = assert_ready_err!(call.poll());
        let error = find::<GenerationError>(&*error).unwrap();
        assert_eq!((error.kind(), error.reply().status.as_u16()), (GenerationErrorKind::Interrupted, 502));
        assert_pending!(call.poll());
        drop(call);
        assert_eq!((s.ends(), s.settler.active()), (vec![end], 0));
    }
}
