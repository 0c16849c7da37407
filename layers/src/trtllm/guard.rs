use bytes::Bytes;
use http::HeaderValue;

use super::{RequestError, request::refuse_handoff_fields};
use crate::json::{JsonError, Object};

/// Checks the body of a POST that goes to a worker as it is, without a handoff.
///
/// A worker obeys handoff fields from whoever can reach it, so a client must not get them past the proxy on the way
/// that does not mint its own. A worker also reads what this crate does not (UTF-16, a byte-order mark), hence a
/// body that it could take for JSON has to be empty, or JSON in plain UTF-8; when that is an object, every member
/// called like a handoff field is looked at, however its key is spelt (contract, section 2).
///
/// `content_type` is the header's value. Pass `None` when it is absent *or repeated*: `None` counts as JSON, and so
/// does any value that does not clearly say something else. A body that is clearly something else passes unread.
///
/// # Errors
///
/// Of kind [`Invalid`](super::RequestErrorKind::Invalid) when the body cannot be judged, and of kind
/// [`HandoffFields`](super::RequestErrorKind::HandoffFields) when a client supplies handoff fields.
pub fn check_passthrough(content_type: Option<&HeaderValue>, body: &Bytes) -> Result<(), RequestError> {
    if !could_be_json(content_type) {
        return Ok(());
    }
    match Object::parse(body.clone()) {
        Ok(object) => refuse_handoff_fields(&object),
        // Nothing at all, or JSON that has no members.
        Err(JsonError::Empty | JsonError::WrongKind) => Ok(()),
        Err(error) => Err(RequestError::body(error)),
    }
}

/// Whether a worker could read a body of this type as JSON: `json` or `...+json`, or a type that is not well formed.
fn could_be_json(content_type: Option<&HeaderValue>) -> bool {
    let Some(Ok(value)) = content_type.map(HeaderValue::to_str) else { return true };
    let essence = value.split(';').next().unwrap_or(value).trim_matches([' ', '\t']);
    let Some((kind, subtype)) = essence.split_once('/') else { return true };
    if !is_token(kind) || !is_token(subtype) {
        return true;
    }
    let subtype = subtype.to_ascii_lowercase();
    subtype == "json" || subtype.ends_with("+json")
}

/// A token of HTTP (RFC 9110, section 5.6.2).
fn is_token(text: &str) -> bool {
    !text.is_empty()
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte))
}

#[cfg(test)]
mod tests;
