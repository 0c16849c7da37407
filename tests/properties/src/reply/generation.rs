//! The generation request that is made of a context reply (contract, section 4), for workers of each generation.

use bytes::Bytes;
use tower_disagg::{
    json::Value,
    trtllm::{
        ClientRequest, ContextReply, DisaggRequestId, Endpoint, Engine, Release, RequestErrorKind, Shape,
        carries_state, check_passthrough, generation_body, may_carry_state,
    },
};

use super::verdict::choice;
use crate::{
    oracle::json::{Doc, Json, Kind},
    splitter::assert_edited,
};

/// One release of each generation, with early and late G2 apart, and two that no table has.
const WORKERS: [&str; 7] = ["1.3.0rc5", "1.3.0rc13", "1.3.0rc20", "1.3.0rc24", "1.4.0rc1", "9.9.9", "?"];

pub(super) fn check(reply: &ContextReply, json: Json<'_>) {
    let choice = choice(json).expect("one choice");
    let params = choice.last("disaggregated_params").expect("a handoff");
    let ours = DisaggRequestId::MIN;
    let reported = params.last("disagg_request_id").and_then(Json::integer).map(|id| id as u64);
    let id = reply.id_for_generation(ours);
    assert_eq!((reply.disagg_request_id(), id.get()), (reported, reported.unwrap_or(ours.get())));
    assert_eq!(id.is_foreign(), reported.is_some_and(|id| id != ours.get()));
    for (value, key) in
        [(reply.opaque_state(), "encoded_opaque_state"), (reply.info_endpoint(), "ctx_info_endpoint")]
    {
        let there = params.last(key).filter(|value| !value.is_null());
        assert_eq!(value.map(Value::as_str), there.map(Json::raw));
    }
    let clients = clients(reply.endpoint());
    let asked = clients.each_ref().map(|client| Doc::parse(client.body()).unwrap());
    for (at, release) in WORKERS.iter().enumerate() {
        let generation = worker(release);
        // Of the same release, and of another.
        for (one, context) in [release, WORKERS[(at + 3) % WORKERS.len()]].into_iter().enumerate() {
            let shape = Shape::between(&worker(context), &generation, reply);
            let same = *release != "?" && context == *release;
            let client = (at + one) % clients.len();
            let body = generation_body(&clients[client], reply, ours, &shape).to_bytes();
            request(
                asked[client].root(),
                reply.endpoint(),
                json,
                &body,
                &Worker::of(release, same),
                id.get(),
            );
        }
    }
    state_is_recognised(reply, params);
}

fn worker(release: &str) -> Engine {
    if release == "?" { Engine::Unknown } else { Engine::Known(Release::parse(release)) }
}

/// Requests whose members stand where a leg changes them, and where it does not.
fn clients(endpoint: Endpoint) -> [ClientRequest; 2] {
    let bodies: [&'static [u8]; 2] = match endpoint {
        Endpoint::Chat => [
            br#" { "model":"m", "messages" : [{"role":"user","content":"hi \ud83d"}], "stream":true , "seed": 9007199254740993,"stream_options":{} } "#,
            br#"{"disaggregated_params":{},"prompt_token_ids":null,"x":1e400,"messages":[],"prompt_token_ids_b64":null}"#,
        ],
        Endpoint::Completions => [
            br#"{"model":"m","prompt":"hi","max_tokens":16,"x_big":18446744073709551616,"x_big":1}"#,
            br#" { "x":1 ,"disaggregated\u005fparams" : null, "prompt" : [ "hi" ] , "stream":false}"#,
        ],
    };
    bodies.map(|body| ClientRequest::parse(endpoint, Bytes::from_static(body)).unwrap())
}

/// What the contract says of a release (sections 2 and 4).
struct Worker {
    generation: u8,
    known: bool,
    same_release: bool,
}

impl Worker {
    fn of(release: &str, same_release: bool) -> Self {
        let generation = match release {
            "1.3.0rc5" => 1,
            "1.3.0rc13" | "1.3.0rc20" => 2,
            "1.3.0rc24" => 3,
            _ => 4,
        };
        Self { generation, known: release != "?", same_release }
    }

    fn takes(&self, member: &str) -> bool {
        let generation = self.generation;
        match member {
            "first_gen_tokens" | "ctx_request_id" | "encoded_opaque_state" | "draft_tokens" => true,
            "ctx_dp_rank" | "ctx_info_endpoint" => true,
            "first_gen_log_probs" | "first_gen_logits" => generation >= 2,
            "conversation_id" => (2..=3).contains(&generation),
            "return_prompt_token_ids_b64" => generation >= 3,
            // A hint of G4, and what no generation has: for the newest and for those of which nothing is known.
            _ => generation >= 4,
        }
    }

    fn takes_usage(&self, shown: bool) -> bool {
        match self.generation {
            4 if !self.known => shown,
            3.. => true,
            2 => shown && self.same_release,
            _ => false,
        }
    }
}

fn request(asked: Json<'_>, endpoint: Endpoint, reply: Json<'_>, body: &Bytes, worker: &Worker, id: u64) {
    let doc = Doc::parse(body).expect("a generation request is JSON");
    let root = doc.root();
    let sent = root.last("disaggregated_params").expect("a handoff");
    let set = |key: &str| reply.last(key).filter(|value| !value.is_null()).map(Json::raw);
    let mut changes = vec![("disaggregated_params", Some(sent.raw()))];
    match endpoint {
        Endpoint::Completions => changes.push(("prompt", set("prompt_token_ids"))),
        Endpoint::Chat => {
            let ids = set("prompt_token_ids");
            let base64 = set("prompt_token_ids_b64").filter(|_| ids.is_none() && worker.generation >= 3);
            changes.extend([("prompt_token_ids", ids), ("prompt_token_ids_b64", base64)]);
        }
    }
    assert_edited(asked, root, &changes);
    handoff(reply, sent, worker, id);
    let refused = check_passthrough(None, body).unwrap_err();
    assert_eq!(refused.kind(), RequestErrorKind::HandoffFields, "what the proxy adds, no client may send");
}

/// `disaggregated_params`: what is relayed of the reply's, and what is ours to say.
fn handoff(reply: Json<'_>, sent: Json<'_>, worker: &Worker, id: u64) {
    let params = choice(reply).and_then(|choice| choice.last("disaggregated_params")).expect("a handoff");
    const OURS: [&str; 4] = ["request_type", "disagg_request_id", "schedule_style", "ctx_usage"];
    let keys: Vec<_> = sent.children().map(|member| member.key().unwrap()).collect();
    assert!(keys.iter().all(|key| keys.iter().filter(|other| *other == key).count() == 1), "a member twice");
    let raw = |key: &str| sent.last(key).map(Json::raw);
    assert_eq!(raw("request_type"), Some(r#""generation_only""#));
    assert_eq!(raw("disagg_request_id"), Some(&*id.to_string()));
    assert_eq!(raw("schedule_style"), Some("0"));
    let usage = worker.takes_usage(!params.named("ctx_usage").is_empty()).then(|| usage(reply)).flatten();
    assert_eq!(raw("ctx_usage"), usage.as_deref());

    let mut relayed = 0;
    for member in params.children() {
        let key = member.key().unwrap();
        if OURS.contains(&key) {
            continue;
        }
        let default = key == "return_prompt_token_ids_b64" && member.raw() == "false";
        let stays = !member.is_null() && !default && worker.takes(key);
        assert_eq!(raw(key), stays.then_some(member.raw()), "digit for digit");
        relayed += usize::from(stays);
    }
    assert_eq!(keys.len(), relayed + 3 + usize::from(usage.is_some()), "nothing is made up");
}

/// The reply's usage, in the members that a worker takes; none without a usable `prompt_tokens`.
fn usage(reply: Json<'_>) -> Option<String> {
    let usage = reply.last("usage").filter(|usage| crate::splitter::is_readable(*usage))?;
    let count =
        |object: Json<'_>, key: &str| object.last(key)?.integer().and_then(|count| u64::try_from(count).ok());
    let mut members = vec![format!(r#""prompt_tokens":{}"#, count(usage, "prompt_tokens")?)];
    for key in ["total_tokens", "completion_tokens"] {
        members.extend(count(usage, key).map(|count| format!(r#""{key}":{count}"#)));
    }
    let details =
        usage.last("prompt_tokens_details").filter(|details| crate::splitter::is_readable(*details));
    let cached = details.and_then(|details| count(details, "cached_tokens"));
    members.extend(cached.map(|cached| format!(r#""prompt_tokens_details":{{"cached_tokens":{cached}}}"#)));
    Some(format!("{{{}}}", members.join(",")))
}

/// A worker that quotes the state or the endpoint, as it came or as a text within texts, is caught at it.
fn state_is_recognised(reply: &ContextReply, params: Json<'_>) {
    for key in ["encoded_opaque_state", "ctx_info_endpoint"] {
        let Some(value) = params.last(key).filter(|value| value.kind() == Kind::String) else { continue };
        let raw = value.raw();
        // An endpoint that is a scheme alone names nothing.
        if raw == r#""""# || raw.len() > 1000 || raw.replace('\\', "").ends_with("://\"") {
            continue;
        }
        let quoted = serde_json::Value::from(raw).to_string();
        let mut texts = vec![format!("{{\"x\":{raw}}}"), format!("{{\"x\":{quoted}}}")];
        if !raw.contains('\\') {
            let letters = raw
                .chars()
                .map(|c| if c.is_ascii_alphanumeric() { format!("\\u{:04x}", c as u32) } else { c.into() });
            texts.push(letters.collect());
        }
        let utf16: Vec<u8> = raw.encode_utf16().flat_map(u16::to_le_bytes).collect();
        for text in texts.into_iter().map(String::into_bytes).chain([utf16]) {
            assert!(may_carry_state(&text, reply), "{}", text.escape_ascii());
            assert!(carries_state(&text, reply), "{}", text.escape_ascii());
        }
    }
}
