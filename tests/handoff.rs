//! A request that goes well: what the client gets, and when. What each worker is sent is in `cases.rs` and `legs.rs`.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod common;

use common::{Answer, Ask, Client, End, World, chat_body, completions_body};
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

#[tokio::test]
async fn events_come_when_they_are_made() {
    let world = World::start(&[]).await;
    // the engine goes silent after two tokens: what it said before must have arrived by then
    let fault = json!({"on": "generation", "hang": {"after_tokens": 2}});
    for body in [chat_body("events", true), completions_body("events", true)] {
        let mut raw = common::Raw::asking(world.data, &world.ask(&body).fault(&fault)).await;
        let (status, headers) = raw.head().await;
        assert_eq!(status, 200);
        assert!(!headers.contains_key("content-length"));
        raw.until(&trtllm_sim::token_text(expected_answer(&body).completion_token_ids[1])).await;
    }
    world.finish().await;
}

#[tokio::test]
async fn the_head_comes_before_the_first_event() {
    let world = World::start(&[]).await;
    let fault = json!({"on": "generation", "before_first_token_ms": 600_000});
    for body in [chat_body("head", true), completions_body("head", true)] {
        let mut raw = common::Raw::asking(world.data, &world.ask(&body).fault(&fault)).await;
        assert_eq!(raw.head().await.0, 200);
    }
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
