use super::{
    ClientRequest, ContextReply, Segments,
    frames::{Frames, member_text, or_null, present, text},
};
use crate::json::{Object, Value};

const SAID: [&str; 2] = ["content", "refusal"];
/// A worker's reasoning parser fills the one, the parser of gpt-oss the other.
const THOUGHT: [&str; 2] = ["reasoning_content", "reasoning"];
/// So many calls have a chunk each; those beyond share the last one, as a chunk costs more than a call.
const MOST_CALLS: usize = 128;

/// Role first, then what was thought, said and called, then how it ended.
///
/// A worker has the finish reason on its last chunk of text or call. Here it has a chunk of its own, as in OpenAI's
/// streams: a call is one chunk, and OpenAI's clients tell that it is complete when they see a later one.
pub(super) fn frames(request: &ClientRequest, reply: &ContextReply) -> Segments {
    let mut out = Frames::new(request, reply, r#""chat.completion.chunk""#, "");
    let choice = reply.choice();
    let message = choice.last("message").and_then(|message| message.object().ok());
    let message = message.as_ref();

    let mut role = String::new();
    let said = message.and_then(|message| text(message, "role"));
    member_text(&mut role, "role", said.as_ref().map_or(r#""assistant""#, Value::as_str));
    out.before(&unfinished(&role, None));

    let mut logprobs = present(choice, "logprobs");
    let mut deltas = message.map(texts).unwrap_or_default();
    let last_text = deltas.pop();
    for delta in deltas {
        out.made(&unfinished(&delta, None));
    }
    if let Some(delta) = last_text {
        out.made(&unfinished(&delta, logprobs.take()));
    }
    for calls in message.map(tool_calls).unwrap_or_default() {
        out.made(&unfinished(&format!(r#""tool_calls":[{calls}]"#), None));
    }

    let mut last = r#""delta":{}"#.to_owned();
    if let Some(logprobs) = logprobs {
        member_text(&mut last, "logprobs", logprobs.as_str());
    }
    member_text(&mut last, "finish_reason", &or_null(choice, "finish_reason"));
    for key in ["stop_reason", "avg_decoded_tokens_per_iter"] {
        if let Some(value) = present(choice, key) {
            member_text(&mut last, key, value.as_str());
        }
    }
    out.made(&last);
    out.finish()
}

fn unfinished(delta: &str, logprobs: Option<Value>) -> String {
    let mut choice = format!(r#""delta":{{{delta}}}"#);
    if let Some(logprobs) = logprobs {
        member_text(&mut choice, "logprobs", logprobs.as_str());
    }
    member_text(&mut choice, "finish_reason", "null");
    choice
}

/// The texts of a message as one delta or two, thoughts first. As in a worker's chunks, each has all members that are
/// strings, and `""` where its text is not: so an empty text stays one, and a thought is shown in one chunk only, under
/// whichever names the reply has for it.
fn texts(message: &Object) -> Vec<String> {
    let any = |keys: &[&str]| {
        keys.iter().filter_map(|key| text(message, key)).any(|value| value.as_str() != r#""""#)
    };
    let mut deltas = Vec::with_capacity(2);
    let thought = any(&THOUGHT);
    if thought {
        deltas.push(delta(message, &THOUGHT));
    }
    if any(&SAID) || !thought {
        deltas.push(delta(message, &SAID));
    }
    deltas.retain(|delta| !delta.is_empty());
    deltas
}

fn delta(message: &Object, shown: &[&str]) -> String {
    let mut out = String::new();
    for key in SAID.iter().chain(&THOUGHT) {
        if let Some(value) = text(message, key) {
            member_text(&mut out, key, if shown.contains(key) { value.as_str() } else { r#""""# });
        }
    }
    out
}

/// The calls of a message, one text a chunk, each call with its place among them: in a stream clients put the pieces
/// together by it.
fn tool_calls(message: &Object) -> Vec<String> {
    let mut chunks: Vec<String> = Vec::new();
    let mut index = 0_usize;
    let each = |call: Value| {
        if let Ok(call) = call.object() {
            let call = call.edit().set("index", index.to_string()).finish().to_bytes();
            let call = String::from_utf8_lossy(&call);
            match chunks.last_mut() {
                Some(last) if index >= MOST_CALLS => {
                    last.push(',');
                    last.push_str(&call);
                }
                _ => chunks.push(call.into_owned()),
            }
            index += 1;
        }
        true
    };
    if let Some(calls) = message.last("tool_calls") {
        // Null where nothing was called.
        let _ = calls.for_each(each);
    }
    chunks
}
