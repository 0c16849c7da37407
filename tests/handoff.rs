//! A request that goes well: what the client gets, and what each worker is sent.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod common;

use std::collections::{BTreeMap, BTreeSet};

use common::{Answer, Ask, Client, End, World, chat_body, completions_body, members};
use serde_json::{Value, json};
use trtllm_sim::expected_answer;

/// Bodies of every shape that has an answer of its own, without `stream`.
fn bodies() -> Vec<(&'static str, Value)> {
    let tool = |name: &str| {
        json!({"type": "function", "function": {"name": name, "description": "d", "parameters":
            {"type": "object", "properties": {"text": {"type": "string"}}}}})
    };
    let with = |mut body: Value, extra: Value| {
        body.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        body
    };
    let chat = |extra: Value| {
        with(json!({"model": "sim", "messages": [{"role": "user", "content": "Grüße, 世界 😀"}]}), extra)
    };
    let text = |extra: Value| with(json!({"model": "sim", "prompt": "Once upon a time"}), extra);
    vec![
        ("chat", chat(json!({}))),
        ("chat, one token", chat(json!({"max_tokens": 1}))),
        ("chat, cut", chat(json!({"max_completion_tokens": 5}))),
        ("chat, at least", chat(json!({"min_tokens": 20, "ignore_eos": false}))),
        ("chat, exactly", chat(json!({"max_tokens": 33, "ignore_eos": true}))),
        ("chat, stop text", chat(json!({"stop": ["zzzz", later(&chat(json!({})))]}))),
        ("chat, logprobs", chat(json!({"logprobs": true, "top_logprobs": 2}))),
        (
            "chat, tool called",
            chat(json!({"tools": [tool("a")], "messages": [{"role": "user", "content": "call #tool"}]})),
        ),
        (
            "chat, tool named",
            chat(
                json!({"tools": [tool("a"), tool("b")], "tool_choice": {"type": "function", "function": {"name": "b"}}}),
            ),
        ),
        (
            "chat, tool cut",
            chat(
                json!({"tools": [tool("a")], "max_tokens": 4, "messages": [{"role": "user", "content": "#tool"}]}),
            ),
        ),
        ("chat, no tool", chat(json!({"tools": [tool("a")], "tool_choice": "auto"}))),
        ("chat, reasoning", chat(json!({"chat_template_kwargs": {"enable_thinking": true}}))),
        ("chat, cut in its reasoning", chat(json!({"reasoning_effort": "high", "max_tokens": 3}))),
        (
            "chat, many messages",
            chat(json!({"messages": [
                {"role": "system", "content": "be brief"},
                {"role": "user", "content": [{"type": "text", "text": "in "}, {"type": "text", "text": "parts"}]},
                {"role": "assistant", "content": "yes?"},
                {"role": "user", "content": "a \"quote\", a \\ and a \u{0000}"},
            ]})),
        ),
        ("completions", text(json!({}))),
        ("completions, one token", text(json!({"max_tokens": 1}))),
        ("completions, in a list", text(json!({"prompt": ["in a list"]}))),
        ("completions, token ids", text(json!({"prompt": [5, 6, 7, 8]}))),
        ("completions, nested token ids", text(json!({"prompt": [[5, 6, 7, 8]]}))),
        ("completions, logprobs", text(json!({"logprobs": 1, "max_tokens": 6}))),
        (
            "completions, stop",
            text(json!({"stop": later(&text(json!({}))), "include_stop_str_in_output": true})),
        ),
    ]
}

/// A text that first occurs in the fifth token of the answer.
fn later(body: &Value) -> String {
    trtllm_sim::token_text(expected_answer(body).completion_token_ids[4])[2..].to_owned()
}

#[tokio::test]
async fn every_token_once_and_as_from_one_engine() {
    let world = World::start(&[]).await;
    for (name, mut body) in bodies() {
        for stream in [json!(null), json!(false), json!(true)] {
            for options in [json!(null), json!({"include_usage": true})] {
                if stream != json!(true) && !options.is_null() {
                    continue;
                }
                body["stream"] = stream.clone();
                body["stream_options"] = options.clone();
                let reply = world.exchange(&body).await;
                let what = format!("{name}, stream {stream}, {options}");
                assert_eq!(reply.status, 200, "{what}: {}", reply.text());
                let answer = Answer::of(&reply);
                answer.is(&expected_answer(&body));
                // what the same engine answers when it does all by itself: events, numbers, key order apart
                let alone = Client::http1(world.generation.addr()).await.send(&Ask::of(&body)).await;
                assert_eq!(reply.comparable(), alone.comparable(), "{what}");
                assert_eq!(reply.header("content-type"), alone.header("content-type"), "{what}");
                if stream != json!(true) {
                    let length = reply.body.len().to_string();
                    assert_eq!(reply.header("content-length"), Some(length.as_str()), "{what}");
                }
                assert!(!reply.text().contains("prompt_token_ids"), "{what}: {}", reply.text());
                assert!(!reply.text().contains("encoded_opaque_state"), "{what}: {}", reply.text());
                // usage is the context worker's, whose cached tokens are a quarter of the prompt
                if !answer.usage.is_null() {
                    let prompt = expected_answer(&body).prompt_token_ids.len();
                    assert_eq!(answer.usage["prompt_tokens"], prompt, "{what}");
                    assert_eq!(answer.usage["prompt_tokens_details"]["cached_tokens"], prompt / 4, "{what}");
                } else {
                    assert!(stream == json!(true) && options.is_null(), "{what}: no usage");
                }
            }
        }
    }
    let (context, generation) = (world.context.state(), world.generation.state());
    assert_eq!(context.context_requests, generation.generation_requests);
    assert_eq!((context.rejections, generation.rejections), (vec![], vec![]));
    assert_eq!(generation.fetched, context.pulls);
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn parallel_requests_have_ids_of_their_own() {
    parallel(200, &[]).await;
    parallel(50, &["--node-id", "3", "--process-id", "5"]).await;
    parallel(50, &["--machine-id", "197"]).await;
}

async fn parallel(requests: usize, identity: &[&str]) {
    let world = World::start(identity).await;
    let asked = (0..requests).map(|number| {
        let text = format!("request number {number}");
        let body = match number % 4 {
            0 | 1 => chat_body(&text, number % 2 == 0),
            _ => completions_body(&text, number % 2 == 0),
        };
        let ask = world.ask(&body).header("x-request-id", "same");
        let data = world.data;
        tokio::spawn(async move {
            let reply = Client::http1(data).await.send(&ask).await;
            Answer::of(&reply).is(&expected_answer(&body));
        })
    });
    for asked in asked.collect::<Vec<_>>() {
        asked.await.unwrap();
    }
    let prompt = |request: &trtllm_sim::SeenRequest| {
        let body = request.json().unwrap();
        // on the generation leg of a completions request the prompt is token ids
        let said = body["messages"][0]["content"].as_str().or(body["prompt"].as_str());
        said.map_or_else(|| body["prompt"].to_string(), str::to_owned)
    };
    let mut ids = BTreeSet::new();
    let mut by_prompt = BTreeMap::new();
    for leg in world.context_legs() {
        let params = members(&leg.body)["disaggregated_params"].clone();
        let id = members(params.as_bytes())["disagg_request_id"].clone();
        let number: i64 = id.parse().expect("an integer in plain digits");
        assert!((1 << 42..i64::MAX).contains(&number), "{number}");
        if !identity.is_empty() {
            assert_eq!((number >> 16 & 0xff, number >> 10 & 0x3f), (3, 5), "{number:#x}");
        }
        assert!(ids.insert(id.clone()), "{id} twice");
        let mut key = prompt(&leg);
        if leg.path == "/v1/completions" {
            key = json!(trtllm_sim::prompt_tokens(&key)).to_string();
        }
        by_prompt.insert(key, id);
    }
    assert_eq!(ids.len(), requests);
    let legs = world.generation_legs();
    assert_eq!(legs.len(), requests);
    for leg in legs {
        let params = members(&leg.body)["disaggregated_params"].clone();
        let id = &members(params.as_bytes())["disagg_request_id"];
        assert_eq!(by_prompt.remove(&prompt(&leg)).as_ref(), Some(id), "the same id on both legs");
    }
    assert!(by_prompt.is_empty());
    world.finish().await;
}

/// A body in which everything would change that is read and written again.
const ODD_CHAT: &str = r#" {"model" : "sim","seed":9007199254740993 ,"temperature":0.70000000000000000001,
 "messages":[{"role":"user","content":"a\/b \ud83d\ude00 \u00e9","x_member":18446744073709551616}],
 "chat_template_kwargs":{"x_big":18446744073709551616,"x_neg":-9223372036854775809,"x_e":1E+2,"":null,"deep":[[[{}]]]},
 "logit_bias":{"5":-100},"stop":["\n\n","\u00e9"],"top_k":5,"min_tokens":2,"max_completion_tokens":7,"top_p":1.0,
 "stream":true,"stream_options":{"include_usage":true},"user":"u","response_format":{"type":"json_schema","json_schema":{"name":"s","schema":{"minimum":1.50}}}} "#;

#[tokio::test]
async fn the_legs_are_the_clients_request_with_what_the_handoff_adds() {
    let world = World::start(&[]).await;
    let reply = world.send(&world.post("/v1/chat/completions?api-version=1", ODD_CHAT)).await;
    assert_eq!(reply.status, 200, "{}", reply.text());
    let (context, generation) = (&world.context_legs()[0], &world.generation_legs()[0]);
    for leg in [context, generation] {
        assert_eq!((leg.method.as_str(), leg.path.as_str()), ("POST", "/v1/chat/completions?api-version=1"));
        assert_eq!(leg.header("content-type"), Some("application/json"));
    }
    let sent = members(ODD_CHAT.as_bytes());

    let mut seen = members(&context.body);
    let params = members(seen.remove("disaggregated_params").unwrap().as_bytes());
    let id = params["disagg_request_id"].clone();
    let expected =
        [("request_type", "\"context_only\""), ("disagg_request_id", id.as_str()), ("schedule_style", "0")];
    assert_eq!(params, BTreeMap::from(expected.map(|(key, value)| (key.to_owned(), value.to_owned()))));
    assert_eq!(seen.insert("stream".into(), "true".into()).as_deref(), Some("false"));
    assert_eq!(seen.insert("stream_options".into(), sent["stream_options"].clone()), None);
    assert_eq!(seen, sent, "all else as the client wrote it");

    let mut seen = members(&generation.body);
    let params = members(seen.remove("disaggregated_params").unwrap().as_bytes());
    let ids = expected_answer(&serde_json::from_str(ODD_CHAT).unwrap()).prompt_token_ids;
    assert_eq!(seen.remove("prompt_token_ids"), Some(json!(ids).to_string()));
    assert_eq!(seen, sent, "all else as the client wrote it");
    assert_eq!(params["request_type"], "\"generation_only\"");
    assert_eq!(params["disagg_request_id"], id);
    assert_eq!(params["ctx_request_id"], id);
    assert_eq!(params["schedule_style"], "0");
    let usage: Value = serde_json::from_str(&params["ctx_usage"]).unwrap();
    assert_eq!(
        usage,
        json!({"prompt_tokens": ids.len(), "total_tokens": ids.len() + 1, "completion_tokens": 1,
            "prompt_tokens_details": {"cached_tokens": ids.len() / 4}})
    );
    let keys: Vec<_> = params.keys().map(String::as_str).collect();
    assert_eq!(
        keys,
        [
            "ctx_dp_rank",
            "ctx_info_endpoint",
            "ctx_request_id",
            "ctx_usage",
            "disagg_request_id",
            "encoded_opaque_state",
            "first_gen_tokens",
            "request_type",
            "schedule_style"
        ],
        "no member that is null or a default"
    );
    world.finish().await;
}

#[tokio::test]
async fn a_completions_generation_leg_has_the_token_ids_for_a_prompt() {
    let world = World::start(&[]).await;
    for (prompt, sent) in [
        (json!("some text"), json!(trtllm_sim::prompt_tokens("some text"))),
        (json!(["some text"]), json!(trtllm_sim::prompt_tokens("some text"))),
        (json!([5, 6]), json!([5, 6])),
    ] {
        world.forget();
        let body = json!({"model": "sim", "prompt": prompt, "seed": 3});
        Answer::of(&world.exchange(&body).await).is(&expected_answer(&body));
        let (context, generation) = (world.context_legs(), world.generation_legs());
        assert_eq!(context[0].json().unwrap()["prompt"], prompt);
        let generation = members(&generation[0].body);
        let got: Value = serde_json::from_str(&generation["prompt"]).unwrap();
        assert!(got == sent || got == json!([sent]), "{got}");
        assert!(!generation.contains_key("prompt_token_ids") && !generation.contains_key("max_tokens"));
        assert!(!generation.contains_key("stream"), "nothing that the client did not say");
    }
    world.finish().await;
}

#[tokio::test]
async fn what_the_context_reply_hands_over_keeps_its_digits() {
    let world =
        World::of(|context| context.release("9.9.9"), |generation| generation.release("9.9.9"), &[]).await;
    let set = json!({"on": "context", "set": {
        "/choices/0/disaggregated_params/ctx_dp_rank": 7,
        "/choices/0/disaggregated_params/draft_tokens": [5, 6],
        "/choices/0/disaggregated_params/first_gen_log_probs": [-0.1],
    }});
    let mut body = chat_body("digits", false);
    body["logprobs"] = json!(true);
    let reply = world.send(&world.ask(&body).fault(&set)).await;
    let answer = Answer::of(&reply);
    answer.is(&expected_answer(&body));
    let params = members(members(&world.generation_legs()[0].body)["disaggregated_params"].as_bytes());
    assert_eq!((params["ctx_dp_rank"].as_str(), params["draft_tokens"].as_str()), ("7", "[5,6]"));
    assert!(params["first_gen_log_probs"].starts_with("[-0.1"), "{}", params["first_gen_log_probs"]);
    assert_eq!(answer.logprobs.len(), 12);
    assert_eq!(answer.logprobs[0]["logprob"], -0.1);
    world.finish().await;
}

#[tokio::test]
async fn an_id_that_the_context_worker_changed_is_the_one_that_is_used() {
    let world = World::alone(|context| context, |generation| generation, &[]).await;
    let before = world.metrics().await;
    let id = 9_007_199_254_740_993_i64; // no float holds it
    let body = chat_body("another id", true);
    let ask = world.ask(&body).fault(&json!({"on": "context", "register_id": id}));
    Answer::of(&world.send(&ask).await).is(&expected_answer(&body));
    assert_eq!(world.generation_legs()[0].disagg_request_id(), Some(id));
    assert_ne!(world.context_legs()[0].disagg_request_id(), Some(id));
    assert_eq!(world.idle().await.since(&before)["disagg_id_mismatches_total"], 1.0);
    world.finish().await;
}

#[tokio::test]
async fn prompt_ids_that_a_chat_reply_lacks_are_made_again() {
    let world = World::start(&[]).await;
    for fault in [json!({"remove": ["/prompt_token_ids"]}), json!({"set": {"/prompt_token_ids": null}})] {
        let mut fault = fault;
        fault["on"] = json!("context");
        let body = chat_body("no ids", true);
        Answer::of(&world.send(&world.ask(&body).fault(&fault)).await).is(&expected_answer(&body));
        assert!(world.generation_legs().last().unwrap().json().unwrap().get("prompt_token_ids").is_none());
    }
    world.finish().await;
}

#[tokio::test]
async fn a_long_prompt_and_a_large_state() {
    let world = World::of(|context| context.opaque_bytes(300 << 10), |generation| generation, &[]).await;
    let ids: Vec<i64> = (0..200_000).map(|n| 1 + n % 30_000).collect();
    for (length, body) in [
        (800_000, chat_body(&"word".repeat(200_000), true)),
        (ids.len(), json!({"model": "sim", "prompt": ids, "max_tokens": 3})),
    ] {
        let reply = world.exchange(&body).await;
        Answer::of(&reply).is(&expected_answer(&body));
        assert!(world.generation_legs().last().unwrap().body.len() > length);
    }
    world.finish().await;
}

#[tokio::test]
async fn events_come_when_they_are_made() {
    let world = World::of(|context| context, |generation| generation, &[]).await;
    // the engine goes silent after two tokens: what it said before must have arrived by then
    let fault = json!({"on": "generation", "hang": {"after_tokens": 2}});
    let mut raw = common::Raw::asking(world.data, &world.ask(&chat_body("events", true)).fault(&fault)).await;
    let (status, headers) = raw.head().await;
    assert_eq!(status, 200);
    assert!(!headers.contains_key("content-length"));
    let expected = expected_answer(&chat_body("events", true));
    let second = trtllm_sim::token_text(expected.completion_token_ids[1]);
    raw.until(&second).await;
    drop(raw);
    world.finish().await;
}

#[tokio::test]
async fn the_head_comes_before_the_first_event() {
    let world = World::start(&[]).await;
    let fault = json!({"on": "generation", "before_first_token_ms": 600_000});
    let mut raw = common::Raw::asking(world.data, &world.ask(&chat_body("head", true)).fault(&fault)).await;
    assert_eq!(raw.head().await.0, 200);
    drop(raw);
    // nothing of the body has come, so this is settled, and not to be waited for
    let World { running, context, .. } = world;
    assert_eq!(context.state().kv_held, 0);
    running.abort();
}

#[tokio::test]
async fn a_slow_reader_slows_the_worker_down() {
    let world = World::of(|context| context, |generation| generation.tokens(1_000_000), &[]).await;
    let body = json!({"model": "sim", "prompt": "endless", "stream": true});
    let mut slow = common::Raw::asking(world.data, &world.ask(&body)).await;
    assert_eq!(slow.head().await.0, 200);
    // the worker stops writing once what is between it and the client is full
    let mut last = (0, std::time::Instant::now());
    common::eventually("the worker is held up", || {
        let bytes = world.generation.state().body_bytes;
        if bytes != last.0 {
            last = (bytes, std::time::Instant::now());
        }
        bytes > 0 && last.1.elapsed() > std::time::Duration::from_millis(300)
    })
    .await;
    assert!(last.0 < 24 << 20, "{} bytes were taken from the worker", last.0);
    assert_eq!(world.generation.state().open_requests, 1);
    let other = chat_body("others are not held up", false);
    let reply = world.exchange(&other).await;
    assert_eq!((reply.end, reply.status.as_u16()), (End::Complete, 200));
    drop(slow);
    world.finish().await;
}
