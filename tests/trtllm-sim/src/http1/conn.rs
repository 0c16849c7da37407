//! One connection: its socket, which can be reset, and its idle time.

use super::SimBody;
use crate::faults::CutHow;
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::watch;

/// What the handlers know of the connection and can do to it.
#[derive(Debug)]
pub(crate) struct Conn {
    pub(crate) number: u64,
    how: AtomicU8,
    load: watch::Sender<Load>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Load {
    open: usize,
    served: u64,
}

const HOW_RST: u8 = 1;
const HOW_GARBAGE: u8 = 2;

impl Conn {
    fn new(number: u64) -> Arc<Self> {
        Arc::new(Self { number, how: AtomicU8::new(0), load: watch::Sender::default() })
    }

    /// How the socket is to end; the caller then fails the connection.
    pub(crate) fn end_with(&self, how: CutHow) {
        let how = match how {
            CutHow::Fin => 0,
            CutHow::Rst => HOW_RST,
            CutHow::Garbage => HOW_GARBAGE,
        };
        self.how.store(how, Ordering::Relaxed);
    }

    /// A request starts; returns how many this connection had before.
    pub(crate) fn request_starts(&self) -> u64 {
        let mut before = 0;
        self.load.send_modify(|load| {
            before = load.served;
            load.open += 1;
            load.served += 1;
        });
        before
    }

    /// A request's answer has ended.
    pub(crate) fn request_ends(&self) {
        self.load.send_modify(|load| load.open = load.open.saturating_sub(1));
    }

    /// Returns once nothing was asked for so long. As with the real worker the
    /// time runs after an answer, not before the first request.
    async fn idle(&self, time: Duration) {
        let mut load = self.load.subscribe();
        loop {
            let now = *load.borrow_and_update();
            let timer = async {
                if now.open == 0 && now.served > 0 {
                    tokio::time::sleep(time).await;
                } else {
                    std::future::pending::<()>().await;
                }
            };
            tokio::select! {
                () = timer => return,
                _ = load.changed() => {}
            }
        }
    }
}

/// Serves a connection to its end.
pub(crate) async fn serve<H, F>(stream: TcpStream, number: u64, keep_alive: Duration, handle: H)
where
    H: Fn(Request<Incoming>, Arc<Conn>) -> F,
    F: Future<Output = Result<Response<SimBody>, super::Broken>>,
{
    let _ = stream.set_nodelay(true);
    let conn = Conn::new(number);
    let socket = Socket { stream, conn: Arc::clone(&conn) };
    let service = hyper::service::service_fn(|request| handle(request, Arc::clone(&conn)));
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new());
    let served = builder.serve_connection(TokioIo::new(socket), service);
    tokio::pin!(served);
    tokio::select! {
        _ = served.as_mut() => return,
        () = conn.idle(keep_alive) => served.as_mut().graceful_shutdown(),
    }
    let _ = served.await;
}

/// The socket; how it closes is decided at the last moment.
struct Socket {
    stream: TcpStream,
    conn: Arc<Conn>,
}

impl Drop for Socket {
    fn drop(&mut self) {
        match self.conn.how.load(Ordering::Relaxed) {
            HOW_RST => {
                let _ = self.stream.set_zero_linger();
            }
            HOW_GARBAGE => {
                let _ = self.stream.try_write(b"zz, not a chunk size\r\n");
            }
            _ => {}
        }
    }
}

impl AsyncRead for Socket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for Socket {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // A connection that is to end badly must not say goodbye first.
        if self.conn.how.load(Ordering::Relaxed) != 0 {
            return Poll::Ready(Ok(()));
        }
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
