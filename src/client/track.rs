use std::{
    io,
    pin::Pin,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU8, Ordering},
    },
    task::{Context, Poll, Waker},
    time::Duration,
};

use hyper_util::client::legacy::connect::{Connected, Connection};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::pause::Pause;

/// How long a worker that has answered may leave the rest of a request unread. Before it answers, the deadline of the
/// leg is the bound.
const UNREAD: Duration = Duration::from_secs(30);

/// What a call and its connection tell each other.
///
/// The connection says whether a byte of a reply to the current request has come. The HTTP client says when the head
/// of a reply has arrived ([`answered`](Self::answered)); the first byte written after that belongs to the next
/// request. A worker that answers before it has read a whole request is thereby not taken for silent; a doubtful case
/// counts as seen, which forbids another attempt.
///
/// A call that nobody waits for any more says [`close`](Self::close). By itself hyper closes the connection of such a
/// call when it next reads from it, which it does not do while a worker leaves the request unread.
#[derive(Debug, Clone, Default)]
pub(super) struct Line(Arc<State>);

#[derive(Debug, Default)]
struct State {
    seen: AtomicU8,
    /// Whether a call waits for the head of a reply.
    awaited: AtomicBool,
    closed: AtomicBool,
    /// The task of the connection.
    task: Mutex<Option<Waker>>,
}

const NOTHING: u8 = 0;
const BYTES: u8 = 1;
const ANSWERED: u8 = 2;

impl Line {
    /// Whether bytes of a reply to the current request were seen.
    pub(super) fn is_seen(&self) -> bool {
        self.0.seen.load(Ordering::Acquire) != NOTHING
    }

    /// A call has been given the connection.
    pub(super) fn begun(&self) {
        self.0.awaited.store(true, Ordering::Release);
    }

    /// The head of a reply has been handed on.
    pub(super) fn answered(&self) {
        self.0.awaited.store(false, Ordering::Release);
        self.0.seen.store(ANSWERED, Ordering::Release);
    }

    pub(super) fn read(&self) {
        let _ = self.0.seen.compare_exchange(NOTHING, BYTES, Ordering::AcqRel, Ordering::Relaxed);
    }

    pub(super) fn wrote(&self) {
        let _ = self.0.seen.compare_exchange(ANSWERED, NOTHING, Ordering::AcqRel, Ordering::Relaxed);
    }

    fn is_awaited(&self) -> bool {
        self.0.awaited.load(Ordering::Acquire)
    }

    /// Fails whatever the connection does or waits for from now on, so that it closes at once.
    pub(super) fn close(&self) {
        self.0.closed.store(true, Ordering::SeqCst);
        if let Some(task) = self.task().take() {
            task.wake();
        }
    }

    /// What the connection asks before it does anything; it is woken when the answer changes.
    fn open(&self, cx: &mut Context<'_>) -> io::Result<()> {
        let mut task = self.task();
        if !task.as_ref().is_some_and(|task| task.will_wake(cx.waker())) {
            *task = Some(cx.waker().clone());
        }
        drop(task);
        if self.0.closed.load(Ordering::SeqCst) {
            return Err(io::Error::new(io::ErrorKind::ConnectionAborted, "nobody waits for the reply"));
        }
        Ok(())
    }

    /// Nothing here panics while it holds the lock; if it ever did, what the lock protects is whole all the same.
    fn task(&self) -> MutexGuard<'_, Option<Waker>> {
        self.0.task.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A connection at one end of a [`Line`], of which the client's responses and errors have the other.
#[derive(Debug)]
#[pin_project::pin_project]
pub(super) struct Tracked<T> {
    #[pin]
    io: T,
    line: Line,
    /// While the worker reads nothing.
    unread: Pause,
}

impl<T> Tracked<T> {
    pub(super) fn new(io: T) -> Self {
        Self { io, line: Line::default(), unread: Pause::new(UNREAD) }
    }
}

impl<T> Connection for Tracked<T> {
    fn connected(&self) -> Connected {
        Connected::new().extra(self.line.clone())
    }
}

impl<T: AsyncRead> AsyncRead for Tracked<T> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.project();
        this.line.open(cx)?;
        let before = buf.filled().len();
        let polled = this.io.poll_read(cx, buf);
        if buf.filled().len() > before {
            this.line.read();
        }
        polled
    }
}

/// Watches a write that the kernel has no room for.
fn watch(
    polled: Poll<io::Result<usize>>,
    line: &Line,
    unread: &mut Pause,
    cx: &mut Context<'_>,
) -> Poll<io::Result<usize>> {
    if polled.is_ready() {
        unread.end();
        return polled;
    }
    while let Poll::Ready(()) = unread.poll_over(cx) {
        if !line.is_awaited() {
            let why = "the worker has answered and leaves the rest unread";
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, why)));
        }
    }
    Poll::Pending
}

impl<T: AsyncWrite> AsyncWrite for Tracked<T> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.project();
        this.line.open(cx)?;
        this.line.wrote();
        watch(this.io.poll_write(cx, buf), this.line, this.unread, cx)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.project();
        this.line.open(cx)?;
        this.line.wrote();
        watch(this.io.poll_write_vectored(cx, bufs), this.line, this.unread, cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.project();
        this.line.open(cx)?;
        this.io.poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.project().io.poll_shutdown(cx)
    }
}
