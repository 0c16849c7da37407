//! What a client sees of a generation worker's reply in one piece.

use bytes::Bytes;

use super::strip::without_handoff;
use crate::json::{Object, Segments};

/// A non-streaming generation reply without the handoff's members: `choices[*].disaggregated_params`,
/// `prompt_token_ids`, `prompt_token_ids_b64` (contract, section 4).
///
/// The very same bytes when there is none of them, or when the body is no JSON object: then it is the worker's to
/// answer for.
pub fn clean_generation_reply(body: Bytes) -> Segments {
    match Object::parse(body.clone()) {
        Ok(reply) => without_handoff(&reply).unwrap_or_else(|| body.into()),
        Err(_) => body.into(),
    }
}

#[cfg(test)]
mod tests;
