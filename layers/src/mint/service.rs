use std::{
    sync::Arc,
    task::{Context, Poll},
};

use http::{Request, Response};
use tower_service::Service;

use super::{MakeDisaggRequestId, MintFuture};
use crate::{
    error::BoxError,
    handoff::{Handoff, Minted, Validated},
};

/// The service of [`MintLayer`](super::MintLayer).
#[derive(Debug)]
pub struct Mint<S, M> {
    inner: S,
    maker: Arc<M>,
}

impl<S, M> Mint<S, M> {
    /// Calls `inner` with ids from `maker`.
    pub fn new(inner: S, maker: Arc<M>) -> Self {
        Self { inner, maker }
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

impl<S: Clone, M> Clone for Mint<S, M> {
    fn clone(&self) -> Self {
        Self { inner: self.inner.clone(), maker: self.maker.clone() }
    }
}

impl<S, M, B> Service<Request<Handoff<Validated>>> for Mint<S, M>
where
    S: Service<Request<Handoff<Minted>>, Response = Response<B>>,
    S::Error: Into<BoxError>,
    M: MakeDisaggRequestId,
{
    type Response = Response<B>;
    type Error = BoxError;
    type Future = MintFuture<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, request: Request<Handoff<Validated>>) -> Self::Future {
        match self.maker.make() {
            Ok(id) => {
                let mut request = request.map(|handoff| handoff.mint(id));
                request.extensions_mut().insert(id);
                MintFuture::called(self.inner.call(request), id)
            }
            Err(error) => MintFuture::failed(error),
        }
    }
}
