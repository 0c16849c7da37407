//! Group 4: what a context worker answers, and what comes of it.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use trtllm_sim::expected_answer;

use crate::common::{
    Answer, Ask, World, chat_body, completions_body, eventually, members,
    pair::{ANSWER, BOTH, CHAT, COMPLETIONS, EVENTS, JSON, Pair, body, handoff, params_of},
    worker::{Leg, Said, Worker, chunked, reply, request},
};

/// A member of the reply with another text for its value, or (`None`) without it.
fn changed(said: &str, member: &str, value: Option<&str>) -> String {
    let at = format!("\"{member}\":");
    let start = said.find(&at).unwrap_or_else(|| panic!("{member} is not in {said}"));
    let rest = &said[start + at.len()..];
    // up to the comma, or the end of the object, outside of brackets and strings
    let (mut depth, mut quoted) = (0, false);
    let end = rest
        .find(|c| {
            match c {
                '"' => quoted = !quoted,
                '[' | '{' if !quoted => depth += 1,
                ']' | '}' if !quoted => depth -= 1,
                _ => {}
            }
            depth < 0 || depth == 0 && !quoted && c == ','
        })
        .unwrap();
    match value {
        Some(value) => format!("{}{at}{value}{}", &said[..start], &rest[end..]),
        None => {
            let rest = rest[end..].trim_start_matches(',');
            let before = if rest.starts_with(['}', ']']) {
                said[..start].trim_end_matches(',')
            } else {
                &said[..start]
            };
            format!("{before}{rest}")
        }
    }
}

/// Answers with the usual handoff, changed.
fn answering(pair: &Pair, change: impl Fn(String) -> String + Send + 'static) {
    pair.context.answer(move |leg| reply(200, JSON, change(handoff(leg))));
}

#[tokio::test]
async fn b24_a_success_without_a_handoff_is_none() {
    const CANARY: &str = "CANARY";
    let pair = Pair::alone(&[]).await;
    let idle = pair.world.metrics().await.in_flight();
    type Change = Arc<dyn Fn(String) -> String + Send + Sync>;
    let whole = |text: &'static str| -> (String, Change) {
        (text.chars().take(40).collect(), Arc::new(move |_| text.to_owned()))
    };
    let set = |member: &'static str, value: &'static str| -> (String, Change) {
        (format!("{member}: {value}"), Arc::new(move |said| changed(&said, member, Some(value))))
    };
    let lacks = |member: &'static str| -> (String, Change) {
        (format!("no {member}"), Arc::new(move |said| changed(&said, member, None)))
    };
    let twice = |member: &'static str| -> (String, Change) {
        let found = format!("\"{member}\":");
        let again = format!("\"{member}\":null,\"{member}\":");
        (format!("{member} twice"), Arc::new(move |said| said.replacen(&found, &again, 1)))
    };
    let mut table: Vec<(String, Change)> = vec![
        whole(""),
        whole("null"),
        whole("[]"),
        whole("\"CANARY\""),
        whole("CANARY"),
        whole("{}"),
        whole("{\"error\":{\"message\":\"CANARY\"}}"),
        whole("{\"detail\":\"CANARY\"}"),
        whole("data: {\"choices\":[]}\n\n"),
        ("cut".into(), Arc::new(|said| said[..said.len() - 5].to_owned())),
        ("two".into(), Arc::new(|said| format!("{said}{{}}"))),
        ("a byte-order mark".into(), Arc::new(|said| format!("\u{feff}{said}"))),
        ("deep".into(), Arc::new(|said| changed(&said, "usage", Some(&"[".repeat(100_000))))),
        ("error beside".into(), Arc::new(|said| said.replacen('{', "{\"error\":\"CANARY\",", 1))),
        (
            "two choices".into(),
            Arc::new(|said| {
                let choice = said.split("\"choices\":[").nth(1).unwrap().split("],\"usage\"").next().unwrap();
                said.replacen(choice, &format!("{choice},{choice}"), 1)
            }),
        ),
        set("choices", "[]"),
        set("choices", "{}"),
        set("choices", "null"),
        set("choices", "\"CANARY\""),
        set("choices", "[null]"),
        set("choices", "[[]]"),
        lacks("choices"),
        twice("choices"),
        set("finish_reason", "7"),
        set("finish_reason", "[]"),
        twice("finish_reason"),
        set("disaggregated_params", "null"),
        set("disaggregated_params", "\"CANARY\""),
        set("disaggregated_params", "[]"),
        set("disaggregated_params", "[{}]"),
        set("disaggregated_params", "{}"),
        set("disaggregated_params", "5"),
        lacks("disaggregated_params"),
        twice("disaggregated_params"),
    ];
    for (member, values) in [
        (
            "ctx_request_id",
            &["null", "\"7\"", "1.5", "-1", "1e18", "7.0", "true", "[7]", "18446744073709551616", "{}"][..],
        ),
        (
            "first_gen_tokens",
            &[
                "null",
                "[]",
                "[ ]",
                "[\"CANARY\"]",
                "[1.5]",
                "[5.0]",
                "[true]",
                "[null]",
                "[[5]]",
                "[-1]",
                "5",
                "{}",
                "\"5\"",
            ],
        ),
        ("disagg_request_id", &["\"7\"", "1.5", "1e18", "-1", "true", "[]", "18446744073709551616"]),
        ("encoded_opaque_state", &["5", "{}", "[]", "true", "[\"CANARY\"]"]),
        ("ctx_info_endpoint", &["[\"tcp://CANARY:1\"]", "5", "{}", "false"]),
        (
            "prompt_token_ids",
            &[
                "[]",
                "[[]]",
                "[\"CANARY\"]",
                "[1.5]",
                "[null]",
                "{}",
                "\"CANARY\"",
                "5",
                "[[1],[2]]",
                "[[[1]]]",
                "[1,[2]]",
            ],
        ),
    ] {
        table.extend(values.iter().map(|value| set(member, value)));
        table.push(twice(member));
        if !["disagg_request_id", "encoded_opaque_state", "ctx_info_endpoint", "prompt_token_ids"]
            .contains(&member)
        {
            table.push(lacks(member));
        }
    }
    for (what, change) in table {
        for path in BOTH {
            for stream in [false, true] {
                let change = change.clone();
                answering(&pair, move |said| change(said));
                let answer = pair.exchange(path, body(path, &format!(r#""stream":{stream}"#))).await;
                let error = answer.is_error(502, "invalid_context_reply");
                let text = error.to_string();
                for internal in [CANARY, "b3BhcXVl", "10.0.0.9"] {
                    assert!(!text.contains(internal), "{what}: {text}");
                }
                assert_eq!(pair.called(), (1, 0), "{what}");
            }
        }
    }
    // state and endpoint: either is enough, neither is not
    for (state, endpoint, usable) in [
        ("null", "null", false),
        ("\"\"", "\"\"", false),
        ("null", "\"tcp://a:1\"", true),
        ("\"AA\"", "null", true),
    ] {
        for path in BOTH {
            answering(&pair, move |said| {
                let said = changed(&said, "encoded_opaque_state", Some(state));
                changed(&said, "ctx_info_endpoint", Some(endpoint))
            });
            let answer = pair.exchange(path, body(path, "")).await;
            assert_eq!(answer.status.as_u16(), if usable { 200 } else { 502 }, "{state} {endpoint}");
            assert_eq!(pair.called(), (1, usize::from(usable)));
        }
    }
    // nothing is left of any of them
    assert_eq!(pair.world.idle().await.in_flight(), idle);
    // no finish reason makes no answer of one token; with a whole handoff it is one
    for path in BOTH {
        for reason in [Some("null"), None] {
            answering(&pair, move |said| changed(&said, "finish_reason", reason));
            assert_eq!(pair.exchange(path, body(path, "")).await.status, 200);
            assert_eq!(pair.called(), (1, 1));
            answering(&pair, move |said| {
                changed(&changed(&said, "finish_reason", reason), "ctx_request_id", Some("null"))
            });
            pair.exchange(path, body(path, "")).await.is_error(502, "invalid_context_reply");
            assert_eq!(pair.called(), (1, 0));
        }
    }
    // a status or a type that is no reply of an engine
    for wire in [
        "204 x\r\ncontent-length: 0",
        "301 x\r\nlocation: /v1/completions\r\ncontent-length: 0",
        "307 x\r\nlocation: /x\r\ncontent-length: 0",
        "304 x",
    ] {
        pair.context.says(Said::Bytes(format!("HTTP/1.1 {wire}\r\n\r\n").into_bytes()));
        pair.exchange(CHAT, body(CHAT, "")).await.is_error(502, "invalid_context_reply");
        assert_eq!(pair.called(), (1, 0), "{wire}");
    }
    for kind in [EVENTS, "Text/Event-Stream; charset=utf-8"] {
        pair.context.answer(move |leg| reply(200, kind, handoff(leg)));
        pair.exchange(CHAT, body(CHAT, "")).await.is_error(502, "invalid_context_reply");
        assert_eq!(pair.called(), (1, 0), "{kind}");
    }
    // and one that was compressed all the same
    pair.context.answer(|_| {
        let Said::Bytes(wire) = reply(200, JSON, b"\x1f\x8b\x08\x00CANARY") else { panic!("a reply") };
        let head = b"HTTP/1.1 200 x\r\n";
        Said::Bytes([&head[..], b"content-encoding: gzip\r\n", &wire[head.len()..]].concat())
    });
    let error = pair.exchange(CHAT, body(CHAT, "")).await.is_error(502, "invalid_context_reply");
    assert!(error["message"].as_str().unwrap().contains("compressed"), "{error}");
    pair.finish().await;
}

#[tokio::test]
async fn b26_a_refusal_of_the_context_worker_keeps_its_reason() {
    let world = World::start(&["--context-retries", "3"]).await;
    let reason = "prompt length (9000) exceeds max_seq_len (8192)";
    for status in [400, 401, 403, 404, 409, 422, 429] {
        for (refusal, message) in [
            (
                json!({"object": "error", "message": reason, "type": "BadRequestError", "param": null, "code": status}),
                Some(reason),
            ),
            (json!({"error": {"message": reason, "type": "x"}}), Some(reason)),
            (json!({"error": reason}), Some(reason)),
            (json!({"detail": reason}), Some(reason)),
            (
                json!({"detail": [{"loc": ["body", "x"], "msg": "Extra inputs are not permitted"}]}),
                Some("x: Extra inputs are not permitted"),
            ),
            (json!("not JSON at all"), Some("not JSON at all")),
            (json!("<html>no</html>"), None),
            (json!(""), None),
            (json!({"error": null}), None),
            (json!({"error": {"disaggregated_params": "CANARY"}}), None),
            (json!({"error": "bad disaggregated_params CANARY"}), None),
        ] {
            for body in [chat_body("refused", status % 2 == 0), completions_body("refused", status % 2 == 1)]
            {
                world.forget();
                let headers = if status == 429 { json!({"retry-after": "7"}) } else { json!({}) };
                let fault = json!({"on": "context", "status": status, "body": refusal, "headers": headers});
                let reply = world.send(&world.ask(&body).fault(&fault)).await;
                let error = reply.is_error(status, "context_rejected");
                assert_eq!(reply.header("retry-after"), (status == 429).then_some("7"));
                let said = error["message"].as_str().unwrap();
                match message {
                    Some(message) => assert!(said.contains(message), "{said}"),
                    None => assert_eq!(said, "the context worker refused the request"),
                }
                assert_eq!(world.called(), (1, 0), "a refusal is not asked for again");
            }
        }
    }
    // the worker's own refusal of a member that it does not know
    for mut body in [chat_body("refused", true), completions_body("refused", false)] {
        world.forget();
        body["store"] = json!(true);
        let error = world.exchange(&body).await.is_error(400, "context_rejected");
        assert!(error["message"].as_str().unwrap().contains("store"), "{error}");
        assert_eq!(world.called(), (1, 0));
    }
    world.finish().await;
}

#[tokio::test]
async fn b27_a_failed_context_step_is_no_local_run() {
    let world = World::start(&["--context-retries", "3"]).await;
    for (worker, client) in [(500, 502), (501, 502), (502, 502), (503, 503), (504, 502), (599, 502)] {
        for failure in [json!({"error": "SECRET host 10.0.0.7"}), json!("Internal Server Error SECRET")] {
            for body in [chat_body("failed", true), completions_body("failed", false)] {
                world.forget();
                let fault = json!({"on": "context", "status": worker, "headers": {"retry-after": "9"}, "body": failure});
                let reply = world.send(&world.ask(&body).fault(&fault)).await;
                let error = reply.is_error(client, "context_failed");
                assert!(error["message"].as_str().unwrap().contains("context worker"), "{error}");
                assert!(!reply.text().contains("SECRET"));
                assert_eq!(reply.header("retry-after"), Some("9"));
                assert_eq!(world.called(), (1, 0), "{worker}");
            }
        }
    }
    world.forget();
    world.context.shutdown().await;
    for body in [chat_body("nobody", true), completions_body("nobody", false)] {
        let error = world.exchange(&body).await.is_error(502, "context_unreachable");
        assert!(error["message"].as_str().unwrap().contains("context worker"), "{error}");
        assert_eq!(world.called(), (0, 0));
    }
    world.finish().await;
}

/// The reply up to here, and the end of the connection.
fn broken(leg: &Leg, framing: &str, body: impl AsRef<[u8]>) -> Said {
    let _ = leg;
    let head = format!("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n{framing}\r\n\r\n");
    Said::Last([head.as_bytes(), body.as_ref()].concat())
}

#[tokio::test]
async fn b29_half_a_reply_is_no_reply() {
    type Broken = fn(&Leg) -> Said;
    let table: [(&str, Broken, &str); 12] = [
        (
            "a part of the length",
            |leg| broken(leg, "content-length: 900", &handoff(leg)[..300]),
            "context_unreachable",
        ),
        (
            "whole, but promised more",
            |leg| broken(leg, "content-length: 9000", handoff(leg)),
            "context_unreachable",
        ),
        (
            "cut inside a chunk",
            |leg| broken(leg, "transfer-encoding: chunked", format!("400\r\n{}", &handoff(leg)[..200])),
            "context_unreachable",
        ),
        (
            "whole chunks, no last one",
            |leg| {
                let said = handoff(leg);
                broken(leg, "transfer-encoding: chunked", format!("{:x}\r\n{said}\r\n", said.len()))
            },
            "context_unreachable",
        ),
        (
            "a last chunk without its end",
            |leg| {
                let said = handoff(leg);
                broken(leg, "transfer-encoding: chunked", format!("{:x}\r\n{said}\r\n0\r\n", said.len()))
            },
            "context_unreachable",
        ),
        (
            "no chunk size",
            |leg| broken(leg, "transfer-encoding: chunked", format!("zz\r\n{}", handoff(leg))),
            "context_unreachable",
        ),
        ("a head alone", |leg| broken(leg, "content-length: 900", ""), "context_unreachable"),
        ("a head alone, chunks", |leg| broken(leg, "transfer-encoding: chunked", ""), "context_unreachable"),
        ("half a head", |_| Said::Last(b"HTTP/1.1 200 OK\r\ncontent-ty".to_vec()), "context_unreachable"),
        ("one byte", |_| Said::Last(b"H".to_vec()), "context_unreachable"),
        ("no body", |leg| broken(leg, "content-length: 0", ""), "invalid_context_reply"),
        (
            "cut JSON in a whole message",
            |leg| {
                let said = handoff(leg);
                broken(leg, &format!("content-length: {}", said.len() - 9), &said[..said.len() - 9])
            },
            "invalid_context_reply",
        ),
    ];
    let pair = Pair::start(&["--context-retries", "3"]).await;
    for (what, said, code) in table {
        for path in BOTH {
            for stream in [true, false] {
                pair.context.answer(said);
                let answer = pair.exchange(path, body(path, &format!(r#""stream":{stream}"#))).await;
                answer.is_error(502, code);
                assert_eq!(
                    pair.called(),
                    (1, 0),
                    "{what}: bytes were seen, so the work was done, and is not asked for again"
                );
                // what is left of the connection is not used
                pair.context.answer(|leg| reply(200, JSON, handoff(leg)));
                assert_eq!(pair.exchange(path, body(path, "")).await.status, 200);
                assert_eq!(pair.called(), (1, 1));
            }
        }
    }
    // without a length and without chunks the end of the connection is the end of the reply
    pair.context.answer(|leg| broken(leg, "x: y", handoff(leg)));
    assert_eq!(pair.exchange(CHAT, body(CHAT, "")).await.status, 200);
    pair.context.answer(|leg| broken(leg, "x: y", &handoff(leg)[..400]));
    pair.exchange(CHAT, body(CHAT, "")).await.is_error(502, "invalid_context_reply");
    pair.finish().await;
    // the same of an engine that is cut off by its own host
    let world = World::start(&["--context-retries", "3"]).await;
    for how in ["fin", "rst", "garbage"] {
        for bytes in [0, 1, 300] {
            world.forget();
            let fault = json!({"on": "context", "cut": {"at": "body", "after_bytes": bytes, "how": how}});
            let reply = world.send(&world.ask(&chat_body("cut", bytes == 0)).fault(&fault)).await;
            reply.is_error(502, "context_unreachable");
            assert_eq!(world.called(), (1, 0), "{how} after {bytes}");
        }
    }
    world.finish_with_orphans().await;
}

#[tokio::test]
async fn b31_large_replies_pass_and_endless_ones_do_not() {
    let world = World::of(|context| context.opaque_bytes(300 << 10), |generation| generation, &[]).await;
    let ids: Vec<i64> = (0..200_000).map(|n| 1 + n % 30_000).collect();
    for (length, body) in [
        (800_000, chat_body(&"word".repeat(200_000), true)),
        (ids.len(), json!({"model": "sim", "prompt": ids, "max_tokens": 3})),
    ] {
        let reply = world.exchange(&body).await;
        // a state or a token that had changed on its way would not have been served
        Answer::of(&reply).is(&expected_answer(&body));
        let leg = world.generation_legs().pop().unwrap();
        assert!(leg.body.len() > length);
        let sent = members(&leg.body);
        let tokens = sent.get("prompt_token_ids").unwrap_or_else(|| &sent["prompt"]);
        let tokens: Vec<i64> = serde_json::from_str(tokens).unwrap();
        assert_eq!(tokens, expected_answer(&body).prompt_token_ids);
    }
    world.finish().await;

    // one that is over the cap: said to be, or found to be
    let cap = 1 << 20;
    let sent = Arc::new(AtomicUsize::new(0));
    let counts = sent.clone();
    let worker = Worker::start(move |mut stream| {
        let sent = counts.clone();
        async move {
            let (head, _) = request(&mut stream).await;
            let framing = if head.contains("x-length") {
                "content-length: 2147483648"
            } else {
                "transfer-encoding: chunked"
            };
            let head = format!("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n{framing}\r\n\r\n");
            stream.write_all(head.as_bytes()).await.unwrap();
            let piece = [b"8000\r\n{".as_slice(), &[b'a'; 0x7fff], b"\r\n"].concat();
            while stream.write_all(&piece).await.is_ok() {
                sent.fetch_add(piece.len(), Ordering::Relaxed);
            }
            sent.fetch_add(1 << 40, Ordering::Relaxed); // it was closed
        }
    });
    let pair = Pair::start(&["--max-reply-bytes", "1MiB"]).await;
    for path in BOTH {
        for length in [true, false] {
            sent.store(0, Ordering::Relaxed);
            let ask = Ask::post(path, body(path, "")).via(&worker.address.to_string());
            let ask = if length { ask.header("x-length", "1") } else { ask };
            pair.send(&ask).await.is_error(502, "context_reply_too_large");
            assert_eq!(pair.called(), (0, 0));
            eventually("the worker's connection is closed", || sent.load(Ordering::Relaxed) >= 1 << 40).await;
            // what was taken is the cap and what fits into buffers on the way
            let taken = sent.load(Ordering::Relaxed) - (1 << 40);
            assert!(taken < cap + (12 << 20), "{taken} bytes were taken");
        }
    }
    // up to the cap it is as good as any
    for (over, status) in [(0, 200), (1, 502)] {
        pair.context.answer(move |leg| {
            let said = handoff(leg);
            let padding = " ".repeat(cap - said.len() + over);
            reply(200, JSON, format!("{said}{padding}"))
        });
        assert_eq!(pair.exchange(CHAT, body(CHAT, "")).await.status, status);
    }
    pair.finish().await;
}

#[tokio::test]
async fn b32_replies_without_the_prompts_ids() {
    let pair = Pair::start(&[]).await;
    for value in [Some("null"), None] {
        answering(&pair, move |said| changed(&said, "prompt_token_ids", value));
        // the generation worker reads the messages again; it must not be sent a null for a list
        let answer = pair.exchange(CHAT, body(CHAT, r#""stream":true"#)).await;
        assert_eq!(answer.status, 200);
        let (_, generation) = pair.legs();
        let leg = members(&generation.body);
        assert!(
            !leg.contains_key("prompt_token_ids") && !leg.contains_key("prompt_token_ids_b64"),
            "{leg:?}"
        );
        assert_eq!(leg["messages"], r#"[{"role":"user","content":"hi"}]"#);
        // a prompt read again could have another length
        pair.exchange(COMPLETIONS, body(COMPLETIONS, "")).await.is_error(502, "invalid_context_reply");
        assert_eq!(pair.called(), (1, 0));
    }
    // in another form, where the generation worker knows it
    for (release, value, sent) in [("1.3.0rc24", "\"AQAAAA==\"", true), ("1.3.0rc13", "\"AQAAAA==\"", false)]
    {
        let pair = Pair::of_release(release, &[]).await;
        answering(&pair, move |said| {
            changed(&said, "prompt_token_ids", Some("null")).replacen(
                '{',
                &format!("{{\"prompt_token_ids_b64\":{value},"),
                1,
            )
        });
        assert_eq!(pair.exchange(CHAT, body(CHAT, "")).await.status, 200);
        let leg = members(&pair.legs().1.body);
        assert_eq!(leg.get("prompt_token_ids_b64").map(String::as_str), sent.then_some(value), "{release}");
        assert!(!leg.contains_key("prompt_token_ids"));
        pair.exchange(COMPLETIONS, body(COMPLETIONS, "")).await.is_error(502, "invalid_context_reply");
        pair.finish().await;
    }
    // nested once it is a prompt of completions, and goes on as it is; a chat has no such form
    for nested in ["[[1,2,3]]", "[ [1,\n2] ]"] {
        answering(&pair, move |said| changed(&said, "prompt_token_ids", Some(nested)));
        assert_eq!(pair.exchange(COMPLETIONS, body(COMPLETIONS, "")).await.status, 200);
        assert_eq!(members(&pair.legs().1.body)["prompt"], nested);
        pair.exchange(CHAT, body(CHAT, "")).await.is_error(502, "invalid_context_reply");
        assert_eq!(pair.called(), (1, 0));
    }
    for path in BOTH {
        answering(&pair, |said| changed(&said, "prompt_token_ids", Some("[]")));
        pair.exchange(path, body(path, "")).await.is_error(502, "invalid_context_reply");
        assert_eq!(pair.called(), (1, 0));
    }
    pair.finish().await;
    // and an engine makes the same answer of it
    let world = World::start(&[]).await;
    for fault in [json!({"remove": ["/prompt_token_ids"]}), json!({"set": {"/prompt_token_ids": null}})] {
        let mut fault = fault;
        fault["on"] = json!("context");
        let body = chat_body("no ids", true);
        Answer::of(&world.send(&world.ask(&body).fault(&fault)).await).is(&expected_answer(&body));
    }
    world.finish().await;
}

#[tokio::test]
async fn b33_members_that_a_newer_worker_adds() {
    let more = r#""resolved_thinking":true,"draft_tokens":[5, 6],"future":{"x":[1,{"y":null}]},"future_list":[],"future_zero":0,"":-0.10,"fut\u0075re2":"\/","null":null"#;
    let known = ["draft_tokens"];
    let unknown = ["resolved_thinking", "future", "future_list", "future_zero", "", "future2"];
    for (release, kept) in [("9.9.9", true), ("1.4.0rc1", true), ("1.3.0rc24", false), ("1.3.0rc5", false)] {
        let pair = Pair::of_release(release, &[]).await;
        for path in BOTH {
            answering(&pair, move |said| said.replacen("\"draft_tokens\":null", more, 1));
            assert_eq!(pair.exchange(path, body(path, "")).await.status, 200);
            let (context, generation) = pair.legs();
            let mut params = params_of(&generation);
            let sent = members(format!("{{{more}}}").as_bytes());
            for member in known.iter().chain(&unknown) {
                let expected = (kept || known.contains(member)).then(|| sent[*member].clone());
                assert_eq!(params.remove(*member), expected, "{member} to {release}");
            }
            // all else is what the reply had, without its nulls, and what the sidecar has to say
            let said = members(handoff(&context).as_bytes())["choices"].clone();
            let said: Value = serde_json::from_str(&said).unwrap();
            let said = members(said[0]["disaggregated_params"].to_string().as_bytes());
            for (member, value) in said {
                match member.as_str() {
                    "request_type" => assert_eq!(params.remove(&member).unwrap(), "\"generation_only\""),
                    _ if value == "null" => {}
                    _ => assert_eq!(params.remove(&member), Some(value), "{member}"),
                }
            }
            params.remove("ctx_usage");
            assert!(params.is_empty(), "{params:?}");
        }
        pair.finish().await;
    }
    // a worker that does not know a member refuses it, and would have lost the handoff
    for (release, kept) in [("1.3.0rc24", false), ("9.9.9", true)] {
        let world = World::of(|c| c.release(release), |g| g.release(release), &[]).await;
        for body in [chat_body("future", true), completions_body("future", false)] {
            let set = json!({"on": "context", "set": {"/choices/0/disaggregated_params/future": {"x": [1]}}});
            let reply = world.send(&world.ask(&body).fault(&set)).await;
            if kept {
                assert_eq!(reply.status, 400, "a simulated engine knows no future");
            } else {
                Answer::of(&reply).is(&expected_answer(&body));
            }
        }
        world.finish_with_orphans().await;
    }
}

#[tokio::test]
async fn b34_the_usage_of_the_context_step_goes_on() {
    let pair = Pair::start(&[]).await;
    for path in BOTH {
        for (usage, told) in [
            (
                r#"{"prompt_tokens":3,"completion_tokens":1,"total_tokens":4,"prompt_tokens_details":{"cached_tokens":1}}"#,
                Some(
                    r#"{"prompt_tokens":3,"total_tokens":4,"completion_tokens":1,"prompt_tokens_details":{"cached_tokens":1}}"#,
                ),
            ),
            (
                r#"{"prompt_tokens":3,"x":1,"prompt_tokens_details":{"cached_tokens":null,"y":2}}"#,
                Some(r#"{"prompt_tokens":3}"#),
            ),
            (r#"{"prompt_tokens":null}"#, None),
            ("null", None),
        ] {
            for asked in [true, false] {
                answering(&pair, move |said| changed(&said, "usage", Some(usage)));
                // the events of the generation worker, with usage or without, are the client's, byte for byte
                let events: Vec<_> =
                    ANSWER.iter().filter(|event| asked || !event.contains("usage")).copied().collect();
                let wire = events.clone();
                pair.generation.answer(move |_| chunked(200, EVENTS, &wire));
                let options = if asked { r#","stream_options":{"include_usage":true}"# } else { "" };
                let answer = pair.exchange(path, body(path, &format!(r#""stream":true{options}"#))).await;
                assert_eq!((answer.status.as_u16(), answer.text()), (200, events.concat()));
                let told = told.map(str::to_owned);
                assert_eq!(params_of(&pair.legs().1).get("ctx_usage"), told.as_ref(), "{usage}");
            }
        }
    }
    pair.finish().await;
    // the release decides: tests/versions.rs has every pair of them, with what the engine then counts
    for (release, told) in [("1.3.0rc5", false), ("1.3.0rc13", false), ("1.3.0rc22", true), ("9.9.9", true)] {
        let pair = Pair::of_release(release, &[]).await;
        assert_eq!(pair.exchange(CHAT, body(CHAT, "")).await.status, 200);
        assert_eq!(params_of(&pair.legs().1).contains_key("ctx_usage"), told, "{release}");
        pair.finish().await;
    }
    // what the client is then told is what the context worker counted: a quarter of the prompt was cached
    let world = World::start(&[]).await;
    for mut body in
        [chat_body("usage of the first step", true), completions_body("usage of the first step", true)]
    {
        body["stream_options"] = json!({"include_usage": true});
        let answer = Answer::of(&world.exchange(&body).await);
        let prompt = expected_answer(&body).prompt_token_ids.len();
        assert_eq!(answer.usage["prompt_tokens"], prompt);
        assert_eq!(answer.usage["prompt_tokens_details"]["cached_tokens"], prompt / 4);
        assert_eq!(answer.usage["completion_tokens"], 12);
    }
    world.finish().await;
}
