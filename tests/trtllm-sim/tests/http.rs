//! The web framework's behaviour, and the endpoints that are no inference.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod support;

use serde_json::json;
use std::time::{Duration, Instant};
use support::*;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use trtllm_sim::{Config, Engine, Fault, On, Role, expected_answer};

async fn engine() -> Engine {
    Engine::start(Config::new(Role::Both)).await.unwrap()
}

#[tokio::test]
async fn information() {
    let engine =
        Engine::start(Config::new(Role::Context).release("1.3.0rc24.post1").model("x")).await.unwrap();
    assert_eq!(get(&engine, "/version").await.text(), r#"{"version":"1.3.0rc24.post1"}"#);
    let health = get(&engine, "/health").await;
    assert_eq!((health.status, health.text().as_str()), (200, ""));
    let models = get(&engine, "/v1/models").await.json();
    assert_eq!(models["object"], "list");
    assert_eq!(models["data"][0]["id"], "x");
    assert_eq!(models["data"][0]["owned_by"], "tensorrt_llm");
    let info = get(&engine, "/server_info").await.json();
    let endpoint = &info["disaggregated_params"]["ctx_info_endpoint"];
    assert!(endpoint[0].as_str().unwrap().starts_with("tcp://127.0.0.1:"));
    assert!(info.get("role").is_none());
}

#[tokio::test]
async fn wrong_paths_methods_and_types() {
    let engine = engine().await;
    let reply = get(&engine, CHAT).await;
    assert_eq!((reply.status, reply.text().as_str()), (405, r#"{"detail":"Method Not Allowed"}"#));
    let reply = get(&engine, "/nope").await;
    assert_eq!((reply.status, reply.text().as_str()), (404, r#"{"detail":"Not Found"}"#));
    let reply = post(&engine, "/v1/chat/completions/", &chat()).await;
    assert_eq!(reply.status, 307);
    assert!(reply.header("location").unwrap().ends_with(CHAT));
    assert_eq!(post(&engine, "/version", &json!({})).await.status, 405);
    let body = chat().to_string();
    for headers in [&[][..], &[("content-type", "text/plain")]] {
        let reply = post_bytes(&engine, CHAT, headers, body.as_bytes()).await;
        assert_eq!((reply.status, reply.text().as_str()), (500, "Internal Server Error"));
        assert_eq!(reply.header("content-type"), Some("text/plain; charset=utf-8"));
    }
    let reply = post_bytes(&engine, CHAT, &[JSON], b"[]").await;
    assert_eq!(reply.status, 500);
    let reply = post_bytes(&engine, CHAT, &[JSON], "[".repeat(100_000).as_bytes()).await;
    assert_eq!(reply.text(), r#"{"detail":"There was an error parsing the body"}"#);
    let reply = post(&engine, CHAT, &json!({"model": "m", "messages": [], "nvext": 1})).await;
    assert_eq!(reply.status, 400);
    assert!(reply.json()["error"].as_str().unwrap().contains("'nvext'"));
    assert_eq!(reply.json().as_object().unwrap().len(), 1);
    let reply = post(&engine, COMPLETIONS, &json!({"model": "m", "prompt": []})).await.json();
    assert_eq!(reply["object"], "error");
    assert_eq!((&reply["type"], &reply["code"]), (&json!("BadRequestError"), &json!(400)));
    assert_eq!(engine.state().rejections.len(), 6);
}

#[tokio::test]
async fn requests_are_remembered_and_forgotten() {
    let engine = Engine::start(Config::new(Role::Both).remember(2)).await.unwrap();
    for _ in 0..3 {
        post_bytes(&engine, &format!("{CHAT}?a=b"), &[JSON, ("x-y", "z")], chat().to_string().as_bytes())
            .await;
    }
    let state = until(&engine, "the end", |state| state.open_requests == 0).await;
    assert_eq!((state.requests.len(), state.requests_dropped), (2, 1));
    let seen = &state.requests[1];
    assert_eq!((seen.number, seen.path.as_str()), (3, "/v1/chat/completions?a=b"));
    assert_eq!(seen.header("x-y"), Some("z"));
    assert_eq!(seen.json(), Some(chat()));
    let page = get(&engine, "/sim/state").await.json();
    assert_eq!(page["requests"][1]["method"], "POST");
    assert_eq!(page["kv_held"], 0);
    engine.forget();
    assert!(engine.state().requests.is_empty());
}

#[tokio::test]
async fn streams_have_the_real_shapes() {
    let engine = engine().await;
    let client = with(chat(), json!({"stream": true, "stream_options": {"include_usage": true}}));
    let reply = post(&engine, CHAT, &client).await;
    assert!(reply.header("content-type").unwrap().starts_with("text/event-stream"));
    let text = reply.text();
    let first = text.split_once('\n').unwrap().0;
    assert!(first.ends_with(r#""choices":[{"index":0,"delta":{"role":"assistant"}}]} "#), "{first}");
    let chunks = reply.chunks_json();
    let last = &chunks[chunks.len() - 2]["choices"][0];
    assert_eq!(last["finish_reason"], "stop");
    assert!(last["delta"]["content"].is_string());
    assert_eq!(last["delta"]["reasoning_content"], "");
    assert!(chunks[1]["choices"][0].get("finish_reason").is_none());
    assert!(chunks[1].get("usage").is_none());
    let usage = chunks.last().unwrap();
    assert_eq!(usage["choices"], json!([]));
    assert_eq!(usage["usage"]["completion_tokens"], 16);
    // Every event is a write of its own.
    assert_eq!(reply.chunks, chunks.len());

    let client = with(completion(), json!({"stream": true}));
    let chunks = post(&engine, COMPLETIONS, &client).await.chunks_json();
    assert_eq!(chunks.len(), 16);
    for chunk in &chunks {
        assert_eq!(chunk["usage"], json!(null));
        assert!(chunk.as_object().unwrap().contains_key("usage"));
        let choice = chunk["choices"][0].as_object().unwrap();
        assert!(choice.contains_key("stop_reason") && choice.contains_key("token_ids"));
    }
    assert_eq!(chunks[15]["choices"][0]["finish_reason"], "stop");

    let always = with(chat(), json!({"stream": true, "stream_options": {"continuous_usage_stats": true}}));
    let chunks = post(&engine, CHAT, &always).await.chunks_json();
    assert_eq!(chunks[0]["usage"]["completion_tokens"], 0);
    assert_eq!(chunks[0]["usage"]["total_tokens"], chunks[0]["usage"]["prompt_tokens"]);
    assert_eq!(chunks[3]["usage"]["completion_tokens"], 3);
    let never = json!({"include_usage": false, "continuous_usage_stats": true});
    let never = with(chat(), json!({"stream": true, "stream_options": never}));
    assert!(!post(&engine, CHAT, &never).await.text().contains("usage"));
}

#[tokio::test]
async fn ids_are_constant_from_g4_on() {
    for (release, constant) in [("1.3.0rc24", false), ("1.3.0rc27", true)] {
        let engine = Engine::start(Config::new(Role::Both).release(release)).await.unwrap();
        let reply = post(&engine, CHAT, &with(chat(), json!({"stream": true}))).await;
        let ids: Vec<_> = reply.chunks_json().iter().map(|c| c["id"].clone()).collect();
        assert_eq!(ids.windows(2).all(|pair| pair[0] == pair[1]), constant);
        assert!(ids[0].as_str().unwrap().starts_with("chatcmpl-"));
    }
}

#[tokio::test]
async fn tools_reasoning_and_choices_stream_as_they_answer() {
    let engine = engine().await;
    let tools = json!([{"type": "function", "function": {"name": "look"}}]);
    let client = with(chat(), json!({"tools": tools, "messages": [{"role": "user", "content": "#tool"}]}));
    let expected = expected_answer(&client);
    let whole = post(&engine, CHAT, &client).await.json();
    let call = &whole["choices"][0]["message"]["tool_calls"][0];
    assert_eq!(call["function"]["name"], "look");
    assert_eq!(call["function"]["arguments"], json!(expected.tool_calls[0].arguments));
    assert_eq!(whole["choices"][0]["finish_reason"], "tool_calls");
    let chunks = post(&engine, CHAT, &with(client, json!({"stream": true}))).await.chunks_json();
    let deltas = chunks.iter().map(|c| &c["choices"][0]["delta"]["tool_calls"][0]);
    let arguments: String = deltas.clone().filter_map(|d| d["function"]["arguments"].as_str()).collect();
    assert_eq!(arguments, expected.tool_calls[0].arguments);
    let named: Vec<_> = deltas.filter(|d| d["id"].is_string()).collect();
    assert_eq!((named.len(), &named[0]["id"]), (1, &call["id"]));
    assert!(chunks[1..].iter().all(|c| c["choices"][0]["delta"]["content"] == ""));

    let messages = json!([{"role": "user", "content": "#tool #tool"}]);
    let client = with(chat(), json!({"tools": tools, "messages": messages}));
    let whole = post(&engine, CHAT, &client).await.json();
    let calls = whole["choices"][0]["message"]["tool_calls"].as_array().unwrap();
    assert_eq!(calls.len(), 2);
    assert_ne!(calls[0]["id"], calls[1]["id"]);
    let chunks = post(&engine, CHAT, &with(client, json!({"stream": true}))).await.chunks_json();
    let mut streamed = vec![json!({}), json!({})];
    for part in chunks.iter().filter_map(|c| c["choices"][0]["delta"]["tool_calls"].get(0)) {
        let call = &mut streamed[usize::try_from(part["index"].as_u64().unwrap()).unwrap()];
        let arguments = call["function"]["arguments"].as_str().unwrap_or_default().to_owned();
        let all = arguments + part["function"]["arguments"].as_str().unwrap();
        if part["id"].is_string() {
            *call = json!({"id": part["id"], "type": part["type"], "function": {"name": part["function"]["name"]}});
        }
        call["function"]["arguments"] = json!(all);
    }
    assert_eq!(&streamed, calls);

    let client = with(chat(), json!({"reasoning_effort": "high"}));
    let expected = expected_answer(&client);
    let whole = post(&engine, CHAT, &client).await.json();
    assert_eq!(whole["choices"][0]["message"]["reasoning_content"], json!(expected.reasoning));
    let reply = post(&engine, CHAT, &with(client, json!({"stream": true}))).await;
    let reasoning: String = reply
        .chunks_json()
        .iter()
        .filter_map(|c| c["choices"][0]["delta"]["reasoning_content"].as_str().map(str::to_owned))
        .collect();
    assert_eq!((reasoning, reply.streamed()), (expected.reasoning, expected.text));

    let client = json!({"model": "m", "prompt": ["a", "b"], "n": 2, "echo": true, "logprobs": 2});
    let whole = post(&engine, COMPLETIONS, &client).await.json();
    let choices = whole["choices"].as_array().unwrap();
    assert_eq!(choices.len(), 4);
    assert!(choices[2]["text"].as_str().unwrap().starts_with("b "));
    assert_eq!(choices[0]["text"], choices[1]["text"]);
    assert_eq!(choices[0]["logprobs"]["tokens"].as_array().unwrap().len(), 16);
    let chunks = post(&engine, COMPLETIONS, &with(client, json!({"stream": true}))).await.chunks_json();
    assert_eq!(chunks.len(), 64);
}

#[tokio::test]
async fn the_same_text_from_messages_and_from_ids() {
    let engine = engine().await;
    let expected = expected_answer(&chat());
    let by_ids = json!({"model": "m", "prompt": expected.prompt_token_ids, "max_tokens": 16});
    let reply = post(&engine, COMPLETIONS, &by_ids).await.json();
    assert_eq!(reply["choices"][0]["text"], json!(expected.text));
    let ids = with(chat(), json!({"prompt_token_ids": expected.prompt_token_ids}));
    let reply = post(&engine, CHAT, &ids).await.json();
    assert_eq!(reply["choices"][0]["message"]["content"], json!(expected.text));
    assert_eq!(reply["usage"]["prompt_tokens"], json!(expected.prompt_token_ids.len()));
}

#[tokio::test]
async fn coalescing_makes_fewer_writes() {
    let engine = Engine::start(Config::new(Role::Both).tokens(500).coalesce(true)).await.unwrap();
    let reply = post(&engine, CHAT, &with(chat(), json!({"stream": true}))).await;
    assert!(reply.chunks < 20 && reply.complete, "{}", reply.chunks);
    let expected = trtllm_sim::expected_answer_of(&chat(), 500);
    assert_eq!(reply.streamed(), expected.text);
}

#[tokio::test]
async fn a_reader_that_does_not_read_slows_the_engine_down() {
    let engine = Engine::start(Config::new(Role::Both).tokens(200_000)).await.unwrap();
    let mut socket = tokio::net::TcpStream::connect(engine.addr()).await.unwrap();
    let body = with(chat(), json!({"stream": true})).to_string();
    let bytes = request("POST", CHAT, &[JSON], body.as_bytes());
    socket.write_all(&bytes).await.unwrap();
    until(&engine, "a start", |state| state.body_bytes > 0).await;
    let mut before = 0;
    let now = loop {
        tokio::time::sleep(Duration::from_millis(100)).await;
        let now = engine.state().body_bytes;
        if now == before {
            break now;
        }
        before = now;
    };
    // The whole would be some 38 MB; the rest is not even made.
    assert!(now < 20 << 20, "{now}");
    assert_eq!(engine.state().open_requests, 1);
    drop(socket);
    until(&engine, "release", |state| state.generation_aborts == 1).await;
}

#[tokio::test]
async fn idle_connections_are_closed_after_a_while() {
    let keep_alive = Duration::from_millis(80);
    let engine = Engine::start(Config::new(Role::Both).keep_alive(keep_alive)).await.unwrap();
    let mut stream = tokio::net::TcpStream::connect(engine.addr()).await.unwrap();
    let request = b"GET /version HTTP/1.1\r\nhost: sim\r\n\r\n";
    let mut buf = [0; 1024];
    for _ in 0..3 {
        stream.write_all(request).await.unwrap();
        assert!(stream.read(&mut buf).await.unwrap() > 0);
    }
    let idle = Instant::now();
    assert_eq!(stream.read(&mut buf).await.unwrap(), 0);
    assert!(idle.elapsed() >= keep_alive / 2);
    let state = until(&engine, "close", |state| state.open_connections == 0).await;
    assert_eq!((state.connections, state.requests.len()), (1, 3));
    assert!(state.requests.iter().all(|request| request.connection == 1));
}

#[tokio::test]
async fn shutdown_and_drop_close_everything() {
    let engine = engine().await;
    engine.set_fault(Fault { hang: Some(trtllm_sim::Hang::BeforeHead), ..Fault::on(On::Any) });
    let addr = engine.addr();
    let mut stream = tokio::net::TcpStream::connect(addr).await.unwrap();
    let bytes = request("POST", CHAT, &[JSON], chat().to_string().as_bytes());
    stream.write_all(&bytes).await.unwrap();
    until(&engine, "arrival", |state| state.open_requests == 1).await;
    engine.shutdown().await;
    assert_eq!(stream.read(&mut [0; 8]).await.unwrap_or(0), 0);
    assert!(tokio::net::TcpStream::connect(addr).await.is_err());
    let other = Engine::start(Config::new(Role::Both)).await.unwrap();
    let addr = other.addr();
    drop(other);
    tokio::task::yield_now().await;
    tokio::time::sleep(Duration::from_millis(20)).await;
    assert!(tokio::net::TcpStream::connect(addr).await.is_err());
}

#[tokio::test]
async fn bad_releases_do_not_start() {
    let error = Engine::start(Config::new(Role::Both).release("latest")).await.unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput);
}
