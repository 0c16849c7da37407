use std::{
    future::Future,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU8, Ordering},
    },
};

use super::Settler;
use crate::leg::ReplyHead;

/// How a committed handoff ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
#[non_exhaustive]
pub enum Resolution {
    /// The generation worker sent body bytes: it has collected the KV cache.
    Collected = 1,
    /// Nothing is held: the context step was the whole answer, or it failed.
    Released,
    /// The generation worker refused the request.
    Refused,
    /// A leg failed between the two workers.
    Failed,
    /// Nobody finished the handoff.
    Abandoned,
}

impl Resolution {
    /// Whether the context worker is left with a KV cache that nobody will collect.
    pub fn is_orphaned(self) -> bool {
        matches!(self, Self::Refused | Self::Failed | Self::Abandoned)
    }

    /// The name used in metrics and logs.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Collected => "collected",
            Self::Released => "released",
            Self::Refused => "refused",
            Self::Failed => "failed",
            Self::Abandoned => "abandoned",
        }
    }
}

/// Follows one handoff from the context reply to its end, and sees to it that the end is counted exactly once.
///
/// Clones follow the same handoff. The first [`resolve`](Self::resolve) counts; when the last clone is dropped and
/// there was none, the handoff was abandoned.
#[derive(Debug, Clone)]
pub struct Ticket(Arc<State>);

#[derive(Debug)]
struct State {
    /// The [`Resolution`], or 0 while there is none.
    resolution: AtomicU8,
    /// Whether a KV cache may be held; until then there is nothing to resolve.
    committed: AtomicBool,
    /// Whether the handoff is being finished in the background.
    settling: AtomicBool,
    settler: Settler,
}

impl Ticket {
    pub(super) fn new(settler: Settler) -> Self {
        Self(Arc::new(State {
            resolution: AtomicU8::new(0),
            committed: AtomicBool::new(false),
            settling: AtomicBool::new(false),
            settler,
        }))
    }

    /// The context worker may hold a KV cache from now on.
    pub fn commit(&self) {
        self.0.committed.store(true, Ordering::Release);
    }

    /// Whether a KV cache may be held that nobody has accounted for.
    pub fn is_open(&self) -> bool {
        self.0.committed.load(Ordering::Acquire) && self.0.resolution.load(Ordering::Acquire) == 0
    }

    /// Whether it is known how the handoff ended.
    pub(super) fn is_resolved(&self) -> bool {
        self.0.resolution.load(Ordering::Acquire) != 0
    }

    /// The handoff has ended. Only the first call of a committed handoff counts.
    pub fn resolve(&self, resolution: Resolution) {
        self.0.resolve(resolution, self.0.settling.load(Ordering::Acquire));
    }

    /// The handoff could not be settled.
    pub(super) fn abandon(&self) {
        self.0.resolve(Resolution::Abandoned, false);
    }

    /// Called by the `Drop` of a future or body: finishes an open handoff in the background by running `rest`, or
    /// counts it as abandoned where that is not possible. Does nothing for a handoff that is not open, or that is
    /// being settled already.
    pub fn settle(&self, rest: impl Future<Output = ()> + Send + 'static) {
        if self.is_open() && !self.0.settling.swap(true, Ordering::AcqRel) {
            self.0.settler.spawn(self.clone(), rest);
        }
    }
}

impl Ticket {
    /// Called by the `Drop` of a future whose leg was asked to end ([`HangUp`](crate::leg::HangUp)): runs `rest` for a
    /// moment more. When `head` turns out to have arrived all the same, the handoff is finished as by
    /// [`settle`](Self::settle); otherwise `rest` is dropped, and nothing was held.
    pub(crate) fn retire(&self, rest: impl Future<Output = ()> + Send + 'static, head: ReplyHead) {
        if !self.0.settling.swap(true, Ordering::AcqRel) {
            self.0.settler.retire(self.clone(), rest, head);
        }
    }
}

impl State {
    /// `settled`: in the background.
    fn resolve(&self, resolution: Resolution, settled: bool) {
        let first = self.committed.load(Ordering::Acquire)
            && self
                .resolution
                .compare_exchange(0, resolution as u8, Ordering::AcqRel, Ordering::Acquire)
                .is_ok();
        if first {
            self.settler.count(resolution, settled);
        }
    }
}

impl Drop for State {
    fn drop(&mut self) {
        let settled = *self.settling.get_mut();
        self.resolve(Resolution::Abandoned, settled);
    }
}
