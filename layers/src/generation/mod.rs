//! The generation leg: collects the KV cache, produces the tokens, and is all that the client gets to see.
//!
//! ```
//! use bytes::Bytes;
//! use http_body_util::Full;
//! use tower::{ServiceBuilder, service_fn};
//! use tower_disagg::{generation::GenerationLayer, leg::LegBody};
//! # use tower_disagg::handoff::{Handoff, Open};
//!
//! # async fn send(_: http::Request<LegBody>) -> Result<http::Response<Full<Bytes>>, std::io::Error> { unreachable!() }
//! let client = service_fn(send); // any HTTP client
//! let service = ServiceBuilder::new().layer(GenerationLayer::new()).service(client);
//! # tower_disagg::check::<http::Request<Handoff<Open>>, _>(service);
//! ```
//!
//! A worker whose release is known, at an address that the client does not know by itself:
//!
//! ```
//! use http::Uri;
//! use tower_disagg::{generation::GenerationLayer, trtllm::{Engine, Release}};
//!
//! let layer = GenerationLayer::new()
//!     .to(Uri::from_static("http://127.0.0.1:8001"))
//!     .engines(Engine::Known(Release::parse("1.3.0rc24")));
//! # let _ = layer;
//! ```
//!
//! Where workers have a key, requests are signed: see [`sign`](GenerationLayer::sign) and [`Signer`].
//!
//! | | type |
//! |---|---|
//! | request in | `http::Request<Handoff<Open>>` |
//! | request out | `http::Request<LegBody>` |
//! | response in | `http::Response<B>` |
//! | response out | `http::Response<RelayBody<B>>` |
//!
//! The worker replays the first token itself, so nothing of the context reply is shown, nothing is prepended and
//! nothing is dropped (contract, section 4):
//!
//! * an event stream is relayed byte for byte, each frame as it comes, with back-pressure;
//! * another reply is read whole, up to [`max_whole`](GenerationLayer::max_whole), and loses the members that are
//!   internal to the handoff, when it has any; one that cannot be searched (compressed, not UTF-8), or holds the opaque
//!   state in another place, is not shown;
//! * an HTTP error is relayed with status, headers and body, unless the body could carry internal state: then, or when
//!   it is too large, breaks off or is compressed, the answer is an error of this layer with the same status.
//!
//! Replies that are too large to be cleaned are relayed as they are, and counted in
//! `disagg_uncleaned_replies_total`.
//!
//! # Ordering
//!
//! Innermost, around the HTTP client. A deadline for the head of the reply goes around the client, and so does a limit
//! on the gap between two chunks; a deadline for the whole reply would cut healthy streams.
//!
//! # Readiness
//!
//! That of the client.
//!
//! # Cancellation
//!
//! Dropping future or body after the first byte of the reply's body drops the leg: its connection closes, and the
//! worker aborts cleanly. Before that, closing it would strand the KV cache or hit the worker in the middle of a
//! transfer (contract, section 6), so the leg is settled: held in the background up to its first byte, by the
//! [`Settler`](crate::settle::Settler) that the context layer gave the handoff.
//!
//! # Errors
//!
//! A [`GenerationError`](crate::error::GenerationError) in a `BoxError`: from the call when there is no reply to relay,
//! from the body when a stream breaks. A handoff that the worker refuses leaves an orphan on the context worker, which
//! is counted (`disagg_orphaned_handoffs_total`). How streams end is counted in
//! `disagg_generation_streams_total{end}`; a stream without `data: [DONE]`, or with an error event, is no success,
//! though it is relayed as it is. A context worker that reports another id than it was sent is logged and counted in
//! `disagg_id_mismatches_total`; its own id is used, since the KV cache is registered under it.

mod body;
mod decide;
mod engines;
mod future;
mod layer;
mod request;
mod service;
mod sign;
mod watch;

#[cfg(feature = "hmac")]
pub use self::sign::SharedKey;
pub use self::{
    body::RelayBody, engines::Engines, future::GenerationFuture, layer::GenerationLayer, service::Generation,
    sign::Signer,
};

#[cfg(test)]
mod tests;
