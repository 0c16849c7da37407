//! Errors become answers: [`RespondLayer`], the outermost layer.
//!
//! The layers below fail with typed errors, so that they can be reordered, retried and wrapped in other people's layers.
//! A client wants HTTP. This layer is the one place where the first becomes the second: an error of the call, or of
//! the inner service's readiness, is answered in the error format of the OpenAI API, and `Error` is [`Infallible`],
//! as `axum` and `hyper` want it.
//!
//! # Example
//!
//! ```
//! use bytes::Bytes;
//! use http::{Request, Response, StatusCode};
//! use http_body_util::{BodyExt, Empty};
//! use tower::{ServiceBuilder, ServiceExt, service_fn};
//! use tower_disagg::{
//!     error::{BoxError, ContextError, ContextErrorKind},
//!     respond::{HandledError, RespondLayer},
//! };
//!
//! # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
//! let service = ServiceBuilder::new().layer(RespondLayer::new()).service(service_fn(
//!     async |_: Request<()>| -> Result<Response<Empty<Bytes>>, BoxError> {
//!         Err(ContextError::new(ContextErrorKind::Timeout).into())
//!     },
//! ));
//! let response = service.oneshot(Request::new(())).await.unwrap();
//!
//! assert_eq!(response.status(), StatusCode::GATEWAY_TIMEOUT);
//! assert_eq!(response.extensions().get::<HandledError>().unwrap().code(), "context_timeout");
//! let body = response.into_body().collect().await.unwrap().to_bytes();
//! let body: serde_json::Value = serde_json::from_slice(&body).unwrap();
//! assert_eq!(body["error"]["type"], "server_error");
//! assert_eq!(body["error"]["message"], "the context worker did not answer in time");
//! # });
//! ```
//!
//! # Customising
//!
//! The errors of this crate are known, and with the feature `tower` so are those of `tower`'s timeout and load-shed
//! layers ([`ErrorReply::of`]). Any other is an `internal_error`, and its text goes to the log only. A layer of your
//! own gets its own answer through [`recognise`](RespondLayer::recognise), which is asked first:
//!
//! ```
//! # use bytes::Bytes;
//! # use http::{Request, Response};
//! # use http_body_util::Empty;
//! use http::StatusCode;
//! # use tower::{ServiceBuilder, ServiceExt, service_fn};
//! # use tower_disagg::error::BoxError;
//! use tower_disagg::{error::{ErrorReply, find}, respond::RespondLayer};
//!
//! #[derive(Debug)]
//! struct QuotaExceeded;
//! # impl std::fmt::Display for QuotaExceeded {
//! #     fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result { f.write_str("quota") }
//! # }
//! # impl std::error::Error for QuotaExceeded {}
//!
//! let layer = RespondLayer::new().recognise(|error| {
//!     find::<QuotaExceeded>(error)
//!         .map(|_| ErrorReply::new(StatusCode::TOO_MANY_REQUESTS, "quota_exceeded", "quota exceeded"))
//! });
//! # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
//! # let service = ServiceBuilder::new().layer(layer).service(service_fn(
//! #     async |_: Request<()>| Err::<Response<Empty<Bytes>>, BoxError>(QuotaExceeded.into())));
//! # assert_eq!(service.oneshot(Request::new(())).await.unwrap().status(), 429);
//! # });
//! ```
//!
//! # In and out
//!
//! | | inner | this layer |
//! |---|---|---|
//! | request | `http::Request<B>` | unchanged, any `B` |
//! | response | `http::Response<B>`, `B: Body<Data = Bytes>` | `http::Response<RespondBody<B>>` |
//! | error | `Into<BoxError>` | [`Infallible`] |
//!
//! An answer made here has `content-type: application/json`, an exact `content-length`, `retry-after` where the error
//! has one, and a [`HandledError`] in its extensions, for loggers outside.
//!
//! # Ordering
//!
//! Outermost of the layers that can fail. What stands outside of it (access logs, tracing, `axum`) sees answers only.
//! A retry or a timeout that is to see errors goes inside. A body that fails after its head was sent cannot be
//! answered any more: its error passes through, and the server closes the stream.
//!
//! # Readiness
//!
//! Always ready. A clone of the inner service is polled to readiness inside the response future, so that an error of
//! readiness is answered too, and a call waits there for an inner service that is at its limit. A layer that is
//! to shed load has to stand inside and *fail* (`tower::load_shed`), rather than be not ready.
//!
//! # Cancellation
//!
//! Dropping the future drops the inner service's future, or the clone that waits to become ready. Nothing is spawned.
//!
//! # Errors
//!
//! None. Each error is logged as it is answered: `warn` for a 5xx, `debug` for a 4xx, with its text and that of its
//! causes, and nothing of the request.
//!
//! # Differences
//!
//! `axum::error_handling::HandleError` does the same for one handler and any response type; here, the mapping from
//! errors to answers is this crate's and extensible, and the response body stays a named type.
//!
//! [`Infallible`]: std::convert::Infallible
//! [`ErrorReply::of`]: crate::error::ErrorReply::of

mod body;
mod future;
mod handled;
mod layer;
mod service;

pub use self::{
    body::RespondBody, future::RespondFuture, handled::HandledError, layer::RespondLayer, service::Respond,
};

#[cfg(test)]
mod tests;
