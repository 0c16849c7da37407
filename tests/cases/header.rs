//! Group 2: the routing header, and what else stands in a head.

use http::Method;
use serde_json::json;
use trtllm_sim::expected_answer;

use crate::common::pair::{
    BOTH, CHAT, COMPLETIONS, EVENTS, JSON, Pair, STATE, body, handoff, handoff_with, id_of, params_of,
};
use crate::common::{
    Answer, Ask, Client, End, Raw, World, chat_body, completions_body,
    worker::{Leg, Said, chunked, reply},
};

#[tokio::test]
async fn b12_the_routing_header_names_one_endpoint() {
    let pair = Pair::start(&[]).await;
    let good = pair.context.hostport();
    let port = good.rsplit_once(':').unwrap().1;
    let other = |value: &str| vec![value.to_owned()];
    for values in [
        vec![good.clone(), good.clone()],
        vec![good.clone(), "127.0.0.1:1".to_owned()],
        other(&format!("{good},{good}")),
        other("a:1,b:2"),
        other(""),
        other("prefill"),
        other("prefill:0"),
        other("prefill:abc"),
        other("prefill:65536"),
        other("2001:db8::1:8001"),
        other("u:p@h:1"),
        other("http://h:1"),
    ] {
        for path in BOTH {
            let ask = values.iter().fold(Ask::post(path, body(path, "")), |ask, value| ask.via(value));
            Raw::asking(pair.world.data, &ask).await.reply().await.is_error(502, "invalid_epp_metadata");
            assert_eq!(pair.called(), (0, 0), "{values:?}");
        }
    }
    for value in [good.clone(), format!("localhost:{port}")] {
        assert_eq!(pair.send(&Ask::post(CHAT, body(CHAT, "")).via(&value)).await.status, 200, "{value}");
    }
    pair.finish().await;
    // an address of another kind, and a name: understood, since it is the list that refuses them
    let pair = Pair::start(&["--allow-context", &good]).await;
    for value in ["[::1]:8001", "h.ns.svc:8001"] {
        let reply = pair.send(&Ask::post(CHAT, body(CHAT, "")).via(value)).await;
        reply.is_error(403, "context_endpoint_not_allowed");
    }
    pair.finish().await;
}

/// Header lines that a client sends and that are for the workers.
const FOR_WORKERS: [(&str, &str); 12] = [
    ("accept", "*/*"),
    ("authorization", "Bearer t"),
    ("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
    ("tracestate", "a=b"),
    ("user-agent", "u"),
    ("x-custom", "1"),
    ("x-custom", "2"),
    ("x-empty", ""),
    ("x-gateway-destination-endpoint", "d:1"),
    ("x-gateway-model-name-rewrite", "z"),
    ("x-request-id", "r1"),
    ("x-session-id", "s"),
];

/// Those that only the serving side may say.
const NOT_A_CLIENTS: [(&str, &str); 3] = [
    ("x-trtllm-disagg-auth", "sha256=00"),
    ("x-trtllm-subagent-affinity-id", "a"),
    ("x-trtllm-subagent-affinity-auth", "a"),
];

fn adding(ask: Ask, headers: &[(&str, &str)]) -> Ask {
    headers.iter().fold(ask, |ask, (name, value)| ask.header(name, *value))
}

/// The header lines of a leg, name in small letters.
fn lines(leg: &Leg) -> Vec<String> {
    let mut lines: Vec<_> = leg
        .head
        .split("\r\n")
        .skip(1)
        .map(|line| {
            let (name, value) = line.split_once(':').unwrap();
            format!("{}: {}", name.to_ascii_lowercase(), value.trim())
        })
        .collect();
    lines.sort();
    lines
}

/// The lines that a leg must have: the client's, and what each leg says of itself.
fn expected(leg: &Leg, host: &str, more: &[&str]) -> Vec<String> {
    let mut lines: Vec<_> = FOR_WORKERS.iter().map(|(name, value)| format!("{name}: {value}")).collect();
    lines.push(format!("host: {host}"));
    lines.push(format!("content-length: {}", leg.body.len()));
    lines.push("content-type: application/json".to_owned());
    lines.extend(more.iter().map(|line| (*line).to_owned()));
    lines.sort();
    lines
}

#[tokio::test]
async fn b14_the_routing_header_stays_and_others_go_on() {
    let pair = Pair::start(&[]).await;
    let (context_host, generation_host) = (pair.context.hostport(), pair.generation.hostport());
    for path in BOTH {
        let bare = Ask::post(path, body(path, r#""stream":true"#)).header("accept-encoding", "gzip");
        let bare = adding(adding(bare, &FOR_WORKERS), &NOT_A_CLIENTS);
        for name in [
            "x-prefiller-host-port",
            "X-Prefiller-Host-Port",
            "X-PREFILLER-HOST-PORT",
            "x-PREFILLER-host-Port",
        ] {
            let ask = bare.clone().header(name, &context_host);
            for reply in [
                Raw::asking(pair.world.data, &ask).await.reply().await,
                // nominated, it is still the routing header, and still nobody else's
                Raw::asking(pair.world.data, &ask.clone().header("connection", name)).await.reply().await,
                Client::http2(pair.world.data).await.send(&ask).await,
            ] {
                assert_eq!(reply.status, 200, "{}", reply.text());
            }
            let (context, generation) = (pair.context.legs(), pair.generation.legs());
            assert_eq!((context.len(), generation.len()), (3, 3));
            for leg in &context {
                assert_eq!(lines(leg), expected(leg, &context_host, &[]), "{name}");
            }
            for leg in &generation {
                assert_eq!(lines(leg), expected(leg, &generation_host, &[]), "{name}");
            }
            pair.forget();
        }
        // without it the request passes through, and the coding of the answer is between the two
        for reply in [
            Raw::asking(pair.world.data, &bare).await.reply().await,
            Client::http2(pair.world.data).await.send(&bare).await,
        ] {
            assert_eq!(reply.status, 200);
        }
        let (context, generation) = (pair.context.legs(), pair.generation.legs());
        assert_eq!((context.len(), generation.len()), (0, 2));
        for leg in &generation {
            assert_eq!(lines(leg), expected(leg, &generation_host, &["accept-encoding: gzip"]));
            assert_eq!(leg.body, bare.body);
        }
        pair.forget();
    }
    pair.finish().await;
}

#[tokio::test]
async fn b15_what_holds_for_one_connection_stays_there() {
    let pair = Pair::start(&[]).await;
    let (context_host, generation_host) = (pair.context.hostport(), pair.generation.hostport());
    let hops = [
        ("connection", "X-Hop, keep-alive, content-length"),
        ("x-hop", "1"),
        ("X-HOP", "2"),
        ("keep-alive", "timeout=5"),
        ("te", "trailers"),
        ("proxy-authorization", "secret"),
        ("proxy-connection", "keep-alive"),
        ("upgrade", "h2c"),
        ("http2-settings", "AAMAAABkAAQAAP__"),
        ("trailer", "x"),
    ];
    // what the workers say of their own connections, and what they say to the client
    let head = "connection: close, X-Hop\r\nx-hop: 1\r\nkeep-alive: timeout=1\r\nproxy-authenticate: Basic\r\n\
        upgrade: h2c\r\nx-worker: 7\r\nset-cookie: a=b\r\nset-cookie: c=d\r\n";
    let told = move |said: Said| {
        let Said::Bytes(wire) = said else { panic!("a reply") };
        let wire = String::from_utf8(wire).unwrap().replacen("\r\n", &format!("\r\n{head}"), 1);
        Said::Last(wire.into_bytes())
    };
    pair.context.answer(move |leg| told(reply(200, JSON, handoff(leg))));
    pair.generation.answer(move |leg| {
        let stream = leg.json()["stream"] == json!(true);
        told(if stream {
            chunked(200, EVENTS, crate::common::pair::ANSWER)
        } else {
            reply(200, JSON, crate::common::pair::WHOLE)
        })
    });
    for path in BOTH {
        for stream in [true, false] {
            for routed in [true, false] {
                let asked = body(path, &format!(r#""stream":{stream}"#));
                let ask = if routed { pair.ask(path, asked) } else { Ask::post(path, asked) };
                let ask = adding(ask, &FOR_WORKERS);
                let mut raw = Raw::connect(pair.world.data).await;
                let mut two = Client::http2(pair.world.data).await;
                for round in 0..2 {
                    // the connections of the client are its own, and serve on
                    raw.write(adding(ask.clone(), &hops).wire()).await;
                    for reply in [raw.reply().await, two.send(&ask.clone().header("te", "trailers")).await] {
                        assert_eq!(
                            (reply.status.as_u16(), reply.end),
                            (200, End::Complete),
                            "{}",
                            reply.text()
                        );
                        assert_eq!(reply.header("x-worker"), Some("7"), "round {round}");
                        assert_eq!(reply.headers.get_all("set-cookie").iter().count(), 2);
                        for name in ["connection", "keep-alive", "x-hop", "proxy-authenticate", "upgrade"] {
                            assert_eq!(reply.header(name), None, "{name}");
                        }
                        let framing =
                            ["content-length", "transfer-encoding"].map(|name| reply.header(name).is_some());
                        assert!(framing != [true, true], "both a length and chunks");
                    }
                }
                assert!(!two.is_closed());
                let (context, generation) = (pair.context.legs(), pair.generation.legs());
                assert_eq!((context.len(), generation.len()), (if routed { 4 } else { 0 }, 4));
                for (leg, host) in context
                    .iter()
                    .map(|leg| (leg, &context_host))
                    .chain(generation.iter().map(|leg| (leg, &generation_host)))
                {
                    assert_eq!(lines(leg), expected(leg, host, &[]), "{path} routed {routed}");
                }
                pair.forget();
            }
        }
    }
    // a context reply with large headers is as good as any, and none of them is the client's
    let large =
        (0..50).map(|number| format!("x-context-{number}: {}\r\n", "a".repeat(960))).collect::<String>();
    pair.context.answer(move |leg| {
        let Said::Bytes(wire) = reply(200, JSON, handoff(leg)) else { panic!("a reply") };
        Said::Bytes(
            String::from_utf8(wire).unwrap().replacen("\r\n", &format!("\r\n{large}"), 1).into_bytes(),
        )
    });
    let reply = pair.exchange(CHAT, body(CHAT, "")).await;
    assert_eq!(reply.status, 200);
    assert!(!reply.headers.keys().any(|name| name.as_str().starts_with("x-context")));
    pair.finish().await;
}

#[tokio::test]
async fn b16_a_client_that_waits_for_100_continue() {
    let world = World::start(&["--max-request-bytes", "1MiB"]).await;
    for body in [chat_body(&"x".repeat(2048), true), completions_body("waits", false)] {
        for routed in [true, false] {
            let ask = if routed { world.ask(&body) } else { Ask::of(&body) };
            for (expect, chunks) in [("100-continue", false), ("100-Continue", false), ("100-continue", true)]
            {
                let ask = ask.clone().header("expect", expect);
                let length = ask.body.len();
                let mut raw = Raw::connect(world.data).await;
                let framing = if chunks {
                    "transfer-encoding: chunked".into()
                } else {
                    format!("content-length: {length}")
                };
                raw.write(ask.head(&framing)).await;
                assert_eq!(raw.head().await.0, 100);
                if chunks {
                    raw.write(format!("{length:x}\r\n")).await;
                }
                raw.write(&ask.body).await;
                if chunks {
                    raw.write("\r\n0\r\n\r\n").await;
                }
                Answer::of(&raw.reply().await).is(&expected_answer(&body));
                // the connection serves on
                raw.write(if routed { world.ask(&body) } else { Ask::of(&body) }.wire()).await;
                Answer::of(&raw.reply().await).is(&expected_answer(&body));
            }
        }
    }
    for leg in world.context_legs().iter().chain(&world.generation_legs()) {
        assert_eq!(leg.header("expect"), None);
    }
    // what is refused by its head is not asked for
    world.forget();
    let good = Ask::post(CHAT, "").header("expect", "100-continue");
    for (ask, length, status) in [
        (good.clone().via("nowhere"), 10, 502),
        (good.clone().via(&world.context.hostport()), 5_000_000, 413),
        (Ask { path: "/v1/responses".into(), ..good.clone() }.via(&world.context.hostport()), 10, 501),
    ] {
        let mut raw = Raw::connect(world.data).await;
        raw.write(ask.head(&format!("content-length: {length}"))).await;
        assert_eq!(raw.head().await.0, status);
    }
    assert_eq!(world.called(), (0, 0));
    world.finish().await;
}

#[tokio::test]
async fn b17_what_cannot_be_handed_off_is_said_so() {
    let pair = Pair::start(&[]).await;
    let handed = |method: &Method, path: &str| pair.ask(path, body(CHAT, "")).method(method.clone());
    for (method, path) in [
        (Method::POST, "/v1/responses"),
        (Method::POST, "/v1/embeddings"),
        (Method::POST, "/v1/messages"),
        (Method::POST, "/v1/chat/completions/"),
        (Method::POST, "/v1/chat/completions/x"),
        (Method::POST, "/v1//completions"),
        (Method::POST, "/V1/completions"),
        (Method::POST, "/v1/chat%2fcompletions"),
        (Method::POST, "/v1/chat/../completions"),
        (Method::POST, "/"),
        (Method::GET, "/v1/models"),
        (Method::GET, CHAT),
        (Method::HEAD, CHAT),
        (Method::OPTIONS, CHAT),
        (Method::PUT, CHAT),
        (Method::PATCH, COMPLETIONS),
        (Method::DELETE, COMPLETIONS),
    ] {
        let reply = pair.send(&handed(&method, path)).await;
        if method == Method::HEAD {
            assert_eq!((reply.status.as_u16(), reply.body.len()), (501, 0));
        } else {
            reply.is_error(501, "unsupported_endpoint");
        }
        assert_eq!(pair.called(), (0, 0), "{method} {path}");
        // without the header it is the worker's
        assert_eq!(pair.send(&Ask::post(path, body(CHAT, "")).method(method.clone())).await.status, 200);
        assert_eq!(pair.called(), (0, 1), "{method} {path}");
    }
    for path in BOTH {
        for query in ["", "?", "?x=/v1/responses"] {
            assert_eq!(pair.exchange(&format!("{path}{query}"), body(path, "")).await.status, 200);
            assert_eq!(pair.called(), (1, 1));
        }
    }
    pair.finish().await;
}

#[tokio::test]
async fn b18_the_same_request_id_on_requests_at_the_same_time() {
    let pair = Pair::start(&[]).await;
    let mut arrived = 0;
    pair.context.answer(move |leg| {
        arrived += 1;
        let said = leg.json()["user"].as_str().unwrap().to_owned();
        let reply_text =
            handoff_with(leg, STATE, &format!("state{said}")).replace("[32]", &format!("[{arrived}]"));
        reply(200, JSON, reply_text)
    });
    // what the client sees is the state that the generation leg had, as the worker would have used it
    pair.generation.answer(|leg| {
        let state = params_of(leg)["encoded_opaque_state"].replace("state", "of ");
        reply(200, JSON, format!(r#"{{"choices":[],"x":{state}}}"#))
    });
    let two = Client::http2(pair.world.data).await;
    let asked: Vec<_> = (0..40)
        .map(|number| {
            let path = BOTH[number % 2];
            let ask =
                pair.ask(path, body(path, &format!(r#""user":"{number}""#))).header("x-request-id", "same");
            let (mut two, data) = (two.share(), pair.world.data);
            tokio::spawn(async move {
                let reply = match number % 4 {
                    0 | 1 => Client::http1(data).await.send(&ask).await,
                    _ => two.send(&ask).await,
                };
                assert_eq!(reply.json()["x"], format!("of {number}"), "{}", reply.text());
            })
        })
        .collect();
    for asked in asked {
        asked.await.unwrap();
    }
    let (context, generation) = (pair.context.legs(), pair.generation.legs());
    assert_eq!((context.len(), generation.len()), (40, 40));
    for leg in context.iter().chain(&generation) {
        assert_eq!(leg.header("x-request-id"), ["same"]);
    }
    for leg in &generation {
        let user = leg.json()["user"].clone();
        let own = context.iter().find(|leg| leg.json()["user"] == user).unwrap();
        assert_eq!(id_of(leg), id_of(own), "the id of its own context leg");
    }
    let ids: std::collections::BTreeSet<_> = context.iter().map(id_of).collect();
    assert_eq!(ids.len(), 40);
    pair.finish().await;
}
