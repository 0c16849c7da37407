//! With the layers of other people above and below it.

use std::{
    collections::HashSet,
    convert::Infallible,
    future,
    sync::{Arc, Mutex},
    time::Duration,
};

use axum::{Router, routing::post};
use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper_util::service::TowerToHyperService;
use tower::{
    ServiceBuilder, ServiceExt,
    retry::{Policy, RetryLayer},
    service_fn,
};
use tower_http::{set_header::SetResponseHeaderLayer, timeout::TimeoutLayer, trace::TraceLayer};

use super::layer::{BODY, Counting, handoff};
use crate::{
    check,
    contract::ContractLayer,
    error::{BoxError, ContextError, ContextErrorKind, find},
    handoff::{Handoff, Minted, Validated},
    mint::MintLayer,
    respond::RespondLayer,
    trtllm::DisaggRequestId,
};

/// Tries again what may be tried again: this is the policy that the docs of this crate mean.
#[derive(Debug, Clone)]
struct Again(usize);

impl<B> Policy<Request<Handoff<Validated>>, Response<B>, BoxError> for Again {
    type Future = future::Ready<()>;

    fn retry(
        &mut self,
        _: &mut Request<Handoff<Validated>>,
        result: &mut Result<Response<B>, BoxError>,
    ) -> Option<Self::Future> {
        let error = result.as_ref().err().and_then(|error| find::<ContextError>(&**error))?;
        self.0 = self.0.checked_sub(1).filter(|_| error.is_retryable())?;
        Some(future::ready(()))
    }

    fn clone_request(
        &mut self,
        request: &Request<Handoff<Validated>>,
    ) -> Option<Request<Handoff<Validated>>> {
        Some(request.clone())
    }
}

type Text = Response<Full<Bytes>>;

fn client_request() -> Request<Full<Bytes>> {
    Request::post("/v1/chat/completions")
        .header("x-prefiller-host-port", "10.0.0.5:8001")
        .body(BODY.into())
        .unwrap()
}

#[tokio::test]
async fn each_attempt_of_a_retry_between_contract_and_mint_has_a_fresh_id() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let record = seen.clone();
    let service = ServiceBuilder::new()
        .layer(ContractLayer::without_passthrough())
        .layer(RetryLayer::new(Again(2)))
        .layer(MintLayer::new(Counting::new()))
        .service(service_fn(move |request: Request<Handoff<Minted>>| {
            let (head, handoff) = request.into_parts();
            assert_eq!(head.extensions.get(), Some(&handoff.id()));
            let mut seen = record.lock().unwrap();
            seen.push((handoff.id().get(), handoff.request().body().clone()));
            future::ready(if seen.len() < 3 {
                Err(BoxError::from(ContextError::new(ContextErrorKind::Unreachable)))
            } else {
                Ok(Text::default())
            })
        }));
    let response = check::<Request<Full<Bytes>>, _>(service).oneshot(client_request()).await.unwrap();
    let seen = seen.lock().unwrap();
    let ids: HashSet<_> = seen.iter().map(|(id, _)| *id).collect();
    assert_eq!((seen.len(), ids.len()), (3, 3), "an id was sent twice");
    assert!(seen.iter().all(|(_, body)| body == BODY && body.as_ptr() == seen[0].1.as_ptr()));
    // The log shows the attempt that was answered.
    assert_eq!(response.extensions().get::<DisaggRequestId>().unwrap().get(), seen[2].0);
}

#[tokio::test]
async fn a_retry_ends_where_the_work_may_have_been_done() {
    let calls = Arc::new(Mutex::new(0));
    let count = calls.clone();
    let service = ServiceBuilder::new().layer(RetryLayer::new(Again(5))).layer(MintLayer::default()).service(
        service_fn(move |_: Request<Handoff<Minted>>| {
            *count.lock().unwrap() += 1;
            future::ready(Err::<Text, BoxError>(ContextError::new(ContextErrorKind::Interrupted).into()))
        }),
    );
    service.oneshot(Request::new(handoff())).await.unwrap_err();
    assert_eq!(*calls.lock().unwrap(), 1);
}

async fn echo(request: Request<Handoff<Minted>>) -> Result<Text, BoxError> {
    let id = request.body().id();
    let text = request.into_body().collect().await.unwrap().to_bytes();
    Ok(Response::builder().header("x-id", id.get()).body(text.into()).unwrap())
}

#[tokio::test]
async fn layers_that_look_at_bodies_fit_around_it() {
    let header = http::HeaderName::from_static("x-set");
    let service = ServiceBuilder::new()
        .layer(TraceLayer::new_for_http())
        .layer(TimeoutLayer::with_status_code(StatusCode::GATEWAY_TIMEOUT, Duration::from_secs(5)))
        .layer(MintLayer::new(Counting::new()))
        .layer(SetResponseHeaderLayer::overriding(header, http::HeaderValue::from_static("1")))
        // No trace inside of a timeout: tower-http's timeout wants bodies that it can make up.
        .layer(TimeoutLayer::with_status_code(StatusCode::GATEWAY_TIMEOUT, Duration::from_secs(5)))
        .service(service_fn(echo));
    let response = service.oneshot(Request::new(handoff())).await.unwrap();
    assert_eq!(response.headers()["x-set"], "1");
    assert_eq!(response.headers()["x-id"], (1_u64 << 50).to_string().as_str());
    assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), BODY);
}

#[tokio::test(start_paused = true)]
async fn a_timeout_above_drops_the_call() {
    let (inner, mut handle) = crate::test_util::leg::<Request<Handoff<Minted>>, Text>();
    let service =
        ServiceBuilder::new().timeout(Duration::from_secs(1)).layer(MintLayer::default()).service(inner);
    let error = service.oneshot(Request::new(handoff())).await.unwrap_err();
    assert!(error.is::<tower::timeout::error::Elapsed>(), "{error}");
    assert!(handle.try_next().unwrap().1.is_cancelled());
}

#[tokio::test]
async fn the_first_stages_fit_around_a_router() {
    // What an axum handler sees: the client's JSON, and the id in the extensions.
    let handler = async |id: axum::Extension<DisaggRequestId>, text: String| format!("{} {text}", id.0);
    let stages = ServiceBuilder::new()
        .layer(RespondLayer::new())
        .layer(ContractLayer::without_passthrough())
        .layer(MintLayer::new(Counting::new()));
    let router = Router::new().route("/v1/chat/completions", post(handler)).layer(stages);

    let response = router.clone().oneshot(client_request()).await.unwrap();
    let text = response.into_body().collect().await.unwrap().to_bytes();
    assert_eq!(text, format!("{} {BODY}", 1_u64 << 50));
    let refused = router.oneshot(client_request().map(|_| Full::from("[]"))).await.unwrap();
    assert_eq!(refused.status(), StatusCode::BAD_REQUEST);
}

#[tokio::test]
async fn hyper_and_a_fallback_take_it_as_it_is() {
    let stack = ServiceBuilder::new()
        .layer(RespondLayer::new())
        .layer(ContractLayer::without_passthrough())
        .layer(MintLayer::default())
        .service(service_fn(echo));
    let hyper = TowerToHyperService::new(stack.clone());
    let response = hyper::service::Service::call(&hyper, client_request()).await.unwrap();
    assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), BODY);

    let router: Router = Router::new().fallback_service(stack);
    let response: Result<_, Infallible> = router.oneshot(client_request()).await;
    assert_eq!(response.unwrap().into_body().collect().await.unwrap().to_bytes(), BODY);
}
