//! The client leaves, or something above gives up: in each window, what is dropped and what is finished.

use std::{sync::Arc, time::Duration};

use tokio::time::advance;
use tokio_test::assert_ready_ok;

use super::*;
use crate::{
    leg::{HangUp, LegError, LegErrorKind},
    test_util::ScriptHandle,
};

const BOUND: Duration = Duration::from_secs(30);

/// How far a call has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd)]
enum Window {
    NotPolled,
    LegRuns,
    Head,
    InnerNotReady,
    InnerCalled,
}

const OPEN: [Window; 3] = [Window::Head, Window::InnerNotReady, Window::InnerCalled];

type InnerCall = (Request<Handoff<Primed>>, LegReply<Response<ScriptedBody>>);

struct Reached {
    s: Setup,
    call: Option<Call>,
    leg: LegReply<Response<Bytes>>,
    inner: Option<InnerCall>,
}

async fn reach(window: Window, settler: Settler) -> Reached {
    let mut s = setup(settler);
    s.inner.block();
    let mut call = s.call();
    let (request, mut leg) = s.leg.try_next().unwrap();
    let mut inner = None;
    if window >= Window::LegRuns {
        assert_pending!(call.poll());
    }
    if window >= Window::Head {
        head_arrives(&request, 200);
    }
    if window >= Window::InnerNotReady {
        leg.send_response(context_reply(200, DUE));
        assert_pending!(call.poll());
    }
    if window >= Window::InnerCalled {
        s.inner.unblock();
        assert_pending!(call.poll());
        inner = s.inner.try_next();
        assert!(inner.is_some());
    }
    Reached { s, call: Some(call), leg, inner }
}

impl Reached {
    fn leave(&mut self) {
        self.call = None;
    }

    /// Goes on as the workers do, up to the head of the generation reply.
    async fn go_on(&mut self, window: Window, body: ScriptedBody) -> ScriptHandle {
        let script = body.handle();
        if window == Window::Head {
            self.leg.send_response(context_reply(200, DUE));
            background().await;
        }
        if window <= Window::InnerNotReady {
            assert!(self.s.inner.try_next().is_none(), "readiness is waited for here too");
            self.s.inner.unblock();
            background().await;
            self.inner = self.s.inner.try_next();
        }
        let (_, reply) = self.inner.as_mut().expect("the generation leg is sent");
        reply.send_response(Response::new(body));
        background().await;
        script
    }
}

#[tokio::test]
async fn before_the_head_the_leg_is_dropped() {
    for window in [Window::NotPolled, Window::LegRuns] {
        let mut at = reach(window, Settler::new(BOUND)).await;
        at.leave();
        assert!(at.leg.is_cancelled(), "{window:?}: closing the connection is what aborts the request");
        background().await;
        assert!(at.s.inner.try_next().is_none());
        assert_eq!((at.s.ends(), at.s.settler.active()), (vec![], 0), "{window:?}");
        assert_eq!(at.s.settler.counts(), Default::default());
    }
}

/// The worker may hold the cache, but nothing says so.
#[tokio::test]
async fn a_leg_that_never_signals_is_dropped_until_its_reply_is_whole() {
    let mut at = reach(Window::LegRuns, Settler::new(BOUND)).await;
    at.leg.send_response(context_reply(200, DUE));
    at.leave();
    assert!(at.leg.is_cancelled());
    assert_eq!((at.s.ends(), at.s.settler.active()), (vec![], 0));
}

#[tokio::test(start_paused = true)]
async fn after_the_head_the_handoff_is_finished_up_to_its_first_byte() {
    for window in OPEN {
        let mut at = reach(window, Settler::new(BOUND)).await;
        at.leave();
        assert!(!at.leg.is_cancelled(), "{window:?}");
        assert_eq!((at.s.ends(), at.s.settler.active()), (vec![], 1), "{window:?}");

        let body = ScriptedBody::new().pending().data("").pending().data("x").pending().data("y");
        let script = at.go_on(window, body).await;
        script.wake();
        background().await;
        assert_eq!((at.s.ends(), at.s.settler.active()), (vec![], 1), "an empty frame shows nothing");
        script.wake();
        background().await;
        assert_eq!((at.s.ends(), at.s.settler.active()), (vec!["collected"], 0), "{window:?}");
        assert!(script.is_dropped(), "nobody is there for the rest");
        assert_eq!(at.s.settler.counts().settled, 1);
        drop(at.inner.take());
        assert_eq!(at.s.ends(), ["collected"], "counted once");
        at.s.settler.idle().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_finished_handoff_may_also_come_to_nothing() {
    type End = fn(&mut Reached);
    let cases: [(Window, End, &str); 8] = [
        (Window::Head, |at| at.leg.send_error("reset"), "failed"),
        (Window::Head, |at| at.leg.send_response(context_reply(200, "{}")), "failed"),
        (Window::Head, |at| at.leg.send_response(context_reply(200, ABORTED)), "released"),
        (Window::InnerNotReady, |at| at.s.inner.fail_ready("gone"), "failed"),
        (Window::InnerCalled, |at| at.inner.as_mut().unwrap().1.send_error("refused"), "failed"),
        (Window::InnerCalled, |at| respond(at, 400, ScriptedBody::new().pending()), "refused"),
        (Window::InnerCalled, |at| respond(at, 200, ScriptedBody::new().data("")), "failed"),
        (Window::InnerCalled, |at| respond(at, 200, ScriptedBody::new().error("reset")), "failed"),
    ];
    for (case, (window, end, expected)) in cases.into_iter().enumerate() {
        let mut at = reach(window, Settler::new(BOUND)).await;
        at.leave();
        end(&mut at);
        background().await;
        assert_eq!((at.s.ends(), at.s.settler.active()), (vec![expected], 0), "case {case}");
        assert_eq!(at.s.settler.counts().settled, 1, "case {case}");
    }
}

fn respond(at: &mut Reached, status: u16, body: ScriptedBody) {
    let response = Response::builder().status(status).body(body).unwrap();
    at.inner.as_mut().unwrap().1.send_response(response);
}

#[tokio::test(start_paused = true)]
async fn a_settlement_is_given_up_at_its_bound() {
    for window in OPEN {
        let mut at = reach(window, Settler::new(BOUND)).await;
        at.leave();
        background().await;
        advance(BOUND - Duration::from_millis(1)).await;
        background().await;
        assert_eq!((at.s.ends(), at.s.settler.active()), (vec![], 1), "{window:?}");
        advance(Duration::from_millis(1)).await;
        background().await;
        assert_eq!((at.s.ends(), at.s.settler.active()), (vec!["abandoned"], 0), "{window:?}");
        let (leg, inner) = (at.leg.is_cancelled(), at.inner.as_ref().map(|(_, reply)| reply.is_cancelled()));
        let expected = match window {
            Window::Head => (true, None),
            Window::InnerNotReady => (false, None),
            _ => (false, Some(true)),
        };
        assert_eq!((leg, inner), expected, "{window:?}");
    }
}

#[tokio::test]
async fn without_settlement_the_handoff_is_dropped_and_counted() {
    for (settler, why) in [(Settler::off(), "off"), (Settler::new(BOUND).with_most(0), "no place")] {
        for window in OPEN {
            let mut at = reach(window, settler.clone()).await;
            let before = at.s.ends().len();
            at.leave();
            let running = match &at.inner {
                Some((_, reply)) => reply.is_cancelled(),
                None => window == Window::InnerNotReady || at.leg.is_cancelled(),
            };
            assert!(running, "{why} {window:?}");
            assert_eq!(at.s.ends()[before..], ["abandoned"], "{why} {window:?}");
            assert_eq!(settler.active(), 0);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn no_more_are_settled_at_a_time_than_allowed() {
    let settler = Settler::new(BOUND).with_most(2);
    let mut all = Vec::new();
    for _ in 0..3 {
        let mut at = reach(Window::InnerCalled, settler.clone()).await;
        at.leave();
        all.push(at);
    }
    assert_eq!((ends(&settler), settler.active()), (vec!["abandoned"], 2));
    let cancelled = |at: &Reached| at.inner.as_ref().unwrap().1.is_cancelled();
    assert_eq!(all.iter().map(cancelled).collect::<Vec<_>>(), [false, false, true]);
    respond(&mut all[0], 200, ScriptedBody::new().data("x"));
    background().await;
    assert_eq!(settler.active(), 1, "a place is free again");
    let mut at = reach(Window::Head, settler.clone()).await;
    at.leave();
    assert_eq!((ends(&settler), settler.active()), (vec!["collected", "abandoned"], 2));
}

#[test]
fn outside_of_a_runtime_a_drop_only_counts() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    for window in OPEN {
        let mut at = runtime.block_on(reach(window, Settler::new(BOUND)));
        at.leave();
        assert_eq!((at.s.ends(), at.s.settler.active()), (vec!["abandoned"], 0), "{window:?}");
    }
}

/// The runtime is shut down with calls in it, and with settlements running.
#[test]
fn a_runtime_that_goes_away_leaves_nothing_uncounted() {
    let settler = Settler::new(BOUND);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(async {
        let mut settling = reach(Window::InnerCalled, settler.clone()).await;
        settling.leave();
        background().await;
        assert_eq!(settler.active(), 1);
        let mut waiting = reach(Window::InnerNotReady, settler.clone()).await;
        let call = waiting.call.take().unwrap().into_inner();
        tokio::spawn(async move {
            let _ = call.await;
        });
        background().await;
    });
    drop(runtime);
    assert_eq!((ends(&settler), settler.active()), (vec!["abandoned"; 2], 0));
}

#[tokio::test]
async fn a_call_that_has_returned_leaves_its_handoff_to_the_response() {
    let mut at = reach(Window::InnerCalled, Settler::new(BOUND)).await;
    respond(&mut at, 200, ScriptedBody::new().data("x"));
    let response = assert_ready_ok!(at.call.as_mut().unwrap().poll());
    at.leave();
    assert_eq!((at.s.ends(), at.s.settler.active()), (vec![], 0), "the inner service has the ticket");
    drop(response);
    let (request, _) = at.inner.take().unwrap();
    drop(request);
    // This inner service has not said what became of it.
    assert_eq!((at.s.ends(), at.s.settler.active()), (vec!["abandoned"], 0));
}

/// A deadline above strikes in each window as a client that leaves does.
#[tokio::test(start_paused = true)]
async fn a_timeout_above_is_a_client_that_leaves() {
    const DEADLINE: Duration = Duration::from_secs(5);
    for window in [Window::LegRuns, Window::Head, Window::InnerNotReady, Window::InnerCalled] {
        let settler = Settler::new(BOUND);
        let (leg_service, mut legs) = leg::<Request<LegBody>, Response<Bytes>>();
        let (inner_service, mut inners) = leg::<Request<Handoff<Primed>>, Response<ScriptedBody>>();
        let context = ContextLayer::new(leg_service).settle(settler.clone()).layer(inner_service);
        let mut service = tower::timeout::Timeout::new(context, DEADLINE);
        inners.block();
        assert_ready_ok!(task::spawn(service.ready()).poll());
        let mut call = task::spawn(service.call(handoffs_request()));
        assert_pending!(call.poll());
        let (request, mut reply) = legs.try_next().unwrap();
        if window >= Window::Head {
            head_arrives(&request, 200);
        }
        if window >= Window::InnerNotReady {
            reply.send_response(context_reply(200, DUE));
            assert_pending!(call.poll());
        }
        if window >= Window::InnerCalled {
            inners.unblock();
            assert_pending!(call.poll());
        }
        advance(DEADLINE).await;
        let error = tokio_test::assert_ready_err!(call.poll());
        assert!(error.is::<tower::timeout::error::Elapsed>());
        assert_eq!(settler.active(), 0, "the timeout still holds the call: {window:?}");
        drop(call);
        let settles = window >= Window::Head;
        assert_eq!((ends(&settler), settler.active()), (vec![], usize::from(settles)), "{window:?}");
        assert_eq!(reply.is_cancelled(), window == Window::LegRuns);
        if window == Window::Head {
            reply.send_response(context_reply(200, DUE));
        }
        inners.unblock();
        background().await;
        if settles {
            let (_, mut reply) = inners.try_next().unwrap();
            reply.send_response(Response::new(ScriptedBody::new().data("x")));
            background().await;
            assert_eq!((ends(&settler), settler.active()), (vec!["collected"], 0), "{window:?}");
        }
    }
}

/// Inside of a settled call, what is dropped must not settle the same handoff again.
#[tokio::test(start_paused = true)]
async fn a_handoff_is_settled_once() {
    let mut at = reach(Window::InnerCalled, Settler::new(BOUND)).await;
    let (request, _) = at.inner.as_mut().unwrap();
    let handoff = std::mem::replace(request.body_mut(), primed(STREAMED, DUE, Settler::off().ticket()));
    let crate::handoff::Verdict::Generate(open) = handoff.judge() else { panic!("generation is due") };
    at.leave();
    assert_eq!(at.s.settler.active(), 1);
    let alive = Arc::new(());
    let held = alive.clone();
    open.ticket().settle(async move {
        let _held = held;
        std::future::pending::<()>().await;
    });
    assert_eq!((at.s.settler.active(), Arc::strong_count(&alive)), (1, 1));
    respond(&mut at, 200, ScriptedBody::new().data("x"));
    background().await;
    assert_eq!((at.s.ends(), at.s.settler.active()), (vec!["collected"], 0));
}

// === a leg that can be asked to end ===

/// A call whose leg runs and would hang up when it is asked to.
async fn hanging_up(settler: Settler) -> (Reached, Request<LegBody>) {
    let mut s = setup(settler);
    s.inner.block();
    let (call, request, leg) = s.running().await;
    request.extensions().get::<HangUp>().unwrap().accept();
    (Reached { s, call: Some(call), leg, inner: None }, request)
}

fn is_asked(request: &Request<LegBody>) -> bool {
    request.extensions().get::<HangUp>().unwrap().is_wanted(std::task::Waker::noop())
}

/// The worker had committed the cache when its client left, and the reply was on its way.
#[tokio::test(start_paused = true)]
async fn a_reply_that_was_on_its_way_is_settled() {
    let (mut at, request) = hanging_up(Settler::new(BOUND)).await;
    assert!(!is_asked(&request));
    at.leave();
    assert!(is_asked(&request) && !at.leg.is_cancelled());
    assert_eq!((at.s.ends(), at.s.settler.active()), (vec![], 1));
    head_arrives(&request, 200);
    let script = at.go_on(Window::Head, ScriptedBody::new().data("x").pending()).await;
    assert!(script.is_dropped());
    assert_eq!((at.s.ends(), at.s.settler.active()), (vec!["collected"], 0));
    assert_eq!(at.s.settler.counts().settled, 1);
}

/// A head that comes in the last moment gives the rest of the handoff the time of a settlement.
#[tokio::test(start_paused = true)]
async fn a_reply_in_the_last_moment_has_all_the_time_of_a_settlement() {
    for (late, end) in [(BOUND - Duration::from_millis(1), "collected"), (BOUND, "abandoned")] {
        let (mut at, request) = hanging_up(Settler::new(BOUND)).await;
        at.leave();
        background().await;
        advance(Duration::from_millis(499)).await;
        head_arrives(&request, 200);
        background().await;
        advance(Duration::from_millis(1)).await;
        background().await;
        advance(late).await;
        background().await;
        if end == "collected" {
            at.go_on(Window::Head, ScriptedBody::new().data("x")).await;
        }
        assert_eq!((at.s.ends(), at.s.settler.active()), (vec![end], 0));
    }
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_hangs_up_as_well_held_nothing() {
    let (mut at, _request) = hanging_up(Settler::new(BOUND)).await;
    at.leave();
    at.leg.send_error(LegError::new(LegErrorKind::Lost));
    background().await;
    assert_eq!((at.s.ends(), at.s.settler.active()), (vec![], 0));
    assert!(at.s.inner.try_next().is_none());
    // So does one that refuses.
    let (mut at, request) = hanging_up(Settler::new(BOUND)).await;
    at.leave();
    head_arrives(&request, 400);
    at.leg.send_response(context_reply(400, "{}"));
    background().await;
    assert_eq!((at.s.ends(), at.s.settler.active()), (vec![], 0));
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_says_nothing_more_is_left_after_half_a_second() {
    let (mut at, _request) = hanging_up(Settler::new(BOUND)).await;
    at.leave();
    background().await;
    advance(Duration::from_millis(499)).await;
    background().await;
    assert!(!at.leg.is_cancelled());
    advance(Duration::from_millis(2)).await;
    background().await;
    assert!(at.leg.is_cancelled());
    assert_eq!((at.s.ends(), at.s.settler.active()), (vec![], 0));
}

/// Where nothing is settled, or nothing can be, the leg is dropped as one that cannot hang up.
#[tokio::test]
async fn without_a_settler_or_a_place_the_leg_is_dropped() {
    for settler in [Settler::off(), Settler::new(BOUND).with_most(0)] {
        let (mut at, _request) = hanging_up(settler).await;
        at.leave();
        assert!(at.leg.is_cancelled());
        assert_eq!((at.s.ends(), at.s.settler.active()), (vec![], 0));
    }
}

/// Legs that nobody waits for must not use up what handoffs need that hold a cache.
#[tokio::test(start_paused = true)]
async fn a_leg_that_was_asked_to_end_takes_no_place_of_a_settlement() {
    let settler = Settler::new(BOUND).with_most(1);
    let (mut retiring, request) = hanging_up(settler.clone()).await;
    retiring.leave();
    assert_eq!(settler.active(), 1);
    let mut committed = reach(Window::Head, settler.clone()).await;
    committed.leave();
    assert!(!committed.leg.is_cancelled());
    committed.go_on(Window::Head, ScriptedBody::new().data("x").pending()).await;
    assert_eq!((settler.counts().collected, settler.counts().abandoned), (1, 0));
    // What turns out to be committed needs a place like any other.
    let mut other = reach(Window::Head, settler.clone()).await;
    other.leave();
    head_arrives(&request, 200);
    retiring.leg.send_response(context_reply(200, DUE));
    background().await;
    assert_eq!(settler.counts().abandoned, 1);
    other.go_on(Window::Head, ScriptedBody::new().data("x").pending()).await;
    assert_eq!((settler.counts().collected, settler.active()), (2, 0));
}
