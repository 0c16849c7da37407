use std::{
    fmt,
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

use super::watch::{StreamEnd, StreamWatch};
use crate::{
    error::{BoxError, GenerationError, GenerationErrorKind},
    json::Segments,
    leg::LegBody,
    settle::{OrSettle, Resolution, Ticket},
};

/// What the client is sent of a generation reply.
///
/// A stream is relayed frame by frame, as it comes and when it is asked for; nothing is added, dropped or regrouped.
/// A stream that breaks ends with a [`GenerationError`], never as if it were complete. Dropped before its first byte,
/// it leaves the rest of the handoff to settlement.
pub struct RelayBody<B>(Relay<B>);

enum Relay<B> {
    Whole(LegBody),
    Stream { first: Option<Bytes>, rest: OrSettle<B>, watch: StreamWatch },
}

impl<B> RelayBody<B> {
    pub(super) fn whole(text: Segments) -> Self {
        Self(Relay::Whole(LegBody::new(text)))
    }
}

impl<B: Body + Send + 'static> RelayBody<B> {
    pub(super) fn stream(body: B, ticket: Ticket) -> Self {
        Self(Relay::Stream { first: None, rest: OrSettle::body(body, ticket), watch: StreamWatch::events() })
    }

    /// A reply that is no stream, of which `first` has been read already.
    pub(super) fn rest(first: Bytes, rest: B, ticket: Ticket) -> Self {
        let first = Some(first).filter(|first| !first.is_empty());
        Self(Relay::Stream { first, rest: OrSettle::body(rest, ticket), watch: StreamWatch::anything() })
    }
}

impl<B> Body for RelayBody<B>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Into<BoxError>,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let (first, rest, watch) = match &mut self.0 {
            Relay::Whole(text) => return Pin::new(text).poll_frame(cx).map_err(Into::into),
            Relay::Stream { first, rest, watch } => (first, rest, watch),
        };
        if let Some(first) = first.take() {
            return Poll::Ready(Some(Ok(Frame::data(first))));
        }
        let Some(body) = rest.get_mut() else { return Poll::Ready(None) };
        match ready!(Pin::new(body).poll_frame(cx)) {
            Some(Ok(frame)) => {
                if let Some(data) = frame.data_ref().filter(|data| !data.is_empty()) {
                    rest.ticket().resolve(Resolution::Collected);
                    watch.data(data);
                }
                // A server may ask for no more than that.
                if rest.get().is_some_and(B::is_end_stream) {
                    watch.end(StreamEnd::Clean);
                }
                Poll::Ready(Some(Ok(frame)))
            }
            Some(Err(error)) => {
                watch.end(StreamEnd::Broken);
                tracing::warn!("the reply of the generation worker broke off");
                rest.ticket().resolve(Resolution::Failed);
                rest.take();
                let error = GenerationError::new(GenerationErrorKind::Interrupted).with_source(error);
                Poll::Ready(Some(Err(error.into())))
            }
            None => {
                watch.end(StreamEnd::Clean);
                rest.ticket().resolve(Resolution::Failed);
                rest.take();
                Poll::Ready(None)
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            Relay::Whole(text) => text.is_end_stream(),
            Relay::Stream { first, rest, .. } => first.is_none() && rest.get().is_none_or(B::is_end_stream),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Relay::Whole(text) => text.size_hint(),
            Relay::Stream { first, rest, .. } => {
                let first = first.as_ref().map_or(0, |first| first.len() as u64);
                let rest = rest.get().map_or(SizeHint::with_exact(0), B::size_hint);
                let mut hint = SizeHint::new();
                hint.set_lower(rest.lower().saturating_add(first));
                if let Some(upper) = rest.upper() {
                    hint.set_upper(upper.saturating_add(first));
                }
                hint
            }
        }
    }
}

impl<B> Default for RelayBody<B> {
    fn default() -> Self {
        Self::whole(Segments::new())
    }
}

impl<B> fmt::Debug for RelayBody<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Relay::Whole(text) => write!(f, "RelayBody({text:?})"),
            Relay::Stream { rest, .. } => write!(f, "RelayBody(stream, {rest:?})"),
        }
    }
}
