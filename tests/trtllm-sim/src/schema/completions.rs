//! The model of `/v1/completions`.

use crate::json::Value;
use crate::release::Generation;
use crate::schema::coerce;
use crate::schema::fields::{Field, Kind, check, must, opt, set};
use crate::schema::report::Report;
use crate::schema::{Endpoint, Fail, params};

const REQUEST: &[Field] = &[
    must("model", Kind::Text),
    must("prompt", Kind::Own(prompt)),
    opt("best_of", Kind::Int),
    opt("echo", Kind::Bool),
    opt("frequency_penalty", Kind::Float),
    opt("logit_bias", Kind::Floats),
    opt("logprobs", Kind::Int).since(Generation::G1),
    opt("max_tokens", Kind::Int),
    set("n", Kind::Int),
    opt("presence_penalty", Kind::Float),
    opt("seed", Kind::Int),
    opt("stop", Kind::Stop),
    opt("stream", Kind::Bool),
    opt("stream_options", Kind::Own(params::stream_options)),
    opt("suffix", Kind::Text),
    opt("temperature", Kind::Float),
    opt("top_p", Kind::Float),
    opt("user", Kind::Text),
    opt("lora_request", Kind::Dict),
    opt("prompt_ignore_length", Kind::Int).since(Generation::G1),
    set("use_beam_search", Kind::Bool),
    set("top_k", Kind::Int),
    set("top_p_min", Kind::Float),
    set("min_p", Kind::Float),
    set("repetition_penalty", Kind::Float),
    opt("length_penalty", Kind::Float),
    opt("early_stopping", Kind::Early),
    opt("stop_token_ids", Kind::Ints),
    set("include_stop_str_in_output", Kind::Bool),
    set("ignore_eos", Kind::Bool),
    set("min_tokens", Kind::Int),
    set("skip_special_tokens", Kind::Bool),
    set("spaces_between_special_tokens", Kind::Bool),
    opt("truncate_prompt_tokens", Kind::Positive),
    set("return_context_logits", Kind::Bool),
    set("detokenize", Kind::Bool),
    opt("thinking_token_budget", Kind::Int).since(Generation::G2Late),
    set("add_special_tokens", Kind::Bool),
    opt("response_format", Kind::Own(params::response_format)),
    opt("disaggregated_params", Kind::Own(params::disaggregated)),
    opt("priority", Kind::Fraction).since(Generation::G4),
    opt("conversation_params", Kind::Own(params::conversation)).since(Generation::G3),
];

/// Checks a body: the validators of the whole body first, then every field.
pub(crate) fn validate(generation: Generation, body: &Value) -> Result<(), Fail> {
    let mut report = Report::new(generation, Endpoint::Completions);
    let truthy = |key| body.get(key).is_some_and(Value::truthy);
    match body.given("logprobs") {
        Some(Value::Int(_) | Value::Float(_) | Value::Bool(_)) | None => {}
        Some(_) if generation < Generation::G1 => {}
        Some(_) => return Err(Fail::Crash("logprobs compared with a number")),
    }
    if truthy("stream_options") && !truthy("stream") {
        report.whole("Stream options can only be defined when stream is true.", body);
    } else if truthy("suffix") {
        report.whole("suffix is not supported", body);
    } else {
        check(REQUEST, body, "'body'", &mut report);
    }
    report.finish()
}

/// A text, texts, token ids, or lists of them; all of one kind.
fn prompt(value: &Value, place: &str, report: &mut Report) {
    let ints = |items: &[Value]| items.iter().all(|item| coerce::int(item).is_ok());
    let fine = match value {
        Value::Str(_) => true,
        Value::Arr(items) => {
            items.iter().all(|item| item.as_str().is_some())
                || ints(items)
                || items.iter().all(|item| item.as_arr().is_some_and(ints))
        }
        _ => false,
    };
    if !fine {
        report.add(
            "string_type",
            place,
            "Input should be a valid string, or a list of strings, of integers or of lists of integers",
            value,
        );
    }
}
