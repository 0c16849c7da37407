use std::{
    sync::Arc,
    task::{Context, Poll},
};

use http::{HeaderName, Request};
use tower_service::Service;

use super::{
    IdSource,
    decide::{Found, find, set},
};
use crate::handoff::{Handoff, Stage};

/// The service of [`ConversationLayer`](super::ConversationLayer).
#[derive(Debug, Clone)]
pub struct Conversation<S> {
    inner: S,
    sources: Arc<[IdSource]>,
    header: HeaderName,
}

impl<S> Conversation<S> {
    /// Calls `inner` with the id from one of `sources` in `header`.
    pub fn new(inner: S, sources: Arc<[IdSource]>, header: HeaderName) -> Self {
        Self { inner, sources, header }
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

impl<S, G> Service<Request<Handoff<G>>> for Conversation<S>
where
    S: Service<Request<Handoff<G>>>,
    G: Stage,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, mut request: Request<Handoff<G>>) -> S::Future {
        if !self.sources.is_empty() {
            let found = find(&self.sources, request.headers(), request.body().request().object());
            metrics::counter!("disagg_conversation_ids_total", "result" => found.as_str()).increment(1);
            if let Found::Id(id) = found {
                set(request.headers_mut(), &self.header, id);
            }
        }
        self.inner.call(request)
    }
}
