use std::{
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use tokio::sync::Notify;

/// The requests in flight. Clones look at the same count.
#[derive(Debug, Clone, Default)]
pub struct InFlight(Arc<State>);

#[derive(Debug, Default)]
struct State {
    count: AtomicUsize,
    idle: Notify,
}

impl InFlight {
    /// None in flight.
    pub fn new() -> Self {
        Self::default()
    }

    /// How many there are: called, and neither at the end of their response body nor dropped.
    pub fn count(&self) -> usize {
        self.0.count.load(Ordering::Acquire)
    }

    /// Waits until there are none. Returns at once when there are none now; more may arrive afterwards, so stop
    /// admitting them first. Cancel safe.
    pub async fn idle(&self) {
        loop {
            let mut notified = pin!(self.0.idle.notified());
            // Enlisted before the count is read: a request that ends in between is not missed.
            notified.as_mut().enable();
            if self.count() == 0 {
                return;
            }
            notified.await;
        }
    }

    pub(super) fn enter(&self) {
        self.0.count.fetch_add(1, Ordering::AcqRel);
    }

    pub(super) fn leave(&self) {
        if self.0.count.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.idle.notify_waiters();
        }
    }
}
