//! The validator's report: a list of objections, each with its place and input.

use crate::json::{Value, repr};
use crate::release::Generation;
use crate::schema::{Endpoint, Fail};

/// Once a report is longer than this, further objections are only counted. The
/// real one has no limit; one request body is the most worth quoting.
const MAX_TEXT: usize = 64 << 20;

/// Objections to one body.
#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) generation: Generation,
    endpoint: Endpoint,
    items: Vec<String>,
    /// All objections, and the length of those in the list.
    count: usize,
    length: usize,
}

impl Report {
    pub(crate) fn new(generation: Generation, endpoint: Endpoint) -> Self {
        Self { generation, endpoint, items: Vec::new(), count: 0, length: 0 }
    }

    /// Adds an objection. `place` is a comma list of literals, as in `'body', 'n'`.
    pub(crate) fn add(&mut self, kind: &str, place: &str, message: &str, input: &Value) {
        self.count += 1;
        if self.length > MAX_TEXT {
            return;
        }
        let comma = if place.contains(", ") { "" } else { "," };
        let mut item = format!("{{'type': '{kind}', 'loc': ({place}{comma}), 'msg': ");
        repr(&Value::str(message), &mut item);
        item.push_str(", 'input': ");
        repr(input, &mut item);
        item.push('}');
        self.length += item.len();
        self.items.push(item);
    }

    /// An objection of a validator that looks at the whole body, and quotes it.
    pub(crate) fn whole(&mut self, message: &str, body: &Value) {
        self.add("value_error", "'body'", &format!("Value error, {message}"), body);
    }

    /// A member that the model does not have.
    pub(crate) fn extra(&mut self, place: &str, input: &Value) {
        self.add("extra_forbidden", place, "Extra inputs are not permitted", input);
    }

    /// A member that must be there; what encloses it is quoted.
    pub(crate) fn missing(&mut self, place: &str, enclosing: &Value) {
        self.add("missing", place, "Field required", enclosing);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The 400, when there is anything to object to.
    ///
    /// Older web frameworks print the list; newer ones count, and name the
    /// place in the worker's source and the route. Which release came with
    /// which is an estimate.
    pub(crate) fn finish(self) -> Result<(), Fail> {
        if self.count == 0 {
            return Ok(());
        }
        if self.generation < Generation::G3 {
            return Err(Fail::Schema(format!("[{}]", self.items.join(", "))));
        }
        let count = self.count;
        let plural = if count == 1 { "" } else { "s" };
        let (function, path) = match self.endpoint {
            Endpoint::Chat => ("openai_chat", "/v1/chat/completions"),
            Endpoint::Completions => ("openai_completion", "/v1/completions"),
        };
        Err(Fail::Schema(format!(
            "{count} validation error{plural}:\n  {}\n\n  File \"openai_server.py\", in {function}\n    POST {path}",
            self.items.join("\n  ")
        )))
    }
}
