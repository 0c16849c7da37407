//! What is held, under which id, and until when.

use super::Pull;
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// One request's KV.
#[derive(Debug, Clone)]
pub(crate) struct Entry {
    ctx_request_id: i64,
    /// The generation worker must name the global id, not only the context's own.
    global: bool,
    /// Present when the reply carries an opaque state.
    nonce: Option<String>,
    fingerprint: u64,
    prompt_tokens: usize,
    phase: Phase,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// The context step runs; closing the request aborts it.
    Prefill,
    /// The reply is out; a pull or the timeout frees it.
    Held(Instant),
    /// A pull is under way.
    Leaving(Instant),
    /// A pull broke off; nothing but the timeout frees it.
    Stranded(Instant),
}

impl Entry {
    pub(crate) fn new(ctx_request_id: i64, global: bool, fingerprint: u64, tokens: usize) -> Self {
        Self {
            ctx_request_id,
            global,
            nonce: None,
            fingerprint,
            prompt_tokens: tokens,
            phase: Phase::Prefill,
        }
    }
}

/// All KV of one engine.
#[derive(Debug, Default)]
pub(crate) struct Store {
    entries: HashMap<i64, Entry>,
}

/// An engine holds no more requests than this.
const MAX_ENTRIES: usize = 1 << 20;

impl Store {
    /// Registers a request that starts. False when the id is live already.
    pub(crate) fn begin(&mut self, id: i64, entry: Entry) -> bool {
        if self.entries.len() >= MAX_ENTRIES || self.entries.contains_key(&id) {
            return false;
        }
        self.entries.insert(id, entry);
        true
    }

    /// The context step is done and its reply goes out.
    pub(crate) fn commit(&mut self, id: i64, nonce: Option<String>, now: Instant, timeout: Duration) {
        if let Some(entry) = self.entries.get_mut(&id) {
            entry.nonce = nonce;
            entry.phase = Phase::Held(now + timeout);
        }
    }

    /// Frees a request's KV.
    pub(crate) fn free(&mut self, id: i64) {
        self.entries.remove(&id);
    }

    /// Ids of the KV that is held, oldest id first; requests in their context step do not count.
    pub(crate) fn held(&self) -> Vec<i64> {
        let held = |entry: &Entry| entry.phase != Phase::Prefill;
        let mut ids: Vec<i64> =
            self.entries.iter().filter(|(_, entry)| held(entry)).map(|(id, _)| *id).collect();
        ids.sort_unstable();
        ids
    }

    /// Starts a pull: the id and the size of the prompt, or why not.
    pub(crate) fn leave(&mut self, pull: &Pull) -> Result<(i64, usize), String> {
        let id = match pull.disagg_request_id {
            Some(id) => id,
            None => self
                .entries
                .iter()
                .find(|(_, e)| !e.global && Some(e.ctx_request_id) == pull.ctx_request_id)
                .map(|(id, _)| *id)
                .ok_or("no KV under this context request id alone")?,
        };
        let entry = self.entries.get_mut(&id).ok_or("no KV under this id")?;
        if Some(entry.ctx_request_id) != pull.ctx_request_id {
            return Err("the context request id is not that of this KV".into());
        }
        if entry.nonce.is_some() && entry.nonce != pull.nonce {
            return Err("the opaque state is not that of this KV".into());
        }
        if entry.fingerprint != pull.fingerprint {
            return Err("the prompt is not the one this KV was made of".into());
        }
        match entry.phase {
            Phase::Held(until) => {
                entry.phase = Phase::Leaving(until);
                Ok((id, entry.prompt_tokens))
            }
            Phase::Prefill => Err("the context step is not done".into()),
            Phase::Leaving(_) => Err("this KV is being pulled already".into()),
            Phase::Stranded(_) => Err("an earlier pull of this KV broke off".into()),
        }
    }

    /// A pull broke off: the KV is lost to everyone, and stays until the timeout.
    pub(crate) fn strand(&mut self, id: i64) {
        if let Some(entry) = self.entries.get_mut(&id)
            && let Phase::Leaving(until) = entry.phase
        {
            entry.phase = Phase::Stranded(until);
        }
    }

    /// Frees what is past its time; says how many.
    pub(crate) fn expire(&mut self, now: Instant) -> u64 {
        let before = self.entries.len();
        self.entries.retain(|_, entry| match entry.phase {
            Phase::Held(until) | Phase::Stranded(until) => now < until,
            Phase::Prefill | Phase::Leaving(_) => true,
        });
        (before - self.entries.len()) as u64
    }
}
