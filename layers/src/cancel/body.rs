use std::{
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::Buf;
use http::StatusCode;
use http_body::{Body, Frame, SizeHint};

use super::{
    guard::{Ending, Guard},
    length::Length,
};

/// The body of a response of [`Cancel`](super::Cancel): the inner one, and the end of its request with it.
#[derive(Debug, Default)]
#[pin_project::pin_project]
pub struct CancelBody<B> {
    #[pin]
    inner: B,
    length: Length,
    /// Dropped after `inner`: the request is over when nothing of it is left. Gone once it has ended.
    guard: Option<Guard>,
}

impl<B: Body> CancelBody<B> {
    pub(super) fn new(inner: B, status: StatusCode, length: Length, guard: Option<Guard>) -> Self {
        let met = length.is_met(inner.is_end_stream(), &inner.size_hint());
        let guard = guard.and_then(|mut guard| {
            guard.head(status);
            guard.unless(met.then_some(Ending::Completed))
        });
        Self { inner, length, guard }
    }
}

impl<B: Body> Body for CancelBody<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        let mut this = self.project();
        let poll = match this.guard {
            Some(guard) => guard.run(|| this.inner.as_mut().poll_frame(cx)),
            None => return this.inner.poll_frame(cx),
        };
        let frame = ready!(poll);
        let ending = match &frame {
            None => Some(Ending::Completed),
            Some(Err(_)) => Some(Ending::Failed),
            Some(Ok(frame)) => {
                this.length.sent(frame.data_ref().map_or(0, |data| data.remaining() as u64));
                let met = this.length.is_met(this.inner.is_end_stream(), &this.inner.size_hint());
                (frame.is_trailers() || met).then_some(Ending::Completed)
            }
        };
        *this.guard = this.guard.take().and_then(|guard| guard.unless(ending));
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}
