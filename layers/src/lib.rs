//! tower layers for the context/generation handoff of disaggregated LLM serving.

pub mod body;
pub mod buffer;
mod call;
pub mod context;
pub mod contract;
pub mod error;
pub mod generation;
pub mod handoff;
pub mod json;
pub mod leg;
pub mod mint;
pub mod settle;
pub mod terminal;
pub mod trtllm;

/// Does nothing but make the compiler check that `service` takes requests of type `R`.
///
/// Put it where two stages meet: without it a missing stage reads as bounds that are not satisfied somewhere in the
/// stack, with it the error names the two stages that do not meet.
pub fn check<R, S: tower_service::Service<R>>(service: S) -> S {
    service
}
