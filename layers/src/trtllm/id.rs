//! Stand-in for the request id until the real one is merged.
use std::fmt;

/// An id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DisaggRequestId(u64);

impl DisaggRequestId {
    /// An id in range.
    pub fn new(id: u64) -> Option<Self> {
        (1 << 42..(1 << 63) - 1).contains(&id).then_some(Self(id))
    }

    /// The number.
    pub fn get(self) -> u64 {
        self.0
    }
}

impl fmt::Display for DisaggRequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
