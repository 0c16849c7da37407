//! A leg: one request to one engine worker, as a service that is handed to a layer.
//!
//! | leg | service |
//! |---|---|
//! | context | `Service<http::Request<LegBody>, Response = http::Response<Bytes>>`: the reply comes whole |
//! | generation | `Service<http::Request<LegBody>, Response = http::Response<B>>`: the reply is a stream |
//!
//! A leg is a service and not a place in the stack, so whatever wraps the service holds for that leg alone: a timeout
//! around the context leg covers its connection, its head and its body, because [`BufferReply`] reads the body inside
//! it.
//!
//! ```
//! use bytes::Bytes;
//! use http_body_util::Full;
//! use tower::{ServiceBuilder, service_fn};
//! use tower_disagg::leg::{BufferReplyLayer, LegBody};
//!
//! # async fn connect(_: http::Request<LegBody>) -> Result<http::Response<Full<Bytes>>, std::io::Error> {
//! #     Ok(http::Response::new(Full::default()))
//! # }
//! let context_leg = ServiceBuilder::new()
//!     .timeout(std::time::Duration::from_secs(180)) // the whole leg, one deadline
//!     .layer(BufferReplyLayer::new(64 << 20)) // at most 64 MiB of reply
//!     .service(service_fn(connect)); // any HTTP client
//! # tower_disagg::check::<http::Request<LegBody>, _>(context_leg);
//! ```
//!
//! # What travels in the extensions
//!
//! The context layer tells the transport, and hears from it, by the extensions of a context request. A transport that
//! knows none of them works, with one exception: where [`CheckedAddresses`] are used it has to honour them.
//!
//! | | |
//! |---|---|
//! | [`CheckedAddresses`] | the only addresses that may be dialled; absent when the name may be resolved |
//! | [`ReplyHead`] | to be told when the head of the reply is here |
//! | [`HangUp`] | asks for the end of a request whose client has left |
//!
//! # Errors
//!
//! A leg fails with any error. One that has a [`LegError`] among its causes says what happened, and so decides
//! whether another attempt is allowed. Without one, a socket's error that is met only before there is a connection
//! (refused, unreachable) counts as that; for anything else the layers assume that bytes of a reply may have been seen.

mod body;
mod buffered;
mod checked;
mod error;
mod hang_up;
pub mod headers;
mod signal;
mod target;

pub(crate) use self::target::{target, with_query};
pub use self::{
    body::LegBody,
    buffered::{BufferReply, BufferReplyFuture, BufferReplyLayer},
    checked::CheckedAddresses,
    error::{LegError, LegErrorKind},
    hang_up::HangUp,
    signal::ReplyHead,
};

#[cfg(test)]
mod tests;
