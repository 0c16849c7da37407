//! Requests that no context worker was chosen for.

use bytes::Bytes;
use http::{HeaderMap, Method, Response, Version};
use http_body::Body;
use http_body_util::BodyExt;
use tokio_test::{assert_pending, assert_ready_err, assert_ready_ok, task};

use super::{CHAT, request, rig, rig_of, text_of, told, values, watched, whole};
use crate::test_util::ScriptedBody;

/// What a worker reads as handoff fields, in every way in which it does.
fn guilty() -> Vec<(&'static [&'static str], Vec<u8>)> {
    let json: &[&str] = &["application/json"];
    let text = br#"{"disaggregated_params":{"request_type":"generation_only"}}"#;
    let utf16: Vec<u8> = text.iter().flat_map(|byte| [*byte, 0]).collect();
    let marked = [b"\xef\xbb\xbf", &text[..]].concat();
    vec![
        (json, text.to_vec()),
        (json, br#"{"disaggregated\u005fparams":{"a":1}}"#.to_vec()),
        (json, br#"{"\u0064\u0069saggregated_params":{"a":1}}"#.to_vec()),
        (json, br#"{"disaggregated_params":null,"x":1,"disaggregated_params":{"a":1}}"#.to_vec()),
        (json, br#"{"disaggregated_params":"x"}"#.to_vec()),
        (json, br#"{"prompt_token_ids":[1]}"#.to_vec()),
        (json, br#"{"prompt_token_ids_b64":"QQ=="}"#.to_vec()),
        (json, br#"{"conversation_params":{"subagent_affinity_id":"x"}}"#.to_vec()),
        (json, utf16.clone()),
        (json, [b"\xff\xfe", &utf16[..]].concat()),
        (json, marked),
        (&[], text.to_vec()),
        (&["text/plain", "application/json"], text.to_vec()),
        (&["application/json", "text/plain"], text.to_vec()),
        (&["application/json; charset=utf-8"], text.to_vec()),
        (&["application/x-y+JSON"], text.to_vec()),
        (&["json"], text.to_vec()),
    ]
}

fn typed(types: &[&str], body: ScriptedBody) -> http::Request<ScriptedBody> {
    let headers: Vec<_> = types.iter().map(|value| ("content-type", *value)).collect();
    request(Method::POST, "/v1/responses", &headers, body)
}

#[test]
fn a_guarded_way_refuses_handoff_fields_however_they_are_spelt() {
    for (types, body) in guilty() {
        let shown = String::from_utf8_lossy(&body).into_owned();
        let mut rig = rig();
        let error = assert_ready_err!(rig.call(typed(types, whole(body))).poll());
        let (status, code, _) = told(&error);
        assert_eq!(status, 400, "{types:?} {shown}");
        let unreadable = shown.contains('\0') || shown.starts_with('\u{feff}');
        let expected = if unreadable { "invalid_request" } else { "handoff_fields_forbidden" };
        assert_eq!(code, expected, "{types:?} {shown}");
        rig.assert_untouched();
    }
}

#[test]
fn a_verbatim_way_looks_at_nothing() {
    for (types, body) in guilty() {
        let mut rig = rig_of(|layer| layer.guard(false).max_body(0));
        let (sent, script) = watched(whole(body.clone()));
        let mut call = rig.call(typed(types, sent));
        assert_pending!(call.poll());
        assert_eq!(script.polls(), 0, "the body is read by who gets it");
        let (seen, _reply) = rig.passed();
        let body_seen = task::spawn(seen.into_body().collect()).poll();
        assert_eq!(assert_ready_ok!(body_seen).to_bytes(), body);
    }
}

#[test]
fn what_says_nothing_of_a_handoff_passes_byte_for_byte() {
    let json: &[&str] = &["application/json"];
    let cases: [(&[&str], &[u8]); 12] = [
        (json, b"{ \"n\" : 5,\n\"echo\":true , \"seed\":9007199254740993}"),
        (json, br#"{"disaggregated_params":null}"#),
        (json, br#"{"disaggregated_params":{}}"#),
        (json, br#"{"x":{"disaggregated_params":{"a":1}}}"#),
        (json, br#"{"stream":"yes","stream":1}"#),
        (json, br#"{"a":"\ud83d"}"#),
        (json, b"[1,2]"),
        (json, b""),
        (&[], CHAT.as_bytes()),
        (&["text/plain"], br#"{"disaggregated_params":{"a":1}}"#),
        (&["multipart/form-data; boundary=x"], b"--x\r\n\xff\xfe\r\n--x--"),
        (&["application/octet-stream"], b"\x00\x01\xef\xbb\xbf"),
    ];
    for (types, body) in cases {
        let mut rig = rig();
        let sent = Bytes::copy_from_slice(body);
        let mut call = rig.call(typed(types, whole(sent.clone())));
        assert_pending!(call.poll());
        let seen = rig.passed().0.into_body();
        assert_eq!(seen.size_hint().exact(), Some(body.len() as u64));
        let seen = text_of(seen);
        assert_eq!(seen, body, "{types:?}");
        assert!(body.is_empty() || seen.as_ptr() == sent.as_ptr(), "the bytes were copied");
    }
}

#[test]
fn the_head_passes_unchanged() {
    for guard in [true, false] {
        for method in [Method::POST, Method::GET] {
            let headers = [
                ("content-type", "application/json"),
                ("content-length", "2"),
                ("connection", "keep-alive"),
                ("expect", "100-continue"),
                ("x-gateway-destination-endpoint", "d:1"),
                ("x-custom", "1"),
                ("x-custom", "2"),
            ];
            let mut rig = rig_of(|layer| layer.guard(guard));
            let mut sent = request(method.clone(), "/v1/anything?x=%2F", &headers, whole("{}"));
            *sent.version_mut() = Version::HTTP_10;
            let expected = sent.headers().clone();
            let mut call = rig.call(sent);
            assert_pending!(call.poll());
            let (seen, _reply) = rig.passed();
            assert_eq!((seen.method(), seen.uri()), (&method, &"/v1/anything?x=%2F".parse().unwrap()));
            assert_eq!((seen.version(), seen.headers()), (Version::HTTP_10, &expected));
            assert_eq!(values(seen.headers(), "x-custom"), ["1", "2"]);
        }
    }
}

#[test]
fn what_only_the_serving_side_may_say_is_dropped_from_the_head() {
    for guard in [true, false] {
        for method in [Method::POST, Method::GET] {
            let headers = [
                ("x-trtllm-disagg-auth", "sha256=0"),
                ("x-custom", "1"),
                ("x-trtllm-disagg-auth", "sha256=1"),
                ("x-trtllm-subagent-affinity-id", "a"),
                ("x-trtllm-subagent-affinity-auth", "b"),
            ];
            let mut rig = rig_of(|layer| layer.guard(guard));
            let mut call = rig.call(request(method, "/v1/anything", &headers, whole("{}")));
            assert_pending!(call.poll());
            let seen = rig.passed().0;
            let names: Vec<_> = seen.headers().keys().map(|name| name.as_str()).collect();
            assert_eq!(names, ["x-custom"]);
        }
    }
}

#[test]
fn a_body_that_is_not_checked_streams() {
    let mut trailers = HeaderMap::new();
    trailers.insert("x-sum", "1".parse().unwrap());
    let mut rig = rig();
    let (sent, script) =
        watched(ScriptedBody::new().data("a").pending().data("b").trailers(trailers.clone()));
    let mut call = rig.call(request(Method::PUT, "/files/1", &[], sent));
    assert_pending!(call.poll());
    let (seen, mut reply) = rig.passed();
    assert_eq!(script.polls(), 0);

    let mut body = task::spawn(seen.into_body().into_inner().expect_err("the body was read"));
    let mut frame = || body.enter(|cx, body| body.poll_frame(cx));
    assert_eq!(assert_ready_ok!(frame().map(Option::unwrap)).into_data().unwrap(), "a");
    assert_pending!(frame());
    script.wake();
    assert_eq!(assert_ready_ok!(frame().map(Option::unwrap)).into_data().unwrap(), "b");
    assert_eq!(assert_ready_ok!(frame().map(Option::unwrap)).into_trailers().unwrap(), trailers);
    drop(call);
    assert!(reply.is_cancelled());
    reply.send_response(Response::default());
}
