use std::{
    collections::VecDeque,
    convert::Infallible,
    fmt,
    pin::Pin,
    task::{Context, Poll},
};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

use crate::json::Segments;

/// The body of a request to a worker: slices of the client's request and of the context reply, sent one after the
/// other without being put together.
///
/// It has an exact length. It is **not** `Clone`: it carries a disaggregation request id, and an id must never be
/// sent twice, so nothing that replays a request fits around a leg. `Debug` shows the length only.
#[derive(Default)]
pub struct LegBody {
    parts: VecDeque<Bytes>,
    left: u64,
}

impl LegBody {
    /// A body of this text.
    pub fn new(text: Segments) -> Self {
        Self { left: text.len() as u64, parts: text.into_parts().into() }
    }

    /// A body without any bytes.
    pub fn empty() -> Self {
        Self::default()
    }

    /// What has not been sent yet, in one piece.
    pub fn into_bytes(self) -> Bytes {
        let mut text = Segments::new();
        self.parts.into_iter().for_each(|part| text.push(part));
        text.to_bytes()
    }
}

impl From<Bytes> for LegBody {
    fn from(text: Bytes) -> Self {
        Self::new(text.into())
    }
}

impl Body for LegBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let part = self.parts.pop_front();
        self.left -= part.as_ref().map_or(0, |part| part.len() as u64);
        Poll::Ready(part.map(|part| Ok(Frame::data(part))))
    }

    fn is_end_stream(&self) -> bool {
        self.parts.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left)
    }
}

impl fmt::Debug for LegBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LegBody({} bytes)", self.left)
    }
}
