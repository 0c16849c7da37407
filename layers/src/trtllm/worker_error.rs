//! The human message in a worker's error body.

use bytes::Bytes;

use crate::json::{Kind, Object, Value};

mod validation;

/// The most of a message that is kept, in bytes.
pub const MAX_MESSAGE: usize = 2 * 1024;

/// Names that a worker quotes only when it quotes the proxy's own request.
const OURS: [&str; 2] = ["disagg_request_id", "disaggregated_params"];

/// The message of a worker's error body, for the client whose request it is about; `None` when there is none that can
/// be shown.
///
/// Understood are `{"error":"…"}`, `{"error":{"message":"…"}}`, `{"object":"error","message":"…"}`,
/// `{"detail":"…"}`, `{"detail":[{"loc":[…],"msg":"…"}]}` and plain text (contract, section 7); markup is not. Of the
/// worker's list of validation errors, which may hold the whole request, only the place and the reason of the first
/// are kept. A message that quotes what the proxy added to the request is dropped. The result is at most
/// [`MAX_MESSAGE`] bytes long, and has spaces for control characters.
pub fn worker_message(body: &[u8]) -> Option<String> {
    let message = match Object::parse(Bytes::copy_from_slice(body)) {
        Ok(object) => of_object(&object)?,
        Err(_) => of_text(body)?,
    };
    let message = validation::first(&message).unwrap_or(message);
    if OURS.iter().any(|name| message.contains(name)) {
        return None;
    }
    let message = shown(&message);
    (!message.is_empty()).then_some(message)
}

fn of_object(body: &Object) -> Option<String> {
    let error = body.last("error").filter(|error| !error.is_null());
    let said = match error {
        Some(error) if error.kind() == Kind::Object => error.object().ok()?.last("message"),
        Some(error) => Some(error),
        None => body.last("message").or_else(|| body.last("detail")),
    }?;
    match said.kind() {
        Kind::String => said.as_text(),
        Kind::Array => of_list(&said),
        _ => None,
    }
}

/// A list of validation errors as JSON.
fn of_list(list: &Value) -> Option<String> {
    let mut first = None;
    let each = |item: Value| {
        first = item.object().ok();
        false
    };
    list.for_each(each).ok()?;
    let first = first?;
    let reason = first.last("msg")?.as_text()?;
    let mut place = Vec::new();
    if let Some(loc) = first.last("loc") {
        let each = |part: Value| {
            place.push(part.as_text().unwrap_or_else(|| part.as_str().to_owned()));
            place.len() < validation::MOST_PLACES
        };
        loc.for_each(each).ok()?;
    }
    Some(validation::sentence(&place, &reason))
}

fn of_text(body: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(body).ok()?.trim();
    // Markup, or JSON of another kind or cut short, is not for people.
    (!text.starts_with(['<', '{', '[', '"'])).then(|| text.to_owned()).filter(|text| text != "null")
}

/// The message without control characters, and cut.
fn shown(message: &str) -> String {
    const ELLIPSIS: &str = "…";
    let hidden = |c: char| {
        c.is_control()
            || matches!(c, '\u{2028}' | '\u{2029}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    let message = message.trim();
    let mut out = String::new();
    for c in message.chars() {
        if out.len() + c.len_utf8() + ELLIPSIS.len() > MAX_MESSAGE {
            out.push_str(ELLIPSIS);
            break;
        }
        out.push(if hidden(c) { ' ' } else { c });
    }
    out
}

#[cfg(test)]
mod tests;
