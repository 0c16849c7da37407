//! Knows when each request is over: [`CancelLayer`], the second layer.
//!
//! A request is not over when its response has a head: a token stream runs for minutes after that, and a client may
//! leave at any time. This layer counts a request from the call until the last byte of its response was handed out or
//! everything of it was dropped, and says which of the two it was, exactly once, whatever happens.
//!
//! # Example
//!
//! ```
//! use bytes::Bytes;
//! use http::{Request, Response};
//! use http_body_util::{BodyExt, Full};
//! use tower::{ServiceBuilder, ServiceExt, service_fn};
//! use tower_disagg::cancel::CancelLayer;
//!
//! # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
//! let layer = CancelLayer::new();
//! let in_flight = layer.in_flight();
//! let service = ServiceBuilder::new().layer(layer).service(service_fn(async |_: Request<()>| {
//!     Ok::<_, std::io::Error>(Response::new(Full::new(Bytes::from("hello"))))
//! }));
//!
//! let response = service.oneshot(Request::new(())).await.unwrap();
//! assert_eq!(in_flight.count(), 1); // there is a head, and a body to come
//! response.into_body().collect().await.unwrap();
//! assert_eq!(in_flight.count(), 0);
//! in_flight.idle().await; // what a drain waits for
//! # });
//! ```
//!
//! # Customising
//!
//! An [`OnRelease`] hook is called once a request, with its [`Outcome`]; any closure is one:
//!
//! ```
//! # use bytes::Bytes;
//! # use http::{Request, Response};
//! # use http_body_util::Full;
//! # use tower::{ServiceBuilder, ServiceExt, service_fn};
//! use std::sync::{Arc, atomic::{AtomicUsize, Ordering}};
//! use tower_disagg::cancel::{CancelLayer, Outcome};
//!
//! # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
//! let left = Arc::new(AtomicUsize::new(0));
//! let counter = left.clone();
//! let layer = CancelLayer::new().on_release(move |outcome| {
//!     if let Outcome::Cancelled(_) = outcome {
//!         counter.fetch_add(1, Ordering::Relaxed);
//!     }
//! });
//! # let service = ServiceBuilder::new().layer(layer).service(service_fn(async |_: Request<()>| {
//! #     Ok::<_, std::io::Error>(Response::new(Full::new(Bytes::from("hello"))))
//! # }));
//!
//! let response = service.oneshot(Request::new(())).await.unwrap();
//! drop(response); // the client left before it had read the body
//! assert_eq!(left.load(Ordering::Relaxed), 1);
//! # });
//! ```
//!
//! # In and out
//!
//! | | inner | this layer |
//! |---|---|---|
//! | request | `http::Request<B>` | unchanged, any `B` |
//! | response | `http::Response<B>`, `B: Body` | `http::Response<CancelBody<B>>`, frames unchanged |
//! | error | any | unchanged |
//!
//! # Outcomes
//!
//! | outcome | when |
//! |---|---|
//! | [`Completed`](Outcome::Completed) | the body returned `None` or trailers, or said `is_end_stream`, or handed out as many bytes as `content-length` or its size hint promised; or there is no body to send (HEAD, 1xx, 204, 304) |
//! | [`Failed`](Outcome::Failed) | the service or the body returned an error, or panicked |
//! | [`Cancelled`](Outcome::Cancelled) | the future or the body was dropped before that: the client left, or a layer outside gave up |
//!
//! A server stops polling once it has sent what `content-length` says, so waiting for `None` would take every
//! such reply for one that was broken off. *Completed* means handed to the server, not received by the client.
//!
//! Metrics: gauge `disagg_requests_in_flight`, counter `disagg_requests_total{outcome}` with the outcomes
//! `completed`, `failed` and `cancelled`.
//!
//! # Ordering
//!
//! Around everything that belongs to a request, and inside [`RespondLayer`](crate::respond::RespondLayer), so that an
//! error is seen as one. A layer that replaces bodies (compression) goes outside.
//!
//! # Readiness
//!
//! The inner service's. A call counts from the moment it is made, also when its future is never polled.
//!
//! # Cancellation
//!
//! Dropping the future or the body drops the inner one first and releases the request after that, so that a handoff
//! that is settled in the background is already known to its [`Settler`](crate::settle::Settler) when the count
//! goes down. A drain waits for [`InFlight::idle`] and then for [`Settler::idle`](crate::settle::Settler::idle).
//!
//! # Errors
//!
//! None of its own.
//!
//! # Differences
//!
//! `tower-http`'s `on_early_drop` reports drops only, and leaves endings and counts to `trace`.
//! `tower::limit::ConcurrencyLimit` gives its permit back when the head is there.

mod body;
mod future;
mod guard;
mod in_flight;
mod layer;
mod length;
mod outcome;
mod service;

pub use self::{
    body::CancelBody,
    future::CancelFuture,
    in_flight::InFlight,
    layer::CancelLayer,
    outcome::{OnRelease, Outcome},
    service::Cancel,
};

#[cfg(test)]
mod tests;
