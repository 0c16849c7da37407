//! The key that generation requests are signed with: from a file, and again when that changes.

mod file;
mod watch;

pub use self::file::AuthKeyFile;
pub(crate) use self::watch::{Reload, nothing, watch};

#[cfg(test)]
mod tests;
