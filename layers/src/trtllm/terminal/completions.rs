use super::{
    ClientRequest, ContextReply, Segments,
    frames::{Frames, member_text, or_null, text},
};

/// The text and how it ended in one chunk, as a worker's last chunk has both (and OpenAI's model of a completion has
/// no chunk without a finish reason). Chunks of this endpoint keep their nulls.
pub(super) fn frames(request: &ClientRequest, reply: &ContextReply) -> Segments {
    let mut out = Frames::new(request, reply, r#""text_completion""#, r#","usage":null"#);
    let choice = reply.choice();
    let said = text(choice, "text");
    let mut chunk = String::new();
    member_text(&mut chunk, "text", said.as_ref().map_or(r#""""#, |said| said.as_str()));
    for key in ["token_ids", "logprobs", "finish_reason", "stop_reason", "avg_decoded_tokens_per_iter"] {
        // These two are not of all releases; a reply has all that its worker's release knows.
        if choice.contains(key) || !matches!(key, "token_ids" | "avg_decoded_tokens_per_iter") {
            member_text(&mut chunk, key, &or_null(choice, key));
        }
    }
    out.made(&chunk);
    out.finish()
}
