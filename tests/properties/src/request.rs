//! A client's body: `ClientRequest`, `check_passthrough`, `context_body`.
//!
//! What is taken and what is refused is decided here a second time, from the tables of the contract, section 2.

use bytes::Bytes;
use http::HeaderValue;
use tower_disagg::trtllm::{
    ClientRequest, Delivery, DisaggRequestId, Endpoint, RequestError, RequestErrorKind, StreamUsage,
    check_passthrough, context_body,
};

use crate::{
    oracle::json::{Doc, Json, Kind},
    quote::assert_quotes_nothing,
    splitter::{assert_edited, is_readable},
};

pub(crate) const ENDPOINTS: [Endpoint; 2] = [Endpoint::Chat, Endpoint::Completions];

/// Reads `body` as a request to each endpoint, and as one that passes through.
pub fn request(body: &[u8]) {
    let doc = Doc::parse(body);
    let object = doc.as_ref().map(Doc::root).filter(|root| is_readable(*root));
    let bytes = Bytes::copy_from_slice(body);
    for endpoint in ENDPOINTS {
        let faults =
            object.map_or_else(|| vec![RequestErrorKind::Invalid], |object| faults(endpoint, object));
        match ClientRequest::parse(endpoint, bytes.clone()) {
            Ok(request) => {
                assert_eq!(faults, [], "accepted");
                accepted(&request, body, object.unwrap());
            }
            Err(error) => refused(&error, body, &faults),
        }
    }
    let passing = match object {
        Some(object) => handoff_faults(object),
        // A worker may make something of what cannot be read here; of other JSON it cannot make a request.
        None => match &doc {
            Some(doc) if doc.root().kind() != Kind::Object => Vec::new(),
            None if body.iter().all(|byte| b" \t\r\n".contains(byte)) => Vec::new(),
            _ => vec![RequestErrorKind::Invalid],
        },
    };
    match check_passthrough(None, &bytes) {
        Ok(()) => assert_eq!(passing, [], "passed on"),
        Err(error) => refused(&error, body, &passing),
    }
    let text = HeaderValue::from_static("text/plain");
    check_passthrough(Some(&text), &bytes).expect("what is clearly no JSON passes unread");
}

fn refused(error: &RequestError, body: &[u8], faults: &[RequestErrorKind]) {
    assert!(faults.contains(&error.kind()), "{error}, where there are {faults:?}");
    assert_quotes_nothing(error, body);
}

fn accepted(request: &ClientRequest, body: &[u8], client: Json<'_>) {
    assert_eq!(request.body(), body);
    let truth = |key| client.last(key).is_some_and(|value| value.raw() == "true");
    let options = client.last("stream_options").filter(|options| !options.is_null());
    let asked = |key, otherwise| {
        options.is_some_and(|options| options.last(key).map_or(otherwise, |value| value.raw() == "true"))
    };
    let usage = match (asked("include_usage", true), asked("continuous_usage_stats", false)) {
        (false, _) => StreamUsage::Never,
        (true, false) => StreamUsage::AtEnd,
        (true, true) => StreamUsage::Throughout,
    };
    let delivery = if truth("stream") { Delivery::Stream { usage } } else { Delivery::Whole };
    assert_eq!(request.delivery(), delivery);

    let id = DisaggRequestId::MAX;
    let text = context_body(request, id).to_bytes();
    let doc = Doc::parse(&text).expect("a context request is JSON");
    let params =
        format!(r#"{{"request_type":"context_only","disagg_request_id":{},"schedule_style":0}}"#, id.get());
    let changes =
        [("stream", Some("false")), ("stream_options", None), ("disaggregated_params", Some(&*params))];
    assert_edited(client, doc.root(), &changes);
    let sent = check_passthrough(None, &text).unwrap_err();
    assert_eq!(sent.kind(), RequestErrorKind::HandoffFields, "what the proxy adds, no client may send");
}

// === the tables of the contract ===

const INVALID: RequestErrorKind = RequestErrorKind::Invalid;
const UNSUPPORTED: RequestErrorKind = RequestErrorKind::Unsupported;
const HANDOFF: RequestErrorKind = RequestErrorKind::HandoffFields;

/// Everything that is wrong with a request.
fn faults(endpoint: Endpoint, client: Json<'_>) -> Vec<RequestErrorKind> {
    let mut faults = handoff_faults(client);
    let mut looked_at = vec![
        "disaggregated_params",
        "prompt_token_ids",
        "prompt_token_ids_b64",
        "stream",
        "stream_options",
        "n",
        "best_of",
        "use_beam_search",
    ];
    looked_at.extend(match endpoint {
        Endpoint::Chat => &["messages"][..],
        Endpoint::Completions => &["prompt", "echo"],
    });
    let twice = looked_at.iter().any(|key| client.named(key).len() > 1);
    faults.extend(twice.then_some(INVALID));
    let last = |key: &str| client.last(key);
    let set = |key: &str| last(key).filter(|value| !value.is_null());

    let mut flag = |key: &str, when_true| match set(key).map(Json::raw) {
        None | Some("false") => {}
        Some("true") => faults.extend(when_true),
        Some(_) => faults.push(INVALID),
    };
    flag("stream", None);
    flag("use_beam_search", Some(UNSUPPORTED));
    if endpoint == Endpoint::Completions {
        flag("echo", Some(UNSUPPORTED));
    }
    for key in ["n", "best_of"] {
        let Some(count) = set(key) else { continue };
        let number =
            if count.kind() == Kind::Number { count.raw().parse().unwrap_or(f64::NAN) } else { f64::NAN };
        if number > 1.0 && number.is_finite() && number == number.trunc() {
            faults.push(UNSUPPORTED);
        } else if number != 1.0 {
            faults.push(INVALID);
        }
    }
    if let Some(options) = set("stream_options") {
        let good = |value: &Json<'_>| matches!(value.raw(), "true" | "false" | "null");
        let bad = |key| {
            let values = options.named(key);
            values.len() > 1 || !values.iter().all(good)
        };
        if !is_readable(options) || bad("include_usage") || bad("continuous_usage_stats") {
            faults.push(INVALID);
        }
        let known = options.named("include_usage").len() + options.named("continuous_usage_stats").len();
        if is_readable(options) && options.children().count() != known {
            faults.push(INVALID);
        }
        let empty = options.kind() == Kind::Object && options.children().count() == 0;
        if last("stream").is_none_or(|stream| stream.raw() != "true")
            && !(empty && endpoint == Endpoint::Completions)
        {
            faults.push(INVALID);
        }
    }
    match endpoint {
        Endpoint::Chat => {
            faults.extend(last("messages").filter(|value| value.kind() != Kind::Array).map(|_| INVALID));
        }
        Endpoint::Completions => faults.extend(prompt_fault(last("prompt"))),
    }
    faults
}

fn prompt_fault(prompt: Option<Json<'_>>) -> Option<RequestErrorKind> {
    let Some(prompt) = prompt else { return Some(INVALID) };
    let kinds: Vec<_> = prompt.children().map(Json::kind).collect();
    match (prompt.kind(), &kinds[..]) {
        (Kind::String, _) | (Kind::Array, [Kind::String | Kind::Array] | [Kind::Number | Kind::Bool, ..]) => {
            None
        }
        (Kind::Array, [Kind::String | Kind::Array, ..]) => Some(UNSUPPORTED),
        _ => Some(INVALID),
    }
}

/// What no client may send, with a handoff or without.
fn handoff_faults(client: Json<'_>) -> Vec<RequestErrorKind> {
    let mut faults = Vec::new();
    for member in client.children() {
        let empty = member.kind() == Kind::Object && member.children().count() == 0;
        let affinity = || member.named("subagent_affinity_id").iter().any(|value| !value.is_null());
        let fault = match member.key() {
            Some("disaggregated_params") => (!member.is_null() && !empty).then_some(HANDOFF),
            Some("prompt_token_ids" | "prompt_token_ids_b64" | "injected_chat_template_kwargs") => {
                (!member.is_null()).then_some(HANDOFF)
            }
            Some("conversation_params") if member.kind() != Kind::Object => None,
            Some("conversation_params") if !is_readable(member) => Some(INVALID),
            Some("conversation_params") => affinity().then_some(HANDOFF),
            _ => None,
        };
        faults.extend(fault);
    }
    faults
}
