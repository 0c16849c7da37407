use std::{
    convert::Infallible,
    pin::Pin,
    task::{Context, Poll},
};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

use super::{Handoff, Stage};

/// Yields the client's JSON, as it came, in one frame and with an exact length.
///
/// This is for layers of other people that look at bodies. Layers of ours read what the stage carries instead, so a
/// body that has been read on the way changes nothing for them.
impl<S: Stage> Body for Handoff<S> {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if std::mem::replace(&mut self.yielded, true) {
            return Poll::Ready(None);
        }
        Poll::Ready(Some(Ok(Frame::data(self.request.body().clone()))))
    }

    fn is_end_stream(&self) -> bool {
        self.yielded
    }

    fn size_hint(&self) -> SizeHint {
        let left = if self.yielded { 0 } else { self.request.body().len() };
        SizeHint::with_exact(left as u64)
    }
}

impl<S: Stage> Unpin for Handoff<S> {}
