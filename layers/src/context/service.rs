use std::{
    mem,
    task::{self, Poll},
};

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use tower_service::Service;

use super::{ContextFuture, request::leg_request};
use crate::{
    error::BoxError,
    handoff::{Handoff, Minted, Primed},
    leg::{HangUp, LegBody, ReplyHead},
    settle::Settler,
};

/// The service of [`ContextLayer`](super::ContextLayer).
#[derive(Debug)]
pub struct Context<S, L> {
    inner: S,
    leg: L,
    settler: Settler,
}

impl<S, L> Context<S, L> {
    /// Runs the context leg on `leg`, then calls `inner`.
    pub fn new(inner: S, leg: L, settler: Settler) -> Self {
        Self { inner, leg, settler }
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

impl<S: Clone, L: Clone> Clone for Context<S, L> {
    /// The clone of a leg that was ready has to be driven to readiness anew, like any clone of a service.
    fn clone(&self) -> Self {
        Self::new(self.inner.clone(), self.leg.clone(), self.settler.clone())
    }
}

impl<S, L, B> Service<Request<Handoff<Minted>>> for Context<S, L>
where
    L: Service<Request<LegBody>, Response = Response<Bytes>> + Clone,
    L::Error: Into<BoxError>,
    L::Future: Send + 'static,
    S: Service<Request<Handoff<Primed>>, Response = Response<B>> + Clone + Send + 'static,
    S::Error: Into<BoxError>,
    S::Future: Send + 'static,
    B: Body + Send + 'static,
{
    type Response = S::Response;
    type Error = BoxError;
    type Future = ContextFuture<B>;

    /// Ready when the leg is: the leg is what is called first. The inner service is driven to readiness when the
    /// context reply is there, so that no generation slot is held while prefill runs.
    fn poll_ready(&mut self, cx: &mut task::Context<'_>) -> Poll<Result<(), BoxError>> {
        self.leg.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, request: Request<Handoff<Minted>>) -> Self::Future {
        let fresh = self.leg.clone();
        let mut leg = mem::replace(&mut self.leg, fresh);
        let head = ReplyHead::new();
        let (parts, handoff) = request.into_parts();
        let ticket = self.settler.ticket();
        let hang_up = HangUp::new();
        match leg_request(&parts, &handoff, head.clone(), hang_up.clone()) {
            Ok(request) => {
                let reply = leg.call(request);
                ContextFuture::new(reply, (head, hang_up), ticket, (parts, handoff), self.inner.clone())
            }
            Err(error) => ContextFuture::failed(error.into(), ticket),
        }
    }
}
