use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

/// The bytes that all requests and replies may hold together. Clones share one budget.
#[derive(Debug, Clone)]
pub struct BufferBudget(Arc<State>);

#[derive(Debug)]
struct State {
    limit: u64,
    held: AtomicU64,
}

impl BufferBudget {
    /// A budget of `limit` bytes.
    pub fn new(limit: u64) -> Self {
        Self(Arc::new(State { limit, held: AtomicU64::new(0) }))
    }

    /// A budget that only counts.
    pub fn unlimited() -> Self {
        Self::new(u64::MAX)
    }

    /// The limit in bytes.
    pub fn limit(&self) -> u64 {
        self.0.limit
    }

    /// The bytes held now.
    pub fn held(&self) -> u64 {
        self.0.held.load(Ordering::Relaxed)
    }

    /// A share of the budget, of no bytes yet.
    pub fn reservation(&self) -> Reservation {
        Reservation { budget: self.clone(), bytes: 0 }
    }
}

impl Default for BufferBudget {
    fn default() -> Self {
        Self::unlimited()
    }
}

/// A share of a [`BufferBudget`], given back when it is dropped.
#[derive(Debug)]
pub struct Reservation {
    budget: BufferBudget,
    bytes: u64,
}

impl Reservation {
    /// Takes `bytes` more; `false`, and nothing taken, when the budget has not got them.
    pub fn grow(&mut self, bytes: u64) -> bool {
        let State { limit, held } = &*self.budget.0;
        let taken = held.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |held| {
            held.checked_add(bytes).filter(|sum| sum <= limit)
        });
        if taken.is_ok() {
            self.bytes += bytes;
        }
        taken.is_ok()
    }

    /// The budget it is a share of.
    pub fn budget(&self) -> &BufferBudget {
        &self.budget
    }

    /// The bytes taken.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.budget.0.held.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}
