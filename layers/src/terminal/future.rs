use std::{
    fmt,
    future::Future,
    pin::Pin,
    task::{Context, Poll},
};

use http::{Request, Response};
use tower_service::Service;

use super::TerminalBody;
use crate::{
    body::EitherBody,
    call::CallWhenReady,
    handoff::{Handoff, Open},
    leg::LegBody,
};

/// The future of [`Terminal`](super::Terminal).
#[pin_project::pin_project]
pub struct TerminalFuture<S, F> {
    #[pin]
    state: State<S, F>,
}

#[pin_project::pin_project(project = StateProj)]
enum State<S, F> {
    Answer {
        response: Option<Response<LegBody>>,
    },
    Generate {
        #[pin]
        response: CallWhenReady<S, Request<Handoff<Open>>, F>,
    },
}

impl<S, F> TerminalFuture<S, F> {
    pub(super) fn answer(response: Response<LegBody>) -> Self {
        Self { state: State::Answer { response: Some(response) } }
    }

    pub(super) fn generate(inner: S, request: Request<Handoff<Open>>) -> Self {
        Self { state: State::Generate { response: CallWhenReady::new(inner, request) } }
    }
}

impl<S, F, B> Future for TerminalFuture<S, F>
where
    S: Service<Request<Handoff<Open>>, Response = Response<B>, Future = F>,
    F: Future<Output = Result<Response<B>, S::Error>>,
{
    type Output = Result<Response<TerminalBody<B>>, S::Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match self.project().state.project() {
            StateProj::Answer { response } => match response.take() {
                Some(response) => Poll::Ready(Ok(response.map(EitherBody::Left))),
                None => Poll::Pending,
            },
            StateProj::Generate { response } => {
                response.poll(cx).map_ok(|response| response.map(EitherBody::Right))
            }
        }
    }
}

impl<S, F> fmt::Debug for TerminalFuture<S, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.state {
            State::Answer { .. } => "TerminalFuture(answer)",
            State::Generate { .. } => "TerminalFuture(generate)",
        })
    }
}
