//! A gateway with routes of its own, and the handoff as its fallback service.
//!
//! ```sh
//! cargo run --example axum_gateway
//! ```
//!
//! Two simulated engines stand for a context and a generation worker. `GET /hello` is answered by the gateway itself;
//! everything else goes to the stack: with a routing header it is handed off, without one it passes through.

use std::{error::Error, time::Duration};

use axum::{Router, routing::get};
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper_util::{client::legacy::Client, rt::TokioExecutor};
use tower::ServiceBuilder;
use tower_disagg::{
    HandoffLayer,
    leg::{BufferReplyLayer, LegBody},
    respond::RespondLayer,
};
use trtllm_sim::{Config, Engine, Role};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let context = Engine::start(Config::new(Role::Context)).await?;
    let generation = Engine::start(Config::new(Role::Generation)).await?;

    // The HTTP client that the gateway has anyway.
    let client = Client::builder(TokioExecutor::new()).build_http::<LegBody>();

    let context_leg = ServiceBuilder::new()
        .timeout(Duration::from_secs(180))
        .layer(BufferReplyLayer::new(64 << 20))
        .service(client.clone());
    let handoff =
        HandoffLayer::new(context_leg).generation_to(format!("http://{}", generation.hostport()).parse()?);
    let stack = ServiceBuilder::new().layer(RespondLayer::new()).layer(handoff).service(client);

    let gateway = Router::new().route("/hello", get(async || "hello")).fallback_service(stack);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    tokio::spawn(async { axum::serve(listener, gateway).await });

    let browser = Client::builder(TokioExecutor::new()).build_http::<Full<Bytes>>();
    let hello = browser.get(format!("http://{address}/hello").parse()?).await?;
    println!("GET /hello: {}", String::from_utf8_lossy(&hello.into_body().collect().await?.to_bytes()));

    let request = http::Request::post(format!("http://{address}/v1/chat/completions"))
        .header("x-prefiller-host-port", context.hostport())
        .header("content-type", "application/json")
        .body(r#"{"model":"sim","messages":[{"role":"user","content":"Hello"}],"max_tokens":8}"#.into())?;
    let answer = browser.request(request).await?;
    println!("POST /v1/chat/completions: {}", answer.status());
    let answer: serde_json::Value = serde_json::from_slice(&answer.into_body().collect().await?.to_bytes())?;
    println!("  {}", answer["choices"][0]["message"]["content"]);
    let (pulled, held) = (context.state().pulls, context.state().kv_held);
    println!("  KV caches handed over: {pulled}, held: {held}");

    let answered = answer["choices"][0]["message"]["content"].is_string();
    if answered && pulled == 1 && held == 0 { Ok(()) } else { Err("the handoff went wrong".into()) }
}
