use super::{
    ClientRequest, ContextReply, Segments,
    frames::{Frames, member_text, or_null, present, text},
};
use crate::json::{Object, Value};

/// Role first, then what was thought, said and called, then how it ended.
pub(super) fn frames(request: &ClientRequest, reply: &ContextReply) -> Segments {
    let mut out = Frames::new(request, reply, r#""chat.completion.chunk""#);
    let choice = reply.choice();
    let message = choice.last("message").and_then(|message| message.object().ok());
    let message = message.as_ref();

    let mut role = String::new();
    let said = message.and_then(|message| text(message, "role"));
    member_text(&mut role, "role", said.as_ref().map_or(r#""assistant""#, Value::as_str));
    out.choice(reply, &unfinished(&role, "null"), "");

    // The worker's own name for it and the newer one; a reply may have either.
    let thought = delta(message, &["reasoning_content", "reasoning"]);
    if !thought.is_empty() {
        out.choice(reply, &unfinished(&thought, "null"), "");
    }
    let mut logprobs = or_null(choice, "logprobs");
    let content = delta(message, &["content", "refusal"]);
    if !content.is_empty() {
        out.choice(reply, &unfinished(&content, &logprobs), "");
        "null".clone_into(&mut logprobs);
    }
    let calls = message.map(tool_calls).unwrap_or_default();
    if !calls.is_empty() {
        out.choice(reply, &unfinished(&format!(r#""tool_calls":[{calls}]"#), "null"), "");
    }

    let mut last = format!(r#""delta":{{}},"logprobs":{logprobs}"#);
    member_text(&mut last, "finish_reason", &or_null(choice, "finish_reason"));
    for key in ["stop_reason", "avg_decoded_tokens_per_iter"] {
        if let Some(value) = present(choice, key) {
            member_text(&mut last, key, value.as_str());
        }
    }
    out.choice(reply, &last, "");
    out.finish(request, reply)
}

fn unfinished(delta: &str, logprobs: &str) -> String {
    format!(r#""delta":{{{delta}}},"logprobs":{logprobs},"finish_reason":null"#)
}

fn delta(message: Option<&Object>, keys: &[&str]) -> String {
    let mut out = String::new();
    for key in keys {
        if let Some(value) = message.and_then(|message| text(message, key)) {
            member_text(&mut out, key, value.as_str());
        }
    }
    out
}

/// The calls of a message, each with its place among them: in a stream clients put the pieces together by it.
fn tool_calls(message: &Object) -> String {
    let mut out = String::new();
    let mut index = 0_usize;
    let each = |call: Value| {
        if let Ok(call) = call.object() {
            if index > 0 {
                out.push(',');
            }
            let call = call.edit().set("index", index.to_string()).finish();
            out.push_str(&String::from_utf8_lossy(&call.to_bytes()));
            index += 1;
        }
        true
    };
    if let Some(calls) = message.last("tool_calls") {
        // Null where nothing was called.
        let _ = calls.for_each(each);
    }
    out
}
