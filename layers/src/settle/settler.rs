use std::{
    future::{Future, poll_fn},
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    task::Poll,
    time::Duration,
};

use tokio::{runtime::Handle, sync::Notify};
use tracing::Instrument;

use super::{Resolution, Ticket};
use crate::leg::ReplyHead;

/// How long a leg that was asked to end may take to say what is still on its way.
const HANG_UP: Duration = Duration::from_millis(500);

/// Finishes handoffs in the background. Clones share one set of tasks and counts.
///
/// # Bounds
///
/// Each settlement is given up after a timeout, and no more than a number of them run at a time; a handoff beyond
/// that is abandoned and counted. As many legs again may be on their way to an end that they were asked for. Tasks run on the tokio runtime that the dropping thread is in; outside of one the
/// handoff is abandoned.
#[derive(Debug, Clone)]
pub struct Settler(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    timeout: Option<Duration>,
    most: usize,
    active: AtomicUsize,
    /// Legs that were asked to end, and have a moment to say what is on its way.
    retiring: AtomicUsize,
    idle: Notify,
    counts: Counts,
}

#[derive(Debug, Default)]
struct Counts {
    settled: AtomicU64,
    collected: AtomicU64,
    released: AtomicU64,
    refused: AtomicU64,
    failed: AtomicU64,
    abandoned: AtomicU64,
}

/// How many handoffs ended how, since the start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SettleCounts {
    /// Finished in the background, whatever the result.
    pub settled: u64,
    /// Collected by the generation worker.
    pub collected: u64,
    /// Nothing was held.
    pub released: u64,
    /// Orphaned: refused by the generation worker.
    pub refused: u64,
    /// Orphaned: a leg failed.
    pub failed: u64,
    /// Orphaned: nobody finished it.
    pub abandoned: u64,
}

impl SettleCounts {
    /// Handoffs that left a KV cache behind on a context worker.
    pub fn orphaned(&self) -> u64 {
        self.refused + self.failed + self.abandoned
    }
}

impl Settler {
    /// The most settlements at a time, unless set otherwise.
    pub const DEFAULT_MOST: usize = 4096;

    /// Gives each settlement up after `timeout`.
    pub fn new(timeout: Duration) -> Self {
        Self::build(Some(timeout), Self::DEFAULT_MOST)
    }

    /// Settles nothing: a handoff that nobody waits for any more is dropped and counted.
    pub fn off() -> Self {
        Self::build(None, 0)
    }

    /// At most `most` settlements at a time. For the builder phase: what was handed out before is not changed.
    pub fn with_most(self, most: usize) -> Self {
        Self::build(self.0.timeout, most)
    }

    fn build(timeout: Option<Duration>, most: usize) -> Self {
        Self(Arc::new(Shared {
            timeout,
            most,
            active: AtomicUsize::new(0),
            retiring: AtomicUsize::new(0),
            idle: Notify::new(),
            counts: Counts::default(),
        }))
    }

    /// A ticket for one handoff.
    pub fn ticket(&self) -> Ticket {
        Ticket::new(self.clone())
    }

    /// How many settlements are running, and legs that were asked to end and have not yet.
    pub fn active(&self) -> usize {
        self.0.running()
    }

    /// How the handoffs ended so far.
    pub fn counts(&self) -> SettleCounts {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let counts = &self.0.counts;
        SettleCounts {
            settled: read(&counts.settled),
            collected: read(&counts.collected),
            released: read(&counts.released),
            refused: read(&counts.refused),
            failed: read(&counts.failed),
            abandoned: read(&counts.abandoned),
        }
    }

    /// Waits until no settlement is running. Cancel safe.
    pub async fn idle(&self) {
        loop {
            let mut notified = pin!(self.0.idle.notified());
            notified.as_mut().enable();
            if self.active() == 0 {
                return;
            }
            notified.await;
        }
    }

    /// Runs `rest` for `ticket`, or abandons the handoff. The ticket is resolved *before* `rest` is dropped, so that
    /// nothing inside of it takes the handoff for open.
    pub(super) fn spawn(&self, ticket: Ticket, rest: impl Future<Output = ()> + Send + 'static) {
        let (Some(timeout), Ok(runtime), Some(place)) =
            (self.0.timeout, Handle::try_current(), Place::take(&self.0))
        else {
            ticket.abandon();
            return;
        };
        let span = tracing::debug_span!("settle");
        let task = async move {
            // Dropped in reverse: who sees no settlement running finds all of them counted.
            let _place = place;
            let ticket = ticket;
            let mut rest = pin!(rest);
            match tokio::time::timeout(timeout, rest.as_mut()).await {
                Ok(()) => ticket.resolve(Resolution::Failed),
                Err(_) => ticket.resolve(Resolution::Abandoned),
            }
        };
        runtime.spawn(task.instrument(span));
    }

    /// Runs `rest` until it ends or a moment is over, and on to its end where it has committed something by then. Until
    /// then it takes no place of a settlement: legs that nobody waits for must not keep handoffs from being settled.
    pub(super) fn retire(
        &self,
        ticket: Ticket,
        rest: impl Future<Output = ()> + Send + 'static,
        head: ReplyHead,
    ) {
        let (Some(timeout), Ok(runtime), Some(waiting)) =
            (self.0.timeout, Handle::try_current(), Place::retire(&self.0))
        else {
            return;
        };
        let shared = self.0.clone();
        let span = tracing::debug_span!("retire");
        let task = async move {
            let waiting = waiting;
            let ticket = ticket;
            let mut rest = pin!(rest);
            let undecided = poll_fn(|cx| match rest.as_mut().poll(cx) {
                Poll::Ready(()) => Poll::Ready(true),
                Poll::Pending if head.is_committed() => Poll::Ready(false),
                Poll::Pending => Poll::Pending,
            });
            let ended = tokio::time::timeout(HANG_UP.min(timeout), undecided).await.unwrap_or(false);
            if ended {
                // Means nothing where nothing was committed.
                ticket.resolve(Resolution::Failed);
                return;
            }
            if !head.is_committed() {
                return;
            }
            ticket.commit();
            let place = Place::take(&shared);
            drop(waiting);
            if place.is_none() {
                ticket.abandon();
                return;
            }
            let ended = tokio::time::timeout(timeout, rest.as_mut()).await.is_ok();
            ticket.resolve(if ended { Resolution::Failed } else { Resolution::Abandoned });
            drop(place);
        };
        runtime.spawn(task.instrument(span));
    }

    pub(super) fn count(&self, resolution: Resolution, settled: bool) {
        let counts = &self.0.counts;
        let count = match resolution {
            Resolution::Collected => &counts.collected,
            Resolution::Released => &counts.released,
            Resolution::Refused => &counts.refused,
            Resolution::Failed => &counts.failed,
            Resolution::Abandoned => &counts.abandoned,
        };
        count.fetch_add(1, Ordering::Relaxed);
        let name = resolution.as_str();
        if settled {
            counts.settled.fetch_add(1, Ordering::Relaxed);
            metrics::counter!("disagg_settlements_total", "result" => name).increment(1);
        }
        if resolution.is_orphaned() {
            metrics::counter!("disagg_orphaned_handoffs_total", "reason" => name).increment(1);
            tracing::warn!(
                reason = name,
                "a handoff is orphaned: its KV cache stays on the context worker until its transfer timeout"
            );
        }
    }
}

/// One of the places for a running settlement, or for a leg that is retiring; dropped when it ends, also when its task
/// is.
struct Place {
    shared: Arc<Shared>,
    retiring: bool,
}

impl Place {
    fn take(shared: &Arc<Shared>) -> Option<Self> {
        Self::count(shared, false)
    }

    fn retire(shared: &Arc<Shared>) -> Option<Self> {
        Self::count(shared, true)
    }

    fn count(shared: &Arc<Shared>, retiring: bool) -> Option<Self> {
        let most = shared.most;
        let taken = shared.counter(retiring).fetch_update(Ordering::AcqRel, Ordering::Acquire, |running| {
            (running < most).then_some(running + 1)
        });
        taken.is_ok().then(|| Self { shared: shared.clone(), retiring })
    }
}

impl Shared {
    fn counter(&self, retiring: bool) -> &AtomicUsize {
        if retiring { &self.retiring } else { &self.active }
    }

    fn running(&self) -> usize {
        self.active.load(Ordering::Acquire) + self.retiring.load(Ordering::Acquire)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.shared.counter(self.retiring).fetch_sub(1, Ordering::AcqRel);
        if self.shared.running() == 0 {
            self.shared.idle.notify_waiters();
        }
    }
}
