//! Answer bodies: whole or streamed, and where they break.

use super::Conn;
use crate::faults::CutHow;
use crate::shared::Shared;
use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::Sleep;

/// The connection is to break here.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Broken(pub(crate) CutHow);

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the connection is cut on purpose")
    }
}

impl std::error::Error for Broken {}

/// Before a cut there is time for what was written to reach the other side: a
/// reset makes its kernel drop what nobody has read yet.
const FLUSH: Duration = Duration::from_millis(25);

/// What a streaming answer is written to.
pub(crate) type Sender = mpsc::Sender<Result<Bytes, Broken>>;

type Writer = Pin<Box<dyn Future<Output = ()> + Send>>;

enum Source {
    Whole(Bytes),
    /// The writer lives in the body: dropping the body stops it, and it runs
    /// only as fast as the body is read.
    Stream {
        writer: Option<Writer>,
        parts: mpsc::Receiver<Result<Bytes, Broken>>,
        /// Whether each part is flushed before the next.
        apart: bool,
        flush: bool,
    },
    Done,
}

/// The body of every answer.
pub(crate) struct SimBody {
    source: Source,
    cut: Option<(u64, CutHow)>,
    breaking: Option<(Pin<Box<Sleep>>, CutHow)>,
    open: Option<Open>,
}

impl fmt::Debug for SimBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimBody").finish_non_exhaustive()
    }
}

impl SimBody {
    /// A body of these bytes.
    pub(crate) fn whole(bytes: impl Into<Bytes>) -> Self {
        Self::new(Source::Whole(bytes.into()))
    }

    /// A body that a writer fills.
    pub(crate) fn stream<F>(apart: bool, write: impl FnOnce(Sender) -> F) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let (sender, parts) = mpsc::channel(1);
        Self::new(Source::Stream { writer: Some(Box::pin(write(sender))), parts, apart, flush: false })
    }

    fn new(source: Source) -> Self {
        Self { source, cut: None, breaking: None, open: None }
    }

    /// Breaks the connection after so many bytes.
    #[must_use]
    pub(crate) fn cut_after(mut self, bytes: u64, how: CutHow) -> Self {
        self.cut = Some((bytes, how));
        self
    }

    /// Counts the request as open until this body is dropped.
    #[must_use]
    pub(crate) fn open(mut self, open: Open) -> Self {
        self.open = Some(open);
        self
    }

    fn poll_source(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, Broken>>> {
        match &mut self.source {
            Source::Done => Poll::Ready(None),
            Source::Whole(bytes) => {
                let bytes = std::mem::take(bytes);
                self.source = Source::Done;
                Poll::Ready((!bytes.is_empty()).then_some(Ok(bytes)))
            }
            Source::Stream { writer, parts, apart, flush } => {
                if *flush {
                    // Being asked again later makes the connection flush now.
                    *flush = false;
                    cx.waker().wake_by_ref();
                    return Poll::Pending;
                }
                // The writer may have just sent, or ended, so look on both sides of it.
                let mut part = parts.poll_recv(cx);
                if part.is_pending()
                    && let Some(future) = writer
                {
                    if future.as_mut().poll(cx).is_ready() {
                        *writer = None;
                    }
                    part = parts.poll_recv(cx);
                }
                *flush = *apart && matches!(part, Poll::Ready(Some(Ok(_))));
                part
            }
        }
    }
}

impl Body for SimBody {
    type Data = Bytes;
    type Error = Broken;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        let this = &mut *self;
        loop {
            if let Some((timer, how)) = &mut this.breaking {
                std::task::ready!(timer.as_mut().poll(cx));
                let how = *how;
                if let Some(open) = &this.open {
                    open.conn.end_with(how);
                }
                return Poll::Ready(Some(Err(Broken(how))));
            }
            if let Some((0, how)) = this.cut {
                this.source = Source::Done;
                this.breaking = Some((Box::pin(tokio::time::sleep(FLUSH)), how));
                continue;
            }
            let mut bytes = match std::task::ready!(this.poll_source(cx)) {
                None => return Poll::Ready(None),
                Some(Err(Broken(how))) => {
                    this.cut = Some((0, how));
                    continue;
                }
                Some(Ok(bytes)) => bytes,
            };
            if let Some((left, _)) = &mut this.cut {
                bytes.truncate(usize::try_from(*left).unwrap_or(usize::MAX));
                *left -= bytes.len() as u64;
            }
            if let Some(open) = &this.open {
                open.shared.counts.body_bytes.add(bytes.len() as u64);
            }
            return Poll::Ready(Some(Ok(Frame::data(bytes))));
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.source {
            Source::Whole(bytes) => bytes.is_empty() && self.cut.is_none(),
            Source::Stream { .. } => false,
            Source::Done => self.breaking.is_none() && self.cut.is_none(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.source {
            // With a cut the head still promises the whole.
            Source::Whole(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Source::Stream { .. } => SizeHint::default(),
            Source::Done => SizeHint::with_exact(0),
        }
    }
}

/// A request that is being served.
#[derive(Debug)]
pub(crate) struct Open {
    pub(crate) shared: Arc<Shared>,
    pub(crate) conn: Arc<Conn>,
}

impl Open {
    pub(crate) fn new(shared: Arc<Shared>, conn: Arc<Conn>) -> Self {
        shared.counts.open_requests.add(1);
        Self { shared, conn }
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.shared.counts.open_requests.sub_one();
        self.conn.request_ends();
    }
}
