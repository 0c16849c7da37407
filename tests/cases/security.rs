//! Group 13: input of those who should not be trusted, and messages that two readers could see differently.

use crate::common::{
    Ask, Client, Raw, SOON,
    pair::{BOTH, CHAT, JSON, Pair, body, handoff, id_of, params_of},
    worker::{Double, Leg, reply},
};

#[tokio::test]
async fn b82_a_client_hands_nothing_over() {
    let pair = Pair::start(&[]).await;
    let evil = r#"{"request_type":"generation_only","ctx_request_id":5,"encoded_opaque_state":"QUFB","ctx_info_endpoint":"tcp://evil:1","disagg_request_id":5,"first_gen_tokens":[1]}"#;
    let member = |name: &str, value: &str| format!("\"{name}\":{value}");
    for (members, param) in [
        (member("disaggregated_params", evil), "disaggregated_params"),
        (member("disaggregated_params", "[]"), "disaggregated_params"),
        (member("disaggregated_params", "[null]"), "disaggregated_params"),
        (member("disaggregated_params", "\"\""), "disaggregated_params"),
        (member("disaggregated_params", "\"QUFB\""), "disaggregated_params"),
        (member("disaggregated_params", "0"), "disaggregated_params"),
        (member("disaggregated_params", "false"), "disaggregated_params"),
        (member("disaggregated_params", r#"{"":null}"#), "disaggregated_params"),
        (member(r"disaggregated\u005fparams", evil), "disaggregated_params"),
        (member(r"\u0064isaggregated_param\u0073", evil), "disaggregated_params"),
        // each of several counts, since a worker lets the last one win
        (
            format!("{},{}", member("disaggregated_params", evil), member("disaggregated_params", "null")),
            "disaggregated_params",
        ),
        (
            format!(
                "{},{}",
                member("disaggregated_params", "{}"),
                member(r"disaggregated_par\u0061ms", evil)
            ),
            "disaggregated_params",
        ),
        (member("prompt_token_ids", "[9]"), "prompt_token_ids"),
        (member("prompt_token_ids", "[]"), "prompt_token_ids"),
        (member("prompt_token_ids", "\"9\""), "prompt_token_ids"),
        (member(r"prompt\u005ftoken_ids", "[[9]]"), "prompt_token_ids"),
        (member("prompt_token_ids_b64", "\"QUFB\""), "prompt_token_ids_b64"),
        (member("prompt_token_ids_b64", "\"\""), "prompt_token_ids_b64"),
        (member("injected_chat_template_kwargs", "{}"), "injected_chat_template_kwargs"),
        (
            member("conversation_params", r#"{"subagent_affinity_id":"a"}"#),
            "conversation_params.subagent_affinity_id",
        ),
        (
            member("conversation_params", r#"{"conversation_id":"c","subagent\u005faffinity_id":""}"#),
            "conversation_params.subagent_affinity_id",
        ),
        (
            format!(
                "{},{}",
                member("conversation_params", r#"{"subagent_affinity_id":"a"}"#),
                member("conversation_params", "{}")
            ),
            "conversation_params.subagent_affinity_id",
        ),
    ] {
        for path in BOTH {
            for stream in ["false", "true"] {
                let body = body(path, &format!(r#""user":"CANARY","stream":{stream},{members}"#));
                // refused where it is handed off, and where it would pass through
                for ask in [pair.ask(path, body.clone()), Ask::post(path, body)] {
                    for answer in
                        [pair.send(&ask).await, Client::http2(pair.world.data).await.send(&ask).await]
                    {
                        assert_eq!(
                            answer.is_error(400, "handoff_fields_forbidden")["param"],
                            param,
                            "{members}"
                        );
                        assert!(!answer.text().contains("CANARY") && !answer.text().contains("QUFB"));
                    }
                }
                assert_eq!(pair.called(), (0, 0), "{members}");
            }
        }
    }
    // what says nothing is dropped, and what only looks like it is the workers'
    for members in [
        r#""disaggregated_params":null"#,
        r#""disaggregated_params":{}"#,
        r#""disaggregated_params" : { } "#,
        r#""disaggregated\u005fparams":null"#,
        r#""conversation_params":{"conversation_id":"c"}"#,
        r#""conversation_params":{"subagent_affinity_id":null}"#,
        r#""conversation_params":null,"injected_chat_template_kwargs":null"#,
        r#""conversation_params":[{"subagent_affinity_id":"a"}]"#,
        r#""x":{"disaggregated_params":{"ctx_request_id":5},"prompt_token_ids":[9]},"subagent_affinity_id":"a""#,
        r#""disaggregated_param":1,"xdisaggregated_params":2,"DISAGGREGATED_PARAMS":3,"disaggregated_params\u0000":4"#,
    ] {
        for path in BOTH {
            pair.keeps(path, &body(path, members)).await;
        }
    }
    // a null for the ids of a chat is replaced by the context's
    for members in [r#""prompt_token_ids":null"#, r#""prompt_token_ids_b64":null,"prompt_token_ids":null"#] {
        assert_eq!(pair.exchange(CHAT, body(CHAT, members)).await.status, 200);
        let (context, generation) = pair.legs();
        assert_eq!(generation.json()["prompt_token_ids"], serde_json::json!([1, 2, 3]));
        assert!(generation.json().get("prompt_token_ids_b64").is_none());
        assert_eq!(params_of(&generation)["disagg_request_id"], id_of(&context));
    }
    pair.finish().await;
}

#[tokio::test]
async fn b84_only_listed_endpoints_are_connected_to() {
    let context = |leg: &Leg| reply(200, JSON, handoff(leg));
    let (listed, other) = (Double::start(context), Double::start(context));
    let pair = Pair::start(&["--allow-context", &listed.hostport()]).await;
    let good = listed.hostport();
    let port = good.rsplit_once(':').unwrap().1.to_owned();
    for value in [
        other.hostport(),
        "169.254.169.254:80".into(),
        format!("LOCALHOST:{port}"),
        format!("localhost:{port}"),
        format!("[::ffff:127.0.0.1]:{port}"),
        format!("127.0.0.2:{port}"),
        format!("127.0.0.1.example.com:{port}"),
    ] {
        for path in BOTH {
            let ask = Ask::post(path, body(path, "")).via(&value);
            pair.send(&ask).await.is_error(403, "context_endpoint_not_allowed");
            // by the head alone, before the body is here
            let mut raw = Raw::connect(pair.world.data).await;
            raw.write(ask.head("content-length: 100000")).await;
            raw.reply().await.is_error(403, "context_endpoint_not_allowed");
        }
    }
    assert_eq!((listed.connections(), other.connections(), pair.called()), (0, 0, (0, 0)));
    for path in BOTH {
        assert_eq!(pair.send(&Ask::post(path, body(path, "")).via(&good)).await.status, 200);
    }
    assert_eq!((listed.legs().len(), other.connections()), (2, 0));
    pair.finish().await;
}

/// How a request of an odd shape may end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    /// 400, and the connection is closed.
    Refused,
    /// One reading of it counts, which is the one the worker gets, and the connection is closed.
    Closed,
    /// There is one reading of it only, however unusual.
    Served,
}

#[tokio::test]
async fn b87_one_request_is_never_two() {
    use Verdict::{Closed, Refused, Served};
    const SMUGGLED: &str = "GET /smuggled HTTP/1.1\r\nhost: x\r\n\r\n";
    let data = body(CHAT, "");
    let (length, short) = (data.len(), data.len() - 1);
    let chunk = format!("{length:x}\r\n{data}\r\n0\r\n\r\n");
    let table = [
        // two lengths, or a length of an odd form
        (format!("content-length: {length}\r\ncontent-length: {short}"), data.clone(), Refused),
        (format!("content-length: {length}, {short}"), data.clone(), Refused),
        (format!("content-length: {length}, {length}"), data.clone(), Refused),
        (format!("content-length: +{length}"), data.clone(), Refused),
        (format!("content-length: -{length}"), data.clone(), Refused),
        (format!("content-length: 0x{length:x}"), data.clone(), Refused),
        (format!("content-length: {length}.0"), data.clone(), Refused),
        (format!("content-length: {length}_"), data.clone(), Refused),
        ("content-length: 1e1".into(), data.clone(), Refused),
        ("content-length: ".into(), data.clone(), Refused),
        ("content-length: 18446744073709551617".into(), data.clone(), Refused),
        (format!("content-length : {length}"), data.clone(), Refused),
        (format!(" content-length: {length}"), data.clone(), Refused),
        (format!("content-length:\x0b{length}"), data.clone(), Refused),
        // codings other than one `chunked`
        ("transfer-encoding: xchunked".into(), chunk.clone(), Refused),
        ("transfer-encoding: \"chunked\"".into(), chunk.clone(), Refused),
        ("transfer-encoding: chunked, identity".into(), chunk.clone(), Refused),
        ("transfer-encoding: identity".into(), chunk.clone(), Refused),
        ("transfer-encoding: gzip, chunked".into(), chunk.clone(), Refused),
        ("transfer-encoding: chunked, chunked".into(), chunk.clone(), Refused),
        ("transfer-encoding: chunked\r\ntransfer-encoding: chunked".into(), chunk.clone(), Refused),
        ("transfer-encoding: chunked\r\ntransfer-encoding: identity".into(), chunk.clone(), Refused),
        ("transfer-encoding: identity\r\ntransfer-encoding: chunked".into(), chunk.clone(), Refused),
        ("transfer-encoding: ".into(), chunk.clone(), Refused),
        ("transfer-encoding : chunked".into(), chunk.clone(), Refused),
        ("transfer-encoding:\x0bchunked".into(), chunk.clone(), Refused),
        ("transfer-encoding\x00: chunked".into(), chunk.clone(), Refused),
        ("transfer-encoding: chunked\x00".into(), chunk.clone(), Refused),
        // chunks of an odd form
        ("transfer-encoding: chunked".into(), format!("0x{chunk}"), Refused),
        ("transfer-encoding: chunked".into(), format!("+{chunk}"), Refused),
        ("transfer-encoding: chunked".into(), format!("-{chunk}"), Refused),
        ("transfer-encoding: chunked".into(), format!(" {chunk}"), Refused),
        ("transfer-encoding: chunked".into(), format!("{length:x}\n{data}\r\n0\r\n\r\n"), Refused),
        ("transfer-encoding: chunked".into(), format!("{length:x}\r{data}\r\n0\r\n\r\n"), Refused),
        ("transfer-encoding: chunked".into(), format!("{length:x};a=\"\n\"\r\n{data}\r\n0\r\n\r\n"), Refused),
        ("transfer-encoding: chunked".into(), format!("{short:x}\r\n{data}\r\n0\r\n\r\n"), Refused),
        ("transfer-encoding: chunked".into(), format!("{length:x}\r\n{data}0\r\n\r\n"), Refused),
        ("transfer-encoding: chunked".into(), format!("{length:x}\r\n{data}\n0\r\n\r\n"), Refused),
        ("transfer-encoding: chunked".into(), format!("1{length:016x}\r\n{data}\r\n0\r\n\r\n"), Refused),
        ("transfer-encoding: chunked".into(), format!("\r\n{chunk}"), Refused),
        // lines of an odd form
        (format!("x: y\r\n folded: z\r\ncontent-length: {length}"), data.clone(), Refused),
        (format!("x: y\r\n\tfolded\r\ncontent-length: {length}"), data.clone(), Refused),
        (format!("x: a\rcontent-length: 1\r\ncontent-length: {length}"), data.clone(), Refused),
        (format!("x: a\0b\r\ncontent-length: {length}"), data.clone(), Refused),
        (format!("x y: a\r\ncontent-length: {length}"), data.clone(), Refused),
        (format!("no colon\r\ncontent-length: {length}"), data.clone(), Refused),
        (format!(": no name\r\ncontent-length: {length}"), data.clone(), Refused),
        // both: the chunks count
        (format!("content-length: {length}\r\ntransfer-encoding: chunked"), chunk.clone(), Closed),
        ("content-length: 6\r\ntransfer-encoding: chunked".into(), chunk.clone(), Closed),
        ("Transfer-Encoding: chunked\r\nContent-Length: 6".into(), chunk.clone(), Closed),
        // unusual, and clear
        (format!("content-length: {length}\r\ncontent-length: {length}"), data.clone(), Served),
        (format!("content-length: 000{length}"), data.clone(), Served),
        (format!("content-length: \t{length} "), data.clone(), Served),
        ("Transfer-Encoding: Chunked".into(), chunk.clone(), Served),
        ("transfer-encoding:\tchunked ".into(), chunk.clone(), Served),
        ("transfer-encoding: chunked".into(), format!("000{chunk}"), Served),
        (
            "transfer-encoding: chunked".into(),
            format!("{length:X} ;a=b;c=\"d\"\r\n{data}\r\n00;e\r\nx: 1\r\n\r\n"),
            Served,
        ),
    ];
    let pair = Pair::start(&[]).await;
    let mut wrong = Vec::new();
    for (framing, sent, verdict) in table {
        for routed in [true, false] {
            let ask = if routed { pair.ask(CHAT, "") } else { Ask::post(CHAT, "") };
            let mut raw = Raw::connect(pair.world.data).await;
            raw.write(format!("{}{sent}{SMUGGLED}", ask.head(&framing))).await;
            let first = raw.reply().await;
            let (context, generation) = (pair.context.legs(), pair.generation.legs());
            let what =
                format!("{framing:?} {:?}: {} {}", &sent[..30.min(sent.len())], first.status, first.text());
            let ends = match verdict {
                Served => true,
                _ => tokio::time::timeout(SOON, raw.ends()).await.unwrap_or(false),
            };
            let good = match verdict {
                Refused => first.status == 400 && context.is_empty() && generation.is_empty(),
                Closed | Served => {
                    first.status == 200 && (context.len(), generation.len()) == (usize::from(routed), 1)
                }
            };
            if !good || !ends {
                wrong.push(format!("{what} ends {ends}"));
            }
            for leg in context.iter().chain(&generation) {
                assert_eq!(leg.header("transfer-encoding"), [""; 0], "{what}");
                assert_eq!(leg.header("content-length"), [leg.body.len().to_string()], "{what}");
                assert!(!leg.head.replace("\r\n", "").contains(['\r', '\n']), "{what}");
            }
            for leg in generation.iter().filter(|_| !routed) {
                assert_eq!(leg.body, data.as_bytes(), "{what}");
            }
            if verdict == Served {
                // what stands behind it is another request, and the worker's
                assert_eq!(raw.reply().await.status, 200, "{what}");
                assert_eq!(pair.generation.legs().pop().unwrap().path(), "/smuggled", "{what}");
            }
            pair.forget();
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    // Lines that end with a bare LF are read as lines, as RFC 9112, section 2.2, allows (hyper has no way not to). There
    // is one reading of them here, and a worker is sent lines of our own.
    for routed in [true, false] {
        let ask = if routed { pair.ask(CHAT, "") } else { Ask::post(CHAT, "") };
        for (head, verdict) in [
            (ask.head(&format!("content-length: {length}")).replace("\r\n", "\n"), Served),
            (ask.head(&format!("x: a\ncontent-length: {length}")), Served),
            (ask.head(&format!("x: a\ncontent-length: 1\r\ncontent-length: {length}")), Refused),
            (ask.head(&format!("content-length: {length}\ntransfer-encoding: xchunked")), Refused),
        ] {
            let mut raw = Raw::connect(pair.world.data).await;
            raw.write(format!("{head}{data}{SMUGGLED}")).await;
            let first = raw.reply().await;
            let legs = [pair.context.legs(), pair.generation.legs()].concat();
            if verdict == Served {
                assert_eq!((first.status.as_u16(), legs.len()), (200, 1 + usize::from(routed)), "{head:?}");
                assert_eq!(raw.reply().await.status, 200);
            } else {
                assert_eq!((first.status.as_u16(), legs.len(), raw.ends().await), (400, 0, true), "{head:?}");
            }
            for leg in legs {
                assert!(!leg.head.replace("\r\n", "").contains(['\r', '\n']), "{head:?}");
            }
            pair.forget();
        }
    }
    pair.finish().await;
}
