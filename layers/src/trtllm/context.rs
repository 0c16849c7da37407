//! The request of the context leg.

use super::{ClientRequest, DisaggRequestId};
use crate::json::Segments;

/// What the context worker is sent: the client's JSON with `stream` false, no `stream_options`, and the handoff's
/// `disaggregated_params` (contract, section 3; accepted by every release from 1.3.0rc3 on).
///
/// Everything else stays as the client wrote it. `max_tokens` too: the marker `context_only` is what ends the step
/// after one token, and a limit rewritten here could contradict one that is not (`min_tokens`,
/// `max_completion_tokens`).
pub fn context_body(request: &ClientRequest, id: DisaggRequestId) -> Segments {
    let params = format!(r#"{{"request_type":"context_only","disagg_request_id":{id},"schedule_style":0}}"#);
    request
        .object()
        .edit()
        .set("stream", "false")
        // A worker answers 400 to stream options where nothing is streamed.
        .remove("stream_options")
        .set("disaggregated_params", params)
        .finish()
}

#[cfg(test)]
mod tests;
