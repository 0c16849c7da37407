//! The model of `/v1/chat/completions`.

use crate::json::Value;
use crate::release::Generation;
use crate::schema::fields::{Field, Kind, check, must, opt, set};
use crate::schema::report::Report;
use crate::schema::{Endpoint, Fail, params};

const REQUEST: &[Field] = &[
    must("messages", Kind::Own(messages)),
    opt("prompt_token_ids", Kind::Ints),
    opt("prompt_token_ids_b64", Kind::Text).since(Generation::G3),
    must("model", Kind::Text),
    opt("frequency_penalty", Kind::Float),
    opt("logit_bias", Kind::Floats),
    opt("logprobs", Kind::Bool),
    opt("top_logprobs", Kind::Int),
    opt("max_tokens", Kind::Int),
    opt("max_completion_tokens", Kind::Int),
    set("n", Kind::Int),
    opt("presence_penalty", Kind::Float),
    opt("response_format", Kind::Own(params::response_format)),
    opt("seed", Kind::Int),
    opt("stop", Kind::Stop),
    opt("stream", Kind::Bool),
    opt("stream_options", Kind::Own(params::stream_options)),
    opt("temperature", Kind::Float),
    opt("top_p", Kind::Float),
    opt("tools", Kind::Own(tools)),
    opt("tool_choice", Kind::Own(tool_choice)),
    opt("parallel_tool_calls", Kind::Bool).since(Generation::G4n),
    opt("user", Kind::Text),
    opt("reasoning_effort", Kind::Own(effort)),
    opt("thinking", Kind::Own(thinking)).since(Generation::G4),
    opt("thinking_token_budget", Kind::Int).since(Generation::G2Late),
    opt("prompt_ignore_length", Kind::Int).since(Generation::G1),
    opt("best_of", Kind::Int),
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
    opt("lora_request", Kind::Dict),
    set("echo", Kind::Bool),
    set("add_generation_prompt", Kind::Bool),
    set("add_special_tokens", Kind::Bool),
    opt("documents", Kind::Documents),
    opt("chat_template", Kind::Text),
    opt("chat_template_kwargs", Kind::Dict),
    opt("injected_chat_template_kwargs", Kind::Texts).since(Generation::G4n),
    opt("media_io_kwargs", Kind::Media).since(Generation::G2Late),
    opt("disaggregated_params", Kind::Own(params::disaggregated)),
    opt("conversation_params", Kind::Own(params::conversation)).since(Generation::G3),
    opt("cache_salt", Kind::Salt),
    opt("priority", Kind::Fraction).since(Generation::G4),
    opt("agent_hierarchy", Kind::Any).since(Generation::G2Late),
    opt("mm_processor_kwargs", Kind::Dict).since(Generation::G3),
];

const TOOL: &[Field] = &[set("type", Kind::Word(&["function"])), must("function", Kind::Own(function))];

const FUNCTION: &[Field] = &[
    must("name", Kind::Text),
    opt("description", Kind::Text),
    opt("parameters", Kind::Dict),
    opt("strict", Kind::Bool).since(Generation::G2Late),
];

const NAMED_TOOL: &[Field] =
    &[must("function", Kind::Own(named_function)), set("type", Kind::Word(&["function"]))];

const NAMED_FUNCTION: &[Field] = &[must("name", Kind::Text)];

const THINKING: &[Field] = &[
    set("type", Kind::Word(&["enabled", "disabled"])),
    opt("keep", Kind::Word(&["all"])),
    opt("effort", Kind::Word(&["low", "high", "max"])),
];

/// What G0 knows of a message; later everything else is let through.
const MESSAGE_KEYS: &[&str] = &[
    "role",
    "content",
    "name",
    "refusal",
    "audio",
    "function_call",
    "tool_calls",
    "tool_call_id",
    "reasoning",
    "reasoning_content",
];

/// From G4n on one tool may list so many enum values in its schema, and no more.
const MAX_ENUM_VALUES: usize = 1_000;

/// Checks a body: the validators of the whole body first, then every field.
pub(crate) fn validate(generation: Generation, body: &Value) -> Result<(), Fail> {
    let mut report = Report::new(generation, Endpoint::Chat);
    whole_body(generation, body, &mut report)?;
    if report.is_empty() {
        check(REQUEST, body, "'body'", &mut report);
        // One field with two names: the second name counts as unknown.
        if let (Some(_), Some(second)) = (body.get("max_tokens"), body.get("max_completion_tokens")) {
            report.extra("'body', 'max_completion_tokens'", second);
        }
    }
    report.finish()
}

fn whole_body(generation: Generation, body: &Value, report: &mut Report) -> Result<(), Fail> {
    let truthy = |key| body.get(key).is_some_and(Value::truthy);
    if body.given("stream_options").is_some() && !truthy("stream") {
        report.whole("stream_options can only be set if stream is true", body);
        return Ok(());
    }
    if let Some(choice) = body.get("tool_choice") {
        let free = match choice.as_str() {
            Some("none") => true,
            Some("auto") => generation >= Generation::G4,
            _ => false,
        };
        let declared = if generation >= Generation::G4 {
            truthy("tools") || (choice.as_str() == Some("required") && dynamic_tools(body))
        } else {
            body.given("tools").is_some()
        };
        if !free && !declared {
            report.whole("When using `tool_choice`, `tools` must be set.", body);
            return Ok(());
        }
    }
    if generation >= Generation::G4 && message_tools(body, false) {
        report.whole("Message-level `tools` are only allowed on system messages.", body);
        return Ok(());
    }
    if let Some(top) = body.given("top_logprobs") {
        if !matches!(top, Value::Int(_) | Value::Float(_) | Value::Bool(_)) {
            return Err(Fail::Crash("top_logprobs compared with a number"));
        }
        if !truthy("logprobs") {
            report.whole("logprobs must be true when using top_logprobs", body);
            return Ok(());
        }
    }
    if truthy("suffix") {
        report.whole("suffix is not supported", body);
    }
    Ok(())
}

fn dynamic_tools(body: &Value) -> bool {
    message_tools(body, true)
}

/// Whether a message of the system (or of anyone else) declares tools.
fn message_tools(body: &Value, system: bool) -> bool {
    let messages = body.get("messages").and_then(Value::as_arr);
    messages.unwrap_or_default().iter().any(|message| {
        let of_system = message.get("role").and_then(Value::as_str) == Some("system");
        of_system == system
            && if system {
                message.get("tools").is_some_and(Value::truthy)
            } else {
                message.given("tools").is_some()
            }
    })
}

fn messages(value: &Value, place: &str, report: &mut Report) {
    let Some(messages) = value.as_arr() else {
        report.add("list_type", place, "Input should be a valid list", value);
        return;
    };
    for (at, one) in messages.iter().enumerate() {
        message(one, &format!("{place}, {at}"), report);
    }
}

fn message(message: &Value, place: &str, report: &mut Report) {
    let Value::Obj(members) = message else {
        report.add("dict_type", place, "Input should be a valid dictionary", message);
        return;
    };
    let role = message.get("role").map(Value::as_str);
    match role {
        None => report.missing(&format!("{place}, 'role'"), message),
        Some(None) => {
            report.add("string_type", &format!("{place}, 'role'"), "Input should be a valid string", message)
        }
        Some(Some(_)) => {}
    }
    let content_place = format!("{place}, 'content'");
    match message.get("content") {
        None | Some(Value::Str(_)) => {}
        Some(Value::Null) => {
            if report.generation < Generation::G2Late && role != Some(Some("assistant")) {
                report.add("string_type", &content_place, "Input should be a valid string", &Value::Null);
            }
        }
        Some(Value::Arr(parts)) => {
            for (at, part) in parts.iter().enumerate() {
                let typed = part.get("type").is_some_and(|kind| kind.as_str().is_some());
                if !typed && part.as_str().is_none() {
                    report.missing(&format!("{content_place}, {at}, 'type'"), part);
                }
            }
        }
        Some(other) => report.add("string_type", &content_place, "Input should be a valid string", other),
    }
    if report.generation < Generation::G1 {
        for (name, member) in members {
            if !MESSAGE_KEYS.contains(&name.as_str()) {
                report.extra(&format!("{place}, '{name}'"), member);
            }
        }
    }
}

fn tools(value: &Value, place: &str, report: &mut Report) {
    let Some(tools) = value.as_arr() else {
        report.add("list_type", place, "Input should be a valid list", value);
        return;
    };
    for (at, tool) in tools.iter().enumerate() {
        check(TOOL, tool, &format!("{place}, {at}"), report);
    }
}

fn function(value: &Value, place: &str, report: &mut Report) {
    check(FUNCTION, value, place, report);
    if report.generation >= Generation::G4n
        && let Some(parameters) = value.get("parameters")
        && enum_values(parameters) > MAX_ENUM_VALUES
    {
        report.add(
            "value_error",
            place,
            "Value error, too many enum values across the parameters schema",
            value,
        );
    }
}

/// How many enum values a schema lists; names and sample data do not count.
fn enum_values(schema: &Value) -> usize {
    let mut count = 0;
    // The flag says that the value maps names to schemas.
    let mut todo = vec![(schema, false)];
    while let Some((schema, names)) = todo.pop() {
        match schema {
            Value::Arr(items) => todo.extend(items.iter().map(|item| (item, false))),
            Value::Obj(members) => {
                for (key, value) in members {
                    match (key.as_str(), value) {
                        _ if names => todo.push((value, false)),
                        ("enum", Value::Arr(values)) => count += values.len(),
                        ("default" | "const" | "examples", _) => {}
                        (
                            "properties" | "patternProperties" | "$defs" | "definitions" | "dependentSchemas",
                            Value::Obj(_),
                        ) => todo.push((value, true)),
                        _ => todo.push((value, false)),
                    }
                }
            }
            _ => {}
        }
    }
    count
}

fn tool_choice(value: &Value, place: &str, report: &mut Report) {
    match value {
        Value::Str(word) => {
            let known = match word.as_str() {
                "none" | "auto" => true,
                "required" => report.generation >= Generation::G4,
                _ => false,
            };
            if !known {
                report.add("literal_error", place, "Input should be 'none' or 'auto'", value);
            }
        }
        object => check(NAMED_TOOL, object, place, report),
    }
}

fn named_function(value: &Value, place: &str, report: &mut Report) {
    check(NAMED_FUNCTION, value, place, report);
}

fn effort(value: &Value, place: &str, report: &mut Report) {
    let known = match value.as_str() {
        Some("low" | "medium" | "high") => true,
        Some("none" | "max") => report.generation >= Generation::G4,
        _ => false,
    };
    if !known {
        report.add("literal_error", place, "Input should be 'low', 'medium' or 'high'", value);
    }
}

fn thinking(value: &Value, place: &str, report: &mut Report) {
    check(THINKING, value, place, report);
}
