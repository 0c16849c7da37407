//! `tower` layers that run the context/generation handoff of disaggregated LLM serving.
//!
//! An LLM request can be split over two engines: a *context* worker computes the KV cache of the prompt, a *generation*
//! worker produces the tokens. TensorRT-LLM's `trtllm-serve` offers the two halves as ordinary OpenAI HTTP servers and
//! a protocol for the handoff between them. This crate is that protocol as a stack of layers, each of which can be
//! used, replaced and tested alone, for any service built on `tower`, hyper or axum.
//!
//! # The whole of it
//!
//! [`HandoffLayer`] puts the handoff around an HTTP client that is there already; [`RespondLayer`] turns its errors
//! into OpenAI error answers.
//!
//! ```
//! use std::time::Duration;
//!
//! use tower::{ServiceBuilder, service_fn};
//! use tower_disagg::{HandoffLayer, leg::{BufferReplyLayer, LegBody}, respond::RespondLayer};
//!
//! # type Body = http_body_util::Full<bytes::Bytes>;
//! # async fn send(_: http::Request<LegBody>) -> Result<http::Response<Body>, std::io::Error> { unreachable!() }
//! let client = service_fn(send); // any HTTP client
//! let context_leg = ServiceBuilder::new()
//!     .timeout(Duration::from_secs(180)) // the whole context leg
//!     .layer(BufferReplyLayer::new(64 << 20)) // at most 64 MiB of reply
//!     .service(client);
//! let handoff = HandoffLayer::new(context_leg)
//!     .generation_to("http://127.0.0.1:8001".parse()?); // unless `client` knows where its requests go
//! let gateway = ServiceBuilder::new().layer(RespondLayer::new()).layer(handoff).service(client);
//! # tower_disagg::check::<http::Request<Body>, _>(gateway);
//! # Ok::<(), http::uri::InvalidUri>(())
//! ```
//!
//! # Layers, from the outside in
//!
//! | # | layer | request in → out | response | fails with |
//! |---|---|---|---|---|
//! | 1 | [`RespondLayer`] | any | errors become answers | `Infallible` |
//! | 2 | [`CancelLayer`] | any `Request<B>` | counted until its body ends | unchanged |
//! | 3 | [`ContractLayer`] | `Request<B>` → [`Validated`]; without a routing header to the passthrough service | of either service | `BoxError` |
//! | – | [`ConversationLayer`], when asked for | any [`Handoff`](handoff::Handoff), unchanged but for a header | unchanged | unchanged |
//! | – | *retry goes here* | | | |
//! | 4 | [`MintLayer`] | [`Validated`] → [`Minted`] | id mirrored in the extensions | `BoxError` |
//! | 5 | [`ContextLayer`] | [`Minted`] → [`Primed`] | unchanged | `BoxError` |
//! | 6 | [`TerminalLayer`] | [`Primed`] → [`Open`], or answers itself | its own, or unchanged | unchanged |
//! | 7 | [`GenerationLayer`] | [`Open`] → [`LegBody`](leg::LegBody) | relayed | `BoxError` |
//! | – | HTTP client of the generation worker | | | |
//!
//! Put together by hand, with other people's layers in between:
//!
//! ```
//! use std::time::Duration;
//!
//! use tower::{ServiceBuilder, service_fn};
//! use tower_disagg::{
//!     cancel::CancelLayer, context::ContextLayer, contract::ContractLayer,
//!     generation::GenerationLayer, leg::{BufferReplyLayer, LegBody}, mint::MintLayer, respond::RespondLayer,
//!     settle::Settler, terminal::TerminalLayer,
//! };
//!
//! # type Body = http_body_util::Full<bytes::Bytes>;
//! # async fn send(_: http::Request<LegBody>) -> Result<http::Response<Body>, std::io::Error> { unreachable!() }
//! # let client = service_fn(send);
//! let context_leg = ServiceBuilder::new().layer(BufferReplyLayer::new(64 << 20)).service(client);
//! let service = ServiceBuilder::new()
//!     .layer(RespondLayer::new())
//!     .layer(CancelLayer::new())
//!     .layer(ContractLayer::without_passthrough())
//!     // a retry layer goes here: each attempt has an id of its own
//!     .layer(MintLayer::default())
//!     .layer(ContextLayer::new(context_leg).settle(Settler::new(Duration::from_secs(30))))
//!     .layer(TerminalLayer::new())
//!     .layer(GenerationLayer::new().to("http://127.0.0.1:8001".parse()?))
//!     .service(client);
//! # tower_disagg::check::<http::Request<Body>, _>(service);
//! # Ok::<(), http::uri::InvalidUri>(())
//! ```
//!
//! # Stages
//!
//! What the stack knows about a request travels in the **type of its body**, [`Handoff<S>`](handoff::Handoff):
//!
//! | stage | reached by | carries in addition | `Clone` |
//! |---|---|---|---|
//! | [`Validated`] | [`ContractLayer`] | context endpoint, parsed request | yes |
//! | [`Minted`] | [`Handoff::mint`](handoff::Handoff::mint) | the disaggregation request id | no |
//! | [`Primed`] | [`Handoff::prime`](handoff::Handoff::prime) | the context reply | no |
//! | [`Open`] | [`Handoff::judge`](handoff::Handoff::judge) | – | no |
//!
//! A stage that is skipped does not compile, and neither does a retry layer below [`MintLayer`]: an id must never be
//! sent twice. Put [`check`] at a seam to have the compiler name the stages that do not meet.
//!
//! # Three clocks
//!
//! *The context leg* has one deadline, for its connection, head and body together: a timeout around the leg service.
//! *The generation leg* has one for the head of its reply, and one for the gap between two chunks: both belong to the
//! client it is given. There is none for a whole stream, since it would cut healthy ones.
//!
//! # Errors
//!
//! One opaque error type a layer, with a `kind()`, inside a `BoxError`: see [`error`]. [`RespondLayer`] alone turns them
//! into answers.
//!
//! | error | status | `code` |
//! |---|---|---|
//! | [`ContractError`](error::ContractError) | 400, 403, 404, 408, 413, 501, 502 | `invalid_request`, `unsupported_request`, `handoff_fields_forbidden`, `context_endpoint_not_allowed`, `not_found`, `request_timeout`, `request_too_large`, `unsupported_endpoint`, `invalid_epp_metadata`, `context_unreachable` (a name that cannot be resolved) |
//! | [`AdmissionError`](error::AdmissionError), `tower`'s `Overloaded` | 503 | `overloaded`, `shutting_down` |
//! | [`ContextError`](error::ContextError) | 502, 503, 504, the worker's 4xx | `context_unreachable`, `context_timeout`, `context_rejected`, `context_failed`, `invalid_context_reply`, `context_reply_too_large`, `context_aborted`, `unsupported_engine_version`, `overloaded` |
//! | [`GenerationError`](error::GenerationError) | 502, 503, 504, the worker's own | `generation_unreachable`, `generation_timeout`, `generation_rejected`, `generation_interrupted`, `invalid_generation_reply`, `unsupported_engine_version`, `overloaded` |
//! | `tower`'s `Elapsed`, of a timeout around the stack | 504 | `timeout` |
//! | anything else | 500 | `internal_error` |
//!
//! # Sources
//!
//! "Contract, section N" in these pages names the rules of the wire, as read from the public sources of TensorRT-LLM
//! (1.3.0rc3 to 1.4.0rc) and of the llm-d and Dynamo endpoint pickers: 1 the routing header, 2 releases and schemas,
//! 3 the context leg, 4 the generation leg, 5 ids, 6 cancelling and releasing, 7 errors and keep-alive,
//! 8 authentication, 9 conversations.
//!
//! # Features
//!
//! | feature | |
//! |---|---|
//! | `hmac` | sign generation requests with a key: `trtllm::SigningKey`, `generation::SharedKey` |
//! | `tower` | recognise the errors of `tower`'s timeout and load-shed layers |
//! | `test-util` | `test_util`: leg doubles, scripted bodies, readiness probes |
//!
//! [`RespondLayer`]: respond::RespondLayer
//! [`CancelLayer`]: cancel::CancelLayer
//! [`ContractLayer`]: contract::ContractLayer
//! [`ConversationLayer`]: conversation::ConversationLayer
//! [`MintLayer`]: mint::MintLayer
//! [`ContextLayer`]: context::ContextLayer
//! [`TerminalLayer`]: terminal::TerminalLayer
//! [`GenerationLayer`]: generation::GenerationLayer
//! [`Validated`]: handoff::Validated
//! [`Minted`]: handoff::Minted
//! [`Primed`]: handoff::Primed
//! [`Open`]: handoff::Open

pub mod body;
pub mod buffer;
mod call;
pub mod cancel;
pub mod context;
pub mod contract;
pub mod conversation;
pub mod error;
pub mod generation;
pub mod handoff;
pub mod json;
pub mod leg;
pub mod mint;
pub mod respond;
pub mod settle;
pub mod stack;
pub mod terminal;
#[cfg(any(test, feature = "test-util"))]
pub mod test_util;
#[cfg(test)]
mod tests;
pub mod trtllm;

pub use self::stack::{HandoffBody, HandoffLayer, HandoffService};

/// Does nothing but make the compiler check that `service` takes requests of type `R`.
///
/// Put it where two stages meet: without it a missing stage reads as bounds that are not satisfied somewhere in the
/// stack, with it the error names the two stages that do not meet.
pub fn check<R, S: tower_service::Service<R>>(service: S) -> S {
    service
}
