use std::{
    pin::Pin,
    task::{Context, Poll},
};

use http_body::{Body, Frame, SizeHint};

/// Lets what came before an error be seen: the error is held back for one poll.
///
/// When a body fails, hyper's server drops all that it has not written yet, the last events of a stream among it, even
/// the head of the response. It writes when a body is pending, so an error waits for one more turn, which it asks for
/// itself.
#[derive(Debug)]
#[pin_project::pin_project]
pub(crate) struct FlushBeforeError<B: Body> {
    #[pin]
    inner: B,
    error: Option<B::Error>,
}

impl<B: Body> FlushBeforeError<B> {
    pub(crate) fn new(inner: B) -> Self {
        Self { inner, error: None }
    }
}

impl<B: Body> Body for FlushBeforeError<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        let this = self.project();
        if let Some(error) = this.error.take() {
            return Poll::Ready(Some(Err(error)));
        }
        match this.inner.poll_frame(cx) {
            Poll::Ready(Some(Err(error))) => {
                *this.error = Some(error);
                cx.waker().wake_by_ref();
                Poll::Pending
            }
            other => other,
        }
    }

    fn is_end_stream(&self) -> bool {
        self.error.is_none() && self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        match self.error {
            // An exact nothing would pass for a clean end.
            Some(_) => SizeHint::new(),
            None => self.inner.size_hint(),
        }
    }
}
