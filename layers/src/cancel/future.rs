use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll, ready},
};

use http::Response;
use http_body::Body;

use super::{
    CancelBody,
    guard::{Ending, Guard},
    length::Length,
};

/// The future of [`Cancel`](super::Cancel).
#[derive(Debug)]
#[pin_project::pin_project]
#[must_use = "futures do nothing unless polled"]
pub struct CancelFuture<F> {
    #[pin]
    inner: F,
    /// The request was one that is answered without a body.
    bodiless: bool,
    /// Dropped after `inner`: the request is over when nothing of it is left. Gone once the future has returned.
    guard: Option<Guard>,
}

impl<F> CancelFuture<F> {
    pub(super) fn new(inner: F, bodiless: bool, guard: Guard) -> Self {
        Self { inner, bodiless, guard: Some(guard) }
    }
}

impl<F, B, E> Future for CancelFuture<F>
where
    F: Future<Output = Result<Response<B>, E>>,
    B: Body,
{
    type Output = Result<Response<CancelBody<B>>, E>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let poll = match this.guard {
            Some(guard) => guard.run(|| this.inner.poll(cx)),
            None => this.inner.poll(cx),
        };
        let result = ready!(poll);
        let failed = result.is_err().then_some(Ending::Failed);
        let guard = this.guard.take().and_then(|guard| guard.unless(failed));
        Poll::Ready(result.map(|response| {
            let (head, body) = response.into_parts();
            let length = Length::of(*this.bodiless, head.status, &head.headers);
            let body = CancelBody::new(body, head.status, length, guard);
            Response::from_parts(head, body)
        }))
    }
}
