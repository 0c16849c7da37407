//! Readiness, order, and what wraps the layer and its leg.

use std::time::Duration;

use http_body_util::BodyExt;
use tokio::time::advance;
use tokio_test::{assert_ready_err, assert_ready_ok};
use tower::{ServiceBuilder, service_fn, util::BoxCloneSyncService};

use super::*;
use crate::{
    error::{BoxError, ContextError, ContextErrorKind, find},
    handoff::Minted,
    leg::BufferReplyLayer,
    test_util::{Probe, assert_future_traits, assert_layer_traits, assert_service_traits},
};

#[test]
fn types_can_be_shared_and_printed() {
    assert_layer_traits::<ContextLayer<Leg>>();
    assert_service_traits::<Context<Inner, Leg>>();
    assert_future_traits::<ContextFuture<ScriptedBody>>();
    let s = setup(Settler::off());
    let _: &Inner = s.service.get_ref();
    let _: Inner = s.service.into_inner();
}

#[tokio::test]
async fn nothing_that_is_printed_holds_content() {
    let mut s = setup(Settler::off());
    let (mut call, _, mut reply) = s.running().await;
    assert!(!format!("{call:?}{:?}", s.service).contains(CANARY));
    reply.send_response(context_reply(200, DUE));
    assert_pending!(call.poll());
    assert!(!format!("{call:?}").contains(CANARY));
    let (request, _) = s.inner.try_next().unwrap();
    assert!(!format!("{request:?}").contains(CANARY));
}

#[tokio::test]
async fn ready_when_the_leg_is() {
    let mut s = setup(Settler::off());
    s.leg.block();
    s.inner.block();
    let Setup { service, leg, .. } = &mut s;
    let mut ready = task::spawn(service.ready());
    assert_pending!(ready.poll());
    leg.allow(1);
    assert!(ready.is_woken());
    // The inner service is not asked: a context leg must not hold a place there.
    assert_ready_ok!(ready.poll());
    drop(ready);
    // What was ready is what is called.
    leg.block();
    let mut call = task::spawn(s.service.call(handoffs_request()));
    assert_pending!(call.poll());
    assert!(s.leg.try_next().is_some());
    // The next call asks anew.
    assert_pending!(task::spawn(s.service.ready()).poll());
}

#[tokio::test]
async fn the_readiness_error_of_the_leg_passes() {
    let mut s = setup(Settler::off());
    s.leg.fail_ready("no leg");
    assert_eq!(s.service.ready().await.unwrap_err().to_string(), "no leg");
}

#[tokio::test]
async fn a_clone_is_not_ready_and_clones_do_not_mix() {
    let mut s = setup(Settler::off());
    s.leg.allow(1);
    let mut one = s.service.clone();
    let mut two = s.service.clone();
    one.ready().await.unwrap();
    assert_pending!(task::spawn(two.ready()).poll());
    assert_pending!(task::spawn(one.clone().ready()).poll(), "the clone of a service that is ready");
    s.leg.unblock();
    two.ready().await.unwrap();
    let mut first = task::spawn(one.call(handoffs_request()));
    let mut second = task::spawn(two.call(handoffs_request()));
    let (_, mut to_first) = s.leg.try_next().unwrap();
    let (_, mut to_second) = s.leg.try_next().unwrap();
    to_second.send_response(context_reply(400, ""));
    assert_pending!(first.poll());
    assert_ready_err!(second.poll());
    to_first.send_response(context_reply(200, DUE));
    assert_pending!(first.poll());
    assert!(s.inner.try_next().is_some());
}

#[tokio::test]
async fn the_inner_service_is_driven_to_readiness_when_the_reply_is_here() {
    let mut s = setup(Settler::off());
    s.inner.block();
    let (mut call, _, mut reply) = s.running().await;
    reply.send_response(context_reply(200, DUE));
    assert_pending!(call.poll());
    assert!(s.inner.try_next().is_none());
    s.inner.allow(1);
    assert!(call.is_woken());
    assert_pending!(call.poll());
    let (_, mut reply) = s.inner.try_next().unwrap();
    reply.send_error("inner");
    assert_eq!(assert_ready_err!(call.poll()).to_string(), "inner");
}

#[tokio::test]
async fn a_readiness_error_after_the_reply_leaves_the_handoff_behind() {
    let mut s = setup(Settler::new(Duration::from_secs(30)));
    let (mut call, _, mut reply) = s.running().await;
    s.inner.fail_ready("inner is gone");
    reply.send_response(context_reply(200, DUE));
    assert_eq!(assert_ready_err!(call.poll()).to_string(), "inner is gone");
    drop(call);
    // Nobody has it any more, so there is nothing to finish it with.
    assert_eq!((s.ends(), s.settler.active()), (vec!["abandoned"], 0));
}

#[tokio::test]
async fn an_error_of_the_inner_service_keeps_its_type() {
    let mut s = setup(Settler::off());
    let (mut call, _, mut reply) = s.running().await;
    reply.send_response(context_reply(200, DUE));
    assert_pending!(call.poll());
    let (request, mut reply) = s.inner.try_next().unwrap();
    request.body().reply();
    reply.send_error(std::io::Error::other("x"));
    assert!(assert_ready_err!(call.poll()).is::<std::io::Error>());
    drop((call, request));
    assert_eq!(s.ends(), ["abandoned"]);
}

/// A deadline around the leg holds for the body of its reply too, to the tick.
#[tokio::test(start_paused = true)]
async fn a_timeout_around_the_leg_covers_a_stalled_body() {
    const DEADLINE: Duration = Duration::from_secs(180);
    let (client, mut handle) = leg::<Request<LegBody>, Response<ScriptedBody>>();
    let client =
        ServiceBuilder::new().timeout(DEADLINE).layer(BufferReplyLayer::new(1 << 20)).service(client);
    let (inner, mut inner_handle) = leg::<Request<Handoff<Primed>>, Response<ScriptedBody>>();
    let settler = Settler::new(Duration::from_secs(30));
    let mut service = ContextLayer::new(client).settle(settler.clone()).layer(inner);

    let mut call = task::spawn(service.ready().await.unwrap().call(handoffs_request()));
    assert_pending!(call.poll());
    let body = ScriptedBody::new().data("{").pending();
    let script = body.handle();
    handle.try_next().unwrap().1.send_response(Response::new(body));
    assert_pending!(call.poll());
    advance(DEADLINE - Duration::from_millis(1)).await;
    assert_pending!(call.poll());
    assert!(!script.is_dropped());
    advance(Duration::from_millis(1)).await;
    let error = assert_ready_err!(call.poll());
    let expected =
        if cfg!(feature = "tower") { ContextErrorKind::Timeout } else { ContextErrorKind::Interrupted };
    assert_eq!(find::<ContextError>(&*error).unwrap().kind(), expected);
    assert!(script.is_dropped(), "the connection closes");
    assert!(inner_handle.try_next().is_none());
    // The head had been here: the worker holds the cache.
    drop(call);
    assert_eq!((ends(&settler), settler.active()), (vec!["failed"], 0));
}

/// The buffering step tells of the head: before it nothing is held, after it something is.
#[tokio::test(start_paused = true)]
async fn the_buffering_step_signals_the_head() {
    for (status, held) in [(200, true), (204, true), (400, false), (503, false), (302, false)] {
        let (client, mut handle) = leg::<Request<LegBody>, Response<Pipe>>();
        let client = ServiceBuilder::new().layer(BufferReplyLayer::new(1 << 20)).service(client);
        let (inner, mut inner_handle) = leg::<Request<Handoff<Primed>>, Response<ScriptedBody>>();
        let settler = Settler::new(Duration::from_secs(30));
        let mut service = ContextLayer::new(client).settle(settler.clone()).layer(inner);
        let mut call = task::spawn(service.ready().await.unwrap().call(handoffs_request()));
        assert_pending!(call.poll());
        let (body, mut end) = pipe();
        let (_, mut reply) = handle.try_next().unwrap();
        reply.send_response(Response::builder().status(status).body(body).unwrap());
        assert_pending!(call.poll());
        drop(call);
        assert_eq!((settler.active(), end.is_dropped()), (usize::from(held), !held), "{status}");
        if held {
            end.send(DUE);
            end.end();
            background().await;
            let (_, mut reply) = inner_handle.try_next().expect("the handoff goes on");
            reply.send_response(Response::new(ScriptedBody::new().data("x")));
            background().await;
            assert_eq!((ends(&settler), settler.active()), (vec!["collected"], 0));
        } else {
            assert_eq!(ends(&settler), [""; 0]);
        }
    }
}

#[tokio::test]
async fn fits_under_and_over_the_layers_of_others() {
    let leg = service_fn(async |_: Request<LegBody>| Ok::<_, BoxError>(context_reply(200, DUE)));
    let leg = BoxCloneSyncService::new(Probe::new(leg));
    let inner = service_fn(async |_: Request<Handoff<Primed>>| {
        Ok::<_, std::io::Error>(Response::new(ScriptedBody::new().data("answer")))
    });
    let inner = Probe::new(inner);
    let counts = inner.counts();
    let service = ServiceBuilder::new()
        .layer(tower_http::timeout::TimeoutLayer::with_status_code(
            http::StatusCode::GATEWAY_TIMEOUT,
            Duration::from_secs(600),
        ))
        .timeout(Duration::from_secs(600))
        .layer(ContextLayer::new(leg))
        .concurrency_limit(1)
        .service(inner);
    let service = crate::check::<Request<Handoff<Minted>>, _>(BoxCloneSyncService::new(service));
    for _ in 0..2 {
        let response = service.clone().oneshot(handoffs_request()).await.unwrap();
        assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), "answer");
    }
    assert_eq!(counts.calls(), 2);
}
