//! The reader itself: one pass, its own stack, so depth costs no native stack.

use super::Value;
use std::collections::HashMap;

/// How deep lists and objects may nest.
///
/// The real limit is that of the worker's interpreter; a thousand is what the
/// older ones have.
const MAX_DEPTH: usize = 1_000;
/// More digits than this in an integer and the worker's reader gives up.
const MAX_DIGITS: usize = 4_300;
/// From here on an object is indexed, so that repeated keys cost no quadratic time.
const INDEX_FROM: usize = 16;

/// Why a text could not be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ReadError {
    /// Not JSON: what, and at which character.
    Syntax(&'static str, usize),
    /// JSON, but too deep or with an integer too long.
    Limit,
    /// A lone surrogate in a key.
    Key,
}

/// Reads one JSON text.
pub(crate) fn read(text: &str) -> Result<Value, ReadError> {
    let mut reader = Reader { text, bytes: text.as_bytes(), at: 0, lone_key: false };
    let value = reader.document()?;
    if reader.lone_key {
        return Err(ReadError::Key);
    }
    Ok(value)
}

struct Reader<'a> {
    text: &'a str,
    bytes: &'a [u8],
    at: usize,
    lone_key: bool,
}

/// A list or object that is being read.
enum Open {
    Arr(Vec<Value>),
    Obj(Members, String),
}

#[derive(Default)]
struct Members {
    list: Vec<(String, Value)>,
    index: HashMap<String, usize>,
}

impl Members {
    /// Adds a member; a key seen before keeps its place and takes the new value.
    fn put(&mut self, key: String, value: Value) {
        let known = if self.list.len() < INDEX_FROM {
            self.list.iter().position(|(k, _)| *k == key)
        } else {
            if self.index.is_empty() {
                let keys = self.list.iter().enumerate();
                self.index = keys.map(|(at, (k, _))| (k.clone(), at)).collect();
            }
            self.index.get(&key).copied()
        };
        match known {
            Some(at) => self.list[at].1 = value,
            None => {
                if !self.index.is_empty() {
                    self.index.insert(key.clone(), self.list.len());
                }
                self.list.push((key, value));
            }
        }
    }
}

impl Reader<'_> {
    fn document(&mut self) -> Result<Value, ReadError> {
        let mut stack: Vec<Open> = Vec::new();
        loop {
            // A value is due here.
            self.space();
            let mut value = match self.peek() {
                Some(b'[') => {
                    self.at += 1;
                    self.space();
                    if self.peek() == Some(b']') {
                        self.at += 1;
                        Value::Arr(Vec::new())
                    } else {
                        push(&mut stack, Open::Arr(Vec::new()))?;
                        continue;
                    }
                }
                Some(b'{') => {
                    self.at += 1;
                    self.space();
                    if self.peek() == Some(b'}') {
                        self.at += 1;
                        Value::Obj(Vec::new())
                    } else {
                        let key = self.key()?;
                        push(&mut stack, Open::Obj(Members::default(), key))?;
                        continue;
                    }
                }
                _ => self.scalar()?,
            };
            // A value is complete: hand it to what encloses it.
            loop {
                self.space();
                match stack.pop() {
                    None => {
                        return if self.at == self.bytes.len() {
                            Ok(value)
                        } else {
                            Err(self.bad("Extra data"))
                        };
                    }
                    Some(Open::Arr(mut items)) => {
                        items.push(value);
                        match self.peek() {
                            Some(b',') => {
                                self.at += 1;
                                stack.push(Open::Arr(items));
                                break;
                            }
                            Some(b']') => {
                                self.at += 1;
                                value = Value::Arr(items);
                            }
                            _ => return Err(self.bad("Expecting ',' delimiter")),
                        }
                    }
                    Some(Open::Obj(mut members, key)) => {
                        members.put(key, value);
                        match self.peek() {
                            Some(b',') => {
                                self.at += 1;
                                self.space();
                                let key = self.key()?;
                                stack.push(Open::Obj(members, key));
                                break;
                            }
                            Some(b'}') => {
                                self.at += 1;
                                value = Value::Obj(members.list);
                            }
                            _ => return Err(self.bad("Expecting ',' delimiter")),
                        }
                    }
                }
            }
        }
    }

    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    fn space(&mut self) {
        while let Some(b' ' | b'\t' | b'\n' | b'\r') = self.peek() {
            self.at += 1;
        }
    }

    fn bad(&self, what: &'static str) -> ReadError {
        ReadError::Syntax(what, self.at)
    }

    /// A key and its colon.
    fn key(&mut self) -> Result<String, ReadError> {
        if self.peek() != Some(b'"') {
            return Err(self.bad("Expecting property name enclosed in double quotes"));
        }
        let (key, lone) = self.string()?;
        self.lone_key |= lone;
        self.space();
        if self.peek() != Some(b':') {
            return Err(self.bad("Expecting ':' delimiter"));
        }
        self.at += 1;
        Ok(key)
    }

    fn scalar(&mut self) -> Result<Value, ReadError> {
        const WORDS: [(&str, Value); 6] = [
            ("null", Value::Null),
            ("true", Value::Bool(true)),
            ("false", Value::Bool(false)),
            ("NaN", Value::Float(f64::NAN)),
            ("Infinity", Value::Float(f64::INFINITY)),
            ("-Infinity", Value::Float(f64::NEG_INFINITY)),
        ];
        if self.peek() == Some(b'"') {
            return self.string().map(|(text, _)| Value::Str(text));
        }
        for (word, value) in WORDS {
            if self.bytes[self.at..].starts_with(word.as_bytes()) {
                self.at += word.len();
                return Ok(value);
            }
        }
        self.number()
    }

    fn number(&mut self) -> Result<Value, ReadError> {
        let start = self.at;
        let mut at = start + usize::from(self.peek() == Some(b'-'));
        let run = |from: usize| from + self.bytes[from..].iter().take_while(|b| b.is_ascii_digit()).count();
        let whole = at;
        at = run(at);
        if at == whole {
            return Err(self.bad("Expecting value"));
        }
        if self.bytes[whole] == b'0' {
            // A leading zero ends the number; what follows is garbage.
            at = whole + 1;
        }
        let mut end = at;
        if self.bytes.get(at) == Some(&b'.') && run(at + 1) > at + 1 {
            end = run(at + 1);
        }
        if let Some(b'e' | b'E') = self.bytes.get(end) {
            let sign = matches!(self.bytes.get(end + 1), Some(b'+' | b'-'));
            let from = end + 1 + usize::from(sign);
            if from <= self.bytes.len() && run(from) > from {
                end = run(from);
            }
        }
        self.at = end;
        let number = &self.text[start..end];
        if end > at {
            return Ok(Value::Float(number.parse().unwrap_or(f64::NAN)));
        }
        if at - whole > MAX_DIGITS {
            return Err(ReadError::Limit);
        }
        Ok(Value::Int(if number == "-0" { "0" } else { number }.into()))
    }

    /// A string, and whether a surrogate stands alone in it.
    fn string(&mut self) -> Result<(String, bool), ReadError> {
        let open = self.at;
        self.at += 1;
        let mut out = String::new();
        let mut lone = false;
        loop {
            let from = self.at;
            while let Some(b) = self.peek()
                && b >= 0x20
                && b != b'"'
                && b != b'\\'
            {
                self.at += 1;
            }
            // Both ends are at ASCII bytes, so this is on character borders.
            out.push_str(&self.text[from..self.at]);
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    return Ok((out, lone));
                }
                Some(b'\\') => lone |= self.escape(&mut out)?,
                Some(_) => return Err(self.bad("Invalid control character at")),
                None => return Err(ReadError::Syntax("Unterminated string starting at", open)),
            }
        }
    }

    /// One escape; true when it is a surrogate without its other half.
    fn escape(&mut self, out: &mut String) -> Result<bool, ReadError> {
        let c = match self.bytes.get(self.at + 1) {
            Some(b'u') => return self.unicode(out),
            Some(b'"') => '"',
            Some(b'\\') => '\\',
            Some(b'/') => '/',
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            _ => return Err(self.bad("Invalid \\escape")),
        };
        out.push(c);
        self.at += 2;
        Ok(false)
    }

    fn unicode(&mut self, out: &mut String) -> Result<bool, ReadError> {
        let Some(first) = self.hex(self.at) else {
            return Err(self.bad("Invalid \\uXXXX escape"));
        };
        self.at += 6;
        if let Some(c) = char::from_u32(first) {
            out.push(c);
            return Ok(false);
        }
        if first < 0xdc00
            && let Some(second @ 0xdc00..0xe000) = self.hex(self.at)
            && let Some(c) = char::from_u32(0x1_0000 + ((first - 0xd800) << 10) + (second - 0xdc00))
        {
            out.push(c);
            self.at += 6;
            return Ok(false);
        }
        out.push(char::REPLACEMENT_CHARACTER);
        Ok(true)
    }

    /// The code of a `\uXXXX` that starts here.
    fn hex(&self, at: usize) -> Option<u32> {
        let digits = self.bytes.get(at..at + 6)?.strip_prefix(b"\\u")?;
        digits.iter().try_fold(0, |code, b| char::from(*b).to_digit(16).map(|digit| code * 16 + digit))
    }
}

fn push(stack: &mut Vec<Open>, open: Open) -> Result<(), ReadError> {
    if stack.len() >= MAX_DEPTH {
        return Err(ReadError::Limit);
    }
    stack.push(open);
    Ok(())
}
