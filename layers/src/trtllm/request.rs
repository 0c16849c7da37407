//! Stand-in for the client's request until the real one is merged.
use std::fmt;

use bytes::Bytes;

use crate::json::{JsonError, Object};

/// Which API a request is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Endpoint {
    /// `/v1/chat/completions`
    Chat,
    /// `/v1/completions`
    Completions,
}

impl Endpoint {
    /// The endpoint of a path.
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

/// How the client wants the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Delivery {
    /// As an event stream.
    Stream {
        /// With a usage chunk.
        usage: bool,
    },
    /// In one piece.
    Whole,
}

/// A request.
#[derive(Debug, Clone)]
pub struct ClientRequest {
    endpoint: Endpoint,
    object: Object,
    delivery: Delivery,
}

/// Why a request is refused.
#[derive(Debug)]
pub struct RequestError(JsonError);

impl fmt::Display for RequestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl std::error::Error for RequestError {}

impl ClientRequest {
    /// Reads a body.
    ///
    /// # Errors
    ///
    /// When it is not an object.
    pub fn parse(endpoint: Endpoint, body: Bytes) -> Result<Self, RequestError> {
        let object = Object::parse(body).map_err(RequestError)?;
        let stream = object.last("stream").and_then(|value| value.as_bool()).unwrap_or_default();
        let options = object.last("stream_options").and_then(|value| value.object().ok());
        let usage = options.is_some_and(|options| {
            options.last("include_usage").is_none_or(|value| value.as_bool() == Some(true))
        });
        let delivery = if stream { Delivery::Stream { usage } } else { Delivery::Whole };
        Ok(Self { endpoint, object, delivery })
    }

    /// Which API.
    pub fn endpoint(&self) -> Endpoint {
        self.endpoint
    }

    /// The members.
    pub fn object(&self) -> &Object {
        &self.object
    }

    /// The body.
    pub fn body(&self) -> &Bytes {
        self.object.text()
    }

    /// How the answer is wanted.
    pub fn delivery(&self) -> Delivery {
        self.delivery
    }
}
