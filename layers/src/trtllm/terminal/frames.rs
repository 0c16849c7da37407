use bytes::Bytes;

use super::{ClientRequest, ContextReply, Segments};
use crate::{
    json::{Kind, Object, Value},
    trtllm::{Delivery, StreamUsage},
};

/// Writes the chunks of one stream.
pub(super) struct Frames<'a> {
    reply: &'a ContextReply,
    /// `data: {"id":…,"object":…,"created":…,"model":…`, the same in each: shared, as a reply may have a model of any
    /// length and any number of calls.
    head: Bytes,
    usage: StreamUsage,
    /// What a chunk has in the place of the usage.
    without_usage: &'static str,
    out: Segments,
}

impl<'a> Frames<'a> {
    pub(super) fn new(
        request: &ClientRequest,
        reply: &'a ContextReply,
        object: &str,
        without_usage: &'static str,
    ) -> Self {
        let member = |key, kind| reply.object().last(key).filter(|value: &Value| value.kind() == kind);
        // Clients' models require these; a worker always sends them.
        let id = member("id", Kind::String);
        let created = member("created", Kind::Number);
        let model = member("model", Kind::String)
            .or_else(|| request.object().last("model").filter(|model| model.kind() == Kind::String));
        let mut head = String::new();
        member_text(&mut head, "id", id.as_ref().map_or(r#""""#, Value::as_str));
        member_text(&mut head, "object", object);
        member_text(&mut head, "created", created.as_ref().map_or("0", Value::as_str));
        member_text(&mut head, "model", model.as_ref().map_or(r#""""#, Value::as_str));
        // Of no release that is known, but of this API.
        for key in ["service_tier", "system_fingerprint"] {
            if let Some(value) = member(key, Kind::String) {
                member_text(&mut head, key, value.as_str());
            }
        }
        let usage = match request.delivery() {
            Delivery::Stream { usage } => usage,
            Delivery::Whole => StreamUsage::Never,
        };
        let head = one_line(format!("data: {{{head}")).into();
        Self { reply, head, usage, without_usage, out: Segments::new() }
    }

    /// A chunk from before the first token. `choice` is the inside of its object, without the index.
    pub(super) fn before(&mut self, choice: &str) {
        self.choice(choice, of_prompt);
    }

    /// A chunk of what the context step made; it made all of it at once.
    pub(super) fn made(&mut self, choice: &str) {
        self.choice(choice, |usage| Some(usage.into()));
    }

    /// Ends the stream, with the usage when it was asked for.
    pub(super) fn finish(mut self) -> Segments {
        if self.usage != StreamUsage::Never
            && let Some(usage) = self.whole_usage()
        {
            self.frame(&format!(r#","choices":[],"usage":{}"#, usage.as_str()));
        }
        self.out.push("data: [DONE]\n\n");
        self.out
    }

    fn choice(&mut self, choice: &str, so_far: impl FnOnce(Value) -> Option<Segments>) {
        let index = self.reply.choice().last("index").filter(|index| index.as_i128().is_some());
        let index = index.as_ref().map_or("0", Value::as_str);
        let asked = self.usage == StreamUsage::Throughout;
        let usage = asked.then(|| self.whole_usage()).flatten().and_then(so_far);
        let usage = usage.map_or_else(
            || self.without_usage.to_owned(),
            |usage| format!(r#","usage":{}"#, String::from_utf8_lossy(&usage.to_bytes())),
        );
        self.frame(&format!(r#","choices":[{{"index":{index},{choice}}}]{usage}"#));
    }

    fn whole_usage(&self) -> Option<Value> {
        present(self.reply.object(), "usage")
    }

    fn frame(&mut self, rest: &str) {
        self.out.push(self.head.clone());
        self.out.push(one_line(format!("{rest}}}")) + "\n\n");
    }
}

/// The usage when no token was made yet: that of the prompt.
fn of_prompt(usage: Value) -> Option<Segments> {
    let usage = usage.object().ok()?;
    let prompt = usage.last("prompt_tokens").filter(|tokens| tokens.as_i128().is_some())?;
    let edit = usage.edit().set("total_tokens", prompt).set("completion_tokens", "0");
    Some(edit.remove("completion_tokens_details").finish())
}

/// A line end would end the event's data; in JSON it can only stand between tokens.
fn one_line(json: String) -> String {
    if json.contains(['\n', '\r']) { json.replace(['\n', '\r'], " ") } else { json }
}

/// Adds `"key":json`, with a comma when something is before it.
pub(super) fn member_text(out: &mut String, key: &str, json: &str) {
    if !out.is_empty() {
        out.push(',');
    }
    out.push('"');
    out.push_str(key);
    out.push_str("\":");
    out.push_str(json);
}

/// A member that is not null.
pub(super) fn present(object: &Object, key: &str) -> Option<Value> {
    object.last(key).filter(|value| !value.is_null())
}

/// A member that is a string.
pub(super) fn text(object: &Object, key: &str) -> Option<Value> {
    object.last(key).filter(|value| value.kind() == Kind::String)
}

/// The JSON of a member, or `null`.
pub(super) fn or_null(object: &Object, key: &str) -> String {
    object.last(key).map_or_else(|| "null".to_owned(), |value| value.as_str().to_owned())
}
