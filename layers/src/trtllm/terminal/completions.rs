use super::{
    ClientRequest, ContextReply, Segments,
    frames::{Frames, member_text, or_null, present, text},
};

/// The text and how it ended in one chunk, as a worker's last chunk has both (and OpenAI's model of a completion has
/// no chunk without a finish reason). Chunks of this endpoint keep their nulls.
pub(super) fn frames(request: &ClientRequest, reply: &ContextReply) -> Segments {
    let mut out = Frames::new(request, reply, r#""text_completion""#);
    let choice = reply.choice();
    let said = text(choice, "text");
    let mut chunk = String::new();
    member_text(&mut chunk, "text", said.as_ref().map_or(r#""""#, |said| said.as_str()));
    for key in ["logprobs", "finish_reason", "stop_reason"] {
        member_text(&mut chunk, key, &or_null(choice, key));
    }
    for key in ["token_ids", "avg_decoded_tokens_per_iter"] {
        if let Some(value) = present(choice, key) {
            member_text(&mut chunk, key, value.as_str());
        }
    }
    out.choice(reply, &chunk, r#","usage":null"#);
    out.finish(request, reply)
}
