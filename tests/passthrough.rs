//! Requests that no context worker was chosen for.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod common;

use common::{Answer, Ask, Client, Raw, World, chat_body, completions_body, members};
use http::Method;
use serde_json::{Value, json};
use trtllm_sim::expected_answer;

#[tokio::test]
async fn the_generation_worker_answers_by_itself() {
    for mode in ["guarded", "verbatim"] {
        let world = World::start(&["--passthrough", mode]).await;
        for two in [false, true] {
            let mut client =
                if two { Client::http2(world.data).await } else { Client::http1(world.data).await };
            for mut body in [chat_body("alone", true), completions_body("alone", true)] {
                for stream in [true, false] {
                    body["stream"] = json!(stream);
                    let ask = Ask::of(&body).header("x-request-id", "r1").header("accept-encoding", "br");
                    let reply = client.send(&ask).await;
                    Answer::of(&reply).is(&expected_answer(&body));
                    let alone = Client::http1(world.generation.addr()).await.send(&Ask::of(&body)).await;
                    assert_eq!(reply.comparable(), alone.comparable());
                    let seen = &world.generation_legs()[world.generation_legs().len() - 2];
                    assert_eq!(
                        (seen.header("x-request-id"), seen.header("accept-encoding")),
                        (Some("r1"), Some("br"))
                    );
                }
            }
            for (path, text) in
                [("/v1/models", "\"sim\""), ("/version", "1.3.0rc24"), ("/server_info?x=1", "max_batch")]
            {
                let reply = client.send(&Ask::get(path)).await;
                assert_eq!(reply.status, 200);
                assert!(reply.text().contains(text), "{}", reply.text());
            }
            assert_eq!(client.send(&Ask::get("/nothing/here")).await.status, 404);
            let head = client.send(&Ask::get("/v1/models").method(Method::HEAD)).await;
            assert_eq!((head.status.as_u16(), head.body.len()), (200, 0));
        }
        assert_eq!(world.context.state().connections, 0);
        world.finish().await;
    }
}

#[tokio::test]
async fn bodies_arrive_as_they_were_sent() {
    let odd = r#" {"model":"sim" ,"messages":[{"role":"user","content":"a\/b \ud83d\ude00"}],"seed":9007199254740993,"temperature":0.700000000000000000001}
"#;
    for mode in ["guarded", "verbatim"] {
        let world = World::start(&["--passthrough", mode]).await;
        for framing in ["length", "chunks"] {
            let ask = Ask::post("/v1/chat/completions?a=b", odd);
            let mut raw = Raw::connect(world.data).await;
            if framing == "length" {
                raw.write(ask.wire()).await;
            } else {
                // cut inside a character
                let at = odd.find("ud83d").unwrap();
                raw.write(ask.head("transfer-encoding: chunked")).await;
                for part in [&odd[..at], &odd[at..]] {
                    raw.write(format!("{:x}\r\n{part}\r\n", part.len())).await;
                }
                raw.write("0\r\n\r\n").await;
            }
            assert_eq!(raw.reply().await.status, 200);
            let seen = world.generation_legs().pop().unwrap();
            assert_eq!((seen.path.as_str(), &seen.body[..]), ("/v1/chat/completions?a=b", odd.as_bytes()));
        }
        // what is no JSON goes unread
        let form = Ask {
            headers: vec![("content-type".into(), "multipart/form-data; boundary=x".into())],
            ..Ask::post("/v1/files", "--x\r\n\u{0}")
        };
        assert_eq!(world.send(&form).await.status, 404);
        assert_eq!(world.generation_legs().pop().unwrap().body, form.body);
        world.finish().await;
    }
}

const FORBIDDEN: [(&str, &str); 6] = [
    (
        "disaggregated_params",
        r#"{"request_type":"generation_only","ctx_request_id":5,"encoded_opaque_state":"QUFB","ctx_info_endpoint":"tcp://127.0.0.1:1","first_gen_tokens":[1]}"#,
    ),
    (r"disaggregated\u005fparams", r#"{"request_type":"context_only"}"#),
    ("prompt_token_ids", "[9]"),
    ("prompt_token_ids_b64", "\"AAAA\""),
    ("injected_chat_template_kwargs", "{}"),
    ("conversation_params", r#"{"conversation_id":"c","subagent_affinity_id":"a"}"#),
];

fn forbidden() -> impl Iterator<Item = (&'static str, String)> {
    FORBIDDEN.iter().map(|(name, value)| {
        (*name, format!(r#"{{"model":"sim","messages":[{{"role":"user","content":"x"}}],"{name}":{value}}}"#))
    })
}

#[tokio::test]
async fn guarded_it_carries_no_handoff_fields() {
    let world = World::start(&[]).await;
    for (name, body) in forbidden() {
        for path in ["/v1/chat/completions", "/v1/completions", "/v1/responses"] {
            for kind in ["application/json", "application/vnd.x+json; charset=utf-8", "nonsense", ""] {
                let ask = Ask {
                    headers: vec![("content-type".into(), kind.into())],
                    ..Ask::post(path, body.clone())
                };
                let reply = Raw::asking(world.data, &ask).await.reply().await;
                reply.is_error(400, "handoff_fields_forbidden");
                assert_eq!(world.called(), (0, 0), "{name}");
            }
        }
    }
    let utf16: Vec<u8> = forbidden().next().unwrap().1.encode_utf16().flat_map(u16::to_le_bytes).collect();
    world.send(&Ask::post("/v1/chat/completions", utf16)).await.is_error(400, "invalid_request");
    world.send(&Ask::post("/v1/chat/completions", "\u{feff}{}")).await.is_error(400, "invalid_request");
    assert_eq!(world.called(), (0, 0));
    // members that only look like them, and what a worker alone can judge
    let mut body = chat_body("x", false);
    body["chat_template_kwargs"] = json!({"disaggregated_params": {"a": 1}, "prompt_token_ids": [1]});
    body["n"] = json!(2);
    assert_eq!(world.send(&Ask::of(&body)).await.status, 200);
    world.finish().await;
}

#[tokio::test]
async fn verbatim_it_carries_anything() {
    let world = World::start(&["--passthrough", "verbatim"]).await;
    for (name, body) in forbidden() {
        let reply = world.send(&Ask::post("/v1/chat/completions", body.clone())).await;
        assert_ne!(reply.status, 503, "{name}: {}", reply.text());
        assert_eq!(world.generation_legs().pop().unwrap().body, body.as_bytes());
    }
    // the handoff itself is as strict as ever
    let body = FORBIDDEN[2];
    let body = format!(r#"{{"messages":[],"{}":{}}}"#, body.0, body.1);
    world.send(&world.post("/v1/chat/completions", body)).await.is_error(400, "handoff_fields_forbidden");
    world.finish().await;
}

#[tokio::test]
async fn off_it_is_not_served() {
    let world = World::start(&["--passthrough", "off"]).await;
    for ask in
        [Ask::of(&chat_body("x", true)), Ask::get("/v1/models"), Ask::get("/version"), Ask::post("/x", "{}")]
    {
        world.send(&ask).await.is_error(404, "not_found");
    }
    assert_eq!(world.called(), (0, 0));
    for path in ["/health", "/ready"] {
        assert_eq!(world.send(&Ask::get(path)).await.status, 200);
    }
    let body = chat_body("handed off", true);
    Answer::of(&world.exchange(&body).await).is(&expected_answer(&body));
    world.finish().await;
}

#[tokio::test]
async fn its_own_probes_are_not_the_workers() {
    let world = World::start(&[]).await;
    let fault = json!({"on": "health", "status": 503});
    for path in ["/health", "/ready"] {
        let reply = world.send(&Ask::get(path).fault(&fault)).await;
        assert_eq!(reply.status, 200);
        assert_eq!(world.send(&Ask::get(path).method(Method::HEAD)).await.status, 200);
    }
    // another method is nobody's probe
    assert_eq!(world.send(&Ask::post("/health", "{}")).await.status, 405);
    world.finish().await;
}

#[tokio::test]
async fn a_non_streaming_answer_keeps_what_is_the_workers_to_say() {
    // nothing was handed over, so nothing is taken out
    let world = World::start(&[]).await;
    let reply = world.send(&Ask::of(&chat_body("x", false))).await;
    let keys: Vec<String> = members(&reply.body).into_keys().collect();
    assert!(keys.contains(&"prompt_token_ids".to_owned()), "{keys:?}");
    assert_eq!(reply.json()["prompt_token_ids"], Value::Null);
    world.finish().await;
}
