//! Minting the disaggregation request id: the number under which both engines know one handoff.

mod identity;
mod maker;
mod random;
mod snowflake;

pub use self::{
    identity::{IdentityError, MachineId, ProcessId, WorkerSlot},
    maker::{IdError, IdErrorKind, MakeDisaggRequestId},
    random::RandomIds,
    snowflake::{Clock, SnowflakeIds, SystemClock},
};

#[cfg(test)]
mod tests;
