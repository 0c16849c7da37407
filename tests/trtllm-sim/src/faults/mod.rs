//! Faults: how an engine misbehaves on demand.

mod parse;

use crate::answer::{Finish, Plan};
use std::time::Duration;

/// One way to misbehave, for some requests.
///
/// Everything left at its default means "as usual". In JSON (`POST /sim/faults`
/// and the header `x-sim-fault`) the members have the names of the fields here,
/// with `_ms` after those that are durations; `cut` and `hang` are described at
/// [`Cut`] and [`Hang`]. An unknown member is refused.
///
/// ```json
/// {"on": "context", "times": 1, "status": 503, "headers": {"retry-after": "7"}, "body": "busy"}
/// {"on": "generation", "cut": {"at": "body", "after_bytes": 300, "how": "rst"}}
/// {"on": "context", "set": {"/choices/0/finish_reason": null}, "remove": ["/prompt_token_ids"]}
/// {"on": "generation", "before_first_token_ms": 200, "token_gap_ms": 50, "error_after_tokens": 3}
/// ```
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Fault {
    /// Which requests it is for.
    pub on: On,
    /// For how many of them; `None` until cleared. In a header it is always that one request.
    pub times: Option<u32>,
    /// Waits before anything is answered, a fixed status included.
    pub before_head: Duration,
    /// Waits between the head and the first token.
    pub before_first_token: Duration,
    /// The time between tokens, in place of the configured one.
    pub token_gap: Option<Duration>,
    /// Answers with this status and does no work.
    pub status: Option<u16>,
    /// The body of that answer; without it an error object.
    pub body: Option<String>,
    /// Headers added to the answer, whichever it is. `content-type` replaces
    /// the usual one; `content-length` and `transfer-encoding` are left out.
    pub headers: Vec<(String, String)>,
    /// Cuts the connection.
    pub cut: Option<Cut>,
    /// Replaces the body of a reply that is not a stream, after all work is done.
    pub reply: Option<String>,
    /// Members of such a reply that are set: JSON pointer and JSON text.
    pub set: Vec<(String, String)>,
    /// Members of such a reply that are removed, by JSON pointer.
    pub remove: Vec<String>,
    /// Registers the KV under this id and not under that of the request, and says so in the reply.
    pub register_id: Option<i64>,
    /// The answer ends at once: no text, no KV held, `finish_reason` stop. Nothing for `generation_only` requests.
    pub eos: bool,
    /// The text of the answer, spread over its tokens; whatever tokens the answer has otherwise.
    pub say: Option<String>,
    /// The `finish_reason` of an answer that no limit cuts, streamed or not: `stop`, `tool_calls` or
    /// `content_filter`.
    pub finish: Option<String>,
    /// Fails the engine after so many tokens of a stream: chat cuts the body,
    /// completions sends an error frame and `[DONE]`.
    pub error_after_tokens: Option<usize>,
    /// Sends an error frame before that cut on chat too.
    pub error_frame: bool,
    /// Ends the stream without `[DONE]` but with a proper last chunk.
    pub no_done: bool,
    /// Stops answering.
    pub hang: Option<Hang>,
}

/// Which requests a [`Fault`] is for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum On {
    /// Every chat or completions request.
    #[default]
    Any,
    /// Those with `context_only`.
    Context,
    /// Those with `generation_only`.
    Generation,
    /// Those without `disaggregated_params`.
    Aggregated,
    /// `/health`.
    Health,
    /// `/version`.
    Version,
}

/// Where and how a connection is cut: `{"at": "...", "after_bytes": n, "how": "..."}`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cut {
    /// Where.
    pub at: CutAt,
    /// How.
    pub how: CutHow,
}

/// Where a connection is cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CutAt {
    /// `"accept"`: before the request is read, whatever it is.
    Accept,
    /// `"reuse"`: when a request comes on a connection that has served one before.
    Reuse,
    /// `"head"`: after the request was read, before any work.
    Head,
    /// `"body"`: after the work, the head and so many bytes of the body
    /// (`after_bytes`, default 0). A body that is not longer ends as usual.
    Body(u64),
}

/// How a connection is cut.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum CutHow {
    /// `"fin"`: closed in good order, but without the last chunk or the promised length.
    #[default]
    Fin,
    /// `"rst"`: reset.
    Rst,
    /// `"garbage"`: bytes that are no chunk, then closed.
    Garbage,
}

/// How an engine stops answering: `"before_head"`, `"after_head"` or `{"after_tokens": n}`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hang {
    /// Reads the request and says nothing.
    BeforeHead,
    /// Sends the head and says nothing more.
    AfterHead,
    /// Goes silent after so many tokens of a stream.
    AfterTokens(usize),
}

impl Fault {
    /// A fault for the given requests, that does nothing yet.
    #[must_use]
    pub fn on(on: On) -> Self {
        Self { on, ..Self::default() }
    }

    /// Makes of an answer what `say` and `finish` want.
    pub(crate) fn dress(&self, plan: &mut Plan) {
        if let Some(text) = &self.say {
            plan.say(text);
        }
        let finish = self.finish.as_deref().and_then(finish_named);
        plan.finish = finish.filter(|_| plan.finish != Finish::Length).unwrap_or(plan.finish);
    }

    /// Reads faults from JSON: one object, or a list of them.
    ///
    /// # Errors
    ///
    /// Says which member is unknown or has a wrong value.
    pub fn from_json(json: &str) -> Result<Vec<Self>, String> {
        parse::faults(json)
    }
}

/// The faults that hold now.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    list: Vec<Fault>,
}

/// No more faults than this at once.
const MAX_FAULTS: usize = 1_024;

impl Faults {
    pub(crate) fn add(&mut self, fault: Fault) -> Result<(), String> {
        if self.list.len() >= MAX_FAULTS {
            return Err(format!("more than {MAX_FAULTS} faults at once"));
        }
        self.list.push(fault);
        Ok(())
    }

    pub(crate) fn clear(&mut self) {
        self.list.clear();
    }

    pub(crate) fn len(&self) -> usize {
        self.list.len()
    }

    /// The newest fault for this request, used up by one. Faults of a
    /// connection (accept, reuse) are found only with `wanted`.
    pub(crate) fn take(&mut self, wanted: impl Fn(&Fault) -> bool) -> Option<Fault> {
        let at = self.list.iter().rposition(wanted)?;
        let fault = self.list[at].clone();
        match &mut self.list[at].times {
            Some(0 | 1) => {
                self.list.remove(at);
            }
            Some(times) => *times -= 1,
            None => {}
        }
        Some(fault)
    }
}

/// An end that an answer can be given.
fn finish_named(name: &str) -> Option<Finish> {
    [Finish::Stop, Finish::ToolCalls, Finish::ContentFilter].into_iter().find(|finish| finish.name() == name)
}

#[cfg(test)]
mod tests;
