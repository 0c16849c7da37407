use std::{
    fmt,
    future::Future,
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use http::{Request, Response, request::Parts};
use http_body::Body;
use tower_service::Service;

use super::decide;
use crate::{
    call::CallWhenReady,
    error::{BoxError, ContextErrorKind, find},
    handoff::{Handoff, Minted, Primed},
    leg::{HangUp, ReplyHead},
    settle::{Call, OrSettle, Resolution, Ticket},
    trtllm::ReplyError,
};

/// The future of [`Context`](super::Context).
///
/// Dropped before the head of the context reply, it drops the leg, or asks it to end where it knows how to: its
/// connection closes, and the worker aborts the request. Dropped later, it leaves the rest of the handoff to settlement.
pub struct ContextFuture<B> {
    work: OrSettle<Call<B>>,
    head: ReplyHead,
    hang_up: HangUp,
}

impl<B: Body + Send + 'static> ContextFuture<B> {
    pub(super) fn new<F, S, E>(
        reply: F,
        signals: (ReplyHead, HangUp),
        ticket: Ticket,
        request: Kept,
        inner: S,
    ) -> Self
    where
        F: Future<Output = Result<Response<Bytes>, E>> + Send + 'static,
        E: Into<BoxError>,
        S: Service<Request<Handoff<Primed>>, Response = Response<B>> + Send + 'static,
        S::Error: Into<BoxError>,
        S::Future: Send + 'static,
    {
        let (head, hang_up) = signals;
        let state = State::Leg { reply, then: Some((request, inner)) };
        let work = Work { state, head: head.clone(), hang_up: hang_up.clone(), ticket: ticket.clone() };
        Self { work: OrSettle::call(Box::pin(work), ticket), head, hang_up }
    }

    pub(super) fn failed(error: BoxError, ticket: Ticket) -> Self {
        Self {
            work: OrSettle::call(Box::pin(std::future::ready(Err(error))), ticket),
            head: ReplyHead::new(),
            hang_up: HangUp::new(),
        }
    }
}

impl<B> Future for ContextFuture<B> {
    type Output = Result<Response<B>, BoxError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(work) = self.work.get_mut() else { return Poll::Pending };
        let done = ready!(work.as_mut().poll(cx));
        self.work.take();
        Poll::Ready(done)
    }
}

impl<B> Drop for ContextFuture<B> {
    fn drop(&mut self) {
        if self.head.is_committed() {
            self.work.ticket().commit();
        } else if self.hang_up.is_accepted() {
            // The reply may be on its way.
            self.hang_up.ask();
            self.work.retire(self.head.clone());
        }
        // What is left to settle is settled by the drop of `work`.
    }
}

impl<B> fmt::Debug for ContextFuture<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ContextFuture").field("work", &self.work).field("head", &self.head).finish()
    }
}

/// What is kept of a request while its context leg runs.
pub(super) type Kept = (Parts, Handoff<Minted>);

/// The leg, and then the inner service: what settlement may have to move.
#[pin_project::pin_project]
struct Work<F, S, G> {
    #[pin]
    state: State<F, S, G>,
    head: ReplyHead,
    hang_up: HangUp,
    ticket: Ticket,
}

#[pin_project::pin_project(project = StateProj)]
enum State<F, S, G> {
    Leg {
        #[pin]
        reply: F,
        then: Option<(Kept, S)>,
    },
    Inner {
        #[pin]
        response: CallWhenReady<S, Request<Handoff<Primed>>, G>,
    },
}

impl<F, E, S, G, B> Future for Work<F, S, G>
where
    F: Future<Output = Result<Response<Bytes>, E>>,
    E: Into<BoxError>,
    S: Service<Request<Handoff<Primed>>, Response = Response<B>, Future = G>,
    G: Future<Output = Result<Response<B>, S::Error>>,
    S::Error: Into<BoxError>,
{
    type Output = Result<Response<B>, BoxError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        loop {
            match this.state.as_mut().project() {
                StateProj::Leg { reply, then } => {
                    let reply = ready!(reply.poll(cx));
                    let Some(((parts, handoff), inner)) = then.take() else { return Poll::Pending };
                    let primed =
                        match prime(reply.map_err(Into::into), handoff, this.head, this.hang_up, this.ticket)
                        {
                            Ok(primed) => primed,
                            Err(error) => return Poll::Ready(Err(error)),
                        };
                    let response = CallWhenReady::new(inner, Request::from_parts(parts, primed));
                    this.state.set(State::Inner { response });
                }
                StateProj::Inner { response } => return response.poll(cx).map_err(Into::into),
            }
        }
    }
}

/// What the leg came to, and what it means for the ticket.
fn prime(
    reply: Result<Response<Bytes>, BoxError>,
    handoff: Handoff<Minted>,
    head: &ReplyHead,
    hang_up: &HangUp,
    ticket: &Ticket,
) -> Result<Handoff<Primed>, BoxError> {
    if let Ok(reply) = &reply {
        // A leg that does not say when the head arrives says it now.
        head.arrived(reply.status());
    }
    if head.is_committed() {
        ticket.commit();
    }
    let endpoint = handoff.request().endpoint();
    let reply = reply.map_err(decide::leg_failed).and_then(|reply| decide::read(endpoint, reply));
    match reply {
        Ok(reply) => Ok(handoff.prime_with(reply, ticket.clone())),
        Err(error) => {
            // A worker that refuses a request has not failed, nor has one that ends a request whose client has left.
            if !matches!(error.kind(), ContextErrorKind::Rejected(_)) && !hang_up.is_asked() {
                tracing::warn!(
                    disagg_request_id = %handoff.id(), context_endpoint = %handoff.context_endpoint(), %error,
                    "the context leg failed"
                );
            }
            // After a reply that says otherwise nothing is held; after any other failure the cache may be there, for
            // nobody.
            let held = find::<ReplyError>(&error).is_none_or(ReplyError::may_hold_cache);
            ticket.resolve(if held { Resolution::Failed } else { Resolution::Released });
            Err(error.into())
        }
    }
}
