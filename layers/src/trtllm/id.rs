use std::fmt;

/// The number under which both engines know one handoff.
///
/// It is a positive 64-bit integer in `2^42 .. 2^63 - 1`: below lie the numbers that workers give to their own requests
/// (up to `2^40`, in older releases up to `2^42`), and an engine keeps it in a signed integer (contract, section 5).
/// It has to be unique among everybody who sends requests to the same workers, and is used for one attempt only.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DisaggRequestId(u64);

impl DisaggRequestId {
    /// The smallest id, `2^42`.
    pub const MIN: Self = Self(1 << 42);

    /// The largest id, `2^63 - 2`.
    pub const MAX: Self = Self((1 << 63) - 2);

    /// The id of this number, when the number is in range.
    pub const fn new(number: u64) -> Option<Self> {
        if number >= Self::MIN.0 && number <= Self::MAX.0 { Some(Self(number)) } else { None }
    }

    /// The number.
    pub const fn get(self) -> u64 {
        self.0
    }
}

/// Decimal digits, as in JSON.
impl fmt::Display for DisaggRequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests;
