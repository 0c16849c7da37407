//! What has to hold for any bytes.
//!
//! Each property is a function of bytes that panics where it does not hold, and goes through the public API only. What
//! it compares with was written apart from the code under test, from the contract (`docs/contract.md`) and the standards;
//! where the two may differ, the page of the module says so.
//!
//! The functions are called by the fuzz targets in `fuzz/`, without end, and by `tests/bounded.rs` with the seeds of
//! these targets and some thousand damaged copies of them.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a panic is how a property says that it does not hold"
)]

mod cleaning;
mod header;
mod leg;
pub mod mutate;
mod oracle;
mod quote;
mod reply;
mod request;
mod splitter;
mod sse;

pub use self::{
    cleaning::cleaning, header::header, reply::reply, request::request, splitter::splitter, sse::sse,
};
