//! A handoff as a body, for the layers of other people.

use bytes::Bytes;
use http_body::Body;
use http_body_util::BodyExt;
use tokio_test::{assert_ready, assert_ready_ok, task};

use super::{REQUEST, minted, open, primed, reply, validated};
use crate::{
    handoff::{Handoff, Minted, Open, Primed, Stage, Validated},
    settle::Settler,
};

/// Reads a handoff as a body, and gives it back.
fn read<S: Stage>(handoff: Handoff<S>) -> Handoff<S> {
    let mut body = task::spawn(handoff);
    assert_eq!((body.size_hint().exact(), body.is_end_stream()), (Some(REQUEST.len() as u64), false));
    let frame = assert_ready!(body.enter(|cx, body| body.poll_frame(cx))).unwrap().unwrap();
    assert_eq!(frame.into_data().unwrap(), REQUEST);
    assert_eq!((body.size_hint().exact(), body.is_end_stream()), (Some(0), true));
    for _ in 0..2 {
        assert!(assert_ready!(body.enter(|cx, body| body.poll_frame(cx))).is_none());
    }
    assert!(!body.is_woken());
    body.into_inner()
}

#[test]
fn every_stage_yields_the_clients_json_once_with_an_exact_length() {
    let settler = Settler::off();
    read(validated());
    read(minted());
    read(primed("length", &settler));
    read(open(&settler));
}

#[test]
fn the_bytes_are_shared() {
    let handoff = validated();
    let at = handoff.request().body().as_ptr();
    let clone = handoff.clone();
    for handoff in [handoff, clone] {
        assert_eq!(handoff.request().body().as_ptr(), at);
        let text: Bytes = assert_ready_ok!(task::spawn(handoff.collect()).poll()).to_bytes();
        assert_eq!(text.as_ptr(), at);
    }
}

#[test]
fn a_handoff_that_was_read_on_the_way_is_whole_at_the_next_stage() {
    let handoff = read(validated());
    assert_eq!(handoff.request().body(), REQUEST);
    let handoff = read(handoff.mint(minted().id()));
    read(handoff.prime(reply("length")));
}

#[test]
fn a_clone_of_one_that_was_read_starts_anew() {
    let used = read(validated());
    read(used.clone());
    assert!(used.is_end_stream());
}

#[test]
fn axum_and_hyper_take_it_for_a_body() {
    fn body<B>()
    where
        B: Body<Data = Bytes, Error: std::error::Error + Send + Sync> + Send + Sync + Unpin + 'static,
    {
    }
    body::<Handoff<Validated>>();
    body::<Handoff<Minted>>();
    body::<Handoff<Primed>>();
    body::<Handoff<Open>>();
    let _ = axum::body::Body::new(minted());
}
