use std::{fmt, sync::Arc};

use http::HeaderValue;
use serde_json::Value;

use super::*;
use crate::leg::{LegError, LegErrorKind};

/// An error of somebody else's, with a cause.
#[derive(Debug)]
struct Wrapper(BoxError);

impl fmt::Display for Wrapper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("wrapped")
    }
}

impl Error for Wrapper {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&*self.0)
    }
}

fn wrapped(times: usize, error: impl Into<BoxError>) -> BoxError {
    (0..times).fold(error.into(), |error, _| Wrapper(error).into())
}

fn context(kind: ContextErrorKind) -> BoxError {
    ContextError::new(kind).into()
}

fn contract(kind: ContractErrorKind) -> BoxError {
    ContractError::new(kind).into()
}

fn generation(kind: GenerationErrorKind) -> BoxError {
    GenerationError::new(kind).into()
}

fn status(code: u16) -> http::StatusCode {
    http::StatusCode::from_u16(code).unwrap()
}

#[test]
fn every_kind_has_the_status_and_code_of_the_error_table() {
    use AdmissionErrorKind as A;
    use ContextErrorKind as C;
    use ContractErrorKind as K;
    use GenerationErrorKind as G;
    let table: &[(BoxError, u16, &str)] = &[
        (contract(K::InvalidEppMetadata), 502, "invalid_epp_metadata"),
        (contract(K::EndpointNotAllowed), 403, "context_endpoint_not_allowed"),
        (contract(K::UnsupportedEndpoint), 501, "unsupported_endpoint"),
        (contract(K::InvalidRequest), 400, "invalid_request"),
        (contract(K::UnsupportedRequest), 400, "unsupported_request"),
        (contract(K::HandoffFieldsForbidden), 400, "handoff_fields_forbidden"),
        (contract(K::RequestTooLarge), 413, "request_too_large"),
        (contract(K::RequestTimeout), 408, "request_timeout"),
        (contract(K::RequestIncomplete), 400, "invalid_request"),
        (contract(K::NotServed), 404, "not_found"),
        (AdmissionError::new(A::Overloaded).into(), 503, "overloaded"),
        (AdmissionError::new(A::ShuttingDown).into(), 503, "shutting_down"),
        (context(C::Unreachable), 502, "context_unreachable"),
        (context(C::Interrupted), 502, "context_unreachable"),
        (context(C::Timeout), 504, "context_timeout"),
        (context(C::Rejected(status(400))), 400, "context_rejected"),
        (context(C::Rejected(status(429))), 429, "context_rejected"),
        (context(C::Failed(status(500))), 502, "context_failed"),
        (context(C::Failed(status(503))), 503, "context_failed"),
        (context(C::InvalidReply), 502, "invalid_context_reply"),
        (context(C::ReplyTooLarge), 502, "context_reply_too_large"),
        (context(C::Aborted), 502, "context_aborted"),
        (context(C::UnsupportedEngine), 502, "unsupported_engine_version"),
        (context(C::Overloaded), 503, "overloaded"),
        (generation(G::Unreachable), 503, "generation_unreachable"),
        (generation(G::Timeout), 504, "generation_timeout"),
        (generation(G::Rejected(status(422))), 422, "generation_rejected"),
        (generation(G::Rejected(status(500))), 500, "generation_rejected"),
        (generation(G::UnsupportedEngine), 502, "unsupported_engine_version"),
        (generation(G::Interrupted), 502, "generation_interrupted"),
        (generation(G::InvalidReply), 502, "invalid_generation_reply"),
        (generation(G::Overloaded), 503, "overloaded"),
        ("anything else".into(), 500, "internal_error"),
    ];
    for (error, status, code) in table {
        let reply = ErrorReply::of(&**error);
        assert_eq!((reply.status.as_u16(), reply.code), (*status, *code));
        let body: Value = serde_json::from_str(&reply.body()).unwrap();
        let kind = if *status < 500 { "invalid_request_error" } else { "server_error" };
        let expected = serde_json::json!({"error": {"message": reply.message, "type": kind, "param": null, "code": code}});
        assert_eq!(body, expected);
        assert!(!reply.message.is_empty() && reply.message.is_ascii());
        assert_eq!(reply.message.to_lowercase().chars().next(), reply.message.chars().next(), "{code}");
    }
}

#[test]
fn details_reach_the_client_and_causes_do_not() {
    let error = ContractError::new(ContractErrorKind::InvalidRequest)
        .with_message("member `seed`: not a number")
        .with_param("seed")
        .with_source("a cause");
    let reply = ErrorReply::of(&error);
    assert_eq!(
        (reply.message.as_str(), reply.param.as_deref()),
        ("member `seed`: not a number", Some("seed"))
    );
    assert_eq!(error.to_string(), reply.message);
    assert_eq!(error.source().unwrap().to_string(), "a cause");
    assert!(!reply.body().contains("a cause"));

    let seconds = Some(HeaderValue::from_static("30"));
    let context = ContextError::new(ContextErrorKind::Failed(status(503)))
        .with_retry_after(seconds.clone())
        .with_message("m");
    let generation = GenerationError::new(GenerationErrorKind::Rejected(status(429)))
        .with_retry_after(seconds.clone())
        .with_message("m");
    for reply in [context.reply(), generation.reply()] {
        assert_eq!((&reply.retry_after, reply.message.as_str()), (&seconds, "m"));
    }
    let overloaded = AdmissionError::new(AdmissionErrorKind::Overloaded).with_message("m").reply();
    assert_eq!(
        (overloaded.retry_after.unwrap(), overloaded.message),
        (HeaderValue::from_static("1"), "m".into())
    );
    assert_eq!(ContextError::new(ContextErrorKind::Timeout).reply().retry_after, None);
}

#[test]
fn a_message_is_escaped() {
    let odd = "a \"quote\", a \\ and a \n and \u{1}";
    let reply = ErrorReply::new(status(400), "c", odd).with_param(Some(odd.into()));
    let body: Value = serde_json::from_str(&reply.body()).unwrap();
    assert_eq!((&body["error"]["message"], &body["error"]["param"]), (&odd.into(), &odd.into()));
}

#[test]
fn the_text_of_an_unknown_error_is_not_shown() {
    let reply = ErrorReply::of(&*wrapped(2, "a secret"));
    assert!(!reply.body().contains("secret") && !reply.body().contains("wrapped"));
    assert_eq!(ErrorReply::known(&*wrapped(2, "a secret")), None);
}

#[test]
fn an_error_is_found_through_any_number_of_others() {
    for depth in [0, 1, 5, 1000] {
        let error = wrapped(depth, context(ContextErrorKind::Timeout));
        assert_eq!(find::<ContextError>(&*error).unwrap().kind(), ContextErrorKind::Timeout, "{depth}");
        assert!(find::<GenerationError>(&*error).is_none());
        assert_eq!(ErrorReply::of(&*error).code, "context_timeout");
        std::mem::forget(error); // dropping a chain this deep is the owner's affair
    }
}

#[test]
fn the_outermost_known_error_is_the_one_that_is_answered() {
    let inner = ContractError::new(ContractErrorKind::InvalidRequest);
    let outer = GenerationError::new(GenerationErrorKind::Timeout).with_source(wrapped(1, inner));
    assert_eq!(ErrorReply::of(&*wrapped(1, outer)).code, "generation_timeout");
    let inner = AdmissionError::new(AdmissionErrorKind::Overloaded);
    let outer = ContextError::new(ContextErrorKind::Unreachable).with_source(inner);
    assert_eq!(ErrorReply::of(&outer).code, "context_unreachable");
}

#[cfg(feature = "tower")]
#[test]
fn errors_of_towers_layers_are_known_wherever_they_stand() {
    let elapsed = || tower::timeout::error::Elapsed::new();
    let overloaded = || tower::load_shed::error::Overloaded::new();
    let reply = ErrorReply::of(&*wrapped(3, elapsed()));
    assert_eq!((reply.status.as_u16(), reply.code), (504, "timeout"));
    let reply = ErrorReply::of(&*wrapped(3, overloaded()));
    assert_eq!((reply.status.as_u16(), reply.code, reply.retry_after.is_some()), (503, "overloaded", true));
    // What we say about it counts for more than what it was.
    let leg = ContextError::new(ContextErrorKind::Timeout).with_source(elapsed());
    assert_eq!(ErrorReply::of(&leg).code, "context_timeout");
}

#[test]
fn only_a_leg_that_saw_no_reply_may_be_tried_again() {
    use ContextErrorKind::*;
    for kind in [Interrupted, Timeout, Rejected(status(503)), Failed(status(503)), InvalidReply, Aborted] {
        assert!(!ContextError::new(kind).is_retryable(), "{kind:?}");
    }
    assert!(ContextError::new(Unreachable).is_retryable());
}

/// Bodies and connections often make an `io::Error` of another error, which then is neither the error nor its cause.
#[test]
fn an_error_inside_an_io_error_is_found() {
    let lost = LegError::new(LegErrorKind::Lost).with_source("reset");
    let error: BoxError = std::io::Error::other(std::io::Error::other(lost)).into();
    assert_eq!(find::<LegError>(&*error).map(LegError::kind), Some(LegErrorKind::Lost));
    let cause: BoxError = ContextError::new(ContextErrorKind::Timeout).with_source(error).into();
    assert!(find::<LegError>(&*cause).is_some());
}

/// A worker's message may quote the request: the client may see it, a log may not.
#[test]
fn what_a_worker_said_reaches_the_client_alone() {
    let kind = ContextErrorKind::Rejected(status(400));
    let error = ContextError::new(kind).with_worker_message("CANARY is too long".to_owned());
    assert_eq!(error.reply().message, "CANARY is too long");
    assert!(!error.to_string().contains("CANARY"));
}

#[test]
fn errors_can_be_shared_and_tell_their_causes() {
    fn shared<T: Error + Send + Sync + 'static>() {}
    shared::<ContractError>();
    shared::<AdmissionError>();
    shared::<ContextError>();
    shared::<GenerationError>();
    let lost = || LegError::new(LegErrorKind::Lost);
    for error in [
        BoxError::from(ContextError::new(ContextErrorKind::Unreachable).with_source(lost())),
        GenerationError::new(GenerationErrorKind::Unreachable).with_source(lost()).into(),
        ContractError::new(ContractErrorKind::RequestIncomplete).with_source(lost()).into(),
    ] {
        let error: Arc<dyn Error + Send + Sync> = error.into();
        assert_eq!(find::<LegError>(&*error).unwrap().kind(), LegErrorKind::Lost);
    }
    assert!(AdmissionError::new(AdmissionErrorKind::ShuttingDown).source().is_none());
}
