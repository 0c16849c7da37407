//! The request of the generation leg.

use super::{ClientRequest, ContextReply, DisaggRequestId, Endpoint, Shape, params, token_ids::Tokens};
use crate::json::{Edit, Segments};

/// What the generation worker is sent: the client's JSON with the handoff's `disaggregated_params` and the prompt as
/// the context worker tokenised it (contract, section 4). `id` is the one the context leg was sent; the one that is
/// written is [`ContextReply::id_for_generation`]'s.
///
/// Only for a reply after which [`Due::Generation`](super::Due::Generation) holds: a worker must not be sent one
/// for a request that is complete. Opaque state and token ids are slices of the reply, everything else slices of the
/// request.
pub fn generation_body(
    request: &ClientRequest,
    reply: &ContextReply,
    id: DisaggRequestId,
    shape: &Shape,
) -> Segments {
    let params = params::generation_params(reply, reply.id_for_generation(id), *shape);
    let edit = request.object().edit().set("disaggregated_params", params);
    match request.endpoint() {
        Endpoint::Chat => chat_tokens(edit, reply.tokens(), *shape).finish(),
        Endpoint::Completions => match reply.tokens() {
            Tokens::Ids(ids) => edit.set("prompt", ids.clone()).finish(),
            Tokens::Absent | Tokens::Base64(_) => edit.finish(),
        },
    }
}

/// The ids go beside `messages`. They are a member of the handoff, so none of the client's stays.
fn chat_tokens<'a>(edit: Edit<'a>, tokens: &Tokens, shape: Shape) -> Edit<'a> {
    let edit = edit.remove("prompt_token_ids").remove("prompt_token_ids_b64");
    match tokens {
        Tokens::Ids(ids) => edit.set("prompt_token_ids", ids.clone()),
        Tokens::Base64(ids) if shape.schema().knows_base64_tokens() => {
            edit.set("prompt_token_ids_b64", ids.clone())
        }
        // The worker tokenises `messages` again.
        Tokens::Absent | Tokens::Base64(_) => edit,
    }
}

#[cfg(test)]
mod tests;
