use std::{fmt, future::Future, pin::Pin};

use crate::{error::BoxError, leg::CheckedAddresses, trtllm::ContextEndpoint};

/// Says which context workers may be called. Given to [`ContractLayer::allow_by`](super::ContractLayer::allow_by).
///
/// A closure `Fn(&ContextEndpoint) -> bool` is one that knows at once; something that has to resolve the name of an
/// endpoint first answers [`Allowance::Pending`].
pub trait AllowContext: Send + Sync + 'static {
    /// Whether `endpoint` may be called. It is asked once for each request that names a context worker, before
    /// anything of the body is read.
    fn allow(&self, endpoint: &ContextEndpoint) -> Allowance;
}

impl<F> AllowContext for F
where
    F: Fn(&ContextEndpoint) -> bool + Send + Sync + 'static,
{
    fn allow(&self, endpoint: &ContextEndpoint) -> Allowance {
        if self(endpoint) { Allowance::Allowed } else { Allowance::Refused }
    }
}

/// Whether a context worker may be called; the answer of an [`AllowContext`].
#[non_exhaustive]
pub enum Allowance {
    /// It may be, wherever its name leads.
    Allowed,
    /// It may not: 403, `context_endpoint_not_allowed`.
    Refused,
    /// That depends on what its name resolves to.
    ///
    /// The body stays unread meanwhile, and a server does not see an HTTP/1 client leave whose body is unread: whoever
    /// makes the future has to bound its time. Nothing may happen before it is polled, since a request that cannot be
    /// handed off anyway is refused without polling it.
    Pending(Pin<Box<dyn Future<Output = LookUp> + Send>>),
}

/// What came of looking up the name of a context worker.
#[derive(Debug)]
#[non_exhaustive]
pub enum LookUp {
    /// It may be called at these addresses and at no other; see [`CheckedAddresses`].
    Allowed(CheckedAddresses),
    /// It may not be called at any address of its name: 403, `context_endpoint_not_allowed`.
    Refused,
    /// The name could not be resolved, or not in time: 502, `context_unreachable`.
    Failed(BoxError),
}

impl fmt::Debug for Allowance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Allowed => "Allowed",
            Self::Refused => "Refused",
            Self::Pending(_) => "Pending",
        })
    }
}
