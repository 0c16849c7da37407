//! Which context workers are called: the grammar of the routing header, and the list of allowed endpoints.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod common;

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use common::{Answer, Ask, Client, Raw, World, chat_body};
use tokio::{net::TcpListener, task::JoinHandle};
use trtllm_sim::{Cut, CutAt, CutHow, Fault, On, SeenRequest, expected_answer};

const NEITHER: (usize, usize) = (0, 0);

/// Somebody who must not be called, and counts how often that was tried.
struct Forbidden {
    address: SocketAddr,
    accepted: Arc<AtomicUsize>,
    task: JoinHandle<()>,
}

impl Forbidden {
    async fn at(address: impl tokio::net::ToSocketAddrs) -> Self {
        let listener = TcpListener::bind(address).await.unwrap();
        let address = listener.local_addr().unwrap();
        let accepted = Arc::new(AtomicUsize::new(0));
        let count = accepted.clone();
        let task = tokio::spawn(async move {
            while listener.accept().await.is_ok() {
                count.fetch_add(1, Ordering::SeqCst);
            }
        });
        Self { address, accepted, task }
    }

    /// Nobody connected before this call: connections are accepted in their order.
    async fn was_left_alone(&self) {
        let before = self.accepted.load(Ordering::SeqCst);
        let own = tokio::net::TcpStream::connect(self.address).await.unwrap();
        common::eventually("the own connection is accepted", || {
            self.accepted.load(Ordering::SeqCst) > before
        })
        .await;
        assert_eq!(self.accepted.swap(0, Ordering::SeqCst), 1, "{} was connected to", self.address);
        drop(own);
    }
}

impl Drop for Forbidden {
    fn drop(&mut self) {
        self.task.abort();
    }
}

// === the grammar ===

/// A chat request with these lines in its head, as they are; the length that it claims is that of its body.
fn head(lines: &[&[u8]], length: usize) -> Vec<u8> {
    let mut wire =
        b"POST /v1/chat/completions HTTP/1.1\r\nhost: g\r\ncontent-type: application/json\r\n".to_vec();
    for line in lines {
        wire.extend_from_slice(line);
        wire.extend_from_slice(b"\r\n");
    }
    wire.extend_from_slice(format!("content-length: {length}\r\n\r\n").as_bytes());
    wire
}

fn routed(value: &[u8]) -> Vec<u8> {
    [b"x-prefiller-host-port:", value].concat()
}

#[tokio::test]
async fn a_header_that_is_not_one_endpoint_is_the_routers_fault() {
    let world = World::start(&[]).await;
    let good = world.context.hostport();
    let port = world.context.addr().port();
    let label = "a".repeat(63);
    let name_254 = format!("{label}.{label}.{label}.{}", "a".repeat(62));
    assert_eq!(name_254.len(), 254);
    let text = |text: &str| text.replace("PORT", &port.to_string()).into_bytes();
    let mut values: Vec<Vec<u8>> = [
        // empty, or white space and nothing else
        "",
        "   ",
        "\t",
        // white space inside
        "127.0.0.1 :PORT",
        "127.0.0.1: PORT",
        "127.0.0.1\t:PORT",
        "127.0.0.1:PORT\t127.0.0.1:PORT",
        // parts of an endpoint
        "127.0.0.1",
        ":PORT",
        ":",
        "127.0.0.1:",
        "localhost",
        "[::1]",
        "[::1]:",
        // ports
        "127.0.0.1:0",
        "127.0.0.1:00",
        "127.0.0.1:0PORT",
        "127.0.0.1:+PORT",
        "127.0.0.1:-1",
        "127.0.0.1:65536",
        "127.0.0.1:4294967297",
        "127.0.0.1:18446744073709551617",
        "127.0.0.1:abc",
        "127.0.0.1:0x1f",
        "127.0.0.1:PORT:PORT",
        "127.0.0.1:1e3",
        // other ways to write 127.0.0.1, that a resolver would take
        "2130706433:PORT",
        "0x7f000001:PORT",
        "0x7f.1:PORT",
        "0x7f.0.0.1:PORT",
        "127.1:PORT",
        "127.0.1:PORT",
        "0177.0.0.1:PORT",
        "127.0.0.01:PORT",
        "127.000.000.001:PORT",
        "127.0.0.1.:PORT",
        "127.0.0.256:PORT",
        "127.0.0.1.1:PORT",
        "0:PORT",
        // IPv6
        "::1:PORT",
        "0:0:0:0:0:0:0:1:PORT",
        "2001:db8::1:PORT",
        "[]:PORT",
        "[zz]:PORT",
        "[::1:PORT",
        "::1]:PORT",
        "[[::1]]:PORT",
        "[127.0.0.1]:PORT",
        "[::1]PORT",
        "[::1].:PORT",
        "[fe80::1%25eth0]:PORT",
        "[fe80::1%eth0]:PORT",
        "[fe80::1%1]:PORT",
        "[v1.fe80]:PORT",
        "[::ffff:127.0.0.01]:PORT",
        // lists, users, URLs
        "127.0.0.1:PORT,127.0.0.1:PORT",
        "127.0.0.1:PORT,",
        ",127.0.0.1:PORT",
        "127.0.0.1:PORT;q=1",
        "u@127.0.0.1:PORT",
        "u:p@127.0.0.1:PORT",
        "http://127.0.0.1:PORT",
        "//127.0.0.1:PORT",
        "127.0.0.1:PORT/",
        "127.0.0.1:PORT/v1/completions",
        "127.0.0.1:PORT?x",
        "127.0.0.1:PORT#x",
        "127.0.0.1%00:PORT",
        "127%2e0.0.1:PORT",
        "\"127.0.0.1:PORT\"",
        "<127.0.0.1:PORT>",
        "127.0.0.1:PORT\\",
        // names
        "*:PORT",
        "*.test:PORT",
        "a;b:PORT",
        "-h:PORT",
        "h-:PORT",
        "h..x:PORT",
        ".h:PORT",
        ".:PORT",
        "h!:PORT",
        "h~1:PORT",
        "host.1:PORT",
        "undefined",
        "null",
    ]
    .into_iter()
    .map(text)
    .collect();
    values.push(format!("{name_254}:{port}").into_bytes());
    values.push(format!("{label}a.test:{port}").into_bytes());
    values.push(format!("{}:{port}", "a.".repeat(4000)).into_bytes());
    // bytes beyond ASCII: a letter in Latin-1 and in UTF-8, a full-width digit, invisible spaces
    for bytes in ["\u{e9}", "\u{ff11}", "\u{a0}", "\u{200b}", "\u{2024}"]
        .map(str::as_bytes)
        .into_iter()
        .chain([&b"\xe9"[..], b"\xff", b"\x80"])
    {
        values.push([b"h", bytes, good.as_bytes()].concat());
        values.push([good.as_bytes(), bytes].concat());
    }
    for value in &values {
        let what = String::from_utf8_lossy(value);
        let mut raw = Raw::connect(world.data).await;
        // the body is never sent
        raw.write(head(&[&routed(value)], 1000)).await;
        let error = raw.reply().await.is_error(502, "invalid_epp_metadata");
        let message = error["message"].as_str().unwrap();
        assert!(message.contains("x-prefiller-host-port"), "{what}: {message}");
        assert_eq!(world.called(), NEITHER, "{what}");
    }
    assert_eq!(world.context.state().connections, 0, "the context worker was connected to");
    world.finish().await;
}

#[tokio::test]
async fn a_header_that_occurs_twice_is_the_routers_fault() {
    let world = World::start(&[]).await;
    let good = world.context.hostport().into_bytes();
    for (first, second) in [
        (&good[..], &good[..]),
        (&good, b"other:1"),
        (&good, b""),
        (b"", &good),
        (b"", b""),
        (b"junk", b"junk"),
    ] {
        for name in ["x-prefiller-host-port", "X-Prefiller-Host-Port", "X-PREFILLER-HOST-PORT"] {
            let mut raw = Raw::connect(world.data).await;
            let second = [name.as_bytes(), b": ", second].concat();
            raw.write(head(&[&routed(first), b"x-between: 1", &second], 1000)).await;
            raw.reply().await.is_error(502, "invalid_epp_metadata");
        }
    }
    assert_eq!((world.called(), world.context.state().connections), (NEITHER, 0));
    world.finish().await;
}

#[tokio::test]
async fn a_head_that_is_no_http_is_no_handoff() {
    let world = World::start(&[]).await;
    let good = world.context.hostport();
    for lines in [
        format!("x-prefiller-host-port : {good}"),
        format!(" x-prefiller-host-port: {good}"),
        format!("x-prefiller-host-port: 127.0.0.1\r\n :{}", world.context.addr().port()),
        format!("x-prefiller-host-port: {good}\0"),
        format!("x-prefiller-host-port: {good}\rx: y"),
        format!("x-prefiller-host-port: {good}\x0b"),
        format!("x-prefiller-host-port: {good}\x7f"),
        "x-prefiller-host-port".to_owned(),
    ] {
        let mut raw = Raw::connect(world.data).await;
        raw.write(head(&[lines.as_bytes()], 1000)).await;
        let status = raw.try_head().await.map(|(status, _)| status.as_u16());
        assert!(matches!(status, Some(400 | 502) | None), "{lines:?}: {status:?}");
    }
    assert_eq!((world.called(), world.context.state().connections), (NEITHER, 0));
    world.finish().await;
}

#[tokio::test]
async fn what_http_leaves_to_the_sender_makes_no_difference() {
    let world = World::start(&[]).await;
    let good = world.context.hostport();
    let body = chat_body("well routed", false);
    for line in [
        format!("x-prefiller-host-port:{good}"),
        format!("X-Prefiller-Host-Port:   {good}"),
        format!("X-PREFILLER-HOST-PORT:\t{good}\t "),
        // said to be for this hop only, which it is
        format!("x-prefiller-host-port: {good}\r\nconnection: x-prefiller-host-port"),
        format!("connection: close, X-Prefiller-Host-Port\r\nx-prefiller-host-port: {good}"),
    ] {
        world.forget();
        let mut raw = Raw::connect(world.data).await;
        let text = body.to_string();
        raw.write([head(&[line.as_bytes()], text.len()), text.into_bytes()].concat()).await;
        Answer::of(&raw.reply().await).is(&expected_answer(&body));
        assert_eq!(world.called(), (1, 1), "{line}");
        for leg in world.context_legs().iter().chain(&world.generation_legs()) {
            assert!(leg.header("x-prefiller-host-port").is_none(), "{line}");
        }
    }
    // nor can it be hidden that way
    let mut raw = Raw::connect(world.data).await;
    world.forget();
    raw.write(head(&[b"connection: x-prefiller-host-port", &routed(b"junk")], 1000)).await;
    raw.reply().await.is_error(502, "invalid_epp_metadata");
    assert_eq!(world.called(), NEITHER);
    world.finish().await;
}

#[tokio::test]
async fn a_trailer_is_no_header() {
    let world = World::start(&[]).await;
    let body = chat_body("not routed", false);
    for value in [world.context.hostport(), "junk".to_owned()] {
        world.forget();
        let framing = "transfer-encoding: chunked\r\ntrailer: x-prefiller-host-port";
        let (head, text) = (Ask::of(&body).head(framing), body.to_string());
        let rest = format!("{:x}\r\n{text}\r\n0\r\nx-prefiller-host-port: {value}\r\n\r\n", text.len());
        let mut raw = Raw::connect(world.data).await;
        raw.write(head + &rest).await;
        Answer::of(&raw.reply().await).is(&expected_answer(&body));
        assert_eq!(world.called(), (0, 1), "{value}");
        assert!(world.generation_legs()[0].header("x-prefiller-host-port").is_none());
    }
    world.finish().await;
}

#[tokio::test]
async fn over_http_2_the_header_is_the_same() {
    let world = World::start(&[]).await;
    let good = world.context.hostport();
    let body = chat_body("over HTTP/2", true);
    let mut client = Client::http2(world.data).await;
    Answer::of(&client.send(&Ask::of(&body).via(&good)).await).is(&expected_answer(&body));
    world.forget();
    let spaced = format!(" {good}");
    for values in [&[&*good, &*good][..], &[""], &["junk"], &[&*spaced], &["h:1,h:2"]] {
        let ask = values.iter().fold(Ask::of(&body), |ask, value| ask.via(value));
        client.send(&ask).await.is_error(502, "invalid_epp_metadata");
    }
    assert_eq!(world.called(), NEITHER);
    world.finish().await;
}

// === the list ===

/// Sends the head of a request and nothing of its body; what comes back must not wait for more.
async fn refused(world: &World, context: &str, expected: (u16, &str)) {
    for expectation in ["", "expect: 100-continue\r\n"] {
        let mut raw = Raw::connect(world.data).await;
        let ask = Ask::of(&chat_body("x", true)).via(context);
        raw.write(ask.head(&format!("{expectation}content-length: 100000"))).await;
        raw.reply().await.is_error(expected.0, expected.1);
    }
    assert_eq!(world.called(), NEITHER, "{context}");
    assert_eq!(world.context.state().connections, 0, "{context} was connected to");
}

const NOT_ALLOWED: (u16, &str) = (403, "context_endpoint_not_allowed");

/// The requests that a context worker saw, the question for its release among them.
fn seen(world: &World, host: &str) -> Vec<SeenRequest> {
    let requests = world.context.state().requests;
    assert!(requests.iter().all(|request| request.header("host") == Some(host)), "{host}: {requests:?}");
    requests
}

#[tokio::test]
async fn an_endpoint_on_the_list_is_that_endpoint_and_no_other() {
    let world = World::start(&["--allow-context", "127.0.0.1:CONTEXT_PORT"]).await;
    let port = world.context.addr().port();
    let other_port = Forbidden::at("127.0.0.1:0").await;
    let other_host = Forbidden::at(("127.0.0.2", port)).await;
    for context in [
        other_port.address.to_string(),
        other_host.address.to_string(),
        format!("localhost:{port}"),
        format!("LOCALHOST:{port}"),
        format!("localhost.:{port}"),
        format!("[::ffff:127.0.0.1]:{port}"),
        format!("[::ffff:7f00:1]:{port}"),
        format!("[::1]:{port}"),
        format!("127.0.0.1.nip.test:{port}"),
        "169.254.169.254:80".into(),
        "[::ffff:169.254.169.254]:80".into(),
        "[fd00:ec2::254]:80".into(),
        "metadata.google.internal:80".into(),
    ] {
        refused(&world, &context, NOT_ALLOWED).await;
    }
    refused(&world, &format!("127.0.0.1.:{port}"), (502, "invalid_epp_metadata")).await;
    other_port.was_left_alone().await;
    other_host.was_left_alone().await;
    let body = chat_body("listed", true);
    Answer::of(&world.exchange(&body).await).is(&expected_answer(&body));
    assert_eq!(seen(&world, &world.context.hostport()).len(), 2);
    world.finish().await;
}

#[tokio::test]
async fn a_name_is_called_at_the_addresses_that_were_checked() {
    // by its name, and by what it resolves to as well
    for entry in [
        "localhost:CONTEXT_PORT",
        "localhost:CONTEXT_PORT,127.0.0.0/8:CONTEXT_PORT",
        "127.0.0.1/32:1-CONTEXT_PORT,LocalHost:CONTEXT_PORT",
        "10.0.0.0/8:CONTEXT_PORT,127.0.0.1/32:CONTEXT_PORT,localhost:CONTEXT_PORT",
        "localhost:CONTEXT_PORT,10.0.0.0/8:1",
    ] {
        let world = World::start(&["--allow-context", entry]).await;
        let port = world.context.addr().port();
        let named = format!("localhost:{port}");
        let elsewhere = Forbidden::at(("127.0.0.2", port)).await;
        for form in ["localhost", "LOCALHOST", "LocalHost"] {
            world.forget();
            let body = chat_body("a name", true);
            let ask = Ask::of(&body).via(&format!("{form}:{port}"));
            Answer::of(&world.send(&ask).await).is(&expected_answer(&body));
            assert_eq!(world.called(), (1, 1), "{entry}: {form}");
            seen(&world, &named);
        }
        // another attempt goes to the same place
        world.forget();
        let mut fault = Fault::on(On::Context);
        fault.cut = Some(Cut { at: CutAt::Head, how: CutHow::Rst });
        fault.times = Some(1);
        world.context.set_fault(fault);
        let body = chat_body("again", true);
        Answer::of(&world.send(&Ask::of(&body).via(&named)).await).is(&expected_answer(&body));
        assert_eq!(world.called(), (2, 1), "{entry}");
        let asked = seen(&world, &named);
        let questions = asked.iter().filter(|request| request.path == "/version").count();
        assert_eq!((asked.len(), questions), (3, 1), "{entry}: it is asked for its release again");
        elsewhere.was_left_alone().await;
        world.finish().await;
    }
}

#[tokio::test]
async fn a_name_that_is_not_listed_or_leads_elsewhere_is_refused_before_its_body() {
    for entry in [
        // not as a name, whatever it resolves to
        "127.0.0.0/8:CONTEXT_PORT,[::1]/128:CONTEXT_PORT",
        "127.0.0.0/8:CONTEXT_PORT,localhost:1",
        // to no address of a network
        "localhost:CONTEXT_PORT,10.0.0.0/8:CONTEXT_PORT",
        "localhost:CONTEXT_PORT,127.0.0.2/32:CONTEXT_PORT",
        "127.0.0.0/8:1-1023",
        "*.localhost:CONTEXT_PORT",
        "127.0.0.1:CONTEXT_PORT",
        "localhost:CONTEXT_PORT,fd00::/8:CONTEXT_PORT",
        "localhost:CONTEXT_PORT,::ffff:127.0.0.0/104:CONTEXT_PORT",
    ] {
        let world = World::start(&["--allow-context", entry]).await;
        let port = world.context.addr().port();
        let elsewhere = Forbidden::at(("127.0.0.2", port)).await;
        for form in ["localhost", "LOCALHOST"] {
            refused(&world, &format!("{form}:{port}"), NOT_ALLOWED).await;
        }
        elsewhere.was_left_alone().await;
        world.finish().await;
    }
}
