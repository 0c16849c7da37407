use std::{
    pin::Pin,
    task::{Context, Poll},
};

use http_body::{Body, Frame, SizeHint};

/// Lets what was said before an error be seen: the error is held back for one turn, in which the server writes out
/// what it has. Without that, hyper drops everything that is not written yet, even the head of the response.
#[derive(Debug)]
#[pin_project::pin_project]
pub(super) struct Visible<B: Body> {
    #[pin]
    inner: B,
    error: Option<B::Error>,
}

impl<B: Body> Visible<B> {
    pub(super) fn new(inner: B) -> Self {
        Self { inner, error: None }
    }
}

impl<B: Body> Body for Visible<B> {
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
        self.inner.size_hint()
    }
}
