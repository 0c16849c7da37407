//! Whatever a reply says, a stream of it comes to the same.

use proptest::{collection::vec, option, prelude::*, sample::select};

use super::*;

/// Absent, null, empty or any text, line ends and halves of escapes among it.
fn maybe_text() -> impl Strategy<Value = Option<Json>> {
    option::of(prop_oneof![
        Just(Json::Null),
        Just(json!("")),
        any::<String>().prop_map(Json::from),
        "[\\\\\"\r\n\u{85}\u{2028}a😀]{1,8}".prop_map(Json::from),
    ])
}

fn maybe_calls() -> impl Strategy<Value = Option<Json>> {
    let call = (any::<String>(), any::<String>(), any::<String>()).prop_map(|(id, name, arguments)| {
        json!({"id": id, "type": "function", "function": {"name": name, "arguments": arguments}})
    });
    option::of(prop_oneof![Just(Json::Null), vec(call, 0..5).prop_map(Json::from)])
}

fn message() -> impl Strategy<Value = Json> {
    let texts = [maybe_text(), maybe_text(), maybe_text(), maybe_text()];
    (texts, maybe_calls()).prop_map(|([content, refusal, thought, reasoning], calls)| {
        let members = [
            ("content", content),
            ("refusal", refusal),
            ("reasoning_content", thought),
            ("reasoning", reasoning),
            ("tool_calls", calls),
        ];
        let members = members.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?)));
        Json::Object(members.collect())
    })
}

/// Finish reason, stop reason and logprobs.
fn ending() -> impl Strategy<Value = Json> {
    let finish = select(vec!["stop", "tool_calls", "content_filter"]);
    let stop = prop_oneof![
        Just(Json::Null),
        any::<i64>().prop_map(Json::from),
        any::<String>().prop_map(Json::from)
    ];
    // Quarters, since a test's JSON reader rounds.
    let logprobs = option::of((any::<String>(), -40_000..0).prop_map(|(token, quarters)| {
        json!({"content": [{"token": token, "logprob": f64::from(quarters) / 4.0}], "refusal": null})
    }));
    (finish, stop, logprobs).prop_map(|(finish, stop, logprobs)| {
        json!({"finish_reason": finish, "stop_reason": stop, "logprobs": logprobs})
    })
}

/// What is left of a choice when its texts and calls are apart.
fn check_ending(gathered: &Gathered, reply: &Json) {
    let choice = &reply["choices"][0];
    assert_eq!(gathered.finish, choice["finish_reason"]);
    assert_eq!(gathered.stop, choice["stop_reason"]);
    assert_eq!(gathered.logprobs, choice["logprobs"]);
    assert_eq!(gathered.usage, reply["usage"]);
}

const ASKED: &str = r#","stream_options":{"include_usage":true}"#;

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_chat_stream_comes_to_the_message(message in message(), ending in ending(), pretty: bool) {
        let mut reply = finished(chat_reply(), ending);
        reply["choices"][0]["message"] = message.clone();
        let body = if pretty { serde_json::to_string_pretty(&reply) } else { serde_json::to_string(&reply) };
        let parsed = parse(Endpoint::Chat, &body.unwrap()).unwrap();
        let gathered = Gathered::of(&chunks(&terminal_stream(&streaming(Endpoint::Chat, ASKED), &parsed)));

        let mut said = json!({"role": "assistant"});
        let texts = message.as_object().unwrap().iter().filter(|(_, value)| value.is_string());
        merge(&mut said, Json::Object(texts.map(|(key, value)| (key.clone(), value.clone())).collect()));
        prop_assert_eq!(Json::Object(gathered.texts.clone()), said);
        let calls = message["tool_calls"].as_array().cloned().unwrap_or_default();
        prop_assert_eq!(&gathered.calls, &calls);
        check_ending(&gathered, &reply);
    }

    #[test]
    fn a_completions_stream_comes_to_the_text(
        said in maybe_text(),
        ids in option::of(vec(any::<i64>(), 0..4)),
        ending in ending(),
    ) {
        let mut reply = finished(completions_reply(), ending);
        merge(&mut reply["choices"][0], json!({"text": said, "token_ids": ids}));
        let parsed = usable(Endpoint::Completions, &reply);
        let gathered = Gathered::of(&chunks(&terminal_stream(&streaming(Endpoint::Completions, ASKED), &parsed)));

        let text = said.filter(|said| !said.is_null()).unwrap_or_else(|| "".into());
        let expected = json!({"text": text, "token_ids": ids, "avg_decoded_tokens_per_iter": null});
        prop_assert_eq!(Json::Object(gathered.texts.clone()), expected);
        check_ending(&gathered, &reply);
    }

    #[test]
    fn a_whole_answer_is_the_reply_without_the_handoff(message in message(), ending in ending()) {
        let mut reply = finished(chat_reply(), ending);
        reply["choices"][0]["message"] = message;
        let whole = object(&terminal_whole(&usable(Endpoint::Chat, &reply)));
        let mut expected = without(without(reply, "prompt_token_ids"), "prompt_token_ids_b64");
        expected["choices"][0] = without(expected["choices"][0].clone(), "disaggregated_params");
        prop_assert_eq!(Json::Object(whole), expected);
    }
}
