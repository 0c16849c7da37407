//! Damaged copies of seeds: mostly still JSON, since bytes at random are refused at the first of them.

use rand::{RngExt, SeedableRng, rngs::SmallRng, seq::IndexedRandom};

use crate::oracle::json::{Doc, Json, Kind};

/// A copy of `text` with one change to one of its values, the same one for the same `seed`. What is no JSON has some
/// bytes changed.
pub fn json(text: &[u8], seed: u64) -> Vec<u8> {
    let rng = &mut SmallRng::seed_from_u64(seed);
    match Doc::parse(text) {
        Some(doc) if rng.random_range(0..12) > 0 => change(text, &doc, rng),
        _ => damage(text, JSON, rng),
    }
}

/// A copy of `text` with up to four pieces left out, put in or repeated, the same ones for the same `seed`; those put in
/// are bytes and what event streams are made of.
pub fn stream(text: &[u8], seed: u64) -> Vec<u8> {
    damage(text, EVENTS, &mut SmallRng::seed_from_u64(seed))
}

/// The same with pieces of addresses.
pub fn address(text: &[u8], seed: u64) -> Vec<u8> {
    damage(text, ADDRESSES, &mut SmallRng::seed_from_u64(seed))
}

const JSON: &[&str] =
    &["{", "}", "[", "]", ",", ":", "\"", "\\", "\\u", "\\ud83d", " ", "\n", "0", "-", "1e", "\u{feff}"];

const EVENTS: &[&str] = &[
    "data: [DONE]",
    "data:[DONE]",
    "data: {\"error\":1}",
    "data: {}",
    "data:",
    "data",
    "\n",
    "\r",
    "\r\n",
    "\n\n",
    " ",
    ":",
    "[DONE]",
    "{\"error\"",
    ": comment",
    "event: error",
    "\u{feff}",
    "\0",
];

const ADDRESSES: &[&str] = &[
    ":", ".", "[", "]", "::", "-", "_", "0", "00", "1", "0x", "0x7f", "127", "255", "256", ":80", ":65535",
    ":65536", "%", "@", ",", "/", " ", "a", "A", "ns.svc", "ffff", "é", "http://",
];

/// Values of every kind, and those that a rule is about.
const VALUES: &[&str] = &[
    "null",
    "true",
    "false",
    "0",
    "-0",
    "1",
    "1.0",
    "1e0",
    "-1",
    "2",
    "9007199254740993",
    "18446744073709551615",
    "18446744073709551616",
    "1e400",
    "0.10",
    "\"\"",
    "\"a\"",
    "\"\\u0061\"",
    "\"\\ud83d\"",
    "\"stop\"",
    "\"length\"",
    "\"abort\"",
    "\"tool_calls\"",
    "[]",
    "[[]]",
    "[1]",
    "[1,2]",
    "[[1]]",
    "[\"a\"]",
    "[-1]",
    "[{}]",
    "{}",
    "{ }",
    "{\"a\":1}",
    "{\"$serde_json::private::RawValue\":\"1\"}",
    "[1234567890123456789]",
    "\"tcp://h:1\"",
    "\"AAECAwQFBgcICQoLDA0ODw==\"",
];

/// Names that a rule is about.
const NAMES: &[&str] = &[
    "a",
    "b",
    "",
    "é",
    "stream",
    "stream_options",
    "include_usage",
    "continuous_usage_stats",
    "n",
    "best_of",
    "use_beam_search",
    "echo",
    "prompt",
    "messages",
    "disaggregated_params",
    "prompt_token_ids",
    "prompt_token_ids_b64",
    "injected_chat_template_kwargs",
    "conversation_params",
    "subagent_affinity_id",
    "error",
    "message",
    "detail",
    "choices",
    "finish_reason",
    "usage",
    "prompt_tokens",
    "cached_tokens",
    "prompt_tokens_details",
    "ctx_request_id",
    "disagg_request_id",
    "first_gen_tokens",
    "encoded_opaque_state",
    "ctx_info_endpoint",
    "ctx_usage",
    "conversation_id",
    "resolved_thinking",
    "return_prompt_token_ids_b64",
    "first_gen_log_probs",
    "future",
    "logprobs",
    "content",
    "tool_calls",
    "index",
    "text",
];

// === changing a value ===

fn change(text: &[u8], doc: &Doc<'_>, rng: &mut SmallRng) -> Vec<u8> {
    let any = |rng: &mut SmallRng| doc.all().nth(rng.random_range(0..doc.all().len())).unwrap();
    let chosen = any(rng);
    let (start, end) = chosen.span();
    // A member with its key, an element alone.
    let whole = (chosen.key_span().map_or(start, |(start, _)| start), end);
    let piece = |span: (usize, usize)| text[span.0..span.1].to_vec();
    match rng.random_range(0..9) {
        0 | 1 => splice(text, (start, end), pick(VALUES, rng).as_bytes()),
        2 => splice(text, (start, end), any(rng).raw().as_bytes()),
        3 => splice(text, with_comma(text, whole), b""),
        4 => splice(text, (end, end), &[b",", &*piece(whole)].concat()),
        5 => match chosen.key_span() {
            Some(key) => splice(text, key, name(rng).as_bytes()),
            None => splice(text, (start, end), &[b"[", &*piece((start, end)), b"]"].concat()),
        },
        6 => match chosen.key_span() {
            Some(key) => splice(text, key, respelt(chosen, rng).as_bytes()),
            None => splice(text, (start, start), b" \n"),
        },
        7 => splice(text, (end, end), b"\r\n "),
        _ => {
            let value = pick(VALUES, rng);
            let member = match chosen.kind() {
                Kind::Object => format!("{}:{value}", name(rng)),
                Kind::Array => value.to_owned(),
                _ => return splice(text, (start, end), value.as_bytes()),
            };
            let comma = if chosen.children().next().is_some() { "," } else { "" };
            splice(text, (end - 1, end - 1), format!("{comma}{member}").as_bytes())
        }
    }
}

fn name(rng: &mut SmallRng) -> String {
    format!("\"{}\"", pick(NAMES, rng))
}

/// A key with one of its letters written as an escape.
fn respelt(member: Json<'_>, rng: &mut SmallRng) -> String {
    let key = member.key_raw().trim_matches('"');
    let letters: Vec<_> =
        key.char_indices().filter(|(_, c)| c.is_ascii_alphanumeric() || *c == '_').collect();
    match letters.choose(rng) {
        Some((at, c)) if !key.contains('\\') => {
            format!("\"{}\\u{:04x}{}\"", &key[..*at], *c as u32, &key[at + 1..])
        }
        _ => member.key_raw().to_owned(),
    }
}

/// The span with one comma beside it.
fn with_comma(text: &[u8], (start, end): (usize, usize)) -> (usize, usize) {
    if text.get(end) == Some(&b',') {
        (start, end + 1)
    } else if start > 0 && text[start - 1] == b',' {
        (start - 1, end)
    } else {
        (start, end)
    }
}

// === damaging bytes ===

fn damage(text: &[u8], pieces: &'static [&'static str], rng: &mut SmallRng) -> Vec<u8> {
    let mut text = text.to_vec();
    for _ in 0..rng.random_range(1..5) {
        let start = rng.random_range(0..=text.len());
        let end = (start + rng.random_range(0..6)).min(text.len());
        let piece = match rng.random_range(0..6) {
            0 => Vec::new(),
            1 => vec![rng.random()],
            2 => text[start..].iter().take(40).copied().collect(),
            _ => pick(pieces, rng).as_bytes().to_vec(),
        };
        let end = if rng.random_bool(0.5) { start } else { end };
        text = splice(&text, (start, end), &piece);
    }
    text
}

fn splice(text: &[u8], (start, end): (usize, usize), piece: &[u8]) -> Vec<u8> {
    [&text[..start], piece, &text[end..]].concat()
}

fn pick(from: &'static [&'static str], rng: &mut SmallRng) -> &'static str {
    from.choose(rng).copied().unwrap_or_default()
}
