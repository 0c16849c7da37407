//! The decisions of the layer, as pure functions.

use http::{HeaderMap, HeaderName, HeaderValue};

use super::IdSource;
use crate::{
    json::{Kind, Object, Value},
    leg::headers::strip_hop_by_hop,
    trtllm::{CONVERSATION_HEADERS, names_conversation},
};

/// The longest id that is taken, in bytes.
pub(super) const MAX_ID: usize = 256;

/// The longest that a string of [`MAX_ID`] bytes can be written: each byte as `\u00xx`, and two quotes.
const MAX_WRITTEN: usize = 6 * MAX_ID + 2;

/// What a request says of its conversation.
#[derive(Debug, PartialEq)]
pub(super) enum Found {
    /// This id, at the first source that has a usable one.
    Id(HeaderValue),
    /// The body names it where a worker looks before all headers.
    Named,
    /// Nothing, at any source.
    Absent,
    /// Something, but nothing that can be an id.
    Unusable,
}

impl Found {
    /// The name used in metrics.
    pub(super) fn as_str(&self) -> &'static str {
        match self {
            Self::Id(_) => "set",
            Self::Named => "named",
            Self::Absent => "absent",
            Self::Unusable => "unusable",
        }
    }
}

pub(super) fn find(sources: &[IdSource], headers: &HeaderMap, body: &Object) -> Found {
    if names_conversation(body) {
        return Found::Named;
    }
    let mut nothing = Found::Absent;
    for source in sources {
        let found = match source {
            IdSource::Header(name) => in_header(headers, name),
            IdSource::Body(pointer) => match pointer.find(body) {
                Ok(Some(value)) => in_body(&value),
                Ok(None) => Found::Absent,
                Err(_) => Found::Unusable,
            },
        };
        match found {
            Found::Id(_) => return found,
            Found::Unusable => nothing = found,
            Found::Named | Found::Absent => {}
        }
    }
    nothing
}

/// The value goes on as it came: a worker trims it.
fn in_header(headers: &HeaderMap, name: &HeaderName) -> Found {
    match headers.get_all(name).iter().next_back() {
        Some(value) if value.as_bytes().iter().all(is_blank_byte) => Found::Absent,
        Some(value) if value.len() > MAX_ID => Found::Unusable,
        Some(value) => Found::Id(value.clone()),
        None => Found::Absent,
    }
}

/// White space in a header as a worker reads it, which is as latin-1.
fn is_blank_byte(byte: &u8) -> bool {
    matches!(byte, b'\t' | b' ' | 0x85 | 0xa0)
}

fn in_body(value: &Value) -> Found {
    match value.kind() {
        Kind::Null => Found::Absent,
        Kind::String if value.bytes().len() > MAX_WRITTEN => Found::Unusable,
        // Half of a surrogate pair is no text.
        Kind::String => value.as_text().map_or(Found::Unusable, |text| match text.trim_matches(is_blank) {
            "" => Found::Absent,
            text => id(text.as_bytes()),
        }),
        Kind::Number if value.bytes().iter().all(|byte| matches!(byte, b'-' | b'0'..=b'9')) => {
            id(value.bytes())
        }
        _ => Found::Unusable,
    }
}

/// White space as a worker's language sees it, which has four control characters more than Unicode.
fn is_blank(letter: char) -> bool {
    letter.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(&letter)
}

/// An id, unless it is too long, or has what no header can carry. Letters beyond ASCII go as UTF-8: a worker reads other
/// letters, but the same ones on both legs and in every turn.
fn id(text: &[u8]) -> Found {
    let value = Some(text).filter(|text| text.len() <= MAX_ID).map(HeaderValue::from_bytes);
    value.and_then(Result::ok).map_or(Found::Unusable, Found::Id)
}

/// Makes `id` the one that a worker finds in `header`.
///
/// Headers at which a worker looks before this one would win, so they go. Those after it stay: no worker gets to them,
/// and `x-correlation-id` is used for tracing as well.
pub(super) fn set(headers: &mut HeaderMap, header: &HeaderName, id: HeaderValue) {
    // now, while it is the client's: later on a `Connection` that nominates the header would take the id off both legs
    strip_hop_by_hop(headers);
    let place = CONVERSATION_HEADERS.iter().position(|name| name == header);
    for before in &CONVERSATION_HEADERS[..place.unwrap_or_default()] {
        headers.remove(before);
    }
    headers.insert(header, id);
}
