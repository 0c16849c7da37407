use bytes::Bytes;
use proptest::prelude::*;
use serde_json::{Map, Value as Json, json};

use super::*;
use crate::trtllm::{Engine, fixtures::*, schema::newest};

fn leg(request: &ClientRequest, reply: &ContextReply, context: &Engine, generation: &Engine) -> Segments {
    generation_body(request, reply, id(), &Shape::between(context, generation, reply))
}

/// The `disaggregated_params` of a chat leg between two workers of these releases.
fn made(reply: &Json, context: &str, generation: &str) -> Map<String, Json> {
    let body = object(&leg(&chat(), &usable(Endpoint::Chat, reply), &worker(context), &worker(generation)));
    object(&body["disaggregated_params"].to_string().into())
}

fn expected(members: Json) -> Map<String, Json> {
    match members {
        Json::Object(members) => members,
        _ => unreachable!(),
    }
}

fn common() -> Map<String, Json> {
    expected(json!({
        "request_type": "generation_only", "first_gen_tokens": [4321], "ctx_request_id": ID,
        "encoded_opaque_state": "AAECAwQ=", "disagg_request_id": ID, "ctx_dp_rank": 0,
        "ctx_info_endpoint": "tcp://10.0.0.5:37771", "schedule_style": 0
    }))
}

fn usage() -> Json {
    json!({
        "prompt_tokens": 3, "total_tokens": 4, "completion_tokens": 1, "prompt_tokens_details": {"cached_tokens": 2}
    })
}

#[test]
fn the_leg_of_each_pair_of_generations() {
    for context in RELEASES {
        for generation in RELEASES {
            let mut expected = common();
            let told = match generation {
                "1.3.0rc24" | "1.4.0rc1" => true,
                // The reply of the same release shows the key.
                "1.3.0rc20" => context == generation,
                _ => false,
            };
            if told {
                expected.insert("ctx_usage".into(), usage());
            }
            let made = made(&with_params(params(context)), context, generation);
            assert_eq!(made, expected, "{context} to {generation}");
            assert!(made.keys().all(|key| members(generation).contains(&key.as_str())));
        }
    }
}

#[test]
fn what_the_generation_worker_does_not_know_is_dropped_and_the_rest_stays() {
    let reply = with_members(json!({
        "first_gen_log_probs": [[-0.5]], "first_gen_logits": "x", "draft_tokens": [5, 6], "conversation_id": "c",
        "resolved_thinking": true, "future": {"x": [1, {"y": null}]}, "future_list": [], "future_zero": 0,
        "future_null": null
    }));
    let more = |generation: &str| {
        let made = made(&reply, "1.3.0rc24", generation);
        let known = common();
        let mut more: Vec<_> = made.into_iter().filter(|(key, _)| !known.contains_key(key)).collect();
        more.retain(|(key, value)| {
            let sent = &reply["choices"][0]["disaggregated_params"][key];
            assert!(key == "ctx_usage" || value == sent, "{key} changed");
            key != "ctx_usage"
        });
        more.into_iter().map(|(key, _)| key).collect::<Vec<_>>()
    };
    let lists = ["first_gen_log_probs", "first_gen_logits"];
    let future = ["future", "future_list", "future_zero"];
    for (generation, members) in [
        ("1.3.0rc5", vec!["draft_tokens"]),
        ("1.3.0rc13", [&["conversation_id", "draft_tokens"][..], &lists].concat()),
        ("1.3.0rc20", [&["conversation_id", "draft_tokens"][..], &lists].concat()),
        ("1.3.0rc24", [&["conversation_id", "draft_tokens"][..], &lists].concat()),
        // It may know the conversation or the thinking, and which cannot be told from another release's reply.
        ("1.3.0rc25", [&["draft_tokens"][..], &lists].concat()),
        ("1.4.0rc1", [&["draft_tokens"][..], &lists, &["resolved_thinking"]].concat()),
    ] {
        let mut more = more(generation);
        // Whether it is the newest is another test's.
        more.retain(|member| generation != "1.4.0rc1" || !future.contains(&&**member));
        assert_eq!(more, members, "{generation}");
    }
    for generation in [&*newest(), "9.9.9", "nightly"] {
        let more = more(generation);
        for member in future {
            assert!(more.iter().any(|sent| sent == member), "{generation} is not sent {member}");
        }
        assert!(!more.iter().any(|sent| sent == "future_null"), "{generation}");
    }
}

#[test]
fn a_reply_of_the_same_release_settles_what_its_number_does_not() {
    let thinking = with_params(without(
        without(
            with_members(json!({"resolved_thinking": true}))["choices"][0]["disaggregated_params"].take(),
            "conversation_id",
        ),
        "ctx_usage",
    ));
    assert_eq!(made(&thinking, "1.3.0rc25", "1.3.0rc25+cu13")["resolved_thinking"], true);
    assert!(!made(&thinking, "1.3.0rc26", "1.3.0rc25").contains_key("resolved_thinking"));
    // Late in its generation a worker has `ctx_usage`, early it has not.
    assert!(!made(&with_params(params("1.3.0rc13")), "1.3.0rc13", "1.3.0rc13").contains_key("ctx_usage"));
    assert!(made(&with_params(params("1.3.0rc20")), "1.3.0rc20", "1.3.0rc20").contains_key("ctx_usage"));
    assert!(!made(&with_params(params("1.3.0rc20")), "1.3.0rc20", "1.3.0rc19").contains_key("ctx_usage"));
}

#[test]
fn a_worker_of_unknown_release_is_told_what_the_reply_shows() {
    for unknown in [Engine::Unknown, worker("nightly")] {
        let told = |release: &str| {
            let reply = usable(Endpoint::Chat, &with_params(params(release)));
            Shape::between(&Engine::Unknown, &unknown, &reply).ctx_usage()
        };
        assert!(told("1.3.0rc24"));
        assert!(!told("1.3.0rc5"));
    }
}

#[test]
fn members_keep_their_digits() {
    let body = chat_reply().to_string();
    let body = body
        .replace(r#""first_gen_log_probs":null"#, r#""first_gen_log_probs":[-0.12345678901234567890, 1E-7]"#)
        .replacen(&ID.to_string(), "9223372036854775807", 1);
    let reply = parse(Endpoint::Chat, &body).unwrap();
    let leg = text(&leg(&chat(), &reply, &worker("1.3.0rc24"), &worker("1.3.0rc24")));
    assert!(leg.contains(r#""first_gen_log_probs":[-0.12345678901234567890, 1E-7]"#), "{leg}");
    assert!(leg.contains(r#""ctx_request_id":9223372036854775807"#), "{leg}");
}

#[test]
fn the_id_written_is_that_of_the_context_worker() {
    let id = |reply: &Json| made(reply, "1.3.0rc24", "1.3.0rc24")["disagg_request_id"].clone();
    assert_eq!(id(&with_members(json!({"disagg_request_id": 77}))), 77);
    assert_eq!(id(&with_members(json!({"disagg_request_id": null}))), ID);
    assert_eq!(id(&with_params(without(params("1.3.0rc24"), "disagg_request_id"))), ID);
}

#[test]
fn nothing_that_is_ours_to_say_comes_from_the_reply() {
    let reply = with_members(json!({
        "request_type": "context_and_generation", "schedule_style": 1, "ctx_usage": {"prompt_tokens": 99},
        "return_prompt_token_ids_b64": false
    }));
    let made = made(&reply, "1.3.0rc24", "1.3.0rc24");
    assert_eq!(made["request_type"], "generation_only");
    assert_eq!(made["schedule_style"], 0);
    assert_eq!(made["ctx_usage"], usage());
    assert!(!made.contains_key("return_prompt_token_ids_b64"));
}

#[test]
fn a_base64_marker_that_is_set_stays_for_a_worker_that_knows_it() {
    let reply = with_members(json!({"return_prompt_token_ids_b64": true}));
    assert_eq!(made(&reply, "1.3.0rc24", "1.3.0rc24")["return_prompt_token_ids_b64"], true);
    assert!(!made(&reply, "1.3.0rc24", "1.3.0rc13").contains_key("return_prompt_token_ids_b64"));
}

#[test]
fn usage_is_reduced_to_what_every_worker_takes() {
    let told = |usage: &str| {
        let body = chat_reply().to_string();
        let body = body.replace(&chat_reply()["usage"].to_string(), usage);
        let reply = parse(Endpoint::Chat, &body).unwrap();
        let leg = object(&leg(&chat(), &reply, &worker("1.3.0rc24"), &worker("1.3.0rc24")));
        leg["disaggregated_params"].get("ctx_usage").map(Json::to_string)
    };
    for (usage, expected) in [
        (
            r#"{"prompt_tokens":3,"total_tokens":4,"completion_tokens":1,"prompt_tokens_details":{"cached_tokens":2,"audio_tokens":0},"x":1}"#,
            Some(
                r#"{"completion_tokens":1,"prompt_tokens":3,"prompt_tokens_details":{"cached_tokens":2},"total_tokens":4}"#,
            ),
        ),
        (
            r#"{"prompt_tokens":3,"prompt_tokens_details":{"cached_tokens":null}}"#,
            Some(r#"{"prompt_tokens":3}"#),
        ),
        (
            r#"{"prompt_tokens":3,"prompt_tokens_details":null,"total_tokens":null}"#,
            Some(r#"{"prompt_tokens":3}"#),
        ),
        (
            r#"{"prompt_tokens":0,"prompt_tokens_details":{"cached_tokens":0}}"#,
            Some(r#"{"prompt_tokens":0,"prompt_tokens_details":{"cached_tokens":0}}"#),
        ),
        (
            r#"{"prompt_tokens":3,"completion_tokens":1.5,"total_tokens":true,"prompt_tokens_details":[]}"#,
            Some(r#"{"prompt_tokens":3}"#),
        ),
        (r#"{"prompt_tokens":null,"total_tokens":4}"#, None),
        (r#"{"total_tokens":4}"#, None),
        (r#"{"prompt_tokens":-3}"#, None),
        (r#"{"prompt_tokens":"3"}"#, None),
        (r#"{"prompt_tokens":3.0}"#, None),
        ("null", None),
        ("[]", None),
        ("7", None),
    ] {
        assert_eq!(told(usage).as_deref(), expected, "{usage}");
    }
}

#[test]
fn chat_has_the_ids_beside_its_messages() {
    let leg_for = |reply: &Json, generation: &str| {
        object(&leg(&chat(), &usable(Endpoint::Chat, reply), &worker("1.3.0rc24"), &worker(generation)))
    };
    let plain = leg_for(&chat_reply(), "1.3.0rc24");
    assert_eq!(plain["prompt_token_ids"], json!([1, 2, 3]));
    assert_eq!(plain["messages"], json!([{"role": "user", "content": "hi"}]));
    assert!(!plain.contains_key("prompt_token_ids_b64"));

    let none = leg_for(&without(chat_reply(), "prompt_token_ids"), "1.3.0rc24");
    assert!(!none.contains_key("prompt_token_ids"));

    let mut base64 = chat_reply();
    merge(&mut base64, json!({"prompt_token_ids": null, "prompt_token_ids_b64": "AQAAAA=="}));
    let known = leg_for(&base64, "1.3.0rc24");
    assert_eq!(known["prompt_token_ids_b64"], "AQAAAA==");
    assert!(!known.contains_key("prompt_token_ids"));
    // An older worker tokenises the messages itself.
    assert!(!leg_for(&base64, "1.3.0rc13").contains_key("prompt_token_ids_b64"));
}

#[test]
fn completions_have_the_ids_for_a_prompt() {
    let leg_for = |ids: Json| {
        let mut reply = completions_reply();
        merge(&mut reply, json!({"prompt_token_ids": ids}));
        let reply = usable(Endpoint::Completions, &reply);
        text(&leg(&completions(), &reply, &worker("1.3.0rc24"), &worker("1.3.0rc24")))
    };
    let body = leg_for(json!([1, 2, 3]));
    assert!(
        body.starts_with(r#"{"model":"m","prompt":[1,2,3],"max_tokens":16,"disaggregated_params":{"#),
        "{body}"
    );
    assert!(!body.contains("prompt_token_ids"));
    assert!(leg_for(json!([[1, 2]])).starts_with(r#"{"model":"m","prompt":[[1,2]],"#));
}

#[test]
fn stream_and_everything_else_stay_as_the_client_wrote_them() {
    let client = concat!(
        r#"{ "model":"m","messages":[{"role":"user","content":"\ud83d é"}],"stream": true,"#,
        r#""stream_options":{"include_usage":true},"seed":9007199254740993,"x_big":18446744073709551616,"#,
        r#""tools":[{"type":"function"}],"tool_choice":"auto","vendor_x":{"a":[null,true,{}]},"":"","#,
        r#""min_tokens":8,"max_completion_tokens":64,"stop":["\n\n","é"],"same":1,"same":2"#
    );
    let request = request(Endpoint::Chat, &format!("{client} }}"));
    let leg = text(&leg(
        &request,
        &usable(Endpoint::Chat, &chat_reply()),
        &worker("1.3.0rc24"),
        &worker("1.3.0rc24"),
    ));
    assert!(leg.starts_with(client) && leg.ends_with(" }"), "{leg}");
}

#[test]
fn ids_and_state_are_shared_with_the_reply() {
    let ids: Vec<u32> = (0..10_000).collect();
    let mut reply = with_members(json!({"encoded_opaque_state": "QUJD".repeat(10_000)}));
    merge(&mut reply, json!({"prompt_token_ids": ids}));
    let body = Bytes::from(reply.to_string());
    let within = |part: &Bytes| body.as_ptr_range().contains(&part.as_ptr());
    let reply = ContextReply::parse(Endpoint::Chat, body.clone()).unwrap();
    let leg = leg(&chat(), &reply, &worker("1.3.0rc24"), &worker("1.3.0rc24"));
    let copied: usize = leg.parts().iter().filter(|part| !within(part)).map(Bytes::len).sum();
    assert!(copied < 1024, "{copied} bytes are not the reply's");
    assert!(leg.parts().len() < 16, "{} slices", leg.parts().len());
    assert_eq!(object(&leg)["prompt_token_ids"].as_array().unwrap().len(), 10_000);
}

proptest! {
    #[test]
    fn the_leg_is_the_clients_object_with_the_documented_changes(
        (endpoint, client) in prop_oneof![Just(Endpoint::Chat), Just(Endpoint::Completions)]
            .prop_flat_map(|endpoint| (Just(endpoint), client(endpoint))),
        more in prop::collection::btree_map("x[a-z\"\\\\é]{1,6}", "[\\PC]{0,40}|x{1200}", 0..6),
    ) {
        let chat = endpoint == Endpoint::Chat;
        let mut expected = client;
        let mut reply = if chat { chat_reply() } else { completions_reply() };
        let request = request(endpoint, &Json::Object(expected.clone()).to_string());
        let more = json!(more);
        merge(&mut reply["choices"][0]["disaggregated_params"], more.clone());
        let reply = usable(endpoint, &reply);
        let leg = object(&leg(&request, &reply, &Engine::Unknown, &worker(&newest())));

        expected.insert(if chat { "prompt_token_ids" } else { "prompt" }.into(), json!([1, 2, 3]));
        let mut params = Json::Object(common());
        merge(&mut params, more);
        merge(&mut params, json!({"ctx_usage": leg["disaggregated_params"]["ctx_usage"]}));
        expected.insert("disaggregated_params".into(), params);
        prop_assert_eq!(leg, expected);
    }
}
