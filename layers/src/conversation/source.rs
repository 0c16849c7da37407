use std::{error::Error, fmt, str::FromStr};

use http::HeaderName;

use crate::json::{Pointer, PointerError};

/// A place in a request where the id of its conversation may stand.
///
/// Written `header:x-chat-id`, or `body:/nvext/agent_context/session_id` with a JSON pointer (RFC 6901).
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum IdSource {
    /// A header. The last one of a repeated header counts, as at a worker.
    Header(HeaderName),
    /// A member of the body: a string or a whole number. It stays in the body.
    Body(Pointer),
}

/// Why a text is no [`IdSource`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdSourceError(Wrong);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Wrong {
    Kind,
    Header,
    Pointer(PointerError),
}

impl fmt::Display for IdSourceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Wrong::Kind => f.write_str("expected header:NAME or body:/POINTER"),
            Wrong::Header => f.write_str("expected the name of a header after header:"),
            Wrong::Pointer(error) => write!(f, "expected a JSON pointer such as /user after body: ({error})"),
        }
    }
}

impl Error for IdSourceError {}

impl FromStr for IdSource {
    type Err = IdSourceError;

    fn from_str(text: &str) -> Result<Self, IdSourceError> {
        match text.split_once(':') {
            Some(("header", name)) => {
                name.parse().map(Self::Header).map_err(|_| IdSourceError(Wrong::Header))
            }
            Some(("body", pointer)) => {
                pointer.parse().map(Self::Body).map_err(|error| IdSourceError(Wrong::Pointer(error)))
            }
            _ => Err(IdSourceError(Wrong::Kind)),
        }
    }
}

impl fmt::Display for IdSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Header(name) => write!(f, "header:{name}"),
            Self::Body(pointer) => write!(f, "body:{pointer}"),
        }
    }
}
