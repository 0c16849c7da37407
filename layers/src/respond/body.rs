use std::{
    fmt, mem,
    pin::Pin,
    task::{Context, Poll},
};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

use crate::body::FlushBeforeError;

/// The body of a response of [`Respond`](super::Respond): the inner service's, or the text of an error.
///
/// An error of the inner body comes one poll late, so that a server writes out what came before it.
#[pin_project::pin_project]
pub struct RespondBody<B: Body>(#[pin] Kind<B>);

#[pin_project::pin_project(project = KindProj)]
enum Kind<B: Body> {
    Inner(#[pin] FlushBeforeError<B>),
    /// What is left to send; empty at the end.
    Text(Bytes),
}

impl<B: Body> RespondBody<B> {
    pub(super) fn inner(body: B) -> Self {
        Self(Kind::Inner(FlushBeforeError::new(body)))
    }

    pub(super) fn text(text: Bytes) -> Self {
        Self(Kind::Text(text))
    }
}

impl<B: Body<Data = Bytes>> Body for RespondBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        match self.project().0.project() {
            KindProj::Inner(body) => body.poll_frame(cx),
            KindProj::Text(text) if text.is_empty() => Poll::Ready(None),
            KindProj::Text(text) => Poll::Ready(Some(Ok(Frame::data(mem::take(text))))),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            Kind::Inner(body) => body.is_end_stream(),
            Kind::Text(text) => text.is_empty(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Kind::Inner(body) => body.size_hint(),
            Kind::Text(text) => SizeHint::with_exact(text.len() as u64),
        }
    }
}

impl<B: Body + Default> Default for RespondBody<B> {
    fn default() -> Self {
        Self::inner(B::default())
    }
}

impl<B: Body<Error: fmt::Debug> + fmt::Debug> fmt::Debug for RespondBody<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Kind::Inner(body) => f.debug_tuple("RespondBody").field(body).finish(),
            Kind::Text(text) => write!(f, "RespondBody(error, {} bytes left)", text.len()),
        }
    }
}
