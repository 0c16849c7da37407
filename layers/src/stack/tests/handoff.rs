//! A request with a context worker, from one end of the stack to the other.

use http::{Method, Response, StatusCode};
use tokio_test::{assert_pending, assert_ready_err, assert_ready_ok, task};
use tower_service::Service;

use super::{CANARY, CHAT, WORKER, chat, context_reply, json, read, request, rig, stream, values, whole};
use crate::{
    error::{ContextError, ContextErrorKind, ErrorReply, find},
    leg::{LegError, LegErrorKind},
    test_util::ScriptedBody,
    trtllm::DisaggRequestId,
};

#[test]
fn the_two_workers_are_asked_in_turn_and_the_second_one_is_heard() {
    let mut rig = rig();
    let headers = [
        ("x-prefiller-host-port", WORKER),
        ("authorization", "Bearer t"),
        ("connection", "x-a"),
        ("x-a", "1"),
    ];
    let mut call = task::spawn(rig.service.call(request(
        Method::POST,
        "/v1/chat/completions?q=1",
        &headers,
        whole(CHAT),
    )));
    assert_pending!(call.poll());

    let (asked, mut reply) = rig.context_request();
    assert!(rig.client.try_next().is_none());
    assert_eq!(asked.uri(), "http://10.0.0.5:8001/v1/chat/completions?q=1");
    assert_eq!(values(asked.headers(), "authorization"), ["Bearer t"]);
    assert_eq!(values(asked.headers(), "x-prefiller-host-port"), [""; 0]);
    assert_eq!(values(asked.headers(), "x-a"), [""; 0]);
    let asked = json(asked);
    assert_eq!(asked["stream"], false);
    assert_eq!(asked["disaggregated_params"]["request_type"], "context_only");
    let id = asked["disaggregated_params"]["disagg_request_id"].as_u64().unwrap();
    reply.send_response(context_reply(&asked, "length"));
    assert_pending!(call.poll());

    let (sent, mut reply) = rig.client_request();
    assert_eq!((sent.method(), sent.uri()), (&Method::POST, &"/v1/chat/completions?q=1".parse().unwrap()));
    assert_eq!(values(sent.headers(), "authorization"), ["Bearer t"]);
    assert_eq!(values(sent.headers(), "x-prefiller-host-port"), [""; 0]);
    let sent = json(sent);
    assert_eq!(sent["stream"], true);
    assert_eq!(sent["messages"][0]["content"], CANARY);
    assert_eq!(sent["disaggregated_params"]["request_type"], "generation_only");
    assert_eq!(sent["disaggregated_params"]["disagg_request_id"], id);
    assert_eq!(sent["disaggregated_params"]["encoded_opaque_state"], CANARY);
    reply.send_response(stream(ScriptedBody::new().data("data: 1\n\n").data("data: [DONE]\n\n")));

    let response = assert_ready_ok!(call.poll());
    assert_eq!(response.status(), StatusCode::OK);
    assert_eq!(response.extensions().get::<DisaggRequestId>().unwrap().get(), id);
    assert_eq!(read(response.into_body()), "data: 1\n\ndata: [DONE]\n\n");
    rig.assert_untouched();
}

#[test]
fn a_context_step_that_is_the_whole_answer_asks_nobody_else() {
    let mut rig = rig();
    rig.client.block(); // not even whether it is ready
    let mut call = task::spawn(rig.service.call(chat(whole(r#"{"messages":[]}"#))));
    assert_pending!(call.poll());
    let (asked, mut reply) = rig.context_request();
    reply.send_response(context_reply(&json(asked), "stop"));
    let response = assert_ready_ok!(call.poll());
    let text = read(response.into_body());
    let answer: serde_json::Value = serde_json::from_slice(&text).unwrap();
    assert_eq!(answer["choices"][0]["message"]["content"], CANARY);
    assert_eq!(
        (&answer["prompt_token_ids"], &answer["choices"][0]["disaggregated_params"]),
        (&().into(), &().into())
    );
    rig.assert_untouched();
}

#[test]
fn no_generation_place_is_held_while_the_context_worker_works() {
    let mut rig = rig();
    rig.client.allow(1);
    let mut slow = task::spawn(rig.service.call(chat(whole(CHAT))));
    assert_pending!(slow.poll());
    let (asked, mut reply) = rig.context_request();
    // Somebody else takes the only place meanwhile.
    let mut other =
        task::spawn(rig.service.clone().call(request(Method::GET, "/v1/models", &[], ScriptedBody::new())));
    assert_pending!(other.poll());
    let (_, _other_reply) = rig.client_request();
    reply.send_response(context_reply(&json(asked), "length"));
    assert_pending!(slow.poll());
    assert!(rig.client.try_next().is_none());
    rig.client.allow(1);
    assert!(slow.is_woken());
    assert_pending!(slow.poll());
    rig.client_request();
}

#[test]
fn failures_are_those_of_the_stage_where_they_happened() {
    let mut rig = rig();
    // Nothing is called.
    let mut call = task::spawn(rig.service.call(chat(whole("[]"))));
    let error = assert_ready_err!(call.poll());
    assert_eq!(ErrorReply::of(&*error).code, "invalid_request");
    rig.assert_untouched();

    // The generation worker is not called.
    let mut call = task::spawn(rig.service.call(chat(whole(CHAT))));
    assert_pending!(call.poll());
    rig.context_request().1.send_error(LegError::new(LegErrorKind::Connect).with_source("refused"));
    let error = assert_ready_err!(call.poll());
    let context = find::<ContextError>(&*error).unwrap();
    assert_eq!(
        (context.kind(), ErrorReply::of(&*error).code),
        (ContextErrorKind::Unreachable, "context_unreachable")
    );
    rig.assert_untouched();

    let mut call = task::spawn(rig.service.call(chat(whole(CHAT))));
    assert_pending!(call.poll());
    let (asked, mut reply) = rig.context_request();
    reply.send_response(context_reply(&json(asked), "length"));
    assert_pending!(call.poll());
    rig.client_request().1.send_error(LegError::new(LegErrorKind::Connect));
    let error = assert_ready_err!(call.poll());
    let reply = ErrorReply::of(&*error);
    assert_eq!((reply.status.as_u16(), reply.code), (503, "generation_unreachable"));
    assert!(!reply.message.contains(CANARY) && !format!("{error:?}").contains(CANARY));
}

#[test]
fn readiness_of_the_legs_is_asked_for_late_and_its_errors_are_returned() {
    let mut rig = rig();
    rig.context.block();
    let ready = task::spawn(())
        .enter(|cx, _| Service::<http::Request<ScriptedBody>>::poll_ready(&mut rig.service, cx));
    assert_ready_ok!(ready);
    let mut call = task::spawn(rig.service.call(chat(whole(CHAT))));
    assert_pending!(call.poll());
    rig.context.fail_ready("no leg");
    assert!(call.is_woken());
    assert_eq!(assert_ready_err!(call.poll()).to_string(), "no leg");
}

#[test]
fn who_leaves_before_the_context_reply_takes_the_leg_along() {
    let mut rig = rig();
    let mut call = task::spawn(rig.service.call(chat(whole(CHAT))));
    assert_pending!(call.poll());
    let (_, reply) = rig.context_request();
    drop(call);
    assert!(reply.is_cancelled());
    rig.assert_untouched();
}

#[test]
fn clones_share_nothing_that_belongs_to_a_call() {
    let mut rig = rig();
    let mut other = rig.service.clone();
    let mut first = task::spawn(rig.service.call(chat(whole(CHAT))));
    let mut second = task::spawn(other.call(chat(whole(CHAT))));
    assert_pending!(first.poll());
    assert_pending!(second.poll());
    let (first_asked, _first) = rig.context_request();
    let (second_asked, mut to_second) = rig.context_request();
    let (first_asked, second_asked) = (json(first_asked), json(second_asked));
    let id = |asked: &serde_json::Value| asked["disaggregated_params"]["disagg_request_id"].as_u64().unwrap();
    assert_ne!(id(&first_asked), id(&second_asked));
    to_second.send_response(context_reply(&second_asked, "length"));
    assert_pending!(first.poll());
    assert_pending!(second.poll());
    assert_eq!(json(rig.client_request().0)["disaggregated_params"]["disagg_request_id"], id(&second_asked));
}

#[test]
fn nothing_in_it_shows_content() {
    let mut rig = rig();
    let mut call = task::spawn(rig.service.call(chat(whole(CHAT))));
    let mut shown = vec![format!("{call:?}")];
    assert_pending!(call.poll());
    shown.push(format!("{call:?}"));
    let (asked, mut reply) = rig.context_request();
    shown.push(format!("{asked:?}"));
    reply.send_response(context_reply(&json(asked), "length"));
    assert_pending!(call.poll());
    shown.push(format!("{call:?}"));
    let (sent, mut reply) = rig.client_request();
    shown.push(format!("{sent:?}"));
    reply.send_response(Response::new(whole(r#"{"a":"ANSWER"}"#)));
    let response = assert_ready_ok!(call.poll());
    shown.push(format!("{response:?} {:?}", rig.service));
    for shown in shown {
        assert!(!shown.contains(CANARY) && !shown.contains("ANSWER"), "{shown}");
    }
}
