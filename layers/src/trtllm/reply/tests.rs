use std::time::{Duration, Instant};

use serde_json::{Value as Json, json};

use super::*;
use crate::trtllm::{ReplyErrorKind, fixtures::*};

fn failure(endpoint: Endpoint, reply: &Json) -> ReplyError {
    match parse(endpoint, &reply.to_string()) {
        Ok(reply) => panic!("{reply:?} was accepted"),
        Err(error) => error,
    }
}

/// Asserts that each reply is refused as unusable, on account of `field`.
fn refused(cases: impl IntoIterator<Item = (&'static str, Json)>) {
    for (field, reply) in cases {
        let error = failure(Endpoint::Chat, &reply);
        assert_eq!((error.kind(), error.field()), (ReplyErrorKind::NotUsable, field), "{reply}: {error}");
        assert!(error.to_string().contains(error.reason()));
    }
}

#[test]
fn every_generation_has_a_usable_reply() {
    for release in RELEASES {
        let reply = usable(Endpoint::Chat, &with_params(params(release)));
        assert_eq!(reply.due(), Due::Generation);
        assert_eq!(reply.disagg_request_id(), Some(ID));
        assert_eq!(reply.opaque_state().unwrap().as_str(), r#""AAECAwQ=""#);
        assert_eq!(reply.info_endpoint().unwrap().as_str(), r#""tcp://10.0.0.5:37771""#);
        assert_eq!(reply.shows("ctx_usage"), members(release).contains(&"ctx_usage"));
    }
    assert_eq!(usable(Endpoint::Completions, &completions_reply()).due(), Due::Generation);
}

#[test]
fn a_body_that_is_no_object_is_refused() {
    let whole = chat_reply().to_string();
    for body in [
        "",
        " ",
        "null",
        "[]",
        r#""x""#,
        "17",
        "{",
        "data: {}\n\n",
        &whole[..whole.len() - 5],
        &format!("{whole}{{}}"),
        &format!("\u{feff}{whole}"),
    ] {
        let error = parse(Endpoint::Chat, body).unwrap_err();
        assert_eq!((error.kind(), error.field()), (ReplyErrorKind::NotUsable, ""), "{body}");
    }
    assert!(ContextReply::parse(Endpoint::Chat, Bytes::from_static(b"{\"a\":\"\xff\"}")).is_err());
    assert!(ContextReply::parse(Endpoint::Chat, vec![b'['; 200_000].into()).is_err());
}

#[test]
fn an_error_with_a_good_status_is_refused_even_beside_choices() {
    let mut both = chat_reply();
    merge(&mut both, json!({"error": {"message": "x"}}));
    refused([("error", json!({"error": "boom"})), ("error", both)]);
    let mut null = chat_reply();
    merge(&mut null, json!({"error": null}));
    usable(Endpoint::Chat, &null);
}

#[test]
fn exactly_one_choice() {
    let with = |choices: Json| {
        let mut reply = chat_reply();
        merge(&mut reply, json!({"choices": choices}));
        reply
    };
    let choice = chat_reply()["choices"][0].clone();
    refused([
        ("choices", without(chat_reply(), "choices")),
        ("choices", with(Json::Null)),
        ("choices", with(json!("x"))),
        ("choices", with(json!({}))),
        ("choices", with(json!([]))),
        ("choices", with(json!([choice, choice]))),
        ("choices[0]", with(json!([null]))),
        ("choices[0]", with(json!([[]]))),
        ("choices[0]", with(json!(["x"]))),
    ]);
}

#[test]
fn finish_reasons() {
    let with = |reason: &Json| {
        let mut reply = chat_reply();
        merge(&mut reply["choices"][0], json!({"finish_reason": reason}));
        reply
    };
    for reason in [json!("length"), json!("not_finished"), Json::Null] {
        assert_eq!(usable(Endpoint::Chat, &with(&reason)).due(), Due::Generation, "{reason}");
    }
    for reason in ["stop", "tool_calls", "content_filter"] {
        assert_eq!(usable(Endpoint::Chat, &with(&json!(reason))).due(), Due::Nothing, "{reason}");
    }
    for reason in ["cancelled", "abort", "error", "timeout", "", "STOP", "function_call", "secret words"] {
        let error = failure(Endpoint::Chat, &with(&json!(reason)));
        assert_eq!(error.kind(), ReplyErrorKind::Aborted, "{reason}");
        assert_eq!(error.field(), "choices[0].finish_reason");
        assert!(!error.to_string().contains("secret"));
    }
    refused([7.into(), true.into(), json!([]), json!({"a": 1})].map(|reason| (FINISH, with(&reason))));
}

#[test]
fn without_a_finish_reason_only_a_complete_handoff_goes_on() {
    let absent = |mut reply: Json| {
        let choice = reply["choices"][0].take();
        reply["choices"][0] = without(choice, "finish_reason");
        reply
    };
    assert_eq!(usable(Endpoint::Chat, &absent(chat_reply())).due(), Due::Generation);
    refused([
        (PARAMS, absent(with_params(Json::Null))),
        (CTX_REQUEST_ID, absent(with_members(json!({"ctx_request_id": null})))),
    ]);
}

#[test]
fn a_finished_answer_needs_no_handoff() {
    let stop = |mut reply: Json| {
        merge(&mut reply["choices"][0], json!({"finish_reason": "stop"}));
        reply
    };
    for reply in [
        stop(with_members(
            json!({"ctx_request_id": null, "disagg_request_id": null, "first_gen_tokens": null}),
        )),
        stop(with_params(Json::Null)),
        stop(chat_reply()),
    ] {
        let reply = usable(Endpoint::Chat, &reply);
        assert_eq!(reply.due(), Due::Nothing);
        assert_eq!(reply.disagg_request_id(), None);
        assert!(reply.opaque_state().is_none());
    }
    let reply = stop(without(completions_reply(), "prompt_token_ids"));
    assert_eq!(usable(Endpoint::Completions, &reply).due(), Due::Nothing);
}

#[test]
fn the_handoff_has_to_be_complete() {
    let member = |members: Json| with_members(members);
    let lacking = |key| with_params(without(params("1.3.0rc24"), key));
    let mut no_params = chat_reply();
    no_params["choices"][0] = without(no_params["choices"][0].take(), "disaggregated_params");
    refused([
        (PARAMS, no_params),
        (PARAMS, with_params(Json::Null)),
        (PARAMS, with_params(json!("x"))),
        (PARAMS, with_params(json!([]))),
        (CTX_REQUEST_ID, with_params(json!({}))),
        (CTX_REQUEST_ID, lacking("ctx_request_id")),
        (CTX_REQUEST_ID, member(json!({"ctx_request_id": null}))),
        (CTX_REQUEST_ID, member(json!({"ctx_request_id": "7"}))),
        (CTX_REQUEST_ID, member(json!({"ctx_request_id": 1.5}))),
        (CTX_REQUEST_ID, member(json!({"ctx_request_id": 1e18}))),
        (CTX_REQUEST_ID, member(json!({"ctx_request_id": -1}))),
        (CTX_REQUEST_ID, member(json!({"ctx_request_id": true}))),
        (CTX_REQUEST_ID, member(json!({"ctx_request_id": [7]}))),
        (FIRST_GEN_TOKENS, lacking("first_gen_tokens")),
        (FIRST_GEN_TOKENS, member(json!({"first_gen_tokens": null}))),
        (FIRST_GEN_TOKENS, member(json!({"first_gen_tokens": []}))),
        (FIRST_GEN_TOKENS, member(json!({"first_gen_tokens": ["a"]}))),
        (FIRST_GEN_TOKENS, member(json!({"first_gen_tokens": [5.0]}))),
        (FIRST_GEN_TOKENS, member(json!({"first_gen_tokens": [true]}))),
        (FIRST_GEN_TOKENS, member(json!({"first_gen_tokens": 5}))),
        (OPAQUE_STATE, member(json!({"encoded_opaque_state": 5}))),
        (INFO_ENDPOINT, member(json!({"ctx_info_endpoint": ["tcp://a:1"]}))),
        (OPAQUE_STATE, member(json!({"encoded_opaque_state": null, "ctx_info_endpoint": null}))),
        (OPAQUE_STATE, member(json!({"encoded_opaque_state": "", "ctx_info_endpoint": null}))),
        (DISAGG_REQUEST_ID, member(json!({"disagg_request_id": "7"}))),
        (DISAGG_REQUEST_ID, member(json!({"disagg_request_id": 7.0}))),
        (DISAGG_REQUEST_ID, member(json!({"disagg_request_id": false}))),
        (DISAGG_REQUEST_ID, member(json!({"disagg_request_id": -7}))),
    ]);
    // One of the two ways to find the cache is enough.
    usable(Endpoint::Chat, &member(json!({"encoded_opaque_state": null})));
    usable(Endpoint::Chat, &member(json!({"ctx_info_endpoint": null})));
    usable(Endpoint::Chat, &lacking("ctx_info_endpoint"));
}

#[test]
fn no_text_of_the_reply_is_quoted() {
    for reply in [
        with_members(json!({"ctx_request_id": "SECRET"})),
        with_members(json!({"first_gen_tokens": ["SECRET"]})),
        with_members(json!({"ctx_info_endpoint": {"SECRET": "SECRET"}})),
    ] {
        let error = failure(Endpoint::Chat, &reply);
        assert!(!format!("{error} {error:?}").contains("SECRET"), "{error:?}");
    }
    assert!(!format!("{:?}", usable(Endpoint::Chat, &chat_reply())).contains("AAEC"));
}

#[test]
fn a_repeated_member_that_a_decision_rests_on_is_refused() {
    let whole = chat_reply().to_string();
    for (found, repeated, field) in [
        (r#""choices":"#, r#""choices":[],"choices":"#, "choices"),
        (r#""finish_reason":"#, r#""finish_reason":"stop","finish_reason":"#, FINISH),
        (r#""disaggregated_params":"#, r#""disaggregated_params":{},"disaggregated_params":"#, PARAMS),
        (r#""ctx_request_id":"#, r#""ctx_request_id":5,"ctx_request_id":"#, PARAMS),
        (r#""ctx_dp_rank":"#, r#""ctx_dp_r\u0061nk":5,"ctx_dp_rank":"#, PARAMS),
        (r#""prompt_token_ids":"#, r#""prompt_token_ids":[1],"prompt_token_ids":"#, "prompt_token_ids"),
    ] {
        let body = whole.replacen(found, repeated, 1);
        assert_ne!(body, whole);
        let error = parse(Endpoint::Chat, &body).unwrap_err();
        assert_eq!((error.kind(), error.field()), (ReplyErrorKind::NotUsable, field));
    }
}

#[test]
fn ids_are_never_taken_through_a_float() {
    for digits in
        ["0", "21831656151937025", "9007199254740993", "9223372036854775807", "18446744073709551615"]
    {
        let body = chat_reply().to_string().replace(&ID.to_string(), digits);
        let reply = parse(Endpoint::Chat, &body).unwrap();
        assert_eq!(reply.id_for_generation(id()).to_string(), digits);
    }
    let above = chat_reply().to_string().replace(&ID.to_string(), "18446744073709551616");
    assert_eq!(parse(Endpoint::Chat, &above).unwrap_err().field(), CTX_REQUEST_ID);
}

#[test]
fn the_id_for_generation_is_the_one_that_the_context_worker_has() {
    let of = |reply: &Json| {
        let id = usable(Endpoint::Chat, reply).id_for_generation(id());
        (id.get(), id.is_foreign())
    };
    assert_eq!(of(&chat_reply()), (ID, false));
    assert_eq!(of(&with_members(json!({"disagg_request_id": null}))), (ID, false));
    assert_eq!(of(&with_params(without(params("1.3.0rc24"), "disagg_request_id"))), (ID, false));
    assert_eq!(of(&with_members(json!({"disagg_request_id": 77}))), (77, true));
    assert_eq!(of(&with_members(json!({"disagg_request_id": 0}))), (0, true));
}

#[test]
fn prompt_ids() {
    let with = |mut reply: Json, ids: Json| {
        merge(&mut reply, json!({"prompt_token_ids": ids}));
        reply
    };
    // Chat goes on without; completions cannot.
    usable(Endpoint::Chat, &with(chat_reply(), Json::Null));
    usable(Endpoint::Chat, &without(chat_reply(), "prompt_token_ids"));
    refused(
        [json!([]), json!([[1, 2, 3]]), json!("x"), json!([1.5]), json!(["1"]), json!([true])]
            .map(|ids| ("prompt_token_ids", with(chat_reply(), ids))),
    );
    usable(Endpoint::Completions, &with(completions_reply(), json!([[1, 2, 3]])));
    for ids in [Json::Null, json!([]), json!([[]]), json!([[1], [2]]), json!([[[1]]]), json!([["1"]])] {
        let error = failure(Endpoint::Completions, &with(completions_reply(), ids));
        assert_eq!((error.kind(), error.field()), (ReplyErrorKind::NotUsable, "prompt_token_ids"));
    }
    failure(Endpoint::Completions, &without(completions_reply(), "prompt_token_ids"));
}

#[test]
fn base64_prompt_ids_are_an_alternative_on_chat_only() {
    let with = |mut reply: Json, base64: Json| {
        merge(&mut reply, json!({"prompt_token_ids": null, "prompt_token_ids_b64": base64}));
        reply
    };
    usable(Endpoint::Chat, &with(chat_reply(), json!("AQAAAA==")));
    refused([json!(""), json!(5), json!([1])].map(|ids| ("prompt_token_ids_b64", with(chat_reply(), ids))));
    failure(Endpoint::Completions, &with(completions_reply(), json!("AQAAAA==")));
}

#[test]
fn a_large_reply_is_read_in_reasonable_time() {
    let ids: Vec<u32> = (0..200_000).collect();
    let mut reply = with_members(json!({"encoded_opaque_state": "QUJD".repeat(75 * 1024)}));
    merge(&mut reply, json!({"prompt_token_ids": ids}));
    let body = Bytes::from(reply.to_string());
    let started = Instant::now();
    let reply = ContextReply::parse(Endpoint::Chat, body).unwrap();
    // Some 20 ms without optimisation; the bound is for what grows faster than the size.
    assert!(started.elapsed() < Duration::from_secs(2), "{:?}", started.elapsed());
    assert_eq!(reply.opaque_state().unwrap().as_str().len(), 300 * 1024 + 2);
}
