//! Settlement: the bounded, tracked completion of a committed handoff that nobody waits for any more.
//!
//! Once a context reply exists, its KV cache is committed on the context worker, and closing connections frees
//! nothing: only a generation leg that collects it does, or the engine's own transfer timeout, which is a minute in
//! current releases and never in old ones (contract, section 6). So when a client leaves in that window, the future it
//! drops hands its work to a [`Settler`], which finishes the handoff in the background: it reads the reply, sends the
//! generation request, waits for the first body byte, and drops the rest.
//!
//! | a handoff ends as | meaning |
//! |---|---|
//! | [`Collected`](Resolution::Collected) | the generation worker sent body bytes: it has the KV cache |
//! | [`Released`](Resolution::Released) | nothing was held: the context step was the whole answer, or it failed |
//! | [`Refused`](Resolution::Refused) | the generation worker refused the request; the KV cache is **orphaned** |
//! | [`Failed`](Resolution::Failed) | a leg failed in between; orphaned |
//! | [`Abandoned`](Resolution::Abandoned) | dropped, by the bound or by policy; orphaned |
//!
//! A [`Ticket`] goes with each handoff and counts exactly one of these, whatever happens to the futures around it.
//! Nobody is shown a byte of a settled reply, nothing is sent twice, and there is at most one settlement a handoff.
//!
//! Metrics: `disagg_settlements_total{result}` and `disagg_orphaned_handoffs_total{reason}`.

mod leave;
mod settler;
mod ticket;

pub(crate) use self::leave::{Call, OrSettle};
pub use self::{
    settler::{SettleCounts, Settler},
    ticket::{Resolution, Ticket},
};

#[cfg(test)]
mod tests;
