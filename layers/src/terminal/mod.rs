//! Answers at once when the context step has already finished the request.
//!
//! The first token can be the last: the model ends at once, a stop string or a filter strikes, a tool call is
//! complete. The reply then says `stop`, `tool_calls` or `content_filter`, no KV cache is held, and a generation leg
//! would trip an assertion in the engine (contract, section 3). So the reply is turned into the answer that the client
//! asked for: as it is, without the members of the handoff, or as the event stream of it.
//!
//! ```
//! use tower::{ServiceBuilder, service_fn};
//! use tower_disagg::terminal::TerminalLayer;
//! # use tower_disagg::handoff::{Handoff, Open, Primed};
//!
//! # async fn generate(_: http::Request<Handoff<Open>>) -> Result<http::Response<String>, std::io::Error> { unreachable!() }
//! let service = ServiceBuilder::new().layer(TerminalLayer::new()).service(service_fn(generate));
//! # tower_disagg::check::<http::Request<Handoff<Primed>>, _>(service);
//! ```
//!
//! | | type |
//! |---|---|
//! | request in | `http::Request<Handoff<Primed>>` |
//! | request out | `http::Request<Handoff<Open>>`, when a generation leg is due |
//! | response | [`TerminalBody`]: the layer's own answer, or that of the inner service |
//!
//! `finish_reason: "length"` is **not** terminal: with `max_tokens: 1` the generation leg still has to collect the KV
//! cache, and it replays the one token.
//!
//! # Ordering
//!
//! Below [`ContextLayer`](crate::context::ContextLayer), above [`GenerationLayer`](crate::generation::GenerationLayer).
//!
//! # Readiness
//!
//! Always ready. The inner service is driven to readiness when a generation leg is due, so that terminal answers do
//! not wait for a busy generation worker.
//!
//! # Cancellation
//!
//! Nothing is held for a terminal answer. Otherwise dropping the future drops the inner one.
//!
//! # Errors
//!
//! None of its own.

mod answer;
mod future;
mod layer;
mod service;

use crate::{body::EitherBody, leg::LegBody};

pub use self::{future::TerminalFuture, layer::TerminalLayer, service::Terminal};

/// The body of a response: the layer's own answer, or that of the inner service.
pub type TerminalBody<B> = EitherBody<LegBody, B>;

#[cfg(test)]
mod tests;
