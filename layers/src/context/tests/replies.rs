//! What the answers and failures of a context worker come to.

use http::StatusCode;
use tokio_test::assert_ready_err;

use super::{
    super::decide::{leg_failed, read},
    *,
};
use crate::{
    buffer::CollectError,
    error::{BoxError, ContextError, ContextErrorKind as Kind, ErrorReply, find},
    leg::{LegError, LegErrorKind},
    trtllm::Endpoint,
};

const UNKNOWN: &str = r#"{"choices":[{"finish_reason":"paused","disaggregated_params":{"ctx_request_id":7}}],"prompt_token_ids":[1]}"#;

fn failed(reply: Response<Bytes>) -> (Kind, ErrorReply) {
    let error = read(Endpoint::Chat, reply).unwrap_err();
    assert!(!format!("{error:?}{error}").contains(CANARY), "{error:?}");
    (error.kind(), error.reply())
}

#[test]
fn a_refusal_keeps_status_message_and_retry_after() {
    let too_long = r#"{"object":"error","message":"prompt length (9000) exceeds max_seq_len (8192)","type":"BadRequestError","param":null,"code":400}"#;
    let cases = [
        (400, too_long, "prompt length (9000) exceeds max_seq_len (8192)"),
        (422, r#"{"error":{"message":"no"}}"#, "no"),
        (404, r#"{"detail":"Not Found"}"#, "Not Found"),
        (401, r#"{"error":"Unauthorized"}"#, "Unauthorized"),
        (429, "slow down", "slow down"),
        (499, "", "the context worker refused the request"),
        (413, "<html>CANARY</html>", "the context worker refused the request"),
        (400, r#"{"error":"bad disaggregated_params CANARY"}"#, "the context worker refused the request"),
    ];
    for (status, body, message) in cases {
        let mut reply = context_reply(status, body);
        reply.headers_mut().insert("retry-after", "7".parse().unwrap());
        let (kind, answer) = failed(reply);
        let status = StatusCode::from_u16(status).unwrap();
        assert_eq!(kind, Kind::Rejected(status));
        assert_eq!((answer.status, answer.code, &*answer.message), (status, "context_rejected", message));
        assert_eq!(answer.retry_after.unwrap(), "7");
        assert_eq!(failed(context_reply(status.as_u16(), body)).1.retry_after, None);
    }
}

#[test]
fn a_failure_says_which_stage_and_not_what_the_worker_wrote() {
    for (status, answered) in [(500, 502), (501, 502), (502, 502), (503, 503), (504, 502), (599, 502)] {
        let mut reply = context_reply(status, r#"{"error":{"message":"CANARY"}}"#);
        reply.headers_mut().insert("retry-after", "9".parse().unwrap());
        let (kind, answer) = failed(reply);
        assert_eq!(kind, Kind::Failed(StatusCode::from_u16(status).unwrap()));
        assert_eq!((answer.status.as_u16(), answer.code), (answered, "context_failed"));
        assert_eq!(answer.message, format!("the context worker failed with status {status}"));
        assert_eq!(answer.retry_after.unwrap(), "9");
    }
}

#[test]
fn a_success_has_to_be_a_usable_reply() {
    const EMPTY: &str = r#"{"choices":[]}"#;
    let typed = |media: &'static str, body| {
        let mut reply = context_reply(200, body);
        reply.headers_mut().insert("content-type", media.parse().unwrap());
        reply
    };
    let coded = |coding: &'static str, body| {
        let mut reply = context_reply(200, body);
        reply.headers_mut().insert("content-encoding", coding.parse().unwrap());
        reply
    };
    let cases = [
        (context_reply(300, DUE), "status 300"),
        (context_reply(301, DUE), "status 301"),
        (context_reply(307, DUE), "status 307"),
        (context_reply(304, ""), "status 304"),
        (typed("text/event-stream", DUE), "event stream"),
        (typed("Text/Event-Stream; charset=utf-8", DUE), "event stream"),
        (coded("gzip", "\u{1f}"), "compressed"),
        (coded("identity, br", DUE), "compressed"),
        (coded("x-unknown", DUE), "compressed"),
        (context_reply(200, ""), "the body"),
        (context_reply(204, ""), "the body"),
        (context_reply(200, "null"), "the body"),
        (context_reply(200, "[]"), "the body"),
        (context_reply(200, r#"{"choices":[{"finish_reason":"length""#), "the body"),
        (context_reply(200, r#"{"error":{"message":"CANARY"}}"#), "`error`"),
        (context_reply(200, EMPTY), "`choices`"),
        (
            context_reply(200, r#"{"choices":[{"finish_reason":"length","message":{"content":"CANARY"}}]}"#),
            "`choices[0].disaggregated_params`",
        ),
        (
            context_reply(200, r#"{"choices":[{"message":{"content":"CANARY"}}]}"#),
            "`choices[0].disaggregated_params`",
        ),
    ];
    for (reply, names) in cases {
        let (kind, answer) = failed(reply);
        assert_eq!(
            (kind, answer.status.as_u16(), answer.code),
            (Kind::InvalidReply, 502, "invalid_context_reply")
        );
        let start = "the reply of the context worker is not a usable handoff: ";
        assert!(answer.message.starts_with(start) && answer.message.contains(names), "{}", answer.message);
    }
    // The type is not looked at beyond that, and need not be there.
    for reply in [
        typed("text/plain", DUE),
        typed("text/event", DUE),
        coded("Identity", DUE),
        Response::builder().status(201).body(Bytes::from_static(DUE.as_bytes())).unwrap(),
    ] {
        assert!(read(Endpoint::Chat, reply).is_ok());
    }
    for reason in ["cancelled", "abort", "error", "timeout", "CANARY"] {
        let body =
            format!(r#"{{"choices":[{{"finish_reason":"{reason}","message":{{"content":"CANARY"}}}}]}}"#);
        let (kind, answer) = failed(Response::new(body.into()));
        assert_eq!((kind, answer.status.as_u16(), answer.code), (Kind::Aborted, 502, "context_aborted"));
    }
}

#[test]
fn a_broken_leg_says_how() {
    let cases = [
        (LegErrorKind::Connect, Kind::Unreachable, 502, "context_unreachable"),
        (LegErrorKind::Lost, Kind::Unreachable, 502, "context_unreachable"),
        (LegErrorKind::Interrupted, Kind::Interrupted, 502, "context_unreachable"),
        (LegErrorKind::Timeout, Kind::Timeout, 504, "context_timeout"),
        (LegErrorKind::ReplyTooLarge, Kind::ReplyTooLarge, 502, "context_reply_too_large"),
        (LegErrorKind::Overloaded, Kind::Overloaded, 503, "overloaded"),
        (LegErrorKind::UnsupportedEngine, Kind::UnsupportedEngine, 502, "unsupported_engine_version"),
    ];
    for (leg, kind, status, code) in cases {
        for wrapped in [false, true] {
            let error = LegError::new(leg).with_source("CANARY refused");
            let error: BoxError =
                if wrapped { CollectError::Body(error.into()).into() } else { error.into() };
            let error = leg_failed(error);
            let answer = error.reply();
            assert_eq!((error.kind(), answer.status.as_u16(), answer.code), (kind, status, code));
            assert!(!answer.message.contains(CANARY), "causes are for the log");
            assert_eq!(error.is_retryable(), kind == Kind::Unreachable);
            assert_eq!(find::<LegError>(&error).unwrap().kind(), leg, "the cause is kept");
        }
        let said = leg_failed(LegError::new(leg).with_message("1.2 is too old").into());
        assert_eq!(said.reply().message, "1.2 is too old");
    }
    // What nothing is known of may have come after the head: no other attempt.
    let unknown = leg_failed("CANARY".into());
    assert_eq!((unknown.kind(), unknown.is_retryable()), (Kind::Interrupted, false));
    assert!(!unknown.reply().message.contains(CANARY));
}

#[test]
fn towers_timeout_is_one_where_it_is_known() {
    let error = leg_failed(Box::new(tower::timeout::error::Elapsed::new()));
    let expected = if cfg!(feature = "tower") { Kind::Timeout } else { Kind::Interrupted };
    assert_eq!(error.kind(), expected);
}

/// What a reply, or an error, does to the call, the inner service and the handoff.
#[tokio::test]
async fn each_end_of_a_leg_is_counted_as_what_it_left_behind() {
    type Leg = Result<Response<Bytes>, LegErrorKind>;
    // (did the head signal, what the leg came to, the error, how the handoff ended)
    let cases: [(Option<u16>, Leg, Kind, &[&str]); 14] = [
        (None, Ok(context_reply(400, "")), Kind::Rejected(StatusCode::BAD_REQUEST), &[]),
        (Some(400), Ok(context_reply(400, "")), Kind::Rejected(StatusCode::BAD_REQUEST), &[]),
        (Some(500), Ok(context_reply(500, "")), Kind::Failed(StatusCode::INTERNAL_SERVER_ERROR), &[]),
        (None, Ok(context_reply(302, "")), Kind::InvalidReply, &[]),
        (None, Err(LegErrorKind::Connect), Kind::Unreachable, &[]),
        (None, Err(LegErrorKind::Timeout), Kind::Timeout, &[]),
        (None, Err(LegErrorKind::Interrupted), Kind::Interrupted, &[]),
        (Some(500), Err(LegErrorKind::Interrupted), Kind::Interrupted, &[]),
        (Some(200), Err(LegErrorKind::Interrupted), Kind::Interrupted, &["failed"]),
        (Some(200), Err(LegErrorKind::ReplyTooLarge), Kind::ReplyTooLarge, &["failed"]),
        (Some(200), Ok(context_reply(200, "{}")), Kind::InvalidReply, &["failed"]),
        (None, Ok(context_reply(200, "{}")), Kind::InvalidReply, &["failed"]),
        (None, Ok(context_reply(200, ABORTED)), Kind::Aborted, &["released"]),
        // A reason that is not known, with a handoff that may well be complete.
        (None, Ok(context_reply(200, UNKNOWN)), Kind::Aborted, &["failed"]),
    ];
    for (head, outcome, kind, expected) in cases {
        let mut s = setup(Settler::off());
        let (mut call, request, mut reply) = s.running().await;
        if let Some(status) = head {
            head_arrives(&request, status);
        }
        match outcome {
            Ok(response) => reply.send_response(response),
            Err(kind) => reply.send_error(LegError::new(kind)),
        }
        let error = assert_ready_err!(call.poll());
        assert_eq!(find::<ContextError>(&*error).unwrap().kind(), kind);
        assert!(s.inner.try_next().is_none(), "no fallback: {kind:?}");
        drop(call);
        assert_eq!(s.ends(), expected, "{head:?} {kind:?}");
        assert_eq!(s.settler.counts().settled, 0);
    }
}
