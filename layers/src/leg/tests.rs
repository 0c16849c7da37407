use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode};
use http_body::{Body, SizeHint};
use http_body_util::BodyExt;
use tokio::time::advance;
use tokio_test::{assert_pending, assert_ready_err, assert_ready_ok, task};
use tower::{Layer, Service, ServiceBuilder, ServiceExt};

use super::{headers::*, *};
use crate::{
    buffer::{BufferBudget, CollectError},
    error::{BoxError, ContextError, ContextErrorKind, find},
    json::Segments,
    test_util::{
        LegDouble, LegHandle, Probe, ScriptedBody, assert_body_traits, assert_future_traits,
        assert_layer_traits, assert_service_traits, leg,
    },
};

type Client = LegDouble<Request<LegBody>, Response<ScriptedBody>>;
type Handle = LegHandle<Request<LegBody>, Response<ScriptedBody>>;

fn client() -> (Client, Handle) {
    leg()
}

fn text(parts: &[&'static str]) -> LegBody {
    let mut text = Segments::new();
    parts.iter().for_each(|&part| text.push(Bytes::from_static(part.as_bytes())));
    LegBody::new(text)
}

#[tokio::test]
async fn a_leg_body_sends_its_slices_and_knows_its_length() {
    let mut body = text(&["{", "", "\"a\":1", "}"]);
    assert_eq!(format!("{body:?}"), "LegBody(7 bytes)");
    let mut left = 7;
    for part in ["{", "\"a\":1", "}"] {
        assert_eq!((body.size_hint().exact(), body.is_end_stream()), (Some(left), false));
        assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), part);
        left -= part.len() as u64;
    }
    assert_eq!((body.size_hint().exact(), body.is_end_stream()), (Some(0), true));
    assert!(body.frame().await.is_none() && body.frame().await.is_none());
}

#[test]
fn a_leg_body_copies_no_slice_and_can_be_empty() {
    let part = Bytes::from(vec![b'x'; 100]);
    let one = LegBody::from(part.clone());
    assert_eq!(one.into_bytes().as_ptr(), part.as_ptr());
    assert_eq!(text(&["ab", "c"]).into_bytes(), "abc");
    for body in [LegBody::empty(), LegBody::default(), text(&["", ""]), Bytes::new().into()] {
        assert_eq!((body.size_hint().exact(), body.is_end_stream()), (Some(0), true));
        assert_eq!(body.into_bytes(), "");
    }
}

#[tokio::test]
async fn what_a_leg_body_has_sent_is_not_in_the_rest() {
    let mut body = text(&["ab", "c", "d"]);
    body.frame().await.unwrap().unwrap();
    assert_eq!(format!("{body:?}"), "LegBody(2 bytes)");
    assert_eq!(body.into_bytes(), "cd");
}

fn headers(lines: &[(&'static str, &'static str)]) -> HeaderMap {
    let mut map = HeaderMap::new();
    for (name, value) in lines {
        map.append(*name, HeaderValue::from_static(value));
    }
    map
}

#[test]
fn headers_that_must_not_travel_are_stripped() {
    let hop_by_hop = [
        "connection",
        "keep-alive",
        "proxy-connection",
        "proxy-authenticate",
        "proxy-authorization",
        "http2-settings",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    ];
    let request_only = [
        "x-prefiller-host-port",
        "host",
        "content-length",
        "expect",
        "x-trtllm-disagg-auth",
        "x-trtllm-subagent-affinity-id",
        "x-trtllm-subagent-affinity-auth",
    ];
    let kept = [
        "authorization",
        "content-type",
        "traceparent",
        "tracestate",
        "x-request-id",
        "x-gateway-destination-endpoint",
        "user-agent",
        "retry-after",
    ];
    let all = |name: &'static str| headers(&[(name, "v"), ("x-other", "1"), (name, "w")]);
    for name in hop_by_hop {
        for strip in [strip_request, strip_context_request, strip_response] {
            let mut map = all(name);
            strip(&mut map);
            assert_eq!(map, headers(&[("x-other", "1")]), "{name}");
        }
    }
    for name in request_only {
        for strip in [strip_request, strip_context_request] {
            let mut map = all(name);
            strip(&mut map);
            assert_eq!(map, headers(&[("x-other", "1")]), "{name}");
        }
        let mut map = all(name);
        strip_response(&mut map);
        assert_eq!(map, all(name), "{name} of a response");
    }
    for name in kept {
        for strip in [strip_request, strip_context_request, strip_response] {
            let mut map = all(name);
            strip(&mut map);
            assert_eq!(map, all(name), "{name}");
        }
    }
    let mut map = all("accept-encoding");
    strip_request(&mut map);
    assert_eq!(map, all("accept-encoding"));
    strip_context_request(&mut map);
    assert_eq!(map, headers(&[("x-other", "1")]));
}

#[test]
fn cookies_in_pieces_go_to_a_worker_as_one() {
    for (pieces, whole) in
        [(&[][..], None), (&["a=1"], Some("a=1")), (&["a=1", "b=2", "c=3; d=4"], Some("a=1; b=2; c=3; d=4"))]
    {
        for strip in [strip_request, strip_context_request] {
            let mut map = headers(&[("x-other", "1")]);
            for &piece in pieces {
                map.append("cookie", HeaderValue::from_static(piece));
            }
            strip(&mut map);
            let left: Vec<_> = map.get_all("cookie").iter().map(|value| value.to_str().unwrap()).collect();
            assert_eq!(left, Vec::from_iter(whole), "{pieces:?}");
        }
    }
}

#[test]
fn headers_that_the_connection_header_names_are_stripped() {
    // (values of `connection`, what is left of a, b and c)
    let cases: &[(&[&str], &str)] = &[
        (&["close"], "abc"),
        (&["a"], "bc"),
        (&["a, b"], "c"),
        (&[" A ,\tB,,"], "c"),
        (&["keep-alive, c", "b"], "a"),
        (&["a b", "not a name, c"], "ab"),
        (&["", ",", ", ,"], "abc"),
        (&["connection"], "abc"),
        (&["a\u{e9}b"], "abc"),
    ];
    for (values, left) in cases {
        let mut map = headers(&[("a", "1"), ("b", "2"), ("c", "3"), ("b", "4")]);
        for value in *values {
            map.append("connection", HeaderValue::from_bytes(value.as_bytes()).unwrap());
        }
        strip_response(&mut map);
        let names: String = map.keys().map(|name| name.as_str()).collect();
        let mut names: Vec<char> = names.chars().collect();
        names.sort();
        assert_eq!(names.into_iter().collect::<String>(), *left, "{values:?}");
    }
}

#[test]
fn a_head_commits_only_with_a_success() {
    for status in [200, 201, 204, 299] {
        let head = ReplyHead::new();
        assert!(!head.is_committed());
        head.clone().arrived(StatusCode::from_u16(status).unwrap());
        assert!(head.is_committed(), "{status}");
    }
    for status in [100, 199, 300, 304, 400, 429, 500, 503] {
        let head = ReplyHead::new();
        head.arrived(StatusCode::from_u16(status).unwrap());
        assert!(!head.is_committed(), "{status}");
    }
}

fn request(head: &ReplyHead) -> Request<LegBody> {
    let mut request = Request::post("/v1/completions").body(text(&["a", "b"])).unwrap();
    request.extensions_mut().insert(head.clone());
    request
}

#[tokio::test]
async fn a_reply_is_read_to_its_end_and_its_head_is_told_at_once() {
    let (client, mut handle) = client();
    let head = ReplyHead::new();
    let service = BufferReplyLayer::new(10).layer(client);
    let mut call = task::spawn(service.oneshot(request(&head)));
    assert_pending!(call.poll());
    let (seen, mut reply) = handle.try_next().unwrap();
    assert_eq!(seen.uri().path(), "/v1/completions");
    assert_eq!(seen.into_body().into_bytes(), "ab");
    assert!(!head.is_committed());
    let body = ScriptedBody::new().data("he").pending().data("llo").trailers(HeaderMap::new());
    let script = body.handle();
    reply.send_response(Response::builder().status(201).header("x-r", "1").body(body).unwrap());
    assert!(call.is_woken());
    assert_pending!(call.poll());
    assert!(head.is_committed(), "before the body is there");
    script.wake();
    assert!(call.is_woken());
    let response = assert_ready_ok!(call.poll());
    assert_eq!((response.status().as_u16(), response.headers()["x-r"].as_bytes()), (201, &b"1"[..]));
    assert_eq!(response.into_body(), "hello");
}

#[tokio::test]
async fn a_reply_that_is_no_success_commits_nothing_and_is_read_as_well() {
    let (client, mut handle) = client();
    let head = ReplyHead::new();
    let mut call = task::spawn(BufferReplyLayer::new(10).layer(client).oneshot(request(&head)));
    assert_pending!(call.poll());
    let response = Response::builder().status(429).body(ScriptedBody::new().data("busy")).unwrap();
    handle.try_next().unwrap().1.send_response(response);
    let response = assert_ready_ok!(call.poll());
    assert_eq!((response.status().as_u16(), &response.body()[..]), (429, &b"busy"[..]));
    assert!(!head.is_committed());
}

/// What becomes of a reply with this body.
async fn buffered(layer: BufferReplyLayer, body: ScriptedBody) -> Result<Bytes, BoxError> {
    let (client, mut handle) = client();
    // Without a `ReplyHead` in the request: nobody is told, and nothing is missing.
    let mut call = task::spawn(layer.layer(client).oneshot(Request::new(LegBody::empty())));
    assert_pending!(call.poll());
    handle.try_next().unwrap().1.send_response(Response::new(body));
    call.await.map(Response::into_body)
}

#[tokio::test]
async fn cap_budget_and_broken_replies_are_told_apart() {
    use LegErrorKind::*;
    let budget = BufferBudget::new(8);
    let layer = || BufferReplyLayer::new(10).budget(budget.clone());
    let at_cap = buffered(BufferReplyLayer::new(10), ScriptedBody::new().data("12345").data("67890")).await;
    assert_eq!(at_cap.unwrap().len(), 10);
    let held = buffered(layer(), ScriptedBody::new().data("12345678")).await.unwrap();
    assert_eq!((held.len(), budget.held()), (8, 8));
    drop(held);
    let claims = SizeHint::with_exact(11);
    for (kind, body) in [
        (ReplyTooLarge, ScriptedBody::new().data("12345").data("678901")),
        (ReplyTooLarge, ScriptedBody::new().pending().claim_size(claims)),
        (Overloaded, ScriptedBody::new().data("123456789")),
        (Interrupted, ScriptedBody::new().data("1").error(ContextError::new(ContextErrorKind::Aborted))),
    ] {
        let limits = if kind == ReplyTooLarge { BufferReplyLayer::new(10) } else { layer() };
        let error = buffered(limits, body).await.unwrap_err();
        assert_eq!((find::<LegError>(&*error).unwrap().kind(), LegErrorKind::of(&*error)), (kind, kind));
        assert!(find::<CollectError>(&*error).is_some());
        assert_eq!(find::<ContextError>(&*error).is_some(), kind == Interrupted, "the cause stays");
        assert_eq!(budget.held(), 0);
    }
}

#[tokio::test]
async fn errors_of_the_client_pass_as_they_are() {
    let (client, mut handle) = client();
    let service = BufferReplyLayer::new(10).layer(client);
    let head = ReplyHead::new();
    let mut call = task::spawn(service.clone().oneshot(request(&head)));
    assert_pending!(call.poll());
    handle.try_next().unwrap().1.send_error(LegError::new(LegErrorKind::Connect));
    assert_eq!(LegErrorKind::of(&*assert_ready_err!(call.poll())), LegErrorKind::Connect);
    assert!(!head.is_committed());
    handle.fail_ready(LegError::new(LegErrorKind::UnsupportedEngine));
    let mut service = task::spawn(service);
    let error = assert_ready_err!(service.enter(|cx, mut service| service.poll_ready(cx)));
    assert_eq!(LegErrorKind::of(&*error), LegErrorKind::UnsupportedEngine);
}

#[tokio::test]
async fn readiness_is_the_clients_and_the_ready_one_is_called() {
    let (client, mut handle) = client();
    handle.block();
    let mut service = task::spawn(BufferReplyLayer::new(10).layer(Probe::new(client)));
    let mut clone = task::spawn(service.clone());
    assert_pending!(service.enter(|cx, mut service| service.poll_ready(cx)));
    handle.allow(1);
    assert!(service.is_woken());
    assert_ready_ok!(service.enter(|cx, mut service| service.poll_ready(cx)));
    assert_pending!(clone.enter(|cx, mut service| service.poll_ready(cx)));
    let _one = service.call(Request::new(LegBody::empty()));
    handle.allow(1);
    assert_ready_ok!(clone.enter(|cx, mut service| service.poll_ready(cx)));
    let _two = clone.call(Request::new(LegBody::empty()));
    assert!(handle.try_next().is_some() && handle.try_next().is_some());
}

#[tokio::test]
async fn dropping_the_future_drops_the_call_or_the_body() {
    let (client, mut handle) = client();
    let mut service = BufferReplyLayer::new(10).layer(client);
    let never_polled = service.ready().await.unwrap().call(Request::new(LegBody::empty()));
    let (_, mut reply) = handle.try_next().unwrap();
    drop(never_polled);
    assert!(reply.cancelled().await);

    let mut waits = task::spawn(service.ready().await.unwrap().call(Request::new(LegBody::empty())));
    assert_pending!(waits.poll());
    let (_, mut reply) = handle.try_next().unwrap();
    drop(waits);
    assert!(reply.cancelled().await);

    let mut reads = task::spawn(service.ready().await.unwrap().call(Request::new(LegBody::empty())));
    let (_, mut reply) = handle.try_next().unwrap();
    let body = ScriptedBody::new().data("a").pending();
    let script = body.handle();
    reply.send_response(Response::new(body));
    assert_pending!(reads.poll());
    assert!(!script.is_dropped());
    drop(reads);
    assert!(script.is_dropped());
}

#[tokio::test(start_paused = true)]
async fn a_timeout_around_the_leg_covers_a_body_that_stalls() {
    let (client, mut handle) = client();
    let service = ServiceBuilder::new()
        .timeout(Duration::from_secs(180))
        .layer(BufferReplyLayer::new(1000))
        .service(client);
    let mut call = task::spawn(service.oneshot(Request::new(LegBody::empty())));
    assert_pending!(call.poll());
    let body = ScriptedBody::new().data("a").pending();
    let script = body.handle();
    handle.try_next().unwrap().1.send_response(Response::new(body));
    assert_pending!(call.poll());
    advance(Duration::from_millis(179_999)).await;
    assert_pending!(call.poll());
    advance(Duration::from_millis(2)).await;
    assert!(call.is_woken());
    assert!(assert_ready_err!(call.poll()).is::<tower::timeout::error::Elapsed>());
    drop(call);
    assert!(script.is_dropped());
}

#[test]
fn what_is_not_known_of_a_leg_may_have_begun_a_reply() {
    use LegErrorKind::*;
    for kind in [Connect, Lost, Interrupted, Timeout, ReplyTooLarge, Overloaded, UnsupportedEngine] {
        let error = LegError::new(kind).with_source("a cause");
        assert_eq!((error.kind(), LegErrorKind::of(&error)), (kind, kind));
        assert!(!error.to_string().is_empty() && !error.to_string().contains("cause"));
        assert_eq!(std::error::Error::source(&error).unwrap().to_string(), "a cause");
        let outer = LegError::new(Interrupted).with_source(error);
        assert_eq!(LegErrorKind::of(&outer), Interrupted, "the outermost says it");
    }
    assert_eq!(LegErrorKind::of(&*BoxError::from("unknown")), Interrupted);
    #[cfg(feature = "tower")]
    assert_eq!(LegErrorKind::of(&tower::timeout::error::Elapsed::new()), Timeout);
}

#[test]
fn checked_addresses_are_one_or_more_in_their_order() {
    let address = |port: u16| std::net::SocketAddr::from(([10, 0, 0, 5], port));
    assert_eq!(CheckedAddresses::new([]), None);
    let few = CheckedAddresses::new([address(2), address(1)]).unwrap();
    assert_eq!(few.as_slice(), [address(2), address(1)]);
    assert_eq!(few.clone().as_slice().as_ptr(), few.as_slice().as_ptr());
    let many = CheckedAddresses::new((1..=1000).map(address)).unwrap();
    assert_eq!(many.as_slice(), (1..=16).map(address).collect::<Vec<_>>());
}

#[test]
fn its_types_can_be_shared_moved_and_printed() {
    assert_layer_traits::<BufferReplyLayer>();
    assert_service_traits::<BufferReply<Client>>();
    assert_future_traits::<BufferReplyFuture<<Client as Service<Request<LegBody>>>::Future, ScriptedBody>>();
    assert_body_traits::<LegBody>();
    let (client, _handle) = client();
    let _: BufferReply<Client> = ServiceBuilder::new().layer(BufferReplyLayer::new(1)).service(client);
}

/// A worker that is not told how to read a body may read another one than the one that was checked.
#[test]
fn what_describes_the_body_cannot_be_nominated_away() {
    for strip in [strip_request, strip_context_request, strip_response] {
        let mut map = HeaderMap::new();
        map.insert("connection", HeaderValue::from_static("close, Content-Type,content-encoding , x-hop"));
        map.insert("content-type", HeaderValue::from_static("text/plain"));
        map.insert("content-encoding", HeaderValue::from_static("gzip"));
        map.insert("x-hop", HeaderValue::from_static("1"));
        strip(&mut map);
        let mut left: Vec<_> = map.keys().map(|name| name.as_str()).collect();
        left.sort_unstable();
        assert_eq!(left, ["content-encoding", "content-type"]);
    }
    let mut map = HeaderMap::new();
    map.insert("connection", HeaderValue::from_bytes(b"\xff, x-hop").unwrap());
    map.insert("x-hop", HeaderValue::from_static("1"));
    strip_request(&mut map);
    assert!(map.is_empty(), "a name that is none does not save the others");
}
