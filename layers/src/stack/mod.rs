//! The whole handoff around an HTTP client that is there already.
//!
//! ```
//! use std::time::Duration;
//!
//! use bytes::Bytes;
//! use http_body_util::Full;
//! use tower::{ServiceBuilder, service_fn};
//! use tower_disagg::{HandoffLayer, leg::{BufferReplyLayer, LegBody}, respond::RespondLayer};
//!
//! # type Body = Full<Bytes>;
//! # async fn send(_: http::Request<LegBody>) -> Result<http::Response<Body>, std::io::Error> { unreachable!() }
//! let client = service_fn(send); // any HTTP client
//! let context_leg = ServiceBuilder::new()
//!     .timeout(Duration::from_secs(180))
//!     .layer(BufferReplyLayer::new(64 << 20))
//!     .service(client);
//! let handoff = HandoffLayer::new(context_leg).generation_to("http://127.0.0.1:8001".parse()?);
//! let service = ServiceBuilder::new()
//!     .layer(RespondLayer::new()) // errors become OpenAI error answers
//!     .layer(handoff)
//!     .service(client); // sends to the generation worker
//! # tower_disagg::check::<http::Request<Body>, _>(service);
//! # Ok::<(), http::uri::InvalidUri>(())
//! ```
//!
//! A server gives requests a path and no authority. Leave [`generation_to`](HandoffLayer::generation_to) out only when
//! the client itself knows where such requests go; one that does not fails the generation leg after the context leg was
//! spent.
//!
//! | | type |
//! |---|---|
//! | request in | `http::Request<B>`, any body of `Bytes` |
//! | request out | `http::Request<LegBody>`: generation requests, and what has no routing header |
//! | response | `http::Response<HandoffBody<RB>>` |
//! | error | `BoxError` |
//!
//! It is [`CancelLayer`], [`ContractLayer`], [`ConversationLayer`] (which does nothing unless it is
//! [set](HandoffLayer::conversations)), [`MintLayer`], [`ContextLayer`], [`TerminalLayer`] and [`GenerationLayer`] in this
//! order; each page says what it does with readiness, cancellation and errors. A stack that
//! needs something between two of them, such as retry above minting, is put together from the layers themselves.

mod layer;
mod passthrough;

pub use self::{
    layer::{HandoffBody, HandoffLayer, HandoffService},
    passthrough::{Passthrough, PassthroughFuture},
};
#[expect(unused_imports, reason = "for the links above")]
use crate::{
    cancel::CancelLayer, context::ContextLayer, contract::ContractLayer, conversation::ConversationLayer,
    generation::GenerationLayer, mint::MintLayer, terminal::TerminalLayer,
};

#[cfg(test)]
mod tests;
