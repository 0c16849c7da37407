use std::{
    error::Error,
    fmt,
    future::Future,
    mem,
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::{Bytes, BytesMut};
use http_body::Body;

use super::{BufferBudget, Reservation};
use crate::error::BoxError;

/// How much is allocated for a body at first, whatever length it claims to have.
const FIRST_ALLOCATION: u64 = 1 << 20;

/// Reads a body to its end.
///
/// A body that arrives in one piece is not copied. One that announces more than `limit` bytes fails at once, others
/// as soon as they exceed it. Dropping the future drops the body. Trailers are not kept.
#[derive(Debug)]
#[pin_project::pin_project]
#[must_use = "futures do nothing unless polled"]
pub struct Collect<B> {
    #[pin]
    body: B,
    limit: u64,
    held: Held,
    reservation: Reservation,
}

/// What has been read so far.
enum Held {
    One(Bytes),
    Many(BytesMut),
}

/// Why a body could not be read to its end.
#[derive(Debug)]
#[non_exhaustive]
pub enum CollectError {
    /// It is longer than the limit.
    TooLarge,
    /// The budget shared by all bodies has no room left.
    Overloaded,
    /// The body itself failed.
    Body(BoxError),
}

impl<B: Body> Collect<B> {
    /// Reads `body`, at most `limit` bytes of it, counted against `budget`.
    pub fn new(body: B, limit: u64, budget: &BufferBudget) -> Self {
        Self { body, limit, held: Held::One(Bytes::new()), reservation: budget.reservation() }
    }

    /// The bytes read so far.
    pub fn len(&self) -> usize {
        self.held.as_slice().len()
    }

    /// Whether nothing has been read yet.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Gives up on the end: what has been read so far, and the rest of the body.
    pub fn into_parts(self) -> (Bytes, B) {
        (finish(self.held, self.reservation), self.body)
    }
}

impl<B> Future for Collect<B>
where
    B: Body<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    type Output = Result<Bytes, CollectError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        loop {
            let hint = this.body.size_hint();
            if (this.held.as_slice().len() as u64).saturating_add(hint.lower()) > *this.limit {
                return Poll::Ready(Err(CollectError::TooLarge));
            }
            let frame = match ready!(this.body.as_mut().poll_frame(cx)) {
                None => break,
                Some(Err(error)) => return Poll::Ready(Err(CollectError::Body(error.into()))),
                Some(Ok(frame)) => frame,
            };
            let Ok(data) = frame.into_data() else { continue };
            this.held.push(data, hint.lower());
            let len = this.held.as_slice().len() as u64;
            if len > *this.limit {
                return Poll::Ready(Err(CollectError::TooLarge));
            }
            if !this.reservation.grow(len - this.reservation.bytes()) {
                return Poll::Ready(Err(CollectError::Overloaded));
            }
        }
        let spare = this.reservation.budget().reservation();
        let held = mem::replace(this.held, Held::One(Bytes::new()));
        Poll::Ready(Ok(finish(held, mem::replace(this.reservation, spare))))
    }
}

impl Held {
    fn as_slice(&self) -> &[u8] {
        match self {
            Self::One(bytes) => bytes,
            Self::Many(bytes) => bytes,
        }
    }

    /// `expected` is how long the body says it still is, `data` included.
    fn push(&mut self, data: Bytes, expected: u64) {
        match self {
            _ if data.is_empty() => {}
            Self::One(first) if first.is_empty() => *first = data,
            Self::One(first) => {
                let room = expected.min(FIRST_ALLOCATION) as usize;
                let mut all = BytesMut::with_capacity(first.len() + room.max(data.len()));
                all.extend_from_slice(first);
                all.extend_from_slice(&data);
                *self = Self::Many(all);
            }
            Self::Many(all) => all.extend_from_slice(&data),
        }
    }
}

impl fmt::Debug for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.as_slice().len())
    }
}

/// The bytes, with the share of the budget tied to their life.
fn finish(held: Held, reservation: Reservation) -> Bytes {
    let bytes = match held {
        Held::One(bytes) => bytes,
        Held::Many(bytes) => bytes.freeze(),
    };
    if bytes.is_empty() { bytes } else { Bytes::from_owner(Reserved { bytes, _reservation: reservation }) }
}

struct Reserved {
    bytes: Bytes,
    _reservation: Reservation,
}

impl AsRef<[u8]> for Reserved {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl fmt::Display for CollectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TooLarge => "the body is larger than the limit",
            Self::Overloaded => "no room to hold the body: the limit of bytes held is reached",
            Self::Body(_) => "the body broke off",
        })
    }
}

impl Error for CollectError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Body(error) => Some(&**error),
            _ => None,
        }
    }
}
