//! What the tests of several layers share, and tests of these layers together.

mod chain;
pub(crate) mod handoffs;
