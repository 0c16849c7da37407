mod compose;
mod layer;

use std::{
    collections::HashSet,
    error::Error,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread,
};

use super::{
    random::{draw, fold},
    *,
};
use crate::trtllm::DisaggRequestId;

/// September 2026.
const NOW: u64 = 1_790_000_000_123;

fn slot(number: u16) -> WorkerSlot {
    WorkerSlot::new(number).unwrap()
}

fn frozen(ids: SnowflakeIds, now: u64) -> SnowflakeIds<impl Clock> {
    ids.with_clock(move || now)
}

/// A clock that shows what is stored.
fn set_by_hand(ids: SnowflakeIds, now: &Arc<AtomicU64>) -> SnowflakeIds<impl Clock> {
    let now = Arc::clone(now);
    ids.with_clock(move || now.load(Ordering::Relaxed))
}

fn next(ids: &impl MakeDisaggRequestId) -> u64 {
    ids.make().unwrap().get()
}

/// Time, node, process and counter of an id in the later layout, read off its binary digits.
fn current_fields(id: u64) -> (u64, u64, u64, u64) {
    let digits = format!("{id:064b}");
    assert!(digits.starts_with('0'));
    let field = |from: usize, len: usize| u64::from_str_radix(&digits[from..from + len], 2).unwrap();
    (field(1, 39), field(40, 8), field(48, 6), field(54, 10))
}

/// Time, machine and counter of an id in the earlier layout, read off its binary digits.
fn legacy_fields(id: u64) -> (u64, u64, u64) {
    let digits = format!("{id:064b}");
    assert!(digits.starts_with('0'));
    let field = |from: usize, len: usize| u64::from_str_radix(&digits[from..from + len], 2).unwrap();
    (field(1, 41), field(42, 10), field(52, 12))
}

// === identities ===

#[test]
fn identities_are_never_wrapped_round() {
    assert_eq!(ProcessId::new(63).unwrap(), ProcessId::MAX);
    assert_eq!(MachineId::new(1023).unwrap(), MachineId::MAX);
    assert_eq!(WorkerSlot::new(1020).unwrap(), WorkerSlot::MAX);
    assert!(ProcessId::new(64).is_err() && MachineId::new(1024).is_err() && WorkerSlot::new(1021).is_err());
    assert!(WorkerSlot::try_from(u16::MAX).is_err());
    assert_eq!("1020".parse::<WorkerSlot>().unwrap().get(), 1020);
    for text in ["", "1021", "-1", "65536", "1.0", "x"] {
        let error = text.parse::<WorkerSlot>().unwrap_err();
        assert_eq!(error.to_string(), "the worker slot has to be a whole number from 0 to 1020");
    }
    assert_eq!(ProcessId::new(7).unwrap().to_string(), "7");
}

#[test]
fn slots_are_split_without_loss() {
    let mut seen = HashSet::new();
    for number in 0..=1020 {
        let slot = slot(number);
        assert_eq!(u16::from(slot.node()) * 64 + u16::from(slot.process().get()), number);
        assert_eq!(MachineId::from(slot).get(), number);
        seen.insert((slot.node(), slot.process()));
    }
    assert_eq!(seen.len(), 1021);
    assert_eq!((slot(1020).node(), slot(1020).process().get()), (15, 60));
}

// === layouts ===

#[test]
fn ids_have_the_layouts_of_the_engine() {
    let process = ProcessId::new(0b10_0110).unwrap();
    let ids = frozen(SnowflakeIds::current(0b1010_0101, process), NOW);
    // By sums, where the code shifts; 2^39 ms fit three times into the time.
    let time = NOW - 3 * 549_755_813_888;
    let expected = time * 16_777_216 + 165 * 65_536 + 38 * 1_024;
    assert_eq!([next(&ids), next(&ids), next(&ids)], [expected, expected + 1, expected + 2]);

    let ids = frozen(SnowflakeIds::legacy(MachineId::new(613).unwrap()), NOW);
    // 2^41 ms last until 2039.
    let expected = NOW * 4_194_304 + 613 * 4_096;
    assert_eq!([next(&ids), next(&ids), next(&ids)], [expected, expected + 1, expected + 2]);
}

#[test]
fn ids_of_known_inputs() {
    for (ids, expected) in [
        (SnowflakeIds::current(0, ProcessId::new(0).unwrap()), CURRENT_0_0),
        (SnowflakeIds::current(255, ProcessId::MAX), CURRENT_255_63),
        (SnowflakeIds::current_slot(slot(1020)), CURRENT_15_60),
        (SnowflakeIds::legacy(MachineId::new(0).unwrap()), LEGACY_0),
        (SnowflakeIds::legacy(MachineId::MAX), LEGACY_1023),
        (SnowflakeIds::legacy_slot(slot(1020)), LEGACY_1020),
    ] {
        assert_eq!(next(&frozen(ids, NOW)), expected);
    }
}

// Put together from binary digits, by another program.
const CURRENT_0_0: u64 = 2_361_100_531_499_270_144;
const CURRENT_255_63: u64 = 2_361_100_531_516_046_336;
const CURRENT_15_60: u64 = 2_361_100_531_500_314_624;
const LEGACY_0: u64 = 7_507_804_160_515_899_392;
const LEGACY_1023: u64 = 7_507_804_160_520_089_600;
const LEGACY_1020: u64 = 7_507_804_160_520_077_312;

#[test]
fn slots_never_meet_in_either_layout() {
    let mut seen = HashSet::new();
    for number in 0..=1020 {
        let ids = frozen(SnowflakeIds::current_slot(slot(number)), NOW);
        for counter in 0..3 {
            let id = next(&ids);
            let (_, node, process, count) = current_fields(id);
            assert_eq!((node * 64 + process, count), (number.into(), counter));
            assert!(seen.insert(id));
        }
    }
    seen.clear();
    for number in 0..=1020 {
        let ids = frozen(SnowflakeIds::legacy_slot(slot(number)), NOW);
        for counter in 0..3 {
            let id = next(&ids);
            assert_eq!(legacy_fields(id), (NOW, number.into(), counter));
            assert!(seen.insert(id));
        }
    }
    assert_eq!(seen.len(), 3 * 1021);
}

// === counter and clock ===

#[test]
fn a_used_up_millisecond_borrows_the_next() {
    let ids = frozen(SnowflakeIds::current_slot(slot(5)), NOW);
    let first: Vec<_> = (0..1024 * 3 + 1).map(|_| current_fields(next(&ids))).collect();
    let time = NOW % (1 << 39);
    for (place, fields) in (0..).zip(first) {
        assert_eq!(fields, (time + place / 1024, 0, 5, place % 1024));
    }
    let ids = frozen(SnowflakeIds::legacy_slot(slot(5)), NOW);
    let last = (0..=4096).map(|_| next(&ids)).last().unwrap();
    assert_eq!(legacy_fields(last), (NOW + 1, 5, 0));
}

#[test]
fn the_clock_catches_up_with_what_was_borrowed() {
    let now = Arc::new(AtomicU64::new(NOW));
    let ids = set_by_hand(SnowflakeIds::legacy_slot(slot(5)), &now);
    (0..4096 * 2).for_each(|_| drop(ids.make()));
    // One millisecond is borrowed; when the clock reaches it, it is not used again.
    now.store(NOW + 1, Ordering::Relaxed);
    assert_eq!(legacy_fields(next(&ids)), (NOW + 2, 5, 0));
    now.store(NOW + 2, Ordering::Relaxed);
    assert_eq!(legacy_fields(next(&ids)), (NOW + 2, 5, 1));
    now.store(NOW + 9, Ordering::Relaxed);
    assert_eq!(legacy_fields(next(&ids)), (NOW + 9, 5, 0));
}

#[test]
fn a_clock_set_back_repeats_nothing() {
    for (ids, name) in
        [(SnowflakeIds::current_slot(slot(5)), "current"), (SnowflakeIds::legacy_slot(slot(5)), "legacy")]
    {
        let now = Arc::new(AtomicU64::new(NOW));
        let ids = set_by_hand(ids, &now);
        let mut last = 0;
        for clock in [NOW, NOW + 1, NOW - 86_400_000, NOW, NOW + 1, 0, NOW + 1, NOW + 2] {
            now.store(clock, Ordering::Relaxed);
            for _ in 0..2000 {
                let id = next(&ids);
                assert!(id > last, "{name}: {clock}");
                last = id;
            }
        }
    }
}

#[test]
fn another_clock_does_not_make_it_forget() {
    let ids = frozen(SnowflakeIds::legacy_slot(slot(5)), NOW);
    let first = next(&ids);
    assert_eq!(next(&ids.with_clock(|| NOW)), first + 1);
}

#[test]
fn where_the_time_starts_over_ids_stay_in_range_and_apart() {
    let over = 4 << 39;
    for (ids, floor) in [
        (SnowflakeIds::current(255, ProcessId::MAX), 1 << 18),
        (SnowflakeIds::legacy(MachineId::MAX), 1 << 20),
    ] {
        let now = Arc::new(AtomicU64::new(over - 1));
        let legacy = floor == 1 << 20;
        let time = |id| if legacy { legacy_fields(id).0 } else { current_fields(id).0 };
        let per_millisecond = if legacy { 4096 } else { 1024 };
        let ids = set_by_hand(ids, &now);
        // All bits set is no id, so one is left out here, and the next millisecond is the first in range.
        let mut seen: HashSet<u64> = (0..per_millisecond - 1).map(|_| next(&ids)).collect();
        assert_eq!(seen.iter().max(), Some(&DisaggRequestId::MAX.get()));
        let lifted = next(&ids);
        assert_eq!(time(lifted), floor);
        assert!(seen.insert(lifted));
        for later in [0, 1, floor - 1, floor, floor + 1] {
            now.store(over + later, Ordering::Relaxed);
            for _ in 0..2000 {
                let id = next(&ids);
                assert!(seen.insert(id) && time(id) >= floor && time(id) < floor + 20, "{later}");
            }
        }
    }
}

#[test]
fn odd_clocks_give_ids_or_an_error() {
    let now = Arc::new(AtomicU64::new(0));
    let ids = set_by_hand(SnowflakeIds::current_slot(slot(0)), &now);
    let mut last = next(&ids);
    assert_eq!(last, 1 << 42);
    for clock in [u64::MAX, u64::MAX >> 9, 1 << 54] {
        now.store(clock, Ordering::Relaxed);
        assert_eq!(ids.make().unwrap_err().kind(), IdErrorKind::Exhausted, "{clock}");
    }
    // A reading that is refused leaves no trace.
    now.store(NOW, Ordering::Relaxed);
    let id = next(&ids);
    assert!(id > last);
    last = id;
    assert_eq!(next(&ids), last + 1);
}

#[test]
fn the_end_of_all_time_is_an_error() {
    let ids = frozen(SnowflakeIds::current_slot(slot(0)), u64::MAX >> 10);
    assert_eq!((0..1024).filter(|_| ids.make().is_ok()).count(), 1024);
    assert_eq!(ids.make().unwrap_err().kind(), IdErrorKind::Exhausted);
    assert_eq!(ids.make().unwrap_err().to_string(), "no disaggregation request ids are left");
}

// === threads ===

/// Ids made by eight threads at once.
fn by_threads(ids: &impl MakeDisaggRequestId, each: usize) -> Vec<Vec<u64>> {
    thread::scope(|scope| {
        let makers: Vec<_> =
            (0..8).map(|_| scope.spawn(|| (0..each).map(|_| next(ids)).collect::<Vec<_>>())).collect();
        makers.into_iter().map(|maker| maker.join().unwrap()).collect()
    })
}

#[test]
fn threads_never_get_the_same_id() {
    const EACH: usize = 20_000;
    let frozen = by_threads(&frozen(SnowflakeIds::current_slot(slot(5)), NOW), EACH);
    // With a clock that stands still not one number is left out.
    let all: HashSet<u64> = frozen.concat().into_iter().collect();
    let mut times: Vec<_> = all.iter().map(|id| current_fields(*id)).collect();
    times.sort_unstable();
    assert_eq!(times.len(), 8 * EACH);
    assert_eq!(times.last().unwrap().0 - times[0].0, (8 * EACH as u64 - 1) / 1024);

    for ids in [SnowflakeIds::legacy_slot(slot(5)), SnowflakeIds::current_slot(slot(5))] {
        let ids = by_threads(&ids, EACH);
        assert!(ids.iter().all(|ids| ids.is_sorted()));
        assert_eq!(ids.concat().into_iter().collect::<HashSet<_>>().len(), 8 * EACH);
    }
    let ids = by_threads(&RandomIds::new(), 1000);
    assert_eq!(ids.concat().into_iter().collect::<HashSet<_>>().len(), 8000);
}

#[test]
fn threads_with_clocks_that_disagree_never_get_the_same_id() {
    let readings = AtomicU64::new(0);
    let ids = SnowflakeIds::current_slot(slot(5)).with_clock(move || {
        // Forth and back by up to 6 ms.
        NOW + readings.fetch_add(5, Ordering::Relaxed) % 7
    });
    let ids = by_threads(&ids, 20_000);
    assert!(ids.iter().all(|ids| ids.is_sorted()));
    assert_eq!(ids.concat().into_iter().collect::<HashSet<_>>().len(), 160_000);
}

// === random ids ===

#[test]
fn random_numbers_are_folded_into_the_range() {
    const TOP: u64 = (1 << 63) - 1;
    const SPAN: u64 = TOP - (1 << 40);
    for (random, id) in [
        (0, None),
        ((1 << 42) - (1 << 40) - 1, None),
        ((1 << 42) - (1 << 40), Some(1 << 42)),
        (1 << 62, Some((1 << 62) + (1 << 40))),
        (SPAN - 1, Some(TOP - 1)),
        (SPAN, None),
        (SPAN + (1 << 39), None),
        // The sign bit is left out.
        (1 << 63, None),
        (1 << 63 | 1 << 50, Some((1 << 50) + (1 << 40))),
        (u64::MAX, None),
    ] {
        assert_eq!(fold(random).map(DisaggRequestId::get), id, "{random}");
    }
}

#[test]
fn small_random_numbers_are_drawn_again_but_not_for_ever() {
    let mut numbers = [0, 5, u64::MAX, 1 << 50].into_iter();
    let id = draw(|| Ok(numbers.next().unwrap())).unwrap();
    assert_eq!(id.get(), (1 << 50) + (1 << 40));

    let mut drawn = 0;
    let error = draw(|| {
        drawn += 1;
        Ok(0)
    })
    .unwrap_err();
    assert_eq!((error.kind(), drawn), (IdErrorKind::Source, 8));

    let error = draw(|| Err(IdError::failed("no entropy"))).unwrap_err();
    assert_eq!(error.kind(), IdErrorKind::Source);
    assert_eq!(error.source().unwrap().to_string(), "no entropy");
}

#[test]
fn random_ids_use_all_bits() {
    let ids: Vec<u64> = (0..2000).map(|_| next(&RandomIds::new())).collect();
    let (ever, always) = ids.iter().fold((0, u64::MAX), |(ever, always), id| (ever | id, always & id));
    assert_eq!((ever, always), ((1 << 63) - 1, 0));
    assert_eq!(ids.iter().collect::<HashSet<_>>().len(), 2000);
}

// === makers ===

#[test]
fn closures_and_shared_makers_are_makers() {
    fn is_maker<M: MakeDisaggRequestId>(maker: M) -> M {
        maker
    }
    let count = AtomicU64::new(0);
    let closure = is_maker(move || {
        let number = DisaggRequestId::MIN.get() + count.fetch_add(1, Ordering::Relaxed);
        DisaggRequestId::new(number).ok_or_else(IdError::exhausted)
    });
    let shared: Arc<dyn MakeDisaggRequestId> = is_maker(Arc::new(closure));
    let other = is_maker(Arc::clone(&shared));
    assert_eq!([next(&shared), next(&other)], [1 << 42, (1 << 42) + 1]);
    is_maker(Arc::new(SnowflakeIds::current_slot(slot(0))));
}

#[test]
fn makers_show_what_they_are() {
    let ids = SnowflakeIds::current_slot(slot(1020)).with_clock(|| NOW);
    assert_eq!(format!("{ids:?}"), r#"SnowflakeIds { layout: "current", identity: 1020, .. }"#);
    let ids = SnowflakeIds::legacy(MachineId::MAX);
    assert_eq!(format!("{ids:?}"), r#"SnowflakeIds { layout: "legacy", identity: 1023, .. }"#);
    assert_eq!(format!("{:?}", RandomIds::new()), "RandomIds");
}
