//! The request models of the worker: what each generation takes, what it
//! turns it into, and how it words a refusal.
//!
//! Sources: the tables of the wire contract, sections 2 and 3, and the public
//! request models of TensorRT-LLM 1.3.

pub(crate) mod ask;
pub(crate) mod body;
pub(crate) mod chat;
pub(crate) mod coerce;
pub(crate) mod completions;
pub(crate) mod fields;
pub(crate) mod params;
pub(crate) mod report;

#[cfg(test)]
mod tests;

pub(crate) use ask::{Ask, Endpoint, RequestType};

use crate::json::Value;
use crate::release::Generation;

/// Why a worker does not serve a request, by the shape of its answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Fail {
    /// 400 `{"error": text}`: the validator's own report.
    Schema(String),
    /// 400 `{"object":"error",...}`: value errors and engine failures.
    Engine(String),
    /// Any status with `{"detail": text}`: the web framework.
    Detail(u16, &'static str),
    /// 500 in plain text: an exception nobody caught.
    Crash(&'static str),
}

impl Fail {
    /// What happened, for the state page; bounded by the caller.
    pub(crate) fn reason(&self) -> String {
        match self {
            Self::Schema(text) => format!("400 schema: {text}"),
            Self::Engine(text) => format!("400 engine: {text}"),
            Self::Detail(status, text) => format!("{status} detail: {text}"),
            Self::Crash(text) => format!("500: {text}"),
        }
    }
}

/// Validates a body and reads from it what the engine needs.
pub(crate) fn ask(
    endpoint: Endpoint,
    generation: Generation,
    content_type: Option<&str>,
    bytes: &[u8],
) -> Result<Ask, Fail> {
    let body = body::object(generation, endpoint, content_type, bytes)?;
    validate(endpoint, generation, &body)?;
    ask::read(endpoint, &body)
}

/// Validates a body that is already a value.
pub(crate) fn validate(endpoint: Endpoint, generation: Generation, body: &Value) -> Result<(), Fail> {
    match endpoint {
        Endpoint::Chat => chat::validate(generation, body),
        Endpoint::Completions => completions::validate(generation, body),
    }
}
