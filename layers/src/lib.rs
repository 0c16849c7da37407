//! tower layers for the context/generation handoff of disaggregated LLM serving.

pub mod buffer;
pub mod cancel;
pub mod error;
pub mod json;
pub mod leg;
pub mod respond;
pub mod settle;
#[cfg(any(test, feature = "test-util"))]
pub mod test_util;
pub mod trtllm;

/// Does nothing but make the compiler check that `service` takes requests of type `R`.
///
/// Put it where two stages meet: without it a missing stage reads as bounds that are not satisfied somewhere in the
/// stack, with it the error names the two stages that do not meet.
pub fn check<R, S: tower_service::Service<R>>(service: S) -> S {
    service
}
