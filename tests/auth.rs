//! Signed generation requests, the key they are signed with, and what only the serving side may say.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod common;

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use common::{
    Answer, Ask, Client, KeyFile, Log, Metrics, PATIENCE, Raw, World, chat_body, completions_body, eventually,
};
use http::Method;
use serde_json::Value;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
    task::JoinSet,
};
use trtllm_sim::{SeenRequest, expected_answer};

const SIGNATURE: &str = "x-trtllm-disagg-auth";
const INTERNAL: [&str; 3] = [SIGNATURE, "x-trtllm-subagent-affinity-id", "x-trtllm-subagent-affinity-auth"];
const FORGED: &str = "sha256=0000000000000000000000000000000000000000000000000000000000000000";

fn all_kinds(text: &str) -> [Value; 4] {
    [
        chat_body(text, true),
        chat_body(text, false),
        completions_body(text, true),
        completions_body(text, false),
    ]
}

fn signatures(request: &SeenRequest) -> Vec<&str> {
    request.headers.get_all(SIGNATURE).iter().map(|value| value.to_str().unwrap()).collect()
}

// === signing ===

#[tokio::test]
async fn a_worker_that_checks_signatures_accepts_them() {
    let key = KeyFile::new("a key, schlüssel 🔑\n");
    let path = key.path();
    // what of the two there is to be signed
    for (endpoint, state) in [(true, Some(96)), (false, Some(300 << 10)), (true, None)] {
        let world = World::of(
            |c| c.info_endpoint(endpoint).opaque_state(state.is_some()).opaque_bytes(state.unwrap_or(1)),
            |g| g.auth_key("a key, schlüssel 🔑"),
            &["--auth-key-file", &path],
        )
        .await;
        for body in all_kinds("signed") {
            for two in [false, true] {
                world.forget();
                let mut client =
                    if two { Client::http2(world.data).await } else { Client::http1(world.data).await };
                Answer::of(&client.send(&world.ask(&body)).await).is(&expected_answer(&body));
                let leg = world.generation_legs().pop().unwrap();
                let [signature] = signatures(&leg)[..] else { panic!("{:?}", leg.headers) };
                let digits = signature.strip_prefix("sha256=").unwrap();
                let lower = |c: char| matches!(c, '0'..='9' | 'a'..='f');
                assert!(digits.len() == 64 && digits.chars().all(lower), "{signature}");
                assert_eq!(signatures(&world.context_legs()[0]), [""; 0], "a context request is not signed");
            }
        }
        // nothing else is signed, and nothing else is checked
        world.forget();
        let body = chat_body("alone", true);
        Answer::of(&world.send(&Ask::of(&body)).await).is(&expected_answer(&body));
        assert_eq!(world.send(&Ask::get("/v1/models")).await.status, 200);
        let requests = world.generation.state().requests;
        assert!(requests.iter().all(|request| signatures(request).is_empty()), "{requests:?}");
        world.finish().await;
    }
}

#[tokio::test]
async fn a_worker_that_has_another_key_refuses() {
    let key = KeyFile::new("another key");
    let path = key.path();
    for flags in [&["--auth-key-file", path.as_str()][..], &[]] {
        let world = World::alone(|c| c, |g| g.auth_key("the key"), flags).await;
        for body in all_kinds("refused") {
            let before = world.idle().await;
            let reply = world.exchange(&body).await;
            assert_eq!(reply.status, 400, "{}", reply.text());
            assert!(reply.text().contains("authentication header"), "{}", reply.text());
            assert_eq!(reply.json()["object"], "error", "the worker's own words");
            let counted = world.idle().await.since(&before);
            let orphaned = counted.get("disagg_orphaned_handoffs_total{reason=\"refused\"}");
            assert_eq!(orphaned, Some(&1.0), "{counted:?}");
        }
        // what is not handed off needs no signature
        let body = chat_body("alone", true);
        Answer::of(&world.send(&Ask::of(&body)).await).is(&expected_answer(&body));
        world.finish_with_orphans().await;
    }
}

#[tokio::test]
async fn releases_that_check_no_signatures_are_said_once() {
    const WARNING: &str = "does not check signatures";
    let key = KeyFile::new("CANARY-KEY");
    let path = key.path();
    let signed = ["--auth-key-file", path.as_str()];
    let pinned = [&signed[..], &["--engine-version", "1.3.0rc20"]].concat();
    for (release, flags, said) in [
        ("1.3.0rc20", &signed[..], 1),
        ("1.3.0rc22", &signed, 1),
        ("1.3.0rc23", &signed, 0),
        ("1.4.0rc1", &signed, 0),
        ("nightly", &signed, 0),
        ("1.3.0rc20", &[], 0),
        ("1.3.0rc20", &pinned, 1),
    ] {
        let log = Log::default();
        let logging = log.start();
        // a release that cannot be read has no schema by itself
        let schema = trtllm_sim::Generation::of_release(release).unwrap_or(trtllm_sim::Generation::G4);
        let world = World::of(
            |c| c.release(release).generation(schema),
            |g| g.release(release).generation(schema),
            flags,
        )
        .await;
        for body in all_kinds("signed for nobody") {
            Answer::of(&world.exchange(&body).await).is(&expected_answer(&body));
        }
        world.ready().await;
        assert_eq!(log.count(WARNING), said, "{release} {flags:?}: {}", log.text());
        assert!(!log.text().contains("CANARY"), "{}", log.text());
        // it does no harm
        let expected = usize::from(!flags.is_empty());
        assert!(world.generation_legs().iter().all(|leg| signatures(leg).len() == expected));
        world.finish().await;
        drop(logging);
    }
}

// === other keys ===

/// Requests of all kinds, some at a time and one after the other, until it is stopped. All of them have to be answered.
struct Load {
    stop: Arc<AtomicBool>,
    answered: Arc<[AtomicUsize; Self::LANES]>,
    lanes: JoinSet<()>,
}

impl Load {
    const LANES: usize = 4;

    fn start(world: &World) -> Self {
        let (stop, answered) = (Arc::<AtomicBool>::default(), Arc::<[AtomicUsize; Self::LANES]>::default());
        let mut lanes = JoinSet::new();
        for lane in 0..Self::LANES {
            let (stop, answered) = (stop.clone(), answered.clone());
            let (data, context) = (world.data, world.context.hostport());
            lanes.spawn(async move {
                let mut client =
                    if lane % 2 == 0 { Client::http1(data).await } else { Client::http2(data).await };
                while !stop.load(Ordering::Relaxed) {
                    for body in all_kinds("under way") {
                        let reply = client.send(&Ask::of(&body).via(&context)).await;
                        Answer::of(&reply).is(&expected_answer(&body));
                        answered[lane].fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        }
        Self { stop, answered, lanes }
    }

    /// Waits until each lane has begun and finished a request.
    async fn goes_on(&self) {
        let count = || self.answered.each_ref().map(|lane| lane.load(Ordering::Relaxed));
        let before = count();
        // the first of the two may have begun before
        eventually("requests are answered", || {
            assert!(!self.lanes.is_empty());
            count().iter().zip(before).all(|(now, before)| *now >= before + 2)
        })
        .await;
    }

    async fn end(mut self) {
        self.stop.store(true, Ordering::Relaxed);
        while let Some(lane) = self.lanes.join_next().await {
            lane.unwrap();
        }
    }
}

const OK: &str = "disagg_auth_key_reloads_total{result=\"ok\"}";
const FAILED: &str = "disagg_auth_key_reloads_total{result=\"failed\"}";

async fn counted(world: &World, what: &str, check: impl Fn(&Metrics) -> bool) {
    let waiting = async {
        while !check(&world.metrics().await) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let held = tokio::time::timeout(PATIENCE, waiting).await.is_ok();
    assert!(held, "not in time: {what}");
}

#[tokio::test]
async fn a_key_is_replaced_under_load_without_a_failed_request() {
    let key = KeyFile::new("key 0");
    let path = key.path();
    let log = Log::default();
    let _logging = log.start_at("info");
    let world = World::of(|c| c, |g| g.auth_key("key 0"), &["--auth-key-file", &path]).await;
    let load = Load::start(&world);
    load.goes_on().await;
    // (how the file changes, whether it is said)
    type Change = fn(&KeyFile, &str);
    let changes: [(Change, bool); 4] = [
        (|f, key| f.change(key), false),
        (|f, key| f.overwrite(key), false),
        (|f, key| f.change(key), true),
        (|f, key| f.overwrite(key), true),
    ];
    for (number, (change, said)) in changes.into_iter().enumerate() {
        let (old, new) = (format!("key {number}"), format!("key {}", number + 1));
        world.generation.set_auth_keys([old, new.clone()]);
        change(&key, &new);
        if said {
            world.handle.reload();
        }
        eventually("the key is replaced", || log.count("another signing key") == number + 1).await;
        load.goes_on().await;
        world.generation.set_auth_keys([new]);
        load.goes_on().await;
    }
    load.end().await;
    assert_eq!(world.generation.state().rejections, [""; 0]);
    world.finish().await;
}

#[tokio::test]
async fn a_file_that_is_no_key_any_more_leaves_the_last_one() {
    let log = Log::default();
    let _logging = log.start();
    let key = KeyFile::new("CANARY-KEY");
    let path = key.path();
    let world = World::alone(|c| c, |g| g.auth_key("CANARY-KEY"), &["--auth-key-file", &path]).await;
    let start = world.metrics().await;
    let large = vec![b'C'; (64 << 10) + 1];
    let works = async |what| {
        for body in all_kinds(what) {
            Answer::of(&world.exchange(&body).await).is(&expected_answer(&body));
        }
    };
    // (how the file changes, what is said, whether it waits until somebody looks)
    type Change<'a> = &'a dyn Fn();
    let changes: [(Change<'_>, &str, bool); 5] = [
        (&|| key.remove(), "No such file", true),
        (&|| key.change(""), "empty", true),
        (&|| key.overwrite(b"CANARY-BROKEN\xff"), "UTF-8", false),
        (&|| key.change(&large), "larger than 65536 bytes", false),
        (&|| key.overwrite("\r\n"), "empty", false),
    ];
    let mut failed = start.get(FAILED);
    for (change, why, waits) in changes {
        change();
        if !waits {
            world.handle.reload();
        }
        let last =
            || log.text().lines().rfind(|line| line.contains("could not be read again")).map(str::to_owned);
        eventually(why, || last().is_some_and(|line| line.contains("ERROR") && line.contains(why))).await;
        counted(&world, "it is counted", |page| page.get(FAILED) > failed).await;
        failed = world.metrics().await.get(FAILED);
        works("signed with the last key").await;
    }
    assert_eq!(world.metrics().await.get(OK), start.get(OK));
    key.change("CANARY-KEY");
    world.handle.reload();
    counted(&world, "well again", |page| page.get(OK) > start.get(OK)).await;
    works("signed with the same key").await;
    key.change("CANARY-NEXT");
    world.generation.set_auth_keys(["CANARY-NEXT"]);
    world.handle.reload();
    eventually("the key is replaced", || log.count("another signing key") == 1).await;
    works("signed with the next key").await;
    assert!(!log.text().contains("CANARY") && !log.text().contains("CCC"), "{}", log.text());
    world.finish().await;
}

#[tokio::test]
async fn without_a_key_file_there_is_nothing_to_read_again() {
    let log = Log::default();
    let _logging = log.start();
    let world = World::start(&[]).await;
    world.handle.reload();
    eventually("it says so", || log.count("nothing to read again") == 1).await;
    let body = chat_body("still there", true);
    Answer::of(&world.exchange(&body).await).is(&expected_answer(&body));
    world.finish().await;
}

// === what only the serving side may say: headers ===

#[tokio::test]
async fn internal_headers_of_clients_reach_no_worker() {
    let key = KeyFile::new("key");
    let path = key.path();
    for mode in ["guarded", "verbatim", "off"] {
        for signs in [true, false] {
            let mut flags = vec!["--passthrough", mode];
            if signs {
                flags.extend(["--auth-key-file", path.as_str()]);
            }
            let world = World::of(|c| c, |g| if signs { g.auth_key("key") } else { g }, &flags).await;
            let mut asks = Vec::new();
            for body in all_kinds("forged") {
                asks.extend([Ask::of(&body), world.ask(&body)]);
            }
            asks.extend([Ask::get("/v1/models"), Ask::get("/server_info"), Ask::post("/v1/other", "{}")]);
            asks.push(Ask::post("/v1/other", "x").method(Method::PUT));
            let forged = |ask: &Ask| {
                let ask = INTERNAL.iter().fold(ask.clone(), |ask, name| ask.header(name, FORGED));
                ask.header("X-TRTLLM-Disagg-Auth", "sha256=1").header("x-kept", "1")
            };
            let nominations =
                ["close, x-trtllm-disagg-auth", "X-TRTLLM-Subagent-Affinity-ID,x-prefiller-host-port"];
            for ask in &asks {
                let ask = forged(ask);
                Client::http1(world.data).await.send(&ask).await;
                Client::http2(world.data).await.send(&ask).await;
                for nominated in nominations {
                    let ask = ask.clone().header("connection", nominated);
                    Raw::asking(world.data, &ask).await.reply().await;
                }
            }
            for (who, engine) in [("context", &world.context), ("generation", &world.generation)] {
                let mut forwarded = 0;
                for request in engine.state().requests {
                    // of those that were not a question of the sidecar's own
                    forwarded += usize::from(request.header("x-kept").is_some());
                    for name in INTERNAL {
                        let values: Vec<_> = request.headers.get_all(name).iter().collect();
                        let leg = request.request_type().as_deref() == Some("generation_only");
                        let ours = usize::from(name == SIGNATURE && signs && leg);
                        assert_eq!(values.len(), ours, "{mode} {who} {} {name}: {values:?}", request.path);
                        assert!(
                            values.iter().all(|value| value.len() == 71 && *value != FORGED),
                            "{values:?}"
                        );
                    }
                }
                let expected = match (who, mode) {
                    ("context", _) | ("generation", "off") => 16,
                    _ => 48,
                };
                assert_eq!(forwarded, expected, "{mode} {who}");
            }
            world.finish().await;
        }
    }
}

/// A worker that answers one request and says what it was sent.
async fn heard() -> (SocketAddr, tokio::task::JoinHandle<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let heard = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut read = Vec::new();
        // the end of a body in chunks, after trailers if there are any
        let whole = |read: &[u8]| {
            let text = String::from_utf8_lossy(read);
            text.split_once("\r\n0\r\n").is_some_and(|(_, end)| end.ends_with("\r\n"))
        };
        while !whole(&read) {
            assert!(stream.read_buf(&mut read).await.unwrap() > 0, "{}", String::from_utf8_lossy(&read));
        }
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await.unwrap();
        String::from_utf8(read).unwrap()
    });
    (address, heard)
}

#[tokio::test]
async fn internal_headers_in_trailers_reach_no_worker() {
    let (address, heard) = heard().await;
    let url = format!("http://{address}");
    let flags =
        ["--passthrough", "verbatim", "--engine-version", "1.3.0rc24", "--generation-url", url.as_str()];
    let world = World::start(&flags).await;
    let ask = Ask::post("/v1/chat/completions", "").header("trailer", SIGNATURE).header("te", "trailers");
    let mut raw = Raw::connect(world.data).await;
    raw.write(ask.head("transfer-encoding: chunked")).await;
    raw.write(format!("2\r\n{{}}\r\n0\r\n{SIGNATURE}: {FORGED}\r\n\r\n")).await;
    assert_eq!(raw.reply().await.text(), "ok");
    let heard = heard.await.unwrap();
    assert!(heard.contains("\r\n{}\r\n"), "{heard}");
    assert!(!heard.to_ascii_lowercase().contains(SIGNATURE) && !heard.contains(FORGED), "{heard}");
    world.finish().await;
}

// === what only the serving side may say: members of the body ===

/// Bodies with handoff fields, in every spelling that a worker reads, and the code of the refusal.
fn forbidden() -> Vec<(Vec<u8>, &'static str)> {
    const FIELDS: &str = "handoff_fields_forbidden";
    const UNREADABLE: &str = "invalid_request";
    let with = |members: &str| {
        format!(r#"{{"model":"sim","messages":[{{"role":"user","content":"x"}}],"prompt":"x",{members}}}"#)
    };
    let params = r#"{"request_type":"generation_only","ctx_request_id":5,"encoded_opaque_state":"QUFB","first_gen_tokens":[1]}"#;
    let spelt_out: String = "disaggregated_params".chars().map(|c| format!("\\u{:04X}", c as u32)).collect();
    let mut bodies: Vec<(Vec<u8>, &str)> = [
        format!(r#""disaggregated_params":{params}"#),
        format!(r#""disaggregated\u005fparams":{params}"#),
        format!(r#""disaggregated\u005Fparams":{params}"#),
        format!(r#""{spelt_out}":{params}"#),
        format!(r#""disaggregated_params":null,"disaggregated_params":{params}"#),
        format!(r#""disaggregated_params":{params},"disaggregated_params":null"#),
        format!(r#""disaggregated\u005fparams":{params},"disaggregated_params":{{}}"#),
        r#""disaggregated_params":[1]"#.to_owned(),
        r#""prompt_token_ids":[9]"#.to_owned(),
        r#""prompt\u005ftoken\u005fids":[9]"#.to_owned(),
        r#""prompt_token_ids_b64":"AAAA""#.to_owned(),
        r#""injected_chat_template_kwargs":{}"#.to_owned(),
        r#""injected\u005fchat_template_kwargs":{"a":1}"#.to_owned(),
        r#""conversation_params":{"conversation_id":"c","subagent_affinity_id":"a"}"#.to_owned(),
        r#""conversation\u005fparams":{"subagent\u005faffinity_id":"a"}"#.to_owned(),
        r#""conversation_params":{"subagent_affinity_id":"a","subagent_affinity_id":null}"#.to_owned(),
        r#""conversation_params":{"subagent_affinity_id":"a"},"conversation_params":null"#.to_owned(),
    ]
    .map(|members| (with(&members).into_bytes(), FIELDS))
    .into();
    let plain = with(&format!(r#""disaggregated_params":{params}"#));
    let units: Vec<u16> = plain.encode_utf16().collect();
    let little: Vec<u8> = units.iter().flat_map(|unit| unit.to_le_bytes()).collect();
    let big: Vec<u8> = units.iter().flat_map(|unit| unit.to_be_bytes()).collect();
    let wide: Vec<u8> = plain.chars().flat_map(|c| u32::from(c).to_be_bytes()).collect();
    // {"model":"sim","messages":[],"disaggregated_params":{"a":1}}
    let gzip = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x02\x03\xabV\xca\xcdOI\xcdQ\xb2R*\xce\xccU\xd2Q\xcaM-.NLO-V\xb2\x8a\x8e\xd5QJ\xc9\x04r\xd2\x8bR\xd3\x13KRS\xe2\x0b\x12\x8b\x12s\x812\xd5J\x89JV\x86\xb5\xb5\x00\xdc\xf1)\xbd<\x00\x00\x00";
    bodies.extend(
        [
            little.clone(),
            big.clone(),
            [b"\xff\xfe".to_vec(), little].concat(),
            [b"\xfe\xff".to_vec(), big].concat(),
            [b"\xef\xbb\xbf".to_vec(), plain.into_bytes()].concat(),
            wide,
            gzip.to_vec(),
        ]
        .map(|body| (body, UNREADABLE)),
    );
    bodies
}

#[tokio::test]
async fn handoff_fields_of_clients_reach_no_worker() {
    let world = World::start(&[]).await;
    let mut two = Client::http2(world.data).await;
    let paths = ["/v1/chat/completions", "/v1/completions", "/v1/responses"];
    for (body, code) in forbidden() {
        for path in paths {
            let ask = |headers: &[(&str, &str)]| Ask {
                headers: headers.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect(),
                ..Ask::post(path, body.clone())
            };
            let json = ("content-type", "application/json");
            let mut asks = vec![
                ask(&[json]),
                ask(&[]),
                ask(&[json, ("content-type", "text/plain")]),
                ask(&[("content-type", "text/plain"), json]),
                ask(&[("content-type", "application/vnd.x+json; charset=utf-16")]),
                ask(&[("content-type", "text/plain, application/json")]),
                ask(&[json, ("content-encoding", "gzip")]),
                ask(&[json, ("content-encoding", "identity")]),
            ];
            if path != "/v1/responses" {
                // on its way to a handoff the type does not matter
                asks.push(ask(&[json]).via(&world.context.hostport()));
                asks.push(ask(&[("content-type", "text/plain")]).via(&world.context.hostport()));
            }
            for ask in asks {
                let shown = || format!("{path} {:?} {}", ask.headers, String::from_utf8_lossy(&body));
                for reply in [world.send(&ask).await, two.send(&ask).await] {
                    assert_eq!(reply.status, 400, "{}", shown());
                    assert_eq!(reply.error()["code"], code, "{}", shown());
                }
                assert_eq!(world.called(), (0, 0), "{}", shown());
            }
        }
    }
    // over HTTP/2 nothing was left of the connection, and all is well
    let body = chat_body("after all", true);
    Answer::of(&two.send(&world.ask(&body)).await).is(&expected_answer(&body));
    world.finish().await;
}
