use super::{ClientRequest, ContextReply, Segments};
use crate::{
    json::{Kind, Object, Value},
    trtllm::Delivery,
};

/// Writes the chunks of one stream.
pub(super) struct Frames {
    /// `"id":…,"object":…,"created":…,"model":…`, the same in each.
    head: String,
    out: String,
}

impl Frames {
    pub(super) fn new(request: &ClientRequest, reply: &ContextReply, object: &str) -> Self {
        let member = |key, kind| reply.object().last(key).filter(|value: &Value| value.kind() == kind);
        // Clients' models require these; a worker always sends them.
        let id = member("id", Kind::String);
        let created = member("created", Kind::Number);
        let model = member("model", Kind::String)
            .or_else(|| request.object().last("model").filter(|model| model.kind() == Kind::String));
        let mut head = String::new();
        for (key, value, otherwise) in
            [("id", id, r#""""#), ("created", created, "0"), ("model", model, r#""""#)]
        {
            member_text(&mut head, key, value.as_ref().map_or(otherwise, Value::as_str));
        }
        member_text(&mut head, "object", object);
        Self { head, out: String::new() }
    }

    /// A chunk with one choice; `choice` is the inside of its object, without the index.
    pub(super) fn choice(&mut self, reply: &ContextReply, choice: &str, tail: &str) {
        let index = reply.choice().last("index").filter(|index| index.as_i128().is_some());
        let index = index.as_ref().map_or("0", Value::as_str);
        self.frame(&format!(r#""choices":[{{"index":{index},{choice}}}]{tail}"#));
    }

    /// Ends the stream, with the usage when it was asked for.
    pub(super) fn finish(mut self, request: &ClientRequest, reply: &ContextReply) -> Segments {
        if request.delivery() == (Delivery::Stream { usage: true })
            && let Some(usage) = present(reply.object(), "usage")
        {
            self.frame(&format!(r#""choices":[],"usage":{}"#, usage.as_str()));
        }
        self.out.push_str("data: [DONE]\n\n");
        self.out.into()
    }

    fn frame(&mut self, rest: &str) {
        self.out.push_str("data: {");
        let text = self.head.chars().chain([',']).chain(rest.chars());
        // A line end would end the event's data; in JSON it can only stand between tokens.
        self.out.extend(text.map(|c| if matches!(c, '\n' | '\r') { ' ' } else { c }));
        self.out.push_str("}\n\n");
    }
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

/// A string that is not empty.
pub(super) fn text(object: &Object, key: &str) -> Option<Value> {
    object.last(key).filter(|value| value.kind() == Kind::String && value.as_str() != r#""""#)
}

/// The JSON of a member, or `null`.
pub(super) fn or_null(object: &Object, key: &str) -> String {
    object.last(key).map_or_else(|| "null".to_owned(), |value| value.as_str().to_owned())
}
