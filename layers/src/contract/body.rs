use std::{
    fmt,
    pin::Pin,
    task::{Context, Poll},
};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

use crate::{body::EitherBody, error::BoxError, leg::LegBody};

/// The body of a request that goes on without a handoff: read already, in order to be checked, or as it comes in.
///
/// `Debug` shows nothing of the content, nor of a body that would.
#[pin_project::pin_project]
pub struct PassthroughBody<B>(#[pin] EitherBody<LegBody, B>);

impl<B> PassthroughBody<B> {
    /// A body that has been read.
    pub fn whole(text: Bytes) -> Self {
        Self(EitherBody::Left(text.into()))
    }

    /// A body that has not.
    pub fn stream(body: B) -> Self {
        Self(EitherBody::Right(body))
    }

    /// The text of a body that has been read, or the one that has not.
    pub fn into_inner(self) -> Result<LegBody, B> {
        match self.0 {
            EitherBody::Left(text) => Ok(text),
            EitherBody::Right(body) => Err(body),
        }
    }
}

impl<B> Default for PassthroughBody<B> {
    fn default() -> Self {
        Self::whole(Bytes::new())
    }
}

impl<B> Body for PassthroughBody<B>
where
    B: Body<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        self.project().0.poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.0.size_hint()
    }
}

impl<B> fmt::Debug for PassthroughBody<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            EitherBody::Left(text) => f.debug_tuple("PassthroughBody").field(text).finish(),
            EitherBody::Right(_) => f.write_str("PassthroughBody(unread)"),
        }
    }
}
