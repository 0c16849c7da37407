use std::{
    fmt,
    sync::atomic::{AtomicU64, Ordering},
    time::{SystemTime, UNIX_EPOCH},
};

use super::{IdError, MachineId, MakeDisaggRequestId, ProcessId, WorkerSlot};
use crate::trtllm::DisaggRequestId;

/// Ids made of a time, an identity and a counter, in the layouts of TensorRT-LLM (contract, section 5).
///
/// | | bits, high to low |
/// |---|---|
/// | [`legacy`](Self::legacy), before 1.3.0rc22 | 0 · 41 ms · 10 machine · 12 counter |
/// | [`current`](Self::current), 1.3.0rc22 and later | 0 · 39 ms · 8 node · 6 process · 10 counter |
///
/// The time is milliseconds since 1970, cut to its low bits; it starts over in 2039, with either layout.
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
///   second, so the clock catches up at once.
/// * When the clock is set back, the time last used goes on until the clock has passed it.
///
/// Nothing is kept on disk: a process that is started again while its clock shows a time that it used before can
/// repeat an id. Where clocks are set back by hand, use [`RandomIds`](super::RandomIds).
pub struct SnowflakeIds<C = SystemClock> {
    layout: Layout,
    /// Node and process, or machine, in place.
    identity: u64,
    clock: C,
    /// The time last used and, in the low bits, its counter: so that counting on carries into the time.
    last: AtomicU64,
}

/// How many bits stand below each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Layout {
    time: u32,
    identity: u32,
    counter: u32,
}

const CURRENT: Layout = Layout { time: 39, identity: 14, counter: 10 };
const LEGACY: Layout = Layout { time: 41, identity: 10, counter: 12 };

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
        Self { layout, identity: identity << layout.counter, clock: SystemClock(()), last: AtomicU64::new(0) }
    }
}

impl<C> SnowflakeIds<C> {
    /// The same with another clock. Ids made before are not forgotten.
    pub fn with_clock<D: Clock>(self, clock: D) -> SnowflakeIds<D> {
        let Self { layout, identity, clock: _, last } = self;
        SnowflakeIds { layout, identity, clock, last }
    }
}

impl<C: Clock> MakeDisaggRequestId for SnowflakeIds<C> {
    fn make(&self) -> Result<DisaggRequestId, IdError> {
        let now = self.clock.unix_millis();
        let mut last = self.last.load(Ordering::Relaxed);
        loop {
            let (tick, id) = self.layout.next(last, now, self.identity).ok_or_else(IdError::exhausted)?;
            // The order of memory does not matter: nothing but this one number tells what was used.
            match self.last.compare_exchange_weak(last, tick, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return Ok(id),
                // Another thread was faster, so one id was made: all threads together always get on.
                Err(used) => last = used,
            }
        }
    }
}

impl Layout {
    /// The first tick (a time and its counter) after `last` that is not before `now` and makes an id in range.
    fn next(self, last: u64, now: u64, identity: u64) -> Option<(u64, DisaggRequestId)> {
        // Even with the larger counter 2^52 ms fit, 140,000 years.
        let now = now.checked_mul(1 << self.counter)?;
        let tick = self.lift(last.checked_add(1)?.max(now))?;
        if let Some(id) = self.id(tick, identity) {
            return Some((tick, id));
        }
        // All bits set is the one number at the top that is no id; after it the time starts over.
        let tick = self.lift(tick.checked_add(1)?)?;
        self.id(tick, identity).map(|id| (tick, id))
    }

    /// The tick itself, or the first one of the time from which on ids are in range: when the time has just started
    /// over, they would be too small for the next 17 minutes (4 in the later layout).
    fn lift(self, tick: u64) -> Option<u64> {
        let floor = DisaggRequestId::MIN.get() >> (self.identity + self.counter);
        match floor.checked_sub(self.time_of(tick)) {
            None | Some(0) => Some(tick),
            Some(short) => ((tick >> self.counter) + short).checked_mul(1 << self.counter),
        }
    }

    fn id(self, tick: u64, identity: u64) -> Option<DisaggRequestId> {
        let counter = tick & ((1 << self.counter) - 1);
        DisaggRequestId::new(self.time_of(tick) << (self.identity + self.counter) | identity | counter)
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
