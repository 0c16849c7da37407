//! A test kit for layers around legs, as this crate tests its own.
//!
//! `tower-test` has a mock that catches a service that was called without being ready, but nothing to see a dropped
//! future by, and cancellation is half of what these layers do. [`leg()`] is a service double whose
//! [handle](LegHandle) sees each request, answers it, holds readiness back, and knows whether the future was dropped.
//! [`ScriptedBody`] is a body that does what a script says, poll by poll. [`Probe`] wraps a real service and panics
//! when a layer calls one that was never ready. [`context_reply`] and [`terminal_reply`] are what a context worker answers.
//!
//! Everything is driven by hand: nothing here sleeps, spawns or reads a clock. Only with the feature `test-util`.
//!
//! ```
//! use tower::{ServiceExt, service_fn};
//! use tower_disagg::test_util::leg;
//!
//! # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
//! let (service, mut handle) = leg::<&str, &str>();
//!
//! let call = tokio::spawn(service.clone().oneshot("ping"));
//! let (request, mut reply) = handle.next().await.unwrap();
//! assert_eq!(request, "ping");
//! reply.send_response("pong");
//! assert_eq!(call.await.unwrap().unwrap(), "pong");
//! assert!(!reply.cancelled().await);
//!
//! let call = tokio::spawn(service.oneshot("ping"));
//! let (_, mut reply) = handle.next().await.unwrap();
//! call.abort(); // the client left
//! assert!(reply.cancelled().await);
//! # });
//! ```

mod assert;
mod body;
mod leg;
mod probe;
#[cfg(test)]
mod recorder;
mod replies;

#[cfg(test)]
pub(crate) use self::recorder::Recorded;
pub use self::{
    assert::{assert_body_traits, assert_future_traits, assert_layer_traits, assert_service_traits},
    body::{ScriptHandle, ScriptedBody},
    leg::{LegDouble, LegDoubleFuture, LegHandle, LegReply, leg},
    probe::{Probe, ProbeCounts},
    replies::{context_reply, terminal_reply},
};

#[cfg(test)]
mod tests;
