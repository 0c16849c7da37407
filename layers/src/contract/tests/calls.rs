//! The sequence: readiness, what the services see, what they answer, and who leaves when.

use http::{Method, Request, Response, StatusCode, Version};
use http_body_util::BodyExt;
use tokio_test::{assert_pending, assert_ready_err, assert_ready_ok, task};
use tower_layer::Layer;
use tower_service::Service;

use super::{CHAT, Reply, WORKER, chat, plain, request, rig, values, watched, whole};
use crate::{
    contract::{ContractLayer, NoPassthrough},
    error::{ContractError, ContractErrorKind},
    handoff::{Handoff, Validated},
    test_util::{Probe, ScriptedBody, leg},
    trtllm::{Delivery, Endpoint, StreamUsage},
};

fn answer() -> Reply {
    Response::builder().status(201).header("x-worker", "7").body(whole("answer")).unwrap()
}

#[derive(Debug, Clone, PartialEq)]
struct Mark(u8);

#[test]
fn the_inner_service_gets_the_request_and_the_handoff() {
    let mut rig = rig();
    let headers = [
        ("X-Prefiller-Host-Port", "Prefill-0:8001"),
        ("authorization", "Bearer t"),
        ("x-custom", "1"),
        ("x-custom", "2"),
        ("x-gateway-model-name-rewrite", "z"),
    ];
    let body = r#"{"model":"m","stream":true,"messages":[]}"#;
    let mut sent = request(Method::POST, "/v1/chat/completions?a=b", &headers, whole(body));
    sent.extensions_mut().insert(Mark(3));
    *sent.version_mut() = Version::HTTP_2;
    let mut call = rig.call(sent);
    assert_pending!(call.poll());

    let (seen, mut reply) = rig.handed();
    assert_eq!((seen.method(), seen.uri()), (&Method::POST, &"/v1/chat/completions?a=b".parse().unwrap()));
    assert_eq!(seen.version(), Version::HTTP_2);
    assert_eq!(seen.extensions().get::<Mark>(), Some(&Mark(3)));
    assert_eq!(values(seen.headers(), "x-prefiller-host-port"), [""; 0]);
    assert_eq!(values(seen.headers(), "authorization"), ["Bearer t"]);
    assert_eq!(values(seen.headers(), "x-custom"), ["1", "2"]);
    assert_eq!(values(seen.headers(), "x-gateway-model-name-rewrite"), ["z"]);
    assert_eq!(seen.headers().len(), 4);
    let handoff = seen.body();
    assert_eq!(handoff.context_endpoint().as_str(), "prefill-0:8001");
    assert_eq!(handoff.request().endpoint(), Endpoint::Chat);
    assert_eq!(handoff.request().delivery(), Delivery::Stream { usage: StreamUsage::Never });
    assert_eq!(handoff.request().body(), body.as_bytes());

    reply.send_response(answer());
    assert!(call.is_woken());
    let response = assert_ready_ok!(call.poll());
    assert_eq!(response.status(), StatusCode::CREATED);
    assert_eq!(values(response.headers(), "x-worker"), ["7"]);
    let body = task::spawn(response.into_body().collect()).poll();
    assert_eq!(assert_ready_ok!(body).to_bytes(), "answer");
}

#[test]
fn errors_of_either_service_pass_as_they_are() {
    let mut rig = rig();
    let failure = || ContractError::new(ContractErrorKind::NotServed).with_source("the cause");

    let mut call = rig.call(chat(whole(CHAT)));
    assert_pending!(call.poll());
    rig.handed().1.send_error(failure());
    let error = assert_ready_err!(call.poll());
    assert!(error.is::<ContractError>(), "it was wrapped: {error:?}");
    assert_eq!(error.source().unwrap().to_string(), "the cause");

    let mut call = rig.call(plain(whole("{}")));
    assert_pending!(call.poll());
    rig.passed().1.send_error(failure());
    let error = assert_ready_err!(call.poll());
    assert!(error.is::<ContractError>(), "it was wrapped: {error:?}");
    assert_eq!(error.source().unwrap().to_string(), "the cause");
}

#[test]
fn errors_of_readiness_pass_as_they_are() {
    let mut rig = rig();
    rig.inner.fail_ready("the inner service is gone");
    let error = assert_ready_err!(rig.call(chat(whole(CHAT))).poll());
    assert_eq!(error.to_string(), "the inner service is gone");

    rig.passthrough.fail_ready("the client is gone");
    let error = assert_ready_err!(rig.call(plain(whole("{}"))).poll());
    assert_eq!(error.to_string(), "the client is gone");

    rig.passthrough.fail_ready("the client is gone");
    let get = request(Method::GET, "/v1/models", &[], ScriptedBody::new());
    assert_eq!(assert_ready_err!(rig.call(get).poll()).to_string(), "the client is gone");
    rig.assert_untouched();
}

#[test]
fn uploads_are_read_while_the_inner_service_is_busy() {
    let mut rig = rig();
    rig.inner.block();
    rig.passthrough.block();
    // `call` checks that the service is ready all the same.
    let (body, script) = watched(ScriptedBody::new().data(CHAT).pending());
    let mut first = rig.call(chat(body));
    let mut second = rig.call(plain(whole("{}")));
    assert_pending!(first.poll());
    assert_pending!(second.poll());
    script.wake();
    assert_pending!(first.poll());
    assert!(script.is_ended(), "the upload waits for the inner service");
    rig.assert_untouched();

    rig.inner.allow(1);
    assert!(first.is_woken() && !second.is_woken());
    assert_pending!(first.poll());
    rig.handed();
    rig.passthrough.allow(1);
    assert!(second.is_woken());
    assert_pending!(second.poll());
    rig.passed();
}

#[test]
fn no_place_is_taken_while_the_upload_lasts() {
    let mut rig = rig();
    rig.inner.allow(1);
    let mut slow = rig.call(chat(ScriptedBody::new().data("{").pending()));
    assert_pending!(slow.poll());
    let mut quick = rig.call(chat(whole(CHAT)));
    assert_pending!(quick.poll());
    rig.handed();
}

#[test]
fn a_place_that_was_waited_for_is_given_back() {
    let mut rig = rig();
    rig.inner.block();
    let mut first = rig.call(chat(whole(CHAT)));
    assert_pending!(first.poll());
    drop(first);
    rig.inner.allow(1);
    let mut second = rig.call(chat(whole(CHAT)));
    assert_pending!(second.poll());
    rig.handed();
}

#[test]
fn what_is_refused_touches_neither_service() {
    let mut rig = rig();
    for request in [
        chat(whole("")),
        chat(whole("[]")),
        chat(whole(r#"{"n":2}"#)),
        chat(whole(r#"{"disaggregated_params":{"a":1}}"#)),
        plain(whole(r#"{"disaggregated_params":{"a":1}}"#)),
        plain(whole("{")),
    ] {
        assert_ready_err!(rig.call(request).poll());
        rig.assert_untouched();
    }
    // Not even by asking whether they are ready.
    rig.inner.fail_ready("asked");
    rig.passthrough.fail_ready("asked");
    let error = assert_ready_err!(rig.call(chat(whole("[]"))).poll());
    assert!(error.is::<ContractError>(), "{error}");
}

#[test]
fn nothing_happens_before_the_first_poll() {
    let mut rig = rig();
    for head in [chat(()), plain(()), request(Method::GET, "/", &[], ())] {
        let (body, script) = watched(whole(CHAT));
        let call = rig.call(head.map(|()| body));
        assert!(!script.is_dropped());
        drop(call);
        assert!(script.is_dropped() && script.polls() == 0);
        rig.assert_untouched();
    }
}

#[test]
fn who_leaves_during_the_upload_takes_it_along() {
    let mut rig = rig();
    for head in [chat(()), plain(())] {
        let (body, script) = watched(ScriptedBody::new().data("{").pending());
        let mut call = rig.call(head.map(|()| body));
        assert_pending!(call.poll());
        drop(call);
        assert!(script.is_dropped());
        rig.assert_untouched();
    }
}

#[test]
fn who_leaves_after_it_takes_the_call_along() {
    let mut rig = rig();
    let mut call = rig.call(chat(whole(CHAT)));
    assert_pending!(call.poll());
    let (_, reply) = rig.handed();
    assert!(!reply.is_cancelled());
    drop(call);
    assert!(reply.is_cancelled());

    let mut call = rig.call(plain(whole("{}")));
    assert_pending!(call.poll());
    let (_, reply) = rig.passed();
    drop(call);
    assert!(reply.is_cancelled());
}

#[test]
fn who_leaves_after_the_response_cancels_nothing() {
    let mut rig = rig();
    let mut call = rig.call(chat(whole(CHAT)));
    assert_pending!(call.poll());
    let (_, mut reply) = rig.handed();
    reply.send_response(answer());
    let response = assert_ready_ok!(call.poll());
    drop(call);
    assert!(!reply.is_cancelled());
    drop(response);
}

#[test]
fn clones_ask_for_readiness_of_their_own() {
    // The doubles panic when a clone is called that was not ready.
    let mut rig = rig();
    let mut other = rig.service.clone();
    let mut first = rig.call(chat(whole(CHAT)));
    let mut second = task::spawn(other.call(chat(whole(CHAT))));
    assert_pending!(second.poll());
    assert_pending!(first.poll());
    let (_, mut reply_to_second) = rig.inner.try_next().unwrap();
    let (_, mut reply_to_first) = rig.inner.try_next().unwrap();
    reply_to_first.send_response(answer());
    assert_ready_ok!(first.poll());
    assert_pending!(second.poll());
    reply_to_second.send_response(answer());
    assert_ready_ok!(second.poll());
}

#[tokio::test]
async fn each_call_is_made_on_a_service_that_was_ready() {
    let next = Probe::new(tower::service_fn(async |_: Request<Handoff<Validated>>| {
        Ok::<_, std::io::Error>(Response::new(String::new()))
    }));
    let counts = next.counts();
    let mut service = ContractLayer::new(NoPassthrough::new()).layer(next);
    for _ in 0..3 {
        tower::ServiceExt::<Request<ScriptedBody>>::ready(&mut service).await.unwrap();
        service.call(chat(whole(CHAT))).await.unwrap();
    }
    assert_eq!(counts.calls(), 3);
    drop(service);
    assert_eq!(counts.drops(), 4, "a clone for each call, and the service itself");
}

#[test]
fn where_nothing_passes_through_requests_without_a_header_are_not_found() {
    let (next, mut inner) = leg::<_, Reply>();
    let mut service = ContractLayer::without_passthrough().layer(next);
    for head in [plain(()), request(Method::GET, "/v1/models", &[], ())] {
        let (body, script) = watched(ScriptedBody::new().pending());
        let error = assert_ready_err!(task::spawn(service.call(head.map(|()| body))).poll());
        assert_eq!(super::told(&error), (404, "not_found", None));
        assert_eq!(script.polls(), 0, "an upload is read for nothing");
        assert!(script.is_dropped());
    }
    assert!(inner.try_next().is_none());
    let mut call = task::spawn(service.call(chat(whole(CHAT))));
    assert_pending!(call.poll());
    assert_eq!(inner.try_next().unwrap().0.body().context_endpoint().as_str(), WORKER);
}

#[test]
fn another_passthrough_keeps_the_rules() {
    let layer = ContractLayer::new(()).max_body(1);
    let (next, _inner) = leg::<Request<Handoff<Validated>>, Reply>();
    let mut service = layer.passthrough(NoPassthrough::new()).layer(next);
    let error = assert_ready_err!(task::spawn(service.call(chat(whole(CHAT)))).poll());
    assert_eq!(super::told(&error), (413, "request_too_large", None));
}

#[test]
fn changing_a_layer_leaves_its_clones_alone() {
    let first = ContractLayer::new(NoPassthrough::new());
    let second = first.clone().max_body(1);
    let (next, mut inner) = leg::<Request<Handoff<Validated>>, Reply>();
    let mut call = task::spawn(first.layer(next.clone()).call(chat(whole(CHAT))));
    assert_pending!(call.poll());
    assert!(inner.try_next().is_some());
    assert_ready_err!(task::spawn(second.layer(next).call(chat(whole(CHAT)))).poll());
}
