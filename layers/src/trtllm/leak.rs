//! Whether a generation worker's error may be shown to a client.

use http::{HeaderMap, HeaderValue};

use super::ContextReply;
use crate::json::Value;

/// The largest error body that is relayed, in bytes. Errors that quote the request are tens of kilobytes and more
/// (contract, section 4), useful ones a few hundred bytes.
pub const MAX_RELAYED_ERROR: usize = 8 * 1024;

/// Whether an error body of the generation worker could carry what the context worker handed over. Such a body is
/// neither relayed nor logged.
///
/// It could when it is larger than [`MAX_RELAYED_ERROR`], or when it holds the opaque state (a beginning or an end of
/// it, as a quotation may be shortened), the info endpoint, or the name of one of the two; also where they are
/// written with JSON escapes, up to strings of JSON within strings. The body has to be uncompressed.
pub fn may_carry_state(body: &[u8], reply: &ContextReply) -> bool {
    const NAMES: [&[u8]; 2] = [b"encoded_opaque_state", b"ctx_info_endpoint"];
    let names = NAMES.into_iter().map(|name| Needle(name.to_vec()));
    let needles: Vec<_> = names.chain(values(reply)).collect();
    // Escapes below escapes below escapes: no worker writes so.
    body.len() > MAX_RELAYED_ERROR || !is_searchable(body) || holds(body, &needles).unwrap_or(true)
}

/// Whether a reply of the generation worker holds the opaque state or the info endpoint that the context worker handed
/// over, or cannot be searched for them. Their names alone give nothing away: a model may well write about them.
pub fn carries_state(body: &[u8], reply: &ContextReply) -> bool {
    // A model may write any number of backslashes, and nothing of the handoff stands behind them.
    !is_searchable(body) || holds(body, &values(reply).collect::<Vec<_>>()).unwrap_or(false)
}

/// Removes headers of the generation worker's reply that hold the opaque state or the info endpoint.
pub fn strip_state(headers: &mut HeaderMap, reply: &ContextReply) {
    let needles: Vec<_> = values(reply).collect();
    let carries = |value: &HeaderValue| holds(value.as_bytes(), &needles).unwrap_or(true);
    let names: Vec<_> =
        headers.iter().filter(|(_, value)| carries(value)).map(|(name, _)| name.clone()).collect();
    for name in names {
        headers.remove(name);
    }
}

/// Text in UTF-16 has a NUL in every other place, or is no UTF-8 at all.
fn is_searchable(body: &[u8]) -> bool {
    !body.contains(&0) && std::str::from_utf8(body).is_ok()
}

/// `None` when there are too many levels of escapes to tell.
fn holds(body: &[u8], needles: &[Needle]) -> Option<bool> {
    if needles.iter().any(|needle| needle.is_in(body)) {
        return Some(true);
    }
    // Without escapes there is nothing to undo, and in much text the state stands as it is or not at all.
    if !body.contains(&b'\\') || body.len() > MOST_UNESCAPED {
        return Some(false);
    }
    let mut text = unescaped(body);
    for _ in 0..MOST_ESCAPE_LEVELS {
        if needles.iter().any(|needle| needle.is_in(&text)) {
            return Some(true);
        }
        let plain = unescaped(&text);
        if plain == text {
            return Some(false);
        }
        text = plain;
    }
    None
}

const MOST_ESCAPE_LEVELS: usize = 8;

/// The longest text in which escapes are undone, in bytes: a reply is searched while others wait for the thread.
const MOST_UNESCAPED: usize = 256 << 10;

/// How much of the opaque state is enough to recognise it.
const FRAGMENT: usize = 16;

/// How long that may be with every character escaped.
const ESCAPED: usize = FRAGMENT * 6;

/// A text that gives internal state away.
struct Needle(Vec<u8>);

impl Needle {
    /// A short text could be part of a word by accident, so it has to stand alone.
    fn is_in(&self, text: &[u8]) -> bool {
        let needle = self.0.as_slice();
        let stands_alone = |at: usize| {
            let before = at.checked_sub(1).and_then(|before| text.get(before));
            let after = text.get(at + needle.len());
            [before, after].into_iter().flatten().all(|byte| !byte.is_ascii_alphanumeric())
        };
        text.windows(needle.len())
            .enumerate()
            .any(|(at, window)| window == needle && (needle.len() >= FRAGMENT || stands_alone(at)))
    }
}

/// The values that give internal state away.
fn values(reply: &ContextReply) -> impl Iterator<Item = Needle> + use<> {
    let mut texts = Vec::new();
    if let Some(state) = reply.opaque_state().map(inside) {
        let mut beginning = unescaped(&state[..state.len().min(ESCAPED)]);
        beginning.truncate(FRAGMENT);
        // An escape more, as one may be cut in two.
        let mut end = unescaped(&state[state.len().saturating_sub(ESCAPED + 6)..]);
        end.drain(..end.len().saturating_sub(FRAGMENT));
        texts.extend([beginning, end].map(|part| if is_filler(&part) { unescaped(state) } else { part }));
    }
    if let Some(endpoint) = reply.info_endpoint().map(inside).map(unescaped) {
        // An error of a transport names the address without the scheme.
        let scheme = endpoint.windows(3).position(|window| window == b"://").map_or(0, |at| at + 3);
        texts.push(endpoint[scheme..].to_vec());
    }
    texts.retain(|text| !text.is_empty());
    texts.into_iter().map(Needle)
}

/// Whether a text is little but one byte again and again, as the base64 of zeros is. Any file may have that, so the whole
/// state has to be there.
fn is_filler(text: &[u8]) -> bool {
    let mut seen = text.to_vec();
    seen.sort_unstable();
    seen.dedup();
    text.len() >= FRAGMENT && seen.len() < LEAST_VARIETY
}

/// How many different bytes a part of the state has to have to be recognised by.
const LEAST_VARIETY: usize = 4;

/// A JSON string without its quotes.
fn inside(value: &Value) -> &[u8] {
    let text = value.bytes();
    text.get(1..text.len().saturating_sub(1)).unwrap_or_default()
}

/// One level of JSON escapes undone, as far as ASCII is concerned. Never longer than the text.
fn unescaped(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let [byte, tail @ ..] = rest {
        rest = tail;
        match (byte, tail) {
            (b'\\', [b'u' | b'U', digits @ ..]) if ascii(digits).is_some() => {
                out.extend(ascii(digits));
                rest = &digits[4..];
            }
            (b'\\', [escaped @ (b'\\' | b'/' | b'"' | b'\''), tail @ ..]) => {
                out.push(*escaped);
                rest = tail;
            }
            _ => out.push(*byte),
        }
    }
    out
}

/// The ASCII character that four hexadecimal digits name.
fn ascii(digits: &[u8]) -> Option<u8> {
    let digits = std::str::from_utf8(digits.get(..4)?).ok()?;
    if digits.starts_with('+') {
        return None;
    }
    u8::from_str_radix(digits, 16).ok().filter(u8::is_ascii)
}

#[cfg(test)]
mod tests;
