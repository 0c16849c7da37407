use serde_json::{Value as Json, json};

use super::*;
use crate::trtllm::fixtures::{self, *};

/// The chunks of a stream; fails where an event is not one line of JSON, or the end is missing.
fn chunks(stream: &Segments) -> Vec<Json> {
    let stream = text(stream);
    let events = stream.strip_suffix("data: [DONE]\n\n").expect("the stream ends with [DONE]");
    events
        .split_terminator("\n\n")
        .map(|event| serde_json::from_str(event.strip_prefix("data: ").unwrap()).unwrap())
        .collect()
}

/// What a client of this API puts together from chat chunks.
fn gathered(chunks: &[Json], field: &str) -> String {
    chunks.iter().filter_map(|chunk| chunk["choices"][0]["delta"][field].as_str()).collect()
}

fn streaming(endpoint: Endpoint, options: &str) -> ClientRequest {
    fixtures::request(endpoint, &format!(r#"{{"model":"asked","prompt":"hi","stream":true{options}}}"#))
}

fn finished(mut reply: Json, choice: Json) -> Json {
    merge(&mut reply["choices"][0], json!({"finish_reason": "stop"}));
    merge(&mut reply["choices"][0], choice);
    reply
}

fn message(members: Json) -> Json {
    let mut message = chat_reply()["choices"][0]["message"].clone();
    merge(&mut message, members);
    json!({"message": message})
}

#[test]
fn a_whole_answer_keeps_its_bytes_but_for_the_handoff() {
    let body = concat!(
        r#"{"id":"c", "choices":[ {"index":0,"message":{"content":"\ud83d","x":1.00},"finish_reason":"stop","#,
        r#""disaggregated_params":{"encoded_opaque_state":"b3BhcXVl"},"stop_reason":null} ],"prompt_token_ids":[1,2],"#,
        r#""prompt_token_ids_b64":null,"usage":{"prompt_tokens":3}}"#
    );
    let reply = parse(Endpoint::Chat, body).unwrap();
    assert_eq!(
        text(&terminal_whole(&reply)),
        concat!(
            r#"{"id":"c", "choices":[ {"index":0,"message":{"content":"\ud83d","x":1.00},"finish_reason":"stop","#,
            r#""stop_reason":null} ],"usage":{"prompt_tokens":3}}"#
        )
    );
    let nothing_to_remove = r#" {"choices":[{"finish_reason":"stop","text":""}] } "#;
    let reply = parse(Endpoint::Completions, nothing_to_remove).unwrap();
    assert_eq!(text(&terminal_whole(&reply)), nothing_to_remove);
}

#[test]
fn a_chat_stream_says_all_that_the_reply_says() {
    let choice = message(json!({"content": "Yes é", "reasoning_content": "Hm"}));
    let reply = finished(chat_reply(), choice);
    let reply = finished(
        reply,
        json!({"stop_reason": "END", "logprobs": {"content": [{"token": "Yes", "logprob": -0.5}]}}),
    );
    let stream = terminal_stream(&streaming(Endpoint::Chat, ""), &usable(Endpoint::Chat, &reply));
    let chunks = chunks(&stream);
    for chunk in &chunks {
        assert_eq!(chunk["id"], "chatcmpl-1");
        assert_eq!(chunk["object"], "chat.completion.chunk");
        assert_eq!(chunk["created"], 1_790_000_000);
        assert_eq!(chunk["model"], "m");
        assert_eq!(chunk["choices"].as_array().unwrap().len(), 1);
        assert_eq!(chunk["choices"][0]["index"], 0);
        assert!(chunk["choices"][0]["delta"].is_object());
    }
    assert_eq!(chunks[0]["choices"][0]["delta"], json!({"role": "assistant"}));
    assert_eq!(gathered(&chunks, "content"), "Yes é");
    assert_eq!(gathered(&chunks, "reasoning_content"), "Hm");
    let logprobs: Vec<_> = chunks.iter().filter(|chunk| !chunk["choices"][0]["logprobs"].is_null()).collect();
    assert_eq!(logprobs.len(), 1);
    assert_eq!(logprobs[0]["choices"][0]["delta"]["content"], "Yes é");
    let (last, others) = chunks.split_last().unwrap();
    assert_eq!(last["choices"][0]["finish_reason"], "stop");
    assert_eq!(last["choices"][0]["stop_reason"], "END");
    assert!(others.iter().all(|chunk| chunk["choices"][0]["finish_reason"].is_null()));
    let stream = text(&stream);
    for internal in ["disaggregated_params", "prompt_token_ids", "AAECAwQ"] {
        assert!(!stream.contains(internal), "{internal}");
    }
}

#[test]
fn an_empty_answer_is_a_role_and_an_end() {
    let choice = message(json!({"content": ""}));
    let reply = usable(Endpoint::Chat, &finished(chat_reply(), choice));
    let chunks = chunks(&terminal_stream(&streaming(Endpoint::Chat, ""), &reply));
    assert_eq!(chunks.len(), 2);
    assert_eq!(chunks[0]["choices"][0]["delta"], json!({"role": "assistant"}));
    assert_eq!(chunks[1]["choices"][0]["delta"], json!({}));
    assert_eq!(chunks[1]["choices"][0]["finish_reason"], "stop");
    assert!(chunks[1]["choices"][0].get("stop_reason").is_none());
}

#[test]
fn logprobs_without_content_are_not_lost() {
    let choice = message(json!({"content": null}));
    let reply = finished(finished(chat_reply(), choice), json!({"logprobs": {"content": []}}));
    let chunks = chunks(&terminal_stream(&streaming(Endpoint::Chat, ""), &usable(Endpoint::Chat, &reply)));
    assert_eq!(chunks.last().unwrap()["choices"][0]["logprobs"], json!({"content": []}));
}

#[test]
fn tool_calls_have_an_index_each() {
    let calls = json!([
        {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{\"x\":1}"}},
        {"id": "b", "type": "function", "function": {"name": "g", "arguments": "{}"}, "index": 9}
    ]);
    let choice = message(json!({"content": null, "tool_calls": calls}));
    let mut reply = finished(chat_reply(), choice);
    merge(&mut reply["choices"][0], json!({"finish_reason": "tool_calls"}));
    let chunks = chunks(&terminal_stream(&streaming(Endpoint::Chat, ""), &usable(Endpoint::Chat, &reply)));
    assert_eq!(chunks.len(), 3);
    let mut expected = calls;
    expected[0]["index"] = 0.into();
    expected[1]["index"] = 1.into();
    assert_eq!(chunks[1]["choices"][0]["delta"]["tool_calls"], expected);
    assert_eq!(chunks[2]["choices"][0]["finish_reason"], "tool_calls");
}

#[test]
fn usage_comes_last_and_only_when_it_was_asked_for() {
    for (endpoint, reply) in [(Endpoint::Chat, chat_reply()), (Endpoint::Completions, completions_reply())] {
        let reply = usable(endpoint, &finished(reply, json!({})));
        let with = |options: &str| chunks(&terminal_stream(&streaming(endpoint, options), &reply));
        let asked = with(r#","stream_options":{"include_usage":true}"#);
        let last = asked.last().unwrap();
        assert_eq!(last["choices"], json!([]));
        assert_eq!(last["usage"]["prompt_tokens"], 3);
        assert_eq!(last["id"], asked[0]["id"]);
        for options in ["", r#","stream_options":{"include_usage":false}"#] {
            let chunks = with(options);
            assert_eq!(chunks.len(), asked.len() - 1);
            assert!(chunks.iter().all(|chunk| chunk.get("usage").is_none_or(Json::is_null)));
        }
    }
    let mut unknown = finished(chat_reply(), json!({}));
    merge(&mut unknown, json!({"usage": null}));
    let asked = streaming(Endpoint::Chat, r#","stream_options":{"include_usage":true}"#);
    let chunks = chunks(&terminal_stream(&asked, &usable(Endpoint::Chat, &unknown)));
    assert!(chunks.iter().all(|chunk| !chunk["choices"].as_array().unwrap().is_empty()));
}

#[test]
fn completions_stream_their_text() {
    let reply = finished(completions_reply(), json!({"stop_reason": 5, "logprobs": {"tokens": ["Hi"]}}));
    let reply = usable(Endpoint::Completions, &reply);
    let chunks = chunks(&terminal_stream(&streaming(Endpoint::Completions, ""), &reply));
    let expected = json!({
        "id": "cmpl-1", "object": "text_completion", "created": 1_790_000_000, "model": "m",
        "choices": [{
            "index": 0, "text": "Hi", "logprobs": {"tokens": ["Hi"]}, "finish_reason": "stop", "stop_reason": 5
        }],
        "usage": null
    });
    assert_eq!(chunks, [expected]);
}

#[test]
fn completions_may_have_ids_for_text() {
    let choice = |members: Json| {
        let reply = usable(Endpoint::Completions, &finished(completions_reply(), members));
        chunks(&terminal_stream(&streaming(Endpoint::Completions, ""), &reply))[0]["choices"][0].clone()
    };
    let ids = choice(json!({"text": "", "token_ids": [7]}));
    assert_eq!((&ids["text"], &ids["token_ids"]), (&json!(""), &json!([7])));
    assert_eq!(choice(json!({"text": null}))["text"], "");
}

#[test]
fn values_are_the_text_of_the_reply() {
    let body = concat!(
        r#"{"id":"c","created":1,"model":"m","choices":[{"index":0,"message":{"content":"a\ud83d\/\u0000\n"},"#,
        "\"logprobs\":{\n\"content\":\r\n[ -0.12345678901234567890 ]\n},",
        r#""finish_reason":"stop"}]}"#
    );
    let reply = parse(Endpoint::Chat, body).unwrap();
    let stream = text(&terminal_stream(&streaming(Endpoint::Chat, ""), &reply));
    assert!(stream.contains(r#""content":"a\ud83d\/\u0000\n""#), "{stream}");
    assert!(stream.contains(r#"{ "content":  [ -0.12345678901234567890 ] }"#), "{stream}");
    assert_eq!(stream.matches("\n\n").count(), stream.matches("data: ").count());
    assert_eq!(stream.matches('\n').count(), 2 * stream.matches("data: ").count());
    assert!(!stream.contains('\r'));
}

#[test]
fn a_poor_reply_still_makes_chunks_that_clients_can_read() {
    for body in [
        r#"{"choices":[{"finish_reason":"stop"}]}"#,
        r#"{"id":null,"created":"x","model":5,"choices":[{"index":"x","finish_reason":"stop","message":"x"}]}"#,
        r#"{"choices":[{"finish_reason":"stop","message":{"role":5,"content":7,"tool_calls":"x","reasoning":[]}}]}"#,
    ] {
        let reply = parse(Endpoint::Chat, body).unwrap();
        let chunks = chunks(&terminal_stream(&streaming(Endpoint::Chat, ""), &reply));
        assert_eq!(chunks.len(), 2, "{body}");
        for chunk in &chunks {
            assert!(chunk["id"].is_string() && chunk["created"].is_u64());
            assert_eq!(chunk["model"], "asked");
            assert_eq!(chunk["choices"][0]["index"], 0);
        }
        assert_eq!(chunks[0]["choices"][0]["delta"]["role"], "assistant");
    }
}
