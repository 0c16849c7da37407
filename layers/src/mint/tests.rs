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
    fold::fold,
    random::draw,
    snowflake::{CURRENT, LEGACY, Layout},
    *,
};
use crate::trtllm::DisaggRequestId;

/// September 2026.
const NOW: u64 = 1_790_000_000_123;

/// When the time starts over, in either layout: 7 September 2039.
const OVER: u64 = 1 << 41;

/// What folding adds to the time, in either layout.
const CURRENT_FOLDED: u64 = 65_536;
const LEGACY_FOLDED: u64 = 262_144;

fn slot(number: u16) -> WorkerSlot {
    WorkerSlot::new(number).unwrap()
}

/// A clock that stands still, so that the first millisecond to use is `now`.
fn frozen(ids: SnowflakeIds, now: u64) -> SnowflakeIds<impl Clock> {
    ids.with_clock(move || now - 1)
}

/// A clock that shows what is stored.
fn set_by_hand(ids: SnowflakeIds, now: &Arc<AtomicU64>) -> SnowflakeIds<impl Clock> {
    let now = Arc::clone(now);
    ids.with_clock(move || now.load(Ordering::Relaxed))
}

fn next(ids: &impl MakeDisaggRequestId) -> u64 {
    ids.make().unwrap().get()
}

/// Time, node, process and counter of an id in the later layout, read off its binary digits and folded back.
fn current_fields(id: u64) -> (u64, u64, u64, u64) {
    let digits = format!("{id:064b}");
    assert!(digits.starts_with('0'));
    let field = |from: usize, len: usize| u64::from_str_radix(&digits[from..from + len], 2).unwrap();
    (field(1, 39) - CURRENT_FOLDED, field(40, 8), field(48, 6), field(54, 10))
}

/// Time, machine and counter of an id in the earlier layout, read off its binary digits and folded back.
fn legacy_fields(id: u64) -> (u64, u64, u64) {
    let digits = format!("{id:064b}");
    assert!(digits.starts_with('0'));
    let field = |from: usize, len: usize| u64::from_str_radix(&digits[from..from + len], 2).unwrap();
    (field(1, 41) - LEGACY_FOLDED, field(42, 10), field(52, 12))
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

/// The numbers were made by this Python program, which puts digits together where the code shifts:
///
/// ```python
/// def make(*fields):
///     raw = int("".join(format(value % 2**bits, f"0{bits}b") for value, bits in fields), 2)
///     return raw % (2**63 - 1 - 2**40) + 2**40
/// def current(ms, node, process, counter): return make((0, 1), (ms, 39), (node, 8), (process, 6), (counter, 10))
/// def legacy(ms, machine, counter): return make((0, 1), (ms, 41), (machine, 10), (counter, 12))
/// ```
#[test]
fn ids_are_those_of_another_program_bit_for_bit() {
    let current = |node, process| SnowflakeIds::current(node, ProcessId::new(process).unwrap());
    let legacy = |machine| SnowflakeIds::legacy(MachineId::new(machine).unwrap());
    let later = 1_800_000_000_000;
    // The last milliseconds before ids would be too small, and the first ones after it.
    let (last, first) = (OVER - LEGACY_FOLDED - 1, OVER + 3 * LEGACY_FOLDED);
    for (ids, millis, counter, id) in [
        (current(0, 0), NOW, 0, 2_361_101_631_010_897_920),
        (current(165, 38), NOW, 1, 2_361_101_631_021_750_273),
        (current(255, 63), NOW, 1023, 2_361_101_631_027_675_135),
        (current(15, 60), NOW, 512, 2_361_101_631_011_942_912),
        (SnowflakeIds::current_slot(slot(1020)), NOW, 512, 2_361_101_631_011_942_912),
        (current(165, 38), later, 1, 2_528_873_788_958_152_705),
        (current(165, 38), last, 1, 9_223_368_738_313_967_617),
        (current(165, 38), first, 1, 14_293_662_013_441),
        (legacy(0), NOW, 0, 7_507_805_260_027_527_168),
        (legacy(613), NOW, 1, 7_507_805_260_030_038_017),
        (legacy(1023), NOW, 4095, 7_507_805_260_031_721_471),
        (legacy(1020), NOW, 2048, 7_507_805_260_031_707_136),
        (SnowflakeIds::legacy_slot(slot(1020)), NOW, 2048, 7_507_805_260_031_707_136),
        (legacy(613), later, 1, 7_549_748_299_514_138_625),
        (legacy(613), last, 1, 9_223_372_036_853_092_353),
        (legacy(613), first, 1, 4_398_049_021_953),
    ] {
        let ids = frozen(ids, millis);
        let made = (0..=counter).map(|_| next(&ids)).last().unwrap();
        assert_eq!(made, id, "{ids:?} at {millis}");
    }
}

#[test]
fn folding_changes_the_time_alone() {
    let fields = |id: u64, bits: u32| (id >> bits, id & ((1 << bits) - 1));
    for (raw, bits, folded) in [
        (NOW << 22 | 613 << 12 | 4095, 22, LEGACY_FOLDED),
        ((NOW % (1 << 39)) << 24 | 255 << 16 | 63 << 10 | 7, 24, CURRENT_FOLDED),
    ] {
        let id = fold(raw).unwrap().get();
        assert_eq!(id, raw + (1 << 40));
        assert_eq!(fields(id, bits), (fields(raw, bits).0 + folded, fields(raw, bits).1));
    }
}

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
    let time = NOW % (1 << 39);
    for (place, fields) in (0..1024 * 3 + 1).map(|place| (place, current_fields(next(&ids)))) {
        assert_eq!(fields, (time + place / 1024, 0, 5, place % 1024));
    }
    let ids = frozen(SnowflakeIds::legacy_slot(slot(5)), NOW);
    let last = (0..=4096).map(|_| next(&ids)).last().unwrap();
    assert_eq!(legacy_fields(last), (NOW + 1, 5, 0));
}

#[test]
fn the_clock_catches_up_with_what_was_borrowed() {
    let now = Arc::new(AtomicU64::new(NOW - 1));
    let ids = set_by_hand(SnowflakeIds::legacy_slot(slot(5)), &now);
    (0..4096 * 2).for_each(|_| drop(ids.make()));
    // Two milliseconds are borrowed; when the clock reaches them, they are not used again.
    now.store(NOW + 1, Ordering::Relaxed);
    assert_eq!(legacy_fields(next(&ids)), (NOW + 2, 5, 0));
    now.store(NOW + 2, Ordering::Relaxed);
    assert_eq!(legacy_fields(next(&ids)), (NOW + 2, 5, 1));
    now.store(NOW + 9, Ordering::Relaxed);
    assert_eq!(legacy_fields(next(&ids)), (NOW + 9, 5, 0));
}

#[test]
fn what_is_borrowed_is_bounded() {
    for (layout, counter) in [(CURRENT, 10), (LEGACY, 12)] {
        let time = |tick: u64| tick >> counter;
        let (now, minute) = (NOW << counter, 60_000 << counter);
        // The last tick of the last millisecond that may be borrowed, and the one after it.
        let used = now + minute - 1;
        let (tick, _) = layout.next(used, now, 0).unwrap();
        assert_eq!((time(tick), tick & 1), (NOW + 60_000, 0));
        assert_eq!(layout.next(tick, now, 0), None);
        // The clock moves, and there are ids again.
        let (tick, _) = layout.next(tick, now + (1 << counter), 0).unwrap();
        assert_eq!(time(tick), NOW + 60_000);
    }
}

#[test]
fn a_clock_that_stands_still_for_a_million_requests_is_no_error() {
    let ids = frozen(SnowflakeIds::current_slot(slot(5)), NOW);
    let last = (0..1_000_000).map(|_| next(&ids)).last().unwrap();
    assert_eq!(current_fields(last).0, NOW % (1 << 39) + 999_999 / 1024);
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
fn a_clock_that_stays_back_does_not_end_the_supply() {
    // Being behind is no borrowing: what counts is how many ids were made meanwhile.
    let now = Arc::new(AtomicU64::new(NOW));
    let ids = set_by_hand(SnowflakeIds::legacy_slot(slot(5)), &now);
    let before = next(&ids);
    now.store(NOW - 86_400_000, Ordering::Relaxed);
    let after: Vec<u64> = (0..100_000).map(|_| next(&ids)).collect();
    assert!(after.is_sorted() && after[0] > before);
    assert_eq!(legacy_fields(*after.last().unwrap()).0, NOW + 1 + 100_000 / 4096);
}

#[test]
fn a_maker_that_begins_leaves_the_present_millisecond_to_the_one_before_it() {
    for make in [SnowflakeIds::current_slot, SnowflakeIds::legacy_slot] {
        let now = Arc::new(AtomicU64::new(NOW));
        let mut seen = HashSet::new();
        // The first one has no predecessor to spare, but does not know that; it goes on for a while.
        let first = set_by_hand(make(slot(5)), &now);
        for millis in NOW..NOW + 3 {
            now.store(millis, Ordering::Relaxed);
            (0..10).for_each(|_| assert!(seen.insert(next(&first))));
        }
        // Each of these takes over in the millisecond in which the one before it was at work.
        for millis in NOW + 3..NOW + 9 {
            let ids = set_by_hand(make(slot(5)), &now);
            (0..10).for_each(|_| assert!(seen.insert(next(&ids)), "{millis}"));
            now.store(millis, Ordering::Relaxed);
            (0..10).for_each(|_| assert!(seen.insert(next(&ids)), "{millis}"));
        }
    }
}

#[test]
fn ids_of_the_two_layouts_do_not_meet() {
    // The ids that all makers of a layout can make in so many milliseconds.
    let span = |layout: Layout, from: u64, to: u64| {
        let (time, low) = (layout.time, layout.identity + layout.counter);
        let first = fold((from % (1 << time)) << low).unwrap().get();
        let last = fold((to % (1 << time)) << low | ((1 << low) - 1)).unwrap().get();
        assert!(first < last);
        first..=last
    };
    let apart = |from, to| {
        let (legacy, current) = (span(LEGACY, from, to), span(CURRENT, from, to));
        legacy.end() < current.start() || current.end() < legacy.start()
    };
    // No id is alive for a day. Two weeks, each month until a month before the time starts over, and afterwards.
    let (day, month) = (86_400_000, 30 * 86_400_000);
    let all: Vec<u64> = (NOW..OVER - month).step_by(month as usize).collect();
    assert!(all.len() > 150);
    for middle in all.into_iter().chain([OVER + month, OVER + 12 * month]) {
        assert!(apart(middle - 7 * day, middle + 7 * day), "{middle}");
    }
    // What is stated of the end: a day apart, until eight hours before it.
    let hours = OVER - 8 * 3_600_000 - 1_000;
    let gap = |legacy: u64, current: u64| {
        span(CURRENT, current, current).start().checked_sub(*span(LEGACY, legacy, legacy).end())
    };
    assert_eq!(gap(hours, hours), None);
    assert_eq!(gap(hours - day, hours), None);
    assert!(gap(hours - day - 5_000, hours).is_some());
}

#[test]
fn another_clock_does_not_make_it_forget() {
    let ids = frozen(SnowflakeIds::legacy_slot(slot(5)), NOW);
    let first = next(&ids);
    assert_eq!(next(&ids.with_clock(|| 5)), first + 1);
}

#[test]
fn where_the_time_starts_over_ids_stay_in_range_and_apart() {
    for (ids, folded, per_millisecond) in [
        (SnowflakeIds::current(255, ProcessId::MAX), CURRENT_FOLDED, 1024),
        (SnowflakeIds::legacy(MachineId::MAX), LEGACY_FOLDED, 4096),
    ] {
        let time = |id: u64| if per_millisecond == 4096 { legacy_fields(id).0 } else { current_fields(id).0 };
        // The last millisecond in range, since numbers above are folded to small ones.
        let end = OVER - folded;
        let now = Arc::new(AtomicU64::new(end - 2));
        let ids = set_by_hand(ids, &now);
        let mut seen: HashSet<u64> = (0..per_millisecond - 1).map(|_| next(&ids)).collect();
        // All bits set is no id, so one is left out here; the next millisecond in range is minutes away.
        assert_eq!(seen.iter().max(), Some(&DisaggRequestId::MAX.get()));
        let first = 3 * folded;
        for clock in [end - 2, end - 1] {
            now.store(clock, Ordering::Relaxed);
            assert_eq!(ids.make().unwrap_err().kind(), IdErrorKind::Exhausted);
        }
        for clock in
            [end, end + 1, OVER - 1, OVER, OVER + 1, OVER + first - 1, OVER + first, OVER + first + 1]
        {
            now.store(clock, Ordering::Relaxed);
            for _ in 0..2000 {
                let id = next(&ids);
                assert!(seen.insert(id) && time(id) >= first && time(id) < first + 20, "{clock}");
            }
        }
        assert_eq!(seen.iter().map(|id| time(*id)).min(), Some(first));
    }
}

#[test]
fn odd_clocks_give_ids_or_an_error() {
    let now = Arc::new(AtomicU64::new(0));
    let ids = set_by_hand(SnowflakeIds::current_slot(slot(0)), &now);
    let mut last = next(&ids);
    assert_eq!(last, 1 << 42);
    for clock in [u64::MAX, u64::MAX >> 9, 1 << 54, 1 << 53] {
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
    // The last reading that is taken: no sum overflows, whatever is borrowed.
    for (layout, counter) in [(CURRENT, 10), (LEGACY, 12)] {
        let end = (1 << 63 >> counter) - 1;
        let now = layout.tick(end).unwrap();
        assert!(layout.next(0, now, 0).is_some());
        assert!(layout.next(now + (59_999 << counter), now, 0).is_some());
        assert_eq!(layout.tick(end + 1), None);
    }
    let ids = SnowflakeIds::current_slot(slot(0)).with_clock(|| u64::MAX);
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
fn random_ids_are_spread_evenly_over_the_range() {
    const COUNT: usize = 40_000;
    let ids: Vec<u64> = (0..COUNT).map(|_| next(&RandomIds::new())).collect();
    assert_eq!(ids.iter().collect::<HashSet<_>>().len(), COUNT);
    // Ten standard deviations from the middle: 100 each. A good generator gets that far once in 10^21 tries
    // (Hoeffding), for one bit.
    let within = |ones: usize| ones.abs_diff(COUNT / 2) < 1_000;
    for bit in 0..63 {
        let ones = ids.iter().filter(|id| *id >> bit & 1 == 1).count();
        assert!(within(ones), "bit {bit} is set in {ones} of {COUNT}");
        // Nor do two neighbours agree more often than not, or an id with the one before it.
        let changes = ids.iter().filter(|id| (*id ^ *id >> 1) >> bit & 1 == 1).count();
        assert!(bit == 62 || within(changes), "bits {bit} and {}: {changes} of {COUNT}", bit + 1);
        let changes = ids.windows(2).filter(|ids| (ids[0] ^ ids[1]) >> bit & 1 == 1).count();
        assert!(within(changes), "bit {bit} changes {changes} times of {COUNT}");
    }
    assert!(ids.iter().all(|id| *id < 1 << 63));
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
