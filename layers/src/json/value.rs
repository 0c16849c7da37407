use std::fmt;

use bytes::Bytes;
use serde::de::{Deserializer as _, SeqAccess, Visitor};
use serde_json::value::RawValue;

use super::{JsonError, Object};

/// The text of one JSON value, as it was written. Known to be valid JSON.
///
/// `Debug` shows the kind and the length only: the text may be a prompt.
#[derive(Clone)]
pub struct Value(Bytes);

/// What kind of value a text is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// `null`
    Null,
    /// `true` or `false`
    Bool,
    /// A number.
    Number,
    /// A string.
    String,
    /// A list.
    Array,
    /// An object.
    Object,
}

impl Value {
    /// `text` has to be valid JSON without white space around it.
    pub(super) fn new(text: Bytes) -> Self {
        Self(text)
    }

    /// The kind of value.
    pub fn kind(&self) -> Kind {
        match self.0.first() {
            Some(b'n') | None => Kind::Null,
            Some(b't' | b'f') => Kind::Bool,
            Some(b'"') => Kind::String,
            Some(b'[') => Kind::Array,
            Some(b'{') => Kind::Object,
            Some(_) => Kind::Number,
        }
    }

    /// Whether it is `null`.
    pub fn is_null(&self) -> bool {
        self.kind() == Kind::Null
    }

    /// The truth value, when it is one.
    pub fn as_bool(&self) -> Option<bool> {
        match &*self.0 {
            b"true" => Some(true),
            b"false" => Some(false),
            _ => None,
        }
    }

    /// The number when it is a plain integer (no fraction, no exponent) that fits; never through a float.
    pub fn as_i128(&self) -> Option<i128> {
        (self.kind() == Kind::Number).then(|| self.as_str().parse().ok()).flatten()
    }

    /// The number as the nearest double, for comparisons only: digits are lost.
    pub fn as_f64(&self) -> Option<f64> {
        (self.kind() == Kind::Number).then(|| self.as_str().parse().ok()).flatten()
    }

    /// The decoded text, when it is a string without half of a surrogate pair.
    pub fn as_text(&self) -> Option<String> {
        (self.kind() == Kind::String).then(|| serde_json::from_slice(&self.0).ok()).flatten()
    }

    /// The JSON text as it was written, quotes included.
    pub fn as_str(&self) -> &str {
        // Made from checked UTF-8 only; an empty text stands for what cannot happen.
        std::str::from_utf8(&self.0).unwrap_or_default()
    }

    /// The JSON text as it was written.
    pub fn bytes(&self) -> &Bytes {
        &self.0
    }

    /// The JSON text as it was written.
    pub fn into_bytes(self) -> Bytes {
        self.0
    }

    /// The members, when it is an object.
    ///
    /// # Errors
    ///
    /// [`JsonError::WrongKind`] when it is another kind of value, [`JsonError::TooManyMembers`] when there are more
    /// than [`MAX_MEMBERS`](super::MAX_MEMBERS).
    pub fn object(&self) -> Result<Object, JsonError> {
        Object::parse(self.0.clone())
    }

    /// Calls `each` for every element of a list, in order, until it returns `false`.
    ///
    /// # Errors
    ///
    /// [`JsonError::WrongKind`] when it is not a list.
    pub fn for_each(&self, each: impl FnMut(Value) -> bool) -> Result<(), JsonError> {
        if self.kind() != Kind::Array {
            return Err(JsonError::WrongKind);
        }
        let mut reader = serde_json::Deserializer::from_str(self.as_str());
        // A list known to be valid fails to be read only where `each` stopped early.
        let _ = reader.deserialize_seq(Elements { text: &self.0, each });
        Ok(())
    }

    /// The elements of a list of at most `most` elements.
    ///
    /// # Errors
    ///
    /// [`JsonError::WrongKind`] when it is not a list, [`JsonError::TooManyMembers`] when it is longer.
    pub fn elements(&self, most: usize) -> Result<Values, JsonError> {
        let mut values = Values::new();
        let mut more = false;
        self.for_each(|value| {
            more = values.len() == most;
            if !more {
                values.push(value);
            }
            !more
        })?;
        if more { Err(JsonError::TooManyMembers) } else { Ok(values) }
    }
}

impl fmt::Debug for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Value({:?}, {} bytes)", self.kind(), self.0.len())
    }
}

/// The elements of a list.
pub type Values = Vec<Value>;

struct Elements<'a, F> {
    text: &'a Bytes,
    each: F,
}

impl<'de, F: FnMut(Value) -> bool> Visitor<'de> for Elements<'_, F> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list")
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut list: A) -> Result<(), A::Error> {
        while let Some(element) = list.next_element::<&'de RawValue>()? {
            let text = self.text.slice_ref(element.get().as_bytes());
            if !(self.each)(Value::new(text)) {
                break;
            }
        }
        Ok(())
    }
}
