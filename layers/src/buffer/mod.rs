//! Bodies held in memory: read to their end, up to a cap, and counted against a budget shared by all requests.
//!
//! A cap bounds one body, a [`BufferBudget`] the sum of all that are held at a time. What [`Collect`] returns gives
//! its share back when the last slice of it is dropped, so a request's bytes count for as long as a leg may still
//! send them.

mod budget;
mod collect;

pub use self::{
    budget::{BufferBudget, Reservation},
    collect::{Collect, CollectError},
};

#[cfg(test)]
mod tests;
