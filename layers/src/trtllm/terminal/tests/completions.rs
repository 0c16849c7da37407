//! Streamed completions.

use super::*;

#[test]
fn text_and_end_are_one_chunk_with_the_nulls_of_the_reply() {
    let reply = finished(completions_reply(), json!({"stop_reason": 5, "logprobs": {"tokens": ["Hi"]}}));
    let expected = json!({
        "id": "cmpl-1", "object": "text_completion", "created": 1_790_000_000, "model": "m",
        "choices": [{
            "index": 0, "text": "Hi", "token_ids": null, "logprobs": {"tokens": ["Hi"]}, "finish_reason": "stop",
            "stop_reason": 5, "avg_decoded_tokens_per_iter": null
        }],
        "usage": null
    });
    assert_eq!(streamed(Endpoint::Completions, &reply), [expected]);
    let older = json!({"choices": [{"text": "Hi", "finish_reason": "content_filter"}]});
    assert_eq!(
        streamed(Endpoint::Completions, &older)[0]["choices"],
        json!([{"index": 0, "text": "Hi", "logprobs": null, "finish_reason": "content_filter", "stop_reason": null}])
    );
}

#[test]
fn ids_may_stand_for_text() {
    let choice = |members: Json| {
        let reply = finished(completions_reply(), members);
        streamed(Endpoint::Completions, &reply)[0]["choices"][0].clone()
    };
    let ids = choice(json!({"text": "", "token_ids": [7]}));
    assert_eq!((&ids["text"], &ids["token_ids"]), (&json!(""), &json!([7])));
    assert_eq!(choice(json!({"text": null}))["text"], "");
}

#[test]
fn values_are_the_text_of_the_reply() {
    let body = concat!(
        r#"{"id":"c","created":1,"model":"m","choices":[{"index":0,"text":"a\ud83d\/\u0000\u2028","#,
        r#""logprobs":{"token_logprobs":[ -0.12345678901234567890 ]},"finish_reason":"st\u006fp"}]}"#
    );
    let reply = parse(Endpoint::Completions, body).unwrap();
    let stream = text(&terminal_stream(&streaming(Endpoint::Completions, ""), &reply));
    for kept in [r#""text":"a\ud83d\/\u0000\u2028""#, "-0.12345678901234567890", r#""st\u006fp""#] {
        assert!(stream.contains(kept), "{kept}: {stream}");
    }
}
