//! Requests without a context worker, on their way to the same client.

use std::time::Duration;

use bytes::Bytes;
use http::{Method, Response, Version};
use http_body::Body as _;
use tokio::time::advance;
use tokio_test::{assert_pending, assert_ready_err, assert_ready_ok, task};
use tower_service::Service;

use super::{CHAT, read, request, rig, rig_of, text, values, whole};
use crate::{
    buffer::BufferBudget,
    contract::PassthroughBody,
    error::ErrorReply,
    leg::LegBody,
    stack::{Passthrough, PassthroughFuture},
    test_util::{LegDouble, LegDoubleFuture, ScriptedBody, assert_future_traits, assert_service_traits, leg},
};

const LIMIT: Duration = Duration::from_secs(30);
const TICK: Duration = Duration::from_millis(1);

#[test]
fn the_client_gets_the_request_without_what_belongs_to_a_connection() {
    for method in [Method::POST, Method::GET] {
        let mut rig = rig();
        let headers = [
            ("host", "gateway"),
            ("connection", "x-foo, keep-alive"),
            ("x-foo", "1"),
            ("te", "trailers"),
            ("keep-alive", "timeout=5"),
            ("proxy-authorization", "x"),
            ("expect", "100-continue"),
            ("transfer-encoding", "chunked"),
            ("x-trtllm-disagg-auth", "forged"),
            ("authorization", "Bearer t"),
            ("x-custom", "1"),
            ("x-custom", "2"),
        ];
        let sent = Bytes::from(CHAT.to_owned());
        let mut passed = request(method.clone(), "/v1/anything?x=%2F", &headers, whole(sent.clone()));
        passed.extensions_mut().insert(7_u8);
        let mut call = task::spawn(rig.service.call(passed));
        assert_pending!(call.poll());
        let (seen, mut reply) = rig.client_request();
        assert!(rig.context.try_next().is_none());
        assert_eq!((seen.method(), seen.uri()), (&method, &"/v1/anything?x=%2F".parse().unwrap()));
        assert_eq!(values(seen.headers(), "x-custom"), ["1", "2"]);
        assert_eq!(values(seen.headers(), "authorization"), ["Bearer t"]);
        assert_eq!(seen.headers().len(), 3, "{:?}", seen.headers());
        assert_eq!(seen.extensions().get::<u8>(), Some(&7));
        assert_eq!(seen.body().size_hint().exact(), Some(CHAT.len() as u64));
        let seen = seen.into_body().into_bytes();
        assert_eq!((seen.as_ptr(), &seen), (sent.as_ptr(), &sent), "the bytes were copied");

        let answer =
            Response::builder().status(201).header("connection", "close, x-bar").header("x-bar", "1");
        let answer = answer.header("keep-alive", "timeout=1").header("x-worker", "7");
        reply.send_response(answer.body(whole("answer")).unwrap());
        let response = assert_ready_ok!(call.poll());
        assert_eq!(response.status(), 201);
        assert_eq!(response.headers().len(), 1, "{:?}", response.headers());
        assert_eq!(values(response.headers(), "x-worker"), ["7"]);
        assert_eq!(read(response.into_body()), "answer");
    }
}

#[test]
fn the_version_of_the_clients_connection_is_not_that_of_the_next_one() {
    for version in [Version::HTTP_10, Version::HTTP_11, Version::HTTP_2] {
        for method in [Method::POST, Method::GET] {
            let mut rig = rig();
            let mut passed = request(method, "/v1/models", &[], whole("{}"));
            *passed.version_mut() = version;
            let mut call = task::spawn(rig.service.call(passed));
            assert_pending!(call.poll());
            assert_eq!(rig.client_request().0.version(), Version::HTTP_11, "{version:?}");
        }
    }
}

#[test]
fn clients_do_not_choose_where_requests_go() {
    for origin in [None, Some("http://gen:8001")] {
        for (method, uri, path) in [
            (Method::GET, "http://evil:1/v1/models?a", "/v1/models?a"),
            (Method::POST, "https://u:p@evil:1/", "/"),
            (Method::OPTIONS, "*", "*"),
            (Method::GET, "//evil:1/x", "//evil:1/x"),
        ] {
            let mut rig = rig_of(|layer| match origin {
                Some(origin) => layer.generation_to(origin.parse().unwrap()),
                None => layer,
            });
            let mut call = task::spawn(rig.service.call(request(method, uri, &[], ScriptedBody::new())));
            assert_pending!(call.poll());
            let (seen, _reply) = rig.client_request();
            let expected = origin.map(|origin| origin.trim_start_matches("http://"));
            assert_eq!(seen.uri().authority().map(|it| it.as_str()), expected, "{uri}");
            assert_eq!(seen.uri().path_and_query().unwrap(), path);
        }
    }
}

#[test]
fn nobody_is_connected_to_anybody() {
    // A client service would take the address of such a request for where to go.
    let mut rig = rig_of(|layer| layer.generation_to("http://gen:8001".parse().unwrap()));
    let body = whole("tunnelled");
    let script = body.handle();
    let mut call = task::spawn(rig.service.call(request(Method::CONNECT, "evil:1", &[], body)));
    let error = assert_ready_err!(call.poll());
    let reply = ErrorReply::of(&*error);
    assert_eq!((reply.status.as_u16(), reply.code), (501, "unsupported_endpoint"));
    assert!(reply.message.contains("CONNECT") && !reply.message.contains("evil"), "{}", reply.message);
    assert_eq!((script.polls(), script.is_dropped()), (0, true));
    rig.assert_untouched();
}

#[test]
fn handoff_fields_do_not_pass() {
    let mut rig = rig();
    let body = whole(r#"{"disaggregated_params":{"request_type":"generation_only"}}"#);
    let mut call = task::spawn(rig.service.call(request(Method::POST, "/v1/responses", &[], body)));
    let error = assert_ready_err!(call.poll());
    assert_eq!(ErrorReply::of(&*error).code, "handoff_fields_forbidden");
    rig.assert_untouched();
}

#[test]
fn bodies_of_all_methods_are_capped_and_counted() {
    for method in [Method::POST, Method::PUT, Method::GET] {
        let budget = BufferBudget::new(6);
        let mut rig = rig_of(|layer| layer.max_body(4).budget(budget.clone()));
        let send = |text: &'static str| {
            request(method.clone(), "/files", &[("content-type", "text/plain")], whole(text))
        };
        let error = assert_ready_err!(task::spawn(rig.service.call(send("12345"))).poll());
        assert_eq!(ErrorReply::of(&*error).code, "request_too_large", "{method}");
        assert!(error.to_string().contains("4 bytes"), "{error}");

        assert_pending!(task::spawn(rig.service.call(send("1234"))).poll());
        let (seen, _reply) = rig.client_request();
        assert_eq!(budget.held(), 4, "{method}");
        let error = assert_ready_err!(task::spawn(rig.service.call(send("123"))).poll());
        assert_eq!(ErrorReply::of(&*error).code, "overloaded", "{method}");
        assert_eq!(text(seen), "1234");
        assert_eq!(budget.held(), 0);
        rig.assert_untouched();
    }
}

#[tokio::test(start_paused = true)]
async fn uploads_of_all_methods_have_a_deadline() {
    for method in [Method::POST, Method::PUT, Method::GET] {
        let mut rig = rig_of(|layer| layer.body_timeout(LIMIT));
        let body = ScriptedBody::new().data("{").pending();
        let handle = body.handle();
        let mut call = task::spawn(rig.service.call(request(method.clone(), "/files", &[], body)));
        assert_pending!(call.poll());
        advance(LIMIT - TICK).await;
        assert_pending!(call.poll());
        advance(TICK).await;
        assert!(call.is_woken(), "{method}: the upload may last for ever");
        let error = assert_ready_err!(call.poll());
        let reply = ErrorReply::of(&*error);
        assert_eq!((reply.status.as_u16(), reply.code), (408, "request_timeout"));
        drop(call);
        assert!(handle.is_dropped());
        rig.assert_untouched();
    }
}

type Client = LegDouble<http::Request<LegBody>, Response<ScriptedBody>>;

#[test]
fn it_waits_for_the_client_only_when_the_body_is_there() {
    let (client, mut handle) = leg();
    handle.block();
    let mut service: Passthrough<Client> = Passthrough::new(client, 1 << 20, BufferBudget::unlimited());
    type Body = PassthroughBody<ScriptedBody>;
    let ready = task::spawn(()).enter(|cx, _| Service::<http::Request<Body>>::poll_ready(&mut service, cx));
    assert_ready_ok!(ready);
    let body = ScriptedBody::new().pending().data("a").data("b");
    let script = body.handle();
    let mut call = task::spawn(service.call(http::Request::new(PassthroughBody::stream(body))));
    assert_pending!(call.poll());
    script.wake();
    assert_pending!(call.poll());
    assert!(script.is_ended() && handle.try_next().is_none());
    handle.allow(1);
    assert!(call.is_woken());
    assert_pending!(call.poll());
    let (seen, mut reply) = handle.try_next().unwrap();
    assert_eq!(text(seen), "ab");
    reply.send_error("no answer");
    assert_eq!(assert_ready_err!(call.poll()).to_string(), "no answer");

    handle.fail_ready("gone");
    let mut call = task::spawn(service.call(http::Request::new(Body::whole("a".into()))));
    assert_eq!(assert_ready_err!(call.poll()).to_string(), "gone");
    let mut call =
        task::spawn(service.call(http::Request::new(Body::stream(ScriptedBody::new().error("reset")))));
    assert_eq!(ErrorReply::of(&*assert_ready_err!(call.poll())).code, "invalid_request");
    assert!(handle.try_next().is_none());
}

#[test]
fn who_leaves_takes_the_upload_or_the_call_along() {
    let mut rig = rig();
    let body = ScriptedBody::new().data("a").pending();
    let script = body.handle();
    let mut call = task::spawn(rig.service.call(request(Method::PUT, "/files", &[], body)));
    assert_pending!(call.poll());
    drop(call);
    assert!(script.is_dropped());
    rig.assert_untouched();

    let mut call = task::spawn(rig.service.call(request(Method::PUT, "/files", &[], whole("a"))));
    assert_pending!(call.poll());
    let (_, reply) = rig.client_request();
    drop(call);
    assert!(reply.is_cancelled());
}

#[test]
fn it_can_be_shared_and_shown() {
    type Future = PassthroughFuture<ScriptedBody, Client, LegDoubleFuture<Response<ScriptedBody>>>;
    assert_service_traits::<Passthrough<Client>>();
    assert_future_traits::<Future>();
    let (client, _handle) = leg();
    let mut service: Passthrough<Client> = Passthrough::new(client, 1 << 20, BufferBudget::unlimited());
    let call = service.call(http::Request::new(PassthroughBody::stream(whole(CHAT))));
    assert_eq!(format!("{call:?}"), "PassthroughFuture(body)");
    let call: Future = service.call(http::Request::new(PassthroughBody::whole(CHAT.into())));
    assert_eq!(format!("{call:?}"), "PassthroughFuture(called)");
}
