use super::{
    ClientRequest, ContextReply, Segments,
    frames::{Frames, member_text, or_null, present, text},
};

/// The text, then how it ended; chunks of this endpoint keep their nulls.
pub(super) fn frames(request: &ClientRequest, reply: &ContextReply) -> Segments {
    const NO_USAGE: &str = r#","usage":null"#;
    let mut out = Frames::new(request, reply, r#""text_completion""#);
    let choice = reply.choice();
    let mut logprobs = or_null(choice, "logprobs");
    let ids = present(choice, "token_ids");
    let said = text(choice, "text");
    if said.is_some() || ids.is_some() {
        let mut chunk = String::new();
        member_text(&mut chunk, "text", said.as_ref().map_or(r#""""#, |said| said.as_str()));
        if let Some(ids) = ids {
            member_text(&mut chunk, "token_ids", ids.as_str());
        }
        member_text(&mut chunk, "logprobs", &logprobs);
        chunk.push_str(r#","finish_reason":null,"stop_reason":null"#);
        out.choice(reply, &chunk, NO_USAGE);
        "null".clone_into(&mut logprobs);
    }
    let mut last = format!(r#""text":"","logprobs":{logprobs}"#);
    for key in ["finish_reason", "stop_reason"] {
        member_text(&mut last, key, &or_null(choice, key));
    }
    if let Some(value) = present(choice, "avg_decoded_tokens_per_iter") {
        member_text(&mut last, "avg_decoded_tokens_per_iter", value.as_str());
    }
    out.choice(reply, &last, NO_USAGE);
    out.finish(request, reply)
}
