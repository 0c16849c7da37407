use std::{
    pin::Pin,
    task::{Context, Poll},
};

use bytes::{Bytes, BytesMut};
use http_body::{Body, Frame, SizeHint};

/// Hands on in one piece what has arrived by now.
///
/// hyper's client passes frames through a channel of one place, so that every small chunk costs a round through two
/// tasks and a write of its own. This body lets the connection have a turn as long as it has more, up to a few turns
/// and some bytes, and waits for nothing: what has arrived is handed on as soon as there is nothing else to read.
#[derive(Debug)]
#[pin_project::pin_project]
pub(crate) struct GatherBody<B: Body> {
    #[pin]
    inner: B,
    held: Held,
    /// What came after the bytes that are held.
    then: Option<Option<Result<Frame<Bytes>, B::Error>>>,
    /// How often the connection had a turn since the first byte that is held.
    turns: u8,
}

/// How often the connection gets a turn before what is held is handed on.
const TURNS: u8 = 2;
/// How much is gathered at most.
const MOST: usize = 64 << 10;
/// A frame of this size is worth a write of its own.
const LARGE: usize = 16 << 10;

#[derive(Default)]
enum Held {
    #[default]
    Nothing,
    /// Not copied.
    One(Bytes),
    Many(BytesMut),
}

impl Held {
    fn len(&self) -> usize {
        match self {
            Self::Nothing => 0,
            Self::One(bytes) => bytes.len(),
            Self::Many(bytes) => bytes.len(),
        }
    }

    fn push(&mut self, data: Bytes) {
        match self {
            Self::Nothing => *self = Self::One(data),
            Self::One(first) => {
                let mut all = BytesMut::with_capacity((first.len() + data.len()).max(4 << 10));
                all.extend_from_slice(first);
                all.extend_from_slice(&data);
                *self = Self::Many(all);
            }
            Self::Many(all) => all.extend_from_slice(&data),
        }
    }

    fn take(&mut self) -> Bytes {
        match std::mem::take(self) {
            Self::Nothing => Bytes::new(),
            Self::One(bytes) => bytes,
            Self::Many(bytes) => bytes.freeze(),
        }
    }
}

impl std::fmt::Debug for Held {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} bytes", self.len())
    }
}

impl<B: Body> GatherBody<B> {
    pub(crate) fn new(inner: B) -> Self {
        Self { inner, held: Held::Nothing, then: None, turns: 0 }
    }
}

impl<B: Body<Data = Bytes>> Body for GatherBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let mut this = self.project();
        if let Some(then) = this.then.take() {
            return Poll::Ready(then);
        }
        loop {
            let next = match this.inner.as_mut().poll_frame(cx) {
                Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                    Ok(data) => {
                        let large = data.len() >= LARGE;
                        this.held.push(data);
                        if large || this.held.len() >= MOST || this.inner.is_end_stream() {
                            break;
                        }
                        continue;
                    }
                    Err(other) => Some(Ok(other)),
                },
                Poll::Ready(other) => other,
                Poll::Pending if this.held.len() == 0 => return Poll::Pending,
                Poll::Pending if *this.turns < TURNS => {
                    *this.turns += 1;
                    cx.waker().wake_by_ref();
                    return Poll::Pending;
                }
                Poll::Pending => break,
            };
            if this.held.len() == 0 {
                return Poll::Ready(next);
            }
            *this.then = Some(next);
            break;
        }
        *this.turns = 0;
        Poll::Ready(Some(Ok(Frame::data(this.held.take()))))
    }

    fn is_end_stream(&self) -> bool {
        match &self.then {
            Some(then) => then.is_none(),
            None => self.held.len() == 0 && self.inner.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        let held = self.held.len() as u64;
        let inner = self.inner.size_hint();
        let mut hint = SizeHint::new();
        hint.set_lower(inner.lower().saturating_add(held));
        if let Some(upper) = inner.upper() {
            hint.set_upper(upper.saturating_add(held).max(hint.lower()));
        }
        hint
    }
}
