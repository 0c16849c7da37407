//! The reference answer, for tests to compare with what came out.

use super::{Channel, Mode, StopReason, plan};
use crate::config::DEFAULT_TOKENS;
use crate::json::Value;
use crate::schema::{Ask, Endpoint, ask};

/// The whole answer to a request, from one worker or from two.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Expected {
    /// The content (chat) or the text (completions).
    pub text: String,
    /// The reasoning content; empty when the request does not ask for any.
    pub reasoning: String,
    /// The tool calls.
    pub tool_calls: Vec<ExpectedTool>,
    /// `stop`, `length` or `tool_calls`.
    pub finish_reason: String,
    /// The stop text or the stop token id in digits that ended the answer.
    pub stop_reason: Option<String>,
    /// The token ids of the prompt.
    pub prompt_token_ids: Vec<i64>,
    /// The token ids of the answer.
    pub completion_token_ids: Vec<i64>,
    /// How many tokens the answer has.
    pub completion_tokens: usize,
}

/// A tool call in an answer.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct ExpectedTool {
    /// The name of the tool.
    pub name: String,
    /// Its arguments: the JSON of an object, not closed when the answer was cut by a limit.
    pub arguments: String,
}

/// The answer to a chat or completions request from an engine with the default
/// answer length.
///
/// A request with `messages` is taken for chat. The request is not validated;
/// what cannot be read counts as absent. A completions request with several
/// prompts gets the answer to the first.
#[must_use]
pub fn expected_answer(request: &serde_json::Value) -> Expected {
    expected_answer_of(request, DEFAULT_TOKENS)
}

/// The same from an engine whose natural answer length is `tokens`.
#[must_use]
pub fn expected_answer_of(request: &serde_json::Value, tokens: usize) -> Expected {
    let body = Value::from(request);
    let endpoint = if body.get("messages").is_some() { Endpoint::Chat } else { Endpoint::Completions };
    let Ok(ask) = ask::read(endpoint, &body) else {
        return Expected::default();
    };
    of_ask(&ask, tokens)
}

fn of_ask(ask: &Ask, tokens: usize) -> Expected {
    let Some(prompt) = ask.prompts.first() else {
        return Expected::default();
    };
    let plan = plan(prompt, &ask.want, tokens, &[]);
    let echo = ask.echo.first().map(String::as_str).unwrap_or_default();
    Expected {
        text: format!("{echo}{}", plan.text(Channel::Content)),
        reasoning: plan.text(Channel::Reasoning),
        tool_calls: match &ask.want.mode {
            Mode::Tools(tools) => {
                let calls = plan.calls(tools).into_iter();
                calls.map(|call| ExpectedTool { name: call.name, arguments: call.arguments }).collect()
            }
            _ => Vec::new(),
        },
        finish_reason: plan.finish.name().to_owned(),
        stop_reason: plan.stop_reason.as_ref().map(|reason| match reason {
            StopReason::Text(text) => text.clone(),
            StopReason::Token(id) => id.to_string(),
        }),
        prompt_token_ids: prompt.clone(),
        completion_tokens: plan.pieces.len(),
        completion_token_ids: plan.pieces.iter().map(|piece| piece.id).collect(),
    }
}
