//! The stack in the places where people put it: a hyper server, and a router.

use axum::{Router, routing::get};
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper_util::{rt::TokioIo, service::TowerToHyperService};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tower::{ServiceBuilder, ServiceExt, service_fn};

use super::{CHAT, WORKER, chat, context_reply};
use crate::{
    HandoffLayer, check,
    error::BoxError,
    leg::{BufferReplyLayer, LegBody},
    respond::RespondLayer,
};

type Text = Response<Full<Bytes>>;

async fn context_worker(request: Request<LegBody>) -> Result<Text, BoxError> {
    let asked = serde_json::from_slice(&request.into_body().into_bytes())?;
    Ok(context_reply(&asked, "length").map(Full::new))
}

async fn generation_worker(request: Request<LegBody>) -> Result<Text, BoxError> {
    let path = request.uri().path().to_owned();
    let generate = request.into_body().into_bytes().windows(15).any(|text| text == b"generation_only");
    let text = if generate { "data: [DONE]\n\n".to_owned() } else { format!("passed {path}") };
    let kind = if generate { "text/event-stream" } else { "text/plain" };
    Ok(Response::builder().header("content-type", kind).body(text.into()).unwrap())
}

/// Everything that is needed, as in the docs.
macro_rules! stack {
    () => {
        ServiceBuilder::new()
            .layer(RespondLayer::new())
            .layer(HandoffLayer::new(
                ServiceBuilder::new()
                    .timeout(std::time::Duration::from_secs(180))
                    .layer(BufferReplyLayer::new(1 << 20))
                    .service(service_fn(context_worker)),
            ))
            .service(service_fn(generation_worker))
    };
}

#[tokio::test]
async fn a_hyper_server_takes_it() {
    let (near, far) = tokio::io::duplex(1 << 16);
    let service = TowerToHyperService::new(stack!());
    let server = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(far), service);
    let server = tokio::spawn(server);

    let mut near = near;
    let ask = |headers: &str, body: &str, end: &str| {
        let length = body.len();
        format!(
            "POST /v1/chat/completions HTTP/1.1\r\nhost: a\r\n{headers}content-length: {length}\r\n{end}\r\n{body}"
        )
    };
    let routed = format!("x-prefiller-host-port: {WORKER}\r\n");
    let all = [
        ask(&routed, CHAT, ""),
        ask("", "{}", ""),
        ask(&routed, "[]", ""),
        ask("x-prefiller-host-port: a,b\r\n", CHAT, "connection: close\r\n"),
    ];
    near.write_all(all.concat().as_bytes()).await.unwrap();
    let mut answers = String::new();
    near.read_to_string(&mut answers).await.unwrap();
    server.await.unwrap().unwrap();
    let heads: Vec<_> = answers.split("HTTP/1.1 ").skip(1).map(|answer| &answer[..3]).collect();
    assert_eq!(heads, ["200", "200", "400", "502"]);
    for part in ["data: [DONE]", "passed /v1/chat/completions", "invalid_request", "invalid_epp_metadata"] {
        assert!(answers.contains(part), "{part}: {answers}");
    }
}

#[tokio::test]
async fn a_router_takes_it_as_its_fallback() {
    let router: Router = Router::new().route("/health", get(async || "own")).fallback_service(stack!());
    let text = async |request: Request<axum::body::Body>| {
        let response = router.clone().oneshot(request).await.unwrap();
        response.into_body().collect().await.unwrap().to_bytes()
    };
    assert_eq!(text(Request::get("/health").body(axum::body::Body::empty()).unwrap()).await, "own");
    assert_eq!(
        text(Request::get("/v1/models").body(axum::body::Body::empty()).unwrap()).await,
        "passed /v1/models"
    );
    assert_eq!(text(chat(CHAT.into())).await, "data: [DONE]\n\n");
}

#[tokio::test]
async fn it_can_be_erased() {
    let erased = tower::util::BoxCloneSyncService::new(check::<Request<Full<Bytes>>, _>(stack!()));
    let response = erased.clone().oneshot(chat(Full::<Bytes>::from(CHAT))).await.unwrap();
    assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), "data: [DONE]\n\n");
}
