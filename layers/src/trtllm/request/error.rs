use std::{error::Error, fmt};

use crate::json::{DuplicateKey, JsonError};

/// Why a client's request is refused before any engine sees it.
///
/// The text says which field and what to do, and quotes nothing of the request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestError {
    kind: RequestErrorKind,
    field: Option<&'static str>,
    reason: Reason,
}

/// What a [`RequestError`] is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RequestErrorKind {
    /// Not one JSON object, a field of the wrong type, or a field that a decision rests on more than once.
    Invalid,
    /// A request that an engine could serve, but that cannot be handed from one engine to another.
    Unsupported,
    /// The client supplies what only the two engines may tell each other.
    HandoffFields,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reason {
    Json(JsonError),
    Duplicate(DuplicateKey),
    /// Follows the name of the field.
    Field(&'static str),
}

impl RequestError {
    pub(in crate::trtllm) fn body(error: JsonError) -> Self {
        Self { kind: RequestErrorKind::Invalid, field: None, reason: Reason::Json(error) }
    }

    pub(in crate::trtllm) fn unreadable(field: &'static str, error: JsonError) -> Self {
        Self { kind: RequestErrorKind::Invalid, field: Some(field), reason: Reason::Json(error) }
    }

    pub(in crate::trtllm) fn invalid(field: &'static str, reason: &'static str) -> Self {
        Self { kind: RequestErrorKind::Invalid, field: Some(field), reason: Reason::Field(reason) }
    }

    pub(in crate::trtllm) fn unsupported(field: &'static str, reason: &'static str) -> Self {
        Self { kind: RequestErrorKind::Unsupported, field: Some(field), reason: Reason::Field(reason) }
    }

    pub(in crate::trtllm) fn handoff_field(field: &'static str) -> Self {
        let reason = Reason::Field("is only for the engines to tell each other; leave it out");
        Self { kind: RequestErrorKind::HandoffFields, field: Some(field), reason }
    }

    /// What it is about.
    pub fn kind(&self) -> RequestErrorKind {
        self.kind
    }

    /// The field at fault; `None` when it is the body as a whole.
    pub fn field(&self) -> Option<&'static str> {
        self.field
    }
}

impl From<DuplicateKey> for RequestError {
    fn from(error: DuplicateKey) -> Self {
        Self { kind: RequestErrorKind::Invalid, field: Some(error.0), reason: Reason::Duplicate(error) }
    }
}

impl fmt::Display for RequestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.field, &self.reason) {
            (None, Reason::Json(JsonError::WrongKind)) => {
                f.write_str("the request body is JSON, but not an object")
            }
            (None, Reason::Json(error)) => write!(f, "the request body is not one JSON object: {error}"),
            (Some(field), Reason::Json(error)) => write!(f, "`{field}` cannot be read: {error}"),
            (_, Reason::Duplicate(error)) => write!(f, "{error}; send it once"),
            (field, Reason::Field(reason)) => write!(f, "`{}` {reason}", field.unwrap_or_default()),
        }
    }
}

impl Error for RequestError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match &self.reason {
            Reason::Json(error) => Some(error),
            Reason::Duplicate(error) => Some(error),
            Reason::Field(_) => None,
        }
    }
}
