use std::{error::Error, fmt, sync::Arc};

use crate::trtllm::DisaggRequestId;

/// Makes the id of a handoff.
///
/// Implemented for closures, and for an [`Arc`] of a maker.
///
/// # Uniqueness
///
/// Engines find each other's state by this number alone: two live handoffs of one number end with one client reading
/// another's answer. So a maker must never return a number twice, and no two makers whose requests can meet at a
/// worker may return the same number, be they in other threads, processes, hosts or kinds of orchestrator. Each
/// call is for one attempt; what was returned counts as used even when nothing was sent.
///
/// It is called once for each handoff on the way to the context worker, so it must not block.
pub trait MakeDisaggRequestId: Send + Sync {
    /// A new id.
    ///
    /// # Errors
    ///
    /// [`IdError`] when no unique id can be had; the request then fails, as any other answer could mix up requests.
    fn make(&self) -> Result<DisaggRequestId, IdError>;
}

impl<F> MakeDisaggRequestId for F
where
    F: Fn() -> Result<DisaggRequestId, IdError> + Send + Sync,
{
    fn make(&self) -> Result<DisaggRequestId, IdError> {
        self()
    }
}

impl<M: MakeDisaggRequestId + ?Sized> MakeDisaggRequestId for Arc<M> {
    fn make(&self) -> Result<DisaggRequestId, IdError> {
        M::make(self)
    }
}

/// Why no id could be made.
#[derive(Debug)]
pub struct IdError {
    kind: IdErrorKind,
    source: Option<Box<dyn Error + Send + Sync>>,
}

/// What went wrong, in an [`IdError`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum IdErrorKind {
    /// What ids are made from (a random generator, a service, ...) failed.
    Source,
    /// There are no ids left.
    Exhausted,
}

impl IdError {
    /// For makers: what ids are made from failed, because of `source`.
    pub fn failed(source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self { kind: IdErrorKind::Source, source: Some(source.into()) }
    }

    /// For makers: there are no ids left.
    pub fn exhausted() -> Self {
        Self { kind: IdErrorKind::Exhausted, source: None }
    }

    /// What went wrong.
    pub fn kind(&self) -> IdErrorKind {
        self.kind
    }
}

impl fmt::Display for IdError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.kind {
            IdErrorKind::Source => "no disaggregation request id could be made",
            IdErrorKind::Exhausted => "no disaggregation request ids are left",
        })
    }
}

impl Error for IdError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_deref().map(|source| source as _)
    }
}
