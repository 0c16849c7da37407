//! Minting the disaggregation request id: the number under which both engines know one handoff.
//!
//! ```
//! use tower::{ServiceBuilder, service_fn};
//! use tower_disagg::mint::MintLayer;
//! # use tower_disagg::handoff::{Handoff, Minted, Validated};
//!
//! # async fn next(_: http::Request<Handoff<Minted>>) -> Result<http::Response<String>, std::io::Error> { unreachable!() }
//! let service = ServiceBuilder::new().layer(MintLayer::default()).service(service_fn(next)); // random ids
//! # tower_disagg::check::<http::Request<Handoff<Validated>>, _>(service);
//! ```
//!
//! Ids in the layout of the engines' own orchestrator, for a process with a number of its own:
//!
//! ```
//! use tower_disagg::mint::{MintLayer, SnowflakeIds, WorkerSlot};
//!
//! let slot = WorkerSlot::new(1020)?;
//! let layer = MintLayer::new(SnowflakeIds::current_slot(slot));
//! # let _ = layer;
//! # Ok::<(), tower_disagg::mint::IdentityError>(())
//! ```
//!
//! | | type |
//! |---|---|
//! | request in | `http::Request<Handoff<Validated>>` |
//! | request out | `http::Request<Handoff<Minted>>` |
//! | response | unchanged; its extensions, like the request's, hold the [`DisaggRequestId`](crate::trtllm::DisaggRequestId) for access logs |
//!
//! # Ordering
//!
//! **Retry goes above this layer**, so that each attempt has an id of its own: the first attempt may still be alive on
//! a worker, and an id that comes twice attaches a request to another one's KV cache. Below it nothing is `Clone`, so
//! a retry layer does not compile there: the compiler says that `Handoff<Minted>` is not `Clone`, or, of a policy written
//! out for it, that `clone_request` has only a reference to give.
//!
//! # Readiness
//!
//! That of the inner service.
//!
//! # Cancellation
//!
//! Dropping the future drops the inner one. An id that was not sent is not used again.
//!
//! # Errors
//!
//! An [`IdError`] in a `BoxError` when the maker fails; errors of the inner service pass through.

mod fold;
mod future;
mod identity;
mod layer;
mod maker;
mod random;
mod service;
mod snowflake;

pub use self::{
    future::MintFuture,
    identity::{IdentityError, MachineId, ProcessId, WorkerSlot},
    layer::MintLayer,
    maker::{IdError, IdErrorKind, MakeDisaggRequestId},
    random::RandomIds,
    service::Mint,
    snowflake::{Clock, SnowflakeIds, SystemClock},
};

#[cfg(test)]
mod tests;
