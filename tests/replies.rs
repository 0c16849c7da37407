//! What a client sees of a generation worker's reply that is no stream: the worker's bytes, without what is internal.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod common;

use common::{
    Ask, Client, End, Raw, Reply, World, chat_body, completions_body,
    pair::{ANSWER, BOTH, CHAT, EVENTS, JSON, Pair, STATE, body},
    worker::{Said, chunked, reply},
};
use http::Method;
use serde_json::json;

/// A reply and what is to be seen of it, from one text: what stands between `⟦` and `⟧` is to be taken out.
fn marked(text: &str) -> (String, String) {
    let (mut whole, mut seen) = (String::new(), String::new());
    for (number, part) in text.split(['⟦', '⟧']).enumerate() {
        whole.push_str(part);
        if number % 2 == 0 {
            seen.push_str(part);
        }
    }
    (whole, seen)
}

/// The reply in chunks that end where nothing ends.
fn in_pieces(status: u16, kind: &str, text: &str) -> Said {
    chunked(status, kind, text.as_bytes().chunks(7))
}

async fn clients(pair: &Pair, ask: &Ask) -> [Reply; 2] {
    [pair.send(ask).await, Client::http2(pair.world.data).await.send(ask).await]
}

#[tokio::test]
async fn whole_replies_lose_what_is_internal_and_nothing_else() {
    let pair = Pair::start(&[]).await;
    for text in [
        // between others, before them, behind them, alone
        r#"{"id":"g","choices":[{"index":0⟦,"disaggregated_params":{"a":[1,{"b":"}"}]}⟧,"x":1.0}]⟦,"prompt_token_ids":[1,2]⟧,"usage":{}}"#,
        r#"{⟦"prompt_token_ids":[1],⟧"choices":[{⟦"disaggregated_params":null,⟧"index":0}]}"#,
        r#"{"choices":[{"index":0⟦,"disaggregated_params":{}⟧}]⟦,"prompt_token_ids":null,"prompt_token_ids_b64":"AA"⟧}"#,
        r#"{"choices":[{⟦"disaggregated_params":"x"⟧}]}"#,
        r#"{⟦"prompt_token_ids":[]⟧}"#,
        // with white space of every kind around
        "\r\n{ ⟦\"prompt_token_ids\" : [ 1 ,\t2 ] ,\n ⟧\"id\" :\t1e2 ,\n\n\"choices\" : [\r\n { \"index\" : 0⟦ ,\n \"disaggregated_params\" : { }⟧ , \"x\":[ ] } ]⟦\n, \"prompt_token_ids_b64\" : null⟧ } \n",
        "{ ⟦\"prompt_token_ids\":null⟧ }",
        // several choices, and some that are none
        r#"{"choices":[{"index":0⟦,"disaggregated_params":1⟧}, {"index":1} ,5,null,[],{⟦"disaggregated_params":2,⟧"index":3}]}"#,
        // keys that are spelt otherwise, and repeated ones: none of them stays
        r#"{"choices":[{⟦"disaggregated\u005fparams":1,⟧"a":1⟦,"disaggregated_params":2⟧,"b":2⟦,"\u0064isaggregated_params":3⟧}]⟦,"prompt_token\u005fids":[1],"prompt_token_ids":[2]⟧}"#,
        // what else is there twice is the worker's
        r#"{"id":1,"id":2,"choices":[{"index":0,"index":1⟦,"disaggregated_params":1⟧,"x":{"a":1,"a":2}}],"\u0069d":3}"#,
        // the same names in other places, and as text
        r#"{"choices":[{"message":{"disaggregated_params":1,"prompt_token_ids":[1],"content":"\"disaggregated_params\":{}","tool_calls":[{"function":{"name":"prompt_token_ids","arguments":"{\"disaggregated_params\":{\"a\":1}}"}}]},"logprobs":{"content":[{"prompt_token_ids":[1],"disaggregated_params":null}]},"prompt_token_ids":[1],"token_ids":[2]⟦,"disaggregated_params":1⟧}],"usage":{"prompt_token_ids":[1]},"disaggregated_params":{"b":1}}"#,
        r#"{"Prompt_Token_Ids":[1],"prompt_token_ids ":2,"choices":[{"disaggregated_param":1}]⟦,"prompt_token_ids":[3]⟧}"#,
        // numbers, strings and depth as they are written
        r#"{"created":17900000000000000001,"x":-0.10E+5,"y":1e400,"s":"\u00e9\/ é \ud83d 😀 \u0000","z":[[[[[[[[{}]]]]]]]],"":null,"$serde_json::private::RawValue":"1"⟦,"prompt_token_ids":[1]⟧}"#,
        // nothing to take out: the very same bytes, whatever they are
        " { \"choices\" : [ { \"index\":0 , \"text\":\"disaggregated_params\" } ] }\n",
        r#"{"choices":null,"error":"prompt_token_ids"}"#,
        r#"{"choices":{"disaggregated_params":1}}"#,
        r#"{"disaggregated_params":1}"#,
        "[{\"prompt_token_ids\":[1]}]",
        "null",
        "not JSON, prompt_token_ids",
        r#"{"prompt_token_ids":[1]"#,
        r#"{"prompt_token_ids":[1]}{}"#,
        "\u{feff}{\"prompt_token_ids\":[1]}",
        "",
    ] {
        let (whole, seen) = marked(text);
        for path in BOTH {
            for (status, kind) in [(200, JSON), (201, "application/json; charset=utf-8"), (200, "text/plain")]
            {
                for pieces in [false, true] {
                    let whole = whole.clone();
                    let said = move |_: &common::worker::Leg| {
                        if pieces { in_pieces(status, kind, &whole) } else { reply(status, kind, &whole) }
                    };
                    pair.generation.answer(said);
                    // a client that asked for a stream gets what the worker made of it
                    for stream in ["false", "true"] {
                        let ask = pair.ask(path, body(path, &format!(r#""stream":{stream}"#)));
                        for answer in clients(&pair, &ask).await {
                            assert_eq!((answer.status.as_u16(), answer.end), (status, End::Complete));
                            assert_eq!(answer.text(), seen, "{whole}", whole = marked(text).0);
                            assert_eq!(
                                answer.header("content-length"),
                                Some(seen.len().to_string().as_str())
                            );
                            assert_eq!(answer.header("transfer-encoding"), None);
                            assert_eq!(answer.header("content-type"), Some(kind));
                        }
                    }
                }
            }
        }
    }
    pair.finish().await;
}

#[tokio::test]
async fn a_head_tells_the_length_of_what_would_come() {
    let pair = Pair::start(&[]).await;
    // of what passes through: the worker's own, since nothing is taken out of it
    pair.generation.says(Said::Bytes(
        format!("HTTP/1.1 200 x\r\ncontent-type: {JSON}\r\ncontent-length: 1234\r\n\r\n").into_bytes(),
    ));
    let head = Ask::get("/v1/models").method(Method::HEAD);
    for answer in clients(&pair, &head).await {
        assert_eq!((answer.status.as_u16(), answer.header("content-length")), (200, Some("1234")));
        assert_eq!((answer.body.len(), answer.end), (0, End::Complete));
    }
    // of an error of the sidecar: that of its body
    for (with, without) in clients(&pair, &Ask::get(CHAT).via("127.0.0.1:1"))
        .await
        .iter()
        .zip(clients(&pair, &Ask::get(CHAT).method(Method::HEAD).via("127.0.0.1:1")).await)
    {
        with.is_error(501, "unsupported_endpoint");
        assert_eq!((without.status.as_u16(), without.body.len()), (501, 0));
        assert_eq!(without.header("content-length"), Some(with.body.len().to_string().as_str()));
    }
    // and the connection serves on
    let mut raw = Raw::connect(pair.world.data).await;
    for _ in 0..2 {
        raw.write(head.wire()).await;
        assert_eq!(raw.head().await.0, 200);
    }
    pair.finish().await;
}

#[tokio::test]
async fn the_workers_type_decides_what_a_stream_is() {
    let pair = Pair::start(&[]).await;
    // an event stream that nobody asked for is one all the same: relayed as it comes, whatever is in it
    let odd = "data: {\"prompt_token_ids\":[1]}\n\n";
    for path in BOTH {
        for (stream, kind) in [("false", EVENTS), ("true", "Text/Event-Stream; charset=utf-8")] {
            for events in [&ANSWER[..], &[odd, ANSWER[4]]] {
                let wire: Vec<String> = events.iter().map(|event| (*event).to_owned()).collect();
                pair.generation.answer(move |_| chunked(200, kind, &wire));
                let answer = pair.exchange(path, body(path, &format!(r#""stream":{stream}"#))).await;
                assert_eq!(answer.text(), events.concat());
                assert_eq!(
                    (answer.header("content-type"), answer.header("content-length")),
                    (Some(kind), None)
                );
            }
        }
    }
    pair.finish().await;
}

// === refusals ===

/// With more headers than the type, before it.
fn headed(said: Said, headers: &str) -> Said {
    let Said::Bytes(wire) = said else { panic!("a reply") };
    let at = wire.windows(2).position(|two| two == b"\r\n").unwrap() + 2;
    Said::Bytes([&wire[..at], headers.as_bytes(), &wire[at..]].concat())
}

#[tokio::test]
async fn small_harmless_refusals_are_the_workers_own_bytes() {
    let pair = Pair::alone(&[]).await;
    let most = format!("{{\"error\":\"{}\"}}", "x".repeat((8 << 10) - 12));
    assert_eq!(most.len(), 8 << 10);
    for status in [301, 307, 400, 401, 403, 404, 405, 409, 413, 422, 429, 500, 501, 502, 503, 504, 599] {
        for (kind, text) in [
            (
                JSON,
                " {\"object\" : \"error\",\"message\":\"no\",\"type\":\"BadRequestError\",\"param\":null,\"code\":4.00e2} \n",
            ),
            (
                JSON,
                r#"{"error":"[{'type': 'extra_forbidden', 'loc': ('body', 'priority'), 'msg': 'Extra inputs are not permitted', 'input': 5}]"}"#,
            ),
            (
                JSON,
                r#"{"error":{"message":"disaggregated_params.schedule_style: 7","prompt_token_ids":[1]},"error":2}"#,
            ),
            (JSON, r#"{"detail":"Not Found \u2013 é"}"#),
            ("text/plain; charset=utf-8", "Internal Server Error"),
            ("text/html", "<html>\r\n</html>"),
            (JSON, ""),
            (JSON, &most),
        ] {
            for path in BOTH {
                // in one piece and in many, streamed or not
                for (pieces, stream) in [(false, "true"), (true, "false")] {
                    let before = pair.world.metrics().await;
                    let owned = text.to_owned();
                    pair.generation.answer(move |_| {
                        let said = if pieces { in_pieces(status, kind, &owned) } else { reply(status, kind, &owned) };
                        headed(said, "retry-after: 11\r\nx-worker: 7\r\nx-worker: 8\r\nlocation: /x\r\nconnection: close\r\n")
                    });
                    let answer = pair.exchange(path, body(path, &format!(r#""stream":{stream}"#))).await;
                    assert_eq!((answer.status.as_u16(), answer.end), (status, End::Complete));
                    assert_eq!(answer.text(), text, "{status}");
                    assert_eq!(answer.header("content-type"), Some(kind));
                    assert_eq!(answer.header("content-length"), Some(text.len().to_string().as_str()));
                    assert_eq!(
                        (answer.header("retry-after"), answer.header("location")),
                        (Some("11"), Some("/x"))
                    );
                    assert_eq!(answer.headers.get_all("x-worker").iter().count(), 2);
                    assert_eq!(
                        (answer.header("connection"), answer.header("transfer-encoding")),
                        (None, None)
                    );
                    assert_eq!(pair.called(), (1, 1), "not asked for again");
                    let counted = pair.world.metrics().await.since(&before);
                    assert_eq!(counted.get("disagg_orphaned_handoffs_total{reason=\"refused\"}"), Some(&1.0));
                }
            }
        }
    }
    pair.finish().await;
}

#[tokio::test]
async fn refusals_that_could_tell_internal_state_are_replaced() {
    let pair = Pair::start(&[]).await;
    let (begin, end) = (&STATE[..16], &STATE[STATE.len() - 16..]);
    let json_in_json = json!({"error": json!({"s": STATE}).to_string()}).to_string();
    for text in [
        // large, whatever is in it
        "x".repeat((8 << 10) + 1),
        "z".repeat(1 << 20),
        // the state, or what of it a quotation shows
        format!(r#"{{"error":"bad: {STATE}"}}"#),
        format!("input_value='{begin}...'"),
        format!("'...{end}'"),
        format!(r#"{{"error":"{}"}}"#, STATE.replace('Q', r"\u0051").replace('=', r"\u003D")),
        json_in_json.clone(),
        json!({"a": json_in_json}).to_string(),
        // where the cache can be fetched
        "no context at tcp://10.0.0.9:5555".to_owned(),
        "connect to 10.0.0.9:5555 failed".to_owned(),
        r#"{"error":"tcp:\/\/10.0.0.9:5555"}"#.to_owned(),
        // the names, also where the value is cut off
        r#"{"error":"1 validation error: {'encoded_opaque_state': ...}"}"#.to_owned(),
        r#"{"error":"ctx_info_endpoint: bad"}"#.to_owned(),
        r#"{"error":"{\"ctx_info\u005fendpoint\": 1}"}"#.to_owned(),
    ] {
        for status in [400, 422, 429, 500, 503] {
            for path in BOTH {
                for (pieces, stream) in [(false, "true"), (true, "false")] {
                    let owned = text.clone();
                    pair.generation.answer(move |_| {
                        let said = if pieces && owned.len() < 9_000 {
                            in_pieces(status, JSON, &owned)
                        } else {
                            reply(status, JSON, &owned)
                        };
                        headed(said, "retry-after: 5\r\nx-worker: 7\r\n")
                    });
                    let answer = pair.exchange(path, body(path, &format!(r#""stream":{stream}"#))).await;
                    answer.is_error(status, "generation_rejected");
                    let said = answer.text();
                    for internal in [begin, end, "10.0.0.9", "opaque", "ctx_info", "xxx", "zzz"] {
                        assert!(!said.contains(internal), "{said}");
                    }
                    assert_eq!(answer.header("retry-after"), Some("5"));
                    assert_eq!(answer.header("content-length"), Some(said.len().to_string().as_str()));
                    assert_eq!(pair.called(), (1, 1));
                }
            }
        }
    }
    // one that breaks off is not known to be harmless
    for (framing, begun) in [
        ("content-length: 100", "{\"error\":\"no"),
        ("transfer-encoding: chunked", "c\r\n{\"error\":\"no\r\n"),
    ] {
        for path in BOTH {
            let wire = format!("HTTP/1.1 400 x\r\ncontent-type: {JSON}\r\n{framing}\r\n\r\n{begun}");
            pair.generation.says(Said::Last(wire.into_bytes()));
            pair.exchange(path, body(path, "")).await.is_error(400, "generation_rejected");
        }
    }
    pair.finish().await;
    // a real refusal that quotes the request: the endpoint was spoilt on its way
    let world = World::start(&[]).await;
    for body in [chat_body("spoilt", true), completions_body("spoilt", false)] {
        let spoilt = json!({"on": "context", "set": {"/choices/0/disaggregated_params/ctx_info_endpoint": "tcp://127.0.0.1:9"}});
        let reply = world.send(&world.ask(&body).fault(&spoilt)).await;
        assert_eq!(reply.status, 400);
        assert!(!reply.text().contains("127.0.0.1:9"), "{}", reply.text());
    }
    world.finish_with_orphans().await;
}
