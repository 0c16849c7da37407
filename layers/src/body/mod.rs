//! Response bodies that more than one layer uses.

mod either;
mod flush;

pub use self::either::EitherBody;
pub(crate) use self::flush::FlushBeforeError;

#[cfg(test)]
mod tests;
