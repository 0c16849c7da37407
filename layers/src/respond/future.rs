use std::{
    convert::Infallible,
    fmt,
    future::Future,
    pin::Pin,
    task::{Context, Poll, ready},
};

use http::{Request, Response};
use http_body::Body;
use tower_service::Service;

use super::{RespondBody, RespondLayer, handled};
use crate::{call::CallWhenReady, error::BoxError};

/// The future of [`Respond`](super::Respond): waits for the inner service, calls it, and answers its error.
#[pin_project::pin_project]
#[must_use = "futures do nothing unless polled"]
pub struct RespondFuture<S: Service<Request<B>>, B> {
    layer: RespondLayer,
    #[pin]
    call: CallWhenReady<S, Request<B>, S::Future>,
}

impl<S: Service<Request<B>>, B> RespondFuture<S, B> {
    pub(super) fn new(service: S, request: Request<B>, layer: RespondLayer) -> Self {
        Self { layer, call: CallWhenReady::new(service, request) }
    }
}

impl<S, ReqBody, B> Future for RespondFuture<S, ReqBody>
where
    S: Service<Request<ReqBody>, Response = Response<B>>,
    S::Error: Into<BoxError>,
    B: Body,
{
    type Output = Result<Response<RespondBody<B>>, Infallible>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        Poll::Ready(Ok(match ready!(this.call.poll(cx)) {
            Ok(response) => response.map(RespondBody::inner),
            Err(error) => handled::answer(this.layer, error.into()),
        }))
    }
}

impl<S: Service<Request<B>>, B> fmt::Debug for RespondFuture<S, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RespondFuture").field("call", &self.call).finish_non_exhaustive()
    }
}
