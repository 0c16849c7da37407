use std::{
    convert::Infallible,
    error::Error,
    fmt,
    sync::{Arc, Mutex},
    time::Duration,
};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode, header};
use http_body::Body;
use http_body_util::BodyExt;
use serde_json::Value;
use tokio_test::{assert_pending, assert_ready_ok, task};
use tower::{Layer, Service, ServiceBuilder, ServiceExt, service_fn};

use super::*;
use crate::{
    cancel::{Cancel, CancelLayer},
    error::{
        AdmissionError, AdmissionErrorKind, BoxError, ContextError, ContextErrorKind, ContractError,
        ContractErrorKind, ErrorReply, GenerationError, GenerationErrorKind, find,
    },
    test_util::{
        LegDouble, LegHandle, Probe, ScriptedBody, assert_body_traits, assert_future_traits,
        assert_layer_traits, assert_service_traits, leg,
    },
};

type Inner = LegDouble<Request<&'static str>, Response<ScriptedBody>>;

fn layered() -> (Respond<Inner>, LegHandle<Request<&'static str>, Response<ScriptedBody>>) {
    let (inner, handle) = leg();
    (RespondLayer::new().layer(inner), handle)
}

/// The answer to an error, in parts.
async fn answer_of(layer: RespondLayer, error: impl Into<BoxError>) -> (http::response::Parts, Value) {
    let mut error = Some(error.into());
    let inner = service_fn(move |_: Request<()>| {
        let error = error.take().unwrap();
        async { Err::<Response<ScriptedBody>, _>(error) }
    });
    // A service that can be cloned, though its error can not.
    let (head, body) =
        layer.layer(CloneOnce::new(inner)).oneshot(Request::new(())).await.unwrap().into_parts();
    assert_eq!(body.size_hint().exact(), head.headers[header::CONTENT_LENGTH].to_str().unwrap().parse().ok());
    let text = body.collect().await.unwrap().to_bytes();
    assert_eq!(head.headers[header::CONTENT_LENGTH], text.len().to_string());
    assert_eq!(head.headers[header::CONTENT_TYPE], "application/json");
    (head, serde_json::from_slice(&text).unwrap())
}

/// Hands the one service it has from clone to clone.
struct CloneOnce<S>(Arc<Mutex<Option<S>>>);

impl<S> CloneOnce<S> {
    fn new(service: S) -> Self {
        Self(Arc::new(Mutex::new(Some(service))))
    }
}

impl<S> Clone for CloneOnce<S> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<S: Service<R>, R> Service<R> for CloneOnce<S> {
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, cx: &mut std::task::Context<'_>) -> std::task::Poll<Result<(), S::Error>> {
        self.0.lock().unwrap().as_mut().unwrap().poll_ready(cx)
    }

    fn call(&mut self, request: R) -> S::Future {
        self.0.lock().unwrap().as_mut().unwrap().call(request)
    }
}

#[derive(Debug)]
struct Text(&'static str, Option<BoxError>);

impl fmt::Display for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl Error for Text {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.1.as_deref().map(|error| error as _)
    }
}

#[tokio::test]
async fn a_response_passes_as_it_is() {
    let (service, mut handle) = layered();
    let request = Request::post("/v1/completions").header("x-a", "b").body("prompt").unwrap();
    let mut call = task::spawn(service.oneshot(request));
    assert_pending!(call.poll());
    let (request, mut reply) = handle.next().await.unwrap();
    assert_eq!((request.uri().path(), request.headers()["x-a"].as_bytes()), ("/v1/completions", &b"b"[..]));
    assert_eq!(request.into_body(), "prompt");
    let mut trailers = HeaderMap::new();
    trailers.insert("x-t", HeaderValue::from_static("1"));
    let body = ScriptedBody::new().data("ab").data("c").trailers(trailers.clone()).exact_size().eager_end();
    // An error answer of a worker is a response like any other.
    reply.send_response(Response::builder().status(418).header("x-r", "1").body(body).unwrap());
    assert!(call.is_woken());
    let response = assert_ready_ok!(call.poll());
    assert_eq!((response.status().as_u16(), response.headers()["x-r"].as_bytes()), (418, &b"1"[..]));
    assert!(response.extensions().get::<HandledError>().is_none());
    let mut body = response.into_body();
    assert_eq!((body.size_hint().exact(), body.is_end_stream()), (Some(3), false));
    assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), "ab");
    assert_eq!(body.size_hint().exact(), Some(1));
    assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), "c");
    assert!(!body.is_end_stream());
    assert_eq!(body.frame().await.unwrap().unwrap().into_trailers().unwrap(), trailers);
    assert!(body.is_end_stream() && body.frame().await.is_none());
}

#[tokio::test]
async fn an_error_of_a_body_passes_as_it_is() {
    let (service, mut handle) = layered();
    let mut call = task::spawn(service.oneshot(Request::new("")));
    assert_pending!(call.poll());
    let error = GenerationError::new(GenerationErrorKind::Interrupted);
    handle.next().await.unwrap().1.send_response(Response::new(ScriptedBody::new().data("a").error(error)));
    let mut body = assert_ready_ok!(call.poll()).into_body();
    assert!(body.frame().await.unwrap().is_ok());
    assert!(find::<GenerationError>(&*body.frame().await.unwrap().unwrap_err()).is_some());
}

#[tokio::test]
async fn errors_are_answered_in_the_format_of_the_api() {
    let invalid =
        ContractError::new(ContractErrorKind::InvalidRequest).with_message("bad").with_param("seed");
    let rejected = ContextError::new(ContextErrorKind::Rejected(StatusCode::TOO_MANY_REQUESTS))
        .with_retry_after(Some(HeaderValue::from_static("7")));
    /// error, status, code, type, param, retry-after
    type Case = (BoxError, u16, &'static str, &'static str, Option<&'static str>, Option<&'static str>);
    let cases: [Case; 5] = [
        (invalid.into(), 400, "invalid_request", "invalid_request_error", Some("seed"), None),
        (rejected.into(), 429, "context_rejected", "invalid_request_error", None, Some("7")),
        (
            AdmissionError::new(AdmissionErrorKind::Overloaded).into(),
            503,
            "overloaded",
            "server_error",
            None,
            Some("1"),
        ),
        (
            GenerationError::new(GenerationErrorKind::Timeout).into(),
            504,
            "generation_timeout",
            "server_error",
            None,
            None,
        ),
        (
            Text("outer", Some(ContextError::new(ContextErrorKind::Aborted).into())).into(),
            502,
            "context_aborted",
            "server_error",
            None,
            None,
        ),
    ];
    for (error, status, code, kind, param, retry_after) in cases {
        let text = error.to_string();
        let (head, body) = answer_of(RespondLayer::new(), error).await;
        assert_eq!(head.status, status, "{code}");
        assert_eq!(head.headers.get(header::RETRY_AFTER).map(|v| v.to_str().unwrap()), retry_after, "{code}");
        let handled = head.extensions.get::<HandledError>().unwrap();
        assert_eq!((handled.code(), handled.error().to_string()), (code, text));
        let error = &body["error"];
        assert_eq!((error["type"].as_str(), error["code"].as_str()), (Some(kind), Some(code)));
        assert_eq!(error["param"].as_str(), param, "{code}");
        assert!(!error["message"].as_str().unwrap().is_empty());
        assert_eq!(body.as_object().unwrap().len(), 1);
    }
}

#[tokio::test]
async fn the_text_of_an_unknown_error_stays_inside() {
    let (head, body) = answer_of(RespondLayer::new(), "secret inside").await;
    assert_eq!((head.status.as_u16(), body["error"]["code"].as_str()), (500, Some("internal_error")));
    assert!(!body.to_string().contains("secret"));
    assert_eq!(head.extensions.get::<HandledError>().unwrap().error().to_string(), "secret inside");
}

#[cfg(feature = "tower")]
#[tokio::test]
async fn errors_of_towers_layers_are_known() {
    let elapsed = tower::timeout::error::Elapsed::new();
    assert_eq!(answer_of(RespondLayer::new(), elapsed).await.0.status, 504);
    let overloaded = tower::load_shed::error::Overloaded::new();
    let (head, _) = answer_of(RespondLayer::new(), overloaded).await;
    assert_eq!((head.status.as_u16(), head.headers["retry-after"].as_bytes()), (503, &b"1"[..]));
}

#[tokio::test]
async fn hooks_are_asked_in_order_and_before_the_layer_itself() {
    let layer = RespondLayer::new()
        .recognise(|error| {
            find::<ContextError>(error).map(|_| ErrorReply::new(StatusCode::IM_A_TEAPOT, "mine", "m"))
        })
        .recognise(|error| {
            let known = find::<Text>(error).is_some() || find::<ContextError>(error).is_some();
            known.then(|| ErrorReply::new(StatusCode::CONFLICT, "second", "m"))
        });
    let aborted = || ContextError::new(ContextErrorKind::Aborted);
    let generation = GenerationError::new(GenerationErrorKind::Timeout);
    for (error, status) in [
        (aborted().into(), 418),
        (Text("mine", None).into(), 409),
        (Text("wrapped", Some(aborted().into())).into(), 418),
        (generation.into(), 504),
        (BoxError::from("unknown"), 500),
    ] {
        let text = error.to_string();
        assert_eq!(answer_of(layer.clone(), error).await.0.status, status, "{text}");
    }
}

#[tokio::test]
async fn a_readiness_error_is_answered() {
    let (mut service, handle) = layered();
    handle.fail_ready(AdmissionError::new(AdmissionErrorKind::ShuttingDown));
    let response = service.ready().await.unwrap().call(Request::new("")).await.unwrap();
    assert_eq!(response.status(), 503);
    assert_eq!(response.extensions().get::<HandledError>().unwrap().code(), "shutting_down");
}

#[tokio::test]
async fn it_is_ready_at_once_and_waits_for_the_inner_service_in_its_future() {
    let (service, mut handle) = layered();
    handle.block();
    let mut service = task::spawn(service);
    assert_ready_ok!(
        service.enter(|cx, mut service| Service::<Request<&str>>::poll_ready(&mut *service, cx))
    );
    let mut call = task::spawn(service.call(Request::new("")));
    assert_pending!(call.poll());
    assert!(handle.try_next().is_none());
    handle.allow(1);
    assert!(call.is_woken());
    assert_pending!(call.poll());
    handle.try_next().unwrap().1.send_response(Response::default());
    assert_ready_ok!(call.poll());
}

#[tokio::test]
async fn it_may_be_called_again_without_asking_and_calls_interleave() {
    let (inner, mut handle) = leg::<Request<&str>, Response<ScriptedBody>>();
    let probe = Probe::new(inner);
    let counts = probe.counts();
    let mut service = RespondLayer::new().layer(probe);
    let mut calls: Vec<_> =
        ["a", "b", "c"].map(|name| task::spawn(service.clone().call(Request::new(name)))).into();
    calls.push(task::spawn(service.call(Request::new("d"))));
    assert!(handle.try_next().is_none(), "a call that is not polled does nothing");
    for call in calls.iter_mut().rev() {
        assert_pending!(call.poll());
    }
    for name in ["d", "c", "b", "a"] {
        let (request, mut reply) = handle.try_next().unwrap();
        assert_eq!(request.into_body(), name);
        reply.send_response(Response::default());
    }
    calls.iter_mut().for_each(|call| drop(assert_ready_ok!(call.poll())));
    assert_eq!(counts.calls(), 4);
}

#[tokio::test]
async fn dropping_the_future_drops_what_is_inside() {
    let (service, mut handle) = layered();
    drop(service.clone().call(Request::new("")));
    assert!(handle.try_next().is_none(), "never polled, never called");

    handle.block();
    let mut waiting = task::spawn(service.clone().call(Request::new("")));
    assert_pending!(waiting.poll());
    drop(waiting);
    handle.unblock();
    assert!(handle.try_next().is_none(), "dropped while it waited");

    let mut called = task::spawn(service.clone().call(Request::new("")));
    assert_pending!(called.poll());
    let (_, mut reply) = handle.try_next().unwrap();
    assert!(!reply.is_cancelled());
    drop(called);
    assert!(reply.cancelled().await);

    let mut answered = task::spawn(service.clone().call(Request::new("")));
    assert_pending!(answered.poll());
    let body = ScriptedBody::new().data("a");
    let script = body.handle();
    handle.try_next().unwrap().1.send_response(Response::new(body));
    let response = assert_ready_ok!(answered.poll());
    drop(answered);
    assert!(!script.is_dropped());
    drop(response);
    assert!(script.is_dropped());
}

#[tokio::test]
async fn the_body_of_an_answer_knows_its_end() {
    let mut body = RespondBody::<ScriptedBody>::text(Bytes::from_static(b"text"));
    assert_eq!((body.size_hint().exact(), body.is_end_stream()), (Some(4), false));
    assert_eq!(format!("{body:?}"), "RespondBody(error, 4 bytes left)");
    assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), "text");
    assert_eq!((body.size_hint().exact(), body.is_end_stream()), (Some(0), true));
    assert!(body.frame().await.is_none() && body.frame().await.is_none());
    assert!(RespondBody::<ScriptedBody>::default().frame().await.is_none());
}

/// Writes down each event with its level and fields.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<String>>>);

impl tracing::Subscriber for Log {
    fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }

    fn event(&self, event: &tracing::Event<'_>) {
        struct Fields(String);
        impl tracing::field::Visit for Fields {
            fn record_debug(&mut self, field: &tracing::field::Field, value: &dyn fmt::Debug) {
                self.0 += &format!(" {field}={value:?}");
            }
        }
        let mut fields = Fields(event.metadata().level().to_string());
        event.record(&mut fields);
        self.0.lock().unwrap().push(fields.0);
    }

    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}
    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}
    fn enter(&self, _: &tracing::span::Id) {}
    fn exit(&self, _: &tracing::span::Id) {}
}

#[tokio::test]
async fn failures_are_logged_louder_than_refusals() {
    let log = Log::default();
    // With a single one in the process, tracing asks the thread that first comes by an event, and that may be another
    // test's, whether anybody is interested in it.
    let _second = tracing::Dispatch::new(Log::default());
    let _here = tracing::subscriber::set_default(log.clone());
    let failed = ContextError::new(ContextErrorKind::Unreachable)
        .with_source(Text("connect", Some("connection refused".into())));
    answer_of(RespondLayer::new(), failed).await;
    answer_of(RespondLayer::new(), ContractError::new(ContractErrorKind::InvalidRequest)).await;
    let deep = (0..100).fold(BoxError::from("root"), |cause, _| Text("link", Some(cause)).into());
    answer_of(RespondLayer::new(), deep).await;
    let events = log.0.lock().unwrap().clone();
    assert_eq!(events.len(), 3, "{events:?}");
    assert!(events[0].starts_with("WARN"), "{}", events[0]);
    assert!(events[0].contains("error=the context worker could not be reached: connect: connection refused"));
    assert!(events[0].contains("status=502") && events[0].contains(r#"code="context_unreachable""#));
    assert!(events[1].starts_with("DEBUG"), "{}", events[1]);
    assert!(events[2].len() < 300 && !events[2].contains("root"), "a long chain is cut: {}", events[2]);
}

#[test]
fn its_types_can_be_shared_moved_and_printed() {
    assert_layer_traits::<RespondLayer>();
    assert_service_traits::<Respond<Inner>>();
    assert_future_traits::<RespondFuture<Inner, &'static str>>();
    assert_body_traits::<RespondBody<ScriptedBody>>();
    let (service, _handle) = layered();
    let layer = RespondLayer::new().recognise(|_| None);
    assert_eq!(format!("{layer:?}"), "RespondLayer { recognise: true }");
    let call = service.clone().call(Request::new("a prompt"));
    assert!(!format!("{service:?}{call:?}").contains("a prompt"));
    let _: &Inner = service.get_ref();
    let _: Inner = service.into_inner();
}

/// Nothing is run: that it compiles is the test.
#[test]
fn it_fits_between_the_layers_of_others() {
    type Plain = LegDouble<Request<axum::body::Body>, Response<ScriptedBody>>;

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

    fn serves<R, S: Service<Request<R>, Error = Infallible> + Clone + Send + Sync>(service: S) -> S
    where
        S::Future: Send,
    {
        service
    }

    // Inside, what people put around our layers; outside, what wants no error and a body it can make up.
    let _ = || {
        let (inner, _handle) = leg::<Request<()>, Response<ScriptedBody>>();
        let stack = ServiceBuilder::new()
            .layer(RespondLayer::new())
            .layer(CancelLayer::new())
            .retry(Once)
            .timeout(Duration::from_secs(1))
            .load_shed()
            .concurrency_limit(1)
            .service(inner);
        let stack = crate::check::<Request<()>, _>(stack);
        let _ = tower_http::timeout::TimeoutLayer::with_status_code(
            StatusCode::GATEWAY_TIMEOUT,
            Duration::from_secs(1),
        )
        .layer(stack.clone());
    };
    let stack = || {
        let (inner, _handle): (Plain, _) = leg();
        serves::<axum::body::Body, _>(
            ServiceBuilder::new()
                .layer(tower_http::timeout::TimeoutLayer::with_status_code(
                    StatusCode::GATEWAY_TIMEOUT,
                    Duration::from_secs(1),
                ))
                .layer(RespondLayer::new())
                .service(inner),
        )
    };
    let _ = || {
        axum::Router::<()>::new()
            .layer(RespondLayer::new())
            .layer(CancelLayer::new())
            .fallback_service(stack())
    };
    fn hyper_service<S: hyper::service::Service<Request<axum::body::Body>>>(_: S) {}
    let _ = || hyper_service(hyper_util::service::TowerToHyperService::new(stack()));
    // The helper gives the type it says.
    fn same<T>(_: impl FnOnce() -> T, _: impl FnOnce() -> T) {}
    same(
        || -> Respond<Cancel<Plain>> { unreachable!() },
        || {
            let (inner, _handle): (Plain, _) = leg();
            ServiceBuilder::new().layer(RespondLayer::new()).layer(CancelLayer::new()).service(inner)
        },
    );
}
