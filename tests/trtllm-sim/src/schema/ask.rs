//! What the engine needs of a validated body.

use crate::answer::{Mode, Want, tokens};
use crate::conversation;
use crate::json::Value;
use crate::schema::{Fail, coerce};

/// Which of the two endpoints.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Endpoint {
    Chat,
    Completions,
}

/// The part of a request that this worker is to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RequestType {
    Context,
    Generation,
    /// Everything, as without `disaggregated_params`.
    Both,
}

/// A request, read.
#[derive(Debug, Clone)]
pub(crate) struct Ask {
    pub(crate) endpoint: Endpoint,
    pub(crate) model: String,
    pub(crate) stream: bool,
    /// A usage chunk at the end of the stream.
    pub(crate) usage_chunk: bool,
    /// Usage in every chunk, besides that chunk.
    pub(crate) usage_always: bool,
    /// How many answers to each prompt.
    pub(crate) n: usize,
    /// Token ids of each prompt; chat has one.
    pub(crate) prompts: Vec<Vec<i64>>,
    /// The text in front of an answer with `echo`, for each prompt.
    pub(crate) echo: Vec<String>,
    pub(crate) want: Want,
    /// Log probabilities: how many alternatives, `None` when not asked for.
    pub(crate) logprobs: Option<usize>,
    /// Whether tokens become text (completions only).
    pub(crate) detokenize: bool,
    pub(crate) params: Option<Params>,
    /// The conversation that the body names.
    pub(crate) conversation: Option<String>,
}

/// `disaggregated_params`, read.
#[derive(Debug, Clone)]
pub(crate) struct Params {
    pub(crate) request_type: RequestType,
    pub(crate) first_gen_tokens: Vec<i64>,
    /// `None` when the log probability of the first token was not handed over.
    pub(crate) first_gen_log_probs: Option<Vec<f64>>,
    pub(crate) ctx_request_id: Option<i64>,
    pub(crate) disagg_request_id: Option<i64>,
    pub(crate) opaque_state: Option<Vec<u8>>,
    pub(crate) ctx_info_endpoint: Option<String>,
    pub(crate) schedule_style: Option<i64>,
    pub(crate) ctx_usage: Option<(i64, i64)>,
    pub(crate) ids_in_base64: bool,
    /// The object as it came, for the reply to echo and the signature to cover.
    pub(crate) raw: Value,
}

/// Most answers to one prompt, and most prompts of one request.
const MAX_CHOICES: usize = 64;
const MAX_PROMPTS: usize = 1_024;
/// Most tool calls in one answer.
const MAX_CALLS: usize = 128;

/// Reads a body that passed the validator.
pub(crate) fn read(endpoint: Endpoint, body: &Value) -> Result<Ask, Fail> {
    let flag = |key| body.given(key).is_some_and(|v| coerce::boolean(v) == Ok(true));
    let number = |key| body.given(key).and_then(|v| coerce::int(v).ok());
    let stream = flag("stream");
    let options = body.given("stream_options").filter(|_| stream);
    let option = |key, default| match options.and_then(|o| o.get(key)) {
        None => default,
        Some(value) => coerce::boolean(value) == Ok(true),
    };
    let params = match body.given("disaggregated_params") {
        Some(raw) => Some(params(raw)?),
        None => None,
    };
    let echo_asked = endpoint == Endpoint::Completions && flag("echo");
    let (prompts, echo) = match endpoint {
        Endpoint::Chat => (vec![chat_prompt(body)?], Vec::new()),
        Endpoint::Completions => completion_prompts(body, echo_asked)?,
    };
    let logprobs = match endpoint {
        Endpoint::Chat => flag("logprobs").then(|| number("top_logprobs").unwrap_or(0).max(1)),
        Endpoint::Completions => number("logprobs").filter(|n| *n > 0),
    };
    if prompts.len() > MAX_PROMPTS {
        return Err(Fail::Engine(format!("more than {MAX_PROMPTS} prompts")));
    }
    let n = number("n").unwrap_or(1).clamp(1, MAX_CHOICES as i128);
    let n = usize::try_from(n).unwrap_or(1);
    let answers = n * prompts.len();
    let usage = options.is_some() && option("include_usage", true);
    Ok(Ask {
        endpoint,
        model: text(body, "model").unwrap_or_default().to_owned(),
        stream,
        usage_chunk: usage,
        usage_always: usage && option("continuous_usage_stats", false),
        n,
        prompts,
        echo,
        want: Want { answers, ..want(endpoint, body) },
        logprobs: logprobs.map(|n| usize::try_from(n.min(20)).unwrap_or(1)),
        detokenize: endpoint == Endpoint::Chat || body.get("detokenize").is_none() || flag("detokenize"),
        params,
        conversation: conversation::in_body(body),
    })
}

fn text<'a>(body: &'a Value, key: &str) -> Option<&'a str> {
    body.get(key).and_then(Value::as_str)
}

fn small(value: &Value) -> i64 {
    let number = coerce::int(value).unwrap_or_default();
    i64::try_from(number).unwrap_or(if number < 0 { i64::MIN } else { i64::MAX })
}

fn ints(value: &Value) -> Vec<i64> {
    value.as_arr().unwrap_or_default().iter().map(small).collect()
}

/// What shapes the answer, apart from the prompt.
fn want(endpoint: Endpoint, body: &Value) -> Want {
    let flag = |key| body.given(key).is_some_and(|v| coerce::boolean(v) == Ok(true));
    let count = |key| {
        let value = body.given(key).and_then(|v| coerce::int(v).ok())?;
        Some(usize::try_from(value.clamp(0, i128::from(u32::MAX))).unwrap_or_default())
    };
    let stop = match body.given("stop") {
        Some(Value::Str(one)) => vec![one.clone()],
        Some(Value::Arr(items)) => items.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
        _ => Vec::new(),
    };
    let max = match endpoint {
        Endpoint::Chat => count("max_completion_tokens").or_else(|| count("max_tokens")),
        Endpoint::Completions => count("max_tokens"),
    };
    Want {
        // Zero and less are taken by the schema; the engine makes one token all the same.
        max_tokens: max.map(|max| max.max(1)),
        min_tokens: count("min_tokens").unwrap_or(0),
        ignore_eos: flag("ignore_eos"),
        stop: stop.into_iter().filter(|s| !s.is_empty()).collect(),
        stop_token_ids: body.given("stop_token_ids").map(ints).unwrap_or_default(),
        include_stop: flag("include_stop_str_in_output"),
        mode: match endpoint {
            Endpoint::Chat => chat_mode(body),
            Endpoint::Completions => Mode::Text,
        },
        answers: 1,
    }
}

/// Tool call before reasoning before plain text; see the crate documentation.
fn chat_mode(body: &Value) -> Mode {
    if let Some(names) = called_tools(body) {
        return Mode::Tools(names);
    }
    let template =
        body.get("chat_template_kwargs").and_then(|kwargs| kwargs.get("enable_thinking")).map(Value::truthy);
    let thinking = body
        .given("thinking")
        .map(|thinking| thinking.get("type").and_then(Value::as_str) != Some("disabled"));
    let effort = text(body, "reasoning_effort").map(|effort| effort != "none");
    if template.or(thinking).or(effort).unwrap_or(false) { Mode::Reasoning } else { Mode::Text }
}

fn called_tools(body: &Value) -> Option<Vec<String>> {
    let names: Vec<&str> = body
        .get("tools")
        .and_then(Value::as_arr)?
        .iter()
        .filter_map(|tool| tool.get("function")?.get("name")?.as_str())
        .collect();
    let first = names.first()?;
    let named = match body.given("tool_choice") {
        Some(Value::Str(word)) if word == "none" => return None,
        Some(Value::Str(word)) if word == "required" => return Some(vec![(*first).to_owned()]),
        Some(choice @ Value::Obj(_)) => choice.get("function")?.get("name")?.as_str(),
        _ => None,
    };
    if let Some(name) = named {
        return Some(vec![name.to_owned()]);
    }
    let last = body.get("messages").and_then(Value::as_arr)?.last()?;
    let content = tokens::content_text(last.get("content")?);
    let calls = content.split(tokens::TOOL_MARK).skip(1).take(MAX_CALLS).map(|asked| {
        let asked = asked.strip_prefix(':').unwrap_or_default();
        let wanted = names.iter().filter(|name| asked.starts_with(**name)).max_by_key(|name| name.len());
        (*wanted.unwrap_or(first)).to_owned()
    });
    Some(calls.collect()).filter(|calls: &Vec<String>| !calls.is_empty())
}

fn chat_prompt(body: &Value) -> Result<Vec<i64>, Fail> {
    if let Some(encoded) = text(body, "prompt_token_ids_b64") {
        let bytes = coerce::base64(encoded);
        let (words, rest) = bytes.as_deref().unwrap_or(&[0]).as_chunks::<4>();
        if !rest.is_empty() || words.is_empty() {
            return Err(Fail::Engine("prompt_token_ids_b64 is not a buffer of 32-bit integers".into()));
        }
        return Ok(words.iter().map(|w| i64::from(i32::from_le_bytes(*w))).collect());
    }
    if let Some(ids) = body.given("prompt_token_ids").map(ints) {
        if ids.is_empty() {
            return Err(Fail::Engine("prompt_token_ids is empty".into()));
        }
        return Ok(ids);
    }
    let messages = body.get("messages").and_then(Value::as_arr);
    Ok(tokens::of_messages(messages.unwrap_or_default()))
}

/// The token ids of each prompt, and what `echo` puts before each answer.
fn completion_prompts(body: &Value, echo: bool) -> Result<(Vec<Vec<i64>>, Vec<String>), Fail> {
    let prompt = body.get("prompt").unwrap_or(&Value::Null);
    let texts: Vec<&str> = match prompt {
        Value::Str(one) => vec![one],
        Value::Arr(items) => items.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    };
    if !texts.is_empty() {
        let prompts = texts.iter().map(|text| tokens::of_prompt(text)).collect();
        let echoed = texts.iter().filter(|_| echo).map(|t| (*t).to_owned());
        return Ok((prompts, echoed.collect()));
    }
    if echo {
        return Err(Fail::Engine("echo is not possible with token ids".into()));
    }
    let items = prompt.as_arr().unwrap_or_default();
    if items.is_empty() {
        return Err(Fail::Engine("prompt is empty".into()));
    }
    if items.iter().all(|item| item.as_arr().is_some()) {
        return Ok((items.iter().map(ints).collect(), Vec::new()));
    }
    Ok((vec![items.iter().map(small).collect()], Vec::new()))
}

fn params(raw: &Value) -> Result<Params, Fail> {
    let request_type = match text(raw, "request_type") {
        Some("context_only") => RequestType::Context,
        Some("generation_only") => RequestType::Generation,
        Some("context_and_generation") => RequestType::Both,
        _ => {
            return Err(Fail::Engine(
                "Invalid request_type: it must be context_only, generation_only or context_and_generation"
                    .into(),
            ));
        }
    };
    let opaque_state = match text(raw, "encoded_opaque_state") {
        None => None,
        Some(encoded) => {
            Some(coerce::base64(encoded).ok_or_else(|| Fail::Engine("Incorrect padding".into()))?)
        }
    };
    let first_gen_log_probs = match raw.given("first_gen_log_probs").and_then(Value::as_arr) {
        None => None,
        Some(items) => Some(
            items
                .iter()
                .map(|item| match item {
                    Value::Int(_) | Value::Float(_) => coerce::float(item).ok(),
                    _ => None,
                })
                .collect::<Option<Vec<f64>>>()
                .ok_or_else(|| Fail::Engine("first_gen_log_probs is not a list of numbers".into()))?,
        ),
    };
    let usage = raw.given("ctx_usage");
    let usage_number = |value: Option<&Value>| value.map_or(0, small);
    Ok(Params {
        request_type,
        first_gen_tokens: raw.given("first_gen_tokens").map(ints).unwrap_or_default(),
        first_gen_log_probs,
        ctx_request_id: id(raw, "ctx_request_id")?,
        disagg_request_id: id(raw, "disagg_request_id")?,
        opaque_state,
        ctx_info_endpoint: text(raw, "ctx_info_endpoint").map(str::to_owned),
        schedule_style: raw.given("schedule_style").map(small),
        ctx_usage: usage.map(|usage| {
            let details = usage.given("prompt_tokens_details");
            (
                usage_number(usage.get("prompt_tokens")),
                usage_number(details.and_then(|d| d.get("cached_tokens"))),
            )
        }),
        ids_in_base64: raw.get("return_prompt_token_ids_b64").is_some_and(|v| coerce::boolean(v) == Ok(true)),
        raw: raw.clone(),
    })
}

/// An id, which the engine below the schema holds in 64 bits. What it does with
/// others is unknown, so they fail loudly.
fn id(raw: &Value, key: &str) -> Result<Option<i64>, Fail> {
    let Some(value) = raw.given(key) else {
        return Ok(None);
    };
    match coerce::int(value).map(i64::try_from) {
        Ok(Ok(id @ 0..)) => Ok(Some(id)),
        _ => Err(Fail::Engine(format!("{key} does not fit a non-negative 64-bit integer"))),
    }
}
