//! The two listeners, and what happens between the first request and the last.

mod accept;
mod admin;
mod answer;
mod drain;
mod front;
mod phase;
mod sidecar;
mod signal;
mod socket;
mod streams;

pub(crate) use self::phase::{Phase, Phases};
pub use self::{
    drain::Outcome,
    sidecar::{Handle, Sidecar, StartError},
    signal::Signals,
};

#[cfg(test)]
mod tests;
