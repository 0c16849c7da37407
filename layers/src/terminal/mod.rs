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
//! # In and out
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
//! # The answer
//!
//! By the contract, section 4 (Terminal answers), which has the whole table:
//!
//! * A client that does not stream gets the bytes of the reply without `disaggregated_params`, `prompt_token_ids` and
//!   `prompt_token_ids_b64`, however these are spelt and however often they occur.
//! * A client that streams gets chunks of the shapes that a worker's have, which come to what the reply says, member for
//!   member: thoughts, content, refusal, tool calls, logprobs, finish and stop reason. Values are the reply's own JSON
//!   text, so that nothing is cut, rounded or escaped anew.
//! * Usage is told as `stream_options` asks: at the end, in every chunk (`continuous_usage_stats`), or never.
//! * The head is the layer's: status 200, `application/json` with a `content-length`, or `text/event-stream;
//!   charset=utf-8` with `cache-control: no-cache`. No header of the context worker is in it.
//!
//! All of it is there at once, and bounded by the size of the context reply: the body waits for nothing, and its length
//! is exact.
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
