//! The KV of context requests: registered, held, pulled over TCP, timed out.
//!
//! The wire is a line from the generation engine (`PULL` and four words: the
//! global id, the context id, the nonce of the opaque state, a fingerprint of
//! the prompt), a line back (`OK` and a length, or `ERR` and a reason), the
//! payload, and `ACK` when it arrived. Only the `ACK` frees the KV.

mod listen;
mod opaque;
mod pull;
mod store;

pub(crate) use listen::serve;
pub(crate) use opaque::Opaque;
pub(crate) use pull::{Pull, pull};
pub(crate) use store::{Entry, Store};

#[cfg(test)]
mod tests;
