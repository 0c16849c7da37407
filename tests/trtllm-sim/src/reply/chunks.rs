//! Replies that are streamed: one frame of an event stream at a time.

use super::{Job, chat_logprobs, stop_reason, text_logprobs};
use crate::answer::Channel;
use crate::json::{Value, quote, text};
use crate::release::Generation;
use crate::schema::Endpoint;

/// The last frame of a stream.
pub(crate) const DONE: &str = "data: [DONE]\n\n";

/// Makes the frames of one reply.
pub(crate) struct Chunks<'a> {
    job: &'a Job,
    chat: bool,
    /// Chunks so far, for releases whose id changes with every chunk.
    made: u64,
    /// Tokens sent so far, over all choices.
    sent: usize,
    /// Characters sent of each completions choice.
    offsets: Vec<usize>,
}

impl<'a> Chunks<'a> {
    pub(crate) fn new(job: &'a Job) -> Self {
        Self {
            job,
            chat: job.ask.endpoint == Endpoint::Chat,
            made: 0,
            sent: 0,
            offsets: vec![0; job.plans.len()],
        }
    }

    /// The frames before the first token.
    pub(crate) fn start(&mut self) -> String {
        if !self.chat {
            return String::new();
        }
        let usage = self.job.ask.usage_always.then(|| text(&self.job.usage(0)));
        // This frame alone has a space before its newlines.
        (0..self.job.plans.len())
            .map(|index| {
                let choice = format!("{{\"index\":{index},\"delta\":{{\"role\":\"assistant\"}}}}");
                format!("data: {} \n\n", self.envelope(&choice, usage.as_deref()))
            })
            .collect()
    }

    /// The frame of one token of one choice.
    pub(crate) fn token(&mut self, choice: usize, at: usize) -> String {
        self.sent += 1;
        let usage = self.job.ask.usage_always.then(|| text(&self.job.usage(self.sent)));
        let choice = if self.chat { self.chat_choice(choice, at) } else { self.text_choice(choice, at) };
        format!("data: {}\n\n", self.envelope(&choice, usage.as_deref()))
    }

    /// The usage chunk and the end.
    pub(crate) fn end(&mut self) -> String {
        if !self.job.ask.usage_chunk {
            return DONE.to_owned();
        }
        let usage = text(&self.job.usage(self.sent));
        format!("data: {}\n\n{DONE}", self.envelope("", Some(&usage)))
    }

    /// Sends an error where a token was due.
    pub(crate) fn error(message: &str) -> String {
        let error = Value::obj([
            ("message", Value::str(message)),
            ("type", Value::str("InternalServerError")),
            ("code", Value::int(500)),
            ("param", Value::Null),
        ]);
        format!("data: {}\n\n", text(&Value::obj([("error", error)])))
    }

    fn envelope(&mut self, choices: &str, usage: Option<&str>) -> String {
        let job = self.job;
        let number = if job.generation >= Generation::G4 {
            job.number.to_string()
        } else {
            format!("{}{:06}", job.number, self.made)
        };
        self.made += 1;
        let (prefix, object) =
            if self.chat { ("chatcmpl", "chat.completion.chunk") } else { ("cmpl", "text_completion") };
        let usage = match usage {
            Some(usage) => format!(",\"usage\":{usage}"),
            None if self.chat => String::new(),
            None => ",\"usage\":null".to_owned(),
        };
        format!(
            "{{\"id\":\"{prefix}-{number}\",\"object\":\"{object}\",\"created\":{},\"model\":{},\"choices\":[{choices}]{usage}}}",
            job.created,
            quote(&job.ask.model)
        )
    }

    fn chat_choice(&self, index: usize, at: usize) -> String {
        let plan = &self.job.plans[index];
        let piece = &plan.pieces[at];
        let last = at + 1 == plan.pieces.len();
        // Each chunk has both texts, be they empty.
        let (content, reasoning) = match piece.channel {
            Channel::Content => (piece.text.as_str(), ""),
            Channel::Reasoning => ("", piece.text.as_str()),
            Channel::Tool(_) => ("", ""),
        };
        let mut delta = format!("\"content\":{},\"reasoning_content\":{}", quote(content), quote(reasoning));
        if let Some(part) = plan.call_part(at, self.job.tools()) {
            let head = part.head.as_ref();
            let id = head.map_or_else(String::new, |(id, _)| format!("\"id\":{},", quote(id)));
            let name = head.map_or_else(String::new, |(_, name)| format!("\"name\":{},", quote(name)));
            delta.push_str(&format!(
                ",\"tool_calls\":[{{{id}\"type\":\"function\",\"index\":{},\"function\":{{{name}\"arguments\":{}}}}}]",
                part.index,
                quote(&part.arguments)
            ));
        }
        let mut choice = format!("{{\"index\":{index},\"delta\":{{{delta}}}");
        let logprobs = chat_logprobs(self.job, at, std::slice::from_ref(piece));
        if logprobs != Value::Null {
            choice.push_str(",\"logprobs\":");
            choice.push_str(&text(&logprobs));
        }
        if last {
            choice.push_str(&format!(",\"finish_reason\":\"{}\"", plan.finish.name()));
            let reason = stop_reason(plan);
            if reason != Value::Null {
                choice.push_str(&format!(",\"stop_reason\":{}", text(&reason)));
            }
        }
        choice.push('}');
        choice
    }

    fn text_choice(&mut self, index: usize, at: usize) -> String {
        let plan = &self.job.plans[index];
        let piece = &plan.pieces[at];
        let last = at + 1 == plan.pieces.len();
        let echo = if at == 0 { self.job.echo(index) } else { "" };
        let (said, ids) = if self.job.ask.detokenize {
            (format!("{echo}{}", piece.text), Value::Null)
        } else {
            (String::new(), Value::ints(&[piece.id]))
        };
        let offset = &mut self.offsets[index];
        *offset += echo.chars().count();
        let logprobs = text_logprobs(self.job, at, *offset, std::slice::from_ref(piece));
        *offset += piece.text.chars().count();
        let (finish, stop) = if last {
            (Value::str(plan.finish.name()), stop_reason(plan))
        } else {
            (Value::Null, Value::Null)
        };
        text(&Value::obj([
            ("index", Value::int(index as u64)),
            ("text", Value::Str(said)),
            ("token_ids", ids),
            ("logprobs", logprobs),
            ("finish_reason", finish),
            ("stop_reason", stop),
            ("avg_decoded_tokens_per_iter", Value::Null),
        ]))
    }
}
