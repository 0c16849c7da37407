//! Streamed chat answers.

use super::*;

fn deltas(reply: &Json) -> Vec<Json> {
    let chunks = streamed(Endpoint::Chat, reply);
    chunks.iter().map(|chunk| chunk["choices"][0]["delta"].clone()).collect()
}

#[test]
fn says_all_that_the_reply_says() {
    let logprobs = json!({"content": [{"token": "Yes", "logprob": -0.5}]});
    let reply = finished(
        said(json!({"content": "Yes é", "reasoning_content": "Hm"})),
        json!({"stop_reason": "END", "logprobs": logprobs, "avg_decoded_tokens_per_iter": 1.5}),
    );
    let chunks = streamed(Endpoint::Chat, &reply);
    let choices: Vec<_> = chunks.iter().map(|chunk| chunk["choices"].clone()).collect();
    assert_eq!(
        choices,
        [
            json!([{"index": 0, "delta": {"role": "assistant"}, "finish_reason": null}]),
            json!([{
                "index": 0, "delta": {"content": "", "reasoning_content": "Hm"}, "finish_reason": null
            }]),
            json!([{
                "index": 0, "delta": {"content": "Yes é", "reasoning_content": ""}, "logprobs": logprobs,
                "finish_reason": null
            }]),
            json!([{
                "index": 0, "delta": {}, "finish_reason": "stop", "stop_reason": "END",
                "avg_decoded_tokens_per_iter": 1.5
            }]),
        ]
    );
    let gathered = Gathered::of(&chunks);
    assert_eq!(
        Json::Object(gathered.texts),
        json!({"role": "assistant", "content": "Yes é", "reasoning_content": "Hm"})
    );
    assert_eq!((gathered.stop, gathered.logprobs), (json!("END"), logprobs));
}

#[test]
fn thoughts_come_first_and_once() {
    let role = json!({"role": "assistant"});
    for (message, expected) in [
        (json!({}), vec![]),
        (json!({"content": null, "reasoning_content": null}), vec![]),
        (json!({"content": "Hi"}), vec![json!({"content": "Hi"})]),
        (json!({"content": ""}), vec![json!({"content": ""})]),
        (
            json!({"content": "", "reasoning_content": ""}),
            vec![json!({"content": "", "reasoning_content": ""})],
        ),
        (
            json!({"content": "", "reasoning_content": "Hm"}),
            vec![json!({"content": "", "reasoning_content": "Hm"})],
        ),
        (json!({"content": null, "reasoning_content": "Hm"}), vec![json!({"reasoning_content": "Hm"})]),
        (
            json!({"content": "Hi", "reasoning": "Hm", "reasoning_content": null}),
            vec![json!({"content": "", "reasoning": "Hm"}), json!({"content": "Hi", "reasoning": ""})],
        ),
        // A reply of this shape is not known; a client that takes the first name it finds shows the thought once.
        (
            json!({"content": "Hi", "reasoning": "Hm", "reasoning_content": "Hm"}),
            vec![
                json!({"content": "", "reasoning": "Hm", "reasoning_content": "Hm"}),
                json!({"content": "Hi", "reasoning": "", "reasoning_content": ""}),
            ],
        ),
        (json!({"content": null, "refusal": "No."}), vec![json!({"refusal": "No."})]),
        (
            json!({"content": "Hi", "refusal": "", "reasoning_content": "Hm"}),
            vec![
                json!({"content": "", "refusal": "", "reasoning_content": "Hm"}),
                json!({"content": "Hi", "refusal": "", "reasoning_content": ""}),
            ],
        ),
    ] {
        let mut reply = finished(chat_reply(), json!({}));
        reply["choices"][0]["message"] = message.clone();
        let all: Vec<_> = [role.clone()].into_iter().chain(expected).chain([json!({})]).collect();
        assert_eq!(deltas(&reply), all, "{message}");
    }
}

#[test]
fn an_empty_answer_is_an_empty_text() {
    let chunks = streamed(Endpoint::Chat, &said(json!({"content": ""})));
    let gathered = Gathered::of(&chunks);
    assert_eq!(gathered.texts["content"], "");
    assert_eq!(gathered.finish, "stop");
    let last = &chunks.last().unwrap()["choices"][0];
    assert!(last.get("stop_reason").is_none() && last.get("logprobs").is_none(), "{last}");
}

#[test]
fn the_role_is_the_replys() {
    assert_eq!(deltas(&said(json!({"role": "user"})))[0], json!({"role": "user"}));
    for none in [json!({"role": null}), json!({"role": 5})] {
        assert_eq!(deltas(&said(none))[0], json!({"role": "assistant"}));
    }
}

#[test]
fn logprobs_are_told_once_and_with_the_last_text() {
    let logprobs = json!({"content": []});
    for (message, at) in [
        (json!({"content": "Hi"}), 1),
        (json!({"content": "Hi", "reasoning_content": "Hm"}), 2),
        (json!({"content": "", "reasoning_content": "Hm"}), 1),
        (json!({"content": null, "reasoning_content": null}), 1),
        (json!({"content": "", "tool_calls": [{"id": "a"}, {"id": "b"}]}), 1),
        (json!({"content": null, "reasoning_content": null, "tool_calls": [{"id": "a"}]}), 2),
    ] {
        let reply = finished(said(message.clone()), json!({"logprobs": logprobs}));
        let chunks = streamed(Endpoint::Chat, &reply);
        let told: Vec<_> =
            (0..chunks.len()).filter(|at| chunks[*at]["choices"][0].get("logprobs").is_some()).collect();
        assert_eq!(told, [at], "{message}");
        assert_eq!(chunks[at]["choices"][0]["logprobs"], logprobs);
    }
}

#[test]
fn each_call_has_a_chunk_and_an_index() {
    let calls = json!([
        {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{\"x\":1}"}},
        {"id": "b", "type": "function", "function": {"name": "g", "arguments": "{}"}, "index": 9},
        {"id": "c", "type": "custom", "custom": {"name": "h", "input": "\u{1f600}"}}
    ]);
    let mut reply = said(json!({"content": null, "reasoning_content": null, "tool_calls": calls}));
    merge(&mut reply["choices"][0], json!({"finish_reason": "tool_calls"}));
    let deltas = deltas(&reply);
    let mut expected = calls;
    for (at, call) in expected.as_array_mut().unwrap().iter_mut().enumerate() {
        merge(call, json!({"index": at}));
        assert_eq!(deltas[at + 1], json!({"tool_calls": [call]}));
    }
    assert_eq!((deltas.len(), &deltas[4]), (5, &json!({})));
    assert_eq!(Gathered::of(&streamed(Endpoint::Chat, &reply)).finish, "tool_calls");
}

#[test]
fn very_many_calls_share_the_last_chunk() {
    let calls: Vec<_> = (0..1000).map(|at| json!({"id": at.to_string()})).collect();
    let chunks = streamed(Endpoint::Chat, &said(json!({"content": "", "tool_calls": calls})));
    assert_eq!(chunks.len(), 1 + 1 + 128 + 1);
    let gathered = Gathered::of(&chunks);
    assert_eq!(gathered.calls, calls);
}

#[test]
fn values_are_the_text_of_the_reply() {
    let body = concat!(
        r#"{"id":"c","created":1,"model":"m","choices":[{"index":0,"message":{"content":"a\ud83d\/\u0000\n😀\ud83d\ude00e\u0301"},"#,
        "\"logprobs\":{\n\"content\":\r\n[ -0.12345678901234567890 ]\n},",
        r#""finish_reason":"stop"}]}"#
    );
    let reply = parse(Endpoint::Chat, body).unwrap();
    let stream = text(&terminal_stream(&streaming(Endpoint::Chat, ""), &reply));
    assert!(stream.contains(r#""content":"a\ud83d\/\u0000\n😀\ud83d\ude00e\u0301""#), "{stream}");
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
        r#"{"choices":[{"finish_reason":"stop","message":{"tool_calls":["x",null,[]]}}],"usage":7}"#,
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
