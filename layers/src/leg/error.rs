use std::{borrow::Cow, error::Error, fmt, io};

use crate::error::{BoxError, find};

/// How a leg failed, said by the service that runs it.
#[derive(Debug)]
pub struct LegError {
    kind: LegErrorKind,
    message: Option<Cow<'static, str>>,
    source: Option<BoxError>,
}

/// What happened to a leg.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LegErrorKind {
    /// No connection was made.
    Connect,
    /// The connection was lost before a byte of a reply was seen.
    Lost,
    /// The connection was lost, or what came over it was no HTTP, after a byte of a reply was seen.
    Interrupted,
    /// A deadline passed.
    Timeout,
    /// The reply is larger than the cap.
    ReplyTooLarge,
    /// No room to hold the reply.
    Overloaded,
    /// The worker's release is outside the supported contract; it was not called.
    UnsupportedEngine,
}

impl LegError {
    /// An error of this kind.
    pub fn new(kind: LegErrorKind) -> Self {
        Self { kind, message: None, source: None }
    }

    /// Says more than the kind does. The text reaches the client.
    pub fn with_message(mut self, message: impl Into<Cow<'static, str>>) -> Self {
        self.message = Some(message.into());
        self
    }

    /// Adds what caused it.
    pub fn with_source(mut self, source: impl Into<BoxError>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// What happened.
    pub fn kind(&self) -> LegErrorKind {
        self.kind
    }

    /// What is to be said to the client instead of the text that belongs to the kind.
    pub fn message(&self) -> Option<&str> {
        self.message.as_deref()
    }
}

impl LegErrorKind {
    /// What the failure of a leg says, or of whatever is around it: the kind of the [`LegError`] among its causes, or
    /// else what its causes leave no doubt about. What nothing is known of may have happened after the reply had begun.
    pub fn of(error: &(dyn Error + 'static)) -> Self {
        if let Some(known) = find::<LegError>(error) {
            return known.kind;
        }
        if timed_out(error) {
            Self::Timeout
        } else if find::<io::Error>(error).is_some_and(|error| was_never_connected(error.kind())) {
            Self::Connect
        } else {
            Self::Interrupted
        }
    }
}

/// Errors of sockets that are met only before there is a connection.
fn was_never_connected(kind: io::ErrorKind) -> bool {
    use io::ErrorKind::{AddrNotAvailable, ConnectionRefused, HostUnreachable, NetworkUnreachable};
    matches!(kind, ConnectionRefused | HostUnreachable | NetworkUnreachable | AddrNotAvailable)
}

#[cfg(feature = "tower")]
fn timed_out(error: &(dyn Error + 'static)) -> bool {
    find::<tower::timeout::error::Elapsed>(error).is_some()
}

#[cfg(not(feature = "tower"))]
fn timed_out(_: &(dyn Error + 'static)) -> bool {
    false
}

impl fmt::Display for LegError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(message) = &self.message {
            return f.write_str(message);
        }
        f.write_str(match self.kind {
            LegErrorKind::Connect => "no connection to the worker",
            LegErrorKind::Lost => "the connection to the worker was lost before a reply",
            LegErrorKind::Interrupted => "the connection to the worker was lost inside a reply",
            LegErrorKind::Timeout => "the worker did not answer in time",
            LegErrorKind::ReplyTooLarge => "the reply of the worker is larger than the limit",
            LegErrorKind::Overloaded => "no room to hold the reply of the worker",
            LegErrorKind::UnsupportedEngine => "the release of the worker is not supported",
        })
    }
}

impl Error for LegError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_deref().map(|source| source as _)
    }
}
