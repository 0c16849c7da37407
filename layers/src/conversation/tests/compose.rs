//! Between contract and mint, with the layers of other people around it.

use std::{
    convert::Infallible,
    sync::{Arc, Mutex},
    time::Duration,
};

use axum::{Router, routing::post};
use http::StatusCode;
use http_body_util::{BodyExt, Full};
use tower::{ServiceBuilder, ServiceExt, retry::RetryLayer, service_fn};
use tower_http::{timeout::TimeoutLayer, trace::TraceLayer};

use super::*;
use crate::{check, contract::ContractLayer, error::BoxError, mint::MintLayer, respond::RespondLayer};

type Text = Response<Full<Bytes>>;

fn client_request(body: &'static str) -> Request<Full<Bytes>> {
    Request::post("/v1/chat/completions")
        .header("x-prefiller-host-port", "10.0.0.5:8001")
        .body(body.into())
        .unwrap()
}

/// Tries again whatever failed.
#[derive(Debug, Clone)]
struct Again;

impl<R> tower::retry::Policy<Sent, R, BoxError> for Again {
    type Future = std::future::Ready<()>;

    fn retry(&mut self, _: &mut Sent, result: &mut Result<R, BoxError>) -> Option<Self::Future> {
        result.is_err().then(|| std::future::ready(()))
    }

    fn clone_request(&mut self, request: &Sent) -> Option<Sent> {
        Some(request.clone())
    }
}

#[tokio::test]
async fn each_attempt_of_a_retry_below_has_the_id_and_it_is_counted_once() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let record = seen.clone();
    let service = ServiceBuilder::new()
        .layer(ContractLayer::without_passthrough())
        .layer(layer(&["body:/user"]))
        .layer(RetryLayer::new(Again))
        .layer(MintLayer::default())
        .service(service_fn(move |request: Request<Handoff<Minted>>| {
            let mut seen = record.lock().unwrap();
            seen.push(request.headers()["x-session-id"].clone());
            std::future::ready(if seen.len() < 3 {
                Err(BoxError::from("again"))
            } else {
                Ok(Text::default())
            })
        }));
    let recorded = Recorded::default();
    let service = check::<Request<Full<Bytes>>, _>(service);
    let _guard = metrics::set_default_local_recorder(&recorded);
    service.oneshot(client_request(BODY)).await.unwrap();
    assert_eq!(*seen.lock().unwrap(), ["7f3a", "7f3a", "7f3a"]);
    assert_eq!(recorded.value("disagg_conversation_ids_total{result=set}"), Some(1.0));
}

async fn echo(request: Request<Handoff<Minted>>) -> Result<Text, BoxError> {
    let id = request.headers()["x-session-id"].clone();
    let text = request.into_body().collect().await.unwrap().to_bytes();
    Ok(Response::builder().header("x-id", id).body(text.into()).unwrap())
}

#[tokio::test]
async fn layers_of_other_people_fit_around_it() {
    let late = TimeoutLayer::with_status_code(StatusCode::GATEWAY_TIMEOUT, Duration::from_secs(5));
    let stack = ServiceBuilder::new()
        .layer(RespondLayer::new())
        .layer(ContractLayer::without_passthrough())
        .layer(TraceLayer::new_for_http())
        .layer(layer(&["body:/user"]))
        .layer(late)
        .layer(MintLayer::default())
        .service(service_fn(echo));
    let router: Router = Router::new().fallback_service(stack);
    let response: Result<_, Infallible> = router.oneshot(client_request(BODY)).await;
    let response = response.unwrap();
    assert_eq!(response.headers()["x-id"], "7f3a");
    assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), BODY);

    let handler = async |headers: HeaderMap| headers["x-session-id"].clone().to_str().unwrap().to_owned();
    let stages = ServiceBuilder::new()
        .layer(RespondLayer::new())
        .layer(ContractLayer::without_passthrough())
        .layer(layer(&["body:/user"]));
    let router: Router = Router::new().route("/v1/chat/completions", post(handler)).layer(stages);
    let response = router.oneshot(client_request(BODY)).await.unwrap();
    assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), "7f3a");
}
