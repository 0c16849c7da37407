use std::future::{Ready, ready};

use tokio_test::{assert_pending, assert_ready_err, assert_ready_ok, task};
use tower_service::Service;
use tower_test::mock;

use super::CallWhenReady;
use crate::test_util::{Probe, leg};

const CANARY: &str = "CANARY-5f3a";

#[test]
fn a_ready_service_is_called_at_once_and_its_answer_is_returned() {
    let (service, mut handle) = leg::<&str, u8>();
    let mut call = task::spawn(CallWhenReady::new(service, CANARY));
    assert_pending!(call.poll());
    let (request, mut reply) = handle.try_next().unwrap();
    assert_eq!(request, CANARY);
    reply.send_response(7);
    assert!(call.is_woken());
    assert_eq!(assert_ready_ok!(call.poll()), 7);
    assert!(handle.try_next().is_none());
}

#[test]
fn it_waits_for_readiness_and_is_woken_by_it() {
    let (service, mut handle) = mock::pair::<&str, u8>();
    handle.allow(0);
    let mut call = task::spawn(CallWhenReady::new(service, CANARY));
    assert_pending!(call.poll());
    assert_pending!(task::spawn(handle.next_request()).poll());
    assert!(!call.is_woken());
    handle.allow(1);
    assert!(call.is_woken());
    assert_pending!(call.poll());
    assert!(task::spawn(handle.next_request()).poll().is_ready());
}

#[test]
fn nothing_is_done_before_the_first_poll() {
    let (service, mut handle) = leg::<&str, u8>();
    handle.allow(1);
    let call = CallWhenReady::<_, _, <crate::test_util::LegDouble<&str, u8> as Service<&str>>::Future>::new(
        service.clone(),
        CANARY,
    );
    // The only place is still there for somebody else.
    assert_pending!(task::spawn(CallWhenReady::new(service, "other")).poll());
    assert_eq!(handle.try_next().unwrap().0, "other");
    drop(call);
}

#[test]
fn errors_pass_as_they_are() {
    let (service, mut handle) = leg::<&str, u8>();
    handle.fail_ready("not today");
    let mut call = task::spawn(CallWhenReady::new(service.clone(), CANARY));
    assert_eq!(assert_ready_err!(call.poll()).to_string(), "not today");
    assert!(handle.try_next().is_none());

    let mut call = task::spawn(CallWhenReady::new(service, CANARY));
    assert_pending!(call.poll());
    handle.try_next().unwrap().1.send_error("failed");
    assert_eq!(assert_ready_err!(call.poll()).to_string(), "failed");
}

#[test]
fn dropping_it_drops_the_call() {
    let (service, mut handle) = leg::<&str, u8>();
    let mut call = task::spawn(CallWhenReady::new(service, CANARY));
    assert_pending!(call.poll());
    let (_, reply) = handle.try_next().unwrap();
    drop(call);
    assert!(reply.is_cancelled());
}

#[test]
fn the_service_goes_with_the_call_so_that_what_it_reserved_is_free() {
    let service = Probe::new(tower::service_fn(|_: ()| -> Ready<Result<(), u8>> { ready(Ok(())) }));
    let counts = service.counts();
    let mut call = task::spawn(CallWhenReady::new(service, ()));
    assert_ready_ok!(call.poll());
    assert_eq!((counts.calls(), counts.drops()), (1, 1));
}

#[test]
fn it_shows_its_state_and_no_request() {
    let (service, handle) = leg::<&str, u8>();
    handle.block();
    let mut call = task::spawn(CallWhenReady::new(service, CANARY));
    assert_pending!(call.poll());
    let waiting = format!("{call:?}");
    handle.unblock();
    assert_pending!(call.poll());
    let called = format!("{call:?}");
    assert!(waiting.contains("waiting for readiness") && called.contains("called"), "{waiting} {called}");
    assert!(!waiting.contains(CANARY) && !called.contains(CANARY));
}
