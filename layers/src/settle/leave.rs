use std::{
    fmt,
    future::{Future, poll_fn},
    pin::{Pin, pin},
};

use bytes::{Buf, Bytes};
use http::Response;
use http_body::Body;

use super::{Resolution, Ticket};
use crate::{buffer::Collect, error::BoxError};

/// A call that can be moved into the background when nobody waits for it any more.
pub(crate) type Call<B> = Pin<Box<dyn Future<Output = Result<Response<B>, BoxError>> + Send>>;

/// Something that works on a committed handoff. Dropped while the handoff is open, it is settled instead.
pub(crate) struct OrSettle<T> {
    work: Option<T>,
    /// Made where the bounds are known that settling needs, so that they do not spread to every type around it.
    settle: fn(T, &Ticket),
    ticket: Ticket,
}

impl<B: Body + Send + 'static> OrSettle<Call<B>> {
    /// Settled by finishing the call and waiting for the first byte of its response.
    pub(crate) fn call(call: Call<B>, ticket: Ticket) -> Self {
        let settle = |call: Call<B>, ticket: &Ticket| {
            let follow = ticket.clone();
            ticket.settle(async move {
                if let Ok(response) = call.await {
                    first_byte(response, &follow).await;
                }
            });
        };
        Self { work: Some(call), settle, ticket }
    }
}

impl<B: Body + Send + 'static> OrSettle<B> {
    /// Settled by waiting for the first byte of the body.
    pub(crate) fn body(body: B, ticket: Ticket) -> Self {
        let settle = |body: B, ticket: &Ticket| {
            let follow = ticket.clone();
            ticket.settle(async move { first_byte(Response::new(body), &follow).await });
        };
        Self { work: Some(body), settle, ticket }
    }
}

impl<B: Body<Data = Bytes> + Send + 'static> OrSettle<Collect<B>> {
    /// A body that is being read whole, settled by waiting for its first byte.
    pub(crate) fn collect(body: Collect<B>, ticket: Ticket) -> Self {
        let settle = |body: Collect<B>, ticket: &Ticket| {
            let (_, rest) = body.into_parts();
            drop(OrSettle::body(rest, ticket.clone()));
        };
        Self { work: Some(body), settle, ticket }
    }
}

impl<T> OrSettle<T> {
    pub(crate) fn get(&self) -> Option<&T> {
        self.work.as_ref()
    }

    pub(crate) fn get_mut(&mut self) -> Option<&mut T> {
        self.work.as_mut()
    }

    pub(crate) fn ticket(&self) -> &Ticket {
        &self.ticket
    }

    /// It is done: nothing is left to settle.
    pub(crate) fn take(&mut self) -> Option<T> {
        self.work.take()
    }
}

impl<T> Drop for OrSettle<T> {
    fn drop(&mut self) {
        if self.ticket.is_open()
            && let Some(work) = self.work.take()
        {
            (self.settle)(work, &self.ticket);
        }
    }
}

impl<T> fmt::Debug for OrSettle<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.work.is_some() { "running" } else { "done" })
    }
}

/// Waits until the generation worker has shown that it has the KV cache: by the first byte of its answer.
async fn first_byte<B: Body>(response: Response<B>, ticket: &Ticket) {
    let (head, body) = response.into_parts();
    if !head.status.is_success() {
        ticket.resolve(Resolution::Refused);
        return;
    }
    let mut body = pin!(body);
    while let Some(Ok(frame)) = poll_fn(|cx| body.as_mut().poll_frame(cx)).await {
        if frame.data_ref().is_some_and(Buf::has_remaining) {
            ticket.resolve(Resolution::Collected);
            return;
        }
    }
}
