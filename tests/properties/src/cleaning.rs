//! What of a worker's reply may reach a client: `clean_generation_reply` and `worker_message`, and the layer that uses
//! the former; also the reply to `GET /version`, which comes from a worker, too.
//!
//! Cleaned is a reply that the splitter takes for an object, of `prompt_token_ids` and `prompt_token_ids_b64`, and of
//! `disaggregated_params` in each element of `choices` that the splitter takes for one; repeated members included. Of
//! several `choices` the last one stays. All other bytes stay as they are.

use std::sync::OnceLock;

use bytes::Bytes;
use http::StatusCode;
use tower_disagg::{
    error::GenerationErrorKind,
    trtllm::{
        ContextReply, Endpoint, MAX_MESSAGE, Release, carries_state, clean_generation_reply, may_carry_state,
        worker_message,
    },
};

use crate::{
    leg::{Answer, Seen, relay},
    oracle::json::{Doc, Json, Kind},
    splitter::{assert_edited, is_readable},
};

/// Reads `body` as a generation worker's reply, as its refusal, and as the reply to `GET /version`.
pub fn cleaning(body: &[u8]) {
    let cleaned = clean_generation_reply(Bytes::copy_from_slice(body)).to_bytes();
    match Doc::parse(body) {
        Some(doc) if is_readable(doc.root()) => assert_clean(doc.root(), &cleaned),
        _ => assert_eq!(cleaned, body, "what cannot be read stays as it is"),
    }
    assert_eq!(clean_generation_reply(cleaned.clone()).to_bytes(), cleaned, "once is enough");
    through_the_layer(body, &cleaned);
    message(body);
    version(body);
}

const TOKENS: [&str; 2] = ["prompt_token_ids", "prompt_token_ids_b64"];
const STATE: &str = "disaggregated_params";

/// Panics unless `cleaned` is `reply` without what is internal, and otherwise the same text.
pub(crate) fn assert_clean(reply: Json<'_>, cleaned: &[u8]) {
    let holds_state = |choice: Json<'_>| is_readable(choice) && !choice.named(STATE).is_empty();
    let choices = reply.named("choices");
    let state = |choices: &Json<'_>| choices.kind() == Kind::Array && choices.children().any(holds_state);
    if !choices.iter().any(state) && choices.len() < 2 && TOKENS.iter().all(|key| reply.named(key).is_empty())
    {
        let text = std::str::from_utf8(cleaned).unwrap();
        assert_eq!(text.trim_matches([' ', '\t', '\n', '\r']), reply.raw(), "there is nothing to take out");
        return;
    }
    let doc = Doc::parse(cleaned).expect("a cleaned reply is JSON");
    let after = doc.root();
    let kept = after.last("choices").map(Json::raw);
    let mut changes = TOKENS.map(|key| (key, None)).to_vec();
    let Some(last) = choices.last() else { return assert_edited(reply, after, &changes) };
    if choices.len() > 1 || state(last) {
        changes.push(("choices", kept));
    }
    assert_edited(reply, after, &changes);
    let after = after.last("choices").expect("the choices stay");
    if !state(last) {
        return assert_eq!(after.raw(), last.raw());
    }
    assert_eq!(after.children().count(), last.children().count());
    for (before, after) in last.children().zip(after.children()) {
        if holds_state(before) {
            assert_edited(before, after, &[(STATE, None)]);
        } else {
            assert_eq!(before.raw(), after.raw());
        }
    }
}

// === the layer ===

fn through_the_layer(body: &[u8], cleaned: &[u8]) {
    let one = vec![Bytes::copy_from_slice(body)];
    let many: Vec<_> = body.chunks(7).map(Bytes::copy_from_slice).collect();
    for chunks in [one, many] {
        let answer = |status| Answer {
            status,
            content_type: "application/json",
            chunks: chunks.clone(),
            breaks: false,
        };
        let (seen, ends) = relay(reply(), answer(StatusCode::OK), usize::MAX);
        assert!(ends.is_empty(), "this is no stream");
        if carries_state(cleaned, reply()) {
            assert_eq!(seen, Seen::Error(GenerationErrorKind::InvalidReply));
        } else {
            assert_eq!(whole(seen, StatusCode::OK), cleaned);
        }
        let (seen, _) = relay(reply(), answer(StatusCode::BAD_REQUEST), usize::MAX);
        if may_carry_state(body, reply()) {
            assert_eq!(seen, Seen::Error(GenerationErrorKind::Rejected(StatusCode::BAD_REQUEST)));
        } else {
            assert_eq!(whole(seen, StatusCode::BAD_REQUEST), body);
        }
    }
}

fn whole(seen: Seen, expected: StatusCode) -> Vec<u8> {
    match seen {
        Seen::Reply { status, frames, broke: false } if status == expected => frames.concat(),
        other => panic!("{other:?}"),
    }
}

/// A context reply with a state and an endpoint that a fuzzer can find.
fn reply() -> &'static ContextReply {
    static REPLY: OnceLock<ContextReply> = OnceLock::new();
    REPLY.get_or_init(|| {
        let body = br#"{"choices":[{"finish_reason":"length","disaggregated_params":{"ctx_request_id":1,"first_gen_tokens":[1],"encoded_opaque_state":"b3BhcXVlIHN0YXRlIG9mIGEgd29ya2Vy","ctx_info_endpoint":"tcp://h:1"}}]}"#;
        ContextReply::parse(Endpoint::Chat, Bytes::from_static(body)).unwrap()
    })
}

// === messages ===

fn message(body: &[u8]) {
    let shown = worker_message(body);
    if let Some(shown) = &shown {
        assert!(!shown.is_empty() && shown.len() <= MAX_MESSAGE);
        assert!(!shown.contains(char::is_control) && !shown.contains(['\u{2028}', '\u{202e}', '\u{2066}']));
    }
    let doc = Doc::parse(body);
    let object = doc.as_ref().map(Doc::root).filter(|root| is_readable(*root));
    let text = match object {
        Some(object) => said(object),
        // JSON of another kind, or markup, is not for people; nor is JSON that is cut short.
        None => std::str::from_utf8(body)
            .ok()
            .map(str::trim)
            .map(str::to_owned)
            .filter(|text| text != "null" && !text.starts_with(['<', '{', '[', '"'])),
    };
    let Some(text) = text else { return };
    if text.contains("'type': ") {
        // A list of validation errors, of which a part is shown.
        return;
    }
    let ours = text.contains("disaggregated_params") || text.contains("disagg_request_id");
    let expected = (!ours && !text.trim().is_empty()).then(|| text.trim().to_owned());
    match (&shown, &expected) {
        (Some(shown), Some(expected)) if expected.len() + 3 <= MAX_MESSAGE => {
            let same = |(a, b): (char, char)| a == b || a == ' ';
            assert_eq!(shown.chars().count(), expected.chars().count());
            assert!(shown.chars().zip(expected.chars()).all(same), "{shown:?} for {expected:?}");
        }
        (Some(shown), Some(_)) => assert!(shown.ends_with('…')),
        _ => assert_eq!(shown, expected),
    }
}

/// The message of an error object, when it is a text.
fn said(object: Json<'_>) -> Option<String> {
    let error = object.last("error").filter(|error| !error.is_null());
    match error {
        Some(error) if error.kind() == Kind::Object => {
            is_readable(error).then(|| error.last("message")).flatten()?.text()
        }
        Some(error) => error.text(),
        None => object.last("message").or_else(|| object.last("detail"))?.text(),
    }
}

fn version(body: &[u8]) {
    let Some(release) = Release::from_version_reply(body) else { return };
    let shown = release.to_string();
    assert!((1..=64).contains(&shown.len()) && shown.bytes().all(|byte| byte.is_ascii_graphic()));
    assert_eq!(release, release.clone());
    if release.is_recognised() {
        assert_eq!(Release::parse(&shown), release, "what is shown is the release");
        assert_eq!(release.partial_cmp(&release), Some(std::cmp::Ordering::Equal));
    }
}
