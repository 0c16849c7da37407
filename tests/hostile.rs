//! Workers and clients that do what nobody should: read nothing, leave at the wrong moment, say what must not be said.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod common;

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex},
    time::Duration,
};

use common::{
    Answer, Ask, Client, End, Leave, Leaver, Log, Metrics, PATIENCE, Raw, Reply, SOON, World, chat_body,
    completions_body, eventually, within,
    worker::{Worker, request},
};
use disagg_sidecar::{Config, Outcome};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    sync::Semaphore,
    task::{JoinHandle, JoinSet},
};
use trtllm_sim::{Engine, Fault, Role, expected_answer};

/// What a context worker says that no client may see.
const STATE: &str = "b3BhcXVlIHN0YXRlIG9mIGEgY29udGV4dCB3b3JrZXI=";

/// Waits until the page of metrics is so.
async fn metrics(world: &World, limit: Duration, what: &str, check: impl Fn(&Metrics) -> bool) {
    let waiting = async {
        while !check(&world.metrics().await) {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    let held = tokio::time::timeout(limit, waiting).await.is_ok();
    assert!(held, "not within {limit:?}: {what}");
}

/// Handing off to engines whose release is known, so that each connection is one of a leg.
fn pinned<'a>(flags: &[&'a str]) -> Vec<&'a str> {
    [&["--engine-version", "1.3.0rc24"], flags].concat()
}

// === the guard ===

#[tokio::test]
async fn a_nominated_content_type_gets_no_handoff_fields_past_the_guard() {
    let world = World::start(&pinned(&[])).await;
    let mut body = chat_body("x", false);
    body["disaggregated_params"] = json!({"request_type": "generation_only", "ctx_request_id": 5});
    for nominated in ["close, content-type", "Content-Type", "keep-alive , CONTENT-TYPE,x"] {
        world.forget();
        let ask = Ask::of(&body).header("connection", nominated);
        let reply = Raw::asking(world.data, &ask).await.reply().await;
        reply.is_error(400, "handoff_fields_forbidden");
        assert_eq!(world.called(), (0, 0), "{nominated}");
        // a worker that is told the type takes no text for JSON
        let mut ask = ask;
        ask.headers[0].1 = "text/plain".to_owned();
        Raw::asking(world.data, &ask).await.reply().await;
        let types: Vec<_> =
            world.generation_legs().iter().map(|leg| leg.header("content-type").map(str::to_owned)).collect();
        assert_eq!(types, [Some("text/plain".to_owned())], "{nominated}");
    }
    world.finish().await;
}

// === workers that read nothing ===

/// Connections of a worker that reads nothing.
#[derive(Clone, Default)]
struct Unread(Arc<Mutex<Vec<TcpStream>>>);

impl Unread {
    fn worker(&self) -> Worker {
        let unread = self.clone();
        Worker::start(move |stream| {
            let unread = unread.clone();
            async move {
                stream.peek(&mut [0]).await.unwrap();
                unread.0.lock().unwrap().push(stream);
            }
        })
    }

    fn count(&self) -> usize {
        self.0.lock().unwrap().len()
    }

    /// What was sent before the connections were closed is there still; the rest must not come any more.
    async fn are_closed(&self, whole: usize) {
        let streams = std::mem::take(&mut *self.0.lock().unwrap());
        for mut stream in streams {
            let mut read = vec![0; 64 << 10];
            let mut total = 0;
            let rest = async {
                while let Ok(count @ 1..) = stream.read(&mut read).await {
                    total += count;
                }
            };
            tokio::time::timeout(SOON, rest).await.expect("the end of an abandoned connection in time");
            assert!(total < whole, "the connection was open, and all of a request came");
        }
    }
}

const LARGE: usize = 8_000_000;

/// A request with a body of 8 MB.
fn large(stream: bool) -> Value {
    let mut body = chat_body("large", stream);
    body["user"] = json!("x".repeat(LARGE));
    body
}

#[tokio::test]
async fn a_context_leg_that_timed_out_holds_nothing_of_a_request_that_is_not_read() {
    let world = World::alone(|c| c, |g| g, &pinned(&["--context-timeout", "500ms"])).await;
    let unread = Unread::default();
    let worker = unread.worker();
    for stream in [true, false] {
        let ask = Ask::of(&large(stream)).via(&worker.address.to_string());
        world.send(&ask).await.is_error(504, "context_timeout");
        metrics(&world, SOON, "nothing is held", |metrics| metrics.get("disagg_buffered_bytes") == 0.0).await;
        assert_eq!(unread.count(), 1);
        unread.are_closed(LARGE).await;
    }
    assert_eq!(world.idle().await.in_flight(), 0.0);
    world.finish().await;
}

#[tokio::test]
async fn a_context_leg_whose_client_left_holds_nothing_of_a_request_that_is_not_read() {
    let world = World::alone(|c| c, |g| g, &pinned(&[])).await;
    let unread = Unread::default();
    let worker = unread.worker();
    for how in Leave::ALL {
        let ask = Ask::of(&large(true)).via(&worker.address.to_string());
        let leaver = Leaver::asking(&world, &ask, how).await;
        eventually("the leg is at the worker", || unread.count() == 1).await;
        let connection = leaver.leave().await;
        metrics(&world, SOON, "nothing is held", |metrics| metrics.get("disagg_buffered_bytes") == 0.0).await;
        unread.are_closed(LARGE).await;
        drop(connection);
    }
    assert_eq!(world.idle().await.in_flight(), 0.0);
    world.finish().await;
}

#[tokio::test]
async fn a_generation_leg_that_timed_out_holds_nothing_of_a_request_that_is_not_read() {
    let unread = Unread::default();
    let worker = unread.worker();
    let url = worker.url();
    let flags = pinned(&["--generation-url", &url, "--generation-head-timeout", "500ms"]);
    let world = World::alone(|c| c, |g| g, &flags).await;
    // the client is there to the end, or leaves it to a settlement
    world.exchange(&large(true)).await.is_error(504, "generation_timeout");
    metrics(&world, SOON, "nothing is held", |metrics| metrics.get("disagg_buffered_bytes") == 0.0).await;
    unread.are_closed(LARGE).await;
    let leaver = Leaver::asking(&world, &world.ask(&large(false)), Leave::Close).await;
    eventually("the leg is at the worker", || unread.count() == 1).await;
    leaver.leave().await;
    metrics(&world, SOON, "nothing is held", |metrics| {
        (metrics.get("disagg_buffered_bytes"), metrics.get("disagg_settlements_active")) == (0.0, 0.0)
    })
    .await;
    unread.are_closed(LARGE).await;
    world.idle().await;
    world.finish_with_orphans().await;
}

// === clients that leave ===

#[tokio::test]
async fn a_client_that_leaves_after_a_stray_line_end_is_noticed() {
    let world = World::start(&pinned(&[])).await;
    let fault = json!({"on": "context", "hang": "before_head"});
    for body in [chat_body("leaves", true), completions_body("leaves", false)] {
        for reset in [false, true] {
            let before = world.context.state().aborts;
            world.forget();
            let ask = world.ask(&body).fault(&fault);
            let mut raw = Raw::connect(world.data).await;
            raw.write([ask.wire(), b"\r\n".to_vec()].concat()).await;
            eventually("the context leg is there", || world.called() == (1, 0)).await;
            if reset {
                raw.reset();
            } else {
                drop(raw);
            }
            within(SOON, "the worker sees its client leave", || {
                let state = world.context.state();
                state.aborts == before + 1 && state.open_requests == 0
            })
            .await;
        }
    }
    world.finish().await;
}

#[tokio::test]
async fn a_stray_line_end_is_not_taken_for_the_client_leaving() {
    let world = World::start(&pinned(&[])).await;
    for stream in [true, false] {
        let body = chat_body("stays", stream);
        let slow = json!([
            {"on": "context", "before_head_ms": 300},
            {"on": "generation", "before_head_ms": 300},
        ]);
        let mut raw = Raw::connect(world.data).await;
        raw.write([world.ask(&body).fault(&slow).wire(), b"\r\n".to_vec()].concat()).await;
        Answer::of(&raw.reply().await).is(&expected_answer(&body));
        raw.write(world.ask(&body).wire()).await;
        Answer::of(&raw.reply().await).is(&expected_answer(&body));
    }
    world.finish().await;
}

#[tokio::test]
async fn a_settlement_ends_with_the_first_byte_of_a_whole_reply() {
    let (asked, go, closed) =
        (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
    let worker = Worker::start({
        let (asked, go, closed) = (asked.clone(), go.clone(), closed.clone());
        move |mut stream| {
            let (asked, go, closed) = (asked.clone(), go.clone(), closed.clone());
            async move {
                request(&mut stream).await;
                asked.add_permits(1);
                go.acquire().await.unwrap().forget();
                let head =
                    "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 1000\r\n\r\n{";
                stream.write_all(head.as_bytes()).await.unwrap();
                assert!(!matches!(stream.read(&mut [0]).await, Ok(1..)), "nothing more is asked");
                closed.add_permits(1);
            }
        }
    });
    let url = worker.url();
    let world = World::alone(|c| c, |g| g, &pinned(&["--generation-url", &url])).await;
    let permit = async |semaphore: &Semaphore, limit, what: &str| {
        tokio::time::timeout(limit, semaphore.acquire()).await.expect(what).unwrap().forget();
    };
    for how in Leave::ALL {
        let before = world.metrics().await;
        let leaver = Leaver::asking(&world, &world.ask(&chat_body("leaves", false)), how).await;
        permit(&asked, PATIENCE, "a generation leg").await;
        let connection = leaver.leave().await;
        metrics(&world, SOON, "it is being settled", |page| page.get("disagg_settlements_active") == 1.0)
            .await;
        go.add_permits(1);
        permit(&closed, SOON, "the end of the settlement").await;
        let counted = world.idle().await.since(&before);
        assert_eq!(counted.get("disagg_settlements_total{result=\"collected\"}"), Some(&1.0), "{counted:?}");
        drop(connection);
    }
    world.finish_with_orphans().await;
}

/// Passes one connection on; dropping it ends both halves at once, which an HTTP/2 client by itself does not.
struct Between {
    address: SocketAddr,
    task: JoinHandle<()>,
}

impl Between {
    async fn start(to: SocketAddr) -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let task = tokio::spawn(async move {
            let (mut near, _) = listener.accept().await.unwrap();
            let mut far = TcpStream::connect(to).await.unwrap();
            let _ = tokio::io::copy_bidirectional(&mut near, &mut far).await;
        });
        Self { address, task }
    }
}

impl Drop for Between {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// A client leaves and a drain begins, one some turns of the scheduler after the other.
async fn drained_while_leaving(stream: bool, drain_first: bool, turns: usize) {
    let what = format!("stream {stream}, drain first {drain_first}, {turns} turns between");
    let transfer = Duration::from_millis(600);
    let world = World::of(|c| c.kv_transfer(transfer), |g| g, &pinned(&[])).await;
    let between = Between::start(world.data).await;
    let mut client = Client::http2(between.address).await;
    let ask = world.ask(&chat_body("leaves", stream));
    let asking = tokio::spawn(async move { client.start(&ask).await.is_ok() });
    eventually("the transfer is under way", || world.called().1 == 1 && world.context.state().kv_held == 1)
        .await;
    if drain_first {
        world.handle.drain();
    } else {
        between.task.abort();
    }
    for _ in 0..turns {
        tokio::task::yield_now().await;
    }
    world.handle.drain();
    drop(between);
    let outcome = tokio::time::timeout(PATIENCE, world.running).await.expect("an end in time");
    assert_eq!(outcome.unwrap(), Outcome::Complete, "{what}");
    let (context, generation) = (world.context.state(), world.generation.state());
    assert_eq!((context.kv_held, context.pulls), (0, 1), "{what}");
    assert_eq!((generation.fetched, generation.transfer_aborts), (1, 0), "{what}");
    asking.await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_drain_waits_for_handoffs_of_http_2_clients_that_leave() {
    // what one task of the sidecar has seen of it, another may have not: the more at a time, the likelier
    let mut rounds = JoinSet::new();
    for turns in [0, 1, 2, 3, 5, 10, 30, 100] {
        for drain_first in [true, false] {
            for stream in [true, false] {
                rounds.spawn(drained_while_leaving(stream, drain_first, turns));
            }
        }
    }
    while let Some(round) = rounds.join_next().await {
        round.unwrap();
    }
}

// === clients that do not read ===

/// Answers that do not fit into buffers on the way.
fn endless(text: &str) -> Value {
    let mut body = chat_body(text, true);
    body["max_tokens"] = json!(200_000);
    body["ignore_eos"] = json!(true);
    body
}

#[tokio::test]
async fn clients_that_never_read_lose_their_place() {
    let flags = pinned(&["--max-in-flight", "1", "--generation-idle-timeout", "500ms"]);
    let world = World::alone(|c| c, |g| g, &flags).await;
    for routed in [true, false] {
        for two in [false, true] {
            let what = format!("routed {routed}, HTTP/2 {two}");
            let body = endless("never read");
            let ask = if routed { world.ask(&body) } else { Ask::of(&body) };
            let before = world.generation.state().generation_aborts;
            let (mut one, mut other) = (None, None);
            if two {
                let mut client = Client::http2(world.data).await;
                let response = client.start(&ask).await.unwrap();
                assert_eq!(response.status(), 200);
                other = Some((client, response));
            } else {
                one = Some(Raw::asking(world.data, &ask).await);
            }
            eventually(&format!("the worker is let go: {what}"), || {
                world.generation.state().generation_aborts == before + 1
            })
            .await;
            world.idle().await;
            let next = chat_body("the next one", true);
            Answer::of(&world.exchange(&next).await).is(&expected_answer(&next));
            if let Some(mut raw) = one {
                let reply = raw.reply().await;
                assert_eq!((reply.status.as_u16(), reply.end), (200, End::Cut), "{what}");
            }
            drop(other);
        }
    }
    world.finish().await;
}

// === streams that break ===

/// What came before the connection ended, and whether it ended in good order.
async fn over_http_1_0(world: &World, ask: &Ask) -> (String, bool) {
    let wire = String::from_utf8(ask.wire()).unwrap().replacen("HTTP/1.1", "HTTP/1.0", 1);
    let mut stream = TcpStream::connect(world.data).await.unwrap();
    stream.write_all(wire.as_bytes()).await.unwrap();
    let mut read = Vec::new();
    let end = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut read)).await.expect("an end in time");
    (String::from_utf8(read).unwrap(), end.is_ok())
}

#[tokio::test]
async fn a_stream_that_breaks_ends_with_a_reset_over_http_1_0() {
    let world = World::start(&pinned(&[])).await;
    for body in [chat_body("breaks", true), completions_body("breaks", true)] {
        for (routed, on) in [(true, "generation"), (false, "aggregated")] {
            let ask = if routed { world.ask(&body) } else { Ask::of(&body) };
            // the end of the connection is the end of the answer
            let (whole, good) = over_http_1_0(&world, &ask).await;
            assert!(whole.starts_with("HTTP/1.0 200") && whole.ends_with("data: [DONE]\n\n"), "{whole}");
            assert!(good, "an answer that is whole ends in good order");
            for how in ["fin", "rst", "garbage"] {
                let fault = json!({"on": on, "cut": {"at": "body", "after_bytes": 300, "how": how}});
                let (text, good) = over_http_1_0(&world, &ask.clone().fault(&fault)).await;
                assert!(!good, "{on} {how}: in good order after {text}");
                assert!(!text.contains("[DONE]"), "{text}");
            }
        }
    }
    world.finish().await;
}

// === retries ===

#[tokio::test]
async fn a_retry_does_not_go_to_another_stale_connection() {
    const IDLE: usize = 16;
    for how in ["fin", "rst"] {
        let world = World::alone(|c| c, |g| g, &pinned(&["--context-retries", "1"])).await;
        let burst = async |count: usize, fault: Option<Value>| {
            let mut replies = JoinSet::new();
            for number in 0..count {
                let mut ask = world.ask(&chat_body(&format!("burst {number}"), false));
                if let Some(fault) = &fault {
                    ask = ask.fault(fault);
                }
                let data = world.data;
                replies.spawn(async move { Client::http1(data).await.send(&ask).await });
            }
            for reply in replies.join_all().await {
                Answer::of(&reply);
            }
        };
        // as many connections as there are requests at a time
        burst(IDLE, Some(json!({"on": "context", "before_head_ms": 300}))).await;
        assert!(
            world.context.state().open_connections >= IDLE / 2,
            "the requests were not under way at a time"
        );
        let fault = json!({"cut": {"at": "reuse", "how": how}}).to_string();
        world.context.set_fault(Fault::from_json(&fault).unwrap().remove(0));
        let before = world.metrics().await;
        burst(8, None).await;
        let retried = world.idle().await.since(&before);
        assert!(retried.keys().any(|name| name.starts_with("disagg_context_retries_total")), "{retried:?}");
        world.finish().await;
    }
}

// === internal state ===

/// A chat or a completions request.
type Body = fn(&str, bool) -> Value;
const BODIES: [Body; 2] = [chat_body, completions_body];

/// What a context worker with [`STATE`] answers, and what the generation worker answers then.
async fn with_state(world: &World, body: Value, generation: Value) -> Reply {
    let state = json!({"on": "context", "set": {
        "/choices/0/disaggregated_params/encoded_opaque_state": STATE,
    }});
    let mut generation = generation;
    generation["on"] = json!("generation");
    world.send(&world.ask(&body).fault(&json!([state, generation]))).await
}

#[tokio::test]
async fn a_generation_refusal_that_cannot_be_searched_is_not_relayed() {
    let world = World::start(&pinned(&[])).await;
    let quoted = format!(r#"{{"object":"error","message":"bad: {STATE}","code":400}}"#);
    let utf16: String = quoted.chars().flat_map(|c| [c, '\0']).collect();
    let spaced: String = quoted.chars().flat_map(|c| [c, ' ']).collect();
    let json = ("content-type", "application/json");
    for (headers, body) in [
        (vec![json], &utf16),
        (vec![("content-type", "application/json; charset=utf-16le")], &utf16),
        (vec![("content-type", "text/plain; charset=utf-16")], &utf16),
        (vec![json, ("content-encoding", "gzip")], &spaced),
        (vec![json, ("content-encoding", "x-unknown")], &spaced),
        (vec![json], &quoted),
    ] {
        for (status, stream) in [(400, true), (400, false), (422, true), (500, true), (503, false)] {
            let headers: serde_json::Map<_, _> =
                headers.iter().map(|(name, value)| ((*name).to_owned(), json!(value))).collect();
            let what = format!("{status} {headers:?}");
            let fault = json!({"status": status, "headers": headers, "body": body});
            for body in BODIES {
                let reply = with_state(&world, body("state", stream), fault.clone()).await;
                reply.is_error(status, "generation_rejected");
                let text = reply.text().replace(['\0', ' '], "");
                assert!(!text.contains(STATE), "{what}: {text}");
                assert_eq!(reply.header("content-encoding"), None, "{what}");
            }
        }
    }
    // one that can be is
    let refusal = r#"{"object":"error","message":"no","code":400}"#;
    for body in BODIES {
        let reply = with_state(&world, body("state", true), json!({"status": 400, "body": refusal})).await;
        assert_eq!((reply.status.as_u16(), reply.text().as_str()), (400, refusal));
    }
    world.finish_with_orphans().await;
}

#[tokio::test]
async fn a_whole_reply_with_the_state_in_another_place_is_not_relayed() {
    let world = World::start(&pinned(&[])).await;
    let reply = |members: Value| {
        let mut reply = json!({"id": "g", "object": "chat.completion", "choices": [
            {"index": 0, "message": {"role": "assistant", "content": "hi"}, "finish_reason": "stop"},
        ]});
        reply.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
        json!({"status": 200, "body": reply.to_string()})
    };
    for members in [
        json!({"echo": STATE}),
        json!({"echo": [[{"a": format!("before {STATE} after")}]]}),
        json!({"choices": [{"index": 0, "message": {"role": "assistant", "content": STATE}}]}),
        json!({"choices": [{"index": 0, "text": STATE}]}),
        json!({"disaggregated_params": {"encoded_opaque_state": STATE}}),
    ] {
        for body in BODIES {
            let reply = with_state(&world, body("state", false), reply(members.clone())).await;
            reply.is_error(502, "invalid_generation_reply");
            assert!(!reply.text().contains(STATE), "{members}");
        }
    }
    // where it is expected it is taken out
    let choice = json!({"index": 0, "message": {"role": "assistant", "content": "hi"}, "finish_reason": "stop",
        "disaggregated_params": {"encoded_opaque_state": STATE}});
    for body in BODIES {
        let clean = with_state(&world, body("state", false), reply(json!({"choices": [choice]}))).await;
        assert_eq!(Answer::of(&clean).text, "hi");
        assert!(!clean.text().contains(STATE));
    }
    world.finish_with_orphans().await;
}

#[tokio::test]
async fn the_head_of_a_generation_reply_shows_no_internal_state() {
    for (status, kind, body) in [
        ("200", "application/json", r#"{"choices":[]}"#),
        ("200", "text/event-stream", "data: [DONE]\n\n"),
        ("400", "application/json", r#"{"error":"x"}"#),
    ] {
        let worker = Worker::start(move |mut stream| async move {
            request(&mut stream).await;
            let head = format!(
                "HTTP/1.1 {status} {STATE}\r\nx-a: 1\r\nx-b: s={STATE}\r\nx-c: tcp://10.0.0.5:37771\r\nx-a: {STATE}\r\n\
                 x-d: 2\r\ncontent-type: {kind}\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
                body.len()
            );
            let _ = stream.write_all((head + body).as_bytes()).await;
            let _ = stream.read(&mut [0]).await;
        });
        let world = World::start(&pinned(&["--generation-url", &worker.url()])).await;
        let fault = json!({"on": "context", "set": {
            "/choices/0/disaggregated_params/encoded_opaque_state": STATE,
            "/choices/0/disaggregated_params/ctx_info_endpoint": "tcp://10.0.0.5:37771"}});
        let ask = world.ask(&chat_body("state", false)).fault(&fault).header("connection", "close");
        let (mut client, mut text) = (TcpStream::connect(world.data).await.unwrap(), String::new());
        client.write_all(&ask.wire()).await.unwrap();
        tokio::time::timeout(PATIENCE, client.read_to_string(&mut text)).await.expect("in time").unwrap();
        assert!(text.starts_with(&format!("HTTP/1.1 {status} ")), "{text}");
        assert!(text.contains("x-d: 2") && text.contains(body), "{text}");
        assert!(!text.contains(STATE) && !text.contains("10.0.0.5"), "{text}");
        world.finish_with_orphans().await;
    }
}

#[tokio::test]
async fn a_whole_reply_that_finds_no_room_shows_no_internal_state() {
    let (asked, go) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
    let chunked = Arc::new(Mutex::new(false));
    let worker = Worker::start({
        let (asked, go, chunked) = (asked.clone(), go.clone(), chunked.clone());
        move |mut stream| {
            let (asked, go, chunked) = (asked.clone(), go.clone(), chunked.clone());
            async move {
                request(&mut stream).await;
                asked.add_permits(1);
                go.acquire().await.unwrap().forget();
                let body = json!({"choices": [{"index": 0, "message": {"content": "A".repeat(3_000)},
                    "disaggregated_params": {"encoded_opaque_state": STATE}}]})
                .to_string();
                let length = body.len();
                let (framing, body) = if *chunked.lock().unwrap() {
                    ("transfer-encoding: chunked".to_owned(), format!("{length:x}\r\n{body}\r\n0\r\n\r\n"))
                } else {
                    (format!("content-length: {length}"), body)
                };
                let head = format!(
                    "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\n{framing}\r\n\r\n"
                );
                // it need not be wanted to its end
                let _ = stream.write_all((head + &body).as_bytes()).await;
                let _ = stream.read(&mut [0]).await;
            }
        }
    });
    let url = worker.url();
    let flags = pinned(&["--generation-url", &url, "--max-buffered-bytes", "64KiB"]);
    let world = World::alone(|c| c, |g| g, &flags).await;
    for (chunks, full) in [(false, true), (true, true), (false, false), (true, false)] {
        *chunked.lock().unwrap() = chunks;
        let mut client = Raw::asking(world.data, &world.ask(&chat_body("no room", false))).await;
        tokio::time::timeout(PATIENCE, asked.acquire()).await.expect("a generation leg").unwrap().forget();
        // somebody else uploads slowly
        let mut other = Raw::connect(world.data).await;
        if full {
            // but for less than the reply needs
            let most = (63 << 10) as f64;
            let held = world.metrics().await.get("disagg_buffered_bytes");
            other.write(Ask::post("/v1/other", "").head("content-length: 200000")).await;
            other.write(vec![b' '; (most - held) as usize]).await;
            let full = |page: &Metrics| page.get("disagg_buffered_bytes") >= most;
            metrics(&world, PATIENCE, "the budget is full", full).await;
        }
        go.add_permits(1);
        let reply = client.reply().await;
        assert!(!reply.text().contains(STATE), "{}", reply.text());
        if full {
            reply.is_error(503, "overloaded");
        } else {
            assert_eq!(Answer::of(&reply).text, "A".repeat(3_000));
        }
        drop(other);
        metrics(&world, PATIENCE, "nothing is held", |page| page.get("disagg_buffered_bytes") == 0.0).await;
    }
    world.idle().await;
    world.finish_with_orphans().await;
}

// === logs ===

#[tokio::test]
async fn a_refusal_that_quotes_the_prompt_reaches_the_client_and_no_log() {
    const PROMPT: &str = "what only the client may know";
    let log = Log::default();
    let _logging = log.start();
    let world = World::start(&pinned(&[])).await;
    let quoting = [
        json!({"object": "error", "message": format!("bad text: {PROMPT}"), "code": 400}).to_string(),
        json!({"error": format!("[{{'input': '{PROMPT}'}}]")}).to_string(),
        json!({"detail": [{"msg": format!("no: {PROMPT}")}]}).to_string(),
        format!("bad text: {PROMPT}"),
    ];
    for body in &quoting {
        for on in ["context", "generation"] {
            for status in [400, 422] {
                for stream in [true, false] {
                    let fault = json!({"on": on, "status": status, "body": body});
                    let reply = world.send(&world.ask(&chat_body(PROMPT, stream)).fault(&fault)).await;
                    assert_eq!(reply.status, status);
                    assert!(reply.text().contains(PROMPT), "{on}: {}", reply.text());
                }
            }
        }
    }
    let log = log.text();
    assert!(log.lines().filter(|line| line.contains("tower_disagg")).count() > quoting.len(), "{log}");
    assert!(!log.contains(PROMPT), "{log}");
    world.finish_with_orphans().await;
}

// === releases ===

#[tokio::test]
async fn a_generation_worker_that_comes_back_with_another_release_is_asked_again() {
    let world = World::start(&[]).await;
    world.ready().await;
    let port = world.generation.addr().port();
    // no request runs; the readiness probes alone see it go and come
    world.generation.shutdown().await;
    let gone = async {
        while world.admin("/readyz").await.status != 503 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(PATIENCE, gone).await.expect("not ready in time");
    let config = trtllm_sim::Config::new(Role::Generation).port(port).release("1.2.1");
    let new = Engine::start(config).await.unwrap();
    let asked = async {
        while !new.state().requests.iter().any(|request| request.path == "/version") {
            world.admin("/readyz").await;
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(PATIENCE, asked).await.expect("asked for its release in time");
    let refused = async {
        // the answer to the question may be on its way still
        loop {
            let reply = world.exchange(&chat_body("another", true)).await;
            if reply.status == 502 {
                return reply;
            }
        }
    };
    let refused = tokio::time::timeout(PATIENCE, refused).await.expect("the new release is known in time");
    refused.is_error(502, "unsupported_engine_version");
    world.finish_with_orphans().await;
}

// === passthrough over HTTP/2 ===

#[tokio::test]
async fn what_comes_over_http_2_passes_through() {
    for mode in ["guarded", "verbatim"] {
        let world = World::start(&pinned(&["--passthrough", mode])).await;
        let mut client = Client::http2(world.data).await;
        for stream in [true, false] {
            for body in [chat_body("alone", stream), completions_body("alone", stream)] {
                let ask =
                    Ask::of(&body).header("te", "trailers").header("cookie", "a=1").header("cookie", "b=2");
                Answer::of(&client.send(&ask).await).is(&expected_answer(&body));
                let leg = world.generation_legs().pop().unwrap();
                assert_eq!(leg.body, ask.body, "{mode}");
                let host = leg.headers.get_all("host").iter().count();
                assert_eq!((host, leg.header("te")), (1, None), "{mode}");
                assert_eq!(leg.headers.get_all("cookie").iter().collect::<Vec<_>>(), ["a=1; b=2"], "{mode}");
            }
        }
        let models = client.send(&Ask::get("/v1/models")).await;
        assert_eq!((models.status.as_u16(), models.end), (200, End::Complete));
        assert!(models.text().contains("\"sim\""), "{}", models.text());
        assert!(!client.is_closed());
        assert_eq!(world.called().0, 0);
        world.finish().await;
    }
}

// === settings ===

/// A file with settings, gone when it is dropped.
struct File(std::path::PathBuf);

impl File {
    fn new(name: &str, text: &str) -> Self {
        let path = std::env::temp_dir().join(format!("disagg-hostile-{}-{name}.toml", std::process::id()));
        std::fs::write(&path, text).unwrap();
        Self(path)
    }

    fn config(&self) -> Result<Config, String> {
        Config::from_args(["--config", self.0.to_str().unwrap()]).map_err(|error| error.to_string())
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

#[test]
fn an_empty_list_of_allowed_endpoints_is_refused() {
    let error = File::new("empty", "allow-context = []").config().unwrap_err();
    assert!(error.contains("allow-context"), "{error}");
    let config = File::new("one", "allow-context = [\"127.0.0.1:80\"]").config().unwrap();
    assert_eq!(config.allow_context.len(), 1);
    Config::from_args(["--allow-context", ""]).unwrap_err();
}

#[test]
fn a_misspelt_log_level_is_refused() {
    for filter in ["foo", "inof", "", "info,foo"] {
        let error = Config::from_args(["--log", filter]).expect_err(filter).to_string();
        assert!(error.contains("--log"), "{error}");
    }
    for filter in ["off", "debug", "info,disagg_sidecar=debug"] {
        Config::from_args(["--log", filter]).expect(filter);
    }
}
