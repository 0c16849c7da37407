//! Requests and replies that the tests of this folder share.

use bytes::Bytes;
use proptest::prelude::*;
use serde_json::{Map, Value as Json, json};

use super::{ClientRequest, ContextReply, DisaggRequestId, Endpoint, Engine, Release, ReplyError};
use crate::json::Segments;

pub(super) const ID: u64 = 1_234_567_890_123_456_789;

pub(super) fn id() -> DisaggRequestId {
    DisaggRequestId::new(ID).unwrap()
}

pub(super) fn request(endpoint: Endpoint, body: &str) -> ClientRequest {
    ClientRequest::parse(endpoint, Bytes::copy_from_slice(body.as_bytes())).unwrap()
}

pub(super) fn chat() -> ClientRequest {
    request(Endpoint::Chat, r#"{"model":"m","messages":[{"role":"user","content":"hi"}],"stream":true}"#)
}

pub(super) fn completions() -> ClientRequest {
    request(Endpoint::Completions, r#"{"model":"m","prompt":"hi","max_tokens":16}"#)
}

pub(super) fn parse(endpoint: Endpoint, body: &str) -> Result<ContextReply, ReplyError> {
    ContextReply::parse(endpoint, Bytes::copy_from_slice(body.as_bytes()))
}

/// Client requests with members that nobody here knows, and those that a leg changes.
pub(super) fn client(endpoint: Endpoint) -> impl Strategy<Value = Map<String, Json>> {
    let vendor = prop::collection::btree_map("x[a-zé_\\\\\"]{0,8}", any::<i64>(), 0..12);
    let stream = prop::option::of(any::<bool>());
    let options = prop::option::of(prop::option::of(any::<bool>()));
    let streaming = (stream, options).prop_filter_map("options need a stream", |(stream, options)| {
        (stream == Some(true) || options.flatten().is_none()).then_some((stream, options))
    });
    (vendor, streaming, prop::option::of(any::<u32>())).prop_map(move |(vendor, (stream, options), limit)| {
        let mut client: Map<String, Json> =
            vendor.into_iter().map(|(key, value)| (key, value.into())).collect();
        let known = [
            ("stream", stream.map(Json::from)),
            (
                "stream_options",
                options.map(|usage| usage.map_or(Json::Null, |usage| json!({"include_usage": usage}))),
            ),
            ("max_tokens", limit.map(Json::from)),
            ("prompt", (endpoint == Endpoint::Completions).then(|| "hi".into())),
            ("messages", (endpoint == Endpoint::Chat).then(|| json!([{"role": "user", "content": "hi"}]))),
        ];
        client.extend(known.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?))));
        client
    })
}

/// A worker of 1.3.0rc24 answers like this; `{"a":{"b":1}}`-like changes are made by the tests.
pub(super) fn chat_reply() -> Json {
    json!({
        "id": "chatcmpl-1", "object": "chat.completion", "created": 1_790_000_000, "model": "m",
        "choices": [{
            "index": 0,
            "message": {"role": "assistant", "content": "Hi", "reasoning_content": "", "reasoning": null, "tool_calls": []},
            "logprobs": null, "finish_reason": "length", "stop_reason": null, "mm_embedding_handle": null,
            "disaggregated_params": params("1.3.0rc24"),
            "avg_decoded_tokens_per_iter": null
        }],
        "usage": {
            "prompt_tokens": 3, "total_tokens": 4, "completion_tokens": 1,
            "prompt_tokens_details": {"cached_tokens": 2}
        },
        "prompt_token_ids": [1, 2, 3], "prompt_token_ids_b64": null
    })
}

pub(super) fn completions_reply() -> Json {
    json!({
        "id": "cmpl-1", "object": "text_completion", "created": 1_790_000_000, "model": "m",
        "choices": [{
            "index": 0, "text": "Hi", "token_ids": null, "logprobs": null, "context_logits": null,
            "finish_reason": "length", "stop_reason": null, "disaggregated_params": params("1.3.0rc24"),
            "avg_decoded_tokens_per_iter": null
        }],
        "usage": {"prompt_tokens": 3, "total_tokens": 4, "completion_tokens": 1, "prompt_tokens_details": null},
        "prompt_token_ids": [1, 2, 3]
    })
}

/// One release of each generation, with early and late G2 apart. Not the newest for ever: that is `schema::newest`.
pub(super) const RELEASES: [&str; 5] = ["1.3.0rc5", "1.3.0rc13", "1.3.0rc20", "1.3.0rc24", "1.4.0rc1"];

/// Members of `disaggregated_params` that a worker of one of [`RELEASES`] has; written down apart from the table that
/// is tested with it.
pub(super) fn members(release: &str) -> Vec<&'static str> {
    let mut members = vec![
        "request_type",
        "first_gen_tokens",
        "ctx_request_id",
        "encoded_opaque_state",
        "draft_tokens",
        "disagg_request_id",
        "ctx_dp_rank",
        "ctx_info_endpoint",
        "schedule_style",
    ];
    let age = RELEASES.iter().position(|known| *known == release).unwrap();
    if age >= 1 {
        members.extend(["first_gen_log_probs", "first_gen_logits"]);
    }
    if (1..=3).contains(&age) {
        members.push("conversation_id");
    }
    if age >= 2 {
        members.push("ctx_usage");
    }
    if age >= 3 {
        members.push("return_prompt_token_ids_b64");
    }
    if age >= 4 {
        members.push("resolved_thinking");
    }
    members
}

/// The object that a context worker of one of [`RELEASES`] answers with: all it knows, null where there is nothing.
pub(super) fn params(release: &str) -> Json {
    let value = |member: &str| match member {
        "request_type" => json!("context_only"),
        "first_gen_tokens" => json!([4321]),
        "ctx_request_id" | "disagg_request_id" => json!(ID),
        "encoded_opaque_state" => json!("AAECAwQ="),
        "ctx_dp_rank" => json!(0),
        "ctx_info_endpoint" => json!("tcp://10.0.0.5:37771"),
        "return_prompt_token_ids_b64" => json!(false),
        _ => Json::Null,
    };
    Json::Object(members(release).into_iter().map(|member| (member.to_owned(), value(member))).collect())
}

/// A chat reply with other `disaggregated_params`.
pub(super) fn with_params(params: Json) -> Json {
    let mut reply = chat_reply();
    reply["choices"][0]["disaggregated_params"] = params;
    reply
}

/// A chat reply of 1.3.0rc24 with these members of `disaggregated_params` set.
pub(super) fn with_members(members: Json) -> Json {
    let mut reply = chat_reply();
    merge(&mut reply["choices"][0]["disaggregated_params"], members);
    reply
}

pub(super) fn merge(into: &mut Json, members: Json) {
    let Json::Object(members) = members else { panic!("members are given as an object") };
    into.as_object_mut().unwrap().extend(members);
}

pub(super) fn without(mut json: Json, key: &str) -> Json {
    json.as_object_mut().unwrap().remove(key).unwrap();
    json
}

pub(super) fn usable(endpoint: Endpoint, reply: &Json) -> ContextReply {
    parse(endpoint, &reply.to_string()).unwrap()
}

pub(super) fn worker(release: &str) -> Engine {
    Engine::Known(Release::parse(release))
}

pub(super) fn text(segments: &Segments) -> String {
    String::from_utf8(segments.to_bytes().to_vec()).unwrap()
}

/// The object in `segments`; a key that is there twice is a failure, which serde_json would let pass.
pub(super) fn object(segments: &Segments) -> Map<String, Json> {
    let object = crate::json::Object::parse(segments.to_bytes()).unwrap();
    let parsed: Map<String, Json> = serde_json::from_slice(&segments.to_bytes()).unwrap();
    assert_eq!(object.members().count(), parsed.len(), "a key is repeated in {}", text(segments));
    parsed
}
