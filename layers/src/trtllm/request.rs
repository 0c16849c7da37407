mod error;
mod fields;
mod handoff_fields;

use bytes::Bytes;

pub use self::error::{RequestError, RequestErrorKind};
pub(super) use self::handoff_fields::refuse_handoff_fields;
use crate::json::Object;

/// An endpoint whose requests can be handed from a context worker to a generation worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Endpoint {
    /// `/v1/chat/completions`
    Chat,
    /// `/v1/completions`
    Completions,
}

impl Endpoint {
    /// The endpoint of a request's path. Only the exact paths count: a worker redirects others or has none for them.
    pub fn from_path(path: &str) -> Option<Self> {
        [Self::Chat, Self::Completions].into_iter().find(|endpoint| endpoint.path() == path)
    }

    /// Its path.
    pub fn path(self) -> &'static str {
        match self {
            Self::Chat => "/v1/chat/completions",
            Self::Completions => "/v1/completions",
        }
    }
}

/// How the client wants its answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Delivery {
    /// As an event stream.
    Stream {
        /// Which of its chunks are to tell the usage.
        usage: StreamUsage,
    },
    /// As one JSON object.
    Whole,
}

/// Which chunks of a stream tell the usage (contract, section 4).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum StreamUsage {
    /// None: `stream_options` is null or absent, or its `include_usage` is `false` or `null`.
    Never,
    /// One of its own at the end: `include_usage` is `true`, or absent from an object.
    AtEnd,
    /// Each chunk, besides the one at the end: `continuous_usage_stats` is `true` as well.
    Throughout,
}

/// A client's request that can be handed from a context worker to a generation worker.
///
/// It holds the body as it came. `Clone` copies handles, and `Debug` shows no content.
#[derive(Debug, Clone)]
pub struct ClientRequest {
    endpoint: Endpoint,
    object: Object,
    delivery: Delivery,
}

impl ClientRequest {
    /// Checks the body of a request to `endpoint`.
    ///
    /// Looks only at what a handoff depends on: everything else, vendor fields among it, is between the client and
    /// the workers.
    ///
    /// # Errors
    ///
    /// Of kind [`Invalid`](RequestErrorKind::Invalid): the body is not exactly one JSON object in UTF-8 without a
    /// byte-order mark; a field that is looked at occurs twice (a worker would let the last one win) or is of the
    /// wrong type.
    ///
    /// Of kind [`Unsupported`](RequestErrorKind::Unsupported): more than one choice (`n`, `best_of`,
    /// `use_beam_search`), more than one `prompt`, or `echo` on a completion.
    ///
    /// Of kind [`HandoffFields`](RequestErrorKind::HandoffFields): `disaggregated_params` that is neither `null` nor
    /// empty, or a `prompt_token_ids`, `prompt_token_ids_b64`, `injected_chat_template_kwargs` or
    /// `conversation_params.subagent_affinity_id` that is not `null`.
    pub fn parse(endpoint: Endpoint, body: Bytes) -> Result<Self, RequestError> {
        let object = Object::parse(body).map_err(RequestError::body)?;
        refuse_handoff_fields(&object)?;
        // Replaced or added on a leg, so that two of them, even if they say nothing, would make its meaning unclear.
        object.get("disaggregated_params")?;
        object.get("prompt_token_ids")?;
        object.get("prompt_token_ids_b64")?;
        fields::one_choice(&object)?;
        match endpoint {
            Endpoint::Chat => fields::messages(&object)?,
            Endpoint::Completions => {
                fields::one_prompt(&object)?;
                fields::no_echo(&object)?;
            }
        }
        let delivery = fields::delivery(endpoint, &object)?;
        Ok(Self { endpoint, object, delivery })
    }

    /// The endpoint it is for.
    pub fn endpoint(&self) -> Endpoint {
        self.endpoint
    }

    /// The body as the client sent it.
    pub fn body(&self) -> &Bytes {
        self.object.text()
    }

    /// The body's members.
    pub fn object(&self) -> &Object {
        &self.object
    }

    /// How the client wants its answer.
    pub fn delivery(&self) -> Delivery {
        self.delivery
    }
}

#[cfg(test)]
mod tests;
