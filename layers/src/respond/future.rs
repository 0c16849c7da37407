use std::{
    convert::Infallible,
    fmt,
    future::Future,
    pin::Pin,
    task::{Context, Poll, ready},
};

use http::{Request, Response};
use tower_service::Service;

use super::{RespondBody, RespondLayer, handled};
use crate::error::BoxError;

/// The future of [`Respond`](super::Respond): waits for the inner service, calls it, and answers its error.
#[pin_project::pin_project]
#[must_use = "futures do nothing unless polled"]
pub struct RespondFuture<S: Service<Request<B>>, B> {
    layer: RespondLayer,
    #[pin]
    state: State<S, Request<B>, S::Future>,
}

#[pin_project::pin_project(project = StateProj)]
enum State<S, R, F> {
    /// The clone that is to be called, and the request until it is.
    Waiting { service: S, request: Option<R> },
    Called {
        #[pin]
        future: F,
    },
}

impl<S: Service<Request<B>>, B> RespondFuture<S, B> {
    pub(super) fn new(service: S, request: Request<B>, layer: RespondLayer) -> Self {
        Self { layer, state: State::Waiting { service, request: Some(request) } }
    }
}

impl<S, ReqBody, B> Future for RespondFuture<S, ReqBody>
where
    S: Service<Request<ReqBody>, Response = Response<B>>,
    S::Error: Into<BoxError>,
{
    type Output = Result<Response<RespondBody<B>>, Infallible>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        let result = loop {
            match this.state.as_mut().project() {
                StateProj::Waiting { service, request } => {
                    if let Err(error) = ready!(service.poll_ready(cx)) {
                        break Err(error);
                    }
                    // Only a future that is polled after its end finds no request.
                    let Some(request) = request.take() else { return Poll::Pending };
                    let future = service.call(request);
                    this.state.set(State::Called { future });
                }
                StateProj::Called { future } => break ready!(future.poll(cx)),
            }
        };
        Poll::Ready(Ok(match result {
            Ok(response) => response.map(RespondBody::inner),
            Err(error) => handled::answer(this.layer, error.into()),
        }))
    }
}

impl<S: Service<Request<B>>, B> fmt::Debug for RespondFuture<S, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = match self.state {
            State::Waiting { .. } => "waiting",
            State::Called { .. } => "called",
        };
        f.debug_struct("RespondFuture").field("state", &state).finish_non_exhaustive()
    }
}
