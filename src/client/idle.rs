use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use http::{Request, Response};
use http_body::{Body, Frame, SizeHint};
use tower_disagg::{
    error::BoxError,
    leg::{LegError, LegErrorKind},
};
use tower_layer::Layer;
use tower_service::Service;

use crate::pause::Pause;

/// Bounds the pauses inside a reply: between its head and its first frame, and from frame to frame.
///
/// There is no bound on the whole. A pause counts only while somebody waits for the next frame, so a reader that is
/// slow itself does not use it up. A body over the bound ends with an error, which closes the connection.
#[derive(Debug, Clone, Copy)]
pub(crate) struct IdleLayer {
    gap: Duration,
}

impl IdleLayer {
    pub(crate) fn new(gap: Duration) -> Self {
        Self { gap }
    }
}

impl<S> Layer<S> for IdleLayer {
    type Service = Idle<S>;

    fn layer(&self, inner: S) -> Idle<S> {
        Idle { inner, gap: self.gap }
    }
}

/// The service of [`IdleLayer`].
#[derive(Debug, Clone)]
pub(crate) struct Idle<S> {
    inner: S,
    gap: Duration,
}

impl<S, R, B> Service<Request<R>> for Idle<S>
where
    S: Service<Request<R>, Response = Response<B>>,
{
    type Response = Response<IdleBody<B>>;
    type Error = S::Error;
    type Future = IdleFuture<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<R>) -> Self::Future {
        IdleFuture { reply: self.inner.call(request), gap: self.gap }
    }
}

/// The future of [`Idle`].
#[derive(Debug)]
#[pin_project::pin_project]
pub(crate) struct IdleFuture<F> {
    #[pin]
    reply: F,
    gap: Duration,
}

impl<F, B, E> Future for IdleFuture<F>
where
    F: Future<Output = Result<Response<B>, E>>,
{
    type Output = Result<Response<IdleBody<B>>, E>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let gap = *this.gap;
        Poll::Ready(Ok(ready!(this.reply.poll(cx))?.map(|body| IdleBody::new(body, gap))))
    }
}

/// A body whose frames may be at most a time apart; see [`IdleLayer`].
#[derive(Debug)]
#[pin_project::pin_project]
pub(crate) struct IdleBody<B> {
    #[pin]
    inner: B,
    pause: Pause,
}

impl<B> IdleBody<B> {
    pub(crate) fn new(inner: B, gap: Duration) -> Self {
        Self { inner, pause: Pause::new(gap) }
    }
}

impl<B: Default> Default for IdleBody<B> {
    fn default() -> Self {
        Self::new(B::default(), Duration::MAX)
    }
}

impl<B> Body for IdleBody<B>
where
    B: Body,
    B::Error: Into<BoxError>,
{
    type Data = B::Data;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, BoxError>>> {
        let this = self.project();
        if let Poll::Ready(frame) = this.inner.poll_frame(cx) {
            this.pause.end();
            return Poll::Ready(frame.map(|frame| frame.map_err(Into::into)));
        }
        ready!(this.pause.poll_over(cx));
        Poll::Ready(Some(Err(LegError::new(LegErrorKind::Timeout).into())))
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}
