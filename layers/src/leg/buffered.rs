use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use http::{Request, Response, response};
use http_body::Body;
use tower_layer::Layer;
use tower_service::Service;

use super::{LegError, LegErrorKind, ReplyHead};
use crate::{
    buffer::{BufferBudget, Collect, CollectError},
    error::BoxError,
};

/// Makes an HTTP client a context leg: reads each reply to its end, up to a cap.
///
/// # Readiness and cancellation
///
/// Ready when the client is. Dropping the future drops the reply and with it the connection.
///
/// # Errors
///
/// Those of the client, and a [`LegError`] for a reply that is over the cap, finds no room, or breaks off.
#[derive(Debug, Clone)]
pub struct BufferReplyLayer {
    limit: u64,
    budget: BufferBudget,
}

impl BufferReplyLayer {
    /// Reads replies of up to `limit` bytes.
    pub fn new(limit: u64) -> Self {
        Self { limit, budget: BufferBudget::unlimited() }
    }

    /// Counts the bytes held against `budget`, which others may share.
    pub fn budget(mut self, budget: BufferBudget) -> Self {
        self.budget = budget;
        self
    }
}

impl<S> Layer<S> for BufferReplyLayer {
    type Service = BufferReply<S>;

    fn layer(&self, inner: S) -> Self::Service {
        BufferReply { inner, layer: self.clone() }
    }
}

/// The service of [`BufferReplyLayer`].
#[derive(Debug, Clone)]
pub struct BufferReply<S> {
    inner: S,
    layer: BufferReplyLayer,
}

impl<S, ReqBody, B> Service<Request<ReqBody>> for BufferReply<S>
where
    S: Service<Request<ReqBody>, Response = Response<B>>,
    S::Error: Into<BoxError>,
    B: Body<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    type Response = Response<Bytes>;
    type Error = BoxError;
    type Future = BufferReplyFuture<S::Future, B>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, request: Request<ReqBody>) -> Self::Future {
        let head = request.extensions().get::<ReplyHead>().cloned().unwrap_or_default();
        let reply = self.inner.call(request);
        BufferReplyFuture { layer: self.layer.clone(), head, state: State::Head { reply } }
    }
}

/// The future of [`BufferReply`].
#[derive(Debug)]
#[pin_project::pin_project]
pub struct BufferReplyFuture<F, B> {
    layer: BufferReplyLayer,
    head: ReplyHead,
    #[pin]
    state: State<F, B>,
}

#[derive(Debug)]
#[pin_project::pin_project(project = StateProj)]
enum State<F, B> {
    Head {
        #[pin]
        reply: F,
    },
    Body {
        head: Option<response::Parts>,
        #[pin]
        body: Collect<B>,
    },
}

impl<F, B, E> Future for BufferReplyFuture<F, B>
where
    F: Future<Output = Result<Response<B>, E>>,
    E: Into<BoxError>,
    B: Body<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    type Output = Result<Response<Bytes>, BoxError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        loop {
            match this.state.as_mut().project() {
                StateProj::Head { reply } => {
                    let (head, body) = ready!(reply.poll(cx)).map_err(Into::into)?.into_parts();
                    this.head.arrived(head.status);
                    let body = Collect::new(body, this.layer.limit, &this.layer.budget);
                    this.state.set(State::Body { head: Some(head), body });
                }
                StateProj::Body { head, body } => {
                    let bytes = ready!(body.poll(cx)).map_err(|error| {
                        let kind = match error {
                            CollectError::TooLarge => LegErrorKind::ReplyTooLarge,
                            CollectError::Overloaded => LegErrorKind::Overloaded,
                            CollectError::Body(_) => LegErrorKind::Interrupted,
                        };
                        LegError::new(kind).with_source(error)
                    })?;
                    let head = head.take().unwrap_or_else(|| Response::new(()).into_parts().0);
                    return Poll::Ready(Ok(Response::from_parts(head, bytes)));
                }
            }
        }
    }
}
