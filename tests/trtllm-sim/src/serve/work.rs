//! What is lost, and counted, when a client leaves.

use crate::shared::Shared;
use std::sync::Arc;

/// How far a request has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// The context step; it is aborted and its KV freed.
    Context,
    /// KV is arriving; the worst moment to leave.
    Transfer,
    /// Anything else of a generation or aggregated request.
    Generation,
}

/// A request at work. Dropped without [`Work::done`], its client has left.
#[derive(Debug)]
pub(super) struct Work {
    shared: Arc<Shared>,
    phase: Phase,
    kv: Option<i64>,
    done: bool,
}

impl Work {
    pub(super) fn new(shared: &Arc<Shared>, phase: Phase) -> Self {
        Self { shared: Arc::clone(shared), phase, kv: None, done: false }
    }

    /// The KV registered for it, freed with it unless [`Work::keep`] is called.
    pub(super) fn holds(&mut self, kv: i64) {
        self.kv = Some(kv);
    }

    /// The id its KV is registered under.
    pub(super) fn kv(&self) -> Option<i64> {
        self.kv
    }

    /// The KV is to outlive the request.
    pub(super) fn keep(&mut self) {
        self.kv = None;
    }

    pub(super) fn enters(&mut self, phase: Phase) {
        self.phase = phase;
    }

    /// The answer is complete, or is meant to end here.
    pub(super) fn done(mut self) {
        self.done = true;
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        if let Some(kv) = self.kv {
            self.shared.kv().free(kv);
        }
        if !self.done {
            let counts = &self.shared.counts;
            match self.phase {
                Phase::Context => counts.aborts.add(1),
                Phase::Transfer => counts.transfer_aborts.add(1),
                Phase::Generation => counts.generation_aborts.add(1),
            }
        }
    }
}
