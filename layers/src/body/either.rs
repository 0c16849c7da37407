use std::{
    pin::Pin,
    task::{Context, Poll},
};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

use crate::error::BoxError;

/// One of two bodies, where a layer answers from two places.
///
/// Frames, trailers, `size_hint` and `is_end_stream` are those of the body inside.
#[derive(Debug)]
#[pin_project::pin_project(project = EitherProj)]
pub enum EitherBody<L, R> {
    /// One.
    Left(#[pin] L),
    /// The other.
    Right(#[pin] R),
}

impl<L: Default, R> Default for EitherBody<L, R> {
    fn default() -> Self {
        Self::Left(L::default())
    }
}

impl<L, R> Body for EitherBody<L, R>
where
    L: Body<Data = Bytes>,
    L::Error: Into<BoxError>,
    R: Body<Data = Bytes>,
    R::Error: Into<BoxError>,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        match self.project() {
            EitherProj::Left(body) => body.poll_frame(cx).map_err(Into::into),
            EitherProj::Right(body) => body.poll_frame(cx).map_err(Into::into),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Left(body) => body.is_end_stream(),
            Self::Right(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Left(body) => body.size_hint(),
            Self::Right(body) => body.size_hint(),
        }
    }
}
