use std::{
    cell::Cell,
    collections::VecDeque,
    future::{pending, poll_fn, ready},
    io,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body::{Body, Frame};
use http_body_util::BodyExt;
use tokio::time::{Instant, sleep};
use tower::{ServiceExt, service_fn};

use super::{drain::drain, front::Front, visible::Visible, *};

// === phases ===

#[tokio::test]
async fn phases_never_go_back() {
    let phases = Phases::new();
    phases.advance(Phase::Finishing);
    phases.advance(Phase::Leaving);
    assert_eq!(phases.now(), Phase::Finishing);
    phases.clone().reached(Phase::Leaving).await;
    phases.reached(Phase::Finishing).await;
}

const GRACE: Duration = Duration::from_secs(10);
const MOST: Duration = Duration::from_secs(30);

fn leaving() -> Phases {
    let phases = Phases::new();
    phases.advance(Phase::Leaving);
    phases
}

#[tokio::test(start_paused = true)]
async fn grace_then_connections_then_settlements() {
    let (phases, start) = (leaving(), Instant::now());
    let idle = async {
        assert_eq!(phases.now(), Phase::Finishing);
        assert_eq!(start.elapsed(), GRACE);
        sleep(Duration::from_secs(20)).await;
    };
    let settled = async {
        assert_eq!(start.elapsed(), GRACE + Duration::from_secs(20));
        sleep(Duration::from_secs(9)).await;
    };
    let outcome = drain(&phases, GRACE, MOST, idle, settled, || unreachable!()).await;
    assert_eq!(outcome, Outcome::Complete);
    assert_eq!((start.elapsed(), phases.now()), (Duration::from_secs(39), Phase::Cut));
}

#[tokio::test(start_paused = true)]
async fn one_bound_for_connections_and_settlements() {
    for busy in [true, false] {
        let (phases, start) = (leaving(), Instant::now());
        let idle = async { sleep(Duration::from_secs(20)).await };
        let settled = async { sleep(Duration::from_secs(11)).await };
        let outcome = drain(&phases, GRACE, MOST, idle, settled, || busy).await;
        assert_eq!(outcome, if busy { Outcome::Cut } else { Outcome::Complete });
        assert_eq!(start.elapsed(), GRACE + MOST);
    }
}

#[tokio::test(start_paused = true)]
async fn a_hurry_ends_the_grace_and_the_wait() {
    let (phases, start) = (leaving(), Instant::now());
    let cut_when_asked = Cell::new(None);
    let busy = || {
        cut_when_asked.set(Some(phases.now()));
        true
    };
    let hurry = async {
        sleep(Duration::from_secs(1)).await;
        phases.advance(Phase::Hurrying);
    };
    let (outcome, ()) = tokio::join!(drain(&phases, GRACE, MOST, pending(), ready(()), busy), hurry);
    assert_eq!((outcome, start.elapsed()), (Outcome::Cut, Duration::from_secs(1)));
    assert_eq!(cut_when_asked.get(), Some(Phase::Hurrying), "what runs is looked at before it is cut");
}

#[tokio::test(start_paused = true)]
async fn nothing_happens_before_leaving() {
    let phases = Phases::new();
    let mut draining = std::pin::pin!(drain(&phases, GRACE, MOST, ready(()), ready(()), || false));
    tokio::select! {
        _ = &mut draining => panic!("it ended by itself"),
        () = sleep(Duration::from_secs(3600)) => {}
    }
}

// === what the data port answers by itself ===

type Body0 = http_body_util::Empty<Bytes>;

async fn front(phases: &Phases, request: Request<Body0>) -> (StatusCode, String) {
    let stack = service_fn(async |_: Request<Body0>| {
        Ok::<_, std::convert::Infallible>(Response::new(http_body_util::Full::<Bytes>::from("stack")))
    });
    let response = Front::new(stack, phases.clone()).oneshot(request).await.unwrap();
    let (status, body) = (response.status(), response.into_body().collect().await.unwrap().to_bytes());
    (status, String::from_utf8(body.to_vec()).unwrap())
}

#[tokio::test]
async fn own_answers_and_the_stack() {
    let phases = Phases::new();
    let request = |method, path| Request::builder().method(method).uri(path).body(Body0::new()).unwrap();
    #[rustfmt::skip]
    let cases = [
        ("GET", "/health", 200, "ok\n"), ("HEAD", "/health", 200, "ok\n"), ("GET", "/health?x", 200, "ok\n"),
        ("GET", "/ready", 200, "ready\n"), ("POST", "/health", 200, "stack"), ("GET", "/healthy", 200, "stack"),
        ("POST", "/v1/chat/completions", 200, "stack"), ("GET", "/", 200, "stack"),
    ];
    for (method, path, status, body) in cases {
        assert_eq!(
            front(&phases, request(method, path)).await,
            (StatusCode::from_u16(status).unwrap(), body.into())
        );
    }
    assert_eq!(front(&phases, request("CONNECT", "h:1")).await.0, StatusCode::METHOD_NOT_ALLOWED);
    phases.advance(Phase::Leaving);
    assert_eq!(front(&phases, request("GET", "/ready")).await.0, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(front(&phases, request("GET", "/health")).await.0, StatusCode::OK);
}

#[tokio::test]
async fn request_codings() {
    for (codings, good) in [
        (&[][..], true),
        (&["chunked"], true),
        (&["Chunked"], true),
        (&["chunked", "chunked"], false),
        (&["gzip, chunked"], false),
        (&["gzip", "chunked"], false),
        (&["chunked, chunked"], false),
        (&[""], false),
    ] {
        let mut request = Request::post("/x");
        for coding in codings {
            request = request.header("transfer-encoding", *coding);
        }
        let (status, body) = front(&Phases::new(), request.body(Body0::new()).unwrap()).await;
        assert_eq!(status == StatusCode::OK, good, "{codings:?}");
        assert!(good || (status == StatusCode::BAD_REQUEST && body.contains("invalid_request")), "{body}");
    }
}

// === an error after data ===

struct Script(VecDeque<Result<&'static str, io::Error>>);

impl Body for Script {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        Poll::Ready(self.0.pop_front().map(|next| next.map(|data| Frame::data(Bytes::from(data)))))
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_empty()
    }
}

#[tokio::test]
async fn an_error_is_held_back_for_one_turn() {
    let script = Script([Ok("a"), Err(io::ErrorKind::BrokenPipe.into())].into());
    let mut body = std::pin::pin!(Visible::new(script));
    let mut turns = Vec::new();
    poll_fn(|cx| {
        let polled = body.as_mut().poll_frame(cx);
        turns.push(match &polled {
            Poll::Pending => "pending",
            Poll::Ready(Some(Ok(_))) => "data",
            Poll::Ready(Some(Err(_))) => "error",
            Poll::Ready(None) => "end",
        });
        assert_eq!(body.is_end_stream(), turns.last() == Some(&"error"));
        match polled {
            Poll::Ready(Some(Ok(_))) => {
                cx.waker().wake_by_ref();
                Poll::Pending
            }
            Poll::Ready(_) => Poll::Ready(()),
            Poll::Pending => Poll::Pending,
        }
    })
    .await;
    assert_eq!(turns, ["data", "pending", "error"]);
}
