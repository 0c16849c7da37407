use std::sync::Arc;

use http::HeaderName;
use tower_layer::Layer;

use super::{Conversation, IdSource};
use crate::trtllm::SESSION_HEADER;

/// Names the conversation of a request to the workers of both legs. See the [module](super).
#[derive(Debug, Clone)]
pub struct ConversationLayer {
    sources: Arc<[IdSource]>,
    header: HeaderName,
}

impl ConversationLayer {
    /// Takes the id from the first of `sources` that has a usable one. Without sources it leaves requests alone.
    pub fn new(sources: impl IntoIterator<Item = IdSource>) -> Self {
        Self { sources: sources.into_iter().collect(), header: SESSION_HEADER }
    }

    /// Puts the id into this header, `x-session-id` unless set.
    ///
    /// It should be one of [`CONVERSATION_HEADERS`](crate::trtllm::CONVERSATION_HEADERS): a worker looks at no other,
    /// and for another header none of these are taken away.
    pub fn header(mut self, header: HeaderName) -> Self {
        self.header = header;
        self
    }
}

impl Default for ConversationLayer {
    /// Leaves requests alone.
    fn default() -> Self {
        Self::new([])
    }
}

impl<S> Layer<S> for ConversationLayer {
    type Service = Conversation<S>;

    fn layer(&self, inner: S) -> Self::Service {
        Conversation::new(inner, self.sources.clone(), self.header.clone())
    }
}
