//! Requests that the context step has finished: there is an answer, and no generation leg.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod common;

use common::{Answer, Ask, Client, World, chat_body, completions_body};
use serde_json::{Value, json};
use trtllm_sim::{Engine, Role, expected_answer_of};

fn with(mut body: Value, extra: Value) -> Value {
    body.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
    body
}

fn bodies() -> Vec<Value> {
    let tools = json!([{"type": "function", "function": {"name": "look"}}]);
    let said = |text: &str, extra| {
        with(json!({"model": "sim", "messages": [{"role": "user", "content": text}]}), extra)
    };
    vec![
        said("one word", json!({})),
        said("one word", json!({"logprobs": true, "top_logprobs": 1})),
        said("use the #tool", json!({"tools": tools})),
        said("think", json!({"chat_template_kwargs": {"enable_thinking": true}})),
        json!({"model": "sim", "prompt": "one word"}),
        json!({"model": "sim", "prompt": "one word", "logprobs": 1}),
        json!({"model": "sim", "prompt": [[7, 8, 9]]}),
    ]
}

/// Engines whose answers have one token, so that every context step ends its request.
async fn short() -> World {
    World::of(|context| context.tokens(1), |generation| generation.tokens(1), &[]).await
}

#[tokio::test]
async fn the_answer_is_what_one_engine_would_have_said() {
    let world = short().await;
    // reasoning is the first half of an answer, so of two tokens the first is all of it
    let alone = Engine::start(trtllm_sim::Config::new(Role::Both).tokens(1)).await.unwrap();
    for body in bodies() {
        for (stream, options) in [
            (false, json!(null)),
            (true, json!(null)),
            (true, json!({"include_usage": true})),
            (true, json!({"include_usage": false})),
        ] {
            world.forget();
            let body = with(body.clone(), json!({"stream": stream, "stream_options": options}));
            let reply = world.exchange(&body).await;
            let answer = Answer::of(&reply);
            answer.is(&expected_answer_of(&body, 1));
            assert!(!(answer.text.is_empty() && answer.reasoning.is_empty() && answer.tool_calls.is_empty()));
            let direct = Client::http1(alone.addr()).await.send(&Ask::of(&body)).await;
            let direct_answer = Answer::of(&direct);
            // an event may be cut differently; what they come to is the same
            assert_eq!(
                Answer { chunks: 0, ..answer.clone() },
                Answer { chunks: 0, ..direct_answer },
                "{body}"
            );
            assert_eq!(reply.header("content-type"), direct.header("content-type"));
            if !stream {
                assert_eq!(reply.comparable(), direct.comparable());
            }
            assert_eq!(answer.usage.is_null(), stream && options != json!({"include_usage": true}));
            for internal in ["disaggregated_params", "prompt_token_ids"] {
                assert!(!reply.text().contains(internal), "{}", reply.text());
            }
            assert_eq!(world.called(), (1, 0), "{body}");
        }
    }
    let context = world.context.state();
    assert_eq!((context.terminal, context.pulls), (context.context_requests, 0));
    world.finish().await;
}

#[tokio::test]
async fn an_end_at_once_is_an_empty_answer() {
    let world = World::of(|context| context.eos_in_context(true), |generation| generation, &[]).await;
    for mut body in [chat_body("say nothing", true), completions_body("say nothing", true)] {
        for stream in [true, false] {
            body["stream"] = json!(stream);
            for two in [true, false] {
                let mut client =
                    if two { Client::http2(world.data).await } else { Client::http1(world.data).await };
                let answer = Answer::of(&client.send(&world.ask(&body)).await);
                assert_eq!((answer.text.as_str(), answer.finish.as_str(), answer.done), ("", "stop", true));
                // the connection serves on
                assert_eq!(client.send(&Ask::get("/health")).await.status, 200);
            }
        }
    }
    assert_eq!(world.called(), (8, 0));
    world.finish().await;
}

#[tokio::test]
async fn a_stop_that_the_client_named() {
    let world = World::start(&[]).await;
    for mut body in [chat_body("stop", true), completions_body("stop", true)] {
        let first = trtllm_sim::expected_answer(&body).completion_token_ids[0];
        let word = trtllm_sim::token_text(first);
        for stop in [json!({"stop_token_ids": [first]}), json!({"stop": [word[2..]]})] {
            for stream in [true, false] {
                body["stream"] = json!(stream);
                let body = with(body.clone(), stop.clone());
                let answer = Answer::of(&world.exchange(&body).await);
                let expected = trtllm_sim::expected_answer(&body);
                answer.is(&expected);
                let reason =
                    answer.stop_reason.as_str().map_or_else(|| answer.stop_reason.to_string(), str::to_owned);
                assert_eq!(Some(reason), expected.stop_reason);
            }
        }
    }
    assert_eq!(world.generation_legs().len(), 0);
    world.finish().await;
}

#[tokio::test]
async fn the_finish_reason_decides_whatever_else_there_is() {
    let world = World::start(&[]).await;
    for reason in ["stop", "tool_calls", "content_filter"] {
        for stream in [true, false] {
            let body = chat_body("finished", stream);
            for remove in [vec![], vec!["/choices/0/disaggregated_params"], vec!["/prompt_token_ids"]] {
                let fault =
                    json!({"on": "context", "set": {"/choices/0/finish_reason": reason}, "remove": remove});
                let answer = Answer::of(&world.send(&world.ask(&body).fault(&fault)).await);
                assert_eq!((answer.finish.as_str(), answer.done), (reason, true));
            }
        }
    }
    assert_eq!(world.generation_legs().len(), 0);
    world.finish_with_orphans().await; // by the worker's fault: it held KV for what it had finished
}
