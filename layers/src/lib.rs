//! tower layers for the context/generation handoff of disaggregated LLM serving.

pub mod body;
pub mod buffer;
mod call;
pub mod cancel;
pub mod context;
pub mod contract;
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
pub mod trtllm;

pub use self::stack::{HandoffBody, HandoffLayer, HandoffService};

/// Does nothing but make the compiler check that `service` takes requests of type `R`.
///
/// Put it where two stages meet: without it a missing stage reads as bounds that are not satisfied somewhere in the
/// stack, with it the error names the two stages that do not meet.
pub fn check<R, S: tower_service::Service<R>>(service: S) -> S {
    service
}
