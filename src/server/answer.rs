use std::{
    cell::Cell,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll},
};

use http::{Request, Version};
use http_body::{Body, Frame, SizeHint};

thread_local! {
    static LAST: Cell<Option<Turn>> = const { Cell::new(None) };
}

/// Who is waited for while a response is being sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Turn {
    /// The body has more to come.
    Body,
    /// The body has given something; it has to be taken.
    Client,
}

/// What the last poll of an [`AnswerBody`] that `inner` makes on this thread says; `None` when it makes none.
pub(super) fn turn<T>(inner: impl FnOnce() -> T) -> (T, Option<Turn>) {
    LAST.set(None);
    let result = inner();
    (result, LAST.take())
}

/// Whether a connection's last response is one that ends with the connection.
///
/// A client that speaks HTTP/1.0 takes the end of the connection for the end of the message, unless it is a reset.
#[derive(Debug, Clone, Default)]
pub(super) struct EndsWithConnection(Arc<AtomicBool>);

impl EndsWithConnection {
    /// From now on for the response to `request`.
    pub(super) fn of<B>(&self, request: &Request<B>) {
        self.0.store(request.version() <= Version::HTTP_10, Ordering::Release);
    }

    pub(super) fn get(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

/// A response's body that tells its connection how far it is.
#[derive(Debug)]
#[pin_project::pin_project]
pub(super) struct AnswerBody<B> {
    #[pin]
    inner: B,
}

impl<B> AnswerBody<B> {
    pub(super) fn new(inner: B) -> Self {
        Self { inner }
    }
}

impl<B: Body> Body for AnswerBody<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        let polled = self.project().inner.poll_frame(cx);
        LAST.set(Some(if polled.is_ready() { Turn::Client } else { Turn::Body }));
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}
