use std::iter;

use bytes::Bytes;
use http::HeaderMap;
use http_body::SizeHint;
use http_body_util::Full;
use tokio_test::{assert_pending, assert_ready, assert_ready_err, assert_ready_ok, task};

use super::*;
use crate::{
    error::{ContextError, ContextErrorKind, find},
    test_util::ScriptedBody,
};

/// Reads a body that does not pause.
fn collect(body: ScriptedBody, limit: u64, budget: &BufferBudget) -> Result<Bytes, CollectError> {
    assert_ready!(task::spawn(Collect::new(body, limit, budget)).poll())
}

fn pieces(sizes: &[usize]) -> ScriptedBody {
    sizes.iter().fold(ScriptedBody::new(), |body, &size| body.data(vec![b'x'; size]))
}

#[derive(Debug, PartialEq)]
enum Was {
    Read(usize),
    TooLarge,
    Overloaded,
}

#[test]
fn limit_and_budget_hold_to_the_byte() {
    use Was::*;
    // (pieces, limit, budget, result)
    let cases: &[(&[usize], u64, u64, Was)] = &[
        (&[], 0, 0, Read(0)),
        (&[0, 0], 0, 0, Read(0)),
        (&[1], 0, 9, TooLarge),
        (&[9], 10, 100, Read(9)),
        (&[10], 10, 100, Read(10)),
        (&[11], 10, 100, TooLarge),
        (&[5, 4], 10, 100, Read(9)),
        (&[5, 5], 10, 100, Read(10)),
        (&[5, 6], 10, 100, TooLarge),
        (&[5, 0, 5, 0], 10, 100, Read(10)),
        (&[10], 100, 10, Read(10)),
        (&[11], 100, 10, Overloaded),
        (&[5, 5], 100, 10, Read(10)),
        (&[5, 6], 100, 10, Overloaded),
        (&[11], 10, 10, TooLarge),
        (&[3], u64::MAX, u64::MAX, Read(3)),
    ];
    for (sizes, limit, room, was) in cases {
        for exact in [false, true] {
            let body = if exact { pieces(sizes).exact_size() } else { pieces(sizes) };
            let budget = BufferBudget::new(*room);
            let result = match collect(body, *limit, &budget) {
                Ok(bytes) => {
                    assert_eq!(budget.held(), bytes.len() as u64);
                    assert!(bytes.iter().all(|&byte| byte == b'x'));
                    Read(bytes.len())
                }
                Err(CollectError::TooLarge) => TooLarge,
                Err(CollectError::Overloaded) => Overloaded,
                Err(CollectError::Body(error)) => panic!("{error}"),
            };
            assert_eq!(result, *was, "{sizes:?} {limit} {room} exact: {exact}");
            assert_eq!(budget.held(), 0, "all given back");
        }
    }
}

#[test]
fn a_body_that_announces_too_much_is_not_read() {
    for size in [11, u64::MAX] {
        let body = ScriptedBody::new().data("a").claim_size(SizeHint::with_exact(size));
        let handle = body.handle();
        let error = collect(body, 10, &BufferBudget::unlimited()).unwrap_err();
        assert!(matches!(error, CollectError::TooLarge));
        assert_eq!(handle.polls(), 0, "{size}");
    }
    // One that cannot be true, after a first piece.
    let body = ScriptedBody::new().data("a").data("b").claim_size(SizeHint::with_exact(u64::MAX));
    assert!(matches!(collect(body, u64::MAX, &BufferBudget::unlimited()), Ok(b) if b == "ab"));
    // An upper bound is not an announcement.
    let mut hint = SizeHint::new();
    hint.set_upper(1000);
    let body = ScriptedBody::new().data("a").claim_size(hint);
    assert_eq!(collect(body, 10, &BufferBudget::unlimited()).unwrap(), "a");
}

#[test]
fn a_lie_about_the_length_allocates_little() {
    let body = ScriptedBody::new().data("a").data("b").claim_size(SizeHint::with_exact(1 << 62));
    let budget = BufferBudget::unlimited();
    let bytes = collect(body, u64::MAX, &budget).unwrap();
    assert_eq!((&bytes[..], budget.held()), (&b"ab"[..], 2));
}

#[test]
fn one_piece_is_not_copied() {
    let budget = BufferBudget::unlimited();
    let data = Bytes::from(vec![1; 100]);
    for body in [
        ScriptedBody::new().data(data.clone()),
        ScriptedBody::new().data("").data(data.clone()).data("").trailers(HeaderMap::new()),
    ] {
        let bytes = collect(body, 100, &budget).unwrap();
        assert_eq!(bytes.as_ptr(), data.as_ptr());
        assert_eq!(bytes, data);
    }
    let full = assert_ready_ok!(task::spawn(Collect::new(Full::new(data.clone()), 100, &budget)).poll());
    assert_eq!(full.as_ptr(), data.as_ptr());
}

#[test]
fn the_budget_is_given_back_with_the_last_slice() {
    let budget = BufferBudget::new(10);
    let bytes = collect(pieces(&[4, 4]), 10, &budget).unwrap();
    let (slice, clone) = (bytes.slice(2..3), bytes.clone());
    drop(bytes);
    assert_eq!(budget.held(), 8);
    drop(clone);
    assert_eq!(budget.held(), 8, "one byte keeps them all");
    assert!(matches!(collect(pieces(&[3]), 10, &budget), Err(CollectError::Overloaded)));
    let more = collect(pieces(&[2]), 10, &budget.clone()).unwrap();
    assert_eq!((budget.held(), budget.limit()), (10, 10));
    drop(slice);
    assert_eq!(budget.held(), 2);
    drop(more);
    assert_eq!(budget.held(), 0);
}

#[test]
fn the_pieces_are_counted_as_they_arrive() {
    let budget = BufferBudget::unlimited();
    let body = ScriptedBody::new().data("abc").pending().data("de").pending();
    let handle = body.handle();
    let mut future = task::spawn(Collect::new(body, 10, &budget));
    assert_eq!((future.is_empty(), budget.held()), (true, 0));
    assert_pending!(future.poll());
    assert_eq!((future.len(), budget.held()), (3, 3));
    handle.wake();
    assert!(future.is_woken());
    assert_pending!(future.poll());
    assert_eq!((future.len(), budget.held()), (5, 5));
    assert!(!format!("{:?}", *future).contains("abc"), "no content in Debug");
    assert!(format!("{:?}", *future).contains("5 bytes"));
    drop(future);
    assert!(handle.is_dropped());
    assert_eq!(budget.held(), 0);
}

#[test]
fn what_was_read_and_the_rest_can_be_taken_out() {
    let budget = BufferBudget::unlimited();
    let body = ScriptedBody::new().data("abc").data("d").pending().data("rest");
    let handle = body.handle();
    // As a pinned future is not given up, through a reference.
    let mut collect = Collect::new(body, 10, &budget);
    assert_pending!(task::spawn(&mut collect).poll());
    let (bytes, rest) = collect.into_parts();
    assert_eq!((&bytes[..], budget.held()), (&b"abcd"[..], 4));
    handle.wake();
    assert_eq!(self::collect(rest, 10, &budget).unwrap(), "rest");
    drop(bytes);
    assert_eq!(budget.held(), 0);
}

#[test]
fn trailers_are_not_kept_and_end_nothing_early() {
    let body = ScriptedBody::new().data("a").trailers(HeaderMap::new());
    let handle = body.handle();
    assert_eq!(collect(body, 10, &BufferBudget::unlimited()).unwrap(), "a");
    assert!(handle.is_ended());
    assert_eq!(handle.polls_after_end(), 0);
}

#[test]
fn an_error_of_the_body_keeps_its_cause() {
    let budget = BufferBudget::unlimited();
    let body = ScriptedBody::new().data("a").error(ContextError::new(ContextErrorKind::Timeout));
    let error = assert_ready_err!(task::spawn(Collect::new(body, 10, &budget)).poll());
    assert!(matches!(error, CollectError::Body(_)));
    assert!(find::<ContextError>(&error).is_some());
    assert_eq!(budget.held(), 0);
    for (error, text) in [
        (CollectError::TooLarge, "larger than the limit"),
        (CollectError::Overloaded, "limit of bytes held"),
        (CollectError::Body("x".into()), "broke off"),
    ] {
        assert!(error.to_string().contains(text));
    }
}

#[test]
fn many_pieces_come_out_in_order() {
    let body = (0..10_000u32).fold(ScriptedBody::new(), |body, n| body.data(n.to_be_bytes().to_vec()));
    let budget = BufferBudget::unlimited();
    let bytes = assert_ready_ok!(task::spawn(Collect::new(body, 40_000, &budget)).poll());
    let expected: Vec<u8> = (0..10_000u32).flat_map(u32::to_be_bytes).collect();
    assert_eq!((&bytes[..], budget.held()), (&expected[..], 40_000));
}

#[test]
fn a_reservation_takes_all_or_nothing() {
    let budget = BufferBudget::new(10);
    let mut one = budget.reservation();
    let mut two = budget.reservation();
    assert!(one.grow(6) && !two.grow(5) && two.grow(4) && !one.grow(1) && one.grow(0));
    assert_eq!((one.bytes(), two.bytes(), budget.held()), (6, 4, 10));
    assert!(!one.grow(u64::MAX));
    assert_eq!(one.budget().held(), 10);
    drop(one);
    assert_eq!(budget.held(), 4);
    assert!(two.grow(6));
    assert_eq!(BufferBudget::default().limit(), u64::MAX);
}

#[test]
fn many_threads_cannot_take_more_than_there_is() {
    let budget = BufferBudget::new(1000);
    let kept: Vec<Reservation> = std::thread::scope(|scope| {
        let run = |_| {
            let budget = budget.clone();
            scope.spawn(move || {
                let take = || {
                    let mut share = budget.reservation();
                    share.grow(7).then_some(share)
                };
                iter::repeat_with(take).take(200).flatten().collect::<Vec<_>>()
            })
        };
        let threads: Vec<_> = (0..4).map(run).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!((kept.len(), budget.held()), (142, 994));
    drop(kept);
    assert_eq!(budget.held(), 0);
}
