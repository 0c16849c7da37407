use std::{
    future::Future,
    io,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use http::Uri;
use hyper_util::{client::legacy::connect::HttpConnector, rt::TokioIo};
use tokio::net::TcpStream;
use tower_disagg::error::BoxError;
use tower_service::Service;

use super::track::Tracked;

/// What the kernel may hold of a reply that nobody reads yet. Left to itself it goes up to many MiB for a reader that
/// was quick at first, and a worker would go on producing for a client that has stopped reading.
const RECEIVE_BUFFER: usize = 512 << 10;

/// Makes connections to workers: name resolution and connecting together within one time, without delay for small
/// writes.
#[derive(Debug, Clone)]
pub(super) struct Connector {
    tcp: HttpConnector,
    timeout: Duration,
}

impl Connector {
    pub(super) fn new(timeout: Duration) -> Self {
        let mut tcp = HttpConnector::new();
        tcp.set_nodelay(true);
        tcp.set_recv_buffer_size(Some(RECEIVE_BUFFER));
        Self { tcp, timeout }
    }
}

impl Service<Uri> for Connector {
    type Response = TokioIo<Tracked<TcpStream>>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.tcp.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let connecting = tokio::time::timeout(self.timeout, self.tcp.call(uri));
        Box::pin(async move {
            let late = || io::Error::new(io::ErrorKind::TimedOut, "no connection within the connect timeout");
            let stream = connecting.await.map_err(|_| late())??;
            Ok(TokioIo::new(Tracked::new(stream.into_inner())))
        })
    }
}
