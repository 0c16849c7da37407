//! What all connections of one engine share.

use crate::config::Config;
use crate::conversation::Ranks;
use crate::faults::Faults;
use crate::kv::Store;
use crate::release::Generation;
use crate::state::{Counts, SeenRequest, State};
use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// One engine's memory.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) config: Config,
    pub(crate) generation: Generation,
    /// Where KV is pulled from, as in `ctx_info_endpoint`.
    pub(crate) endpoint: String,
    pub(crate) counts: Counts,
    kv: Mutex<Store>,
    faults: Mutex<Faults>,
    auth_keys: Mutex<AuthKeys>,
    log: Mutex<Log>,
    ranks: Mutex<Ranks>,
}

/// Any of these keys will do; none at all and nothing is asked for.
#[derive(Debug, Default)]
pub(crate) struct AuthKeys(pub(crate) Vec<String>);

impl AuthKeys {
    pub(crate) fn accept(&self, valid: impl FnMut(&String) -> bool) -> bool {
        self.0.is_empty() || self.0.iter().any(valid)
    }
}

/// The requests seen and refused, bounded.
#[derive(Debug, Default)]
struct Log {
    requests: VecDeque<SeenRequest>,
    bytes: usize,
    dropped: u64,
    rejections: VecDeque<String>,
}

const MAX_REJECTIONS: usize = 1_000;
const MAX_REJECTION: usize = 300;

/// Nothing here can be left half changed, so a poisoned lock is as good as any.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    pub(crate) fn new(config: Config, generation: Generation, endpoint: String) -> Self {
        let auth_keys = AuthKeys(config.auth_key.iter().cloned().collect());
        let ranks = Mutex::new(Ranks::new(config.ranks, config.conversation_affinity));
        Self {
            auth_keys: Mutex::new(auth_keys),
            config,
            generation,
            endpoint,
            counts: Counts::default(),
            kv: Mutex::default(),
            faults: Mutex::default(),
            log: Mutex::default(),
            ranks,
        }
    }

    pub(crate) fn kv(&self) -> MutexGuard<'_, Store> {
        locked(&self.kv)
    }

    pub(crate) fn auth_keys(&self) -> MutexGuard<'_, AuthKeys> {
        locked(&self.auth_keys)
    }

    pub(crate) fn faults(&self) -> MutexGuard<'_, Faults> {
        locked(&self.faults)
    }

    /// Remembers a request, forgetting old ones when there are too many.
    pub(crate) fn saw(&self, request: SeenRequest) {
        let mut log = locked(&self.log);
        log.bytes += request.body.len();
        log.requests.push_back(request);
        while log.requests.len() > self.config.remember || log.bytes > self.config.remember_bytes {
            let Some(old) = log.requests.pop_front() else {
                break;
            };
            log.bytes -= old.body.len();
            log.dropped += 1;
        }
    }

    /// Places a request that was accepted on a rank.
    pub(crate) fn place(&self, number: u64, conversation: Option<String>) -> usize {
        let rank = locked(&self.ranks).place(conversation.as_deref());
        let mut log = locked(&self.log);
        if let Some(seen) = log.requests.iter_mut().rfind(|seen| seen.number == number) {
            (seen.conversation, seen.rank) = (conversation, Some(rank));
        }
        rank
    }

    /// Remembers a refusal.
    pub(crate) fn refused(&self, reason: &str) {
        let mut log = locked(&self.log);
        if log.rejections.len() >= MAX_REJECTIONS {
            log.rejections.pop_front();
        }
        log.rejections.push_back(reason.chars().take(MAX_REJECTION).collect());
    }

    /// Forgets the requests seen and the refusals; counts stay.
    pub(crate) fn forget(&self) {
        let mut log = locked(&self.log);
        log.requests.clear();
        log.rejections.clear();
        log.bytes = 0;
    }

    pub(crate) fn state(&self) -> State {
        let counts = &self.counts;
        let kv_ids = self.kv().held();
        let faults = self.faults().len();
        let conversations = locked(&self.ranks).conversations();
        let log = locked(&self.log);
        State {
            kv_held: kv_ids.len(),
            kv_ids,
            open_requests: usize::try_from(counts.open_requests.get()).unwrap_or_default(),
            open_connections: usize::try_from(counts.open_connections.get()).unwrap_or_default(),
            connections: counts.connections.get(),
            requests: log.requests.iter().cloned().collect(),
            requests_dropped: log.dropped,
            aborts: counts.aborts.get(),
            transfer_aborts: counts.transfer_aborts.get(),
            generation_aborts: counts.generation_aborts.get(),
            pulls: counts.pulls.get(),
            fetched: counts.fetched.get(),
            failed_fetches: counts.failed_fetches.get(),
            failed_pulls: counts.failed_pulls.get(),
            stranded: counts.stranded.get(),
            expired: counts.expired.get(),
            terminal: counts.terminal.get(),
            duplicate_ids: counts.duplicate_ids.get(),
            context_requests: counts.context_requests.get(),
            generation_requests: counts.generation_requests.get(),
            rejections: log.rejections.iter().cloned().collect(),
            faults,
            conversations,
            body_bytes: counts.body_bytes.get(),
        }
    }
}
