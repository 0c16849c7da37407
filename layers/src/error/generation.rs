use std::{borrow::Cow, error::Error, fmt};

use http::{HeaderValue, StatusCode};

use super::{BoxError, ErrorReply, report::Report};

/// A generation leg that failed. Made by [`GenerationLayer`](crate::generation::GenerationLayer): as the error of a
/// call when nothing has been answered yet, as the error of a body when a stream breaks.
#[derive(Debug)]
pub struct GenerationError {
    kind: GenerationErrorKind,
    report: Report,
}

/// What became of a generation leg.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum GenerationErrorKind {
    /// No connection, or the connection was lost before the head of a reply.
    Unreachable,
    /// No head of a reply in time.
    Timeout,
    /// The worker refused with this status, and its text could carry internal state, so it is not shown.
    Rejected(StatusCode),
    /// The reply broke off, in its head or after it.
    Interrupted,
    /// The reply is no stream and could carry internal state: it cannot be searched, or the state was found in it.
    InvalidReply,
    /// No room to hold a reply that has to be searched for internal state: the limit of bytes held is reached.
    Overloaded,
    /// The worker's release is outside the supported contract.
    UnsupportedEngine,
}

impl GenerationErrorKind {
    fn parts(self) -> (StatusCode, &'static str, &'static str) {
        match self {
            Self::Unreachable => (
                StatusCode::SERVICE_UNAVAILABLE,
                "generation_unreachable",
                "the local generation worker could not be reached; it may still be loading",
            ),
            Self::Timeout => (
                StatusCode::GATEWAY_TIMEOUT,
                "generation_timeout",
                "the generation worker did not begin to answer in time",
            ),
            Self::Rejected(status) => {
                (status, "generation_rejected", "the generation worker refused the handed-off request")
            }
            Self::Interrupted => (
                StatusCode::BAD_GATEWAY,
                "generation_interrupted",
                "the reply of the generation worker broke off before it was complete",
            ),
            Self::InvalidReply => (
                StatusCode::BAD_GATEWAY,
                "invalid_generation_reply",
                "the reply of the generation worker could carry internal state and cannot be shown",
            ),
            Self::Overloaded => (
                StatusCode::SERVICE_UNAVAILABLE,
                "overloaded",
                "the proxy has no room for the generation reply",
            ),
            Self::UnsupportedEngine => (
                StatusCode::BAD_GATEWAY,
                "unsupported_engine_version",
                "the release of the generation worker is not supported",
            ),
        }
    }
}

impl GenerationError {
    /// An error of this kind, with the text that belongs to it.
    pub fn new(kind: GenerationErrorKind) -> Self {
        Self { kind, report: Report::default() }
    }

    /// Says more than the kind does. The text reaches the client.
    pub fn with_message(mut self, message: impl Into<Cow<'static, str>>) -> Self {
        self.report.message = Some(message.into());
        self
    }

    /// Keeps the `retry-after` header of the worker.
    pub fn with_retry_after(mut self, value: Option<HeaderValue>) -> Self {
        self.report.retry_after = value;
        self
    }

    /// Adds what caused it, for logs.
    pub fn with_source(mut self, source: impl Into<BoxError>) -> Self {
        self.report.source = Some(source.into());
        self
    }

    /// What became of the leg.
    pub fn kind(&self) -> GenerationErrorKind {
        self.kind
    }

    /// What the client is told.
    pub fn reply(&self) -> ErrorReply {
        let (status, code, _) = self.kind.parts();
        ErrorReply::new(status, code, self.to_string()).with_retry_after(self.report.retry_after.clone())
    }
}

impl fmt::Display for GenerationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.report.text(self.kind.parts().2))
    }
}

impl Error for GenerationError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.report.cause()
    }
}
