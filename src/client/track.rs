use std::{
    io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU8, Ordering},
    },
    task::{Context, Poll},
};

use hyper_util::client::legacy::connect::{Connected, Connection};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Whether a byte of a reply to the current request has come over a connection.
///
/// The HTTP client says when the head of a reply has arrived ([`answered`](Self::answered)); the first byte written
/// after that belongs to the next request. A worker that answers before it has read a whole request is thereby not
/// taken for silent; a doubtful case counts as seen, which forbids another attempt.
#[derive(Debug, Clone, Default)]
pub(super) struct ReplySeen(Arc<AtomicU8>);

const NOTHING: u8 = 0;
const BYTES: u8 = 1;
const ANSWERED: u8 = 2;

impl ReplySeen {
    /// Whether bytes of a reply to the current request were seen.
    pub(super) fn is_seen(&self) -> bool {
        self.0.load(Ordering::Acquire) != NOTHING
    }

    /// The head of a reply has been handed on.
    pub(super) fn answered(&self) {
        self.0.store(ANSWERED, Ordering::Release);
    }

    pub(super) fn read(&self) {
        let _ = self.0.compare_exchange(NOTHING, BYTES, Ordering::AcqRel, Ordering::Relaxed);
    }

    pub(super) fn wrote(&self) {
        let _ = self.0.compare_exchange(ANSWERED, NOTHING, Ordering::AcqRel, Ordering::Relaxed);
    }
}

/// A connection that keeps a [`ReplySeen`] up to date, and hands it to the client's responses and errors.
#[derive(Debug)]
#[pin_project::pin_project]
pub(super) struct Tracked<T> {
    #[pin]
    io: T,
    seen: ReplySeen,
}

impl<T> Tracked<T> {
    pub(super) fn new(io: T) -> Self {
        Self { io, seen: ReplySeen::default() }
    }
}

impl<T> Connection for Tracked<T> {
    fn connected(&self) -> Connected {
        Connected::new().extra(self.seen.clone())
    }
}

impl<T: AsyncRead> AsyncRead for Tracked<T> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.project();
        let before = buf.filled().len();
        let polled = this.io.poll_read(cx, buf);
        if buf.filled().len() > before {
            this.seen.read();
        }
        polled
    }
}

impl<T: AsyncWrite> AsyncWrite for Tracked<T> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.project();
        this.seen.wrote();
        this.io.poll_write(cx, buf)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.project();
        this.seen.wrote();
        this.io.poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.project().io.poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.project().io.poll_shutdown(cx)
    }
}
