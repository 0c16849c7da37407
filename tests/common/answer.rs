//! The answer in a reply, put together.

use serde_json::Value;
use trtllm_sim::Expected;

use super::{End, Reply};

/// An answer, streamed or not, chat or completions.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Answer {
    pub text: String,
    pub reasoning: String,
    /// Name and arguments.
    pub tool_calls: Vec<(String, String)>,
    pub finish: String,
    pub stop_reason: Value,
    pub usage: Value,
    /// One for each token.
    pub logprobs: Vec<Value>,
    /// Events that carry a choice; 1 for a whole reply.
    pub chunks: usize,
    /// Whether an event stream ended with `[DONE]`; true for a whole reply.
    pub done: bool,
}

impl Answer {
    #[track_caller]
    pub fn of(reply: &Reply) -> Self {
        assert_eq!((reply.status.as_u16(), reply.end), (200, End::Complete), "{}", reply.text());
        Self::so_far(reply)
    }

    /// The same of a reply that may have been cut.
    #[track_caller]
    pub fn so_far(reply: &Reply) -> Self {
        let mut answer = Self::default();
        if reply.header("content-type").is_some_and(|kind| kind.starts_with("text/event-stream")) {
            let events = reply.events();
            for event in &events {
                assert!(!answer.done, "an event after [DONE]: {event}");
                if event == "[DONE]" {
                    answer.done = true;
                    continue;
                }
                let event: Value = serde_json::from_str(event).unwrap_or_else(|e| panic!("{e}: {event}"));
                answer.add(&event, "delta");
            }
        } else {
            answer.done = true;
            answer.add(&reply.json(), "message");
        }
        answer
    }

    fn add(&mut self, event: &Value, part: &str) {
        if !event["usage"].is_null() {
            self.usage = event["usage"].clone();
        }
        let Some(choice) = event["choices"].get(0) else { return };
        self.chunks += 1;
        let said = &choice[part];
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        self.text += &text(&said["content"]);
        self.text += &text(&choice["text"]);
        self.reasoning += &text(&said["reasoning_content"]);
        for call in said["tool_calls"].as_array().into_iter().flatten() {
            let at = call["index"].as_u64().map_or(self.tool_calls.len(), |at| at as usize);
            if at == self.tool_calls.len() {
                self.tool_calls.push(Default::default());
            }
            self.tool_calls[at].0 += &text(&call["function"]["name"]);
            self.tool_calls[at].1 += &text(&call["function"]["arguments"]);
        }
        if let Some(finish) = choice["finish_reason"].as_str() {
            assert_eq!(self.finish, "", "a second finish reason");
            self.finish = finish.to_owned();
        }
        if !choice["stop_reason"].is_null() {
            self.stop_reason = choice["stop_reason"].clone();
        }
        let logprobs = &choice["logprobs"];
        self.logprobs.extend(logprobs["content"].as_array().into_iter().flatten().cloned());
        for at in 0..logprobs["tokens"].as_array().map_or(0, Vec::len) {
            let lists = ["tokens", "token_logprobs", "top_logprobs", "text_offset"];
            self.logprobs.push(lists.map(|list| logprobs[list][at].clone()).to_vec().into());
        }
    }

    /// That it is this answer, each token once, to the end.
    #[track_caller]
    pub fn is(&self, expected: &Expected) {
        assert_eq!(self.text, expected.text);
        assert_eq!(self.reasoning, expected.reasoning);
        let calls: Vec<_> =
            expected.tool_calls.iter().map(|call| (call.name.clone(), call.arguments.clone())).collect();
        assert_eq!(self.tool_calls, calls);
        assert_eq!(self.finish, expected.finish_reason);
        assert!(self.done, "no [DONE]");
    }
}
