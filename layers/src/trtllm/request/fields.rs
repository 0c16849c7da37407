//! What each field of a client's request must be for a handoff. Unknown fields are never looked at.

use super::{Delivery, Endpoint, RequestError, StreamUsage};
use crate::json::{DuplicateKey, Kind, Object, Value};

/// `stream` and `stream_options`.
///
/// A worker takes 1 and "yes" for `true` as well; here only what JSON calls true and false is read, so that proxy and
/// worker can never disagree on it (contract, section 2).
///
/// Options for a stream that was not asked for leave with the context leg, and the generation worker would refuse them:
/// a context step for nothing, and a cache that nobody collects. So they are refused here, as that worker does.
pub(super) fn delivery(endpoint: Endpoint, object: &Object) -> Result<Delivery, RequestError> {
    let stream = flag(object, "stream")?;
    let options = stream_options(object)?;
    if stream {
        return Ok(Delivery::Stream { usage: usage(options.as_ref())? });
    }
    usage(options.as_ref())?;
    match options {
        Some(options) if endpoint == Endpoint::Chat || !options.is_empty() => Err(RequestError::invalid(
            STREAM_OPTIONS,
            "is only for streams; leave it out, or set `stream` to true",
        )),
        _ => Ok(Delivery::Whole),
    }
}

const STREAM_OPTIONS: &str = "stream_options";
const INCLUDE_USAGE: &str = "include_usage";
const CONTINUOUS: &str = "continuous_usage_stats";

fn stream_options(object: &Object) -> Result<Option<Object>, RequestError> {
    let Some(options) = present(object, STREAM_OPTIONS)? else { return Ok(None) };
    if options.kind() != Kind::Object {
        return Err(RequestError::invalid(STREAM_OPTIONS, "must be an object or null"));
    }
    let options = options.object().map_err(|error| RequestError::unreadable(STREAM_OPTIONS, error))?;
    // No worker knows another one, and the context worker does not get to see it.
    if options.members().any(|(key, _)| key != INCLUDE_USAGE && key != CONTINUOUS) {
        let reason = "has a member other than `include_usage` and `continuous_usage_stats`; leave it out";
        return Err(RequestError::invalid(STREAM_OPTIONS, reason));
    }
    Ok(Some(options))
}

/// What `stream_options` asks for. An object asks for the usage unless it says otherwise, and for the usage throughout
/// only together with the usage (contract, section 4).
fn usage(options: Option<&Object>) -> Result<StreamUsage, RequestError> {
    let Some(options) = options else { return Ok(StreamUsage::Never) };
    let asked = |member: (&'static str, &'static str), otherwise| {
        let (key, field) = member;
        match options.get(key).map_err(|_| DuplicateKey(field))? {
            None => Ok(otherwise),
            Some(value) if value.is_null() => Ok(false),
            Some(value) => {
                value.as_bool().ok_or_else(|| RequestError::invalid(field, "must be true, false or null"))
            }
        }
    };
    let included = asked((INCLUDE_USAGE, "stream_options.include_usage"), true)?;
    let throughout = asked((CONTINUOUS, "stream_options.continuous_usage_stats"), false)?;
    Ok(match (included, throughout) {
        (false, _) => StreamUsage::Never,
        (true, false) => StreamUsage::AtEnd,
        (true, true) => StreamUsage::Throughout,
    })
}

/// `n`, `best_of`, `use_beam_search`: one context step is handed to one generation step, so there can be one choice.
pub(super) fn one_choice(object: &Object) -> Result<(), RequestError> {
    one(object, "n")?;
    one(object, "best_of")?;
    if flag(object, "use_beam_search")? {
        return Err(RequestError::unsupported(
            "use_beam_search",
            "cannot be used where context and generation run on different engines; leave it out",
        ));
    }
    Ok(())
}

fn one(object: &Object, field: &'static str) -> Result<(), RequestError> {
    let Some(value) = present(object, field)? else { return Ok(()) };
    // As a double, so that 1.0 and 1e0 count as one; digits beyond a double's are far from one anyway.
    match value.as_f64() {
        Some(1.0) => Ok(()),
        Some(more) if more > 1.0 && more.fract() == 0.0 => Err(RequestError::unsupported(
            field,
            "must be 1 where context and generation run on different engines; send several requests instead",
        )),
        _ => Err(RequestError::invalid(field, "must be a positive whole number or null")),
    }
}

/// `messages` of a chat: a list when it is there. Whether it may be missing is for the worker to say.
pub(super) fn messages(object: &Object) -> Result<(), RequestError> {
    match object.get("messages")? {
        Some(value) if value.kind() != Kind::Array => {
            Err(RequestError::invalid("messages", "must be a list"))
        }
        _ => Ok(()),
    }
}

/// `prompt` of a completion: one text, or the tokens of one text, either of them also as the only element of a list.
pub(super) fn one_prompt(object: &Object) -> Result<(), RequestError> {
    const FIELD: &str = "prompt";
    const SHAPE: &str = "must be a text or a list of token ids";
    let Some(prompt) = object.get(FIELD)? else {
        return Err(RequestError::invalid(FIELD, "is missing"));
    };
    match prompt.kind() {
        Kind::String => return Ok(()),
        Kind::Array => {}
        _ => return Err(RequestError::invalid(FIELD, SHAPE)),
    }
    let (mut first, mut more) = (None, false);
    prompt
        .for_each(|element| {
            more = first.is_some();
            first.get_or_insert(element.kind());
            !more
        })
        .map_err(|error| RequestError::unreadable(FIELD, error))?;
    match first {
        None => Err(RequestError::invalid(FIELD, "must not be an empty list")),
        // Token ids; what is among the later ones is for the worker to judge (it takes `true` for 1).
        Some(Kind::Number | Kind::Bool) => Ok(()),
        Some(Kind::String | Kind::Array) if more => Err(RequestError::unsupported(
            FIELD,
            "must be one prompt where context and generation run on different engines; send one request for each",
        )),
        Some(Kind::String | Kind::Array) => Ok(()),
        Some(Kind::Null | Kind::Object) => Err(RequestError::invalid(FIELD, SHAPE)),
    }
}

/// `echo` of a completion. The generation leg has token ids for a prompt, and a worker cannot echo these.
pub(super) fn no_echo(object: &Object) -> Result<(), RequestError> {
    if flag(object, "echo")? {
        return Err(RequestError::unsupported(
            "echo",
            "cannot be used where context and generation run on different engines; leave it out",
        ));
    }
    Ok(())
}

fn flag(object: &Object, field: &'static str) -> Result<bool, RequestError> {
    match present(object, field)? {
        None => Ok(false),
        Some(value) => {
            value.as_bool().ok_or_else(|| RequestError::invalid(field, "must be true, false or null"))
        }
    }
}

/// The one value of a field, when there is one and it is not `null`.
fn present(object: &Object, field: &'static str) -> Result<Option<Value>, RequestError> {
    Ok(object.get(field)?.filter(|value| !value.is_null()))
}
