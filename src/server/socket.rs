use std::{
    io,
    net::Shutdown,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use socket2::SockRef;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
};

use crate::pause::Pause;

/// How much the kernel takes of a response beyond what it can send. Left to itself it takes many MiB, and room is made
/// for more only when a third of that is gone: a client that reads slowly could not be told from one that does not.
#[cfg(any(target_os = "linux", target_os = "android"))]
const UNSENT: u32 = 32 << 10;

/// A client's connection, for the HTTP server. A write fails when the client has taken nothing for a time.
#[derive(Debug)]
pub(super) struct Socket {
    stream: Arc<TcpStream>,
    unread: Pause,
}

/// The same connection, for the one who looks after it. It is closed when both are dropped.
#[derive(Debug)]
pub(super) struct Peer(Arc<TcpStream>);

/// Prepares a connection whose client may leave what is written unread for `most`.
pub(super) fn open(stream: TcpStream, most: Duration) -> (Socket, Peer) {
    // neither changes what is served
    let _ = stream.set_nodelay(true);
    #[cfg(any(target_os = "linux", target_os = "android"))]
    let _ = SockRef::from(&stream).set_tcp_notsent_lowat(UNSENT);
    let stream = Arc::new(stream);
    (Socket { stream: stream.clone(), unread: Pause::new(most) }, Peer(stream))
}

impl Peer {
    /// Waits until the client has closed the connection or its half of it, whatever it has sent before that is unread.
    pub(super) async fn gone(&self) {
        // ready when bytes can be read would be ready all the time while there are some
        #[cfg(any(target_os = "linux", target_os = "android"))]
        if let Ok(ready) = self.0.ready(tokio::io::Interest::PRIORITY).await
            && ready.is_read_closed()
        {
            return;
        }
        std::future::pending().await
    }

    /// Makes the connection end with a reset.
    pub(super) fn reset(&self) {
        let _ = SockRef::from(&*self.0).set_linger(Some(Duration::ZERO));
    }
}

impl AsyncRead for Socket {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        loop {
            ready!(self.stream.poll_read_ready(cx))?;
            match self.stream.try_read(buf.initialize_unfilled()) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                read => return Poll::Ready(read.map(|read| buf.advance(read))),
            }
        }
    }
}

impl Socket {
    fn poll_io(
        &mut self,
        cx: &mut Context<'_>,
        write: impl Fn(&TcpStream) -> io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        while self.stream.poll_write_ready(cx)?.is_ready() {
            match write(&self.stream) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                written => {
                    self.unread.end();
                    return Poll::Ready(written);
                }
            }
        }
        ready!(self.unread.poll_over(cx));
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the client does not read")))
    }
}

impl AsyncWrite for Socket {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_io(cx, |stream| stream.try_write(buf))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.poll_io(cx, |stream| stream.try_write_vectored(bufs))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(SockRef::from(&*self.stream).shutdown(Shutdown::Write))
    }
}
