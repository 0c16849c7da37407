//! Replies that are not streamed.

use super::{Job, chat_logprobs, stop_reason, text_logprobs};
use crate::answer::{Channel, Plan};
use crate::json::Value;
use crate::release::Generation;
use crate::schema::Endpoint;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// The reply as one object, with every key its generation has.
pub(crate) fn whole(job: &Job) -> Value {
    let chat = job.ask.endpoint == Endpoint::Chat;
    let choices = job.plans.iter().enumerate().map(|(index, plan)| {
        if chat { chat_choice(job, index, plan) } else { text_choice(job, index, plan) }
    });
    let (prefix, object) = if chat { ("chatcmpl", "chat.completion") } else { ("cmpl", "text_completion") };
    let tokens = job.plans.iter().map(|plan| plan.pieces.len()).sum();
    let mut reply = vec![
        ("id", Value::Str(format!("{prefix}-{}", job.number))),
        ("object", Value::str(object)),
        ("created", Value::int(job.created)),
        ("model", Value::str(job.ask.model.as_str())),
        ("choices", Value::Arr(choices.collect())),
        ("usage", job.usage(tokens)),
    ];
    let ids = job.ask.prompts.first().filter(|_| job.prompt_ids);
    let packed =
        chat && job.generation >= Generation::G3 && job.ask.params.as_ref().is_some_and(|p| p.ids_in_base64);
    let list = |ids: &Vec<i64>| Value::ints(ids);
    reply.push(("prompt_token_ids", ids.filter(|_| !packed).map_or(Value::Null, list)));
    if chat && job.generation >= Generation::G3 {
        let buffer = ids.filter(|_| packed).map(|ids| base64_ids(ids));
        reply.push(("prompt_token_ids_b64", buffer.map_or(Value::Null, Value::Str)));
    }
    Value::obj(reply)
}

fn params(job: &Job) -> Value {
    job.params.clone().unwrap_or(Value::Null)
}

fn chat_choice(job: &Job, index: usize, plan: &Plan) -> Value {
    let calls = plan.calls(job.tools()).into_iter().map(|call| {
        let function =
            Value::obj([("name", Value::Str(call.name)), ("arguments", Value::Str(call.arguments))]);
        Value::obj([("id", Value::Str(call.id)), ("type", Value::str("function")), ("function", function)])
    });
    let message = Value::obj([
        ("role", Value::str("assistant")),
        ("content", Value::Str(plan.text(Channel::Content))),
        ("reasoning_content", Value::Str(plan.text(Channel::Reasoning))),
        ("reasoning", Value::Null),
        ("tool_calls", Value::Arr(calls.collect())),
    ]);
    Value::obj([
        ("index", Value::int(index as u64)),
        ("message", message),
        ("logprobs", chat_logprobs(job, 0, &plan.pieces)),
        ("finish_reason", Value::str(plan.finish.name())),
        ("stop_reason", stop_reason(plan)),
        ("mm_embedding_handle", Value::Null),
        ("disaggregated_params", params(job)),
        ("avg_decoded_tokens_per_iter", Value::Null),
    ])
}

fn text_choice(job: &Job, index: usize, plan: &Plan) -> Value {
    let echo = job.echo(index);
    let (text, ids) = if job.ask.detokenize {
        (format!("{echo}{}", plan.text(Channel::Content)), Value::Null)
    } else {
        let ids: Vec<i64> = plan.pieces.iter().map(|piece| piece.id).collect();
        (String::new(), Value::ints(&ids))
    };
    let offset = echo.chars().count();
    Value::obj([
        ("index", Value::int(index as u64)),
        ("text", Value::Str(text)),
        ("token_ids", ids),
        ("logprobs", text_logprobs(job, 0, offset, &plan.pieces)),
        ("context_logits", Value::Null),
        ("finish_reason", Value::str(plan.finish.name())),
        ("stop_reason", stop_reason(plan)),
        ("disaggregated_params", params(job)),
        ("avg_decoded_tokens_per_iter", Value::Null),
    ])
}

/// Token ids as 32-bit integers, least byte first, in base64.
fn base64_ids(ids: &[i64]) -> String {
    let words = ids.iter().map(|id| i32::try_from(*id).unwrap_or(-1));
    let bytes: Vec<u8> = words.flat_map(i32::to_le_bytes).collect();
    STANDARD.encode(bytes)
}
