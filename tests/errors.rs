//! Every error that a client can be told of: its status, its code, and which workers were called. Those that stand for a
//! reported kind of fault are in `cases.rs`: bodies and fields that are refused, what a context worker answers. Refusals of
//! a generation worker are in `replies.rs`.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod common;

use common::{Answer, Ask, Client, Raw, Reply, World, chat_body, completions_body, eventually};
use serde_json::json;
use trtllm_sim::expected_answer;

const CHAT: &str = "/v1/chat/completions";
const COMPLETIONS: &str = "/v1/completions";

/// Nothing was called, or the context worker alone, or both.
const NEITHER: (usize, usize) = (0, 0);
const CONTEXT: (usize, usize) = (1, 0);
const BOTH: (usize, usize) = (1, 1);

/// Sends a request, forgets what was before it, and looks at who was called.
async fn called(world: &World, what: &str, ask: &Ask, called: (usize, usize)) -> Reply {
    world.forget();
    let reply = world.send(ask).await;
    assert_eq!(world.called(), called, "{what}: {}", reply.text());
    reply
}

/// The next request is served as if nothing had been.
async fn still_serves(world: &World) {
    let body = chat_body("still there", true);
    Answer::of(&world.exchange(&body).await).is(&expected_answer(&body));
}

// === contract ===

#[tokio::test]
async fn routing_headers() {
    let world = World::start(&[]).await;
    let good = world.context.hostport();
    let port = world.context.addr().port();
    let lists: Vec<Vec<String>> = [
        "",
        " ",
        "prefill",
        "prefill:0",
        "prefill:abc",
        "prefill:65536",
        "h:+8001",
        "2001:db8::1:8001",
        "[zz]:8001",
        "u:p@h:1",
        "http://h:1",
        "h:1/",
        "h:1?x",
        "h :1",
        "*:8001",
        "2130706433:80",
    ]
    .iter()
    .map(|value| vec![(*value).to_owned()])
    .chain([
        vec![good.clone(), good.clone()],
        vec![good.clone(), "other:1".into()],
        vec![format!("{good},{good}")],
        vec![format!("{good}, other:1")],
        vec![format!("http://{good}")],
        vec![format!("{good}/")],
    ])
    .collect();
    for values in lists {
        for path in [CHAT, COMPLETIONS, "/v1/models"] {
            let mut ask = Ask::post(path, chat_body("x", false).to_string());
            for value in &values {
                ask = ask.header("X-Prefiller-Host-Port", value);
            }
            world.forget();
            let reply = Raw::asking(world.data, &ask).await.reply().await;
            let error = reply.is_error(502, "invalid_epp_metadata");
            let message = error["message"].as_str().unwrap();
            assert!(message.contains("x-prefiller-host-port"), "{message}");
            assert_eq!(world.called(), NEITHER, "{values:?}");
        }
    }
    for value in [good, format!("localhost:{port}"), format!("LOCALHOST:{port}")] {
        let body = chat_body("well routed", false);
        Answer::of(&world.send(&Ask::of(&body).via(&value)).await).is(&expected_answer(&body));
    }
    world.finish().await;
}

#[tokio::test]
async fn endpoints_that_are_not_allowed() {
    let world = World::start(&["--allow-context", "127.0.0.0/8:1-2", "--allow-context", "*.svc:80"]).await;
    let port = world.context.addr().port();
    for context in [
        world.context.hostport(),
        format!("localhost:{port}"),
        format!("[::ffff:127.0.0.1]:{port}"),
        "169.254.169.254:80".into(),
        "svc:80".into(),
        "a.svc:81".into(),
    ] {
        let ask = Ask::of(&chat_body("x", true)).via(&context);
        called(&world, &context, &ask, NEITHER).await.is_error(403, "context_endpoint_not_allowed");
        // by the head alone, before the body is here
        let mut raw = Raw::connect(world.data).await;
        raw.write(ask.head("content-length: 1000")).await;
        raw.reply().await.is_error(403, "context_endpoint_not_allowed");
    }
    assert_eq!(world.context.state().connections, 0, "nothing was connected to");
    world.finish().await;
    let world = World::start(&["--allow-context", "10.0.0.0/8:1-2,127.0.0.0/8:1024-65535"]).await;
    still_serves(&world).await;
    world.finish().await;
}

#[tokio::test]
async fn bodies_that_are_too_large() {
    let world = World::start(&["--max-request-bytes", "4KiB"]).await;
    let padded = |length: usize| {
        let mut body = chat_body("", false);
        let bare = body.to_string().len();
        body["messages"][0]["content"] = json!("x".repeat(length - bare));
        assert_eq!(body.to_string().len(), length);
        body
    };
    let most = padded(4096);
    Answer::of(&world.exchange(&most).await).is(&expected_answer(&most));
    let over = padded(4097);
    called(&world, "with a length", &world.ask(&over), NEITHER).await.is_error(413, "request_too_large");
    world.forget();
    // said to be too large, and never sent
    let mut raw = Raw::connect(world.data).await;
    raw.write(world.ask(&over).head("content-length: 5000000")).await;
    raw.reply().await.is_error(413, "request_too_large");
    // too large before its end has come
    let mut raw = Raw::connect(world.data).await;
    raw.write(world.ask(&over).head("transfer-encoding: chunked")).await;
    raw.write(format!("1000\r\n{}\r\n1000\r\n{}\r\n", "x".repeat(4096), "y".repeat(4096))).await;
    raw.reply().await.is_error(413, "request_too_large");
    // the same of what passes through
    let passing = Ask::post(CHAT, over.to_string());
    called(&world, "passing through", &passing, NEITHER).await.is_error(413, "request_too_large");
    assert_eq!(world.called(), NEITHER);
    still_serves(&world).await;
    world.finish().await;
}

#[tokio::test]
async fn bodies_that_do_not_come() {
    let world = World::start(&["--request-body-timeout", "100ms"]).await;
    for framing in ["content-length: 1000", "transfer-encoding: chunked"] {
        for begun in ["", "1\r\n{\r\n"] {
            let mut raw = Raw::connect(world.data).await;
            raw.write(world.ask(&json!({"messages": []})).head(framing)).await;
            raw.write(begun).await;
            raw.reply().await.is_error(408, "request_timeout");
        }
    }
    assert_eq!(world.called(), NEITHER);
    still_serves(&world).await;
    world.finish().await;
}

// === admission ===

#[tokio::test]
async fn more_requests_than_are_let_in() {
    let world = World::alone(|context| context, |generation| generation, &["--max-in-flight", "2"]).await;
    // one waits for its context leg, one is in the middle of its stream, one passes through
    let hang = json!({"hang": {"after_tokens": 2}});
    let handoff = world.ask(&chat_body("a", true));
    let waiting = Raw::asking(world.data, &handoff.clone().fault(&json!({"hang": "before_head"}))).await;
    let mut streaming = Raw::asking(world.data, &Ask::of(&chat_body("b", true)).fault(&hang)).await;
    streaming.until("data: ").await;
    eventually("both are under way", || world.called() == (1, 1)).await;
    world.forget();
    for ask in [handoff.clone(), Ask::of(&chat_body("c", false)), Ask::get("/v1/models")] {
        let reply = world.send(&ask).await;
        reply.is_error(503, "overloaded");
        assert_eq!(reply.header("retry-after"), Some("1"));
    }
    assert_eq!(world.called(), NEITHER);
    assert_eq!(world.send(&Ask::get("/health")).await.status, 200, "not counted");
    assert_eq!(world.send(&Ask::get("/ready")).await.status, 200, "not counted");
    drop((waiting, streaming));
    world.idle().await;
    still_serves(&world).await;
    world.finish().await;
}

#[tokio::test]
async fn more_bytes_than_are_held() {
    let world = World::of(
        |context| context.opaque_bytes(64 << 10),
        |generation| generation,
        &["--max-buffered-bytes", "32KiB"],
    )
    .await;
    for stream in [true, false] {
        for body in [chat_body, completions_body] {
            let request = world.ask(&body(&"x".repeat(33 << 10), stream));
            let reply = called(&world, "a request", &request, NEITHER).await;
            reply.is_error(503, "overloaded");
            assert_eq!(reply.header("retry-after"), Some("1"));
            let reply = called(&world, "a context reply", &world.ask(&body("x", stream)), CONTEXT).await;
            reply.is_error(503, "overloaded");
        }
    }
    world.finish_with_orphans().await;
}

#[tokio::test]
async fn bytes_are_held_for_all_requests_together() {
    let world =
        World::alone(|context| context, |generation| generation, &["--max-buffered-bytes", "512KiB"]).await;
    let request = world.ask(&completions_body(&"x".repeat(64 << 10), true));
    assert_eq!(world.send(&request).await.status, 200);
    // most of an upload is here, and held until its end or until its client leaves
    let mut raw = Raw::connect(world.data).await;
    raw.write(world.ask(&json!({})).head("content-length: 500000")).await;
    raw.write("{".repeat(499_999)).await;
    let waiting = async {
        loop {
            let reply = world.send(&request).await;
            if reply.status == 503 {
                reply.is_error(503, "overloaded");
                return;
            }
        }
    };
    tokio::time::timeout(common::PATIENCE, waiting).await.expect("two of them do not fit at a time");
    drop(raw);
    world.idle().await;
    assert_eq!(world.send(&request).await.status, 200);
    world.finish().await;
}

// === context ===

#[tokio::test]
async fn context_workers_that_are_too_slow() {
    let world = World::start(&["--context-timeout", "150ms"]).await;
    still_serves(&world).await;
    for fault in
        [json!({"on": "context", "hang": "before_head"}), json!({"on": "context", "hang": "after_head"})]
    {
        for body in [chat_body("slow", true), completions_body("slow", false)] {
            let ask = world.ask(&body).fault(&fault);
            called(&world, "slow", &ask, CONTEXT).await.is_error(504, "context_timeout");
            eventually("its connection is closed", || world.context.state().open_requests == 0).await;
        }
    }
    still_serves(&world).await;
    world.finish_with_orphans().await;
}

#[tokio::test]
async fn context_replies_that_are_too_large() {
    let world = World::of(
        |context| context.opaque_bytes(8 << 10),
        |generation| generation,
        &["--max-reply-bytes", "4KiB"],
    )
    .await;
    for stream in [true, false] {
        for body in [chat_body("large", stream), completions_body("large", stream)] {
            called(&world, "large", &world.ask(&body), CONTEXT)
                .await
                .is_error(502, "context_reply_too_large");
        }
    }
    world.finish_with_orphans().await;
}

#[tokio::test]
async fn requests_that_a_context_worker_aborted() {
    let world = World::alone(|context| context, |generation| generation, &[]).await;
    for reason in ["cancelled", "abort", "error", "timeout", "", "anything else"] {
        for stream in [true, false] {
            for body in [chat_body("aborted", stream), completions_body("aborted", stream)] {
                // an id says that a cache waits under it, whatever the reason says
                for (id, orphaned) in [(json!(7), Some(&1.0)), (json!(null), None)] {
                    let before = world.metrics().await;
                    let fault = json!({"on": "context", "set": {
                        "/choices/0/finish_reason": reason,
                        "/choices/0/disaggregated_params/ctx_request_id": id,
                    }});
                    let ask = world.ask(&body).fault(&fault);
                    called(&world, reason, &ask, CONTEXT).await.is_error(502, "context_aborted");
                    let counted = world.metrics().await.since(&before);
                    let orphans = counted.get("disagg_orphaned_handoffs_total{reason=\"failed\"}");
                    assert_eq!(orphans, orphaned, "{reason}");
                }
            }
        }
    }
    world.finish_with_orphans().await;
}

// === generation ===

#[tokio::test]
async fn generation_workers_that_cannot_be_reached() {
    let world = World::start(&[]).await;
    for body in [chat_body("lost", true), completions_body("lost", false)] {
        for how in ["fin", "rst"] {
            let fault = json!({"on": "generation", "cut": {"at": "head", "how": how}});
            let ask = world.ask(&body).fault(&fault);
            // never a second generation leg: the first may have been read
            called(&world, how, &ask, BOTH).await.is_error(503, "generation_unreachable");
        }
    }
    world.generation.shutdown().await;
    // the one that finds out may have spent a context run; from then on none is
    let ask = world.ask(&chat_body("nobody", true));
    world.send(&ask).await.is_error(503, "generation_unreachable");
    for body in [chat_body("nobody", true), completions_body("nobody", false)] {
        let error = called(&world, "nobody", &world.ask(&body), NEITHER).await;
        let error = error.is_error(503, "generation_unreachable");
        assert!(error["message"].as_str().unwrap().contains("generation worker"), "{error}");
        let passing = called(&world, "nobody", &Ask::of(&body), NEITHER).await;
        passing.is_error(503, "generation_unreachable");
    }
    world.finish_with_orphans().await;
}

#[tokio::test]
async fn generation_workers_that_are_too_slow() {
    let world = World::start(&["--generation-head-timeout", "150ms"]).await;
    let hang = json!({"on": "generation", "hang": "before_head"});
    for body in [chat_body("slow", true), completions_body("slow", false)] {
        let ask = world.ask(&body).fault(&hang);
        called(&world, "slow", &ask, BOTH).await.is_error(504, "generation_timeout");
        eventually("its connection is closed", || world.generation.state().open_requests == 0).await;
    }
    let ask = Ask::of(&chat_body("slow", true)).fault(&json!({"hang": "before_head"}));
    called(&world, "passing", &ask, (0, 1)).await.is_error(504, "generation_timeout");
    still_serves(&world).await;
    world.finish_with_orphans().await;
}

#[tokio::test]
async fn a_burst_of_large_refusals_leaves_nothing_behind() {
    let world = World::start(&[]).await;
    for on in ["context", "generation"] {
        let fault = json!({"on": on, "status": 400, "body": "z".repeat(1 << 20)});
        let fault = trtllm_sim::Fault::from_json(&fault.to_string()).unwrap().remove(0);
        let engine = if on == "context" { &world.context } else { &world.generation };
        engine.set_fault(fault);
        let mut client = Client::http1(world.data).await;
        for _ in 0..50 {
            assert_eq!(client.send(&world.ask(&chat_body("x", true))).await.status, 400);
        }
        engine.clear_faults();
        eventually("few connections are open", || engine.state().open_connections <= 2).await;
    }
    still_serves(&world).await;
    world.finish_with_orphans().await;
}
