//! How long calls take, as a histogram.

use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll, ready},
};

use tokio::time::Instant;
use tower_layer::Layer;
use tower_service::Service;

/// Records how long each call takes until it returns, in seconds, with the label `result`: `ok` for a reply of any
/// status, `error` for none. A call that is dropped is not recorded.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TimedLayer {
    histogram: &'static str,
}

impl TimedLayer {
    pub(crate) fn new(histogram: &'static str) -> Self {
        Self { histogram }
    }
}

impl<S> Layer<S> for TimedLayer {
    type Service = Timed<S>;

    fn layer(&self, inner: S) -> Timed<S> {
        Timed { inner, histogram: self.histogram }
    }
}

/// The service of [`TimedLayer`].
#[derive(Debug, Clone)]
pub(crate) struct Timed<S> {
    inner: S,
    histogram: &'static str,
}

impl<S: Service<R>, R> Service<R> for Timed<S> {
    type Response = S::Response;
    type Error = S::Error;
    type Future = TimedFuture<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: R) -> Self::Future {
        TimedFuture { reply: self.inner.call(request), start: Instant::now(), histogram: self.histogram }
    }
}

/// The future of [`Timed`].
#[derive(Debug)]
#[pin_project::pin_project]
pub(crate) struct TimedFuture<F> {
    #[pin]
    reply: F,
    start: Instant,
    histogram: &'static str,
}

impl<F: Future<Output = Result<R, E>>, R, E> Future for TimedFuture<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.project();
        let result = ready!(this.reply.poll(cx));
        let label = if result.is_ok() { "ok" } else { "error" };
        metrics::histogram!(*this.histogram, "result" => label).record(this.start.elapsed());
        Poll::Ready(result)
    }
}
