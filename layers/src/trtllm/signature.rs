//! What of a generation request is signed, byte for byte (contract, section 8).

use std::fmt;

use http::{HeaderName, HeaderValue};

use super::{ContextReply, Shape, params};
use crate::json::Value;

/// The header with the signature of a generation request.
pub const SIGNATURE_HEADER: HeaderName = HeaderName::from_static("x-trtllm-disagg-auth");

/// The text that is signed: `{"ctx_info_endpoint":<string or null>,"encoded_opaque_state":<string or null>}`.
///
/// A worker does not sign the text it received. It decodes the two members and writes them again, as Python's
/// `json.dumps` does with `ensure_ascii`, compact and with sorted keys; so this is how they are written here, whatever
/// escapes the context worker chose. A member that is not sent is signed as null, an empty string as one.
///
/// The state can have hundreds of kilobytes, which are not copied. `Debug` shows sizes only.
#[derive(Clone)]
pub struct SignedMessage {
    info_endpoint: Option<Value>,
    opaque_state: Option<Value>,
}

impl SignedMessage {
    /// What is signed of the generation leg that [`generation_body`](super::generation_body) makes of the same reply
    /// and shape: the members as they are sent, not as they were received.
    pub fn of(reply: &ContextReply, shape: &Shape) -> Self {
        let mut message = Self { info_endpoint: None, opaque_state: None };
        for (key, value) in params::relayed(reply, *shape) {
            match key {
                "ctx_info_endpoint" => message.info_endpoint = Some(value),
                "encoded_opaque_state" => message.opaque_state = Some(value),
                _ => {}
            }
        }
        message
    }

    /// Hands the text to `sink`, piece by piece and in order. All of it is ASCII.
    pub fn for_each(&self, mut sink: impl FnMut(&[u8])) {
        sink(br#"{"ctx_info_endpoint":"#);
        write(self.info_endpoint.as_ref(), &mut sink);
        sink(br#","encoded_opaque_state":"#);
        write(self.opaque_state.as_ref(), &mut sink);
        sink(b"}");
    }

    /// The text in one piece.
    pub fn to_vec(&self) -> Vec<u8> {
        let mut text = Vec::new();
        self.for_each(|piece| text.extend_from_slice(piece));
        text
    }
}

impl fmt::Debug for SignedMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SignedMessage")
            .field("info_endpoint", &self.info_endpoint)
            .field("opaque_state", &self.opaque_state)
            .finish()
    }
}

/// The value of [`SIGNATURE_HEADER`], marked as sensitive.
pub(crate) fn signature_value(mac: [u8; 32]) -> Option<HeaderValue> {
    let mut text = b"sha256=".to_vec();
    text.extend(mac.into_iter().flat_map(|byte| [hex(byte >> 4), hex(byte)]));
    // hexadecimal digits always make a value
    let mut value = HeaderValue::from_maybe_shared(bytes::Bytes::from(text)).ok()?;
    value.set_sensitive(true);
    Some(value)
}

/// The digit of the lower four bits.
fn hex(bits: u8) -> u8 {
    match bits & 0xf {
        digit @ 0..10 => b'0' + digit,
        digit => b'a' + (digit - 10),
    }
}

fn write(value: Option<&Value>, sink: &mut impl FnMut(&[u8])) {
    let text = value.map(Value::as_str);
    match text.and_then(|text| text.strip_prefix('"')?.strip_suffix('"')) {
        Some(inside) => {
            sink(b"\"");
            rewrite(inside, sink);
            sink(b"\"");
        }
        None => sink(b"null"),
    }
}

/// Writes what stands between the quotes of a valid JSON string again, with the escapes of Python's `json.dumps`.
///
/// It goes by UTF-16 units, since that is what escapes name: half of a surrogate pair needs no care of its own, and is
/// signed as the worker would, though no decoder of Rust strings takes it.
fn rewrite(mut text: &str, sink: &mut impl FnMut(&[u8])) {
    loop {
        let plain = text.bytes().position(|byte| !is_plain(byte)).unwrap_or(text.len());
        let (same, rest) = text.split_at(plain);
        if !same.is_empty() {
            sink(same.as_bytes());
        }
        let mut rest = rest.chars();
        match rest.next() {
            None => return,
            Some('\\') => match rest.next() {
                Some('u') => {
                    let digits = rest.as_str().get(..4);
                    if let Some(unit) = digits.and_then(|digits| u16::from_str_radix(digits, 16).ok()) {
                        write_unit(unit, sink);
                    }
                    rest = rest.as_str().get(4..).unwrap_or_default().chars();
                }
                Some('/') => sink(b"/"),
                Some(escaped @ ('"' | '\\' | 'b' | 'f' | 'n' | 'r' | 't')) => sink(&[b'\\', escaped as u8]),
                // there are no others in valid JSON
                _ => {}
            },
            Some(char) => char.encode_utf16(&mut [0; 2]).iter().for_each(|&unit| write_unit(unit, sink)),
        }
        text = rest.as_str();
    }
}

/// Whether a byte stands for itself on both sides. A quote does not occur: it would have ended the string.
fn is_plain(byte: u8) -> bool {
    matches!(byte, b' '..=b'~') && byte != b'\\'
}

fn write_unit(unit: u16, sink: &mut impl FnMut(&[u8])) {
    match unit {
        0x08 => sink(br"\b"),
        0x09 => sink(br"\t"),
        0x0a => sink(br"\n"),
        0x0c => sink(br"\f"),
        0x0d => sink(br"\r"),
        0x22 => sink(br#"\""#),
        0x5c => sink(br"\\"),
        0x20..=0x7e => sink(&unit.to_be_bytes()[1..]),
        // DEL as well
        _ => {
            let [high, low] = unit.to_be_bytes();
            sink(&[b'\\', b'u', hex(high >> 4), hex(high), hex(low >> 4), hex(low)]);
        }
    }
}

#[cfg(test)]
pub(super) mod tests;
