//! The client's answer when the context step finished the request.

use super::{ClientRequest, ContextReply, Endpoint, strip::without_handoff};
use crate::json::Segments;

mod chat;
mod completions;
mod frames;

/// The answer to a client that does not stream: the context reply without `disaggregated_params`,
/// `prompt_token_ids` and `prompt_token_ids_b64` (contract, section 4). What stays keeps its bytes.
pub fn terminal_whole(reply: &ContextReply) -> Segments {
    without_handoff(reply.object()).unwrap_or_else(|| reply.object().text().clone().into())
}

/// The answer to a client that streams, as server-sent events, with `[DONE]` at the end (contract, section 4;
/// TensorRT-LLM's own orchestrator sends only `[DONE]` here, and the text is lost).
///
/// The chunks have the shapes of a worker's, and come to what the reply says. Values are the reply's, in its JSON text:
/// half of a surrogate pair stays one. Usage comes where the client asked for it, when the reply has it.
pub fn terminal_stream(request: &ClientRequest, reply: &ContextReply) -> Segments {
    match request.endpoint() {
        Endpoint::Chat => chat::frames(request, reply),
        Endpoint::Completions => completions::frames(request, reply),
    }
}

#[cfg(test)]
mod tests;
