use std::{
    future::{pending, ready},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::{
    sync::oneshot,
    task::yield_now,
    time::{advance, sleep},
};
use tokio_test::{assert_pending, assert_ready, task};

use super::*;
use crate::test_util::Recorded;

const TIMEOUT: Duration = Duration::from_secs(30);
const TICK: Duration = Duration::from_millis(1);

/// A ticket whose context worker holds something.
fn committed(settler: &Settler) -> Ticket {
    let ticket = settler.ticket();
    assert!(!ticket.is_open());
    ticket.commit();
    assert!(ticket.is_open());
    ticket
}

fn counts(change: impl FnOnce(&mut SettleCounts)) -> SettleCounts {
    let mut counts = SettleCounts::default();
    change(&mut counts);
    counts
}

#[tokio::test(start_paused = true)]
async fn an_open_handoff_is_finished_in_the_background() {
    let settler = Settler::new(TIMEOUT);
    let ticket = committed(&settler);
    let (collected, wait) = oneshot::channel();
    let inside = ticket.clone();
    ticket.settle(async move {
        wait.await.unwrap();
        inside.resolve(Resolution::Collected);
    });
    drop(ticket); // the client is long gone
    assert_eq!((settler.active(), settler.counts()), (1, SettleCounts::default()));
    let mut idle = task::spawn(settler.idle());
    assert_pending!(idle.poll());
    yield_now().await;
    collected.send(()).unwrap();
    yield_now().await;
    assert!(idle.is_woken());
    assert_ready!(idle.poll());
    assert_eq!(settler.active(), 0);
    let expected = counts(|c| (c.settled, c.collected) = (1, 1));
    assert_eq!(settler.counts(), expected);
    assert_eq!(settler.counts().orphaned(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_settlement_is_given_up_after_the_timeout_and_not_before() {
    let settler = Settler::new(TIMEOUT);
    let ticket = committed(&settler);
    ticket.settle(pending());
    yield_now().await;
    advance(TIMEOUT - TICK).await;
    yield_now().await;
    assert!(ticket.is_open());
    assert_eq!(settler.active(), 1);
    advance(TICK + TICK).await;
    settler.idle().await;
    assert!(!ticket.is_open());
    assert_eq!(settler.counts(), counts(|c| (c.settled, c.abandoned) = (1, 1)));
    assert_eq!(settler.counts().orphaned(), 1);
}

#[tokio::test(start_paused = true)]
async fn one_that_ends_when_its_time_is_up_has_ended() {
    let settler = Settler::new(TIMEOUT);
    let ticket = committed(&settler);
    let inside = ticket.clone();
    ticket.settle(async move {
        sleep(TIMEOUT).await;
        inside.resolve(Resolution::Collected);
    });
    settler.idle().await;
    assert_eq!(settler.counts(), counts(|c| (c.settled, c.collected) = (1, 1)));
}

#[tokio::test(start_paused = true)]
async fn one_that_ends_without_a_result_has_failed() {
    let settler = Settler::new(TIMEOUT);
    committed(&settler).settle(ready(()));
    settler.idle().await;
    assert_eq!(settler.counts(), counts(|c| (c.settled, c.failed) = (1, 1)));
}

#[tokio::test(start_paused = true)]
async fn one_that_panics_is_counted_and_gives_its_place_back() {
    let settler = Settler::new(TIMEOUT).with_most(1);
    let ticket = committed(&settler);
    let inside = ticket.clone();
    ticket.settle(async move {
        let _inside = inside;
        panic!("a settlement panics");
    });
    drop(ticket);
    settler.idle().await;
    assert_eq!(settler.counts(), counts(|c| (c.settled, c.abandoned) = (1, 1)));
    committed(&settler).settle(pending());
    assert_eq!(settler.active(), 1);
}

#[tokio::test(start_paused = true)]
async fn no_more_than_the_most_run_at_a_time() {
    let settler = Settler::new(TIMEOUT).with_most(2);
    (0..3).for_each(|_| committed(&settler).settle(pending()));
    assert_eq!(settler.active(), 2);
    // What could not be settled was not settled, and is orphaned.
    assert_eq!(settler.counts(), counts(|c| c.abandoned = 1));
    settler.idle().await;
    assert_eq!(settler.counts(), counts(|c| (c.settled, c.abandoned) = (2, 3)));
    committed(&settler).settle(ready(()));
    assert_eq!(settler.active(), 1, "the places are free again");
    assert_eq!(Settler::new(TIMEOUT).with_most(0).active(), 0);
}

#[tokio::test(start_paused = true)]
async fn off_means_that_nothing_is_run() {
    for settler in [Settler::off(), Settler::off().with_most(5)] {
        let (kept, ended) = oneshot::channel::<()>();
        let ticket = committed(&settler);
        ticket.settle(async move {
            let _kept = kept;
            pending().await
        });
        assert!(ended.await.is_err(), "dropped at once");
        assert_eq!((settler.active(), settler.counts()), (0, counts(|c| c.abandoned = 1)));
        settler.idle().await;
    }
}

#[test]
fn without_a_runtime_a_handoff_is_abandoned() {
    let settler = Settler::new(TIMEOUT);
    let ticket = committed(&settler);
    ticket.settle(pending());
    assert!(!ticket.is_open());
    assert_eq!((settler.active(), settler.counts()), (0, counts(|c| c.abandoned = 1)));
}

#[test]
fn a_runtime_that_goes_away_leaves_nothing_uncounted() {
    let settler = Settler::new(TIMEOUT);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(async {
        committed(&settler).settle(pending());
        yield_now().await;
    });
    assert_eq!(settler.active(), 1);
    drop(runtime);
    assert_eq!((settler.active(), settler.counts().abandoned), (0, 1));
}

#[tokio::test(start_paused = true)]
async fn what_is_not_open_is_not_settled() {
    let settler = Settler::new(TIMEOUT);
    let early = settler.ticket();
    early.settle(pending());
    early.resolve(Resolution::Failed);
    drop(early);
    assert_eq!((settler.active(), settler.counts()), (0, SettleCounts::default()), "never committed");
    let done = committed(&settler);
    done.resolve(Resolution::Collected);
    done.settle(pending());
    assert_eq!((settler.active(), settler.counts()), (0, counts(|c| c.collected = 1)));
}

#[tokio::test(start_paused = true)]
async fn a_settlement_inside_of_a_settlement_is_ignored() {
    /// As a future of a layer does when it is dropped.
    struct SettlesOnDrop(Ticket, Arc<AtomicUsize>);
    impl Drop for SettlesOnDrop {
        fn drop(&mut self) {
            let runs = self.1.clone();
            self.0.settle(async move {
                runs.fetch_add(1, Ordering::Relaxed);
            });
        }
    }
    let runs = Arc::new(AtomicUsize::new(0));
    let settler = Settler::new(TIMEOUT);
    // Dropped when it is done, when its time is up, and at once for want of a place.
    for (settler, rest_ends) in [(&settler, true), (&settler, false), (&Settler::off(), false)] {
        let ticket = committed(settler);
        let inside = SettlesOnDrop(ticket.clone(), runs.clone());
        ticket.settle(async move {
            let _inside = inside;
            if !rest_ends {
                pending::<()>().await;
            }
        });
        settler.idle().await;
        assert_eq!(settler.active(), 0);
    }
    assert_eq!(runs.load(Ordering::Relaxed), 0);
    assert_eq!(settler.counts(), counts(|c| (c.settled, c.failed, c.abandoned) = (2, 1, 1)));
}

#[test]
fn exactly_the_first_resolution_counts() {
    use Resolution::*;
    for first in [Collected, Released, Refused, Failed, Abandoned] {
        let settler = Settler::new(TIMEOUT);
        let ticket = committed(&settler);
        let clone = ticket.clone();
        ticket.resolve(first);
        assert!(!clone.is_open());
        for later in [Collected, Released, Refused, Failed, Abandoned] {
            clone.resolve(later);
        }
        drop((ticket, clone));
        let expected = counts(|c| match first {
            Collected => c.collected = 1,
            Released => c.released = 1,
            Refused => c.refused = 1,
            Failed => c.failed = 1,
            Abandoned => c.abandoned = 1,
        });
        assert_eq!(settler.counts(), expected);
        assert_eq!(settler.counts().orphaned(), u64::from(first.is_orphaned()));
    }
}

#[test]
fn a_ticket_that_is_lost_was_abandoned_once_its_last_clone_is_gone() {
    let settler = Settler::new(TIMEOUT);
    let ticket = committed(&settler);
    let clone = ticket.clone();
    drop(ticket);
    assert_eq!(settler.counts(), SettleCounts::default());
    drop(clone);
    assert_eq!(settler.counts(), counts(|c| c.abandoned = 1));
    drop(settler.ticket());
    assert_eq!(settler.counts().abandoned, 1, "nothing was held for this one");
}

#[test]
fn resolutions_from_many_threads_count_once() {
    let settler = Settler::new(TIMEOUT);
    for _ in 0..200 {
        let ticket = committed(&settler);
        std::thread::scope(|scope| {
            for resolution in [Resolution::Collected, Resolution::Failed, Resolution::Abandoned] {
                let ticket = ticket.clone();
                scope.spawn(move || ticket.resolve(resolution));
            }
        });
    }
    let counts = settler.counts();
    assert_eq!(counts.collected + counts.failed + counts.abandoned, 200);
}

#[tokio::test(start_paused = true)]
async fn idle_waits_for_the_last_and_may_be_given_up() {
    let settler = Settler::new(TIMEOUT);
    assert_ready!(task::spawn(settler.idle()).poll());
    let (one, two) = (oneshot::channel::<()>(), oneshot::channel::<()>());
    for wait in [one.1, two.1] {
        committed(&settler).settle(async {
            let _ = wait.await;
        });
    }
    let mut gives_up = task::spawn(settler.idle());
    assert_pending!(gives_up.poll());
    let mut idle = task::spawn(settler.idle());
    assert_pending!(idle.poll());
    drop((gives_up, one.0));
    yield_now().await;
    assert_pending!(idle.poll());
    drop(two.0);
    yield_now().await;
    assert_ready!(idle.poll());
    assert_eq!(settler.counts().failed, 2, "all counted when it returns");
}

#[test]
fn metrics_say_what_was_settled_and_what_is_orphaned() {
    let recorded = Recorded::default();
    metrics::with_local_recorder(&recorded, || {
        let settler = Settler::new(TIMEOUT);
        committed(&settler).resolve(Resolution::Collected);
        assert_eq!(recorded.all().len(), 0, "the usual way is neither");
        committed(&settler).resolve(Resolution::Refused);
        drop(committed(&settler));
        committed(&settler).settle(pending()); // no runtime here
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            committed(&settler).settle(ready(()));
            settler.idle().await;
        });
    });
    let expected = [
        ("disagg_orphaned_handoffs_total{reason=abandoned}", 2.0),
        ("disagg_orphaned_handoffs_total{reason=failed}", 1.0),
        ("disagg_orphaned_handoffs_total{reason=refused}", 1.0),
        ("disagg_settlements_total{result=failed}", 1.0),
    ];
    assert_eq!(recorded.all(), expected.map(|(name, value)| (name.to_owned(), value)).into());
}

#[test]
fn names_are_those_of_the_documentation() {
    use Resolution::*;
    let names = [Collected, Released, Refused, Failed, Abandoned].map(|r| (r.as_str(), r.is_orphaned()));
    let expected =
        [("collected", false), ("released", false), ("refused", true), ("failed", true), ("abandoned", true)];
    assert_eq!(names, expected);
    fn shared<T: Clone + Send + Sync + std::fmt::Debug>() {}
    shared::<Settler>();
    shared::<Ticket>();
    assert_eq!(Settler::new(TIMEOUT).active(), 0);
}
