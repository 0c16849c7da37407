use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use http_body::Body;
use tokio::time::Sleep;

use super::decide;
use crate::{
    buffer::{BufferBudget, Collect},
    error::{BoxError, ContractError, ContractErrorKind},
};

/// Reads the body of a client's request whole, up to a cap and a deadline. Dropping it drops the body.
#[pin_project::pin_project]
#[must_use = "futures do nothing unless polled"]
pub(crate) struct Upload<B> {
    #[pin]
    body: Collect<B>,
    limit: u64,
    #[pin]
    deadline: Option<Sleep>,
}

impl<B: Body> Upload<B> {
    /// Reads at most `limit` bytes, counted against `budget`, for at most `timeout` from now on.
    pub(crate) fn new(body: B, limit: u64, budget: &BufferBudget, timeout: Option<Duration>) -> Self {
        Self { body: Collect::new(body, limit, budget), limit, deadline: timeout.map(tokio::time::sleep) }
    }
}

impl<B> Future for Upload<B>
where
    B: Body<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    type Output = Result<Bytes, BoxError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        // The body first: one that is there at the deadline is in time.
        if let Poll::Ready(body) = this.body.poll(cx) {
            return Poll::Ready(body.map_err(|error| decide::unread(error, *this.limit)));
        }
        let Some(deadline) = this.deadline.as_pin_mut() else { return Poll::Pending };
        ready!(deadline.poll(cx));
        Poll::Ready(Err(ContractError::new(ContractErrorKind::RequestTimeout).into()))
    }
}
