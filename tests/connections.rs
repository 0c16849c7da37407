//! Connections on both sides of the sidecar, and the headers that travel over them.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod common;

use std::time::{Duration, Instant};

use common::{Answer, Ask, Client, End, Raw, World, chat_body, completions_body, eventually};
use http::HeaderMap;
use serde_json::json;
use trtllm_sim::{Cut, CutAt, CutHow, Fault, On, SeenRequest, expected_answer};

#[tokio::test]
async fn connections_are_used_again() {
    let world = World::start(&[]).await;
    for two in [false, true] {
        let mut client = if two { Client::http2(world.data).await } else { Client::http1(world.data).await };
        for number in 0..10 {
            let stream = number % 2 == 0;
            for body in [chat_body("again", stream), completions_body("again", stream)] {
                Answer::of(&client.send(&world.ask(&body)).await).is(&expected_answer(&body));
                Answer::of(&client.send(&Ask::of(&body)).await).is(&expected_answer(&body));
            }
            assert_eq!(client.send(&world.post("/v1/chat/completions", "[]")).await.status, 400);
        }
        assert!(!client.is_closed());
    }
    let (context, generation) = (world.context.state(), world.generation.state());
    assert_eq!(context.context_requests, 40);
    // one for the legs and what was asked before them; beside it one for what passes through, and for questions
    assert!(context.connections <= 2, "{}", context.connections);
    assert!(generation.connections <= 4, "{}", generation.connections);
    world.finish().await;
}

#[tokio::test]
async fn many_requests_on_one_http2_connection() {
    let world = World::of(|c| c, |g| g.token_gap(Duration::from_millis(3)), &[]).await;
    let client = Client::http2(world.data).await;
    let asked: Vec<_> = (0..64)
        .map(|number| {
            let body = match number % 2 {
                0 => chat_body(&format!("stream {number}"), number % 4 == 0),
                _ => completions_body(&format!("stream {number}"), number % 4 == 1),
            };
            let (mut client, ask) = (client.share(), world.ask(&body));
            tokio::spawn(async move { Answer::of(&client.send(&ask).await).is(&expected_answer(&body)) })
        })
        .collect();
    for asked in asked {
        asked.await.unwrap();
    }
    world.finish().await;
}

#[tokio::test]
async fn pipelined_requests_are_answered_in_order() {
    let world = World::start(&[]).await;
    let bodies = [chat_body("one", true), completions_body("two", false), chat_body("three", false)];
    let mut raw = Raw::connect(world.data).await;
    let wire: Vec<u8> = bodies.iter().flat_map(|body| world.ask(body).wire()).collect();
    raw.write(wire).await;
    for body in &bodies {
        Answer::of(&raw.reply().await).is(&expected_answer(body));
    }
    world.finish().await;
}

#[tokio::test]
async fn workers_that_close_idle_connections() {
    let short = Duration::from_millis(30);
    let world = World::of(|c| c.keep_alive(short), |g| g.keep_alive(short), &[]).await;
    let mut client = Client::http1(world.data).await;
    for _ in 0..4 {
        let body = chat_body("idle", true);
        Answer::of(&client.send(&world.ask(&body)).await).is(&expected_answer(&body));
        Answer::of(&client.send(&Ask::of(&body)).await).is(&expected_answer(&body));
        eventually("all connections are closed", || {
            world.context.state().open_connections == 0 && world.generation.state().open_connections == 0
        })
        .await;
    }
    assert!(world.context.state().connections >= 4);
    world.finish().await;
}

#[tokio::test]
async fn idle_connections_are_closed_by_the_sidecar_first() {
    let long = Duration::from_secs(600);
    let world = World::of(|c| c.keep_alive(long), |g| g.keep_alive(long), &[]).await;
    let body = chat_body("idle", true);
    Answer::of(&world.exchange(&body).await).is(&expected_answer(&body));
    Answer::of(&world.send(&Ask::of(&body)).await).is(&expected_answer(&body));
    assert!(world.context.state().open_connections >= 1);
    eventually("they are closed, although the workers keep them", || {
        world.context.state().open_connections == 0 && world.generation.state().open_connections == 0
    })
    .await;
    world.finish().await;
}

#[tokio::test]
async fn context_connections_that_close_as_they_are_used_again() {
    let world = World::start(&[]).await;
    let body = chat_body("race", true);
    Answer::of(&world.exchange(&body).await).is(&expected_answer(&body));
    for how in [CutHow::Fin, CutHow::Rst] {
        let mut fault = Fault::on(On::Any);
        (fault.cut, fault.times) = (Some(Cut { at: CutAt::Reuse, how }), Some(25));
        world.context.set_fault(fault);
        for _ in 0..25 {
            Answer::of(&world.exchange(&body).await).is(&expected_answer(&body));
        }
        world.context.clear_faults();
    }
    let mut ids: Vec<_> = world.context_legs().iter().map(SeenRequest::disagg_request_id).collect();
    assert_eq!(ids.len(), 51);
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), 51);
    world.finish().await;
}

// === headers ===

/// All values of all headers, in small letters, as `name: value`.
fn lines(headers: &HeaderMap) -> Vec<String> {
    headers.iter().map(|(name, value)| format!("{name}: {}", value.to_str().unwrap())).collect()
}

#[tokio::test]
async fn headers_of_a_request() {
    let world = World::start(&[]).await;
    let with = |ask: Ask| {
        ask.header("authorization", "Bearer t")
            .header("x-request-id", "r1")
            .header("x-custom", "1")
            .header("x-custom", "2")
            .header("x-gateway-model-name-rewrite", "z")
            .header("x-session-id", "s")
            .header("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
            .header("tracestate", "a=b")
            .header("user-agent", "u")
            .header("accept", "*/*")
            .header("accept-encoding", "gzip")
            .header("x-trtllm-disagg-auth", "sha256=00")
            .header("x-trtllm-subagent-affinity-id", "a")
            .header("x-trtllm-subagent-affinity-auth", "a")
    };
    let hops = |ask: Ask| {
        ask.header("connection", "X-Hop, keep-alive")
            .header("x-hop", "1")
            .header("keep-alive", "timeout=5")
            .header("te", "trailers")
            .header("proxy-authorization", "secret")
            .header("proxy-connection", "keep-alive")
            .header("upgrade", "h2c")
            .header("trailer", "x")
    };
    let kept = [
        "accept: */*",
        "authorization: Bearer t",
        "content-type: application/json",
        "traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        "tracestate: a=b",
        "user-agent: u",
        "x-custom: 1",
        "x-custom: 2",
        "x-gateway-model-name-rewrite: z",
        "x-request-id: r1",
        "x-session-id: s",
    ];
    for two in [false, true] {
        for handoff in [true, false] {
            world.forget();
            let body = chat_body("headers", true);
            let ask = with(if handoff { world.ask(&body) } else { Ask::of(&body) });
            let reply = if two {
                Client::http2(world.data).await.send(&ask.header("te", "trailers")).await
            } else {
                Raw::asking(world.data, &hops(ask)).await.reply().await
            };
            assert_eq!(reply.status, 200, "{}", reply.text());
            let (context, generation) = (world.context_legs(), world.generation_legs());
            assert_eq!((context.len(), generation.len()), (usize::from(handoff), 1));
            for (leg, engine) in [(context.first(), &world.context), (generation.first(), &world.generation)]
            {
                let Some(leg) = leg else { continue };
                let mut seen = lines(&leg.headers);
                seen.sort();
                let mut expected: Vec<String> = kept.iter().map(|line| (*line).to_owned()).collect();
                if !handoff {
                    expected.push("accept-encoding: gzip".to_owned());
                }
                expected.push(format!("host: {}", engine.hostport()));
                expected.push(format!("content-length: {}", leg.body.len()));
                expected.sort();
                assert_eq!(seen, expected, "HTTP/2: {two}, handoff: {handoff}");
            }
        }
    }
    world.finish().await;
}

#[tokio::test]
async fn headers_of_a_reply() {
    let world = World::start(&[]).await;
    let add = json!({"connection": "close, x-hop", "x-hop": "1", "keep-alive": "timeout=1", "proxy-authenticate": "Basic",
        "x-worker": "7", "set-cookie": "a=b"});
    let faults = json!([{"on": "context", "headers": {"x-context": "1", "connection": "close"}}, {"on": "generation", "headers": add}, {"on": "aggregated", "headers": add}]);
    for two in [false, true] {
        let mut client = if two { Client::http2(world.data).await } else { Client::http1(world.data).await };
        for stream in [true, false] {
            let body = chat_body("headers", stream);
            for ask in [world.ask(&body), Ask::of(&body)] {
                let reply = client.send(&ask.fault(&faults)).await;
                Answer::of(&reply).is(&expected_answer(&body));
                assert_eq!(reply.header("x-worker"), Some("7"));
                assert_eq!(reply.header("set-cookie"), Some("a=b"));
                for name in ["connection", "keep-alive", "x-hop", "proxy-authenticate", "x-context"] {
                    assert_eq!(reply.header(name), None, "{name}");
                }
            }
        }
        assert!(!client.is_closed(), "the worker's connection is not the client's");
    }
    // a context reply with large headers is as good as any
    let faults = json!([{"on": "context", "headers": {"x-a": "a".repeat(900)}}]);
    let fault = Fault::from_json(&faults.to_string()).unwrap().remove(0);
    let headers = (0..50).map(|number| (format!("x-{number}"), "a".repeat(960))).collect();
    world.context.set_fault(Fault { headers, ..fault });
    assert_eq!(world.exchange(&chat_body("large", true)).await.status, 200);
    world.finish().await;
}

// === messages of an odd shape ===

#[tokio::test]
async fn a_client_that_waits_for_100_continue() {
    let world = World::start(&[]).await;
    for body in [chat_body(&"x".repeat(2048), true), completions_body("waits", false)] {
        for ask in [world.ask(&body), Ask::of(&body)] {
            let ask = ask.header("expect", "100-continue");
            let mut raw = Raw::connect(world.data).await;
            raw.write(ask.head(&format!("content-length: {}", ask.body.len()))).await;
            assert_eq!(raw.head().await.0, 100);
            raw.write(&ask.body).await;
            Answer::of(&raw.reply().await).is(&expected_answer(&body));
        }
    }
    for leg in world.context_legs().iter().chain(&world.generation_legs()) {
        assert_eq!(leg.header("expect"), None);
    }
    world.finish().await;
}

#[tokio::test]
async fn chunked_uploads() {
    let world = World::start(&[]).await;
    let body = chat_body("cut in the middle of é and 😀", true);
    let ask = world.ask(&body);
    let mut raw = Raw::connect(world.data).await;
    raw.write(ask.head("Transfer-Encoding: Chunked")).await;
    for byte in ask.body.iter() {
        raw.write([b"1;x=y\r\n", &[*byte][..], b"\r\n"].concat()).await;
    }
    raw.write("0\r\nx-trailer: 1\r\n\r\n").await;
    Answer::of(&raw.reply().await).is(&expected_answer(&body));
    for leg in [&world.context_legs()[0], &world.generation_legs()[0]] {
        assert!(leg.header("content-length").is_some() != leg.header("transfer-encoding").is_some());
    }
    world.finish().await;
}

#[tokio::test]
async fn messages_that_two_readers_could_see_differently() {
    let world = World::start(&[]).await;
    let smuggled = "GET /smuggled HTTP/1.1\r\nhost: x\r\n\r\n";
    for (framing, body) in [
        ("content-length: 5\r\ncontent-length: 6", "{\"a\":1}"),
        ("content-length: +5", "{\"a\":1}"),
        ("content-length: 5, 6", "{\"a\":1}"),
        ("content-length: 0x5", "{\"a\":1}"),
        ("transfer-encoding: xchunked", "0\r\n\r\n"),
        ("transfer-encoding: gzip, chunked", "0\r\n\r\n"),
        ("transfer-encoding: chunked\r\ntransfer-encoding: chunked", "0\r\n\r\n"),
        ("transfer-encoding : chunked", "0\r\n\r\n"),
        ("transfer-encoding: chunked", "0x5\r\n{\"a\":1}\r\n0\r\n\r\n"),
        ("transfer-encoding: chunked", "-1\r\n\r\n"),
        ("x: y\r\n folded: z\r\ncontent-length: 2", "{}"),
    ] {
        for ask in [world.ask(&json!({})), Ask::post("/v1/chat/completions", "")] {
            world.forget();
            let mut raw = Raw::connect(world.data).await;
            raw.write(format!("{}{body}{smuggled}", ask.head(framing))).await;
            let reply = raw.reply().await;
            assert_eq!(reply.status, 400, "{framing:?} {body:?}: {}", reply.text());
            assert!(raw.ends().await, "{framing:?} {body:?}: the connection stays open");
            assert_eq!(world.called(), (0, 0), "{framing:?}");
            assert!(world.generation.state().requests.iter().all(|seen| seen.path != "/smuggled"));
        }
    }
    // with both the chunks count, and the connection is over
    let ask = Ask::post("/v1/chat/completions", "");
    let mut raw = Raw::connect(world.data).await;
    raw.write(format!("{}0\r\n\r\n{smuggled}", ask.head("content-length: 6\r\ntransfer-encoding: chunked")))
        .await;
    let _ = raw.reply().await;
    assert!(raw.ends().await);
    assert!(world.generation.state().requests.iter().all(|seen| seen.path != "/smuggled"));
    world.finish().await;
}

#[tokio::test]
async fn heads_that_are_too_large() {
    let world = World::start(&[]).await;
    let ask = world.ask(&chat_body("x", false));
    let many = (0..500).fold(ask.clone(), |ask, number| ask.header(&format!("x-{number}"), "1"));
    for ask in [many, ask.header("x-request-id", "r".repeat(1 << 20))] {
        let mut raw = Raw::connect(world.data).await;
        // the sidecar may stop reading before all is written
        let _ = tokio::time::timeout(Duration::from_secs(5), raw.try_write(ask.wire())).await;
        if let Some((status, _)) = raw.try_head().await {
            assert!(status == 431 || status == 400, "{status}");
        }
        assert_eq!(world.called(), (0, 0));
    }
    let body = chat_body("still there", true);
    Answer::of(&world.exchange(&body).await).is(&expected_answer(&body));
    world.finish().await;
}

#[tokio::test]
async fn a_request_without_an_answer_in_its_connection_does_not_hold_up_others() {
    let world = World::start(&[]).await;
    let start = Instant::now();
    let ask = world.ask(&chat_body("hangs", true)).fault(&json!({"on": "context", "hang": "before_head"}));
    let hanging: Vec<_> = {
        let mut all = Vec::new();
        for _ in 0..50 {
            all.push(Raw::asking(world.data, &ask).await);
        }
        all
    };
    let body = chat_body("does not", true);
    let reply = world.exchange(&body).await;
    assert_eq!(reply.end, End::Complete);
    Answer::of(&reply).is(&expected_answer(&body));
    assert!(start.elapsed() < Duration::from_secs(10));
    drop(hanging);
    world.finish().await;
}
