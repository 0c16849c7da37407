//! Shallow JSON: a top-level object split into untouched spans, and put together again.
//!
//! A handoff changes two or three members of a request that may carry a megabyte of prompt. Everything else has to
//! reach the engines as the client wrote it: numbers digit for digit, escapes, the order of members, repeated keys
//! and members nobody here has heard of. So nothing is decoded into a tree and written out anew. [`Object`] knows
//! where each member of the outermost object lies in the bytes it came in, [`Edit`] names the members to drop or to
//! replace, and the result is [`Segments`]: slices of the original with the new values between them.
//!
//! ```
//! use bytes::Bytes;
//! use tower_disagg::json::Object;
//!
//! let body = Bytes::from_static(br#"{"seed": 9007199254740993, "stream": true, "x": 1e400}"#);
//! let object = Object::parse(body)?;
//! let edited = object.edit().set("stream", "false").set("y", "[]").finish();
//! assert_eq!(edited.to_bytes(), &br#"{"seed": 9007199254740993, "stream": false, "x": 1e400,"y":[]}"#[..]);
//! # Ok::<(), tower_disagg::json::JsonError>(())
//! ```
//!
//! # Bounds
//!
//! Reading neither recurses nor builds a tree, so depth costs no stack; an object may have at most
//! [`MAX_MEMBERS`] members, and a list is walked without being collected, so that small members cannot be used to
//! make a small body occupy much memory.
//!
//! # Strictness
//!
//! Only UTF-8 without a byte-order mark is read, since a worker's web framework takes UTF-16 as well and a guard that
//! cannot read a body must not let it by. Keys are compared decoded, so `"disaggregated\u005fparams"` is recognised.
//! Half of a surrogate pair in a *value* is kept as it is; in a *key* it is an error, as it is at the engines.

mod edit;
mod error;
mod object;
mod pointer;
mod segments;
mod value;

pub use self::{
    edit::Edit,
    error::{DuplicateKey, JsonError},
    object::{MAX_MEMBERS, Object},
    pointer::{Pointer, PointerError},
    segments::Segments,
    value::{Kind, Value, Values},
};

#[cfg(test)]
mod tests;
