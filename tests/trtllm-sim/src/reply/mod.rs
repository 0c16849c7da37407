//! Replies with the keys and nulls of the worker's generation.

mod chunks;
mod params;
mod whole;

pub(crate) use chunks::{Chunks, DONE};
pub(crate) use params::handoff;
pub(crate) use whole::whole;

#[cfg(test)]
mod tests;

use crate::answer::{Mode, Piece, Plan, StopReason, tokens};
use crate::json::Value;
use crate::release::Generation;
use crate::schema::Ask;
use std::sync::Arc;

/// Everything a reply is made of.
#[derive(Debug, Clone)]
pub(crate) struct Job {
    pub(crate) ask: Ask,
    pub(crate) generation: Generation,
    /// The number in the reply's id.
    pub(crate) number: u64,
    pub(crate) created: u64,
    /// One for each choice, in order.
    pub(crate) plans: Vec<Arc<Plan>>,
    pub(crate) prompt_tokens: i64,
    pub(crate) cached_tokens: i64,
    /// `disaggregated_params` of the choice.
    pub(crate) params: Option<Value>,
    /// Whether the prompt's token ids are in the reply.
    pub(crate) prompt_ids: bool,
    /// The first token was made elsewhere and its log probability is known only by this.
    pub(crate) replayed: Option<Option<f64>>,
}

impl Job {
    fn usage(&self, completion_tokens: usize) -> Value {
        let completion = i64::try_from(completion_tokens).unwrap_or(i64::MAX);
        Value::obj([
            ("prompt_tokens", Value::int(self.prompt_tokens)),
            ("total_tokens", Value::int(self.prompt_tokens.saturating_add(completion))),
            ("completion_tokens", Value::int(completion)),
            ("prompt_tokens_details", Value::obj([("cached_tokens", Value::int(self.cached_tokens))])),
        ])
    }

    /// The tools that are called, in the order of their calls.
    fn tools(&self) -> &[String] {
        match &self.ask.want.mode {
            Mode::Tools(tools) => tools,
            _ => &[],
        }
    }

    /// What `echo` puts in front of a choice.
    fn echo(&self, choice: usize) -> &str {
        let echo = self.ask.echo.get(choice / self.ask.n.max(1));
        echo.map(String::as_str).unwrap_or_default()
    }

    /// The log probability of a token, `None` when it is not known.
    fn logprob(&self, at: usize, piece: &Piece) -> Option<f64> {
        match self.replayed {
            Some(handed) if at == 0 => handed,
            _ => Some(tokens::logprob(piece.id)),
        }
    }

    /// The tokens that could have come instead, likeliest first, itself included.
    fn alternatives(&self, piece: &Piece, logprob: f64) -> Vec<(String, f64)> {
        let count = self.ask.logprobs.unwrap_or(0);
        let mut list = vec![(piece.text.clone(), logprob)];
        list.extend((1..count).map(|n| {
            let n = i32::try_from(n).unwrap_or(i32::MAX);
            (format!("<alt{n}>"), logprob - f64::from(n))
        }));
        list
    }
}

fn stop_reason(plan: &Plan) -> Value {
    match &plan.stop_reason {
        None => Value::Null,
        Some(StopReason::Text(text)) => Value::str(text.as_str()),
        Some(StopReason::Token(id)) => Value::int(*id),
    }
}

fn token_entry(token: &str, logprob: f64) -> Vec<(&'static str, Value)> {
    let bytes = token.bytes().map(Value::int).collect();
    vec![("token", Value::str(token)), ("logprob", Value::Float(logprob)), ("bytes", Value::Arr(bytes))]
}

/// `logprobs` of a chat choice for some of its tokens; null when not asked for.
fn chat_logprobs(job: &Job, from: usize, pieces: &[Piece]) -> Value {
    if job.ask.logprobs.is_none() {
        return Value::Null;
    }
    let known = pieces.iter().enumerate().filter_map(|(at, piece)| {
        let logprob = job.logprob(from + at, piece)?;
        let top = job.alternatives(piece, logprob);
        let top = top.iter().map(|(t, l)| Value::obj(token_entry(t, *l)));
        let mut entry = token_entry(&piece.text, logprob);
        entry.push(("top_logprobs", Value::Arr(top.collect())));
        Some(Value::obj(entry))
    });
    let content: Vec<Value> = known.collect();
    if content.is_empty() {
        return Value::Null;
    }
    Value::obj([("content", Value::Arr(content))])
}

/// `logprobs` of a completions choice for some of its tokens.
fn text_logprobs(job: &Job, from: usize, offset: usize, pieces: &[Piece]) -> Value {
    if job.ask.logprobs.is_none() {
        return Value::Null;
    }
    let (mut offsets, mut logprobs, mut texts, mut tops) = (vec![], vec![], vec![], vec![]);
    let mut offset = offset;
    for (at, piece) in pieces.iter().enumerate() {
        offsets.push(Value::int(offset as u64));
        offset += piece.text.chars().count();
        texts.push(Value::str(piece.text.as_str()));
        match job.logprob(from + at, piece) {
            None => {
                logprobs.push(Value::Null);
                tops.push(Value::Null);
            }
            Some(logprob) => {
                logprobs.push(Value::Float(logprob));
                let top = job.alternatives(piece, logprob);
                tops.push(Value::Obj(top.into_iter().map(|(t, l)| (t, Value::Float(l))).collect()));
            }
        }
    }
    Value::obj([
        ("text_offset", Value::Arr(offsets)),
        ("token_logprobs", Value::Arr(logprobs)),
        ("tokens", Value::Arr(texts)),
        ("top_logprobs", Value::Arr(tops)),
    ])
}
