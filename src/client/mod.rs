//! HTTP clients to the workers: pooled, direct, HTTP/1.1.
//!
//! No proxy is taken from the environment, no redirect is followed, and nothing is sent twice by the client itself,
//! save a request of which no byte was written. A place with
//! [`CheckedAddresses`](tower_disagg::leg::CheckedAddresses) is dialled there and nowhere else. Dropping a call closes its connection at once. An error is a [`LegError`](tower_disagg::leg::LegError) that tells a
//! connection lost before any byte of a reply from one lost after.

mod checked;
mod connect;
mod gather;
mod idle;
mod lost;
mod pooled;
mod reply;
mod track;

pub(crate) use self::{gather::GatherBody, idle::IdleLayer, pooled::HttpClient};

use std::time::Duration;

use tower_disagg::leg::LegErrorKind;

/// How long a connection is kept for another request. Workers close theirs after 5 s, and a request that meets the
/// closing is lost (contract, section 7).
const POOL_IDLE: Duration = Duration::from_secs(2);

/// Whether nobody is there, or whoever was there has gone without a word.
pub(crate) fn is_connection_failure(kind: LegErrorKind) -> bool {
    matches!(kind, LegErrorKind::Connect | LegErrorKind::Lost)
}

#[cfg(test)]
mod tests;
