use std::{
    convert::Infallible,
    future::{Future, ready},
    io,
    net::SocketAddr,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use http::Uri;
use hyper_util::{
    client::legacy::connect::{
        HttpConnector,
        dns::{GaiResolver, Name},
    },
    rt::TokioIo,
};
use tokio::net::TcpStream;
use tower::{ServiceExt, service_fn};
use tower_disagg::error::BoxError;
use tower_service::Service;

use super::{checked, track::Tracked};

/// What the kernel may hold of a reply that nobody reads yet. Left to itself it goes up to many MiB for a reader that
/// was quick at first, and a worker would go on producing for a client that has stopped reading.
const RECEIVE_BUFFER: usize = 512 << 10;

/// Makes connections to workers: name resolution and connecting together within one time, without delay for small
/// writes. Of several addresses each gets its share of that time, in turn.
///
/// A place that may be dialled at [certain addresses](checked) only is not resolved.
#[derive(Debug, Clone)]
pub(super) struct Connector {
    tcp: HttpConnector,
    timeout: Duration,
}

type Connecting<T> = Pin<Box<dyn Future<Output = Result<T, BoxError>> + Send>>;

impl Connector {
    pub(super) fn new(timeout: Duration) -> Self {
        Self { tcp: tcp(GaiResolver::new(), timeout), timeout }
    }
}

fn tcp<R>(resolver: R, timeout: Duration) -> HttpConnector<R> {
    let mut tcp = HttpConnector::new_with_resolver(resolver);
    tcp.set_nodelay(true);
    tcp.set_recv_buffer_size(Some(RECEIVE_BUFFER));
    tcp.set_connect_timeout(Some(timeout));
    tcp
}

/// A connection to the first of `addresses` that takes one.
fn dial(addresses: Vec<SocketAddr>, timeout: Duration) -> Connecting<TokioIo<TcpStream>> {
    let known = service_fn(move |_: Name| ready(Ok::<_, Infallible>(addresses.clone().into_iter())));
    // a name, so that it is asked for, and without a port, so that those of the addresses count
    let anywhere = Uri::from_static("http://checked");
    let connecting = tcp(known, timeout).oneshot(anywhere);
    Box::pin(async move { Ok(connecting.await?) })
}

impl Service<Uri> for Connector {
    type Response = TokioIo<Tracked<TcpStream>>;
    type Error = BoxError;
    type Future = Connecting<Self::Response>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.tcp.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let connecting: Connecting<_> = match checked::pinned(&uri) {
            Ok(Some(addresses)) => dial(addresses, self.timeout),
            Ok(None) => {
                let connecting = self.tcp.call(uri);
                Box::pin(async move { Ok(connecting.await?) })
            }
            Err(error) => Box::pin(ready(Err(error.into()))),
        };
        let connecting = tokio::time::timeout(self.timeout, connecting);
        Box::pin(async move {
            let late = || io::Error::new(io::ErrorKind::TimedOut, "no connection within the connect timeout");
            let stream = connecting.await.map_err(|_| late())??;
            Ok(TokioIo::new(Tracked::new(stream.into_inner())))
        })
    }
}
