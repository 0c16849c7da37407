//! The errors of the layers, and what a client is told about them.
//!
//! Each layer that can fail fails with its own opaque error inside a [`BoxError`], so that layers can be reordered,
//! left out and mixed with other people's without a type changing. [`find`] looks one up again, through any number of
//! errors wrapped around it, and [`ErrorReply::of`] says what it means to the client.
//!
//! ```
//! use tower_disagg::error::{BoxError, ContextError, ContextErrorKind, ErrorReply, find};
//!
//! let error: BoxError = ContextError::new(ContextErrorKind::Timeout).into();
//! assert_eq!(find::<ContextError>(&*error).map(|e| e.kind()), Some(ContextErrorKind::Timeout));
//! let reply = ErrorReply::of(&*error);
//! assert_eq!((reply.status.as_u16(), reply.code), (504, "context_timeout"));
//! ```

mod admission;
mod context;
mod contract;
mod generation;
mod reply;
mod report;

use std::{error::Error, io, iter};

pub use self::{
    admission::{AdmissionError, AdmissionErrorKind},
    context::{ContextError, ContextErrorKind},
    contract::{ContractError, ContractErrorKind},
    generation::{GenerationError, GenerationErrorKind},
    reply::ErrorReply,
};

/// Any error, as services composed with `tower` pass it on.
pub type BoxError = Box<dyn Error + Send + Sync>;

/// Finds an error of type `E` in `error` or in what caused it.
pub fn find<'a, E: Error + 'static>(error: &'a (dyn Error + 'static)) -> Option<&'a E> {
    chain(error).find_map(|error| error.downcast_ref())
}

/// `error`, what caused it, what caused that, and so on.
pub(crate) fn chain<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    iter::successors(Some(error), |&error| cause(error))
}

/// What caused `error`. An `io::Error` made of another error counts that one as itself, and its cause as its own.
fn cause<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a (dyn Error + 'static)> {
    match error.downcast_ref::<io::Error>().and_then(io::Error::get_ref) {
        Some(inner) => Some(inner),
        None => error.source(),
    }
}

#[cfg(test)]
mod tests;
