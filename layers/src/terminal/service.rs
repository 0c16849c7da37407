use std::task::{Context, Poll};

use http::{Request, Response};
use tower_service::Service;

use super::{TerminalBody, TerminalFuture, answer::answer};
use crate::handoff::{Handoff, Open, Primed, Verdict};

/// The service of [`TerminalLayer`](super::TerminalLayer).
#[derive(Debug, Clone)]
pub struct Terminal<S> {
    inner: S,
}

impl<S> Terminal<S> {
    /// Calls `inner` when a generation leg is due.
    pub const fn new(inner: S) -> Self {
        Self { inner }
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

impl<S, B> Service<Request<Handoff<Primed>>> for Terminal<S>
where
    S: Service<Request<Handoff<Open>>, Response = Response<B>> + Clone,
{
    type Response = Response<TerminalBody<B>>;
    type Error = S::Error;
    type Future = TerminalFuture<S, S::Future>;

    /// Always ready: an answer may need no inner service. A clone of it is driven to readiness when one is due.
    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Handoff<Primed>>) -> Self::Future {
        let (parts, handoff) = request.into_parts();
        match handoff.judge() {
            Verdict::Generate(open) => {
                TerminalFuture::generate(self.inner.clone(), Request::from_parts(parts, open))
            }
            Verdict::Terminal(primed) => TerminalFuture::answer(answer(&primed)),
        }
    }
}
