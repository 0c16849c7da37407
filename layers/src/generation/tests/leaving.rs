//! The client leaves: in each window, what is dropped and what is held to its first byte.

use std::time::Duration;

use tokio::time::advance;
use tokio_test::assert_ready;

use super::*;

const BOUND: Duration = Duration::from_secs(30);

/// How far a call has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Window {
    NotPolled,
    NoHead,
    StreamHead,
    WholeHead,
    /// The reply announces more than may be held, so it is relayed without having been read.
    RestHead,
}

const OPEN: [Window; 5] =
    [Window::NotPolled, Window::NoHead, Window::StreamHead, Window::WholeHead, Window::RestHead];

/// Whatever of a call the client would drop.
#[allow(dead_code, reason = "held to be dropped")]
enum Held {
    Call(Call),
    Body(RelayBody<Pipe>),
}

struct Reached {
    s: Setup,
    held: Option<Held>,
    reply: LegReply<Response<Pipe>>,
    body: Option<Pipe>,
    end: PipeEnd,
}

async fn reach(window: Window, settler: Settler) -> Reached {
    let mut s = setup(GenerationLayer::new().max_whole(100), settler);
    let handoff = open(STREAMED, s.settler.ticket());
    let mut call = task::spawn(s.service.ready().await.unwrap().call(request(handoff)));
    let (_, mut reply) = s.handle.try_next().unwrap();
    if window != Window::NotPolled {
        assert_pending!(call.poll());
    }
    let (body, end) = pipe();
    let mut body = Some(body);
    let held = match window {
        Window::NotPolled | Window::NoHead => Held::Call(call),
        Window::StreamHead => {
            reply.send_response(events().body(body.take().unwrap()).unwrap());
            Held::Body(assert_ready_ok!(call.poll()).into_body())
        }
        Window::WholeHead => {
            reply.send_response(json().body(body.take().unwrap()).unwrap());
            assert_pending!(call.poll());
            Held::Call(call)
        }
        Window::RestHead => {
            reply.send_response(json().body(body.take().unwrap().announcing(101)).unwrap());
            Held::Body(assert_ready_ok!(call.poll()).into_body())
        }
    };
    Reached { s, held: Some(held), reply, body, end }
}

impl Reached {
    fn ends(&self) -> Vec<&'static str> {
        self.s.ends()
    }

    async fn head(&mut self) {
        if let Some(body) = self.body.take() {
            self.reply.send_response(events().body(body).unwrap());
        }
        background().await;
    }
}

#[tokio::test(start_paused = true)]
async fn before_the_first_byte_the_leg_is_held_to_it() {
    for window in OPEN {
        let mut at = reach(window, Settler::new(BOUND)).await;
        at.held = None;
        assert_eq!((at.ends(), at.s.settler.active()), (vec![], 1), "{window:?}");
        at.head().await;
        assert!(!at.end.is_dropped(), "{window:?}");
        at.end.send("");
        background().await;
        assert_eq!(at.s.settler.active(), 1, "{window:?}: an empty frame shows nothing");
        at.end.send("x");
        background().await;
        assert_eq!((at.ends(), at.s.settler.active()), (vec!["collected"], 0), "{window:?}");
        assert!(at.end.is_dropped(), "{window:?}");
        assert!(!at.reply.is_cancelled());
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_held_may_fail() {
    for window in [Window::NoHead, Window::StreamHead, Window::WholeHead] {
        for breaks in [true, false] {
            let mut at = reach(window, Settler::new(BOUND)).await;
            at.held = None;
            at.head().await;
            if breaks {
                at.end.fail();
            } else {
                at.end.end();
            }
            background().await;
            assert_eq!((at.ends(), at.s.settler.active()), (vec!["failed"], 0), "{window:?}");
        }
    }
    for (status, expected) in
        [(None, "failed"), (Some(400), "refused"), (Some(307), "refused"), (Some(204), "failed")]
    {
        let mut at = reach(Window::NoHead, Settler::new(BOUND)).await;
        at.held = None;
        match status {
            Some(status) => {
                let response = events().status(status).body(at.body.take().unwrap()).unwrap();
                at.reply.send_response(response);
                at.end.end();
            }
            None => at.reply.send_error("reset"),
        }
        background().await;
        assert_eq!((at.s.ends(), at.s.settler.active()), (vec![expected], 0), "{status:?}");
        assert_eq!(at.s.settler.counts().settled, 1);
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_held_is_given_up_at_the_bound() {
    for window in OPEN {
        let mut at = reach(window, Settler::new(BOUND)).await;
        at.held = None;
        background().await;
        advance(BOUND - Duration::from_millis(1)).await;
        background().await;
        assert_eq!((at.ends(), at.s.settler.active()), (vec![], 1), "{window:?}");
        advance(Duration::from_millis(1)).await;
        background().await;
        assert_eq!((at.ends(), at.s.settler.active()), (vec!["abandoned"], 0), "{window:?}");
        assert!(at.body.is_none() == at.end.is_dropped(), "{window:?}");
    }
}

#[tokio::test]
async fn without_settlement_the_leg_is_dropped_at_once() {
    for window in OPEN {
        let mut at = reach(window, Settler::off()).await;
        at.held = None;
        assert_eq!((at.ends(), at.s.settler.active()), (vec!["abandoned"], 0), "{window:?}");
        assert!(at.reply.is_cancelled() || at.end.is_dropped(), "{window:?}");
    }
}

#[test]
fn outside_of_a_runtime_a_drop_only_counts() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    for window in [Window::NoHead, Window::StreamHead, Window::WholeHead] {
        let mut at = runtime.block_on(reach(window, Settler::new(BOUND)));
        at.held = None;
        assert_eq!((at.ends(), at.s.settler.active()), (vec!["abandoned"], 0), "{window:?}");
    }
}

/// From the first byte on closing the connection aborts cleanly.
#[tokio::test]
async fn after_the_first_byte_the_leg_is_dropped() {
    let mut s = setup(GenerationLayer::new(), Settler::new(BOUND));
    let (body, end) = s.streaming().await;
    let mut body = task::spawn(body);
    end.send("x");
    assert_ready!(body.enter(|cx, body| http_body::Body::poll_frame(body, cx))).unwrap().unwrap();
    assert_eq!(s.ends(), ["collected"], "at the byte, not at the end");
    drop(body);
    assert!(end.is_dropped());
    assert_eq!((s.ends(), s.settler.active()), (vec!["collected"], 0));

    let mut s = setup(GenerationLayer::new(), Settler::new(BOUND));
    let (mut call, _, end) = s.answered(json()).await;
    end.send("{");
    assert_pending!(call.poll());
    drop(call);
    assert!(end.is_dropped());
    assert_eq!((s.ends(), s.settler.active()), (vec!["collected"], 0));
}

/// A byte that was sent, but that nobody has read yet, is not one that was seen.
#[tokio::test]
async fn a_byte_that_was_not_read_yet_is_waited_for_in_the_background() {
    let mut s = setup(GenerationLayer::new(), Settler::new(BOUND));
    let (body, end) = s.streaming().await;
    end.send("x");
    drop(body);
    assert_eq!((s.ends(), s.settler.active(), end.is_dropped()), (vec![], 1, false));
    background().await;
    assert_eq!((s.ends(), s.settler.active(), end.is_dropped()), (vec!["collected"], 0, true));
}

#[tokio::test]
async fn what_has_ended_is_settled_by_nobody() {
    let mut s = setup(GenerationLayer::new(), Settler::new(BOUND));
    let (body, mut end) = s.streaming().await;
    end.end();
    let _ = http_body_util::BodyExt::collect(body).await.unwrap();
    let (body, end) = s.streaming().await;
    end.fail();
    let mut read = task::spawn(http_body_util::BodyExt::collect(body));
    let _ = tokio_test::assert_ready_err!(read.poll());
    drop(read);
    let (mut call, _, mut reply) = s.running(STREAMED).await;
    reply.send_error("reset");
    let _ = tokio_test::assert_ready_err!(call.poll());
    drop(call);
    assert_eq!((s.ends(), s.settler.active()), (vec!["failed"; 3], 0));
}
