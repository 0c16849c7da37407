use std::{
    fmt,
    future::Future,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use http::{Extensions, Request, Response, Version};
use http_body::Body;
use hyper::body::Incoming;
use hyper_util::{
    client::legacy::{self, Client, ResponseFuture},
    rt::{TokioExecutor, TokioTimer},
};
use tower_disagg::{
    error::BoxError,
    leg::{LegError, LegErrorKind},
};
use tower_service::Service;

use super::{POOL_IDLE, connect::Connector, reply, track::ReplySeen};

/// A client for request bodies of type `B`. Clones share one pool.
pub(crate) struct HttpClient<B> {
    client: Client<Connector, B>,
}

impl<B> HttpClient<B>
where
    B: Body + Send,
    B::Data: Send,
{
    /// A client whose connections take at most `connect_timeout` to make, name resolution included.
    pub(crate) fn new(connect_timeout: Duration) -> Self {
        Self::build(connect_timeout, usize::MAX)
    }

    /// A client that makes a connection for each request. What it does says nothing about, and takes nothing from,
    /// the connections of the legs.
    pub(crate) fn unpooled(connect_timeout: Duration) -> Self {
        Self::build(connect_timeout, 0)
    }

    fn build(connect_timeout: Duration, idle: usize) -> Self {
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .timer(TokioTimer::new())
            .pool_idle_timeout(POOL_IDLE)
            .pool_max_idle_per_host(idle)
            .retry_canceled_requests(true) // only those of which no byte was written: the pool gets them back whole
            .build(Connector::new(connect_timeout));
        Self { client }
    }
}

impl<B> Service<Request<B>> for HttpClient<B>
where
    B: Body<Data = Bytes> + Send + Unpin + 'static,
    B::Error: Into<BoxError>,
{
    type Response = Response<Incoming>;
    type Error = BoxError;
    type Future = HttpFuture;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, mut request: Request<B>) -> HttpFuture {
        // whatever the client's own request came in
        *request.version_mut() = Version::HTTP_11;
        HttpFuture(self.client.request(request))
    }
}

/// The future of [`HttpClient`]. Dropping it closes the connection.
pub(crate) struct HttpFuture(ResponseFuture);

impl Future for HttpFuture {
    type Output = Result<Response<Incoming>, BoxError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut reply = ready!(Pin::new(&mut self.0).poll(cx)).map_err(leg_error)?;
        if let Some(seen) = reply.extensions_mut().remove::<ReplySeen>() {
            seen.answered();
        }
        Poll::Ready(reply::check(reply).map_err(Into::into))
    }
}

fn leg_error(error: legacy::Error) -> LegError {
    let kind = if error.is_connect() {
        LegErrorKind::Connect
    } else {
        match error.connect_info().map(was_seen) {
            Some(true) => LegErrorKind::Interrupted,
            Some(false) => LegErrorKind::Lost,
            // no connection was ever given the request
            None => LegErrorKind::Connect,
        }
    };
    LegError::new(kind).with_source(error)
}

fn was_seen(connection: &legacy::connect::Connected) -> bool {
    let mut extras = Extensions::new();
    connection.get_extras(&mut extras);
    extras.get::<ReplySeen>().is_none_or(ReplySeen::is_seen)
}

impl<B> Clone for HttpClient<B> {
    fn clone(&self) -> Self {
        Self { client: self.client.clone() }
    }
}

impl<B> fmt::Debug for HttpClient<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HttpClient")
    }
}

impl fmt::Debug for HttpFuture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HttpFuture")
    }
}
