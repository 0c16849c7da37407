use serde_json::{Map, Value as Json, json};

use super::*;
use crate::trtllm::fixtures::{self, *};

mod chat;
mod completions;
mod properties;
mod usage;
mod whole;

/// The chunks of a stream; fails where an event is not one line of JSON, or the end is missing.
fn chunks(stream: &Segments) -> Vec<Json> {
    let stream = text(stream);
    let events = stream.strip_suffix("data: [DONE]\n\n").expect("the stream ends with [DONE]");
    assert!(!stream.contains('\r'), "{stream}");
    let chunks: Vec<Json> = events
        .split_terminator("\n\n")
        .map(|event| serde_json::from_str(event.strip_prefix("data: ").unwrap()).unwrap())
        .collect();
    assert_eq!(stream.matches('\n').count(), 2 * (chunks.len() + 1), "{stream}");
    chunks
}

/// What a client of this API puts together from a stream.
#[derive(Debug, Default, PartialEq)]
struct Gathered {
    /// The texts of the message (chat) or the choice (completions).
    texts: Map<String, Json>,
    calls: Vec<Json>,
    logprobs: Json,
    finish: Json,
    stop: Json,
    usage: Json,
}

impl Gathered {
    fn of(chunks: &[Json]) -> Self {
        let mut all = Self::default();
        for chunk in chunks {
            if let Some(usage) = chunk.get("usage").filter(|usage| !usage.is_null()) {
                all.usage = usage.clone();
            }
            let [choice] = chunk["choices"].as_array().unwrap().as_slice() else { continue };
            assert_eq!(all.finish, Json::Null, "a chunk after the last: {chunk}");
            let said = choice.get("delta").unwrap_or(choice).as_object().unwrap();
            for (key, value) in said.iter().filter(|(key, _)| !OUTER.contains(&key.as_str())) {
                match value {
                    Json::String(text) => all.add(key, text),
                    Json::Array(calls) if key == "tool_calls" => calls.iter().for_each(|call| all.call(call)),
                    other => {
                        assert!(all.texts.insert(key.clone(), other.clone()).is_none(), "{key} came twice")
                    }
                }
            }
            for (key, to) in [
                ("finish_reason", &mut all.finish),
                ("stop_reason", &mut all.stop),
                ("logprobs", &mut all.logprobs),
            ] {
                if let Some(value) = choice.get(key).filter(|value| !value.is_null()) {
                    assert_eq!(*to, Json::Null, "{key} came twice");
                    *to = value.clone();
                }
            }
        }
        all
    }

    fn add(&mut self, key: &str, text: &str) {
        let before = self.texts.entry(key).or_insert_with(|| "".into());
        *before = (before.as_str().unwrap().to_owned() + text).into();
    }

    fn call(&mut self, call: &Json) {
        assert_eq!(call["index"], self.calls.len(), "calls come in their order, each in one piece");
        self.calls.push(without(call.clone(), "index"));
    }
}

/// Members of a completions choice that are none of its texts.
const OUTER: [&str; 4] = ["index", "logprobs", "finish_reason", "stop_reason"];

fn streaming(endpoint: Endpoint, options: &str) -> ClientRequest {
    fixtures::request(endpoint, &format!(r#"{{"model":"asked","prompt":"hi","stream":true{options}}}"#))
}

/// The chunks for a client that asked for nothing special.
fn streamed(endpoint: Endpoint, reply: &Json) -> Vec<Json> {
    chunks(&terminal_stream(&streaming(endpoint, ""), &usable(endpoint, reply)))
}

fn finished(mut reply: Json, choice: Json) -> Json {
    merge(&mut reply["choices"][0], json!({"finish_reason": "stop"}));
    merge(&mut reply["choices"][0], choice);
    reply
}

/// A chat reply with these members of the message set.
fn said(members: Json) -> Json {
    let mut reply = finished(chat_reply(), json!({}));
    merge(&mut reply["choices"][0]["message"], members);
    reply
}

#[test]
fn all_chunks_have_the_head_of_the_reply() {
    for (endpoint, mut reply, object) in [
        (Endpoint::Chat, chat_reply(), "chat.completion.chunk"),
        (Endpoint::Completions, completions_reply(), "text_completion"),
    ] {
        let options = r#","stream_options":{}"#;
        let read = |reply: &Json| {
            chunks(&terminal_stream(
                &streaming(endpoint, options),
                &usable(endpoint, &finished(reply.clone(), json!({}))),
            ))
        };
        let expected = |more: Json| {
            let mut head = json!({
                "id": reply["id"], "object": object, "created": 1_790_000_000, "model": "m",
            });
            merge(&mut head, more);
            head
        };
        let head = |chunk: &Json| without(chunk.clone(), "choices");
        let plain = expected(json!({}));
        for mut chunk in read(&reply) {
            chunk.as_object_mut().unwrap().remove("usage");
            assert_eq!(head(&chunk), plain);
        }
        let more = json!({"system_fingerprint": "fp_1", "service_tier": "default"});
        let full = expected(more.clone());
        merge(&mut reply, more);
        for mut chunk in read(&reply) {
            chunk.as_object_mut().unwrap().remove("usage");
            assert_eq!(head(&chunk), full);
        }
        merge(&mut reply, json!({"system_fingerprint": null, "service_tier": 5}));
        for mut chunk in read(&reply) {
            chunk.as_object_mut().unwrap().remove("usage");
            assert_eq!(head(&chunk), plain);
        }
    }
}

#[test]
fn what_a_chunk_does_not_carry_is_left_out() {
    let mut chat = said(json!({"annotations": ["x"], "audio": {"id": "x"}, "content": "Hi"}));
    merge(&mut chat["choices"][0], json!({"mm_embedding_handle": {"x": 1}, "future": "x"}));
    let mut completion = finished(completions_reply(), json!({"context_logits": [0.5], "future": "x"}));
    for reply in [&mut chat, &mut completion] {
        merge(reply, json!({"prompt_token_ids_b64": "xx", "future": "x"}));
    }
    let both = format!("{chat}{completion}");
    for (endpoint, reply) in [(Endpoint::Chat, chat), (Endpoint::Completions, completion)] {
        let stream = text(&terminal_stream(&streaming(endpoint, ""), &usable(endpoint, &reply)));
        for left_out in [
            "disaggregated_params",
            "prompt_token_ids",
            "AAECAwQ",
            "37771",
            "mm_embedding_handle",
            "context_logits",
            "annotations",
            "audio",
            "future",
        ] {
            assert!(both.contains(left_out), "{left_out} is in no reply");
            assert!(!stream.contains(left_out), "{left_out}: {stream}");
        }
    }
}

#[test]
fn the_model_is_shared_by_all_chunks() {
    let long = "m".repeat(1 << 20);
    let calls: Vec<_> = (0..1000).map(|_| json!({"function": {"name": "f", "arguments": ""}})).collect();
    let mut reply = said(json!({"tool_calls": calls}));
    merge(&mut reply, json!({"model": long}));
    let stream = terminal_stream(&streaming(Endpoint::Chat, ""), &usable(Endpoint::Chat, &reply));
    let mut memory: Vec<_> = stream.parts().iter().map(|part| (part.as_ptr(), part.len())).collect();
    memory.sort_unstable();
    memory.dedup();
    let held: usize = memory.iter().map(|(_, len)| len).sum();
    assert!(held < 2 << 20, "{held} bytes are held for {}", stream.len());
}
