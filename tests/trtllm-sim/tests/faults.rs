//! Every fault does what it says, and only for whom it is meant.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod support;

use serde_json::json;
use std::time::{Duration, Instant};
use support::*;
use trtllm_sim::{Config, Cut, CutAt, CutHow, Engine, Fault, Hang, On, Role, expected_answer};

async fn engine() -> Engine {
    Engine::start(Config::new(Role::Both)).await.unwrap()
}

fn stream() -> serde_json::Value {
    with(chat(), json!({"stream": true}))
}

#[tokio::test]
async fn fixed_answers_count_down() {
    let engine = engine().await;
    let fault = json!({"on": "aggregated", "times": 2, "status": 503, "headers": {"retry-after": "7"}, "body": {"e": 1}});
    let set = post_bytes(&engine, "/sim/faults", &[], fault.to_string().as_bytes()).await;
    assert_eq!(set.status, 204);
    for _ in 0..2 {
        let reply = post(&engine, CHAT, &chat()).await;
        assert_eq!((reply.status, reply.text().as_str()), (503, r#"{"e":1}"#));
        assert_eq!(reply.header("retry-after"), Some("7"));
    }
    assert_eq!(post(&engine, CHAT, &chat()).await.status, 200);
    engine.set_fault(Fault { status: Some(429), ..Fault::on(On::Any) });
    assert_eq!(post(&engine, CHAT, &chat()).await.status, 429);
    assert_eq!(engine.state().faults, 1);
    let cleared = exchange(&engine, &request("DELETE", "/sim/faults", &[], b"")).await.unwrap();
    assert_eq!(cleared.status, 204);
    assert_eq!(post(&engine, CHAT, &chat()).await.status, 200);
    let bad = post_bytes(&engine, "/sim/faults", &[], br#"{"statuss":1}"#).await;
    assert_eq!(bad.status, 400);
    assert!(bad.text().contains("statuss"));
}

#[tokio::test]
async fn a_header_is_a_fault_for_one_request() {
    let engine = engine().await;
    let body = chat().to_string();
    let with_fault = |fault: &'static str| {
        let (engine, body) = (&engine, body.as_bytes());
        async move { post_bytes(engine, CHAT, &[JSON, ("x-sim-fault", fault)], body).await }
    };
    assert_eq!(with_fault(r#"{"status":418}"#).await.status, 418);
    assert_eq!(with_fault(r#"{"on":"context","status":418}"#).await.status, 200);
    let bad = with_fault(r#"{"nope":1}"#).await;
    assert_eq!(bad.status, 400);
    assert!(bad.text().contains("nope"));
    assert_eq!(post(&engine, CHAT, &chat()).await.status, 200);
}

#[tokio::test]
async fn context_replies_can_be_edited_or_replaced() {
    let engine = engine().await;
    engine.set_fault(Fault {
        set: vec![("/choices/0/finish_reason".into(), "null".into())],
        remove: vec!["/prompt_token_ids".into()],
        headers: vec![("x-worker".into(), "7".into())],
        times: Some(1),
        ..Fault::on(On::Context)
    });
    let reply = post(&engine, CHAT, &context_leg(&chat(), 1 << 43)).await;
    assert_eq!(reply.header("x-worker"), Some("7"));
    let json = reply.json();
    assert_eq!(json["choices"][0]["finish_reason"], json!(null));
    assert!(json.get("prompt_token_ids").is_none());
    assert_eq!(engine.state().kv_held, 1, "the work was done all the same");
    engine.set_fault(Fault { reply: Some("null".into()), ..Fault::on(On::Context) });
    let reply = post(&engine, CHAT, &context_leg(&chat(), (1 << 43) + 1)).await;
    assert_eq!((reply.status, reply.text().as_str()), (200, "null"));
    engine.set_fault(Fault { register_id: Some(77 << 42), ..Fault::on(On::Context) });
    let reply = post(&engine, CHAT, &context_leg(&chat(), (1 << 43) + 2)).await.json();
    assert_eq!(reply["choices"][0]["disaggregated_params"]["disagg_request_id"], json!(77_i64 << 42));
    assert!(engine.state().kv_ids.contains(&(77 << 42)));
    engine.set_fault(Fault { eos: true, ..Fault::on(On::Context) });
    let reply = post(&engine, CHAT, &context_leg(&chat(), (1 << 43) + 3)).await.json();
    assert_eq!(reply["choices"][0]["finish_reason"], "stop");
    let nan = vec![("/created".into(), "NaN".into())];
    engine.set_fault(Fault { set: nan, ..Fault::on(On::Context) });
    let reply = post(&engine, CHAT, &context_leg(&chat(), (1 << 43) + 4)).await;
    assert_eq!(reply.status, 400);
    assert!(reply.text().contains("Out of range float"));
}

#[tokio::test]
async fn answers_can_be_told_what_to_say_and_how_to_end() {
    let engine = engine().await;
    let ask = async |body: &serde_json::Value, fault: &str| {
        post_bytes(&engine, CHAT, &[JSON, ("x-sim-fault", fault)], body.to_string().as_bytes()).await
    };
    // A header is ASCII, so all else is escaped.
    let fault = r#"{"say":"\u00e9e\u0301 \ud83d\ude00 \u4f60","finish":"content_filter"}"#;
    let text = "ée\u{301} 😀 你";
    let whole = ask(&chat(), fault).await.json();
    assert_eq!(whole["choices"][0]["message"]["content"], text);
    assert_eq!(whole["choices"][0]["finish_reason"], "content_filter");
    assert_eq!(whole["usage"]["completion_tokens"], 16);
    let streamed = ask(&stream(), fault).await;
    assert_eq!(streamed.streamed(), text);
    assert_eq!(streamed.chunks_json().last().unwrap()["choices"][0]["finish_reason"], "content_filter");
    // A limit cuts it all the same.
    let cut = ask(&with(chat(), json!({"max_tokens": 8})), fault).await.json();
    assert_eq!(cut["choices"][0]["finish_reason"], "length");
    for body in [chat(), stream()] {
        let none = ask(&body, r#"{"eos":true}"#).await;
        assert!(none.text().contains(r#""finish_reason":"stop""#), "{}", none.text());
        assert!(none.text().contains(r#""content":"""#), "{}", none.text());
    }
}

#[tokio::test]
async fn cuts_before_the_head() {
    let engine = engine().await;
    let bytes = request("POST", CHAT, &[JSON], chat().to_string().as_bytes());
    for at in [CutAt::Accept, CutAt::Head] {
        for how in [CutHow::Fin, CutHow::Rst] {
            let fault = Fault { cut: Some(Cut { at, how }), times: Some(1), ..Fault::default() };
            engine.set_fault(fault);
            assert!(exchange(&engine, &bytes).await.is_none(), "{at:?} {how:?}");
        }
    }
    assert_eq!(post(&engine, CHAT, &chat()).await.status, 200);
    let state = until(&engine, "the end", |state| state.open_requests == 0).await;
    assert_eq!(state.requests.len(), 3, "accept cuts see no request");
}

#[tokio::test]
async fn cuts_in_the_body() {
    let engine = engine().await;
    for how in [CutHow::Fin, CutHow::Rst, CutHow::Garbage] {
        for body in [stream(), chat()] {
            let cut = Some(Cut { at: CutAt::Body(300), how });
            engine.set_fault(Fault { cut, times: Some(1), ..Fault::default() });
            let reply = post(&engine, CHAT, &body).await;
            assert_eq!(reply.status, 200);
            assert!(!reply.complete, "{how:?}");
            let garbage = if how == CutHow::Garbage && body["stream"].is_null() { 22 } else { 0 };
            assert_eq!(reply.body.len(), 300 + garbage, "{how:?}");
        }
    }
    let cut = Some(Cut { at: CutAt::Body(0), how: CutHow::Fin });
    engine.set_fault(Fault { cut, ..Fault::default() });
    let reply = post(&engine, CHAT, &stream()).await;
    assert_eq!((reply.status, reply.body.len(), reply.complete), (200, 0, false));
}

#[tokio::test]
async fn a_reset_is_a_reset() {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let engine = engine().await;
    engine.set_fault(Fault { cut: Some(Cut { at: CutAt::Body(10), how: CutHow::Rst }), ..Fault::default() });
    let mut socket = tokio::net::TcpStream::connect(engine.addr()).await.unwrap();
    let bytes = request("POST", CHAT, &[JSON], stream().to_string().as_bytes());
    socket.write_all(&bytes).await.unwrap();
    let error = loop {
        match socket.read(&mut [0; 4096]).await {
            Ok(0) => panic!("a clean end"),
            Ok(_) => {}
            Err(error) => break error,
        }
    };
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
}

#[tokio::test]
async fn reuse_cuts_spare_the_first_request() {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let engine = engine().await;
    engine.set_fault(Fault { cut: Some(Cut { at: CutAt::Reuse, how: CutHow::Fin }), ..Fault::default() });
    let mut socket = tokio::net::TcpStream::connect(engine.addr()).await.unwrap();
    let request = b"GET /version HTTP/1.1\r\nhost: sim\r\n\r\n";
    socket.write_all(request).await.unwrap();
    assert!(socket.read(&mut [0; 1024]).await.unwrap() > 0);
    socket.write_all(request).await.unwrap();
    assert_eq!(socket.read(&mut [0; 1024]).await.unwrap_or(0), 0);
    assert_eq!(engine.state().requests.len(), 1);
}

#[tokio::test]
async fn streams_fail_as_their_endpoint_does() {
    let engine = engine().await;
    engine.set_fault(Fault { error_after_tokens: Some(3), ..Fault::default() });
    let reply = post(&engine, CHAT, &stream()).await;
    assert!(!reply.complete && reply.status == 200);
    assert_eq!(reply.events().len(), 4, "a role and three tokens");
    let reply = post(&engine, COMPLETIONS, &with(completion(), json!({"stream": true}))).await;
    assert!(reply.complete);
    let events = reply.events();
    assert_eq!(events.len(), 5);
    assert!(events[3].starts_with("{\"error\"") && events[4] == "[DONE]");
    let reply = post(&engine, CHAT, &chat()).await;
    assert_eq!(reply.json()["type"], "BadRequestError");
    engine.set_fault(Fault { error_after_tokens: Some(1), error_frame: true, ..Fault::default() });
    let reply = post(&engine, CHAT, &stream()).await;
    assert!(!reply.complete && reply.text().contains("\"error\""));
    engine.set_fault(Fault { no_done: true, ..Fault::default() });
    let reply = post(&engine, CHAT, &stream()).await;
    assert!(reply.complete && !reply.text().contains("[DONE]"));
    assert_eq!(reply.streamed(), expected_answer(&chat()).text);
}

#[tokio::test]
async fn delays_add_up() {
    let engine = engine().await;
    let ms = Duration::from_millis;
    engine.set_fault(Fault {
        before_head: ms(40),
        before_first_token: ms(40),
        token_gap: Some(ms(10)),
        ..Fault::default()
    });
    let client = with(chat(), json!({"max_tokens": 5}));
    for body in [client.clone(), with(client, json!({"stream": true}))] {
        let start = Instant::now();
        assert!(post(&engine, CHAT, &body).await.complete);
        assert!(start.elapsed() >= ms(120));
    }
}

#[tokio::test]
async fn hangs_end_with_the_client() {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let engine = engine().await;
    for (hang, answers) in [(Hang::BeforeHead, false), (Hang::AfterHead, true), (Hang::AfterTokens(1), true)]
    {
        engine.set_fault(Fault { hang: Some(hang), times: Some(1), ..Fault::default() });
        let mut socket = tokio::net::TcpStream::connect(engine.addr()).await.unwrap();
        let bytes = request("POST", CHAT, &[JSON], stream().to_string().as_bytes());
        socket.write_all(&bytes).await.unwrap();
        until(&engine, "arrival", |state| state.open_requests == 1).await;
        let mut got = Vec::new();
        let mut buf = [0; 4096];
        while let Ok(read) = tokio::time::timeout(Duration::from_millis(60), socket.read(&mut buf)).await {
            got.extend_from_slice(&buf[..read.unwrap()]);
        }
        let got = String::from_utf8_lossy(&got);
        assert_eq!(got.starts_with("HTTP/1.1 200"), answers, "{hang:?}");
        assert_eq!(got.matches("data: ").count(), if hang == Hang::AfterTokens(1) { 2 } else { 0 });
        drop(socket);
        until(&engine, "release", |state| state.open_requests == 0).await;
    }
    assert_eq!(engine.state().generation_aborts, 3);
}

#[tokio::test]
async fn health_and_version_have_faults_of_their_own() {
    let engine = engine().await;
    engine.set_fault(Fault { status: Some(503), body: Some("loading".into()), ..Fault::on(On::Health) });
    let reply = get(&engine, "/health").await;
    assert_eq!((reply.status, reply.text().as_str()), (503, "loading"));
    engine.set_fault(Fault { status: Some(404), ..Fault::on(On::Version) });
    assert_eq!(get(&engine, "/version").await.status, 404);
    engine.set_fault(Fault { reply: Some("{}".into()), ..Fault::on(On::Version) });
    assert_eq!(get(&engine, "/version").await.text(), "{}");
    assert_eq!(post(&engine, CHAT, &chat()).await.status, 200);
    engine.clear_faults();
    assert_eq!(get(&engine, "/health").await.status, 200);
}
