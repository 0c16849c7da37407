//! The body that the passthrough service gets.

use http::HeaderMap;
use http_body::Body;
use tokio_test::{assert_pending, assert_ready, task};

use super::CANARY;
use crate::{contract::PassthroughBody, test_util::ScriptedBody};

type Passed = PassthroughBody<ScriptedBody>;

/// What one poll gives, in short.
fn poll(body: &mut task::Spawn<Passed>) -> String {
    match assert_ready!(body.enter(|cx, body| body.poll_frame(cx))) {
        None => "end".to_owned(),
        Some(Err(error)) => format!("error: {error}"),
        Some(Ok(frame)) if frame.is_trailers() => "trailers".to_owned(),
        Some(Ok(frame)) => String::from_utf8(frame.into_data().unwrap().to_vec()).unwrap(),
    }
}

#[test]
fn a_body_that_was_read_has_an_exact_length_and_one_frame() {
    let mut body = task::spawn(Passed::whole("text".into()));
    assert_eq!((body.size_hint().exact(), body.is_end_stream()), (Some(4), false));
    assert_eq!(poll(&mut body), "text");
    assert_eq!((body.size_hint().exact(), body.is_end_stream()), (Some(0), true));
    assert_eq!((poll(&mut body), poll(&mut body)), ("end".into(), "end".into()));

    for empty in [Passed::whole(bytes::Bytes::new()), Passed::default()] {
        assert_eq!((empty.size_hint().exact(), empty.is_end_stream()), (Some(0), true));
        assert_eq!(poll(&mut task::spawn(empty)), "end");
    }
}

#[test]
fn a_body_that_was_not_read_is_what_it_was() {
    let script = ScriptedBody::new().data("a").trailers(HeaderMap::new()).exact_size().eager_end();
    let handle = script.handle();
    let mut body = task::spawn(Passed::stream(script));
    assert_eq!((body.size_hint().exact(), body.is_end_stream()), (Some(1), false));
    assert_eq!(poll(&mut body), "a");
    assert_eq!((body.size_hint().exact(), body.is_end_stream()), (Some(0), false));
    assert_eq!((poll(&mut body), body.is_end_stream()), ("trailers".into(), true));
    assert_eq!(poll(&mut body), "end");
    assert_eq!((handle.polls(), handle.polls_after_end()), (3, 0));

    let mut body = task::spawn(Passed::stream(ScriptedBody::new().pending().error("broke off")));
    assert_eq!(body.size_hint().exact(), None);
    assert_pending!(body.enter(|cx, body| body.poll_frame(cx)));
    drop(body);
    let mut body = task::spawn(Passed::stream(ScriptedBody::new().error("broke off")));
    assert_eq!(poll(&mut body), "error: broke off");
}

#[test]
fn the_two_are_told_apart() {
    assert_eq!(Passed::whole("text".into()).into_inner().unwrap().into_bytes(), "text");
    assert!(Passed::stream(ScriptedBody::new()).into_inner().is_err());
}

#[test]
fn it_shows_no_content_even_when_the_body_inside_would() {
    let text = bytes::Bytes::from_static(CANARY.as_bytes());
    let read = PassthroughBody::<http_body_util::Full<_>>::whole(text.clone());
    let unread = PassthroughBody::stream(http_body_util::Full::new(text));
    for body in [read, unread] {
        assert!(!format!("{body:?}").contains(CANARY), "{body:?}");
    }
}
