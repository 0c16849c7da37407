use std::error::Error;

use http::{HeaderValue, StatusCode};
use serde_json::json;

use super::{AdmissionError, ContextError, ContractError, GenerationError, chain};

/// What the client is told about an error: the parts of an OpenAI error answer.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ErrorReply {
    /// The HTTP status.
    pub status: StatusCode,
    /// Stable, for programs: one of a closed set (see the crate's error table).
    pub code: &'static str,
    /// For people. Never quotes a prompt, a token, opaque state or a secret.
    pub message: String,
    /// The member of the request that is at fault, when there is one.
    pub param: Option<String>,
    /// The `retry-after` header to send.
    pub retry_after: Option<HeaderValue>,
}

impl ErrorReply {
    /// An answer with a status, a code from a closed set and a text.
    pub fn new(status: StatusCode, code: &'static str, message: impl Into<String>) -> Self {
        Self { status, code, message: message.into(), param: None, retry_after: None }
    }

    /// Adds the `retry-after` header.
    pub fn with_retry_after(mut self, value: Option<HeaderValue>) -> Self {
        self.retry_after = value;
        self
    }

    /// Adds the member of the request that is at fault.
    pub fn with_param(mut self, param: Option<String>) -> Self {
        self.param = param;
        self
    }

    /// What `error`, or the first error among its causes that is known, means to the client.
    ///
    /// Known are the errors of this crate and, with the feature `tower`, `tower`'s own `Elapsed` as a timeout and its
    /// `Overloaded` as an overload, wherever they stand in the stack. Anything else is an `internal_error`, without its text: what it says is not known to be
    /// fit for a client.
    pub fn of(error: &(dyn Error + 'static)) -> Self {
        Self::known(error).unwrap_or_else(|| {
            Self::new(
                StatusCode::INTERNAL_SERVER_ERROR,
                "internal_error",
                "internal error; see the log of the proxy",
            )
        })
    }

    /// As [`of`](Self::of), or `None` for an error that nothing is known about.
    pub fn known(error: &(dyn Error + 'static)) -> Option<Self> {
        chain(error).find_map(|error| own(error).or_else(|| foreign(error)))
    }

    /// The body, as the OpenAI API writes it.
    pub fn body(&self) -> String {
        let kind = if self.status.is_client_error() { "invalid_request_error" } else { "server_error" };
        let (message, param, code) = (&self.message, &self.param, self.code);
        json!({"error": {"message": message, "type": kind, "param": param, "code": code}}).to_string()
    }
}

/// The errors of this crate.
fn own(error: &(dyn Error + 'static)) -> Option<ErrorReply> {
    None.or_else(|| error.downcast_ref().map(ContractError::reply))
        .or_else(|| error.downcast_ref().map(AdmissionError::reply))
        .or_else(|| error.downcast_ref().map(ContextError::reply))
        .or_else(|| error.downcast_ref().map(GenerationError::reply))
}

/// The errors of `tower`'s layers, which people put around and between ours.
#[cfg(feature = "tower")]
fn foreign(error: &(dyn Error + 'static)) -> Option<ErrorReply> {
    use super::AdmissionErrorKind;
    if error.is::<tower::load_shed::error::Overloaded>() {
        return Some(AdmissionError::new(AdmissionErrorKind::Overloaded).reply());
    }
    error.is::<tower::timeout::error::Elapsed>().then(|| {
        ErrorReply::new(StatusCode::GATEWAY_TIMEOUT, "timeout", "the request was not answered in time")
    })
}

#[cfg(not(feature = "tower"))]
fn foreign(_: &(dyn Error + 'static)) -> Option<ErrorReply> {
    None
}
