use std::{borrow::Cow, error::Error, fmt};

use http::{HeaderValue, StatusCode};

use super::{ErrorReply, report::Report};

/// A request that was not let in. No worker was called; it may be sent again.
#[derive(Debug)]
pub struct AdmissionError {
    kind: AdmissionErrorKind,
    report: Report,
}

/// Why a request was not let in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum AdmissionErrorKind {
    /// Over the limit of requests in flight, or of bytes held.
    Overloaded,
    /// The process is going away.
    ShuttingDown,
}

impl AdmissionErrorKind {
    fn parts(self) -> (&'static str, &'static str) {
        match self {
            Self::Overloaded => ("overloaded", "the proxy is at its limit; try again later"),
            Self::ShuttingDown => ("shutting_down", "the proxy is shutting down; try another instance"),
        }
    }
}

impl AdmissionError {
    /// An error of this kind, with the text that belongs to it and `retry-after: 1`.
    pub fn new(kind: AdmissionErrorKind) -> Self {
        let retry_after = Some(HeaderValue::from_static("1"));
        Self { kind, report: Report { retry_after, ..Report::default() } }
    }

    /// Says more than the kind does. The text reaches the client.
    pub fn with_message(mut self, message: impl Into<Cow<'static, str>>) -> Self {
        self.report.message = Some(message.into());
        self
    }

    /// Why it was not let in.
    pub fn kind(&self) -> AdmissionErrorKind {
        self.kind
    }

    /// What the client is told.
    pub fn reply(&self) -> ErrorReply {
        ErrorReply::new(StatusCode::SERVICE_UNAVAILABLE, self.kind.parts().0, self.to_string())
            .with_retry_after(self.report.retry_after.clone())
    }
}

impl fmt::Display for AdmissionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.report.text(self.kind.parts().1))
    }
}

impl Error for AdmissionError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.report.cause()
    }
}
