//! Texts to tokens and tokens to texts.

use crate::json::{Value, text as json_text};

/// What a user message holds when the simulated model should call a tool.
pub(crate) const TOOL_MARK: &str = "#tool";

/// The token in front of every prompt.
const START: i64 = 1;
/// The token that ends a message.
const END: i64 = 3;
/// Prompt tokens have ids from here.
const PROMPT_BASE: i64 = 1_000;
const PROMPT_RANGE: u64 = 199_000;
/// Answer tokens have ids from here.
const ANSWER_BASE: i64 = 300_000;
const ANSWER_RANGE: u64 = 4_096;
/// How many characters make one prompt token.
const CHARS_PER_TOKEN: usize = 4;

const CONSONANTS: &[u8; 16] = b"bcdfghjklmnprstv";
const VOWELS: &[u8; 4] = b"aeio";

/// FNV-1a, then mixed so that near inputs end far apart.
#[derive(Debug, Clone, Copy)]
struct Hash(u64);

impl Hash {
    const fn new() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }

    fn bytes(mut self, bytes: &[u8]) -> Self {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
        self
    }

    const fn done(self) -> u64 {
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }
}

/// A number that stands for a whole prompt.
pub(crate) fn fingerprint(prompt: &[i64]) -> u64 {
    prompt.iter().fold(Hash::new(), |hash, id| hash.bytes(&id.to_le_bytes())).done()
}

/// The id of one piece of prompt text.
fn piece(text: &str) -> i64 {
    let hash = Hash::new().bytes(text.as_bytes()).done();
    PROMPT_BASE + i64::try_from(hash % PROMPT_RANGE).unwrap_or_default()
}

fn push_text(text: &str, ids: &mut Vec<i64>) {
    let mut from = 0;
    let mut ends = text.char_indices().map(|(at, c)| at + c.len_utf8());
    while let Some(first) = ends.next() {
        let to = (1..CHARS_PER_TOKEN).map_while(|_| ends.next()).last();
        let to = to.unwrap_or(first);
        ids.push(piece(&text[from..to]));
        from = to;
    }
}

/// The token ids of a prompt given as text: a start token, then one for every
/// four characters.
pub(crate) fn of_prompt(text: &str) -> Vec<i64> {
    let mut ids = vec![START];
    push_text(text, &mut ids);
    ids
}

/// The token ids of a conversation: a start token, and for every message its
/// role, its content and an end token.
pub(crate) fn of_messages(messages: &[Value]) -> Vec<i64> {
    let mut ids = vec![START];
    for message in messages {
        let role = message.get("role").and_then(Value::as_str);
        ids.push(piece(&format!("<{}>", role.unwrap_or_default())));
        match message.get("content") {
            None | Some(Value::Null) => {}
            Some(Value::Str(text)) => push_text(text, &mut ids),
            Some(parts) => push_text(&content_text(parts), &mut ids),
        }
        for call in message.get("tool_calls").and_then(Value::as_arr).unwrap_or_default() {
            push_text(&json_text(call), &mut ids);
        }
        ids.push(END);
    }
    ids
}

/// The text of a message: its text parts; any other part by its JSON.
pub(crate) fn content_text(content: &Value) -> String {
    match content {
        Value::Str(text) => text.clone(),
        Value::Arr(parts) => parts
            .iter()
            .map(|part| match (part, part.get("text")) {
                (Value::Str(text), _) | (_, Some(Value::Str(text))) => text.clone(),
                _ => json_text(part),
            })
            .collect(),
        Value::Null => String::new(),
        other => json_text(other),
    }
}

/// The token ids of a prompt given as text.
#[must_use]
pub fn prompt_tokens(text: &str) -> Vec<i64> {
    of_prompt(text)
}

/// Token `index` of the answer to a prompt.
#[must_use]
pub fn answer_token(prompt: &[i64], index: usize) -> i64 {
    Answer::to(prompt).token(index)
}

/// The answers to one prompt, without hashing the prompt anew for every token.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Answer(u64);

impl Answer {
    pub(crate) fn to(prompt: &[i64]) -> Self {
        Self(fingerprint(prompt))
    }

    /// The token at a place: random by prompt, but never that of the place before.
    pub(crate) fn token(self, index: usize) -> i64 {
        // Even places draw from the even ids, odd places from the odd ones.
        let index = index as u64;
        let seed = Hash::new().bytes(&self.0.to_le_bytes());
        let draw = seed.bytes(&index.to_le_bytes()).done() % (ANSWER_RANGE / 2);
        ANSWER_BASE + i64::try_from(draw * 2 + index % 2).unwrap_or_default()
    }
}

/// The text of a token: a space and two syllables for the tokens of an
/// answer, `<id>` for any other.
#[must_use]
pub fn token_text(id: i64) -> String {
    match usize::try_from(id - ANSWER_BASE.min(id)) {
        Ok(word) if id >= ANSWER_BASE && (word as u64) < ANSWER_RANGE => {
            let mut text = String::from(" ");
            for syllable in [word / 64, word % 64] {
                text.push(char::from(CONSONANTS[syllable / 4 % 16]));
                text.push(char::from(VOWELS[syllable % 4]));
            }
            text
        }
        _ => format!("<{id}>"),
    }
}

/// The first `count` tokens of the answer to a prompt, as text.
#[must_use]
pub fn answer_text(prompt: &[i64], count: usize) -> String {
    let answer = Answer::to(prompt);
    (0..count).map(|at| token_text(answer.token(at))).collect()
}

/// The log probability of a token, by its id: from -0.001 to -1.
pub(crate) fn logprob(id: i64) -> f64 {
    let thousandths = i32::try_from(id.rem_euclid(1_000)).unwrap_or_default();
    -f64::from(thousandths + 1) / 1_000.0
}
