//! Each setting reaches the layer that it is for.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use http::{Method, Request, Response, Uri};
use tokio_test::{assert_pending, assert_ready_err, assert_ready_ok, task};
use tower_layer::Layer;
use tower_service::Service;

use super::{
    Body, CHAT, Client, ContextLeg, Stack, WORKER, chat, context_reply, json, read, request, rig, rig_of,
    stream, values, whole,
};
use crate::{
    buffer::BufferBudget,
    cancel::Outcome,
    contract::{AllowContext, Allowance, LookUp},
    conversation::ConversationLayer,
    error::ErrorReply,
    leg::CheckedAddresses,
    mint::{IdError, RandomIds},
    settle::Settler,
    stack::{HandoffLayer, HandoffService},
    test_util::{
        ScriptedBody, assert_body_traits, assert_future_traits, assert_layer_traits, assert_service_traits,
    },
    trtllm::{ContextEndpoint, DisaggRequestId, Engine, Release, SIGNATURE_HEADER, SignedMessage},
};

fn code(error: crate::error::BoxError) -> &'static str {
    ErrorReply::of(&*error).code
}

#[test]
fn the_types_are_what_they_say() {
    assert_layer_traits::<HandoffLayer<ContextLeg>>();
    assert_service_traits::<Stack>();
    assert_body_traits::<Body>();
    assert_future_traits::<<Stack as Service<Request<ScriptedBody>>>::Future>();

    fn layer<L: Layer<Client, Service = HandoffService<Client, ContextLeg, M>>, M>(_: &L) {}
    let (leg, _handle) = crate::test_util::leg();
    let first: HandoffLayer<ContextLeg, RandomIds> = HandoffLayer::new(leg);
    layer(&first);
    let second: HandoffLayer<ContextLeg, fn() -> Result<DisaggRequestId, IdError>> =
        first.clone().ids(|| Err(IdError::exhausted()));
    layer(&second);
    fn response(stack: Stack) -> impl Service<Request<ScriptedBody>, Response = Response<Body>> {
        stack
    }
    let (send, _handle) = crate::test_util::leg();
    let _ = response(first.layer(send));
}

#[test]
fn ids() {
    let id = DisaggRequestId::new(9_007_199_254_740_993).unwrap();
    let mut rig = rig_of(|layer| layer.ids(move || Ok::<_, IdError>(id)));
    assert_pending!(task::spawn(rig.service.call(chat(whole(CHAT)))).poll());
    assert_eq!(json(rig.context_request().0)["disaggregated_params"]["disagg_request_id"], id.get());
}

#[test]
fn what_is_set_stays_when_ids_are_changed_later() {
    let id = DisaggRequestId::new(1 << 50).unwrap();
    let mut rig = rig_of(|layer| layer.max_body(3).ids(move || Ok::<_, IdError>(id)));
    assert_eq!(
        code(assert_ready_err!(task::spawn(rig.service.call(chat(whole(CHAT)))).poll())),
        "request_too_large"
    );
    let get = request(Method::GET, "/", &[], whole("1234"));
    assert_eq!(code(assert_ready_err!(task::spawn(rig.service.call(get)).poll())), "request_too_large");
}

#[test]
fn allow() {
    let mut rig = rig_of(|layer| layer.allow(|_| false));
    let error = assert_ready_err!(task::spawn(rig.service.call(chat(whole(CHAT)))).poll());
    assert_eq!(code(error), "context_endpoint_not_allowed");
    rig.assert_untouched();
}

#[test]
fn allow_by() {
    struct At(CheckedAddresses);
    impl AllowContext for At {
        fn allow(&self, _: &ContextEndpoint) -> Allowance {
            let found = LookUp::Allowed(self.0.clone());
            Allowance::Pending(Box::pin(async { found }))
        }
    }
    let checked = CheckedAddresses::new(["10.9.9.9:1".parse().unwrap()]).unwrap();
    let mut rig = rig_of(|layer| layer.allow_by(At(checked.clone())));
    let mut call = task::spawn(rig.service.call(chat(whole(CHAT))));
    assert_pending!(call.poll());
    assert_eq!(rig.context_request().0.extensions().get(), Some(&checked));
}

#[test]
fn max_body() {
    let limit = CHAT.len() as u64;
    for (max, taken) in [(limit, true), (limit - 1, false)] {
        let mut rig = rig_of(|layer| layer.max_body(max));
        let done = task::spawn(rig.service.call(chat(whole(CHAT)))).poll();
        assert_eq!(done.is_pending(), taken);
    }
    let mut rig = rig();
    let most = vec![b' '; 32 << 20];
    let get = |text: Vec<u8>| request(Method::GET, "/", &[], whole(text));
    assert_pending!(task::spawn(rig.service.call(get(most.clone()))).poll());
    let over = [&most[..], b" "].concat();
    assert_ready_err!(task::spawn(rig.service.call(get(over))).poll());
}

#[tokio::test(start_paused = true)]
async fn body_timeout() {
    let mut rig = rig_of(|layer| layer.body_timeout(Duration::from_secs(3)));
    let mut call = task::spawn(rig.service.call(chat(ScriptedBody::new().pending())));
    assert_pending!(call.poll());
    tokio::time::advance(Duration::from_secs(3)).await;
    assert_eq!(code(assert_ready_err!(call.poll())), "request_timeout");
}

#[test]
fn budget() {
    let budget = BufferBudget::new(1 << 20);
    let mut rig = rig_of(|layer| layer.budget(budget.clone()));
    let mut call = task::spawn(rig.service.call(chat(whole(CHAT))));
    assert_pending!(call.poll());
    assert_eq!(budget.held(), CHAT.len() as u64, "requests are counted");
    let (asked, mut reply) = rig.context_request();
    reply.send_response(context_reply(&json(asked), "length"));
    assert_pending!(call.poll());
    let (sent, mut reply) = rig.client_request();
    drop(sent);
    let held = budget.held();
    let answer = ScriptedBody::new().data(r#"{"choices":"#).pending().data("[]}");
    reply.send_response(Response::builder().header("content-type", "application/json").body(answer).unwrap());
    assert_pending!(call.poll());
    assert_eq!(budget.held(), held + 11, "replies that are read whole are counted");
    drop(call);
    assert_eq!(budget.held(), 0);
}

#[test]
fn engines_and_generation_to() {
    let newer = || Engine::Known(Release::parse("1.3.0rc24"));
    let origin = Uri::from_static("http://gen:8001");
    for (mut rig, uri, told) in [
        (rig(), "/v1/chat/completions", false),
        (rig_of(|layer| layer.generation_to(origin.clone())), "http://gen:8001/v1/chat/completions", false),
        (rig_of(|layer| layer.engines(newer())), "/v1/chat/completions", true),
    ] {
        let mut call = task::spawn(rig.service.call(chat(whole(CHAT))));
        assert_pending!(call.poll());
        let (asked, mut reply) = rig.context_request();
        reply.send_response(context_reply(&json(asked), "length"));
        assert_pending!(call.poll());
        let (sent, _reply) = rig.client_request();
        assert_eq!(sent.uri(), uri);
        let usage = &json(sent)["disaggregated_params"]["ctx_usage"];
        assert_eq!(usage.is_object(), told, "{usage}");
    }
    // What passes through goes to the same place.
    let mut rig = rig_of(|layer| layer.generation_to(origin));
    assert_pending!(
        task::spawn(rig.service.call(request(Method::GET, "/v1/models?a", &[], ScriptedBody::new()))).poll()
    );
    assert_eq!(rig.client_request().0.uri(), "http://gen:8001/v1/models?a");
}

#[test]
fn conversations() {
    const CHAT: &str = r#"{"messages":[],"user":"7f3a"}"#;
    let layer = ConversationLayer::new(["body:/user".parse().unwrap()]);
    // The setting holds when ids are changed afterwards.
    for (mut rig, expected) in [
        (rig(), "theirs"),
        (rig_of(|it| it.conversations(layer.clone())), "7f3a"),
        (rig_of(|it| it.conversations(layer.clone()).ids(RandomIds::new())), "7f3a"),
    ] {
        for routed in [true, false] {
            let mut headers = vec![("x-session-id", "theirs"), ("x-prefiller-host-port", WORKER)];
            headers.truncate(if routed { 2 } else { 1 });
            let request = request(Method::POST, "/v1/chat/completions", &headers, whole(CHAT));
            let mut call = task::spawn(rig.service.call(request));
            assert_pending!(call.poll());
            if routed {
                let (asked, mut reply) = rig.context_request();
                assert_eq!(values(asked.headers(), "x-session-id"), [expected]);
                reply.send_response(context_reply(&json(asked), "length"));
                assert_pending!(call.poll());
            }
            let (sent, _reply) = rig.client_request();
            let expected = if routed { expected } else { "theirs" };
            assert_eq!(values(sent.headers(), "x-session-id"), [expected]);
        }
    }
}

#[test]
fn on_release_and_in_flight() {
    let ends = Arc::new(Mutex::new(Vec::new()));
    let record = ends.clone();
    let mut counter = None;
    let mut rig = rig_of(|layer| {
        let layer = layer.on_release(move |outcome| record.lock().unwrap().push(outcome));
        counter = Some(layer.in_flight());
        layer
    });
    let in_flight = counter.unwrap();
    let mut call = task::spawn(rig.service.call(request(Method::GET, "/", &[], ScriptedBody::new())));
    assert_pending!(call.poll());
    rig.client_request().1.send_response(Response::new(whole("answer")));
    let response = assert_ready_ok!(call.poll());
    drop(call);
    assert_eq!((in_flight.count(), ends.lock().unwrap().len()), (1, 0));
    assert_eq!(read(response.into_body()), "answer");
    assert_eq!(in_flight.count(), 0);

    assert_ready_err!(task::spawn(rig.service.call(chat(whole("[]")))).poll());
    let mut call = task::spawn(rig.service.call(chat(whole(CHAT))));
    assert_pending!(call.poll());
    assert_eq!(in_flight.count(), 1);
    drop(call);
    assert_eq!(in_flight.count(), 0);
    let ends = ends.lock().unwrap();
    assert!(
        matches!(ends[..], [Outcome::Completed(_), Outcome::Failed(None), Outcome::Cancelled(None)]),
        "{ends:?}"
    );
}

/// Leaves after the context reply; how many settlements then run.
async fn left_behind(set: impl FnOnce(HandoffLayer<ContextLeg>) -> HandoffLayer<ContextLeg>) -> bool {
    let mut rig = rig_of(set);
    let mut call = task::spawn(rig.service.call(chat(whole(CHAT))));
    assert_pending!(call.poll());
    let (asked, mut reply) = rig.context_request();
    reply.send_response(context_reply(&json(asked), "length"));
    assert_pending!(call.poll());
    let (_, mut reply) = rig.client_request();
    drop(call);
    tokio::task::yield_now().await;
    let settling = !reply.is_cancelled();
    reply.send_response(stream(ScriptedBody::new().data("data: 1\n\n")));
    tokio::task::yield_now().await;
    settling
}

#[tokio::test(start_paused = true)]
async fn settle() {
    assert!(left_behind(|layer| layer).await, "not settled unless told not to");
    let settler = Settler::new(Duration::from_secs(5));
    assert!(left_behind(|layer| layer.settle(settler.clone())).await);
    settler.idle().await;
    assert_eq!(settler.counts().collected, 1);
    let off = Settler::off();
    assert!(!left_behind(|layer| layer.settle(off.clone())).await);
    assert_eq!(off.counts().abandoned, 1);
}

#[tokio::test(start_paused = true)]
async fn settlement_lasts_thirty_seconds_unless_told_otherwise() {
    let mut rig = rig();
    let mut call = task::spawn(rig.service.call(chat(whole(CHAT))));
    assert_pending!(call.poll());
    let (asked, mut reply) = rig.context_request();
    reply.send_response(context_reply(&json(asked), "length"));
    assert_pending!(call.poll());
    let (_, reply) = rig.client_request();
    drop(call);
    tokio::time::sleep(Duration::from_millis(29_999)).await;
    assert!(!reply.is_cancelled());
    tokio::time::sleep(Duration::from_millis(2)).await;
    assert!(reply.is_cancelled());
}

#[test]
fn sign() {
    let mut rig = rig_of(|layer| layer.sign(|_: &SignedMessage| Some([7; 32])));
    let forged = ("x-trtllm-disagg-auth", "sha256=forged");
    let routed = [("x-prefiller-host-port", super::WORKER), forged];
    let mut call =
        task::spawn(rig.service.call(request(Method::POST, "/v1/chat/completions", &routed, whole(CHAT))));
    assert_pending!(call.poll());
    let (asked, mut reply) = rig.context_request();
    assert_eq!(asked.headers().get(SIGNATURE_HEADER), None, "a context request is not signed");
    reply.send_response(context_reply(&json(asked), "length"));
    assert_pending!(call.poll());
    let (sent, _reply) = rig.client_request();
    assert_eq!(
        super::values(sent.headers(), "x-trtllm-disagg-auth"),
        [format!("sha256={}", "07".repeat(32))]
    );
    for method in [Method::GET, Method::POST] {
        let passed = request(method, "/v1/models", &[forged], ScriptedBody::new());
        assert_pending!(task::spawn(rig.service.call(passed)).poll());
        let passed = rig.client_request().0;
        assert_eq!(passed.headers().get(SIGNATURE_HEADER), None, "what passes through is not signed");
    }
}
