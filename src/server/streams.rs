use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use hyper::rt::Executor;

use super::answer::{Turn, turn};
use crate::pause::Pause;

/// Runs the streams of an HTTP/2 connection. One whose client takes nothing of it for a time is reset: nothing blocks
/// on the connection, which the others go on using.
#[derive(Debug, Clone)]
pub(super) struct Streams {
    most: Duration,
}

impl Streams {
    pub(super) fn new(most: Duration) -> Self {
        Self { most }
    }
}

impl<F> Executor<F> for Streams
where
    F: Future<Output = ()> + Send + 'static,
{
    fn execute(&self, future: F) {
        tokio::spawn(Stream { future, turn: Turn::Body, unread: Pause::new(self.most) });
    }
}

#[pin_project::pin_project]
struct Stream<F> {
    #[pin]
    future: F,
    turn: Turn,
    unread: Pause,
}

impl<F: Future<Output = ()>> Future for Stream<F> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = self.project();
        let (polled, turn) = turn(|| this.future.poll(cx));
        if polled.is_ready() {
            return polled;
        }
        if let Some(turn) = turn {
            this.unread.end();
            *this.turn = turn;
        }
        if *this.turn == Turn::Body {
            return Poll::Pending;
        }
        ready!(this.unread.poll_over(cx));
        tracing::debug!("a client does not read its stream");
        Poll::Ready(())
    }
}
