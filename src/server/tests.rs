use std::{
    cell::Cell,
    future::{pending, ready},
    time::Duration,
};

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::BodyExt;
use tokio::time::{Instant, sleep};
use tower::{ServiceExt, service_fn};

use super::{drain::drain, front::Front, *};

// === phases ===

#[tokio::test]
async fn phases_never_go_back() {
    let phases = Phases::new();
    phases.advance(Phase::Finishing);
    phases.advance(Phase::Leaving);
    assert_eq!(phases.now(), Phase::Finishing);
    phases.clone().reached(Phase::Leaving).await;
    phases.reached(Phase::Finishing).await;
}

const GRACE: Duration = Duration::from_secs(10);
const MOST: Duration = Duration::from_secs(30);

fn leaving() -> Phases {
    let phases = Phases::new();
    phases.advance(Phase::Leaving);
    phases
}

#[tokio::test(start_paused = true)]
async fn grace_then_connections_then_settlements() {
    let (phases, start) = (leaving(), Instant::now());
    let idle = async {
        assert_eq!(phases.now(), Phase::Finishing);
        assert_eq!(start.elapsed(), GRACE);
        sleep(Duration::from_secs(20)).await;
    };
    let settled = async {
        assert_eq!(start.elapsed(), GRACE + Duration::from_secs(20));
        sleep(Duration::from_secs(9)).await;
    };
    let outcome = drain(&phases, GRACE, MOST, idle, settled, || unreachable!()).await;
    assert_eq!(outcome, Outcome::Complete);
    assert_eq!((start.elapsed(), phases.now()), (Duration::from_secs(39), Phase::Cut));
}

#[tokio::test(start_paused = true)]
async fn one_bound_for_connections_and_settlements() {
    for busy in [true, false] {
        let (phases, start) = (leaving(), Instant::now());
        let idle = async { sleep(Duration::from_secs(20)).await };
        let settled = async { sleep(Duration::from_secs(11)).await };
        let outcome = drain(&phases, GRACE, MOST, idle, settled, || busy).await;
        assert_eq!(outcome, if busy { Outcome::Cut } else { Outcome::Complete });
        assert_eq!(start.elapsed(), GRACE + MOST);
    }
}

#[tokio::test(start_paused = true)]
async fn a_hurry_ends_the_grace_and_the_wait() {
    let (phases, start) = (leaving(), Instant::now());
    let cut_when_asked = Cell::new(None);
    let busy = || {
        cut_when_asked.set(Some(phases.now()));
        true
    };
    let hurry = async {
        sleep(Duration::from_secs(1)).await;
        phases.advance(Phase::Hurrying);
    };
    let (outcome, ()) = tokio::join!(drain(&phases, GRACE, MOST, pending(), ready(()), busy), hurry);
    assert_eq!((outcome, start.elapsed()), (Outcome::Cut, Duration::from_secs(1)));
    assert_eq!(cut_when_asked.get(), Some(Phase::Hurrying), "what runs is looked at before it is cut");
}

#[tokio::test(start_paused = true)]
async fn nothing_happens_before_leaving() {
    let phases = Phases::new();
    let mut draining = std::pin::pin!(drain(&phases, GRACE, MOST, ready(()), ready(()), || false));
    tokio::select! {
        _ = &mut draining => panic!("it ended by itself"),
        () = sleep(Duration::from_secs(3600)) => {}
    }
}

// === what the data port answers by itself ===

type Body0 = http_body_util::Empty<Bytes>;

async fn front(phases: &Phases, request: Request<Body0>) -> (StatusCode, String) {
    let stack = service_fn(async |_: Request<Body0>| {
        Ok::<_, std::convert::Infallible>(Response::new(http_body_util::Full::<Bytes>::from("stack")))
    });
    let response = Front::new(stack, phases.clone()).oneshot(request).await.unwrap();
    let (status, body) = (response.status(), response.into_body().collect().await.unwrap().to_bytes());
    (status, String::from_utf8(body.to_vec()).unwrap())
}

#[tokio::test]
async fn own_answers_and_the_stack() {
    let phases = Phases::new();
    let request = |method, path| Request::builder().method(method).uri(path).body(Body0::new()).unwrap();
    #[rustfmt::skip]
    let cases = [
        ("GET", "/health", 200, "ok\n"), ("HEAD", "/health", 200, "ok\n"), ("GET", "/health?x", 200, "ok\n"),
        ("GET", "/ready", 200, "ready\n"), ("POST", "/health", 200, "stack"), ("GET", "/healthy", 200, "stack"),
        ("POST", "/v1/chat/completions", 200, "stack"), ("GET", "/", 200, "stack"),
    ];
    for (method, path, status, body) in cases {
        assert_eq!(
            front(&phases, request(method, path)).await,
            (StatusCode::from_u16(status).unwrap(), body.into())
        );
    }
    assert_eq!(front(&phases, request("CONNECT", "h:1")).await.0, StatusCode::METHOD_NOT_ALLOWED);
    phases.advance(Phase::Leaving);
    assert_eq!(front(&phases, request("GET", "/ready")).await.0, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(front(&phases, request("GET", "/health")).await.0, StatusCode::OK);
}

#[tokio::test]
async fn request_codings() {
    for (codings, good) in [
        (&[][..], true),
        (&["chunked"], true),
        (&["Chunked"], true),
        (&["chunked", "chunked"], false),
        (&["gzip, chunked"], false),
        (&["gzip", "chunked"], false),
        (&["chunked, chunked"], false),
        (&[""], false),
    ] {
        let mut request = Request::post("/x");
        for coding in codings {
            request = request.header("transfer-encoding", *coding);
        }
        let (status, body) = front(&Phases::new(), request.body(Body0::new()).unwrap()).await;
        assert_eq!(status == StatusCode::OK, good, "{codings:?}");
        assert!(good || (status == StatusCode::BAD_REQUEST && body.contains("invalid_request")), "{body}");
    }
}

// === over sockets ===

mod sockets {
    use std::{
        net::SocketAddr,
        sync::{Arc, Mutex},
    };

    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        net::{TcpListener, TcpStream},
        sync::mpsc,
        task::JoinHandle,
    };

    use super::*;
    use crate::config::Config;

    /// A generation worker that answers each request with a stream of what it is given, and with its end when that is.
    async fn worker() -> (SocketAddr, mpsc::UnboundedReceiver<mpsc::UnboundedSender<&'static str>>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (calls, called) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            loop {
                let (mut socket, _) = listener.accept().await.unwrap();
                let calls = calls.clone();
                tokio::spawn(async move {
                    head(&mut socket).await;
                    let (chunks, mut given) = mpsc::unbounded_channel::<&str>();
                    calls.send(chunks).unwrap();
                    socket.write_all(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n").await.unwrap();
                    while let Some(chunk) = given.recv().await {
                        if chunk == BREAK {
                            return;
                        }
                        let text = format!("{:x}\r\n{chunk}\r\n", chunk.len());
                        if socket.write_all(text.as_bytes()).await.is_err() {
                            return;
                        }
                    }
                    socket.write_all(b"0\r\n\r\n").await.unwrap();
                });
            }
        });
        (address, called)
    }

    /// In place of a chunk: the worker breaks off.
    const BREAK: &str = "break";

    async fn head(socket: &mut TcpStream) -> String {
        let mut text = Vec::new();
        while !text.ends_with(b"\r\n\r\n") {
            text.push(socket.read_u8().await.unwrap());
        }
        String::from_utf8(text).unwrap()
    }

    async fn get(address: SocketAddr, request: &str) -> TcpStream {
        let mut socket = TcpStream::connect(address).await.unwrap();
        socket.write_all(format!("{request} HTTP/1.1\r\nhost: x\r\n\r\n").as_bytes()).await.unwrap();
        socket
    }

    async fn rest(mut socket: TcpStream) -> String {
        let mut text = String::new();
        let _ = socket.read_to_string(&mut text).await;
        text
    }

    struct Running {
        data: SocketAddr,
        admin: SocketAddr,
        handle: Handle,
        outcome: JoinHandle<Outcome>,
    }

    async fn sidecar(generation: SocketAddr, flags: &[&str]) -> Running {
        start(generation, &[&["--engine-version", "1.3.0rc24"], flags].concat()).await
    }

    /// One that asks the worker for its release.
    async fn sidecar_asking(generation: SocketAddr) -> Running {
        start(generation, &[]).await
    }

    async fn start(generation: SocketAddr, flags: &[&str]) -> Running {
        let url = format!("http://{generation}");
        let own =
            [["--listen", "127.0.0.1:0"], ["--admin-listen", "127.0.0.1:0"], ["--generation-url", &url]];
        let config = Config::from_args(own.as_flattened().iter().chain(flags)).unwrap();
        let sidecar = Sidecar::bind(config).await.unwrap();
        let (data, admin, handle) = (sidecar.data_addr(), sidecar.admin_addr(), sidecar.handle());
        Running { data, admin, handle, outcome: tokio::spawn(sidecar.run()) }
    }

    #[tokio::test]
    async fn a_drain_lets_what_runs_finish_and_closes_what_rests() {
        let (address, mut called) = worker().await;
        let running = sidecar(address, &[]).await;
        let mut resting = get(running.data, "GET /health").await;
        assert!(head(&mut resting).await.starts_with("HTTP/1.1 200"));
        let mut stream = get(running.data, "GET /v1/stream").await;
        let worker = called.recv().await.unwrap();
        assert!(head(&mut stream).await.starts_with("HTTP/1.1 200"));
        running.handle.drain();
        assert_eq!(rest(resting).await, "ok\n", "the connection that rests is closed");
        TcpStream::connect(running.data).await.unwrap_err();
        let ready = rest(get(running.admin, "GET /readyz").await);
        worker.send("one").unwrap();
        drop(worker);
        assert_eq!(rest(stream).await, "3\r\none\r\n0\r\n\r\n");
        assert_eq!(running.outcome.await.unwrap(), Outcome::Complete);
        assert!(ready.await.starts_with("HTTP/1.1 503"));
    }

    #[tokio::test]
    async fn what_is_cut_ends_visibly_incomplete() {
        for (flags, hurry) in [(&["--drain-timeout", "10ms"][..], false), (&[], true)] {
            let (address, mut called) = worker().await;
            let running = sidecar(address, flags).await;
            let mut stream = get(running.data, "GET /v1/stream").await;
            let worker = called.recv().await.unwrap();
            head(&mut stream).await;
            worker.send("one").unwrap();
            let mut chunk = [0; 8];
            stream.read_exact(&mut chunk).await.unwrap();
            running.handle.drain();
            if hurry {
                running.handle.cut();
            }
            assert_eq!(rest(stream).await, "", "no last chunk");
            assert_eq!(running.outcome.await.unwrap(), Outcome::Cut);
            drop(worker);
        }
    }

    #[tokio::test]
    async fn a_client_that_stops_sending_is_gone() {
        let (address, mut called) = worker().await;
        let running = sidecar(address, &[]).await;
        let mut stream = get(running.data, "GET /v1/stream").await;
        let worker = called.recv().await.unwrap();
        stream.shutdown().await.unwrap();
        rest(stream).await;
        // nothing is in flight any more, so a drain need not wait
        running.handle.drain();
        assert_eq!(running.outcome.await.unwrap(), Outcome::Complete);
        drop(worker);
    }

    /// Drains a sidecar that has nothing left to do.
    async fn ends_complete(running: Running) {
        running.handle.drain();
        let outcome = tokio::time::timeout(Duration::from_secs(10), running.outcome).await;
        assert_eq!(outcome.expect("something is in flight").unwrap(), Outcome::Complete);
    }

    #[tokio::test]
    async fn a_client_that_leaves_bytes_behind_is_gone() {
        for behind in ["\r\n", "GET /health HTTP/1.1\r\nhost: x\r\n\r\n", "junk"] {
            for way in ["half", "whole", "reset"] {
                let (address, mut called) = worker().await;
                let running = sidecar(address, &[]).await;
                let mut stream = get(running.data, "GET /v1/stream").await;
                let worker = called.recv().await.unwrap();
                head(&mut stream).await;
                stream.write_all(behind.as_bytes()).await.unwrap();
                match way {
                    "half" => stream.shutdown().await.unwrap(),
                    "reset" => socket2::SockRef::from(&stream).set_linger(Some(Duration::ZERO)).unwrap(),
                    _ => {}
                }
                let half = (way == "half").then_some(stream);
                ends_complete(running).await;
                drop((worker, half));
            }
        }
    }

    /// More than the kernel holds of a response.
    fn large() -> &'static str {
        String::leak("x".repeat(1 << 20))
    }

    #[tokio::test]
    async fn a_client_that_never_reads_is_closed() {
        let (address, mut called) = worker().await;
        let running = sidecar(address, &["--generation-idle-timeout", "200ms"]).await;
        let stream = get(running.data, "GET /v1/stream").await;
        let worker = called.recv().await.unwrap();
        let chunk = large();
        for _ in 0..64 {
            worker.send(chunk).unwrap();
        }
        ends_complete(running).await;
        assert!(!rest(stream).await.ends_with("0\r\n\r\n"));
    }

    #[tokio::test]
    async fn a_stream_that_its_client_never_reads_is_reset_and_no_other() {
        use hyper_util::rt::{TokioExecutor, TokioIo};

        let (address, mut called) = worker().await;
        let running = sidecar(address, &["--generation-idle-timeout", "200ms"]).await;
        let socket = TokioIo::new(TcpStream::connect(running.data).await.unwrap());
        let mut builder = hyper::client::conn::http2::Builder::new(TokioExecutor::new());
        builder.initial_stream_window_size(1 << 16);
        let (mut client, connection) = builder.handshake::<_, Body0>(socket).await.unwrap();
        tokio::spawn(connection);
        let request = |path| {
            let url = format!("http://{}{path}", running.data);
            Request::get(url).body(Body0::new()).unwrap()
        };
        let (reply, worker) = tokio::join!(client.send_request(request("/v1/stream")), called.recv());
        let (mut unread, worker) = (reply.unwrap(), worker.unwrap());
        let chunk = large();
        for _ in 0..64 {
            worker.send(chunk).unwrap();
        }
        worker.closed().await;
        let reply = client.send_request(request("/health")).await.unwrap();
        assert_eq!(reply.status(), StatusCode::OK);
        let mut end = None;
        while let Some(Ok(_)) = end.insert(unread.body_mut().frame().await) {}
        assert!(end.unwrap().unwrap().is_err(), "visibly incomplete");
        drop((client, reply));
        ends_complete(running).await;
    }

    #[tokio::test]
    async fn the_end_of_a_connection_is_no_end_of_a_broken_response() {
        for (end, clean) in [("", true), (BREAK, false), ("cut", false)] {
            let (address, mut called) = worker().await;
            let running = sidecar(address, &[]).await;
            let mut stream = TcpStream::connect(running.data).await.unwrap();
            stream.write_all(b"GET /v1/stream HTTP/1.0\r\n\r\n").await.unwrap();
            let worker = called.recv().await.unwrap();
            assert!(head(&mut stream).await.starts_with("HTTP/1.0 200"));
            worker.send("one").unwrap();
            let mut text = [0; 3];
            stream.read_exact(&mut text).await.unwrap();
            match end {
                BREAK => worker.send(BREAK).unwrap(),
                "cut" => {
                    running.handle.drain();
                    running.handle.cut();
                }
                _ => drop(worker),
            }
            assert_eq!(stream.read_to_end(&mut Vec::new()).await.is_ok(), clean, "{end:?}");
        }
        // a message whose length was told is whole, whatever becomes of the connection
        let (address, _called) = worker().await;
        let running = sidecar(address, &[]).await;
        for method in ["GET", "HEAD"] {
            let mut socket = TcpStream::connect(running.data).await.unwrap();
            socket.write_all(format!("{method} /health HTTP/1.0\r\n\r\n").as_bytes()).await.unwrap();
            let mut text = String::new();
            socket.read_to_string(&mut text).await.unwrap();
            assert!(text.starts_with("HTTP/1.0 200"));
        }
    }

    #[tokio::test]
    async fn http_2() {
        use http_body_util::Empty;
        use hyper_util::{client::legacy::Client, rt::TokioExecutor};

        let (address, mut called) = worker().await;
        let running = sidecar(address, &["--drain-timeout", "10ms"]).await;
        let client = Client::builder(TokioExecutor::new()).http2_only(true).build_http::<Empty<Bytes>>();
        let url: http::Uri = format!("http://{}/v1/stream", running.data).parse().unwrap();
        let mut replies = Vec::new();
        for _ in 0..2 {
            let (reply, worker) = tokio::join!(client.get(url.clone()), called.recv());
            let (mut reply, worker) = (reply.unwrap(), worker.unwrap());
            worker.send("one").unwrap();
            let frame = reply.body_mut().frame().await.unwrap().unwrap();
            assert_eq!(frame.into_data().unwrap(), "one");
            replies.push((reply, worker));
        }
        let (mut cut, held) = replies.pop().unwrap();
        let (mut whole, worker) = replies.pop().unwrap();
        drop(worker);
        assert!(whole.body_mut().frame().await.is_none_or(|frame| frame.is_ok()));
        running.handle.drain();
        assert_eq!(running.outcome.await.unwrap(), Outcome::Cut);
        assert!(cut.body_mut().frame().await.unwrap().is_err(), "visibly incomplete");
        drop(held);
    }

    const CONTEXT_REPLY: &str = r#"{"choices":[{"index":0,"message":{"role":"assistant","content":"A"},"finish_reason":"length","disaggregated_params":{"request_type":"context_only","first_gen_tokens":[3],"ctx_request_id":7,"encoded_opaque_state":"b3Bh"}}],"prompt_token_ids":[1]}"#;
    const ASKED: &str = r#"{"model":"m","messages":[],"stream":true}"#;

    /// A context worker that answers every request alike.
    async fn context() -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            loop {
                let (mut socket, _) = listener.accept().await.unwrap();
                tokio::spawn(async move {
                    head(&mut socket).await;
                    let length = CONTEXT_REPLY.len();
                    let text = format!("HTTP/1.1 200 x\r\ncontent-length: {length}\r\n\r\n{CONTEXT_REPLY}");
                    socket.write_all(text.as_bytes()).await.unwrap();
                    socket.read_to_end(&mut Vec::new()).await
                });
            }
        });
        address
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_drain_waits_for_handoffs_whose_http_2_client_has_left() {
        use hyper_util::rt::{TokioExecutor, TokioIo};

        for round in 0..8 {
            let (address, mut called) = worker().await;
            let mut running = sidecar(address, &[]).await;
            // hyper's client ends a connection in its own time: what is between the two ends it at once
            let (near, mut far) = tokio::io::duplex(1 << 16);
            let mut socket = TcpStream::connect(running.data).await.unwrap();
            let between =
                tokio::spawn(async move { tokio::io::copy_bidirectional(&mut far, &mut socket).await });
            let shake = hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(near)).await;
            let (mut client, connection) = shake.unwrap();
            tokio::spawn(connection);
            let request = Request::post(format!("http://{}/v1/chat/completions", running.data))
                .header("content-type", "application/json")
                .header("x-prefiller-host-port", context().await.to_string())
                .body(ASKED.to_owned());
            let reply = tokio::spawn(client.send_request(request.unwrap()));
            let worker = called.recv().await.unwrap();
            running.handle.drain();
            between.abort();
            let early = tokio::time::timeout(Duration::from_millis(100), &mut running.outcome).await;
            assert!(early.is_err(), "round {round}: ended before the KV cache was collected");
            worker.send("data: x\n\n").unwrap();
            assert_eq!(running.outcome.await.unwrap(), Outcome::Complete);
            assert!(reply.await.unwrap().is_err());
        }
    }

    #[tokio::test]
    async fn the_admin_port() {
        let (address, _called) = worker().await;
        let running = sidecar(address, &["--drain-grace", "60s"]).await;
        for (request, status) in [
            ("GET /livez", 200),
            ("GET /metrics", 200),
            ("GET /nothing", 404),
            ("GET /drain", 405),
            ("POST /metrics", 405),
            ("POST /livez", 405),
        ] {
            let mut socket = get(running.admin, request).await;
            assert!(head(&mut socket).await.starts_with(&format!("HTTP/1.1 {status}")), "{request}");
        }
        let mut socket = get(running.data, "GET /ready").await;
        assert!(head(&mut socket).await.starts_with("HTTP/1.1 200"));
        let mut socket = get(running.admin, "POST /drain").await;
        assert!(head(&mut socket).await.starts_with("HTTP/1.1 202"));
        let mut socket = get(running.data, "GET /ready").await;
        assert!(
            head(&mut socket).await.starts_with("HTTP/1.1 503"),
            "readiness is withdrawn, the port is open"
        );
        running.handle.cut();
        assert_eq!(running.outcome.await.unwrap(), Outcome::Complete, "nothing was running");
    }

    /// A generation worker that answers `/version` and `/health` as it is told, each with a status.
    async fn healthy_worker(version: (u16, &'static str), health: u16) -> SocketAddr {
        worker_saying(Arc::new(Mutex::new((version, health)))).await
    }

    /// The same; what it says can be changed.
    async fn worker_saying(said: Arc<Mutex<((u16, &'static str), u16)>>) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            loop {
                let (mut socket, _) = listener.accept().await.unwrap();
                let said = said.clone();
                tokio::spawn(async move {
                    let asked = head(&mut socket).await;
                    let (version, health) = *said.lock().unwrap();
                    let (status, body) =
                        if asked.starts_with("GET /version ") { version } else { (health, "") };
                    let length = body.len();
                    let text = format!("HTTP/1.1 {status} x\r\ncontent-length: {length}\r\n\r\n{body}");
                    socket.write_all(text.as_bytes()).await.unwrap();
                });
            }
        });
        address
    }

    #[tokio::test]
    async fn readiness_follows_the_generation_worker_and_liveness_does_not() {
        let new = (200, r#"{"version":"1.3.0rc24"}"#);
        for (version, health, status, text) in [
            (new, 200, 200, "ready"),
            (new, 503, 503, "not healthy"),
            ((200, r#"{"version":"1.2.0"}"#), 200, 503, "not supported"),
            ((404, ""), 200, 200, "ready"),
            ((503, ""), 200, 503, "not answered yet"),
        ] {
            let address = healthy_worker(version, health).await;
            let running = sidecar_asking(address).await;
            let mut live = get(running.admin, "GET /livez").await;
            assert!(head(&mut live).await.starts_with("HTTP/1.1 200"));
            let mut ready = get(running.admin, "GET /readyz").await;
            assert!(
                head(&mut ready).await.starts_with(&format!("HTTP/1.1 {status}")),
                "{version:?} {health:?}"
            );
            running.handle.drain();
            let body = rest(ready).await;
            assert!(body.contains(text), "{version:?} {health:?}: {body}");
            running.outcome.await.unwrap();
        }
    }

    #[tokio::test]
    async fn a_worker_that_was_not_well_is_asked_for_its_release_again() {
        let (old, new) = ((200, r#"{"version":"1.2.0"}"#), (200, r#"{"version":"1.3.0rc24"}"#));
        let said = Arc::new(Mutex::new((new, 200)));
        let address = worker_saying(said.clone()).await;
        let running = sidecar_asking(address).await;
        let ready = async |now, expected: &str| {
            *said.lock().unwrap() = now;
            // what was last heard is good for a second
            tokio::time::pause();
            tokio::time::advance(Duration::from_millis(1001)).await;
            tokio::time::resume();
            let mut reply = get(running.admin, "GET /readyz").await;
            head(&mut reply).await;
            let mut text = vec![0; expected.len()];
            reply.read_exact(&mut text).await.unwrap();
            assert_eq!(String::from_utf8(text).unwrap(), expected, "{now:?}");
        };
        ready((new, 200), "ready").await;
        ready((old, 200), "ready").await;
        ready((new, 503), "the generation worker is not healthy").await;
        ready((old, 200), "the release of the generation worker is not supported").await;
        ready((new, 200), "ready").await;
    }

    #[tokio::test]
    async fn a_port_that_is_taken_is_said_by_flag() {
        let taken = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = taken.local_addr().unwrap().to_string();
        let config = Config::from_args(["--listen", "127.0.0.1:0", "--admin-listen", &address]).unwrap();
        let error = Sidecar::bind(config).await.unwrap_err().to_string();
        assert!(error.contains("--admin-listen") && error.contains(&address), "{error}");
    }
}
