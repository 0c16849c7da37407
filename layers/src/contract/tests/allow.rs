//! Context workers of which it has to be found out whether they may be called.

use std::{error::Error, io, sync::Mutex, time::Duration};

use tokio::{sync::oneshot, time::advance};
use tokio_test::{assert_pending, assert_ready_err};

use super::{CHAT, Rig, chat, rig_of, told, watched, whole};
use crate::{
    contract::{AllowContext, Allowance, LookUp},
    error::{ContractError, ContractErrorKind, find},
    leg::CheckedAddresses,
    test_util::ScriptedBody,
    trtllm::ContextEndpoint,
};

/// Answers with a future that must not be polled.
pub(super) struct Unasked;

impl AllowContext for Unasked {
    fn allow(&self, _: &ContextEndpoint) -> Allowance {
        Allowance::Pending(Box::pin(async { panic!("a name was looked up") }))
    }
}

/// Answers as the test says, once.
struct Script(Mutex<Option<oneshot::Receiver<LookUp>>>);

impl AllowContext for Script {
    fn allow(&self, _: &ContextEndpoint) -> Allowance {
        let answer = self.0.lock().unwrap().take().expect("it is asked once");
        Allowance::Pending(Box::pin(async { answer.await.expect("an answer") }))
    }
}

fn asking() -> (Rig, oneshot::Sender<LookUp>) {
    let (tell, answer) = oneshot::channel();
    (rig_of(|layer| layer.allow_by(Script(Mutex::new(Some(answer))))), tell)
}

fn addresses(list: &[&str]) -> CheckedAddresses {
    CheckedAddresses::new(list.iter().map(|it| it.parse().unwrap())).unwrap()
}

#[test]
fn nothing_of_the_body_is_read_before_the_answer() {
    let (mut rig, tell) = asking();
    let (body, script) = watched(whole(CHAT));
    let mut call = rig.call(chat(body));
    for _ in 0..3 {
        assert_pending!(call.poll());
    }
    assert_eq!(script.polls(), 0);
    assert!(format!("{call:?}").contains("ContractFuture(question)"), "{call:?}");
    rig.assert_untouched();

    let checked = addresses(&["10.0.0.5:8001", "[fd00::5]:8001"]);
    tell.send(LookUp::Allowed(checked.clone())).unwrap();
    assert!(call.is_woken());
    assert_pending!(call.poll());
    assert!(script.is_ended());
    let (handed, _reply) = rig.handed();
    assert_eq!(handed.body().checked_addresses(), Some(&checked));
    assert_eq!(handed.body().context_endpoint().as_str(), super::WORKER);
    assert!(!handed.headers().contains_key("x-prefiller-host-port"));
    assert_eq!(handed.body().request().body(), CHAT);
}

#[test]
fn where_nothing_is_asked_the_name_may_be_dialled() {
    let mut rig = rig_of(|layer| layer.allow_by(|endpoint: &ContextEndpoint| endpoint.port() == 8001));
    assert_pending!(rig.call(chat(whole(CHAT))).poll());
    assert_eq!(rig.handed().0.body().checked_addresses(), None);
}

#[test]
fn a_refusal_comes_before_the_body() {
    let failure = || io::Error::other("no such name: CANARY-5f3a");
    for (answer, expected, kind) in [
        (LookUp::Refused, (403, "context_endpoint_not_allowed"), ContractErrorKind::EndpointNotAllowed),
        (
            LookUp::Failed(failure().into()),
            (502, "context_unreachable"),
            ContractErrorKind::EndpointUnresolved,
        ),
    ] {
        let (mut rig, tell) = asking();
        let (body, script) = watched(ScriptedBody::new().data(CHAT).pending());
        let mut call = rig.call(chat(body));
        assert_pending!(call.poll());
        tell.send(answer).unwrap();
        assert!(call.is_woken());
        let error = assert_ready_err!(call.poll());
        let found = find::<ContractError>(&*error).unwrap();
        assert_eq!(found.kind(), kind);
        let reply = found.reply();
        assert_eq!((reply.status.as_u16(), reply.code), expected);
        assert!(!reply.message.contains(super::CANARY), "{}", reply.message);
        if kind == ContractErrorKind::EndpointUnresolved {
            assert_eq!(reply.message, "the name of the context endpoint cannot be resolved");
            assert!(found.source().unwrap().is::<io::Error>(), "the cause is lost");
        }
        assert_eq!(script.polls(), 0);
        assert!(script.is_dropped(), "the body is held for nothing");
        rig.assert_untouched();
        // Whoever polls on does not ask again, which would panic.
        assert_pending!(call.poll());
    }
}

#[test]
fn who_leaves_during_the_question_takes_all_along() {
    let (mut rig, tell) = asking();
    let (body, script) = watched(whole(CHAT));
    let mut call = rig.call(chat(body));
    assert_pending!(call.poll());
    assert!(!tell.is_closed());
    drop(call);
    assert!(tell.is_closed(), "the question goes on");
    assert!(script.is_dropped() && script.polls() == 0);
    rig.assert_untouched();
}

#[test]
fn nothing_is_asked_before_the_first_poll() {
    let mut rig = rig_of(|layer| layer.allow_by(Unasked));
    drop(rig.call(chat(whole(CHAT))));
    rig.assert_untouched();
}

#[test]
fn what_cannot_be_handed_off_is_not_asked_for() {
    for (method, path, headers, expected) in [
        ("POST", "/v1/responses", &[super::WORKER][..], (501, "unsupported_endpoint")),
        ("GET", "/v1/completions", &[super::WORKER], (501, "unsupported_endpoint")),
        ("POST", "/v1/completions", &["h"], (502, "invalid_epp_metadata")),
        ("POST", "/v1/completions", &["h:1", "h:1"], (502, "invalid_epp_metadata")),
    ] {
        let mut rig = rig_of(|layer| layer.allow_by(Unasked));
        let headers: Vec<_> = headers.iter().map(|value| ("x-prefiller-host-port", *value)).collect();
        let request = super::request(method.parse().unwrap(), path, &headers, whole(CHAT));
        let (status, code, _) = told(&assert_ready_err!(rig.call(request).poll()));
        assert_eq!((status, code), expected, "{method} {path}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_time_for_the_upload_begins_with_the_answer() {
    let limit = Duration::from_secs(30);
    let (tell, answer) = oneshot::channel();
    let script = Script(Mutex::new(Some(answer)));
    let mut rig = rig_of(|layer| layer.allow_by(script).body_timeout(limit));
    let mut call = rig.call(chat(ScriptedBody::new().pending()));
    assert_pending!(call.poll());
    advance(limit * 2).await;
    assert_pending!(call.poll());
    tell.send(LookUp::Allowed(addresses(&["10.0.0.5:8001"]))).unwrap();
    assert_pending!(call.poll());
    advance(limit - Duration::from_millis(1)).await;
    assert_pending!(call.poll());
    advance(Duration::from_millis(1)).await;
    assert_eq!(told(&assert_ready_err!(call.poll())), (408, "request_timeout", None));
    rig.assert_untouched();
}

#[test]
fn answers_show_what_they_are() {
    assert_eq!(format!("{:?}", Unasked.allow(&"h:1".parse().unwrap())), "Pending");
    let knows = |endpoint: &ContextEndpoint| endpoint.port() == 1;
    assert_eq!(format!("{:?}", knows.allow(&"h:1".parse().unwrap())), "Allowed");
    assert_eq!(format!("{:?}", knows.allow(&"h:2".parse().unwrap())), "Refused");
}
