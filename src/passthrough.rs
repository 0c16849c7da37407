//! Requests that no context worker was chosen for.

use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll, ready},
};

use http::{Request, Response, Uri, request::Parts};
use tower_disagg::{
    contract::PassthroughBody,
    error::{BoxError, ContractError, ContractErrorKind, GenerationError, GenerationErrorKind, find},
    leg::{
        LegErrorKind,
        headers::{strip_request, strip_response},
    },
};
use tower_service::Service;

/// Sends requests to the local generation worker as they are, save the headers of one connection.
///
/// `S` is a client with the deadlines of the generation leg. Its failures before a reply become
/// [`GenerationError`]s.
#[derive(Debug, Clone)]
pub(crate) struct Passthrough<S> {
    /// None when such requests are not served.
    client: Option<S>,
    origin: Uri,
}

impl<S> Passthrough<S> {
    pub(crate) fn new(client: S, origin: Uri) -> Self {
        Self { client: Some(client), origin }
    }

    /// Answers with 404.
    pub(crate) fn off() -> Self {
        Self { client: None, origin: Uri::default() }
    }
}

/// The same target at another origin.
fn direct(parts: &mut Parts, origin: &Uri) -> Result<(), ContractError> {
    let mut uri = std::mem::take(&mut parts.uri).into_parts();
    uri.scheme = origin.scheme().cloned();
    uri.authority = origin.authority().cloned();
    parts.uri = Uri::from_parts(uri).map_err(|error| {
        ContractError::new(ContractErrorKind::InvalidRequest)
            .with_message("the request target is not a path")
            .with_source(error)
    })?;
    Ok(())
}

fn generation_error(error: BoxError) -> BoxError {
    // a client's upload that breaks off, or is late, is no failure of the worker
    if find::<ContractError>(&*error).is_some() {
        return error;
    }
    let kind = match LegErrorKind::of(&*error) {
        LegErrorKind::Timeout => GenerationErrorKind::Timeout,
        LegErrorKind::Connect | LegErrorKind::Lost => GenerationErrorKind::Unreachable,
        _ => GenerationErrorKind::Interrupted,
    };
    GenerationError::new(kind).with_source(error).into()
}

impl<S, B, R> Service<Request<PassthroughBody<B>>> for Passthrough<S>
where
    S: Service<Request<PassthroughBody<B>>, Response = Response<R>, Error = BoxError>,
{
    type Response = Response<R>;
    type Error = BoxError;
    type Future = PassthroughFuture<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.client.as_mut().map_or(Poll::Ready(Ok(())), |client| client.poll_ready(cx))
    }

    fn call(&mut self, request: Request<PassthroughBody<B>>) -> Self::Future {
        let Some(client) = &mut self.client else {
            return PassthroughFuture::Refused(Some(ContractError::new(ContractErrorKind::NotServed)));
        };
        let (mut parts, body) = request.into_parts();
        strip_request(&mut parts.headers);
        match direct(&mut parts, &self.origin) {
            Ok(()) => PassthroughFuture::Sent(client.call(Request::from_parts(parts, body))),
            Err(error) => PassthroughFuture::Refused(Some(error)),
        }
    }
}

/// The future of [`Passthrough`].
#[derive(Debug)]
#[pin_project::pin_project(project = PassthroughProj)]
pub(crate) enum PassthroughFuture<F> {
    Refused(Option<ContractError>),
    Sent(#[pin] F),
}

impl<F, R> Future for PassthroughFuture<F>
where
    F: Future<Output = Result<Response<R>, BoxError>>,
{
    type Output = Result<Response<R>, BoxError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match self.project() {
            PassthroughProj::Refused(error) => match error.take() {
                Some(error) => Poll::Ready(Err(error.into())),
                None => Poll::Pending,
            },
            PassthroughProj::Sent(reply) => {
                let mut reply = ready!(reply.poll(cx)).map_err(generation_error)?;
                strip_response(reply.headers_mut());
                Poll::Ready(Ok(reply))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bytes::Bytes;
    use http::StatusCode;
    use http_body_util::Full;
    use tower::{ServiceExt, service_fn};
    use tower_disagg::{error::ErrorReply, leg::LegError};

    use super::*;

    type Body = PassthroughBody<Full<Bytes>>;

    fn request(target: &str) -> Request<Body> {
        let body = PassthroughBody::stream(Full::from("x"));
        Request::post(target)
            .header("connection", "x-hop")
            .header("x-hop", "1")
            .header("x-kept", "1")
            .header("content-length", "1")
            .body(body)
            .unwrap()
    }

    #[tokio::test]
    async fn target_and_headers() {
        let client = service_fn(async |request: Request<Body>| {
            assert_eq!(request.uri(), "http://gen:8001/v1/x?y=1");
            let names: Vec<_> = request.headers().keys().map(|name| name.as_str()).collect();
            assert_eq!(names, ["x-kept"]);
            let reply = Response::builder().header("connection", "close").header("x-worker", "7");
            Ok::<_, BoxError>(reply.body(()).unwrap())
        });
        let service = Passthrough::new(client, Uri::from_static("http://gen:8001"));
        for target in ["/v1/x?y=1", "http://other/v1/x?y=1"] {
            let reply = service.clone().oneshot(request(target)).await.unwrap();
            assert_eq!(reply.headers().len(), 1);
            assert_eq!(reply.headers()["x-worker"], "7");
        }
    }

    #[tokio::test]
    async fn failures() {
        for (kind, status, code) in [
            (LegErrorKind::Connect, 503, "generation_unreachable"),
            (LegErrorKind::Lost, 503, "generation_unreachable"),
            (LegErrorKind::Timeout, 504, "generation_timeout"),
            (LegErrorKind::Interrupted, 502, "generation_interrupted"),
        ] {
            let client = service_fn(move |_: Request<Body>| {
                std::future::ready(Err::<Response<()>, BoxError>(LegError::new(kind).into()))
            });
            let service = Passthrough::new(client, Uri::from_static("http://gen:8001"));
            let reply = ErrorReply::of(&*service.oneshot(request("/x")).await.unwrap_err());
            assert_eq!((reply.status.as_u16(), reply.code), (status, code));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_late_head_is_a_timeout() {
        let client = service_fn(|_: Request<Body>| std::future::pending::<Result<Response<()>, BoxError>>());
        let client = tower::timeout::Timeout::new(client, Duration::from_secs(1));
        let service = Passthrough::new(client, Uri::from_static("http://gen:8001"));
        let pending: Result<Response<()>, BoxError> = service.oneshot(request("/x")).await;
        assert_eq!(ErrorReply::of(&*pending.unwrap_err()).code, "generation_timeout");
    }

    #[tokio::test]
    async fn off() {
        let mut service = Passthrough::off();
        type Client = tower::util::BoxCloneService<Request<Body>, Response<()>, BoxError>;
        let service: &mut Passthrough<Client> = &mut service;
        let error = service.ready().await.unwrap().call(request("/x")).await.unwrap_err();
        assert_eq!(ErrorReply::of(&*error).status, StatusCode::NOT_FOUND);
    }
}
