//! Other people's layers between ours: retry above `MintLayer`, and a timeout around the context leg only.
//!
//! ```sh
//! cargo run --example retry_and_timeout
//! ```
//!
//! The context worker here resets the connection of the first request it gets, before a byte of a reply. Retrying is
//! safe then, with a fresh id: retry stands above `MintLayer`, so each attempt gets one, and nothing below can be cloned
//! and sent again. The timeout belongs to the context leg alone; a token stream may last as long as it likes.

use std::{
    error::Error,
    future::{Ready, ready},
    time::Duration,
};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use tower::{ServiceBuilder, ServiceExt, retry::Policy, service_fn};
use tower_disagg::{
    cancel::CancelLayer,
    context::ContextLayer,
    contract::ContractLayer,
    error::{BoxError, ContextError, find},
    generation::GenerationLayer,
    handoff::{Handoff, Validated},
    leg::{BufferReplyLayer, LegBody, LegError, LegErrorKind},
    mint::MintLayer,
    respond::RespondLayer,
    settle::Settler,
    terminal::TerminalLayer,
};
use trtllm_sim::{Config, Cut, CutAt, CutHow, Engine, Fault, On, Role};

/// Tries again while no byte of a context reply was seen, so many times.
#[derive(Clone)]
struct ContextRetry {
    left: usize,
}

impl<B> Policy<Request<Handoff<Validated>>, Response<B>, BoxError> for ContextRetry {
    type Future = Ready<()>;

    fn retry(
        &mut self,
        _: &mut Request<Handoff<Validated>>,
        result: &mut Result<Response<B>, BoxError>,
    ) -> Option<Ready<()>> {
        let error = result.as_ref().err()?;
        let retryable = find::<ContextError>(&**error).is_some_and(ContextError::is_retryable);
        if !retryable || self.left == 0 {
            return None;
        }
        println!("  trying again: {error}");
        self.left -= 1;
        Some(ready(()))
    }

    fn clone_request(
        &mut self,
        request: &Request<Handoff<Validated>>,
    ) -> Option<Request<Handoff<Validated>>> {
        Some(request.clone()) // shares the bytes; there is no id in it yet
    }
}

/// Says what the layers have to know of a client's error: whether a byte of a reply was seen. Here a client that never
/// reuses a connection makes it simple; the sidecar counts bytes.
async fn send(request: Request<LegBody>) -> Result<Response<hyper::body::Incoming>, LegError> {
    let client: Client<HttpConnector, LegBody> =
        Client::builder(TokioExecutor::new()).pool_max_idle_per_host(0).build_http();
    client.request(request).await.map_err(|error| LegError::new(LegErrorKind::Lost).with_source(error))
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let context = Engine::start(Config::new(Role::Context)).await?;
    let generation = Engine::start(Config::new(Role::Generation)).await?;
    let mut reset = Fault::on(On::Context);
    (reset.times, reset.cut) = (Some(1), Some(Cut { at: CutAt::Head, how: CutHow::Rst }));
    context.set_fault(reset);

    let context_leg = ServiceBuilder::new()
        .timeout(Duration::from_secs(30)) // connection, head and body of the context leg, and nothing else
        .layer(BufferReplyLayer::new(64 << 20))
        .service(service_fn(send));
    let service = ServiceBuilder::new()
        .layer(RespondLayer::new())
        .layer(CancelLayer::new())
        .layer(ContractLayer::without_passthrough())
        .retry(ContextRetry { left: 2 })
        .layer(MintLayer::default())
        .layer(ContextLayer::new(context_leg).settle(Settler::new(Duration::from_secs(30))))
        .layer(TerminalLayer::new())
        .layer(GenerationLayer::new().to(format!("http://{}", generation.hostport()).parse()?))
        .service(service_fn(send));

    let request = Request::post("/v1/chat/completions")
        .header("x-prefiller-host-port", context.hostport())
        .body(Full::<Bytes>::from(
        r#"{"model":"sim","messages":[{"role":"user","content":"Hello"}],"max_tokens":8}"#,
    ))?;
    println!("POST /v1/chat/completions");
    let answer = service.oneshot(request).await?;
    println!("  {}", answer.status());
    let status = answer.status();
    let text = answer.into_body().collect().await.map_err(|error| error.to_string())?.to_bytes();
    println!("  {}", String::from_utf8_lossy(&text));

    let ids: Vec<_> = context.state().requests.iter().map(|request| request.disagg_request_id()).collect();
    println!("  ids that the context worker saw: {ids:?}");
    let fresh = ids.len() == 2 && ids[0] != ids[1];
    if status.is_success() && fresh && context.state().kv_held == 0 {
        Ok(())
    } else {
        Err("went wrong".into())
    }
}
