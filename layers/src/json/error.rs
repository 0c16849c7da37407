use std::{error::Error, fmt};

/// Why bytes could not be read as one JSON object (or list).
///
/// The text never quotes the bytes: they may hold a prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum JsonError {
    /// There is nothing but white space.
    Empty,
    /// A byte-order mark stands in front.
    ByteOrderMark,
    /// Not UTF-8; the offset of the first bad byte.
    NotUtf8(usize),
    /// Not JSON, or more than one value; line and column as counted from 1.
    Syntax {
        /// The line, from 1.
        line: usize,
        /// The column in bytes, from 1.
        column: usize,
    },
    /// JSON, but not the kind of value that is needed here.
    WrongKind,
    /// More members than [`MAX_MEMBERS`](super::MAX_MEMBERS).
    TooManyMembers,
}

impl fmt::Display for JsonError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("it is empty"),
            Self::ByteOrderMark => f.write_str("it starts with a byte-order mark; send UTF-8 without one"),
            Self::NotUtf8(at) => write!(f, "it is not UTF-8 (byte {at})"),
            Self::Syntax { line, column } => write!(f, "it is not valid JSON (line {line}, column {column})"),
            Self::WrongKind => f.write_str("it is JSON of another kind"),
            Self::TooManyMembers => write!(f, "it has more than {} members", super::MAX_MEMBERS),
        }
    }
}

impl Error for JsonError {}

/// A key that a decision rests on occurs more than once.
///
/// Engines let the last one win; a proxy that read the first would decide about another request than the engine runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DuplicateKey(pub &'static str);

impl fmt::Display for DuplicateKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` occurs more than once", self.0)
    }
}

impl Error for DuplicateKey {}
