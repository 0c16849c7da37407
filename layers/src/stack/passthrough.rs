use std::{
    fmt,
    future::Future,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use http::{Request, Response, Uri, Version, request::Parts};
use http_body::Body;
use tower_service::Service;

use crate::{
    buffer::BufferBudget,
    call::CallWhenReady,
    contract::{PassthroughBody, Upload},
    error::{BoxError, ContractError, ContractErrorKind},
    leg::{
        LegBody,
        headers::{strip_request, strip_response},
        target,
    },
};

/// Sends requests that are not handed off to a client made for legs: reads their bodies first.
///
/// Where they go is for this side to say, so an address that the client wrote into its request is left out, and a
/// CONNECT, which has nothing else, is refused (501, `unsupported_endpoint`).
#[derive(Debug, Clone)]
pub struct Passthrough<S> {
    inner: S,
    origin: Option<Uri>,
    limit: u64,
    budget: BufferBudget,
    timeout: Option<Duration>,
}

impl<S> Passthrough<S> {
    /// Reads bodies of up to `limit` bytes, counted against `budget`.
    pub fn new(inner: S, limit: u64, budget: BufferBudget) -> Self {
        Self { inner, origin: None, limit, budget, timeout: None }
    }

    /// Refuses bodies that are not complete after `timeout`. Without it they may take for ever. It needs a tokio
    /// runtime with time.
    pub fn body_timeout(mut self, timeout: Option<Duration>) -> Self {
        self.timeout = timeout;
        self
    }

    /// Sends requests to this scheme and authority. Without it they carry the client's path and query alone.
    pub fn to(mut self, origin: Option<Uri>) -> Self {
        self.origin = origin;
        self
    }
}

impl<S, B, RB> Service<Request<PassthroughBody<B>>> for Passthrough<S>
where
    B: Body<Data = Bytes>,
    B::Error: Into<BoxError>,
    S: Service<Request<LegBody>, Response = Response<RB>> + Clone,
    S::Error: Into<BoxError>,
{
    type Response = Response<RB>;
    type Error = BoxError;
    type Future = PassthroughFuture<B, S, S::Future>;

    /// Always ready: the body comes first.
    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<PassthroughBody<B>>) -> Self::Future {
        let (mut parts, body) = request.into_parts();
        strip_request(&mut parts.headers);
        // A version is that of one connection, too: clients refuse to send HTTP/2 over a connection that is not.
        parts.version = Version::default();
        let Some(path) = parts.uri.path_and_query() else {
            return PassthroughFuture { state: State::Refused { error: Some(no_tunnels()) } };
        };
        parts.uri = target(self.origin.as_ref(), path.clone());
        let inner = self.inner.clone();
        let state = match body.into_inner() {
            Ok(body) => {
                State::Called { response: CallWhenReady::new(inner, Request::from_parts(parts, body)) }
            }
            Err(body) => {
                let body = Upload::new(body, self.limit, &self.budget, self.timeout);
                State::Body { body, then: Some((parts, inner)) }
            }
        };
        PassthroughFuture { state }
    }
}

/// A CONNECT names no path but an address, which the client service would connect to.
fn no_tunnels() -> ContractError {
    ContractError::new(ContractErrorKind::UnsupportedEndpoint).with_message("CONNECT is not served here")
}

/// The future of [`Passthrough`].
#[pin_project::pin_project]
#[must_use = "futures do nothing unless polled"]
pub struct PassthroughFuture<B, S, F> {
    #[pin]
    state: State<B, S, F>,
}

#[pin_project::pin_project(project = StateProj)]
enum State<B, S, F> {
    Refused {
        error: Option<ContractError>,
    },
    Body {
        #[pin]
        body: Upload<B>,
        then: Option<(Parts, S)>,
    },
    Called {
        #[pin]
        response: CallWhenReady<S, Request<LegBody>, F>,
    },
}

impl<B, S, F, RB> Future for PassthroughFuture<B, S, F>
where
    B: Body<Data = Bytes>,
    B::Error: Into<BoxError>,
    S: Service<Request<LegBody>, Response = Response<RB>, Future = F>,
    S::Error: Into<BoxError>,
    F: Future<Output = Result<Response<RB>, S::Error>>,
{
    type Output = Result<Response<RB>, BoxError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        loop {
            match this.state.as_mut().project() {
                StateProj::Refused { error } => {
                    return error.take().map_or(Poll::Pending, |error| Poll::Ready(Err(error.into())));
                }
                StateProj::Body { body, then } => {
                    let body = ready!(body.poll(cx))?;
                    let Some((parts, inner)) = then.take() else { return Poll::Pending };
                    let request = Request::from_parts(parts, LegBody::from(body));
                    this.state.set(State::Called { response: CallWhenReady::new(inner, request) });
                }
                StateProj::Called { response } => {
                    let mut response = ready!(response.poll(cx)).map_err(Into::into)?;
                    strip_response(response.headers_mut());
                    return Poll::Ready(Ok(response));
                }
            }
        }
    }
}

impl<B, S, F> fmt::Debug for PassthroughFuture<B, S, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.state {
            State::Refused { .. } => "PassthroughFuture(refused)",
            State::Body { .. } => "PassthroughFuture(body)",
            State::Called { .. } => "PassthroughFuture(called)",
        })
    }
}
