//! `GET /version` of workers that answer it badly, or not at all: it costs them nothing but their benefit of a release,
//! and others not even time.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod common;

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use common::{Answer, Ask, Client, World, chat_body, completions_body};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};
use trtllm_sim::expected_answer;

/// How a worker goes about its answer to `GET /version`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Says {
    Nothing,
    /// This, and closes.
    Bytes(&'static [u8]),
    /// This, then a byte now and then.
    Drips(&'static [u8]),
    /// This, then bytes without end.
    Floods(&'static [u8]),
    /// A redirect to a port that nobody should call.
    Elsewhere(SocketAddr),
}

/// A worker that serves one handoff request after another with a 500, once it was asked for its release.
#[derive(Debug, Clone)]
struct Worker {
    says: Says,
    address: SocketAddr,
    /// The heads of all requests.
    heads: Arc<Mutex<Vec<String>>>,
    /// How many bytes of a flood were taken.
    taken: Arc<Mutex<usize>>,
}

impl Worker {
    async fn start(says: Says) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let worker = Self { says, address, heads: Arc::default(), taken: Arc::default() };
        let serving = worker.clone();
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let worker = serving.clone();
                tokio::spawn(async move { worker.serve(stream).await });
            }
        });
        worker
    }

    /// One request.
    async fn serve(&self, mut stream: TcpStream) -> std::io::Result<()> {
        let mut head = Vec::new();
        while !head.windows(4).any(|four| four == b"\r\n\r\n") {
            if stream.read_buf(&mut head).await? == 0 {
                return Ok(());
            }
        }
        let head = String::from_utf8_lossy(&head).into_owned();
        let version = head.starts_with("GET /version ");
        self.heads.lock().unwrap().push(head);
        if !version {
            let body = r#"{"object":"error","message":"called","type":"x","param":null,"code":500}"#;
            let reply = format!(
                "HTTP/1.1 500 E\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
                body.len()
            );
            stream.write_all(reply.as_bytes()).await?;
            // the request's body may be on its way still
            while stream.read(&mut [0; 4096]).await? > 0 {}
            return Ok(());
        }
        match self.says {
            Says::Nothing => std::future::pending().await,
            Says::Bytes(bytes) => stream.write_all(bytes).await,
            Says::Drips(bytes) => {
                stream.write_all(bytes).await?;
                loop {
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    stream.write_all(b" ").await?;
                }
            }
            Says::Floods(bytes) => {
                stream.write_all(bytes).await?;
                loop {
                    *self.taken.lock().unwrap() += stream.write(&[b' '; 4096]).await?;
                }
            }
            Says::Elsewhere(trap) => {
                let head = format!(
                    "HTTP/1.1 307 R\r\nlocation: http://{trap}/version\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
                );
                stream.write_all(head.as_bytes()).await
            }
        }
    }

    /// How often it was asked for its release, and how often called.
    fn called(&self) -> (usize, usize) {
        let heads = self.heads.lock().unwrap();
        let asked = heads.iter().filter(|head| head.starts_with("GET /version ")).count();
        (asked, heads.len() - asked)
    }
}

/// `{"version":"1.2.0"}`, compressed.
const GZIP: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-encoding: gzip\r\ncontent-length: 39\r\n\r\n\
    \x1f\x8b\x08\x00\x00\x00\x00\x00\x02\x03\xab\x56\x2a\x4b\x2d\x2a\xce\xcc\xcf\x53\xb2\x52\x32\xd4\x33\xd2\x33\x50\xaa\x05\x00\x8e\xc1\xda\x77\x13\x00\x00\x00";

fn ways(trap: SocketAddr) -> Vec<Says> {
    vec![
        Says::Nothing,
        Says::Bytes(b"\x16\x03\x01\x00\x05garbage\r\n\r\n"),
        Says::Bytes(b"HTTP/1.1 200 OK\r\ncontent-length: 99999999999\r\n\r\n{\"version\":"),
        Says::Bytes(b"HTTP/1.1 200 OK\r\ncontent-length: 20\r\n\r\n{\"version\":\"1."),
        Says::Bytes(b"HTTP/1.1 200 OK\r\ncontent-length: 15\r\n\r\n<html>hi</html>"),
        Says::Bytes(b"HTTP/1.1 200 OK\r\ncontent-length: 17\r\n\r\n{\"version\":[1,2]}"),
        Says::Bytes(b"HTTP/1.1 503 S\r\ncontent-length: 19\r\n\r\n{\"version\":\"1.2.0\"}"),
        Says::Bytes(GZIP),
        Says::Drips(b"HTTP/1.1 200 OK\r\nx-slow: "),
        Says::Drips(b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n{\"version\":"),
        Says::Floods(b"HTTP/1.1 200 OK\r\n\r\n{\"version\":"),
        Says::Floods(b"HTTP/1.1 200 OK\r\nx-large: "),
        Says::Elsewhere(trap),
    ]
}

/// A port that notes whether it is called.
async fn trap() -> (SocketAddr, Arc<Mutex<bool>>) {
    let trap = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (address, called) = (trap.local_addr().unwrap(), Arc::new(Mutex::new(false)));
    let note = called.clone();
    tokio::spawn(async move {
        trap.accept().await.unwrap();
        *note.lock().unwrap() = true;
    });
    (address, called)
}

/// The time for a connection is cut short, so that what waits for an answer waits for two seconds and a bit.
const FLAGS: [&str; 2] = ["--connect-timeout", "100ms"];
const PROBE: Duration = Duration::from_millis(2100);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn context_workers_that_say_their_release_badly_are_called_all_the_same() {
    let world = World::start(&FLAGS).await;
    let (trap, trapped) = trap().await;
    let cases = ways(trap).into_iter().map(|says| {
        let data = world.data;
        tokio::spawn(async move {
            let worker = Worker::start(says).await;
            let ask = Ask::of(&chat_body("odd", true))
                .via(&worker.address.to_string())
                .header("authorization", "Bearer SECRET");
            let begun = Instant::now();
            Client::http1(data).await.send(&ask).await.is_error(502, "context_failed");
            assert!(begun.elapsed() < 2 * PROBE, "{says:?} took {:?}", begun.elapsed());
            assert_eq!(worker.called(), (1, 1), "{says:?}");
            // it is left alone for a minute
            let begun = Instant::now();
            Client::http1(data).await.send(&ask).await.is_error(502, "context_failed");
            assert!(begun.elapsed() < PROBE, "{says:?} took {:?}", begun.elapsed());
            assert_eq!(worker.called(), (1, 2), "{says:?}");
            let question = worker.heads.lock().unwrap()[0].to_ascii_lowercase();
            assert!(!question.contains("secret") && !question.contains("accept-encoding"), "{question}");
            let taken = *worker.taken.lock().unwrap();
            assert!(taken < 16 << 20, "{says:?}: {taken} bytes");
        })
    });
    for case in cases.collect::<Vec<_>>() {
        case.await.unwrap();
    }
    assert!(!*trapped.lock().unwrap(), "a redirect was followed");
    // others are served as ever
    let body = completions_body("others", true);
    Answer::of(&world.exchange(&body).await).is(&expected_answer(&body));
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_generation_worker_that_says_its_release_badly_delays_no_start() {
    let (trap, trapped) = trap().await;
    let cases = ways(trap).into_iter().map(|says| {
        tokio::spawn(async move {
            let worker = Worker::start(says).await;
            let url = format!("http://{}", worker.address);
            let begun = Instant::now();
            let world = World::of(|c| c, |g| g, &[&["--generation-url", &url], &FLAGS[..]].concat()).await;
            // its ports are open, and whoever asks for its life is answered, before the worker can have said a word
            assert_eq!(world.admin("/livez").await.status, 200);
            assert_eq!(world.send(&Ask::get("/health")).await.status, 200);
            assert_eq!(world.send(&Ask::get("/ready")).await.status, 200);
            assert_eq!(world.admin("/metrics").await.status, 200);
            assert!(begun.elapsed() < PROBE, "{says:?} took {:?}", begun.elapsed());
            assert_eq!(world.admin("/readyz").await.status, 503, "{says:?}");
            // what passes through does not wait for an answer
            let begun = Instant::now();
            assert_eq!(world.send(&Ask::of(&chat_body("through", true))).await.status, 500);
            assert!(begun.elapsed() < PROBE, "{says:?} took {:?}", begun.elapsed());
            // a handoff does, for a while, and is then tried
            let begun = Instant::now();
            let reply = world.exchange(&chat_body("handed off", true)).await;
            assert_eq!(reply.status, 500, "{says:?}: {}", reply.text());
            assert!(begun.elapsed() < 3 * PROBE, "{says:?} took {:?}", begun.elapsed());
            assert_eq!(world.context_legs().len(), 1);
            assert_eq!(worker.called().1, 2, "{says:?}");
            world.finish_with_orphans().await;
        })
    });
    for case in cases.collect::<Vec<_>>() {
        case.await.unwrap();
    }
    assert!(!*trapped.lock().unwrap(), "a redirect was followed");
}

#[tokio::test]
async fn first_requests_by_the_hundred_ask_a_loading_worker_one_at_a_time() {
    let worker = Worker::start(Says::Bytes(b"HTTP/1.1 503 L\r\ncontent-length: 0\r\n\r\n")).await;
    let url = format!("http://{}", worker.address);
    let world = World::of(|c| c, |g| g, &["--generation-url", &url]).await;
    let asks = (0..100).map(|number| {
        let (data, ask) = (world.data, world.ask(&chat_body(&format!("loading {number}"), false)));
        tokio::spawn(async move { Client::http1(data).await.send(&ask).await.status })
    });
    for ask in asks.collect::<Vec<_>>() {
        assert_eq!(ask.await.unwrap(), 500);
    }
    let (asked, called) = worker.called();
    assert_eq!(called, 100);
    assert!(asked < 50, "{asked} questions for 100 requests");
    world.finish_with_orphans().await;
}
