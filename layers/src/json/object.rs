use std::{fmt, ops::Range, sync::Arc};

use bytes::Bytes;
use serde::de::{Deserializer as _, Error as _, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::{DuplicateKey, Edit, JsonError, Value};

/// The most members an object may have (the largest request model known has about 60).
pub const MAX_MEMBERS: usize = 1024;

/// One JSON object, split into the spans of its members; the bytes themselves are shared and untouched.
///
/// `Clone` shares the spans as well. `Debug` shows no content.
#[derive(Clone)]
pub struct Object {
    text: Bytes,
    members: Arc<[Member]>,
}

/// Where a member lies in the text.
#[derive(Debug)]
pub(super) struct Member {
    /// The decoded key.
    pub(super) key: Box<str>,
    /// From the opening quote of the key to the end of the value.
    pub(super) span: Range<usize>,
    /// The value alone.
    pub(super) value: Range<usize>,
}

impl Object {
    /// Splits `text`, which has to be exactly one JSON object with nothing but white space around it.
    ///
    /// # Errors
    ///
    /// See [`JsonError`]. All of `text` is checked to be JSON, at any depth.
    pub fn parse(text: Bytes) -> Result<Self, JsonError> {
        let members = split(&text)?;
        Ok(Self { text, members: members.into() })
    }

    /// The text it was read from.
    pub fn text(&self) -> &Bytes {
        &self.text
    }

    /// The keys and values, in the order written, repeated ones included.
    pub fn members(&self) -> impl Iterator<Item = (&str, Value)> {
        self.members.iter().map(|member| (&*member.key, self.value(member)))
    }

    /// Whether there is no member.
    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// Whether a member of this name is there.
    pub fn contains(&self, key: &str) -> bool {
        self.members.iter().any(|member| &*member.key == key)
    }

    /// The value of the member named `key`; a decision may rest on it.
    ///
    /// # Errors
    ///
    /// [`DuplicateKey`] when there is more than one.
    pub fn get(&self, key: &'static str) -> Result<Option<Value>, DuplicateKey> {
        let mut found = self.members.iter().filter(|member| &*member.key == key);
        match (found.next(), found.next()) {
            (first, None) => Ok(first.map(|member| self.value(member))),
            _ => Err(DuplicateKey(key)),
        }
    }

    /// The value that an engine would use: that of the last member named `key`.
    pub fn last(&self, key: &str) -> Option<Value> {
        self.members.iter().rfind(|member| &*member.key == key).map(|member| self.value(member))
    }

    /// Starts a changed copy.
    pub fn edit(&self) -> Edit<'_> {
        Edit::new(self)
    }

    fn value(&self, member: &Member) -> Value {
        Value::new(self.text.slice(member.value.clone()))
    }

    pub(super) fn spans(&self) -> &[Member] {
        &self.members
    }
}

impl fmt::Debug for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Object({} members, {} bytes)", self.members.len(), self.text.len())
    }
}

fn split(text: &Bytes) -> Result<Vec<Member>, JsonError> {
    if text.starts_with(b"\xef\xbb\xbf") {
        return Err(JsonError::ByteOrderMark);
    }
    let utf8 = std::str::from_utf8(text).map_err(|error| JsonError::NotUtf8(error.valid_up_to()))?;
    match utf8.bytes().find(|byte| !matches!(byte, b' ' | b'\t' | b'\n' | b'\r')) {
        None => return Err(JsonError::Empty),
        Some(b'{') => {}
        // Anything else is either another kind of value or no JSON at all; tell which.
        Some(_) => {
            return Err(match serde_json::from_str::<&RawValue>(utf8) {
                Ok(_) => JsonError::WrongKind,
                Err(error) => syntax(&error),
            });
        }
    }
    let mut too_many = false;
    let mut reader = serde_json::Deserializer::from_str(utf8);
    let visitor = Members { start: utf8.as_ptr() as usize, too_many: &mut too_many };
    let members = reader.deserialize_map(visitor).and_then(|members| reader.end().map(|()| members));
    members.map_err(|error| if too_many { JsonError::TooManyMembers } else { syntax(&error) })
}

fn syntax(error: &serde_json::Error) -> JsonError {
    JsonError::Syntax { line: error.line().max(1), column: error.column().max(1) }
}

/// Collects the spans of an object's members, from borrowed slices of the text that starts at address `start`.
struct Members<'a> {
    start: usize,
    too_many: &'a mut bool,
}

impl Members<'_> {
    fn range(&self, part: &RawValue) -> Range<usize> {
        let at = part.get().as_ptr() as usize - self.start;
        at..at + part.get().len()
    }
}

impl<'de> Visitor<'de> for Members<'_> {
    type Value = Vec<Member>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut object: A) -> Result<Vec<Member>, A::Error> {
        let mut members = Vec::new();
        while let Some((key, value)) = object.next_entry::<&'de RawValue, &'de RawValue>()? {
            if members.len() == MAX_MEMBERS {
                *self.too_many = true;
                return Err(A::Error::custom("too many members"));
            }
            let (span, value) = (self.range(key), self.range(value));
            // Without the text of the error, whose line and column count from the start of the key.
            let key = decode(key.get()).map_err(|_| A::Error::custom("a key that is no text"))?;
            members.push(Member { key, span: span.start..value.end, value });
        }
        Ok(members)
    }
}

/// The text of a key, given as it stands in JSON, quotes included.
fn decode(key: &str) -> serde_json::Result<Box<str>> {
    match key.strip_prefix('"').and_then(|key| key.strip_suffix('"')) {
        Some(plain) if !plain.contains('\\') => Ok(plain.into()),
        _ => serde_json::from_str(key),
    }
}
