use std::{
    convert::Infallible,
    task::{Context, Poll},
};

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use tower_service::Service;

use super::{RespondBody, RespondFuture, RespondLayer};
use crate::error::BoxError;

/// The service of [`RespondLayer`]. See the [module](super) for examples.
#[derive(Debug, Clone)]
pub struct Respond<S> {
    inner: S,
    layer: RespondLayer,
}

impl<S> Respond<S> {
    pub(super) fn new(inner: S, layer: RespondLayer) -> Self {
        Self { inner, layer }
    }

    /// The inner service.
    pub fn get_ref(&self) -> &S {
        &self.inner
    }

    /// The inner service.
    pub fn into_inner(self) -> S {
        self.inner
    }
}

impl<S, ReqBody, B> Service<Request<ReqBody>> for Respond<S>
where
    S: Service<Request<ReqBody>, Response = Response<B>> + Clone,
    S::Error: Into<BoxError>,
    B: Body<Data = Bytes>,
{
    type Response = Response<RespondBody<B>>;
    type Error = Infallible;
    type Future = RespondFuture<S, ReqBody>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<ReqBody>) -> Self::Future {
        RespondFuture::new(self.inner.clone(), request, self.layer.clone())
    }
}
