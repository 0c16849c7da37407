//! Drives a service to readiness and calls it, as one future.

use std::{
    fmt,
    future::Future,
    pin::Pin,
    task::{Context, Poll, ready},
};

use tower_service::Service;

/// Polls a service until it is ready, then calls it with a request.
///
/// Layers that wait for something slow before they call their inner service (an upload, a context leg) hold a clone of
/// it here and reserve nothing until then. The service that was driven to readiness is the one that is called.
#[pin_project::pin_project]
#[must_use = "futures do nothing unless polled"]
pub(crate) struct CallWhenReady<S, R, F> {
    #[pin]
    state: State<S, R, F>,
}

#[pin_project::pin_project(project = StateProj)]
enum State<S, R, F> {
    Waiting {
        service: S,
        request: Option<R>,
    },
    Called {
        #[pin]
        future: F,
    },
}

impl<S, R, F> CallWhenReady<S, R, F> {
    pub(crate) fn new(service: S, request: R) -> Self {
        Self { state: State::Waiting { service, request: Some(request) } }
    }
}

impl<S, R, F, T, E> Future for CallWhenReady<S, R, F>
where
    S: Service<R, Future = F>,
    F: Future<Output = Result<T, E>>,
    S: Service<R, Response = T, Error = E>,
{
    type Output = Result<T, E>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        loop {
            match this.state.as_mut().project() {
                StateProj::Waiting { service, request } => {
                    ready!(service.poll_ready(cx))?;
                    let Some(request) = request.take() else {
                        // The call panicked, and the future is polled all the same.
                        return Poll::Pending;
                    };
                    let future = service.call(request);
                    this.state.set(State::Called { future });
                }
                StateProj::Called { future } => return future.poll(cx),
            }
        }
    }
}

impl<S, R, F> fmt::Debug for CallWhenReady<S, R, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.state {
            State::Waiting { .. } => "waiting for readiness",
            State::Called { .. } => "called",
        })
    }
}

#[cfg(test)]
mod tests;
