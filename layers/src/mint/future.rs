use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll, ready},
};

use http::Response;

use super::IdError;
use crate::{error::BoxError, trtllm::DisaggRequestId};

/// The future of [`Mint`](super::Mint).
#[derive(Debug)]
#[pin_project::pin_project]
#[must_use = "futures do nothing unless polled"]
pub struct MintFuture<F> {
    #[pin]
    state: State<F>,
}

#[derive(Debug)]
#[pin_project::pin_project(project = StateProj)]
enum State<F> {
    Failed {
        error: Option<IdError>,
    },
    Called {
        #[pin]
        response: F,
        id: DisaggRequestId,
    },
}

impl<F> MintFuture<F> {
    pub(super) fn called(response: F, id: DisaggRequestId) -> Self {
        Self { state: State::Called { response, id } }
    }

    pub(super) fn failed(error: IdError) -> Self {
        Self { state: State::Failed { error: Some(error) } }
    }
}

impl<F, B, E> Future for MintFuture<F>
where
    F: Future<Output = Result<Response<B>, E>>,
    E: Into<BoxError>,
{
    type Output = Result<Response<B>, BoxError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match self.project().state.project() {
            StateProj::Failed { error } => match error.take() {
                Some(error) => Poll::Ready(Err(error.into())),
                None => Poll::Pending,
            },
            StateProj::Called { response, id } => {
                let mut response = ready!(response.poll(cx)).map_err(Into::into)?;
                response.extensions_mut().insert(*id);
                Poll::Ready(Ok(response))
            }
        }
    }
}
