use http::HeaderMap;
use http_body::{Body, SizeHint};
use tokio_test::{assert_pending, assert_ready, assert_ready_err, assert_ready_ok, task};
use tower::{Service, ServiceExt, service_fn};

use super::*;

#[tokio::test]
async fn a_leg_sees_requests_in_order_and_answers_each() {
    let (service, mut handle) = leg::<u8, u8>();
    let mut first = task::spawn(service.clone().oneshot(1));
    let mut second = task::spawn(service.oneshot(2));
    assert_pending!(first.poll());
    assert_pending!(second.poll());
    let (one, mut reply_one) = handle.next().await.unwrap();
    let (two, mut reply_two) = handle.try_next().unwrap();
    assert_eq!((one, two), (1, 2));
    assert!(handle.try_next().is_none());
    reply_two.send_response(20);
    reply_one.send_error("no");
    assert!(first.is_woken() && second.is_woken());
    assert_eq!(assert_ready_err!(first.poll()).to_string(), "no");
    assert_eq!(assert_ready_ok!(second.poll()), 20);
    drop((first, second));
    assert!(!reply_one.is_cancelled() && !reply_one.cancelled().await);
    assert!(handle.next().await.is_none(), "no service is left");
}

#[tokio::test]
async fn a_leg_sees_a_future_that_is_dropped() {
    let (mut service, mut handle) = leg::<u8, u8>();
    let call = service.ready().await.unwrap().call(1);
    let (_, mut reply) = handle.next().await.unwrap();
    assert!(!reply.is_cancelled());
    assert_pending!(task::spawn(reply.cancelled()).poll());
    drop(call);
    assert!(reply.is_cancelled());
    assert!(reply.cancelled().await && reply.cancelled().await);
    reply.send_response(2); // too late, and harmless
}

#[tokio::test]
async fn an_answer_that_nobody_took_is_a_dropped_future() {
    let (mut service, mut handle) = leg::<u8, u8>();
    let call = service.ready().await.unwrap().call(1);
    let (_, mut reply) = handle.next().await.unwrap();
    reply.send_response(2);
    drop(call);
    assert!(reply.cancelled().await);
}

#[tokio::test]
async fn a_leg_holds_readiness_back() {
    let (service, handle) = leg::<u8, u8>();
    handle.block();
    let mut one = task::spawn(service.clone());
    let mut two = task::spawn(service);
    assert_pending!(one.enter(|cx, mut service| service.poll_ready(cx)));
    assert_pending!(two.enter(|cx, mut service| service.poll_ready(cx)));
    handle.allow(1);
    assert!(one.is_woken() && two.is_woken());
    assert_ready_ok!(one.enter(|cx, mut service| service.poll_ready(cx)));
    assert_ready_ok!(one.enter(|cx, mut service| service.poll_ready(cx)));
    assert_pending!(two.enter(|cx, mut service| service.poll_ready(cx)));
    drop(one); // the turn goes back
    assert!(two.is_woken());
    assert_ready_ok!(two.enter(|cx, mut service| service.poll_ready(cx)));
    handle.fail_ready("down");
    let mut three = task::spawn(two.clone());
    assert_eq!(assert_ready_err!(three.enter(|cx, mut service| service.poll_ready(cx))).to_string(), "down");
    assert_pending!(three.enter(|cx, mut service| service.poll_ready(cx)));
    handle.unblock();
    assert_ready_ok!(three.enter(|cx, mut service| service.poll_ready(cx)));
}

#[tokio::test]
async fn a_leg_whose_handle_is_gone_fails() {
    let (mut service, mut handle) = leg::<u8, u8>();
    let call = service.ready().await.unwrap().call(1);
    let (_, reply) = handle.next().await.unwrap();
    drop(reply);
    assert!(call.await.unwrap_err().to_string().contains("dropped"));
    drop(handle);
    assert!(service.ready().await.unwrap_err().to_string().contains("gone"));
}

#[test]
#[should_panic(expected = "not been polled to readiness")]
fn a_leg_refuses_a_call_without_readiness() {
    let (service, _handle) = leg::<u8, u8>();
    let mut ready = task::spawn(service);
    assert_ready_ok!(ready.enter(|cx, mut service| service.poll_ready(cx)));
    drop(ready.clone().call(1));
}

#[test]
fn a_script_is_followed_step_by_step() {
    let body = ScriptedBody::new().data("ab").pending().data("c").trailers(HeaderMap::new()).error("boom");
    let handle = body.handle();
    assert_eq!(format!("{body:?}"), "ScriptedBody(5 steps, 3 bytes left)");
    let mut body = task::spawn(body);
    let frame = assert_ready!(body.enter(|cx, body| body.poll_frame(cx))).unwrap().unwrap();
    assert_eq!(frame.into_data().unwrap(), "ab");
    assert_pending!(body.enter(|cx, body| body.poll_frame(cx)));
    handle.wake();
    assert!(body.is_woken());
    assert!(assert_ready!(body.enter(|cx, body| body.poll_frame(cx))).unwrap().unwrap().is_data());
    assert!(assert_ready!(body.enter(|cx, body| body.poll_frame(cx))).unwrap().unwrap().is_trailers());
    assert!(assert_ready!(body.enter(|cx, body| body.poll_frame(cx))).unwrap().is_err());
    assert!(!body.is_end_stream() && !handle.is_ended());
    assert!(assert_ready!(body.enter(|cx, body| body.poll_frame(cx))).is_none());
    assert!(body.is_end_stream() && handle.is_ended());
    assert_eq!((handle.polls(), handle.polls_after_end()), (6, 0));
    assert!(assert_ready!(body.enter(|cx, body| body.poll_frame(cx))).is_none());
    assert_eq!(handle.polls_after_end(), 1);
    assert!(!handle.is_dropped());
    drop(body);
    assert!(handle.is_dropped());
}

#[test]
fn a_script_says_of_itself_what_it_is_told_to() {
    let script = || ScriptedBody::new().data("abc").trailers(HeaderMap::new());
    assert_eq!(script().size_hint().upper(), None);
    assert!(!ScriptedBody::default().is_end_stream());
    let mut eager = task::spawn(script().exact_size().eager_end());
    assert_eq!((eager.size_hint().exact(), eager.is_end_stream()), (Some(3), false));
    assert!(assert_ready!(eager.enter(|cx, body| body.poll_frame(cx))).is_some());
    assert_eq!((eager.size_hint().exact(), eager.is_end_stream()), (Some(0), false));
    let mut early = task::spawn(script().claim_size(SizeHint::with_exact(9)).early_end());
    assert_eq!((early.size_hint().exact(), early.is_end_stream()), (Some(9), false));
    assert!(assert_ready!(early.enter(|cx, body| body.poll_frame(cx))).is_some());
    assert_eq!((early.size_hint().exact(), early.is_end_stream()), (Some(9), true));
}

#[tokio::test]
#[should_panic(expected = "not been polled to readiness")]
async fn a_probe_refuses_a_clone_of_a_ready_service() {
    let mut probe = Probe::new(service_fn(async |n: u8| Ok::<_, std::io::Error>(n)));
    let _ = probe.ready().await.unwrap();
    let _ = probe.clone().call(1).await;
}

#[tokio::test]
#[should_panic(expected = "not been polled to readiness")]
async fn a_probe_is_ready_for_one_call() {
    let mut probe = Probe::new(service_fn(async |n: u8| Ok::<_, std::io::Error>(n)));
    let _ = probe.ready().await.unwrap().call(1).await;
    let _ = probe.call(1).await;
}

#[test]
fn the_kit_fits_its_own_bounds() {
    assert_service_traits::<LegDouble<u8, u8>>();
    assert_service_traits::<Probe<LegDouble<u8, u8>>>();
    assert_future_traits::<LegDoubleFuture<u8>>();
    assert_body_traits::<ScriptedBody>();
    fn send_sync_debug<T: Send + Sync + std::fmt::Debug>() {}
    send_sync_debug::<LegHandle<u8, u8>>();
    send_sync_debug::<LegReply<u8>>();
    send_sync_debug::<ScriptHandle>();
}
