use std::{
    fmt,
    sync::atomic::{AtomicU64, Ordering},
    time::{SystemTime, UNIX_EPOCH},
};

use super::{
    IdError, MachineId, MakeDisaggRequestId, ProcessId, WorkerSlot,
    fold::{FLOOR, fold},
};
use crate::trtllm::DisaggRequestId;

/// Ids made of a time, an identity and a counter, in the layouts of TensorRT-LLM (contract, section 5).
///
/// | | bits, high to low |
/// |---|---|
/// | [`legacy`](Self::legacy), before 1.3.0rc22 | 0 · 41 ms · 10 machine · 12 counter |
/// | [`current`](Self::current), 1.3.0rc22 and later | 0 · 39 ms · 8 node · 6 process · 10 counter |
///
/// [`Schema::id_layout`](crate::trtllm::Schema::id_layout) tells which of them goes with a worker's release.
///
/// The number so laid out is folded into the range of ids, as TensorRT-LLM folds its own. That adds 2^40, so identity
/// and counter stay what they are, and the time that an id shows is 262,144 ms (`legacy`) or 65,536 ms (`current`) more
/// than the one it was made from: milliseconds since 1970, cut to their low bits. It starts over on 7 September 2039,
/// with either layout.
///
/// # Uniqueness
///
/// No two makers whose requests can meet at a worker may have the same identity, one process with two makers
/// included: share one in an [`Arc`](std::sync::Arc). That is why it is not `Clone`.
///
/// Within one maker no id comes twice, and ids only grow (until 2039), because the time used never goes back and
/// never waits:
///
/// * When the counter of a millisecond is used up, the next millisecond is taken, ahead of the clock, instead of
///   waiting for it. The counter is worth 1,024 (`current`) or 4,096 (`legacy`) ids a millisecond, more than a million a
///   second, so the clock catches up at once. A maker that is ahead by a minute, as only a clock that stands still or
///   is behind for long can bring about, makes no more ids ([`IdErrorKind::Exhausted`](super::IdErrorKind::Exhausted)) until its clock moves.
/// * When the clock is set back, the latest time it showed holds until it has passed that.
///
/// Nothing is kept on disk. A process that is started again does not repeat an id all the same: a maker begins with the
/// millisecond after the one its clock shows, which whoever had its identity before has not come to. Two things would
/// break that. One is a clock that was set back in between. The other is a predecessor that was ahead of the clock, and is
/// replaced sooner than the clock catches up: with its first ids it is ahead by that one millisecond, and by more after
/// more than a million ids a second. A process does not start that fast; a maker that is dropped for another one in the
/// same process does, so keep the one. Where clocks are set back by hand, use [`RandomIds`](super::RandomIds).
///
/// # Both layouts at once
///
/// Ids of the two layouts do not meet either, so makers may differ in the layout, and one with two makers of its own
/// identity may change from one to the other: two that are equal were made at times that differ by three times what is
/// left until September 2039, which is years, while an id is alive for minutes.
pub struct SnowflakeIds<C = SystemClock> {
    layout: Layout,
    /// Node and process, or machine, in place.
    identity: u64,
    clock: C,
    /// The latest time that the clock has shown, in ticks.
    seen: AtomicU64,
    /// The tick last used, a time with its counter in the low bits: so that counting on carries into the time. Zero
    /// before the first.
    last: AtomicU64,
}

/// How many bits stand below each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Layout {
    pub(super) time: u32,
    pub(super) identity: u32,
    pub(super) counter: u32,
}

/// How far ids may be ahead of the clock, in milliseconds.
const MOST_AHEAD: u64 = 60_000;

const MIN: u64 = DisaggRequestId::MIN.get();

pub(super) const CURRENT: Layout = Layout { time: 39, identity: 14, counter: 10 };
pub(super) const LEGACY: Layout = Layout { time: 41, identity: 10, counter: 12 };

impl SnowflakeIds {
    /// Ids in the layout of 1.3.0rc22 and later.
    pub const fn current(node: u8, process: ProcessId) -> Self {
        Self::new(CURRENT, (node as u64) << 6 | process.get() as u64)
    }

    /// Ids in the layout before 1.3.0rc22.
    pub const fn legacy(machine: MachineId) -> Self {
        Self::new(LEGACY, machine.get() as u64)
    }

    /// Ids of a worker slot in the layout of 1.3.0rc22 and later.
    pub const fn current_slot(slot: WorkerSlot) -> Self {
        Self::current(slot.node(), slot.process())
    }

    /// Ids of a worker slot in the layout before 1.3.0rc22.
    pub const fn legacy_slot(slot: WorkerSlot) -> Self {
        Self::legacy(slot.machine())
    }

    const fn new(layout: Layout, identity: u64) -> Self {
        let identity = identity << layout.counter;
        Self { layout, identity, clock: SystemClock(()), seen: AtomicU64::new(0), last: AtomicU64::new(0) }
    }
}

impl<C> SnowflakeIds<C> {
    /// The same with another clock. Ids made before are not forgotten.
    pub fn with_clock<D: Clock>(self, clock: D) -> SnowflakeIds<D> {
        let Self { layout, identity, clock: _, seen, last } = self;
        SnowflakeIds { layout, identity, clock, seen, last }
    }
}

impl<C: Clock> MakeDisaggRequestId for SnowflakeIds<C> {
    fn make(&self) -> Result<DisaggRequestId, IdError> {
        let now = self.layout.tick(self.clock.unix_millis()).ok_or_else(IdError::exhausted)?;
        // The order of memory does not matter: nothing but `last` tells what was used.
        let now = self.seen.fetch_max(now, Ordering::Relaxed).max(now);
        let mut last = self.last.load(Ordering::Relaxed);
        loop {
            let (tick, id) = self.layout.next(last, now, self.identity).ok_or_else(IdError::exhausted)?;
            match self.last.compare_exchange_weak(last, tick, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return Ok(id),
                // Another thread was faster, so one id was made: all threads together always get on.
                Err(used) => last = used,
            }
        }
    }
}

impl Layout {
    /// The first tick of a time; nothing where sums with it could overflow. With the larger counter that leaves 2^51 ms,
    /// 70,000 years.
    pub(super) fn tick(self, millis: u64) -> Option<u64> {
        millis.checked_mul(1 << self.counter).filter(|tick| *tick < 1 << 63)
    }

    /// The tick to use after `last`, with its id: not before `now`, and not too far ahead of it.
    pub(super) fn next(self, last: u64, now: u64, identity: u64) -> Option<(u64, DisaggRequestId)> {
        // What another one has used of this millisecond is not known to one that begins.
        let next = if last == 0 { now + (1 << self.counter) } else { (last + 1).max(now) };
        let mut tick = self.lift(next);
        let mut id = self.id(tick, identity);
        if id.is_none() {
            // The one number at the top that is no id: identity and counter are all ones.
            tick = self.lift(tick + 1);
            id = self.id(tick, identity);
        }
        let ahead = tick.saturating_sub(self.lift(now));
        id.filter(|_| ahead <= MOST_AHEAD << self.counter).map(|id| (tick, id))
    }

    /// The tick itself, or the first one after it of a time whose ids are in range and distinct. They are not where
    /// the time starts over: folding puts the last 4 minutes before that below the range (1 in the later layout), and
    /// the first 13 minutes after it (3) are too small a number.
    fn lift(self, tick: u64) -> u64 {
        let below = self.identity + self.counter;
        let (first, end) = ((MIN - FLOOR) >> below, (1 << self.time) - (FLOOR >> below));
        let time = self.time_of(tick);
        let wait = if time < first {
            first - time
        } else if time >= end {
            (1 << self.time) - time + first
        } else {
            return tick;
        };
        ((tick >> self.counter) + wait) << self.counter
    }

    fn id(self, tick: u64, identity: u64) -> Option<DisaggRequestId> {
        let counter = tick & ((1 << self.counter) - 1);
        fold(self.time_of(tick) << (self.identity + self.counter) | identity | counter)
    }

    /// The time of a tick, as far as it fits.
    fn time_of(self, tick: u64) -> u64 {
        (tick >> self.counter) & ((1 << self.time) - 1)
    }
}

impl<C> fmt::Debug for SnowflakeIds<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let layout = if self.layout == CURRENT { "current" } else { "legacy" };
        f.debug_struct("SnowflakeIds")
            .field("layout", &layout)
            .field("identity", &(self.identity >> self.layout.counter))
            .finish_non_exhaustive()
    }
}

/// Tells [`SnowflakeIds`] the time. Implemented for closures.
pub trait Clock: Send + Sync {
    /// Milliseconds since the start of 1970.
    fn unix_millis(&self) -> u64;
}

impl<F: Fn() -> u64 + Send + Sync> Clock for F {
    fn unix_millis(&self) -> u64 {
        self()
    }
}

/// The operating system's clock.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock(());

impl Clock for SystemClock {
    fn unix_millis(&self) -> u64 {
        // A clock before 1970 counts as 1970: ids stay unique, whatever it shows.
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
    }
}
