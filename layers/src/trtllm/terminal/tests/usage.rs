//! Which chunks tell the usage.

use super::*;

/// Whether these `stream_options` ask for the usage in every chunk, and in a chunk of its own at the end.
fn table() -> Vec<(&'static str, bool, bool)> {
    vec![
        ("", false, false),
        (r#","stream_options":null"#, false, false),
        (r#","stream_options":{}"#, false, true),
        (r#","stream_options":{"include_usage":true}"#, false, true),
        (r#","stream_options":{"include_usage":false}"#, false, false),
        (r#","stream_options":{"include_usage":null}"#, false, false),
        (r#","stream_options":{"include_usage":true,"continuous_usage_stats":true}"#, true, true),
        (r#","stream_options":{"continuous_usage_stats":true}"#, true, true),
        (r#","stream_options":{"include_usage":true,"continuous_usage_stats":false}"#, false, true),
        (r#","stream_options":{"include_usage":true,"continuous_usage_stats":null}"#, false, true),
        (r#","stream_options":{"include_usage":false,"continuous_usage_stats":true}"#, false, false),
    ]
}

#[test]
fn comes_where_it_was_asked_for() {
    for (endpoint, reply) in [(Endpoint::Chat, chat_reply()), (Endpoint::Completions, completions_reply())] {
        let all = reply["usage"].clone();
        let mut before = all.clone();
        merge(&mut before, json!({"total_tokens": 3, "completion_tokens": 0}));
        let reply = usable(endpoint, &finished(reply, json!({})));
        for (options, throughout, at_end) in table() {
            let mut chunks = chunks(&terminal_stream(&streaming(endpoint, options), &reply));
            if at_end {
                let last = chunks.pop().unwrap();
                assert_eq!((&last["choices"], &last["usage"]), (&json!([]), &all), "{options}");
            }
            for (at, chunk) in chunks.iter().enumerate() {
                assert_eq!(chunk["choices"].as_array().unwrap().len(), 1, "{options}");
                // Where a worker's chunks have nulls, there is one here.
                let none = (endpoint == Endpoint::Completions).then_some(&Json::Null);
                let first_of_chat = at == 0 && endpoint == Endpoint::Chat;
                let told = if first_of_chat { &before } else { &all };
                let expected = if throughout { Some(told) } else { none };
                assert_eq!(chunk.get("usage"), expected, "chunk {at}, {options}");
            }
        }
    }
}

#[test]
fn is_the_replys_to_the_digit() {
    let body = r#"{"choices":[{"finish_reason":"stop"}],"usage":{ "prompt_tokens":18446744073709551616,"x":1.00,
        "total_tokens":9,"completion_tokens":5,"completion_tokens_details":{"reasoning_tokens":5}}}"#;
    let reply = parse(Endpoint::Chat, body).unwrap();
    let asked = streaming(Endpoint::Chat, r#","stream_options":{"continuous_usage_stats":true}"#);
    let stream = text(&terminal_stream(&asked, &reply));
    chunks(&terminal_stream(&asked, &reply));
    let whole =
        r#"{ "prompt_tokens":18446744073709551616,"x":1.00,         "total_tokens":9,"completion_tokens":5,"#;
    assert_eq!(stream.matches(whole).count(), 2, "{stream}");
    let prompt = concat!(
        r#"{ "prompt_tokens":18446744073709551616,"x":1.00,         "total_tokens":18446744073709551616,"#,
        r#""completion_tokens":0}"#
    );
    assert_eq!(stream.matches(prompt).count(), 1, "{stream}");
}

#[test]
fn is_not_made_up() {
    let options = r#","stream_options":{"continuous_usage_stats":true}"#;
    for (usage, told) in [
        (json!(null), vec![]),
        // Of an odd one, what can be told of it.
        (json!(7), vec![json!(7), json!(7), json!(7)]),
        (json!({"prompt_tokens": null}), vec![json!({"prompt_tokens": null}); 3]),
    ] {
        let mut reply = finished(chat_reply(), json!({}));
        merge(&mut reply, json!({"usage": usage}));
        let reply = usable(Endpoint::Chat, &reply);
        let chunks = chunks(&terminal_stream(&streaming(Endpoint::Chat, options), &reply));
        let found: Vec<_> = chunks.iter().filter_map(|chunk| chunk.get("usage").cloned()).collect();
        assert_eq!(found, told);
        assert!(chunks[0].get("usage").is_none());
    }
}
