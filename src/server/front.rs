use std::{
    convert::Infallible,
    future::{Ready, ready},
    pin::Pin,
    task::{Context, Poll},
};

use bytes::Bytes;
use http::{
    HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Version,
    header::{CONNECTION, CONTENT_TYPE, TRANSFER_ENCODING},
};
use http_body_util::Full;
use tower_disagg::{body::EitherBody, error::ErrorReply};
use tower_service::Service;

use super::{Phase, Phases};

/// What the sidecar answers by itself on the data port; all else goes to the stack.
#[derive(Debug, Clone)]
pub(super) struct Front<S> {
    stack: S,
    phases: Phases,
}

impl<S> Front<S> {
    pub(super) fn new(stack: S, phases: Phases) -> Self {
        Self { stack, phases }
    }
}

/// A small text answer.
pub(super) fn text(status: StatusCode, text: &'static str) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::from(text));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response
}

fn refuse(status: StatusCode, code: &'static str, message: &'static str) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::from(ErrorReply::new(status, code, message).body()));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    response
}

fn own_answer<B>(request: &Request<B>, phase: Phase) -> Option<Response<Full<Bytes>>> {
    if request.version() < Version::HTTP_2 && has_odd_coding(request.headers()) {
        let message = "the transfer-encoding of a request must be chunked, once";
        return Some(refuse(StatusCode::BAD_REQUEST, "invalid_request", message));
    }
    if request.method() == Method::CONNECT {
        let message = "CONNECT is not supported";
        return Some(refuse(StatusCode::METHOD_NOT_ALLOWED, "unsupported_endpoint", message));
    }
    if request.method() != Method::GET && request.method() != Method::HEAD {
        return None;
    }
    match request.uri().path() {
        "/health" => Some(text(StatusCode::OK, "ok\n")),
        "/ready" if phase == Phase::Serving => Some(text(StatusCode::OK, "ready\n")),
        "/ready" => Some(text(StatusCode::SERVICE_UNAVAILABLE, "draining\n")),
        _ => None,
    }
}

/// Whether two readers could see the length of the body differently. hyper takes any list that ends in `chunked`.
fn has_odd_coding(headers: &HeaderMap) -> bool {
    let mut codings = headers.get_all(TRANSFER_ENCODING).iter();
    match (codings.next(), codings.next()) {
        (None, _) => false,
        (Some(coding), None) => !coding.as_bytes().eq_ignore_ascii_case(b"chunked"),
        (Some(_), Some(_)) => true,
    }
}

impl<S, B, R> Service<Request<B>> for Front<S>
where
    S: Service<Request<B>, Response = Response<R>, Error = Infallible>,
{
    type Response = Response<EitherBody<Full<Bytes>, R>>;
    type Error = Infallible;
    type Future = FrontFuture<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.stack.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        match own_answer(&request, self.phases.now()) {
            Some(response) => FrontFuture::Own(ready(response)),
            None => FrontFuture::Stack(self.stack.call(request)),
        }
    }
}

/// The future of [`Front`].
#[derive(Debug)]
#[pin_project::pin_project(project = FrontProj)]
pub(super) enum FrontFuture<F> {
    Own(Ready<Response<Full<Bytes>>>),
    Stack(#[pin] F),
}

impl<F, R> Future for FrontFuture<F>
where
    F: Future<Output = Result<Response<R>, Infallible>>,
{
    type Output = Result<Response<EitherBody<Full<Bytes>, R>>, Infallible>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match self.project() {
            FrontProj::Own(response) => {
                Pin::new(response).poll(cx).map(|response| Ok(response.map(EitherBody::Left)))
            }
            FrontProj::Stack(inner) => inner.poll(cx).map_ok(|response| response.map(EitherBody::Right)),
        }
    }
}
