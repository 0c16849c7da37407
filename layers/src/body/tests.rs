use std::{io, pin::pin};

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body, SizeHint};
use http_body_util::{Empty, Full};
use tokio_test::{assert_pending, assert_ready, task};

use super::{EitherBody, FlushBeforeError};
use crate::{
    error::BoxError,
    test_util::{ScriptHandle, ScriptedBody, assert_body_traits},
};

type Both = EitherBody<ScriptedBody, ScriptedBody>;

/// What one poll gives, in short.
fn poll(body: &mut task::Spawn<impl Body<Data = Bytes, Error = BoxError>>) -> String {
    match assert_ready!(body.enter(|cx, body| body.poll_frame(cx))) {
        None => "end".to_owned(),
        Some(Err(error)) => format!("error: {error}"),
        Some(Ok(frame)) if frame.is_trailers() => {
            format!("{} trailers", frame.into_trailers().unwrap().len())
        }
        Some(Ok(frame)) => String::from_utf8(frame.into_data().unwrap().to_vec()).unwrap(),
    }
}

/// The same body on either side.
fn both(script: impl Fn() -> ScriptedBody) -> [(task::Spawn<Both>, ScriptHandle); 2] {
    let (left, right) = (script(), script());
    let handles = [left.handle(), right.handle()];
    let [first, second] = handles;
    [(task::spawn(EitherBody::Left(left)), first), (task::spawn(EitherBody::Right(right)), second)]
}

#[test]
fn frames_trailers_and_the_end_are_those_of_the_body_inside() {
    let mut trailers = HeaderMap::new();
    trailers.insert("x-sum", "1".parse().unwrap());
    for (mut body, handle) in
        both(|| ScriptedBody::new().data("a").pending().data("b").trailers(trailers.clone()))
    {
        assert_eq!(poll(&mut body), "a");
        assert_pending!(body.enter(|cx, body| body.poll_frame(cx)));
        handle.wake();
        assert!(body.is_woken());
        assert_eq!((poll(&mut body), poll(&mut body)), ("b".into(), "1 trailers".into()));
        assert!(!body.is_end_stream());
        assert_eq!(poll(&mut body), "end");
        assert!(body.is_end_stream());
        assert_eq!((handle.polls(), handle.polls_after_end()), (5, 0));
        drop(body);
        assert!(handle.is_dropped());
    }
}

#[test]
fn a_body_that_ends_by_an_exact_length_says_so() {
    for (mut body, _) in both(|| ScriptedBody::new().data("ab").data("c").exact_size().eager_end()) {
        for (left, frame) in [(3, "ab"), (1, "c")] {
            assert_eq!((body.size_hint().exact(), body.is_end_stream()), (Some(left), false));
            assert_eq!(poll(&mut body), frame);
        }
        assert_eq!((body.size_hint().exact(), body.is_end_stream()), (Some(0), true));
    }
}

#[test]
fn bounds_of_a_length_pass() {
    let mut hint = SizeHint::new();
    hint.set_lower(3);
    hint.set_upper(9);
    for (body, _) in both(|| ScriptedBody::new().claim_size(hint)) {
        assert_eq!((body.size_hint().lower(), body.size_hint().upper()), (3, Some(9)));
    }
    for (body, _) in both(ScriptedBody::new) {
        assert_eq!((body.size_hint().lower(), body.size_hint().upper()), (0, None));
    }
}

#[test]
fn an_end_that_is_announced_early_keeps_its_trailers() {
    for (mut body, _) in both(|| ScriptedBody::new().data("a").trailers(HeaderMap::new()).early_end()) {
        assert_eq!(poll(&mut body), "a");
        assert!(body.is_end_stream());
        assert_eq!(poll(&mut body), "0 trailers");
    }
}

#[test]
fn errors_keep_their_type() {
    for (mut body, _) in both(|| ScriptedBody::new().data("a").error(io::Error::other("broke off"))) {
        assert_eq!(poll(&mut body), "a");
        let frame = assert_ready!(body.enter(|cx, body| body.poll_frame(cx)));
        let error = frame.unwrap().unwrap_err();
        assert!(error.is::<io::Error>(), "it was wrapped: {error:?}");
    }
}

#[test]
fn a_default_is_an_empty_body() {
    let body = EitherBody::<Full<Bytes>, NoDefault>::default();
    assert!(matches!(body, EitherBody::Left(_)));
    assert_eq!((body.size_hint().exact(), body.is_end_stream()), (Some(0), true));
    assert!(pin!(body).is_end_stream());
}

/// Only one side has to be one that can be made up.
#[derive(Debug)]
struct NoDefault;

impl Body for NoDefault {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        self: std::pin::Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<http_body::Frame<Bytes>, BoxError>>> {
        std::task::Poll::Ready(None)
    }
}

#[test]
fn it_can_be_shared_and_shown() {
    assert_body_traits::<Both>();
    assert_body_traits::<EitherBody<Full<Bytes>, Empty<Bytes>>>();
    assert_body_traits::<EitherBody<Full<Bytes>, NoDefault>>();
    assert_eq!(format!("{:?}", EitherBody::<u8, u8>::Right(1)), "Right(1)");
}

/// A server writes out what it has while a body is pending; without that it would be lost.
#[test]
fn an_error_waits_one_poll_so_that_what_came_before_it_is_written() {
    for script in [
        ScriptedBody::new().data("a").error("broken").exact_size().eager_end(),
        ScriptedBody::new().error("broken").exact_size().eager_end(),
    ] {
        let events = script.size_hint().exact().unwrap();
        let mut body = task::spawn(FlushBeforeError::new(script));
        if events > 0 {
            assert!(assert_ready!(body.enter(|cx, body| body.poll_frame(cx))).unwrap().is_ok());
        }
        assert_pending!(body.enter(|cx, body| body.poll_frame(cx)));
        assert!(body.is_woken(), "it asks for the next poll itself");
        assert!(!body.is_end_stream(), "a body that breaks off is not at its end");
        assert_eq!((body.size_hint().lower(), body.size_hint().upper()), (0, None));
        assert!(assert_ready!(body.enter(|cx, body| body.poll_frame(cx))).unwrap().is_err());
    }
}
