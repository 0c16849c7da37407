//! With the layers of other people above and below it.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use tower::{BoxError as TowerError, ServiceBuilder, ServiceExt, service_fn};
use tower_http::{set_header::SetRequestHeaderLayer, timeout::TimeoutLayer, trace::TraceLayer};

use super::{CHAT, chat, plain};
use crate::{
    check,
    contract::{ContractLayer, PassthroughBody},
    error::BoxError,
    handoff::{Handoff, Validated},
    respond::RespondLayer,
    test_util::ScriptedBody,
};

type Text = Response<Full<Bytes>>;

async fn next(request: Request<Handoff<Validated>>) -> Result<Text, BoxError> {
    let mark = request.headers().get("x-mark").map_or("none", |value| value.to_str().unwrap()).to_owned();
    let size = request.into_body().collect().await.unwrap().to_bytes().len();
    Ok(Response::new(format!("handoff of {size} bytes, mark {mark}").into()))
}

async fn client(request: Request<PassthroughBody<Full<Bytes>>>) -> Result<Text, BoxError> {
    let size = request.into_body().collect().await?.to_bytes().len();
    Ok(Response::new(format!("passed {size} bytes").into()))
}

async fn text<B>(response: Response<B>) -> (StatusCode, String)
where
    B: http_body::Body<Data = Bytes>,
    B::Error: std::fmt::Debug,
{
    let (head, body) = response.into_parts();
    let bytes = body.collect().await.unwrap().to_bytes();
    (head.status, String::from_utf8(bytes.to_vec()).unwrap())
}

#[tokio::test]
async fn layers_that_look_at_bodies_fit_between() {
    let mark = (HeaderName::from_static("x-mark"), HeaderValue::from_static("set between"));
    let service = ServiceBuilder::new()
        .layer(RespondLayer::new())
        .layer(ContractLayer::new(service_fn(client)))
        .layer(TraceLayer::new_for_http())
        .layer(TimeoutLayer::with_status_code(StatusCode::GATEWAY_TIMEOUT, Duration::from_secs(5)))
        .layer(SetRequestHeaderLayer::overriding(mark.0, mark.1))
        .service(service_fn(next));
    let service = check::<Request<Full<Bytes>>, _>(service);

    let answer = service.clone().oneshot(chat(CHAT.into())).await.unwrap();
    let expected = format!("handoff of {} bytes, mark set between", CHAT.len());
    assert_eq!(text(answer).await, (StatusCode::OK, expected));
    let answer = service.clone().oneshot(plain(CHAT.into())).await.unwrap();
    assert_eq!(text(answer).await, (StatusCode::OK, format!("passed {} bytes", CHAT.len())));
    let answer = service.oneshot(chat("[]".into())).await.unwrap();
    assert_eq!(answer.status(), StatusCode::BAD_REQUEST);
}

#[tokio::test(start_paused = true)]
async fn a_timeout_above_ends_an_upload_and_drops_it() {
    let next = service_fn(async |_: Request<Handoff<Validated>>| Ok::<Text, BoxError>(Response::default()));
    let service = ServiceBuilder::new()
        .timeout(Duration::from_secs(3))
        .layer(ContractLayer::without_passthrough())
        .service(next);
    let body = ScriptedBody::new().data("{").pending();
    let handle = body.handle();
    let error = service.oneshot(chat(body)).await.unwrap_err();
    assert!(error.is::<tower::timeout::error::Elapsed>(), "{error}");
    assert!(handle.is_dropped());
}

#[tokio::test(start_paused = true)]
async fn a_timeout_below_does_not_count_the_upload() {
    let service = ServiceBuilder::new()
        .layer(ContractLayer::without_passthrough())
        .timeout(Duration::from_secs(3))
        .service(service_fn(next));
    let body = ScriptedBody::new().pending().data(CHAT);
    let handle = body.handle();
    let call = tokio::spawn(service.oneshot(chat(body)));
    tokio::time::sleep(Duration::from_secs(60)).await;
    handle.wake();
    assert_eq!(call.await.unwrap().unwrap().status(), StatusCode::OK);
}

#[tokio::test(start_paused = true)]
async fn limits_above_push_back_on_arrivals() {
    let service = ServiceBuilder::new()
        .load_shed()
        .concurrency_limit(1)
        .layer(ContractLayer::without_passthrough())
        .service(service_fn(next));
    let body = ScriptedBody::new().pending().data(CHAT);
    let handle = body.handle();
    let first = tokio::spawn(service.clone().oneshot(chat(body)));
    tokio::task::yield_now().await;
    let refused: TowerError =
        service.clone().oneshot(chat(ScriptedBody::new().data(CHAT))).await.unwrap_err();
    assert!(refused.is::<tower::load_shed::error::Overloaded>(), "{refused}");
    handle.wake();
    first.await.unwrap().unwrap();
    service.oneshot(chat(ScriptedBody::new().data(CHAT))).await.unwrap();
}
