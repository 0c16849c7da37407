use std::{
    sync::Arc,
    task::{Context, Poll},
};

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use tower_service::Service;

use super::{
    ContractBody, ContractFuture, PassthroughBody,
    decide::{self, Route},
    layer::Rules,
};
use crate::{
    error::BoxError,
    handoff::{Handoff, Validated},
    leg::headers::strip_serving_side,
    trtllm::ROUTING_HEADER,
};

/// The service of [`ContractLayer`](super::ContractLayer).
#[derive(Debug, Clone)]
pub struct Contract<S, P> {
    inner: S,
    passthrough: P,
    rules: Arc<Rules>,
}

impl<S, P> Contract<S, P> {
    pub(super) fn new(inner: S, passthrough: P, rules: Arc<Rules>) -> Self {
        Self { inner, passthrough, rules }
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

impl<S, P, B, SB, PB> Service<Request<B>> for Contract<S, P>
where
    B: Body<Data = Bytes>,
    B::Error: Into<BoxError>,
    S: Service<Request<Handoff<Validated>>, Response = Response<SB>> + Clone,
    S::Error: Into<BoxError>,
    P: Service<Request<PassthroughBody<B>>, Response = Response<PB>> + Clone,
    P::Error: Into<BoxError>,
{
    type Response = Response<ContractBody<SB, PB>>;
    type Error = BoxError;
    type Future = ContractFuture<B, S, P, S::Future, P::Future>;

    /// Always ready: an upload comes first. Whichever service is called afterwards is driven to readiness then.
    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let (mut parts, body) = request.into_parts();
        strip_serving_side(&mut parts.headers);
        match decide::route(&parts, &self.rules) {
            Err(error) => ContractFuture::failed(error),
            Ok(Route::Handoff(chosen)) => {
                parts.headers.remove(ROUTING_HEADER);
                ContractFuture::validate(body, &self.rules, parts, chosen, self.inner.clone())
            }
            Ok(Route::Ask(chosen, question)) => {
                parts.headers.remove(ROUTING_HEADER);
                ContractFuture::ask(question, body, self.rules.clone(), parts, chosen, self.inner.clone())
            }
            Ok(Route::Check) => ContractFuture::check(body, &self.rules, parts, self.passthrough.clone()),
            Ok(Route::Pass) => {
                let request = Request::from_parts(parts, PassthroughBody::stream(body));
                ContractFuture::pass(self.passthrough.clone(), request)
            }
        }
    }
}
