use std::{
    fmt,
    future::{Future, poll_fn},
    pin::{Pin, pin},
    task::Poll,
};

use bytes::{Buf, Bytes};
use http::Response;
use http_body::Body;

use super::{Resolution, Ticket};
use crate::{buffer::Collect, error::BoxError, leg::ReplyHead};

/// A call that can be moved into the background when nobody waits for it any more.
pub(crate) type Call<B> = Pin<Box<dyn Future<Output = Result<Response<B>, BoxError>> + Send>>;

/// What finishes a handoff in the background.
type Rest = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Something that works on a committed handoff. Dropped while the handoff is open, it is settled instead.
pub(crate) struct OrSettle<T> {
    work: Option<T>,
    /// Made where the bounds are known that settling needs, so that they do not spread to every type around it.
    rest: fn(T, Ticket) -> Rest,
    ticket: Ticket,
}

impl<B: Body + Send + 'static> OrSettle<Call<B>> {
    /// Settled by finishing the call and waiting for the first byte of its response.
    pub(crate) fn call(call: Call<B>, ticket: Ticket) -> Self {
        let rest = |call: Call<B>, ticket: Ticket| -> Rest {
            let follow = ticket.clone();
            Box::pin(until_ended(ticket, async move {
                if let Ok(response) = call.await {
                    first_byte(response, &follow).await;
                }
            }))
        };
        Self { work: Some(call), rest, ticket }
    }
}

impl<B: Body + Send + 'static> OrSettle<B> {
    /// Settled by waiting for the first byte of the body.
    pub(crate) fn body(body: B, ticket: Ticket) -> Self {
        let rest = |body: B, ticket: Ticket| -> Rest {
            Box::pin(async move { first_byte(Response::new(body), &ticket).await })
        };
        Self { work: Some(body), rest, ticket }
    }
}

impl<B: Body<Data = Bytes> + Send + 'static> OrSettle<Collect<B>> {
    /// A body that is being read whole, settled by waiting for its first byte.
    pub(crate) fn collect(body: Collect<B>, ticket: Ticket) -> Self {
        let rest = |body: Collect<B>, ticket: Ticket| -> Rest {
            let (_, rest) = body.into_parts();
            Box::pin(async move { first_byte(Response::new(rest), &ticket).await })
        };
        Self { work: Some(body), rest, ticket }
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

    /// Lets go of work of which nobody knows yet whether it commits anything; it has been asked to end. See
    /// [`Ticket::retire`].
    pub(crate) fn retire(&mut self, head: ReplyHead) {
        if let Some(work) = self.work.take() {
            self.ticket.retire((self.rest)(work, self.ticket.clone()), head);
        }
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
            self.ticket.settle((self.rest)(work, self.ticket.clone()));
        }
    }
}

impl<T> fmt::Debug for OrSettle<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.work.is_some() { "running" } else { "done" })
    }
}

/// Runs `work` until the handoff has ended. That may be long before the work is done: a layer inside of a call reads a
/// reply to its end, and nobody is there to be shown it.
async fn until_ended(ticket: Ticket, work: impl Future<Output = ()>) {
    let mut work = pin!(work);
    poll_fn(|cx| match work.as_mut().poll(cx) {
        Poll::Pending if !ticket.is_resolved() => Poll::Pending,
        _ => Poll::Ready(()),
    })
    .await;
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
