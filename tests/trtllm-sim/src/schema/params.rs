//! The nested models that both endpoints share.

use crate::json::Value;
use crate::release::Generation;
use crate::schema::coerce;
use crate::schema::fields::{Field, Kind, check, must, opt, set};
use crate::schema::report::Report;

/// `disaggregated_params`, in the order in which replies dump it.
pub(crate) const DISAGGREGATED: &[Field] = &[
    must("request_type", Kind::Text),
    opt("first_gen_tokens", Kind::Ints),
    opt("first_gen_log_probs", Kind::List).since(Generation::G2Early),
    opt("first_gen_logits", Kind::List).since(Generation::G2Early),
    opt("ctx_request_id", Kind::Int),
    opt("encoded_opaque_state", Kind::Text),
    opt("draft_tokens", Kind::Ints),
    opt("disagg_request_id", Kind::Int).since(Generation::G1),
    opt("ctx_dp_rank", Kind::Int).since(Generation::G1),
    opt("ctx_info_endpoint", Kind::Text).since(Generation::G1),
    opt("schedule_style", Kind::Own(schedule_style)).since(Generation::G1),
    opt("conversation_id", Kind::Text).since(Generation::G2Early).until(Generation::G3),
    opt("ctx_usage", Kind::Own(usage)).since(Generation::G2Late),
    set("return_prompt_token_ids_b64", Kind::Bool).since(Generation::G3),
    opt("resolved_thinking", Kind::Bool).since(Generation::G4),
];

const USAGE: &[Field] = &[
    set("prompt_tokens", Kind::Int),
    set("total_tokens", Kind::Int),
    opt("completion_tokens", Kind::Int),
    opt("prompt_tokens_details", Kind::Own(usage_details)),
];

const USAGE_DETAILS: &[Field] = &[set("cached_tokens", Kind::Int)];

const STREAM_OPTIONS: &[Field] =
    &[opt("include_usage", Kind::Bool), opt("continuous_usage_stats", Kind::Bool)];

const CONVERSATION: &[Field] = &[
    must("conversation_id", Kind::Own(conversation_id)),
    opt("subagent_affinity_id", Kind::Text).since(Generation::G4n),
];

const FORMATS: &[&str] = &["text", "json", "json_schema", "json_object", "regex", "ebnf", "structural_tag"];

const RESPONSE_FORMAT: &[Field] = &[
    must("type", Kind::Word(FORMATS)),
    opt("schema", Kind::Dict),
    opt("json_schema", Kind::Dict).since(Generation::G1),
    opt("regex", Kind::Text),
    opt("ebnf", Kind::Text),
    opt("format", Kind::Dict),
];

pub(crate) fn disaggregated(value: &Value, place: &str, report: &mut Report) {
    check(DISAGGREGATED, value, place, report);
}

pub(crate) fn stream_options(value: &Value, place: &str, report: &mut Report) {
    check(STREAM_OPTIONS, value, place, report);
}

pub(crate) fn conversation(value: &Value, place: &str, report: &mut Report) {
    check(CONVERSATION, value, place, report);
}

pub(crate) fn response_format(value: &Value, place: &str, report: &mut Report) {
    check(RESPONSE_FORMAT, value, place, report);
}

fn usage(value: &Value, place: &str, report: &mut Report) {
    check(USAGE, value, place, report);
}

fn usage_details(value: &Value, place: &str, report: &mut Report) {
    check(USAGE_DETAILS, value, place, report);
}

/// 0 is context first, 1 is generation first; names are not taken.
fn schedule_style(value: &Value, place: &str, report: &mut Report) {
    if !matches!(coerce::int(value), Ok(0 | 1)) {
        report.add("enum", place, "Input should be 0 or 1", value);
    }
}

/// Turned into a text whatever it is, then it must say something.
fn conversation_id(value: &Value, place: &str, report: &mut Report) {
    let empty = match value {
        Value::Null => true,
        Value::Obj(members) => members.is_empty(),
        Value::Str(text) => text.trim().is_empty(),
        _ => false,
    };
    if empty {
        report.add("value_error", place, "Value error, conversation_id must be non-empty", value);
    }
}
