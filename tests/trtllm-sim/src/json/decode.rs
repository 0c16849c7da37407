//! From body bytes to text, guessing the encoding as the worker does.

use std::borrow::Cow;

const SUBSTITUTE: char = char::REPLACEMENT_CHARACTER;

/// The text of a body: UTF-8, UTF-16 or UTF-32, with or without a byte-order mark.
///
/// Surrogates that stand alone are taken and become a replacement character.
/// `None` when the bytes are not text in the encoding they look like.
pub(crate) fn decode(body: &[u8]) -> Option<Cow<'_, str>> {
    match body {
        [0xff, 0xfe, 0, 0, rest @ ..] => utf32(rest, u32::from_le_bytes),
        [0, 0, 0xfe, 0xff, rest @ ..] => utf32(rest, u32::from_be_bytes),
        [0xff, 0xfe, rest @ ..] => utf16(rest, u16::from_le_bytes),
        [0xfe, 0xff, rest @ ..] => utf16(rest, u16::from_be_bytes),
        [0xef, 0xbb, 0xbf, rest @ ..] => utf8(rest),
        // JSON starts with two ASCII characters, so the zeros tell the width.
        [0, 0, _, _, ..] => utf32(body, u32::from_be_bytes),
        [0, _, _, _, ..] | [0, _] => utf16(body, u16::from_be_bytes),
        [_, 0, 0, 0, ..] => utf32(body, u32::from_le_bytes),
        [_, 0, _, _, ..] | [_, 0] => utf16(body, u16::from_le_bytes),
        _ => utf8(body),
    }
}

fn utf8(bytes: &[u8]) -> Option<Cow<'_, str>> {
    if let Ok(text) = std::str::from_utf8(bytes) {
        return Some(Cow::Borrowed(text));
    }
    // The only ill-formed thing taken is a surrogate in three bytes.
    let mut text = String::with_capacity(bytes.len());
    let mut rest = bytes;
    loop {
        match std::str::from_utf8(rest) {
            Ok(tail) => {
                text.push_str(tail);
                return Some(Cow::Owned(text));
            }
            Err(error) => {
                let (good, bad) = rest.split_at(error.valid_up_to());
                text.push_str(std::str::from_utf8(good).ok()?);
                let [0xed, 0xa0..=0xbf, 0x80..=0xbf, tail @ ..] = bad else {
                    return None;
                };
                text.push(SUBSTITUTE);
                rest = tail;
            }
        }
    }
}

fn utf16(bytes: &[u8], unit: fn([u8; 2]) -> u16) -> Option<Cow<'_, str>> {
    let (pairs, []) = bytes.as_chunks::<2>() else {
        return None;
    };
    let units = pairs.iter().map(|pair| unit(*pair));
    Some(Cow::Owned(char::decode_utf16(units).map(|c| c.unwrap_or(SUBSTITUTE)).collect()))
}

fn utf32(bytes: &[u8], unit: fn([u8; 4]) -> u32) -> Option<Cow<'_, str>> {
    let (words, []) = bytes.as_chunks::<4>() else {
        return None;
    };
    let mut text = String::with_capacity(words.len());
    for word in words {
        let code = unit(*word);
        match char::from_u32(code) {
            Some(c) => text.push(c),
            None if (0xd800..0xe000).contains(&code) => text.push(SUBSTITUTE),
            None => return None,
        }
    }
    Some(Cow::Owned(text))
}
