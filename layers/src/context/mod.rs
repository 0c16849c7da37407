//! The context leg: asks the context worker to compute the KV cache, and checks what comes back.
//!
//! ```
//! use std::time::Duration;
//!
//! use bytes::Bytes;
//! use tower::{ServiceBuilder, service_fn};
//! use tower_disagg::{context::ContextLayer, leg::LegBody, settle::Settler};
//! # use tower_disagg::handoff::{Handoff, Minted, Primed};
//!
//! # async fn send(_: http::Request<LegBody>) -> Result<http::Response<Bytes>, std::io::Error> { unreachable!() }
//! # async fn next(_: http::Request<Handoff<Primed>>) -> Result<http::Response<String>, std::io::Error> { unreachable!() }
//! let leg = service_fn(send); // any client that returns whole replies
//! let service = ServiceBuilder::new().layer(ContextLayer::new(leg)).service(service_fn(next));
//! # tower_disagg::check::<http::Request<Handoff<Minted>>, _>(service);
//! ```
//!
//! A deadline for this leg alone, and handoffs that are finished when the client leaves:
//!
//! ```
//! # use std::time::Duration;
//! # use bytes::Bytes;
//! # use tower::{ServiceBuilder, service_fn};
//! # use tower_disagg::{context::ContextLayer, handoff::{Handoff, Minted, Primed}, leg::LegBody, settle::Settler};
//! # async fn send(_: http::Request<LegBody>) -> Result<http::Response<Bytes>, std::io::Error> { unreachable!() }
//! # async fn next(_: http::Request<Handoff<Primed>>) -> Result<http::Response<String>, std::io::Error> { unreachable!() }
//! let leg = ServiceBuilder::new().timeout(Duration::from_secs(180)).service(service_fn(send));
//! let layer = ContextLayer::new(leg).settle(Settler::new(Duration::from_secs(30)));
//! # let service = ServiceBuilder::new().layer(layer).service(service_fn(next));
//! # tower_disagg::check::<http::Request<Handoff<Minted>>, _>(service);
//! ```
//!
//! | | type |
//! |---|---|
//! | request in | `http::Request<Handoff<Minted>>` |
//! | leg request | `http::Request<LegBody>`, to `http://` the chosen endpoint, with the client's path, query and headers; where only certain addresses may be dialled, with [`CheckedAddresses`](crate::leg::CheckedAddresses) |
//! | leg reply | `http::Response<Bytes>` |
//! | request out | `http::Request<Handoff<Primed>>` |
//! | response | unchanged |
//!
//! # Ordering
//!
//! Below [`MintLayer`](crate::mint::MintLayer), above [`TerminalLayer`](crate::terminal::TerminalLayer). A timeout for
//! the leg goes around the leg service; a timeout around this layer covers both legs and, once it strikes after the
//! context reply, has the handoff settled. A layer that writes bytes of its own ahead of the worker's, such as
//! keep-alive comments, goes above this one: settlement takes the first byte it sees for the worker's.
//!
//! # Readiness
//!
//! Ready when the leg is. The inner service is driven to readiness only when the reply is there, so a limit placed
//! inside holds no generation slot while prefill runs, and `load_shed` placed inside does not push back on arrivals.
//!
//! # Cancellation
//!
//! Dropping the future before the head of the reply drops the leg; the worker notices its connection closing and
//! aborts (contract, section 6). From the head on ([`ReplyHead`](crate::leg::ReplyHead)) the KV cache is committed and
//! the [`Settler`](crate::settle::Settler) finishes the handoff: by default that only counts it as abandoned, see
//! [`ContextLayer::settle`].
//!
//! A reply can be on its way just then: the worker has committed, and a connection that is closed takes the reply with it.
//! A transport that honours [`HangUp`](crate::leg::HangUp) closes its sending side only and listens on; the layer keeps
//! such a leg for up to half a second, and settles what comes. With another transport, or a worker that commits after its
//! client has gone, the engine's transfer timeout is what frees the cache; set `kv_transfer_timeout_ms` on the engines.
//!
//! # Errors
//!
//! A [`ContextError`](crate::error::ContextError) in a `BoxError`; errors of the inner service pass through. What a
//! reply must be like stands in the contract, section 3: one choice, a known `finish_reason`, and, when a generation
//! leg is due, a complete handoff. A worker's 4xx keeps its status, message and `retry-after`.

mod decide;
mod future;
mod layer;
mod request;
mod service;

pub use self::{future::ContextFuture, layer::ContextLayer, service::Context};

#[cfg(test)]
mod tests;
