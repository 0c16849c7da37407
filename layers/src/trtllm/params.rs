//! The `disaggregated_params` of the generation leg, from those of the context reply.

use bytes::Bytes;

use super::{ContextReply, GenerationId, Shape, usage};
use crate::json::{Segments, Value};

/// Members that are ours to say, whatever the reply has.
const OURS: [&str; 4] = ["request_type", "disagg_request_id", "schedule_style", "ctx_usage"];

/// Values from this length on are shared with the reply instead of copied.
const SHARED_FROM: usize = 1024;

/// The reply's object as the generation worker takes it (contract, section 4): null members are left out, since a
/// worker refuses even the name of a member it does not know, and so are members that `shape` excludes; the rest
/// keeps its text.
pub(super) fn generation_params(reply: &ContextReply, id: GenerationId, shape: Shape) -> Segments {
    let mut out = Writer::default();
    out.text.push_str(r#"{"request_type":"generation_only","disagg_request_id":"#);
    out.text.push_str(&id.to_string());
    out.text.push_str(r#","schedule_style":0"#);
    for (key, value) in relayed(reply, shape) {
        out.member(key, value);
    }
    if shape.ctx_usage()
        && let Some(usage) = usage::context_usage(reply)
    {
        out.text.push_str(r#","ctx_usage":"#);
        out.text.push_str(&usage);
    }
    out.text.push('}');
    out.finish()
}

/// The members that are sent as the reply has them; what is signed is taken from here too. No key comes twice: a reply
/// that repeats one is not usable.
pub(super) fn relayed(reply: &ContextReply, shape: Shape) -> impl Iterator<Item = (&str, Value)> {
    let members = reply.params().into_iter().flat_map(|params| params.members());
    members.filter(move |(key, value)| is_relayed(key, value, shape))
}

fn is_relayed(key: &str, value: &Value, shape: Shape) -> bool {
    // The default of a member that older releases do not know.
    let default = key == "return_prompt_token_ids_b64" && value.as_bool() == Some(false);
    !OURS.contains(&key) && !value.is_null() && !default && shape.allows(key, true)
}

/// Gathers small texts, so that a request is not sent as dozens of slices of a few bytes each.
#[derive(Default)]
struct Writer {
    text: String,
    out: Segments,
}

impl Writer {
    fn member(&mut self, key: &str, value: Value) {
        self.text.push(',');
        self.text.push_str(&serde_json::Value::from(key).to_string());
        self.text.push(':');
        if value.bytes().len() < SHARED_FROM {
            self.text.push_str(value.as_str());
        } else {
            self.out.push(Bytes::from(std::mem::take(&mut self.text)));
            self.out.push(value.into_bytes());
        }
    }

    fn finish(mut self) -> Segments {
        self.out.push(Bytes::from(self.text));
        self.out
    }
}
