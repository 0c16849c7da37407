use std::{convert::Infallible, future::poll_fn, net::SocketAddr, pin::Pin, task::Poll, time::Duration};

use bytes::Bytes;
use http::{Request, Response, StatusCode, Uri, Version};
use http_body::{Body, Frame, SizeHint};
use http_body_util::{BodyExt, Empty, Full};
use hyper::body::Incoming;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::mpsc,
    time::Instant,
};
use tower::ServiceExt;
use tower_disagg::{
    error::BoxError,
    leg::{BufferReplyLayer, CheckedAddresses, LegErrorKind},
};
use tower_layer::Layer;

use super::{idle::IdleBody, *};

/// A worker that answers each connection's requests with these bytes and then closes, in this order; it says how many
/// requests it has seen on which connection.
async fn worker(scripts: Vec<&'static [&'static str]>) -> (String, mpsc::UnboundedReceiver<(usize, usize)>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/x", listener.local_addr().unwrap());
    let (seen, requests) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        for (connection, script) in scripts.into_iter().enumerate() {
            let (mut socket, _) = listener.accept().await.unwrap();
            for (number, reply) in script.iter().enumerate() {
                if !read_request(&mut socket).await {
                    break;
                }
                let _ = seen.send((connection, number));
                socket.write_all(reply.as_bytes()).await.unwrap();
            }
        }
    });
    (url, requests)
}

/// Reads a head and its `content-length: 2` body, or finds the end.
async fn read_request(socket: &mut TcpStream) -> bool {
    let mut text = Vec::new();
    while !text.ends_with(b"\r\n\r\nhi") {
        match socket.read_u8().await {
            Ok(byte) => text.push(byte),
            Err(_) => return false,
        }
    }
    true
}

fn client() -> HttpClient<Full<Bytes>> {
    HttpClient::new(Duration::from_secs(5))
}

fn post(url: &str) -> Request<Full<Bytes>> {
    Request::post(url).body(Full::from("hi")).unwrap()
}

const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";

#[tokio::test]
async fn a_connection_serves_more_than_one_request() {
    let (url, mut seen) = worker(vec![&[OK, OK]]).await;
    let leg = BufferReplyLayer::new(100).layer(client());
    for _ in 0..2 {
        let reply = leg.clone().oneshot(post(&url)).await.unwrap();
        assert_eq!(reply.body(), "ok");
    }
    assert_eq!((seen.recv().await, seen.recv().await), (Some((0, 0)), Some((0, 1))));
}

#[tokio::test]
async fn what_was_seen_of_a_reply_decides_the_kind() {
    use LegErrorKind::{Interrupted, Lost};
    for (reply, kind) in [
        ("", Lost),
        ("H", Interrupted),
        ("HTTP/1.1 200 OK\r\ncontent-le", Interrupted),
        ("junk\r\n\r\n", Interrupted),
        ("HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nok", Interrupted),
        ("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n", Interrupted),
        ("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n", Interrupted),
        ("HTTP/1.1 100 Continue\r\n\r\n", Interrupted),
        ("HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n", Interrupted),
        ("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ncontent-length: 2\r\n\r\n0\r\n\r\n", Interrupted),
        ("HTTP/1.1 200 OK\r\ntransfer-encoding: gzip, chunked\r\n\r\n0\r\n\r\n", Interrupted),
        ("HTTP/1.1 200 OK\r\ncontent-length: 2\r\ncontent-length: 3\r\n\r\nok", Interrupted),
    ] {
        for before in [None, Some(OK)] {
            // on a fresh connection and on one that has served a request, where the worker closes a second time too
            let script: &'static [&'static str] = match before {
                None => vec![reply].leak(),
                Some(before) => vec![before, reply].leak(),
            };
            let (url, _seen) = worker(vec![script, &[""], &[""]]).await;
            let leg = BufferReplyLayer::new(100).layer(client());
            if before.is_some() {
                leg.clone().oneshot(post(&url)).await.unwrap();
            }
            let error = leg.oneshot(post(&url)).await.unwrap_err();
            assert_eq!(LegErrorKind::of(&*error), kind, "{reply:?} after {before:?}: {error:?}");
        }
    }
}

#[tokio::test]
async fn nobody_there() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let error = client().oneshot(post(&url)).await.unwrap_err();
    assert_eq!(LegErrorKind::of(&*error), LegErrorKind::Connect);
    assert!(is_connection_failure(LegErrorKind::of(&*error)));
}

#[tokio::test]
async fn a_version_1_0_reply_becomes_1_1() {
    let (url, _seen) = worker(vec![&["HTTP/1.0 200 OK\r\n\r\nold"]]).await;
    let reply = client().oneshot(post(&url)).await.unwrap();
    assert_eq!(reply.version(), Version::HTTP_11);
    assert_eq!(reply.into_body().collect().await.unwrap().to_bytes(), "old");
}

// === checked addresses ===

/// A worker that answers each request with its name and closes; what it has read of each.
async fn named_worker(at: &str, name: &'static str) -> (SocketAddr, mpsc::UnboundedReceiver<String>) {
    let listener = TcpListener::bind(at).await.unwrap();
    let address = listener.local_addr().unwrap();
    let (seen, requests) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Ok((mut socket, _)) = listener.accept().await {
            let seen = seen.clone();
            tokio::spawn(async move {
                let mut text = Vec::new();
                while let Ok(byte) = socket.read_u8().await {
                    text.push(byte);
                    if text.ends_with(b"\r\n\r\nhi") {
                        let _ = seen.send(String::from_utf8(std::mem::take(&mut text)).unwrap());
                        let reply =
                            format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{name}", name.len());
                        socket.write_all(reply.as_bytes()).await.unwrap();
                    }
                }
            });
        }
    });
    (address, requests)
}

fn checked(addresses: &[SocketAddr]) -> CheckedAddresses {
    CheckedAddresses::new(addresses.iter().copied()).unwrap()
}

/// Asks for `url`, where only `addresses` may be dialled; the name of the worker that answered.
async fn answers(
    client: &HttpClient<Full<Bytes>>,
    url: &str,
    addresses: &[SocketAddr],
) -> Result<Bytes, LegErrorKind> {
    let mut request = post(url);
    request.extensions_mut().insert(checked(addresses));
    match BufferReplyLayer::new(100).layer(client.clone()).oneshot(request).await {
        Ok(reply) => Ok(reply.into_body()),
        Err(error) => Err(LegErrorKind::of(&*error)),
    }
}

/// An address where nobody listens.
async fn nobody() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap()
}

#[tokio::test]
async fn checked_addresses_are_dialled_and_the_name_is_said() {
    let (one, mut seen) = named_worker("127.0.0.1:0", "one").await;
    for client in [client(), HttpClient::unpooled(Duration::from_secs(5))] {
        // no resolver knows this name; the port that counts is that of the address
        let reply = answers(&client, "http://Worker.invalid:8001/x?y=z", &[one]).await;
        assert_eq!(reply.unwrap(), "one");
        let request = seen.recv().await.unwrap();
        assert!(request.starts_with("POST /x?y=z HTTP/1.1\r\n"), "{request}");
        assert_eq!(request.matches("host: Worker.invalid:8001\r\n").count(), 1, "{request}");
        assert!(!request.contains('@') && !request.contains("127.0.0.1"), "{request}");
    }
}

#[tokio::test]
async fn checked_addresses_are_tried_in_their_order() {
    let (one, mut at_one) = named_worker("127.0.0.1:0", "one").await;
    let (two, mut at_two) = named_worker("127.0.0.2:0", "two").await;
    let (down, url) = (nobody().await, "http://worker.invalid:1/x");
    for (addresses, expected) in [
        (&[one, two][..], Ok("one")),
        (&[two, one], Ok("two")),
        (&[down, two], Ok("two")),
        (&[down, down, one, two], Ok("one")),
        (&[down], Err(LegErrorKind::Connect)),
        (&[down, down], Err(LegErrorKind::Connect)),
    ] {
        let reply = answers(&client(), url, addresses).await;
        assert_eq!(reply, expected.map(Bytes::from), "{addresses:?}");
    }
    let count = |requests: &mut mpsc::UnboundedReceiver<String>| {
        std::iter::from_fn(|| requests.try_recv().ok()).count()
    };
    assert_eq!((count(&mut at_one), count(&mut at_two)), (2, 2), "one address for each request");
}

#[tokio::test]
async fn a_pooled_connection_serves_only_who_may_go_there() {
    let (one, _at_one) = named_worker("127.0.0.1:0", "one").await;
    let (two, _at_two) = named_worker("127.0.0.2:0", "two").await;
    let (client, url) = (client(), format!("http://localhost:{}/x", one.port()));
    for (addresses, expected) in [([one], "one"), ([two], "two"), ([one], "one"), ([two], "two")] {
        assert_eq!(answers(&client, &url, &addresses).await.unwrap(), expected);
    }
    // where the name may be resolved, it is, whatever other connections there are
    let two_by_name = format!("http://localhost:{}/x", two.port());
    answers(&client, &two_by_name, &[two]).await.unwrap();
    assert!(client.clone().oneshot(post(&two_by_name)).await.is_err(), "it went to 127.0.0.2");
}

#[tokio::test]
async fn connections_to_checked_addresses_are_used_again() {
    let (url, mut seen) = worker(vec![&[OK, OK]]).await;
    let address = url.parse::<Uri>().unwrap().authority().unwrap().as_str().parse().unwrap();
    let client = client();
    for place in [(0, 0), (0, 1)] {
        assert_eq!(answers(&client, "http://worker.invalid:1/x", &[address]).await.unwrap(), "ok");
        assert_eq!(seen.recv().await.unwrap(), place);
    }
}

#[tokio::test]
async fn a_literal_address_is_no_exception() {
    let (one, mut at_one) = named_worker("127.0.0.1:0", "one").await;
    let (two, _at_two) = named_worker("127.0.0.2:0", "two").await;
    for url in [format!("http://{one}/x"), format!("http://[::1]:{}/x", one.port())] {
        assert_eq!(answers(&client(), &url, &[two]).await.unwrap(), "two", "{url}");
    }
    assert!(at_one.try_recv().is_err());
}

#[test]
fn addresses_in_an_authority_are_read_as_they_were_written() {
    let place = |text: &str| text.parse::<http::uri::Authority>().unwrap();
    let full = "[fd00:1111:2222:3333:4444:5555:6666:7777%4294967295]:65535";
    for addresses in [
        vec!["127.0.0.1:1"],
        vec!["255.255.255.255:65535", "[::]:1", "[::1]:80", "[fe80::1%3]:8001"],
        vec![full; CheckedAddresses::MOST],
    ] {
        let addresses: Vec<SocketAddr> = addresses.iter().map(|text| text.parse().unwrap()).collect();
        for (name, host) in [("worker.svc:8001", "worker.svc"), ("[::1]:8001", "[::1]"), ("old@h:1", "h")] {
            let pinned = checked::pin(&place(name), &checked(&addresses)).unwrap();
            assert_eq!((pinned.host(), pinned.as_str().matches('@').count()), (host, 1));
            let uri = Uri::builder().scheme("http").authority(pinned).path_and_query("/").build().unwrap();
            assert_eq!(checked::pinned(&uri).unwrap(), Some(addresses.clone()));
        }
    }
}

#[test]
fn what_cannot_be_read_is_not_dialled() {
    for (uri, ok) in [
        ("http://worker.svc:8001/", true),
        ("/", true),
        ("http://@worker.svc:8001/", false),
        ("http://user@worker.svc:8001/", false),
        ("http://127.0.0.1@worker.svc:8001/", false),
        ("http://127.0.0.1_8001,@worker.svc:8001/", false),
        ("http://127.0.0.1_99999@worker.svc:8001/", false),
        ("http://worker.svc_1@worker.svc:8001/", false),
    ] {
        let pinned = checked::pinned(&Uri::from_static(uri));
        assert_eq!(pinned.ok(), ok.then_some(None), "{uri}");
    }
}

#[tokio::test]
async fn without_an_authority_nothing_is_dialled() {
    let reply = answers(&client(), "/x", &[nobody().await]).await;
    assert_eq!(reply, Err(LegErrorKind::Connect));
}

#[tokio::test]
async fn requests_of_any_version_go_out_as_1_1() {
    for version in [Version::HTTP_10, Version::HTTP_2] {
        let (url, _seen) = worker(vec![&[OK]]).await;
        let mut request = post(&url);
        *request.version_mut() = version;
        assert_eq!(client().oneshot(request).await.unwrap().status(), StatusCode::OK);
    }
}

#[tokio::test]
async fn redirects_are_not_followed() {
    let (url, _seen) = worker(vec![&["HTTP/1.1 307 x\r\nlocation: /y\r\ncontent-length: 0\r\n\r\n"]]).await;
    let reply = client().oneshot(post(&url)).await.unwrap();
    assert_eq!(reply.status(), StatusCode::TEMPORARY_REDIRECT);
}

#[tokio::test]
async fn dropping_the_call_closes_the_connection() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let call = tokio::spawn(client().oneshot(post(&url)));
    let (mut socket, _) = listener.accept().await.unwrap();
    assert!(read_request(&mut socket).await);
    call.abort();
    assert!(!read_request(&mut socket).await, "the end of the connection is seen");
}

/// A body that is larger than what the kernel takes, and says by its end when it is dropped.
struct Large(Option<Bytes>, #[allow(dead_code)] mpsc::Sender<Infallible>);

impl Body for Large {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(self.0.take().map(|data| Ok(Frame::data(data))))
    }
}

/// A call whose worker has accepted it and reads nothing more; how it goes on, and what ends with the request.
async fn unread()
-> (tokio::task::JoinHandle<Result<Response<Incoming>, BoxError>>, TcpStream, mpsc::Receiver<Infallible>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let (end, held) = mpsc::channel(1);
    let body = Large(Some(Bytes::from(vec![b'x'; 32 << 20])), end);
    let call = tokio::spawn(
        HttpClient::new(Duration::from_secs(5)).oneshot(Request::post(&url).body(body).unwrap()),
    );
    let (socket, _) = listener.accept().await.unwrap();
    socket.readable().await.unwrap();
    (call, socket, held)
}

/// Waits until nothing of the request is held.
async fn gone(mut held: mpsc::Receiver<Infallible>) {
    tokio::time::timeout(Duration::from_secs(5), held.recv()).await.expect("the request is held");
}

#[tokio::test]
async fn a_dropped_call_holds_nothing_when_its_worker_does_not_read() {
    let (call, _socket, held) = unread().await;
    call.abort();
    gone(held).await;
}

const EARLY: &str = "HTTP/1.1 413 x\r\ncontent-length: 4\r\n\r\n";

#[tokio::test]
async fn a_worker_that_has_answered_may_not_leave_the_rest_unread_for_ever() {
    for whole in [true, false] {
        let (call, mut socket, mut held) = unread().await;
        socket.write_all(EARLY.as_bytes()).await.unwrap();
        let reply = call.await.unwrap().unwrap();
        if whole {
            socket.write_all(b"tail").await.unwrap();
            assert_eq!(reply.into_body().collect().await.unwrap().to_bytes(), "tail");
        } else {
            drop(reply);
        }
        for (seconds, over) in [(29, false), (2, true)] {
            tokio::time::pause();
            tokio::time::advance(Duration::from_secs(seconds)).await;
            tokio::time::resume();
            let wait = Duration::from_millis(if over { 5000 } else { 50 });
            assert_eq!(tokio::time::timeout(wait, held.recv()).await.is_ok(), over, "{whole}");
        }
    }
}

/// Of a worker's connections, the first `stale` answer one request each, all at the same time, and close when the next
/// one comes.
async fn stale_worker(stale: usize) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/x", listener.local_addr().unwrap());
    tokio::spawn(async move {
        let all = std::sync::Arc::new(tokio::sync::Barrier::new(stale));
        for connection in 0.. {
            let (mut socket, _) = listener.accept().await.unwrap();
            let all = all.clone();
            tokio::spawn(async move {
                for number in 0.. {
                    if !read_request(&mut socket).await || (connection < stale && number > 0) {
                        return;
                    }
                    if connection < stale {
                        all.wait().await;
                    }
                    socket.write_all(OK.as_bytes()).await.unwrap();
                }
            });
        }
    });
    url
}

#[tokio::test]
async fn an_attempt_after_a_lost_one_is_on_a_fresh_connection() {
    const STALE: usize = 32;
    for pinned in [false, true] {
        let url = stale_worker(STALE).await;
        let leg = BufferReplyLayer::new(100).layer(client());
        let address = url.parse::<Uri>().unwrap().authority().unwrap().as_str().parse().unwrap();
        let burst = async || {
            let call = || {
                let mut request = post(&url);
                if pinned {
                    *request.uri_mut() = Uri::from_static("http://worker.invalid:1/x");
                    request.extensions_mut().insert(checked(&[address]));
                }
                tokio::spawn(leg.clone().oneshot(request))
            };
            let calls: Vec<_> = (0..STALE).map(|_| call()).collect();
            let mut lost = 0;
            for call in calls {
                if let Err(error) = call.await.unwrap() {
                    assert_eq!(LegErrorKind::of(&*error), LegErrorKind::Lost);
                    lost += 1;
                }
            }
            lost
        };
        assert_eq!(burst().await, 0);
        let lost = burst().await;
        assert!(lost > 0, "nothing was stale");
        assert_eq!(burst().await, 0, "the burst before lost {lost}");
    }
}

#[tokio::test(start_paused = true)]
async fn places_where_a_connection_was_lost() {
    let lost = lost::Lost::default();
    let place = |port: usize| format!("h:{port}").parse::<http::uri::Authority>().unwrap();
    assert!(!lost.is_recent(&place(1)));
    lost.note(place(1));
    tokio::time::advance(Duration::from_millis(999)).await;
    assert!(lost.is_recent(&place(1)) && !lost.is_recent(&place(2)));
    tokio::time::advance(Duration::from_millis(1)).await;
    assert!(!lost.is_recent(&place(1)));
    for port in 1..=1000 {
        lost.note(place(port));
        tokio::time::advance(Duration::from_micros(1)).await;
    }
    assert_eq!(lost.remembered(), 256);
    assert!(lost.is_recent(&place(1000)) && !lost.is_recent(&place(1)), "the oldest went");
}

#[test]
fn the_reply_counts_from_its_first_byte_to_the_next_request() {
    let seen = track::Line::default();
    assert!(!seen.is_seen());
    seen.wrote();
    seen.read();
    seen.wrote(); // the rest of the request, after an early answer
    assert!(seen.is_seen());
    seen.answered();
    seen.read();
    assert!(seen.is_seen());
    seen.wrote();
    assert!(!seen.is_seen());
}

/// Frames with pauses before them; an exact length that it tells.
struct Paced {
    frames: Vec<(Duration, &'static str)>,
    timer: Option<Pin<Box<tokio::time::Sleep>>>,
}

impl Paced {
    fn new(pauses: &[u64]) -> Self {
        let frames = pauses.iter().rev().map(|pause| (Duration::from_millis(*pause), "x")).collect();
        Self { frames, timer: None }
    }
}

impl Body for Paced {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let Some((pause, _)) = self.frames.last().copied() else { return Poll::Ready(None) };
        let timer = self.timer.get_or_insert_with(|| Box::pin(tokio::time::sleep(pause)));
        std::task::ready!(timer.as_mut().poll(cx));
        self.timer = None;
        Poll::Ready(self.frames.pop().map(|(_, data)| Ok(Frame::data(Bytes::from_static(data.as_bytes())))))
    }

    fn is_end_stream(&self) -> bool {
        self.frames.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.frames.len() as u64)
    }
}

async fn frame<B: Body + Unpin>(body: &mut B) -> Option<Result<Frame<B::Data>, B::Error>> {
    poll_fn(|cx| Pin::new(&mut *body).poll_frame(cx)).await
}

#[tokio::test(start_paused = true)]
async fn pauses_below_the_bound_are_let_through_however_long_the_whole() {
    let start = Instant::now();
    let mut body = IdleBody::new(Paced::new(&[999; 100]), Duration::from_secs(1));
    assert_eq!(body.size_hint().exact(), Some(100));
    let mut frames = 0;
    while let Some(frame) = frame(&mut body).await {
        frame.unwrap();
        frames += 1;
    }
    assert_eq!(frames, 100);
    assert!(body.is_end_stream());
    assert!(start.elapsed() > Duration::from_secs(99));
}

#[tokio::test(start_paused = true)]
async fn a_pause_over_the_bound_ends_the_body_with_an_error() {
    for pauses in [&[1002][..], &[500, 1002]] {
        let mut body = IdleBody::new(Paced::new(pauses), Duration::from_secs(1));
        for _ in 1..pauses.len() {
            frame(&mut body).await.unwrap().unwrap();
        }
        let start = Instant::now();
        let error: BoxError = frame(&mut body).await.unwrap().unwrap_err();
        assert_eq!(LegErrorKind::of(&*error), LegErrorKind::Timeout);
        let took = start.elapsed();
        assert!((1000..1002).contains(&took.as_millis()), "{took:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_slow_reader_uses_up_no_time() {
    let mut body = IdleBody::new(Paced::new(&[10, 10]), Duration::from_secs(1));
    frame(&mut body).await.unwrap().unwrap();
    tokio::time::advance(Duration::from_secs(3600)).await;
    frame(&mut body).await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_boundless_gap_is_no_panic() {
    let mut body = IdleBody::new(Paced::new(&[10]), Duration::MAX);
    frame(&mut body).await.unwrap().unwrap();
}

#[tokio::test]
async fn the_layer_wraps_the_body() {
    let inner = tower::service_fn(async |_: Request<Empty<Bytes>>| {
        Ok::<_, Infallible>(Response::new(Full::<Bytes>::from("x")))
    });
    let reply =
        IdleLayer::new(Duration::from_secs(1)).layer(inner).oneshot(Request::default()).await.unwrap();
    assert_eq!(reply.into_body().size_hint().exact(), Some(1));
}

// === gathering ===

/// What a body does at each poll.
#[derive(Clone, Copy)]
enum Step {
    Data(&'static str),
    Large,
    Pending,
    Trailers,
    Error,
}

struct Steps(std::collections::VecDeque<Step>);

impl Body for Steps {
    type Data = Bytes;
    type Error = &'static str;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, &'static str>>> {
        match self.0.pop_front() {
            Some(Step::Data(text)) => Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(text.as_bytes()))))),
            Some(Step::Large) => Poll::Ready(Some(Ok(Frame::data(Bytes::from(vec![b'x'; 16 << 10]))))),
            Some(Step::Trailers) => Poll::Ready(Some(Ok(Frame::trailers(Default::default())))),
            Some(Step::Error) => Poll::Ready(Some(Err("broken"))),
            Some(Step::Pending) => Poll::Pending,
            None => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        let data = |step: &Step| if let Step::Data(text) = step { text.len() as u64 } else { 0 };
        SizeHint::with_exact(self.0.iter().map(data).sum())
    }
}

/// What comes of each poll, and whether the task asked to be polled again.
fn gathered(steps: &[Step]) -> Vec<String> {
    use std::sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    };
    struct Woken(AtomicBool);
    impl std::task::Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    let woken = Arc::new(Woken(AtomicBool::new(false)));
    let waker = woken.clone().into();
    let mut cx = std::task::Context::from_waker(&waker);
    let mut body = GatherBody::new(Steps(steps.iter().copied().collect()));
    let mut seen = Vec::new();
    while seen.len() < 20 {
        let length = body.size_hint().exact().unwrap();
        let polled = Pin::new(&mut body).poll_frame(&mut cx);
        let again = woken.0.swap(false, Ordering::Relaxed);
        assert!(!again || polled.is_pending());
        seen.push(match polled {
            Poll::Pending if again => "again".to_owned(),
            Poll::Pending => "pending".to_owned(),
            Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                Ok(data) if data.len() >= 16 << 10 => "large".to_owned(),
                Ok(data) => {
                    let left = body.size_hint().exact().unwrap();
                    assert_eq!(
                        left + data.len() as u64,
                        length.max(data.len() as u64),
                        "the length is kept up"
                    );
                    String::from_utf8(data.to_vec()).unwrap()
                }
                Err(_) => "trailers".to_owned(),
            },
            Poll::Ready(Some(Err(error))) => error.to_owned(),
            Poll::Ready(None) => "end".to_owned(),
        });
        if seen.last().unwrap() == "end" {
            assert!(body.is_end_stream());
            break;
        }
    }
    seen
}

#[test]
fn what_has_arrived_is_handed_on_in_one_piece() {
    use Step::{Data, Error, Large, Pending, Trailers};
    #[rustfmt::skip]
    let cases: &[(&[Step], &[&str])] = &[
        (&[], &["end"]),
        (&[Data("a")], &["a", "end"]),
        (&[Data("a"), Data("b"), Data("c")], &["abc", "end"]),
        (&[Pending, Data("a")], &["pending", "a", "end"]),
        // the connection gets its turns while there are bytes, and more bytes do not earn it more
        (&[Data("a"), Pending, Data("b"), Pending, Data("c"), Pending, Data("d")], &["again", "again", "abc", "d", "end"]),
        (&[Data("a"), Pending, Pending, Pending, Pending, Data("b")], &["again", "again", "a", "pending", "b", "end"]),
        // nothing is lost or moved before an end of any kind
        (&[Data("a"), Error], &["a", "broken", "end"]),
        (&[Data("a"), Pending, Error], &["again", "a", "broken", "end"]),
        (&[Data("a"), Trailers], &["a", "trailers", "end"]),
        (&[Trailers], &["trailers", "end"]),
        (&[Error], &["broken", "end"]),
        (&[Large, Large, Data("a")], &["large", "large", "a", "end"]),
    ];
    for (steps, expected) in cases {
        assert_eq!(gathered(steps), *expected);
    }
}

#[test]
fn the_end_is_told_only_when_nothing_is_held() {
    let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
    let mut body = GatherBody::new(Steps([Step::Data("a"), Step::Pending, Step::Trailers].into()));
    assert!(Pin::new(&mut body).poll_frame(&mut cx).is_pending());
    assert!(!body.is_end_stream() && body.size_hint().exact() == Some(1));
    assert!(Pin::new(&mut body).poll_frame(&mut cx).is_ready());
    assert!(!body.is_end_stream(), "trailers are to come");
    assert!(Pin::new(&mut body).poll_frame(&mut cx).is_ready());
    assert!(body.is_end_stream());
}
