use std::{
    fmt,
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use http::{
    Response, StatusCode,
    header::{CONTENT_LENGTH, CONTENT_TYPE, RETRY_AFTER},
    response::Parts,
};
use http_body::Body;

use super::{RelayBody, decide, layer::Config};
use crate::{
    buffer::{Collect, CollectError},
    error::{BoxError, GenerationError, GenerationErrorKind},
    handoff::{Handoff, Open},
    json::Segments,
    leg::headers::{is_encoded, strip_response},
    settle::{OrSettle, Resolution, Ticket},
    trtllm::{
        ContextEndpoint, ContextReply, MAX_RELAYED_ERROR, carries_state, clean_generation_reply,
        may_carry_state, strip_state,
    },
};

/// The future of [`Generation`](super::Generation).
///
/// Dropped before the first byte of the reply's body, it leaves the rest of the handoff to settlement.
pub struct GenerationFuture<B> {
    state: State<B>,
    reply: ContextReply,
    endpoint: ContextEndpoint,
    ticket: Ticket,
    config: Arc<Config>,
}

enum State<B> {
    /// Waiting for the head.
    Head(OrSettle<crate::settle::Call<B>>),
    /// Reading a reply that is no stream, to clean it.
    Whole(Option<Parts>, OrSettle<Collect<B>>),
    /// Reading as much of an error as may be relayed.
    Error(Option<Parts>, Collect<B>),
}

impl<B> GenerationFuture<B>
where
    B: Body<Data = Bytes> + Send + Unpin + 'static,
    B::Error: Into<BoxError>,
{
    pub(super) fn new<F, E>(response: F, handoff: &Handoff<Open>, config: Arc<Config>) -> Self
    where
        F: Future<Output = Result<Response<B>, E>> + Send + 'static,
        E: Into<BoxError>,
    {
        let call = Box::pin(Sent { response });
        let ticket = handoff.ticket().clone();
        Self {
            state: State::Head(OrSettle::call(call, ticket.clone())),
            reply: handoff.reply().clone(),
            endpoint: handoff.context_endpoint().clone(),
            ticket,
            config,
        }
    }

    /// The head is here: relay a stream at once, and read anything else first.
    fn head(&mut self, response: Response<B>) -> Option<Response<RelayBody<B>>> {
        let (mut head, body) = response.into_parts();
        strip_response(&mut head.headers);
        strip_state(&mut head.headers, &self.reply);
        let budget = &self.config.budget;
        if !head.status.is_success() {
            self.ticket.resolve(Resolution::Refused);
            if head.status == StatusCode::BAD_REQUEST {
                self.config.engines.refused(&self.endpoint);
            }
            let body = Collect::new(body, MAX_RELAYED_ERROR as u64, budget);
            self.state = State::Error(Some(head), body);
            return None;
        }
        if decide::is_stream(head.headers.get(CONTENT_TYPE)) {
            return Some(Response::from_parts(head, RelayBody::stream(body, self.ticket.clone())));
        }
        let body = Collect::new(body, self.config.max_whole, budget);
        self.state = State::Whole(Some(head), OrSettle::collect(body, self.ticket.clone()));
        None
    }
}

impl<B> Future for GenerationFuture<B>
where
    B: Body<Data = Bytes> + Send + Unpin + 'static,
    B::Error: Into<BoxError>,
{
    type Output = Result<Response<RelayBody<B>>, BoxError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        loop {
            match &mut this.state {
                State::Head(call) => {
                    let Some(running) = call.get_mut() else { return Poll::Pending };
                    let response = ready!(running.as_mut().poll(cx));
                    call.take();
                    match response {
                        Ok(response) => {
                            if let Some(relayed) = this.head(response) {
                                return Poll::Ready(Ok(relayed));
                            }
                        }
                        Err(error) => {
                            this.ticket.resolve(Resolution::Failed);
                            return Poll::Ready(Err(decide::leg_failed(error).into()));
                        }
                    }
                }
                State::Whole(head, work) => {
                    let Some(body) = work.get_mut() else { return Poll::Pending };
                    let read = Pin::new(&mut *body).poll(cx);
                    if !body.is_empty() || matches!(&read, Poll::Ready(Ok(bytes)) if !bytes.is_empty()) {
                        this.ticket.resolve(Resolution::Collected);
                    }
                    let read = ready!(read);
                    let (Some(head), Some(body)) = (head.take(), work.take()) else { return Poll::Pending };
                    return Poll::Ready(whole(head, body, read, &this.ticket, &this.reply));
                }
                State::Error(head, body) => {
                    let read = ready!(Pin::new(&mut *body).poll(cx));
                    let Some(head) = head.take() else { return Poll::Pending };
                    return Poll::Ready(refused(head, read, &this.reply));
                }
            }
        }
    }
}

/// A reply that is no stream, without the members that are internal.
fn whole<B: Body<Data = Bytes> + Send + Unpin + 'static>(
    head: Parts,
    body: Collect<B>,
    read: Result<Bytes, CollectError>,
    ticket: &Ticket,
    reply: &ContextReply,
) -> Result<Response<RelayBody<B>>, BoxError> {
    match read {
        Ok(bytes) => {
            // For a reply without a byte: nothing shows that the cache was collected.
            ticket.resolve(Resolution::Failed);
            let clean = clean_generation_reply(bytes);
            if is_encoded(&head.headers) || carries_state(&clean.to_bytes(), reply) {
                return Err(GenerationError::new(GenerationErrorKind::InvalidReply).into());
            }
            Ok(relay(head, clean))
        }
        Err(CollectError::TooLarge) => {
            metrics::counter!("disagg_uncleaned_replies_total").increment(1);
            let (first, rest) = body.into_parts();
            Ok(Response::from_parts(head, RelayBody::rest(first, rest, ticket.clone())))
        }
        Err(error @ CollectError::Overloaded) => {
            ticket.resolve(Resolution::Failed);
            Err(GenerationError::new(GenerationErrorKind::Overloaded).with_source(error).into())
        }
        Err(error @ CollectError::Body(_)) => {
            ticket.resolve(Resolution::Failed);
            Err(GenerationError::new(GenerationErrorKind::Interrupted).with_source(error).into())
        }
    }
}

/// A refusal, relayed when its text cannot carry internal state.
fn refused<B>(
    head: Parts,
    read: Result<Bytes, CollectError>,
    reply: &ContextReply,
) -> Result<Response<RelayBody<B>>, BoxError> {
    match read {
        Ok(bytes) if !is_encoded(&head.headers) && !may_carry_state(&bytes, reply) => {
            Ok(relay(head, bytes.into()))
        }
        _ => Err(GenerationError::new(GenerationErrorKind::Rejected(head.status))
            .with_retry_after(head.headers.get(RETRY_AFTER).cloned())
            .into()),
    }
}

fn relay<B>(mut head: Parts, text: Segments) -> Response<RelayBody<B>> {
    head.headers.insert(CONTENT_LENGTH, text.len().into());
    Response::from_parts(head, RelayBody::whole(text))
}

/// The call with its error boxed.
#[pin_project::pin_project]
struct Sent<F> {
    #[pin]
    response: F,
}

impl<F, B, E> Future for Sent<F>
where
    F: Future<Output = Result<Response<B>, E>>,
    E: Into<BoxError>,
{
    type Output = Result<Response<B>, BoxError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.project().response.poll(cx).map_err(Into::into)
    }
}

impl<B> fmt::Debug for GenerationFuture<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.state {
            State::Head(_) => "GenerationFuture(head)",
            State::Whole(..) => "GenerationFuture(whole)",
            State::Error(..) => "GenerationFuture(error)",
        })
    }
}
