//! Response bodies that more than one layer uses.

mod either;

pub use self::either::EitherBody;

#[cfg(test)]
mod tests;
