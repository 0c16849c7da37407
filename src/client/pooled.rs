use std::{
    fmt,
    future::Future,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use http::{Extensions, Request, Response, Uri, Version, uri::Authority};
use http_body::Body;
use hyper::body::Incoming;
use hyper_util::{
    client::legacy::{
        self, Client, ResponseFuture,
        connect::{CaptureConnection, Connected, capture_connection},
    },
    rt::{TokioExecutor, TokioTimer},
};
use tower_disagg::{
    error::BoxError,
    leg::{CheckedAddresses, HangUp, LegError, LegErrorKind},
};
use tower_service::Service;

use super::{POOL_IDLE, checked, connect::Connector, lost::Lost, reply, track::Line};

/// A client for request bodies of type `B`. Clones share one pool.
///
/// Where a connection was just lost, calls get connections of their own for a moment, so that another attempt does not
/// meet a second one that the worker has closed.
pub(crate) struct HttpClient<B> {
    pooled: Client<Connector, B>,
    unpooled: Client<Connector, B>,
    lost: Lost,
}

impl<B> HttpClient<B>
where
    B: Body + Send,
    B::Data: Send,
{
    /// A client whose connections take at most `connect_timeout` to make, name resolution included.
    pub(crate) fn new(connect_timeout: Duration) -> Self {
        let (pooled, unpooled) = (build(connect_timeout, usize::MAX), build(connect_timeout, 0));
        Self { pooled, unpooled, lost: Lost::default() }
    }

    /// A client that makes a connection for each request. What it does says nothing about, and takes nothing from,
    /// the connections of the legs.
    pub(crate) fn unpooled(connect_timeout: Duration) -> Self {
        let unpooled = build(connect_timeout, 0);
        Self { pooled: unpooled.clone(), unpooled, lost: Lost::default() }
    }
}

fn build<B>(connect_timeout: Duration, idle: usize) -> Client<Connector, B>
where
    B: Body + Send,
    B::Data: Send,
{
    Client::builder(TokioExecutor::new())
        .pool_timer(TokioTimer::new())
        .timer(TokioTimer::new())
        .pool_idle_timeout(POOL_IDLE)
        .pool_max_idle_per_host(idle)
        .retry_canceled_requests(true) // only those of which no byte was written: the pool gets them back whole
        .build(Connector::new(connect_timeout))
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
        let hang_up = request.extensions_mut().remove::<HangUp>();
        if let Some(hang_up) = &hang_up {
            hang_up.accept();
        }
        let checked = request.extensions_mut().remove::<CheckedAddresses>();
        if let Some(checked) = &checked {
            *request.uri_mut() = pin(request.uri(), checked);
        }
        let connection = capture_connection(&mut request);
        let place = request.uri().authority().cloned();
        let fresh = place.as_ref().is_some_and(|place| self.lost.is_recent(place));
        let client = if fresh { &self.unpooled } else { &self.pooled };
        HttpFuture {
            reply: client.request(request),
            connection: Some(connection),
            hang_up,
            place: place.map(|place| (place, self.lost.clone())),
        }
    }
}

/// The same URI, to be dialled at these addresses only. The client refuses one without an authority.
fn pin(uri: &Uri, addresses: &CheckedAddresses) -> Uri {
    let mut parts = uri.clone().into_parts();
    parts.authority = parts.authority.and_then(|place| checked::pin(&place, addresses).ok());
    Uri::from_parts(parts).unwrap_or_default()
}

/// The future of [`HttpClient`]. Dropping it closes the connection.
pub(crate) struct HttpFuture {
    reply: ResponseFuture,
    /// Gone once the future has returned: the connection may serve others then.
    connection: Option<CaptureConnection>,
    /// Whether the call is to end, and still to hear what was said before.
    hang_up: Option<HangUp>,
    place: Option<(Authority, Lost)>,
}

impl Future for HttpFuture {
    type Output = Result<Response<Incoming>, BoxError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Poll::Ready(result) = Pin::new(&mut self.reply).poll(cx) else {
            let mut given = false;
            let ends = self.hang_up.as_ref().is_some_and(|hang_up| hang_up.is_wanted(cx.waker()));
            self.with_connection(|connected, line| {
                given = true;
                line.begun();
                if ends {
                    connected.poison();
                    line.end();
                }
            });
            if ends && !given {
                // nothing was sent, and nothing will be
                return Poll::Ready(Err(hung_up().into()));
            }
            return Poll::Pending;
        };
        self.connection = None;
        let ended = self.hang_up.as_ref().is_some_and(HangUp::is_asked);
        let mut reply = result.map_err(|error| {
            if ended {
                // the worker did as it was asked to: that says nothing of it, or of its other connections
                return hung_up().with_source(error);
            }
            let error = leg_error(error);
            if let (LegErrorKind::Lost, Some((place, lost))) = (error.kind(), self.place.take()) {
                lost.note(place);
            }
            error
        })?;
        if let Some(line) = reply.extensions_mut().remove::<Line>() {
            line.answered();
        }
        Poll::Ready(reply::check(reply).map_err(Into::into))
    }
}

impl HttpFuture {
    fn with_connection(&self, f: impl FnOnce(&Connected, &Line)) {
        let Some(connection) = &self.connection else { return };
        if let Some(connected) = &*connection.connection_metadata()
            && let Some(line) = line(connected)
        {
            f(connected, &line);
        }
    }
}

impl Drop for HttpFuture {
    fn drop(&mut self) {
        // the call inside still has the connection, so nobody else can get it before it is poisoned
        self.with_connection(|connected, line| {
            connected.poison();
            line.close();
        });
    }
}

/// The call ended since nobody waits for it. Not a failure of the connection, and nothing to be tried again.
fn hung_up() -> LegError {
    LegError::new(LegErrorKind::Interrupted).with_message("the client has left")
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

fn was_seen(connection: &Connected) -> bool {
    line(connection).is_none_or(|line| line.is_seen())
}

fn line(connection: &Connected) -> Option<Line> {
    let mut extras = Extensions::new();
    connection.get_extras(&mut extras);
    extras.remove()
}

impl<B> Clone for HttpClient<B> {
    fn clone(&self) -> Self {
        Self { pooled: self.pooled.clone(), unpooled: self.unpooled.clone(), lost: self.lost.clone() }
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
