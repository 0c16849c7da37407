//! The usage of the context step, as the generation worker is told it.

use super::ContextReply;
use crate::json::Object;

/// The reply's `usage` reduced to what every worker with `ctx_usage` knows; further keys, a null `prompt_tokens` and
/// a null `cached_tokens` are refused with 400 (contract, section 4).
///
/// `None` without a usable `prompt_tokens`: a worker that is told nothing counts by itself.
pub(super) fn context_usage(reply: &ContextReply) -> Option<String> {
    let usage = reply.object().last("usage")?.object().ok()?;
    let mut out = format!(r#"{{"prompt_tokens":{}"#, count(&usage, "prompt_tokens")?);
    for key in ["total_tokens", "completion_tokens"] {
        if let Some(count) = count(&usage, key) {
            out.push_str(&format!(r#","{key}":{count}"#));
        }
    }
    let details = usage.last("prompt_tokens_details").and_then(|details| details.object().ok());
    if let Some(cached) = details.and_then(|details| count(&details, "cached_tokens")) {
        out.push_str(&format!(r#","prompt_tokens_details":{{"cached_tokens":{cached}}}"#));
    }
    out.push('}');
    Some(out)
}

fn count(object: &Object, key: &str) -> Option<u64> {
    object.last(key)?.as_i128()?.try_into().ok()
}
