//! Readers that share nothing with the code under test, and take the straight way where that takes the fast one.

pub(crate) mod json;
pub(crate) mod sse;
