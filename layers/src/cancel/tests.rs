use std::{
    fmt,
    future::pending,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Mutex},
    task::Poll,
};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, header::CONTENT_LENGTH};
use http_body::{Body, SizeHint};
use http_body_util::{BodyExt, Empty, Full};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_test::{assert_pending, assert_ready, assert_ready_err, assert_ready_ok, task};
use tower::{Layer, Service, ServiceBuilder, ServiceExt, service_fn};

use super::{length::Length, *};
use crate::{
    error::{BoxError, ContextError, ContextErrorKind, find},
    respond::RespondLayer,
    test_util::{
        LegDouble, LegHandle, Probe, Recorded, ScriptedBody, assert_body_traits, assert_future_traits,
        assert_layer_traits, assert_service_traits, leg,
    },
};

type Inner = LegDouble<Request<&'static str>, Response<ScriptedBody>>;
type Handle = LegHandle<Request<&'static str>, Response<ScriptedBody>>;

/// Everything that a hook was told.
#[derive(Clone, Default)]
struct Told(Arc<Mutex<Vec<Outcome>>>);

impl Told {
    fn all(&self) -> Vec<Outcome> {
        self.0.lock().unwrap().clone()
    }
}

impl OnRelease for Told {
    fn on_release(&self, outcome: Outcome) {
        self.0.lock().unwrap().push(outcome);
    }
}

struct Setup {
    told: Told,
    in_flight: InFlight,
    service: Cancel<Inner>,
    handle: Handle,
}

fn setup() -> Setup {
    let (inner, handle) = leg();
    let told = Told::default();
    let layer = CancelLayer::new().on_release(told.clone());
    Setup { told, in_flight: layer.in_flight(), service: layer.layer(inner), handle }
}

impl Setup {
    /// Calls, and answers with `response`.
    async fn answered(
        &mut self,
        method: Method,
        response: Response<ScriptedBody>,
    ) -> CancelBody<ScriptedBody> {
        let request = Request::builder().method(method).body("").unwrap();
        let mut call = task::spawn(self.service.ready().await.unwrap().call(request));
        assert_pending!(call.poll());
        self.handle.try_next().unwrap().1.send_response(response);
        assert!(call.is_woken());
        assert_ready_ok!(call.poll()).into_body()
    }

    fn assert_open(&self, at: &str) {
        assert_eq!((self.in_flight.count(), self.told.all().len()), (1, 0), "{at}");
    }

    fn assert_over(&self, outcome: Outcome, at: &str) {
        assert_eq!((self.in_flight.count(), self.told.all()), (0, vec![outcome]), "{at}");
    }
}

const OK: StatusCode = StatusCode::OK;
const COMPLETED: Outcome = Outcome::Completed(OK);
const CANCELLED: Outcome = Outcome::Cancelled(Some(OK));
const FAILED: Outcome = Outcome::Failed(Some(OK));

fn trailers() -> HeaderMap {
    HeaderMap::from_iter([(CONTENT_LENGTH, HeaderValue::from_static("1"))])
}

#[test]
fn a_length_is_met_when_a_server_asks_for_no_more() {
    /// status, content-length, bytes handed out, is_end_stream, exact hint, met
    type Case = (u16, Option<&'static str>, u64, bool, Option<u64>, bool);
    let cases: [Case; 17] = [
        (200, None, 0, false, None, false),
        (200, None, 0, true, None, true),
        (200, None, 0, false, Some(0), true),
        (200, None, 5, false, Some(1), false),
        (200, Some("0"), 0, false, None, true),
        (200, Some("5"), 4, false, None, false),
        (200, Some("5"), 5, false, None, true),
        (200, Some("5"), 6, false, None, true),
        (200, Some("5"), 5, false, Some(9), true),
        (200, Some("five"), 5, false, None, false),
        (200, Some("-1"), 5, false, None, false),
        (200, Some("18446744073709551616"), 5, false, None, false),
        (200, Some("18446744073709551615"), u64::MAX, false, None, true),
        (204, None, 0, false, None, true),
        (304, Some("5"), 0, false, None, true),
        (101, None, 0, false, None, true),
        (500, Some("5"), 0, false, None, false),
    ];
    for (status, header, sent, end, exact, met) in cases {
        let mut headers = HeaderMap::new();
        if let Some(value) = header {
            headers.insert(CONTENT_LENGTH, HeaderValue::from_static(value));
        }
        let hint = exact.map_or_else(SizeHint::new, SizeHint::with_exact);
        let status = StatusCode::from_u16(status).unwrap();
        let mut length = Length::of(false, status, &headers);
        length.sent(sent);
        assert_eq!(length.is_met(end, &hint), met, "{status} {header:?} {sent} {end} {exact:?}");
        assert!(Length::of(true, status, &headers).is_met(false, &SizeHint::new()), "HEAD {status}");
    }
}

#[tokio::test]
async fn request_and_response_pass_as_they_are() {
    let mut s = setup();
    let request = Request::post("/x").header("x-a", "b").body("prompt").unwrap();
    let mut call = task::spawn(s.service.ready().await.unwrap().call(request));
    assert_pending!(call.poll());
    let (request, mut reply) = s.handle.try_next().unwrap();
    assert_eq!((request.method(), request.uri().path()), (&Method::POST, "/x"));
    assert_eq!((&request.headers()["x-a"], *request.body()), (&HeaderValue::from_static("b"), "prompt"));
    let body = ScriptedBody::new().data("ab").data("c").trailers(trailers()).exact_size().eager_end();
    reply.send_response(Response::builder().status(201).header("x-r", "1").body(body).unwrap());
    let response = assert_ready_ok!(call.poll());
    assert_eq!((response.status().as_u16(), response.headers()["x-r"].as_bytes()), (201, &b"1"[..]));
    let mut body = response.into_body();
    assert_eq!((body.size_hint().exact(), body.is_end_stream()), (Some(3), false));
    assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), "ab");
    assert_eq!(body.size_hint().exact(), Some(1));
    assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), "c");
    // The length is met, and what comes after that still comes.
    assert_eq!(body.frame().await.unwrap().unwrap().into_trailers().unwrap(), trailers());
    assert!(body.is_end_stream() && body.frame().await.is_none());
    drop((call, body));
    s.assert_over(Outcome::Completed(StatusCode::CREATED), "end");
}

#[tokio::test]
async fn an_error_passes_as_it_is_and_is_a_failure() {
    let mut s = setup();
    let mut call = task::spawn(s.service.ready().await.unwrap().call(Request::new("")));
    assert_pending!(call.poll());
    s.assert_open("called");
    s.handle.try_next().unwrap().1.send_error(ContextError::new(ContextErrorKind::Aborted));
    let error = assert_ready_err!(call.poll());
    assert_eq!(find::<ContextError>(&*error).unwrap().kind(), ContextErrorKind::Aborted);
    s.assert_over(Outcome::Failed(None), "at the error, not at the drop");
    drop(call);
    s.assert_over(Outcome::Failed(None), "dropped");
}

#[tokio::test]
async fn readiness_is_the_inner_services() {
    let s = setup();
    s.handle.block();
    let mut service = task::spawn(s.service.clone());
    assert_pending!(service.enter(|cx, mut service| service.poll_ready(cx)));
    s.handle.allow(1);
    assert!(service.is_woken());
    assert_ready_ok!(service.enter(|cx, mut service| service.poll_ready(cx)));
    s.handle.fail_ready("down");
    let mut other = task::spawn(service.clone());
    assert_eq!(assert_ready_err!(other.enter(|cx, mut service| service.poll_ready(cx))).to_string(), "down");
    assert_eq!((s.in_flight.count(), s.told.all().len()), (0, 0), "nothing was called");
}

#[tokio::test]
async fn the_service_that_was_ready_is_the_one_that_is_called() {
    let (inner, mut handle) = leg::<Request<&str>, Response<ScriptedBody>>();
    let layer = CancelLayer::new();
    let mut one = layer.layer(Probe::new(inner));
    let mut two = one.clone();
    let mut calls = [
        task::spawn(one.ready().await.unwrap().call(Request::new("a"))),
        task::spawn(two.ready().await.unwrap().call(Request::new("b"))),
    ];
    assert_eq!(layer.in_flight().count(), 2);
    let (_, mut a) = handle.try_next().unwrap();
    let (_, mut b) = handle.try_next().unwrap();
    b.send_response(Response::default());
    assert!(assert_ready_ok!(calls[1].poll()).into_body().frame().await.is_none());
    assert_eq!(layer.in_flight().count(), 1);
    a.send_error("no");
    assert_ready_err!(calls[0].poll());
    assert_eq!(layer.in_flight().count(), 0);
}

#[tokio::test]
async fn a_future_dropped_in_any_state_is_a_client_that_left() {
    let mut s = setup();
    let call = s.service.ready().await.unwrap().call(Request::new(""));
    let (_, mut reply) = s.handle.try_next().unwrap();
    s.assert_open("called");
    drop(call);
    assert!(reply.cancelled().await);
    s.assert_over(Outcome::Cancelled(None), "never polled");

    let mut s = setup();
    let mut call = task::spawn(s.service.ready().await.unwrap().call(Request::new("")));
    assert_pending!(call.poll());
    let (_, mut reply) = s.handle.try_next().unwrap();
    drop(call);
    assert!(reply.cancelled().await);
    s.assert_over(Outcome::Cancelled(None), "pending");

    let mut s = setup();
    let body = ScriptedBody::new().data("a");
    let script = body.handle();
    let body = s.answered(Method::GET, Response::new(body)).await;
    s.assert_open("head");
    drop(body);
    assert!(script.is_dropped());
    s.assert_over(CANCELLED, "body not polled");
}

/// Polls a body to the end of its script and notes after which poll the request was over.
async fn walk(method: Method, response: Response<ScriptedBody>) -> (Vec<Outcome>, Option<usize>) {
    let mut s = setup();
    let script = response.body().handle();
    let mut body = s.answered(method, response).await;
    let mut over = (s.in_flight.count() == 0).then_some(0);
    for poll in 1.. {
        let frame = body.frame().await;
        if over.is_none() && s.in_flight.count() == 0 {
            over = Some(poll);
        }
        if frame.is_none() {
            break;
        }
    }
    assert_eq!(script.polls_after_end(), 0);
    drop(body);
    assert_eq!(s.in_flight.count(), 0);
    (s.told.all(), over)
}

#[tokio::test]
async fn each_ending_of_a_body_is_seen_as_soon_as_it_can_be() {
    let two = || ScriptedBody::new().data("ab").data("c");
    let with_length = |n: u64, body| {
        let mut response = Response::new(body);
        response.headers_mut().insert(CONTENT_LENGTH, HeaderValue::from(n));
        response
    };
    let cases = [
        ("none", Response::new(two()), COMPLETED, 3),
        ("empty", Response::new(ScriptedBody::new()), COMPLETED, 1),
        ("known to be empty", Response::new(ScriptedBody::new().eager_end()), COMPLETED, 0),
        ("of length zero", Response::new(ScriptedBody::new().exact_size()), COMPLETED, 0),
        ("exact hint", Response::new(two().exact_size()), COMPLETED, 2),
        ("end of stream", Response::new(two().eager_end()), COMPLETED, 2),
        ("content-length", with_length(3, two()), COMPLETED, 2),
        ("content-length too small", with_length(2, two()), COMPLETED, 1),
        ("content-length too large", with_length(9, two()), COMPLETED, 3),
        ("empty frame", Response::new(ScriptedBody::new().data("").data("a")), COMPLETED, 3),
        ("trailers", Response::new(two().trailers(trailers())), COMPLETED, 3),
        (
            "end of stream before trailers",
            Response::new(two().trailers(trailers()).early_end()),
            COMPLETED,
            2,
        ),
        ("only trailers", Response::new(ScriptedBody::new().trailers(trailers())), COMPLETED, 1),
        ("error", Response::new(two().error("broke off")), FAILED, 3),
        ("error at once", Response::new(ScriptedBody::new().error("broke off")), FAILED, 1),
        ("error short of the length", with_length(4, two().error("broke off")), FAILED, 3),
    ];
    for (name, response, outcome, poll) in cases {
        assert_eq!(walk(Method::POST, response).await, (vec![outcome], Some(poll)), "{name}");
    }
    let response = with_length(3, ScriptedBody::new());
    assert_eq!(walk(Method::HEAD, response).await, (vec![COMPLETED], Some(0)), "HEAD");
    for status in [StatusCode::NO_CONTENT, StatusCode::NOT_MODIFIED] {
        let mut response = with_length(3, ScriptedBody::new());
        *response.status_mut() = status;
        let expected = (vec![Outcome::Completed(status)], Some(0));
        assert_eq!(walk(Method::GET, response).await, expected, "{status}");
    }
}

#[tokio::test]
async fn a_body_dropped_before_its_end_is_a_client_that_left() {
    for polls in 0..3 {
        let mut s = setup();
        let response = Response::new(ScriptedBody::new().data("a").data("b").pending().data("c"));
        let mut body = s.answered(Method::GET, response).await;
        for _ in 0..polls {
            assert!(body.frame().await.unwrap().is_ok());
        }
        if polls == 2 {
            assert_pending!(task::spawn(&mut body).enter(|cx, body| body.poll_frame(cx)));
        }
        s.assert_open("stream");
        drop(body);
        s.assert_over(CANCELLED, "stream");
    }
}

#[tokio::test]
async fn a_request_is_over_after_what_is_inside_is_gone() {
    struct Inside(Arc<Mutex<Vec<&'static str>>>);
    impl Drop for Inside {
        fn drop(&mut self) {
            self.0.lock().unwrap().push("inside");
        }
    }
    let order = Arc::new(Mutex::new(Vec::new()));
    let (inside, hook) = (order.clone(), order.clone());
    let mut service = CancelLayer::new().on_release(move |_| hook.lock().unwrap().push("released")).layer(
        service_fn(move |_: Request<()>| {
            let guard = Inside(inside.clone());
            async move {
                let _guard = guard;
                pending::<Result<Response<Empty<Bytes>>, BoxError>>().await
            }
        }),
    );
    let mut call = task::spawn(service.call(Request::new(())));
    assert_pending!(call.poll());
    drop(call);
    assert_eq!(*order.lock().unwrap(), ["inside", "released"]);
    order.lock().unwrap().clear();

    let (inside, hook) = (order.clone(), order.clone());
    let mut service = CancelLayer::new().on_release(move |_| hook.lock().unwrap().push("released")).layer(
        service_fn(move |_: Request<()>| {
            let guard = Inside(inside.clone());
            let body = Full::new(Bytes::from("x")).map_frame(move |frame| {
                let _ = &guard;
                frame
            });
            async move { Ok::<_, BoxError>(Response::new(body)) }
        }),
    );
    drop(service.call(Request::new(())).await.unwrap());
    assert_eq!(*order.lock().unwrap(), ["inside", "released"]);
}

#[tokio::test]
async fn a_panic_inside_is_a_failure() {
    let told = Told::default();
    let layer = CancelLayer::new().on_release(told.clone());
    type Panics = Response<Empty<Bytes>>;

    let mut in_call =
        layer.layer(service_fn(|_: Request<()>| -> std::future::Ready<Result<Panics, BoxError>> {
            panic!("in call")
        }));
    catch_unwind(AssertUnwindSafe(|| drop(in_call.call(Request::new(()))))).unwrap_err();
    let mut in_poll =
        layer.layer(service_fn(async |_: Request<()>| -> Result<Panics, BoxError> { panic!("in poll") }));
    let mut call = task::spawn(in_poll.call(Request::new(())));
    catch_unwind(AssertUnwindSafe(|| drop(call.poll()))).unwrap_err();
    assert_eq!(told.all().len(), 1, "caught outside: the future is still there");
    drop(call);
    let mut in_body = layer.layer(service_fn(async |_: Request<()>| {
        let frames = polls(|| panic!("in body"));
        Ok::<_, BoxError>(Response::new(frames))
    }));
    let mut body = task::spawn(in_body.call(Request::new(())).await.unwrap().into_body());
    catch_unwind(AssertUnwindSafe(|| body.enter(|cx, body| body.poll_frame(cx).is_ready()))).unwrap_err();
    drop(body);
    assert_eq!(told.all(), [Outcome::Failed(None), Outcome::Failed(None), FAILED]);
    assert_eq!(layer.in_flight().count(), 0);
}

/// A body whose polls run `poll`.
fn polls(poll: fn() -> Poll<()>) -> impl Body<Data = Bytes, Error = BoxError> + Unpin {
    struct Polls(fn() -> Poll<()>);

    impl Body for Polls {
        type Data = Bytes;
        type Error = BoxError;
        fn poll_frame(
            self: std::pin::Pin<&mut Self>,
            _: &mut std::task::Context<'_>,
        ) -> Poll<Option<Result<http_body::Frame<Bytes>, BoxError>>> {
            (self.0)().map(|()| None)
        }
    }
    Polls(poll)
}

#[tokio::test]
async fn a_hook_that_panics_harms_nothing() {
    let layer = CancelLayer::new().on_release(|_| panic!("hook"));
    let mut service = layer.layer(service_fn(async |_: Request<()>| {
        Ok::<_, BoxError>(Response::new(Full::new(Bytes::from("x"))))
    }));
    drop(service.call(Request::new(()))); // in a drop
    service.call(Request::new(())).await.unwrap().into_body().collect().await.unwrap(); // in a poll
    let mut inside = layer.layer(service_fn(|_: Request<()>| -> std::future::Ready<Result<_, BoxError>> {
        if true {
            panic!("inside")
        }
        std::future::ready(Ok(Response::new(Empty::<Bytes>::new())))
    }));
    // In a drop during a panic, where a second one would end the process.
    catch_unwind(AssertUnwindSafe(|| drop(inside.call(Request::new(()))))).unwrap_err();
    assert_eq!(layer.in_flight().count(), 0);
}

#[tokio::test]
async fn clones_share_the_count_and_a_count_can_be_shared() {
    let shared = InFlight::new();
    let (one, two) =
        (CancelLayer::new().count_in(shared.clone()), CancelLayer::default().count_in(shared.clone()));
    let (inner, _handle) = leg::<Request<&str>, Response<ScriptedBody>>();
    let mut services = [one.layer(inner.clone()), one.clone().layer(inner.clone()), two.layer(inner)];
    let mut calls = Vec::new();
    for service in &mut services {
        calls.push(service.ready().await.unwrap().call(Request::new("")));
    }
    assert_eq!((shared.count(), one.in_flight().count(), two.in_flight().count()), (3, 3, 3));
    let mut idle = task::spawn(shared.idle());
    assert_pending!(idle.poll());
    // Another one that waits, and gives up.
    let mut gives_up = task::spawn(shared.idle());
    assert_pending!(gives_up.poll());
    calls.truncate(1);
    assert_pending!(idle.poll());
    drop(gives_up);
    calls.clear();
    assert!(idle.is_woken());
    assert_ready!(idle.poll());
    assert_ready!(task::spawn(shared.idle()).poll());
}

#[tokio::test]
async fn a_request_still_counts_while_its_hook_runs() {
    let in_flight = InFlight::new();
    let (seen, count) = (Arc::new(Mutex::new(None)), in_flight.clone());
    let writes = seen.clone();
    let layer = CancelLayer::new()
        .count_in(in_flight)
        .on_release(move |_| *writes.lock().unwrap() = Some(count.count()));
    let (inner, _handle) = leg::<Request<&str>, Response<ScriptedBody>>();
    drop(layer.layer(inner).oneshot(Request::new("")));
    assert_eq!(*seen.lock().unwrap(), None, "not called yet");
    let (inner, _handle) = leg::<Request<&str>, Response<ScriptedBody>>();
    let mut call = task::spawn(layer.layer(inner).oneshot(Request::new("")));
    assert_pending!(call.poll());
    drop(call);
    assert_eq!(*seen.lock().unwrap(), Some(1));
}

#[test]
fn metrics_count_each_request_once() {
    let recorded = Recorded::default();
    metrics::with_local_recorder(&recorded, || {
        let (inner, mut handle) = leg::<Request<&str>, Response<ScriptedBody>>();
        let layer = CancelLayer::new().on_release(());
        let mut calls: Vec<_> =
            (0..3).map(|_| task::spawn(layer.layer(inner.clone()).oneshot(Request::new("")))).collect();
        calls.iter_mut().for_each(|call| assert_pending!(call.poll()));
        assert_eq!(recorded.value("disagg_requests_in_flight"), Some(3.0));
        handle.try_next().unwrap().1.send_error("no");
        handle.try_next().unwrap().1.send_response(Response::new(ScriptedBody::new().eager_end()));
        assert_ready_err!(calls[0].poll());
        assert_ready_ok!(calls[1].poll());
    });
    let expected = [
        ("disagg_requests_in_flight", 0.0),
        ("disagg_requests_total{outcome=cancelled}", 1.0),
        ("disagg_requests_total{outcome=completed}", 1.0),
        ("disagg_requests_total{outcome=failed}", 1.0),
    ];
    assert_eq!(recorded.all(), expected.map(|(name, value)| (name.to_owned(), value)).into());
}

#[test]
fn outcomes_have_names_and_a_status() {
    let none = |outcome: Outcome| (outcome.as_str(), outcome.status());
    assert_eq!(none(COMPLETED), ("completed", Some(OK)));
    assert_eq!(none(FAILED), ("failed", Some(OK)));
    assert_eq!(none(Outcome::Failed(None)), ("failed", None));
    assert_eq!(none(CANCELLED), ("cancelled", Some(OK)));
}

/// One request over HTTP/1 on a pipe in memory. The client leaves after it has read so much, or all there is.
async fn over_http<B>(
    response: impl Fn() -> Response<B> + Clone + Send + 'static,
    request: &str,
    read: Option<usize>,
) -> Vec<Outcome>
where
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    let told = Told::default();
    let layer = CancelLayer::new().on_release(told.clone());
    let in_flight = layer.in_flight();
    let service = layer.layer(service_fn(move |_: Request<hyper::body::Incoming>| {
        let response = response();
        async { Ok::<_, BoxError>(response) }
    }));
    let (mut client, server) = tokio::io::duplex(1024);
    let connection = tokio::spawn(hyper::server::conn::http1::Builder::new().serve_connection(
        hyper_util::rt::TokioIo::new(server),
        hyper_util::service::TowerToHyperService::new(service),
    ));
    client.write_all(format!("{request} / HTTP/1.1\r\nhost: a\r\n\r\n").as_bytes()).await.unwrap();
    let mut bytes = vec![0; read.unwrap_or_default()];
    match read {
        Some(_) => drop(client.read_exact(&mut bytes).await.unwrap()),
        None => drop(client.read_to_end(&mut bytes).await.unwrap()),
    }
    drop(client);
    let _ = connection.await;
    in_flight.idle().await;
    told.all()
}

#[tokio::test]
async fn over_a_connection_a_complete_reply_is_never_taken_for_a_lost_client() {
    let full = || Response::new(Full::new(Bytes::from("hello")));
    assert_eq!(over_http(full, "GET", Some(40)).await, [COMPLETED]);
    assert_eq!(over_http(full, "HEAD", Some(20)).await, [COMPLETED]);
    // hyper asks for no more than the header says, and never sees the end of this one.
    let endless = || {
        let mut response = Response::new(ScriptedBody::new().data("hello").pending());
        response.headers_mut().insert(CONTENT_LENGTH, HeaderValue::from_static("5"));
        response
    };
    assert_eq!(over_http(endless, "GET", Some(40)).await, [COMPLETED]);
    let no_content = || {
        let mut response = Response::new(Empty::<Bytes>::new());
        *response.status_mut() = StatusCode::NO_CONTENT;
        response
    };
    assert_eq!(over_http(no_content, "GET", Some(20)).await, [Outcome::Completed(StatusCode::NO_CONTENT)]);
}

#[tokio::test]
async fn over_a_connection_a_lost_client_and_a_broken_stream_are_told_apart() {
    let stream = || Response::new(ScriptedBody::new().data("hello").pending().data("world"));
    assert_eq!(over_http(stream, "GET", Some(40)).await, [CANCELLED]);
    let broken = || Response::new(ScriptedBody::new().data("hello").error("broke off"));
    assert_eq!(over_http(broken, "GET", None).await, [FAILED]);
}

#[test]
fn its_types_can_be_shared_moved_and_printed() {
    assert_layer_traits::<CancelLayer>();
    assert_service_traits::<Cancel<Inner>>();
    assert_future_traits::<CancelFuture<<Inner as Service<Request<&'static str>>>::Future>>();
    assert_body_traits::<CancelBody<ScriptedBody>>();
    fn handle<T: Clone + Send + Sync + fmt::Debug + Default>() {}
    handle::<InFlight>();
    assert_eq!(format!("{:?}", CancelLayer::new()), "CancelLayer { in_flight: 0, .. }");
    let Setup { service, .. } = setup();
    let _: &Inner = service.get_ref();
    let _: Inner = service.into_inner();
}

/// Nothing is run: that it compiles is the test.
#[test]
fn it_fits_between_the_layers_of_others() {
    use std::time::Duration;

    #[derive(Clone)]
    struct Once;
    impl<R: Clone, T, E> tower::retry::Policy<R, T, E> for Once {
        type Future = std::future::Ready<()>;
        fn retry(&mut self, _: &mut R, _: &mut Result<T, E>) -> Option<Self::Future> {
            None
        }
        fn clone_request(&mut self, request: &R) -> Option<R> {
            Some(request.clone())
        }
    }
    let timeout = || {
        tower_http::timeout::TimeoutLayer::with_status_code(
            StatusCode::GATEWAY_TIMEOUT,
            Duration::from_secs(1),
        )
    };
    let _ = || {
        let (inner, _handle) = leg::<Request<()>, Response<ScriptedBody>>();
        let stack = ServiceBuilder::new()
            .retry(Once)
            .timeout(Duration::from_secs(1))
            .layer(timeout())
            .layer(CancelLayer::new())
            .layer(timeout())
            .timeout(Duration::from_secs(1))
            .retry(Once)
            .service(inner);
        crate::check::<Request<()>, _>(stack)
    };
    let _ = || {
        let (inner, _handle) = leg::<Request<axum::body::Body>, Response<ScriptedBody>>();
        let stack = ServiceBuilder::new().layer(RespondLayer::new()).layer(CancelLayer::new()).service(inner);
        fn hyper_service<S: hyper::service::Service<Request<axum::body::Body>>>(_: S) {}
        hyper_service(hyper_util::service::TowerToHyperService::new(stack.clone()));
        axum::Router::<()>::new().layer(CancelLayer::new()).fallback_service(stack)
    };
    // The helper gives the type it says.
    let (inner, _handle) = leg::<Request<()>, Response<ScriptedBody>>();
    let _: Cancel<LegDouble<Request<()>, Response<ScriptedBody>>> =
        ServiceBuilder::new().layer(CancelLayer::new()).service(inner);
}
