//! From the context engine to the generation engine, over real sockets.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod support;

use serde_json::{Value, json};
use std::time::{Duration, Instant};
use support::*;
use trtllm_sim::{Config, Engine, Expected, Generation, Role, expected_answer};

const ID: i64 = (1 << 62) + 12_345;

async fn pair(context: Generation, generation: Generation) -> (Engine, Engine) {
    let start =
        |role, generation: Generation| Engine::start(Config::new(role).release(generation.sample_release()));
    (start(Role::Context, context).await.unwrap(), start(Role::Generation, generation).await.unwrap())
}

/// What a sidecar must not send to a generation worker of this generation.
fn unknown_to(generation: Generation) -> Vec<&'static str> {
    let mut drop = Vec::new();
    if generation < Generation::G2Early {
        drop.extend(["first_gen_log_probs", "first_gen_logits"]);
    }
    if generation < Generation::G2Late {
        drop.push("ctx_usage");
    }
    if generation < Generation::G4 {
        drop.push("resolved_thinking");
    }
    if !(Generation::G2Early..=Generation::G3).contains(&generation) {
        drop.push("conversation_id");
    }
    drop
}

async fn hand_over(
    context: &Engine,
    generation: &Engine,
    path: &str,
    client: &Value,
    id: i64,
    drop: &[&str],
) -> Reply {
    let reply = post(context, path, &context_leg(client, id)).await;
    assert_eq!(reply.status, 200, "{}", reply.text());
    assert_eq!(context.state().kv_ids, [id]);
    let leg = generation_leg(client, &reply.json(), drop);
    let answer = post(generation, path, &leg).await;
    assert_eq!(answer.status, 200, "{leg}: {}", answer.text());
    assert_eq!(context.state().kv_held, 0);
    answer
}

fn check(answer: &Reply, expected: &Expected) {
    assert!(answer.complete);
    let whole = answer.json();
    let choice = &whole["choices"][0];
    let text = choice["message"]["content"].as_str().or(choice["text"].as_str());
    assert_eq!(text, Some(expected.text.as_str()));
    assert_eq!(choice["finish_reason"], json!(expected.finish_reason));
    assert_eq!(whole["usage"]["completion_tokens"], json!(expected.completion_tokens));
}

#[tokio::test]
async fn every_pair_of_generations_hands_over() {
    let mut id = ID;
    for context_generation in &Generation::ALL[1..] {
        for generation in &Generation::ALL[1..] {
            let (context, worker) = pair(*context_generation, *generation).await;
            let drop = unknown_to(*generation);
            for (path, client) in [(CHAT, chat()), (COMPLETIONS, completion())] {
                id += 1;
                let answer = hand_over(&context, &worker, path, &client, id, &drop).await;
                check(&answer, &expected_answer(&client));
                id += 1;
                let streaming =
                    with(client.clone(), json!({"stream": true, "stream_options": {"include_usage": true}}));
                let answer = hand_over(&context, &worker, path, &streaming, id, &drop).await;
                let expected = expected_answer(&client);
                assert!(answer.complete);
                assert_eq!(answer.streamed(), expected.text);
                assert_eq!(answer.events().last().map(String::as_str), Some("[DONE]"));
                let usage = &answer.chunks_json().pop().unwrap()["usage"];
                let prompt = expected.prompt_token_ids.len();
                let cached = if drop.contains(&"ctx_usage") { prompt } else { prompt / 4 };
                assert_eq!(usage["prompt_tokens"], json!(prompt));
                assert_eq!(usage["prompt_tokens_details"]["cached_tokens"], json!(cached));
            }
            let state = context.state();
            assert_eq!((state.pulls, state.failed_pulls, state.aborts), (4, 0, 0));
            assert_eq!(worker.state().fetched, 4);
        }
    }
}

#[tokio::test]
async fn a_member_the_worker_does_not_know_orphans_the_kv() {
    let (context, worker) = pair(Generation::G4, Generation::G3).await;
    let reply = post(&context, CHAT, &context_leg(&chat(), ID)).await.json();
    let mut leg = generation_leg(&chat(), &reply, &[]);
    leg["disaggregated_params"]["resolved_thinking"] = json!(null);
    let refused = post(&worker, CHAT, &leg).await;
    assert_eq!(refused.status, 400);
    assert!(refused.json()["error"].as_str().unwrap().contains("resolved_thinking"));
    assert_eq!(context.state().kv_held, 1);
    assert_eq!(worker.state().rejections.len(), 1);
}

#[tokio::test]
async fn the_first_token_is_replayed() {
    let (context, worker) = pair(Generation::G3, Generation::G3).await;
    let client = with(chat(), json!({"max_tokens": 3}));
    let reply = post(&context, CHAT, &context_leg(&client, ID)).await.json();
    let expected = expected_answer(&client);
    let params = &reply["choices"][0]["disaggregated_params"];
    assert_eq!(params["first_gen_tokens"], json!([expected.completion_token_ids[0]]));
    assert_eq!(reply["choices"][0]["finish_reason"], "length");
    assert_eq!(reply["prompt_token_ids"], json!(expected.prompt_token_ids));
    let mut leg = generation_leg(&client, &reply, &[]);
    leg["disaggregated_params"]["first_gen_tokens"] = json!([4321]);
    let answer = post(&worker, CHAT, &leg).await.json();
    let text = answer["choices"][0]["message"]["content"].as_str().unwrap();
    let first = trtllm_sim::token_text(expected.completion_token_ids[0]);
    assert_eq!(text, format!("<4321>{}", &expected.text[first.len()..]));
}

#[tokio::test]
async fn one_token_still_needs_the_generation_leg() {
    let (context, worker) = pair(Generation::G3, Generation::G3).await;
    let client = with(chat(), json!({"max_tokens": 1, "stream": true}));
    let answer = hand_over(&context, &worker, CHAT, &client, ID, &[]).await;
    assert_eq!(answer.streamed(), expected_answer(&client).text);
    let chunks = answer.chunks_json();
    assert_eq!(chunks[1]["choices"][0]["finish_reason"], "length");
}

#[tokio::test]
async fn wrong_legs_fail_and_leave_the_kv() {
    let (context, worker) = pair(Generation::G3, Generation::G3).await;
    let reply = post(&context, CHAT, &context_leg(&chat(), ID)).await.json();
    let good = generation_leg(&chat(), &reply, &[]);
    let edits: [(&str, Value); 10] = [
        ("/disaggregated_params/disagg_request_id", json!(ID + 1)),
        ("/disaggregated_params/disagg_request_id", Value::Null),
        ("/disaggregated_params/ctx_request_id", json!(7)),
        ("/disaggregated_params/ctx_request_id", Value::Null),
        ("/disaggregated_params/encoded_opaque_state", json!("AAEC")),
        ("/disaggregated_params/encoded_opaque_state", Value::Null),
        ("/disaggregated_params/ctx_info_endpoint", json!("tcp://127.0.0.1:1")),
        ("/disaggregated_params/ctx_info_endpoint", json!("tcp://192.0.2.1:80")),
        ("/disaggregated_params/first_gen_tokens", json!([])),
        ("/prompt_token_ids", json!([1, 2, 3])),
    ];
    for (pointer, value) in edits {
        for stream in [false, true] {
            let mut leg = good.clone();
            *leg.pointer_mut(pointer).unwrap() = value.clone();
            leg["stream"] = json!(stream);
            let failed = post(&worker, CHAT, &leg).await;
            assert_eq!(failed.status, 400, "{pointer} {value}: {}", failed.text());
            assert_eq!(failed.json()["type"], "BadRequestError", "{pointer} {value}");
            assert_eq!(context.state().kv_held, 1);
        }
    }
    assert_eq!(post(&worker, CHAT, &good).await.status, 200);
    // It is gone now, so the same leg fails.
    assert_eq!(post(&worker, CHAT, &good).await.status, 400);
    let state = context.state();
    assert_eq!((state.pulls, state.kv_held), (1, 0));
}

#[tokio::test]
async fn state_or_endpoint_alone_is_enough() {
    for (opaque, endpoint) in [(true, false), (false, true)] {
        let config =
            Config::new(Role::Context).opaque_state(opaque).info_endpoint(endpoint).opaque_bytes(300 << 10);
        let context = Engine::start(config).await.unwrap();
        let worker = Engine::start(Config::new(Role::Generation)).await.unwrap();
        let answer = hand_over(&context, &worker, CHAT, &chat(), ID, &[]).await;
        check(&answer, &expected_answer(&chat()));
    }
}

#[tokio::test]
async fn the_oldest_workers_know_only_the_context_id() {
    let (context, worker) = pair(Generation::G0, Generation::G0).await;
    let client = chat();
    let leg = with(client.clone(), json!({"disaggregated_params": {"request_type": "context_only"}}));
    let reply = post(&context, CHAT, &leg).await.json();
    let mut leg = generation_leg(&client, &reply, &["ctx_usage"]);
    leg["disaggregated_params"].as_object_mut().unwrap().remove("schedule_style");
    let answer = post(&worker, CHAT, &leg).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    check(&answer, &expected_answer(&client));
}

#[tokio::test]
async fn an_id_registered_twice_is_loud() {
    let (context, _) = pair(Generation::G3, Generation::G3).await;
    let leg = context_leg(&chat(), ID);
    assert_eq!(post(&context, CHAT, &leg).await.status, 200);
    let again = post(&context, CHAT, &leg).await;
    assert_eq!(again.status, 400);
    let state = context.state();
    assert_eq!((state.duplicate_ids, state.kv_held), (1, 1));
}

#[tokio::test]
async fn kv_that_nobody_fetches_times_out() {
    let config = Config::new(Role::Context).transfer_timeout(Duration::from_millis(60));
    let context = Engine::start(config).await.unwrap();
    assert_eq!(post(&context, CHAT, &context_leg(&chat(), ID)).await.status, 200);
    assert_eq!(context.state().kv_held, 1);
    let state = until(&context, "expiry", |state| state.expired == 1).await;
    assert_eq!(state.kv_held, 0);
    // The id is free again.
    assert_eq!(post(&context, CHAT, &context_leg(&chat(), ID)).await.status, 200);
}

#[tokio::test]
async fn leaving_before_the_context_reply_aborts_it() {
    let config = Config::new(Role::Context).prefill_per_token(Duration::from_secs(5));
    let context = Engine::start(config).await.unwrap();
    let body = context_leg(&chat(), ID).to_string();
    let stream = leave_after(&context, &body, |state| state.open_requests == 1).await;
    let left = Instant::now();
    drop(stream);
    let state = until(&context, "abort", |state| state.aborts == 1).await;
    assert!(left.elapsed() < Duration::from_secs(1));
    assert_eq!((state.kv_held, state.open_requests), (0, 0));
    assert_eq!(state.requests[0].disagg_request_id(), Some(ID));
    // What was registered is gone too: the id can be used again.
    let stream = leave_after(&context, &body, |state| state.context_requests == 2).await;
    assert_eq!(context.state().duplicate_ids, 0);
    drop(stream);
    until(&context, "abort", |state| state.aborts == 2).await;
}

/// Sends a chat request and waits for a state of the engine; dropping what it
/// returns is the client leaving.
async fn leave_after(
    engine: &Engine,
    body: &str,
    wanted: impl Fn(&trtllm_sim::State) -> bool,
) -> tokio::net::TcpStream {
    use tokio::io::AsyncWriteExt as _;
    let mut stream = tokio::net::TcpStream::connect(engine.addr()).await.unwrap();
    let bytes = request("POST", CHAT, &[JSON], body.as_bytes());
    stream.write_all(&bytes).await.unwrap();
    until(engine, "the request to arrive", wanted).await;
    stream
}

#[tokio::test]
async fn leaving_during_the_transfer_strands_the_kv() {
    let slow = Duration::from_secs(8);
    let config = Config::new(Role::Context).kv_transfer(slow);
    let context = Engine::start(config.transfer_timeout(Duration::from_millis(900))).await.unwrap();
    let config = Config::new(Role::Generation).kv_transfer(slow);
    let worker = Engine::start(config).await.unwrap();
    let reply = post(&context, CHAT, &context_leg(&chat(), ID)).await.json();
    let leg = generation_leg(&chat(), &reply, &[]).to_string();
    let stream = leave_after(&worker, &leg, |state| state.open_requests == 1).await;
    tokio::time::sleep(Duration::from_millis(50)).await;
    drop(stream);
    until(&worker, "abort", |state| state.transfer_aborts == 1).await;
    let state = until(&context, "stranding", |state| state.stranded == 1).await;
    assert_eq!((state.kv_held, state.pulls), (1, 0));
    until(&context, "expiry", |state| state.expired == 1).await;
}

#[tokio::test]
async fn leaving_later_aborts_generation_cleanly() {
    let config = Config::new(Role::Generation).token_gap(Duration::from_secs(5));
    let worker = Engine::start(config).await.unwrap();
    let body = with(chat(), json!({"stream": true})).to_string();
    let stream = leave_after(&worker, &body, |state| state.body_bytes > 0).await;
    drop(stream);
    let state = until(&worker, "abort", |state| state.generation_aborts == 1).await;
    assert_eq!((state.transfer_aborts, state.aborts), (0, 0));
    until(&worker, "end", |state| state.open_requests == 0).await;
}

#[tokio::test]
async fn terminal_context_steps_hold_nothing() {
    let (context, worker) = pair(Generation::G3, Generation::G3).await;
    for client in [
        with(chat(), json!({"stop_token_ids": [expected_answer(&chat()).completion_token_ids[0]]})),
        with(
            chat(),
            json!({"stop": [trtllm_sim::token_text(expected_answer(&chat()).completion_token_ids[0])]}),
        ),
    ] {
        let reply = post(&context, CHAT, &context_leg(&client, ID)).await.json();
        let choice = &reply["choices"][0];
        assert_eq!(choice["finish_reason"], "stop");
        assert_eq!(choice["disaggregated_params"]["ctx_request_id"], Value::Null);
        assert_eq!(context.state().kv_held, 0);
        // A generation leg after it must fail.
        let leg = generation_leg(&client, &reply, &[]);
        assert_eq!(post(&worker, CHAT, &leg).await.status, 400);
    }
    assert_eq!(context.state().terminal, 2);
    let eos = Engine::start(Config::new(Role::Context).eos_in_context(true)).await.unwrap();
    let reply = post(&eos, CHAT, &context_leg(&chat(), ID)).await.json();
    assert_eq!(reply["choices"][0]["message"]["content"], "");
    assert_eq!(reply["choices"][0]["finish_reason"], "stop");
}

#[tokio::test]
async fn a_context_step_can_be_the_whole_answer() {
    let context = Engine::start(Config::new(Role::Context).whole_in_context(true)).await.unwrap();
    let alone = Engine::start(Config::new(Role::Both)).await.unwrap();
    for client in [chat(), with(chat(), json!({"reasoning_effort": "high", "logprobs": true}))] {
        let reply = post(&context, CHAT, &context_leg(&client, ID)).await.json();
        let expected = post(&alone, CHAT, &client).await.json();
        for path in ["/choices/0/message", "/choices/0/logprobs", "/choices/0/finish_reason", "/usage"] {
            assert_eq!(reply.pointer(path), expected.pointer(path), "{path}");
        }
        assert_eq!(reply["choices"][0]["disaggregated_params"]["ctx_request_id"], json!(null));
    }
    assert_eq!((context.state().terminal, context.state().kv_held), (2, 0));
    // Where a limit cuts the answer it is a step like any other.
    let cut = with(chat(), json!({"max_tokens": 4}));
    let reply = post(&context, CHAT, &context_leg(&cut, ID)).await.json();
    assert_eq!(reply["choices"][0]["finish_reason"], "length");
    assert_eq!(reply["usage"]["completion_tokens"], 1);
    assert_eq!((context.state().terminal, context.state().kv_held), (2, 1));
}

#[tokio::test]
async fn logprobs_of_the_first_token_are_handed_over() {
    let (context, worker) = pair(Generation::G3, Generation::G3).await;
    let client = with(chat(), json!({"logprobs": true, "top_logprobs": 2}));
    let both = Engine::start(Config::new(Role::Both)).await.unwrap();
    let alone = post(&both, CHAT, &client).await.json();
    let answer = hand_over(&context, &worker, CHAT, &client, ID, &[]).await.json();
    let path = "/choices/0/logprobs/content";
    assert_eq!(answer.pointer(path), alone.pointer(path));
    let without = ["first_gen_log_probs"];
    let answer = hand_over(&context, &worker, CHAT, &client, ID, &without).await.json();
    let count = |v: &Value| v.pointer(path).unwrap().as_array().unwrap().len();
    assert_eq!(count(&answer) + 1, count(&alone));
}

#[tokio::test]
async fn ids_travel_as_a_buffer_when_asked() {
    let (context, worker) = pair(Generation::G3, Generation::G3).await;
    let mut leg = context_leg(&chat(), ID);
    leg["disaggregated_params"]["return_prompt_token_ids_b64"] = json!(true);
    let reply = post(&context, CHAT, &leg).await.json();
    assert_eq!(reply["prompt_token_ids"], Value::Null);
    let mut leg = generation_leg(&chat(), &reply, &["return_prompt_token_ids_b64"]);
    leg.as_object_mut().unwrap().remove("prompt_token_ids");
    leg["prompt_token_ids_b64"] = reply["prompt_token_ids_b64"].clone();
    let answer = post(&worker, CHAT, &leg).await;
    check(&answer, &expected_answer(&chat()));
}

#[tokio::test]
async fn a_context_step_that_streams_loses_its_handoff() {
    let (context, _) = pair(Generation::G3, Generation::G3).await;
    let leg = with(context_leg(&chat(), ID), json!({"stream": true}));
    let reply = post(&context, CHAT, &leg).await;
    assert!(reply.header("content-type").unwrap().starts_with("text/event-stream"));
    assert!(!reply.text().contains("disaggregated_params"));
    assert_eq!(context.state().kv_held, 1);
}

#[tokio::test]
async fn roles_and_styles_are_kept_apart() {
    let (context, worker) = pair(Generation::G3, Generation::G3).await;
    let leg = context_leg(&chat(), ID);
    assert_eq!(post(&worker, CHAT, &leg).await.status, 400);
    let reply = post(&context, CHAT, &leg).await.json();
    let generation = generation_leg(&chat(), &reply, &[]);
    assert_eq!(post(&context, CHAT, &generation).await.status, 400);
    let mut first = context_leg(&chat(), ID + 1);
    first["disaggregated_params"]["schedule_style"] = json!(true);
    assert_eq!(post(&context, CHAT, &first).await.status, 400);
    for engine in [&context, &worker] {
        check(&post(engine, CHAT, &chat()).await, &expected_answer(&chat()));
    }
}

#[tokio::test]
async fn signatures_are_checked_when_there_is_a_key() {
    let context = Engine::start(Config::new(Role::Context)).await.unwrap();
    let worker = Engine::start(Config::new(Role::Generation).auth_key("k")).await.unwrap();
    let reply = post(&context, CHAT, &context_leg(&chat(), ID)).await.json();
    let leg = generation_leg(&chat(), &reply, &[]);
    let refused = post(&worker, CHAT, &leg).await;
    assert_eq!(refused.status, 400);
    assert!(refused.text().contains("authentication"), "{}", refused.text());
    assert_eq!(context.state().kv_held, 1);
    // A right signature gets as far as the pull, which this endpoint does not serve.
    let worker = Engine::start(Config::new(Role::Generation).auth_key("secret")).await.unwrap();
    let mut signed = leg.clone();
    let params = &mut signed["disaggregated_params"];
    params["ctx_info_endpoint"] = json!("tcp://10.0.0.5:37771");
    params["encoded_opaque_state"] = json!("AAEC");
    let digest = "c8630ed264cc1f1ddcb2b4506fdf769b993c9b69b5b9f761dfb7c36c39d2957c";
    for (digest, passes) in [(digest.to_owned(), true), (digest.replace('c', "d"), false)] {
        let header = format!("sha256={digest}");
        let headers = [JSON, ("x-trtllm-disagg-auth", header.as_str())];
        let body = signed.to_string();
        let reply = post_bytes(&worker, CHAT, &headers, body.as_bytes()).await;
        assert_eq!(reply.status, 400);
        assert_eq!(reply.text().contains("KV transfer"), passes, "{}", reply.text());
    }
    // The context leg and aggregated requests need none.
    assert_eq!(post(&worker, CHAT, &chat()).await.status, 200);
}

#[tokio::test]
async fn a_head_sent_early_cannot_be_a_400() {
    let worker = Engine::start(Config::new(Role::Generation).head_first(true)).await.unwrap();
    let context = Engine::start(Config::new(Role::Context)).await.unwrap();
    for (path, client) in [(CHAT, chat()), (COMPLETIONS, completion())] {
        let client = with(client, json!({"stream": true}));
        let reply = post(&context, path, &context_leg(&client, ID)).await.json();
        let leg = generation_leg(&client, &reply, &[]);
        let mut wrong = leg.clone();
        wrong["disaggregated_params"]["ctx_request_id"] = json!(1);
        let failed = post(&worker, path, &wrong).await;
        assert_eq!(failed.status, 200);
        assert_eq!(failed.complete, path == COMPLETIONS);
        if path == COMPLETIONS {
            assert!(failed.text().contains("\"error\"") && failed.text().ends_with("[DONE]\n\n"));
        }
        assert_eq!(post(&worker, path, &leg).await.streamed(), expected_answer(&client).text);
    }
}
