use std::{error::Error, fmt, sync::Arc};

use crate::trtllm::DisaggRequestId;

/// Makes the id of a handoff.
///
/// [`RandomIds`](super::RandomIds) and [`SnowflakeIds`](super::SnowflakeIds) do; implement it, or write a closure, to
/// bring your own. An [`Arc`] of a maker is a maker.
///
/// # Uniqueness
///
/// Engines find each other's state by this number alone: two live handoffs of one number end with one client reading
/// another's answer. So a maker must never return a number twice, and no two makers whose requests can meet at a
/// worker may return the same number. All who send handoffs to a worker share one space of ids: other threads,
/// processes and hosts, other gateways, TensorRT-LLM's own orchestrator, Dynamo. Random ids may be mixed with all others;
/// what is made from identities stays apart by giving each maker one of its own, which is whoever deploys them to see to.
///
/// Each call is for one attempt. What was returned counts as used even when nothing came of it, and whoever starts again
/// must not begin where they began before: an attempt from before the restart may be alive at a worker for minutes.
///
/// # Range
///
/// That of [`DisaggRequestId`], which can hold no other number: from 2^42 on, below 2^63 - 1 (contract, section 5).
///
/// # Blocking
///
/// It is called once for each attempt, on the way to the context worker, inside of `Service::call`: it must not block,
/// wait or sleep. Numbers that have to be fetched from somewhere are fetched ahead of time, in blocks; a maker that has
/// none left fails.
///
/// # Example
///
/// Numbers from blocks that some registry hands out, each to one process:
///
/// ```
/// use std::sync::Mutex;
///
/// use tower_disagg::{
///     mint::{IdError, MakeDisaggRequestId, MintLayer},
///     trtllm::DisaggRequestId,
/// };
///
/// /// What is left of the block.
/// struct FromBlock(Mutex<std::ops::Range<u64>>);
///
/// impl MakeDisaggRequestId for FromBlock {
///     fn make(&self) -> Result<DisaggRequestId, IdError> {
///         let number = self.0.lock().map_err(|_| IdError::failed("poisoned"))?.next();
///         // a block that is used up, or was out of range
///         number.and_then(DisaggRequestId::new).ok_or_else(IdError::exhausted)
///     }
/// }
///
/// let first = DisaggRequestId::MIN.get();
/// let ids = FromBlock(Mutex::new(first..first + 2));
/// assert_eq!(ids.make()?.get(), first);
/// assert_eq!(ids.make()?.get(), first + 1);
/// assert!(ids.make().is_err(), "better no handoff than one with a used id");
/// let layer = MintLayer::new(ids);
/// # let _ = layer;
/// # Ok::<(), IdError>(())
/// ```
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
    /// There are no ids left, or none for now.
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
