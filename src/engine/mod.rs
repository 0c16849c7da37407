//! Which release each worker has, and the gates that keep requests from workers that a handoff cannot work with.
//!
//! `GET /version` is the only signal (contract, section 2). The local generation worker is asked from the start until
//! it answers, and again after its connection failed; a context worker is asked when it is first used, and again
//! after an hour or a failed connection. A pinned release asks nobody.

mod context;
mod generation;
mod probe;
mod releases;

pub(crate) use self::{
    context::ContextGateLayer,
    generation::{GenerationGateLayer, watch},
    probe::PROBE_REPLY,
    releases::{Releases, Wanted},
};

#[cfg(test)]
mod tests;
