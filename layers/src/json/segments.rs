use std::fmt;

use bytes::{Bytes, BytesMut};

/// A text as a list of shared slices: what an [`Edit`](super::Edit) makes, and what a leg's body sends.
///
/// Cloning clones handles, never the text. `Debug` shows sizes only: the text may be a prompt.
#[derive(Clone, Default)]
pub struct Segments {
    parts: Vec<Bytes>,
    len: usize,
}

impl Segments {
    /// No text.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a slice to the end; an empty one is left out.
    pub fn push(&mut self, part: impl Into<Bytes>) {
        let part = part.into();
        if !part.is_empty() {
            self.len += part.len();
            self.parts.push(part);
        }
    }

    /// Adds all slices of `other` to the end.
    pub fn append(&mut self, other: Segments) {
        self.len += other.len;
        self.parts.extend(other.parts);
    }

    /// Length of the whole text in bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is no text.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The slices, none of them empty.
    pub fn parts(&self) -> &[Bytes] {
        &self.parts
    }

    /// The slices, none of them empty.
    pub fn into_parts(self) -> Vec<Bytes> {
        self.parts
    }

    /// The text in one piece; copies unless there is only one slice.
    pub fn to_bytes(&self) -> Bytes {
        match self.parts.as_slice() {
            [] => Bytes::new(),
            [one] => one.clone(),
            many => {
                let mut whole = BytesMut::with_capacity(self.len);
                many.iter().for_each(|part| whole.extend_from_slice(part));
                whole.freeze()
            }
        }
    }
}

impl fmt::Debug for Segments {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Segments({} slices, {} bytes)", self.parts.len(), self.len)
    }
}

impl From<Bytes> for Segments {
    fn from(part: Bytes) -> Self {
        let mut segments = Self::new();
        segments.push(part);
        segments
    }
}

impl From<&'static str> for Segments {
    fn from(part: &'static str) -> Self {
        Bytes::from_static(part.as_bytes()).into()
    }
}

impl From<String> for Segments {
    fn from(part: String) -> Self {
        Bytes::from(part).into()
    }
}

impl From<super::Value> for Segments {
    fn from(value: super::Value) -> Self {
        value.into_bytes().into()
    }
}
