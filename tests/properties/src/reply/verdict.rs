//! What a context reply means (contract, section 3, "What a reply means" and the "Here" below it).

use tower_disagg::trtllm::Endpoint;

use crate::{
    oracle::json::{Json, Kind},
    splitter::is_readable,
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    Due,
    Terminal,
    NotUsable,
    Aborted,
}

pub(super) fn verdict(endpoint: Endpoint, reply: Json<'_>) -> Verdict {
    let Some(choice) = choice(reply) else { return Verdict::NotUsable };
    let Ok(reason) = once(choice, "finish_reason") else { return Verdict::NotUsable };
    match reason {
        Some(reason) if reason.kind() != Kind::String => Verdict::NotUsable,
        Some(reason) => match reason.text().as_deref() {
            Some("stop" | "tool_calls" | "content_filter") => Verdict::Terminal,
            Some("length" | "not_finished") => due(endpoint, reply, choice),
            _ => Verdict::Aborted,
        },
        None => due(endpoint, reply, choice),
    }
}

fn due(endpoint: Endpoint, reply: Json<'_>, choice: Json<'_>) -> Verdict {
    let complete = state(choice).is_ok() && tokens(endpoint, reply).is_ok();
    if complete { Verdict::Due } else { Verdict::NotUsable }
}

/// The only choice of a reply that is no error.
pub(super) fn choice(reply: Json<'_>) -> Option<Json<'_>> {
    let error = || reply.named("error").iter().any(|error| !error.is_null());
    if !is_readable(reply) || error() {
        return None;
    }
    let [choices] = reply.named("choices")[..] else { return None };
    let mut elements = choices.children();
    let choice = elements.next().filter(|_| choices.kind() == Kind::Array)?;
    (elements.next().is_none() && is_readable(choice)).then_some(choice)
}

/// The value of a member that is looked at, when it is there and not null.
fn once<'a>(object: Json<'a>, key: &str) -> Result<Option<Json<'a>>, ()> {
    match object.named(key)[..] {
        [] => Ok(None),
        [value] => Ok(Some(value).filter(|value| !value.is_null())),
        _ => Err(()),
    }
}

fn state(choice: Json<'_>) -> Result<(), ()> {
    let params = once(choice, "disaggregated_params")?.filter(|params| is_readable(*params)).ok_or(())?;
    let keys: Vec<_> = params.children().map(Json::key).collect();
    ensure(keys.iter().all(|key| keys.iter().filter(|other| *other == key).count() == 1))?;
    let id = |id: Json<'_>| ensure(id.integer().is_some_and(|id| u64::try_from(id).is_ok()));
    id(once(params, "ctx_request_id")?.ok_or(())?)?;
    once(params, "disagg_request_id")?.map_or(Ok(()), id)?;
    let first = once(params, "first_gen_tokens")?.ok_or(())?;
    integers(first)?;
    // A minus sign is refused, that of -0 with the others.
    ensure(first.children().all(|token| !token.raw().starts_with('-')))?;
    let mut found = false;
    for key in ["encoded_opaque_state", "ctx_info_endpoint"] {
        let Some(value) = once(params, key)? else { continue };
        ensure(value.kind() == Kind::String)?;
        found |= value.raw() != r#""""#;
    }
    ensure(found)
}

fn tokens(endpoint: Endpoint, reply: Json<'_>) -> Result<(), ()> {
    let ids = once(reply, "prompt_token_ids")?;
    let base64 = once(reply, "prompt_token_ids_b64")?;
    match (endpoint, ids, base64) {
        (Endpoint::Chat, Some(ids), _) => integers(ids),
        (Endpoint::Chat, None, Some(base64)) => {
            ensure(base64.kind() == Kind::String && base64.raw() != r#""""#)
        }
        (Endpoint::Chat, None, None) => Ok(()),
        (Endpoint::Completions, Some(ids), _) => {
            let nested: Vec<_> = ids.children().collect();
            match nested[..] {
                [inner] if inner.kind() == Kind::Array && ids.kind() == Kind::Array => integers(inner),
                _ => integers(ids),
            }
        }
        (Endpoint::Completions, None, _) => Err(()),
    }
}

/// A list of one or more integers of at most 18 digits.
fn integers(list: Json<'_>) -> Result<(), ()> {
    let small = |id: Json<'_>| id.integer().is_some() && id.raw().trim_start_matches('-').len() <= 18;
    ensure(list.kind() == Kind::Array && list.children().next().is_some() && list.children().all(small))
}

fn ensure(holds: bool) -> Result<(), ()> {
    if holds { Ok(()) } else { Err(()) }
}
