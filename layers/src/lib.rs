//! tower layers for the context/generation handoff of disaggregated LLM serving.

pub mod json;
pub mod mint;
pub mod trtllm;
