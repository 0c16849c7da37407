use std::{borrow::Cow, error::Error, fmt};

use http::{HeaderValue, StatusCode};

use super::{BoxError, ErrorReply, report::Report};

/// A context leg that did not end in a usable reply. Made by [`ContextLayer`](crate::context::ContextLayer); the
/// generation worker was not called.
#[derive(Debug)]
pub struct ContextError {
    kind: ContextErrorKind,
    /// Boxed, since it travels in results of every call.
    report: Box<Report>,
    /// What a worker said of the request; apart, since it may quote it.
    worker: Option<String>,
}

/// What became of a context leg.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ContextErrorKind {
    /// No connection, or the connection was lost before any byte of a reply. It may be tried again, with a fresh id.
    Unreachable,
    /// The connection was lost after the reply had begun. The worker did the work: it must not be tried again.
    Interrupted,
    /// The deadline of the leg passed.
    Timeout,
    /// The worker refused the request with this status (4xx).
    Rejected(StatusCode),
    /// The worker failed with this status (5xx).
    Failed(StatusCode),
    /// The reply is no usable handoff.
    InvalidReply,
    /// The reply is larger than the cap.
    ReplyTooLarge,
    /// The worker says that the request was aborted, cancelled or failed.
    Aborted,
    /// The worker's release is outside the supported contract.
    UnsupportedEngine,
    /// No room to hold the reply: the limit of bytes held is reached.
    Overloaded,
}

impl ContextErrorKind {
    fn parts(self) -> (StatusCode, &'static str, &'static str) {
        match self {
            Self::Unreachable => {
                (StatusCode::BAD_GATEWAY, "context_unreachable", "the context worker could not be reached")
            }
            Self::Interrupted => (
                StatusCode::BAD_GATEWAY,
                "context_unreachable",
                "the connection to the context worker was lost before its reply was complete",
            ),
            Self::Timeout => {
                (StatusCode::GATEWAY_TIMEOUT, "context_timeout", "the context worker did not answer in time")
            }
            Self::Rejected(status) => (status, "context_rejected", "the context worker refused the request"),
            Self::Failed(status) => (
                if status == StatusCode::SERVICE_UNAVAILABLE { status } else { StatusCode::BAD_GATEWAY },
                "context_failed",
                "the context worker failed",
            ),
            Self::InvalidReply => (
                StatusCode::BAD_GATEWAY,
                "invalid_context_reply",
                "the reply of the context worker is not a usable handoff",
            ),
            Self::ReplyTooLarge => (
                StatusCode::BAD_GATEWAY,
                "context_reply_too_large",
                "the reply of the context worker is larger than the limit",
            ),
            Self::Aborted => {
                (StatusCode::BAD_GATEWAY, "context_aborted", "the context worker aborted the request")
            }
            Self::UnsupportedEngine => (
                StatusCode::BAD_GATEWAY,
                "unsupported_engine_version",
                "the release of the context worker is not supported",
            ),
            Self::Overloaded => {
                (StatusCode::SERVICE_UNAVAILABLE, "overloaded", "the proxy has no room for the context reply")
            }
        }
    }
}

impl ContextError {
    /// An error of this kind, with the text that belongs to it.
    pub fn new(kind: ContextErrorKind) -> Self {
        Self { kind, report: Box::default(), worker: None }
    }

    /// Says more than the kind does. The text reaches the client.
    pub fn with_message(mut self, message: impl Into<Cow<'static, str>>) -> Self {
        self.report.message = Some(message.into());
        self
    }

    /// Passes on what the worker said, to the client alone: it may quote the request, so `Display`, and with it logs,
    /// leave it out.
    pub fn with_worker_message(mut self, message: String) -> Self {
        self.worker = Some(message);
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
    pub fn kind(&self) -> ContextErrorKind {
        self.kind
    }

    /// Whether another attempt, with a fresh id, can do no harm: no byte of a reply was seen.
    pub fn is_retryable(&self) -> bool {
        self.kind == ContextErrorKind::Unreachable
    }

    /// What the client is told.
    pub fn reply(&self) -> ErrorReply {
        let (status, code, _) = self.kind.parts();
        let message = self.worker.clone().unwrap_or_else(|| self.to_string());
        ErrorReply::new(status, code, message).with_retry_after(self.report.retry_after.clone())
    }
}

impl fmt::Display for ContextError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.report.text(self.kind.parts().2))
    }
}

impl Error for ContextError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.report.cause()
    }
}
