use proptest::prelude::*;

use super::*;
use crate::trtllm::fixtures::text;

fn clean(body: &str) -> String {
    text(&clean_generation_reply(Bytes::copy_from_slice(body.as_bytes())))
}

#[test]
fn state_is_removed_and_the_rest_keeps_its_bytes() {
    for (body, cleaned) in [
        (
            r#"{"id": 1e2,"choices":[{"index":0,"disaggregated_params":{"a":1},"x": 1.0}],"prompt_token_ids":[1],"usage":{}}"#,
            r#"{"id": 1e2,"choices":[{"index":0,"x": 1.0}],"usage":{}}"#,
        ),
        (
            r#"{"choices":[ {"disaggregated_params":null} , 5, {"b":1}, {"c":2,"disaggregated_params":3} ]}"#,
            r#"{"choices":[ {} , 5, {"b":1}, {"c":2} ]}"#,
        ),
        (r#"{"prompt_token_ids_b64":"AA","choices":[]}"#, r#"{"choices":[]}"#),
        (r#"{"prompt_token_ids":null}"#, "{}"),
        (r#"{"choices":[{"disaggregated\u005fparams":1,"disaggregated_params":2}]}"#, r#"{"choices":[{}]}"#),
        (
            r#"{"choices":[{"disaggregated_params":1}],"choices":[{"a":1,"disaggregated_params":1}]}"#,
            r#"{"choices":[{"a":1}]}"#,
        ),
        // The last of several is what a client reads; the state may be in another.
        (r#"{"choices":[{"disaggregated_params":1}],"id":5,"choices":[]}"#, r#"{"choices":[],"id":5}"#),
        (r#"{"choices":[{"disaggregated_params":1}],"choices":null}"#, r#"{"choices":null}"#),
        (
            r#"{"prompt_token_ids":[1],"choices":{"disaggregated_params":1}}"#,
            r#"{"choices":{"disaggregated_params":1}}"#,
        ),
    ] {
        assert_eq!(clean(body), cleaned);
    }
}

#[test]
fn bytes_without_state_are_the_very_same() {
    for body in [
        r#" { "choices" : [ { "message" : {"content":"disaggregated_params"} } ] } "#,
        r#"{"choices":null}"#,
        r#"{"error":"prompt_token_ids"}"#,
        "[]",
        "null",
        "not JSON",
        r#"{"prompt_token_ids":[1]"#,
        "",
    ] {
        let body = Bytes::from_static(body.as_bytes());
        let cleaned = clean_generation_reply(body.clone());
        assert_eq!(cleaned.to_bytes(), body);
        assert!(body.is_empty() || cleaned.parts()[0].as_ptr() == body.as_ptr());
    }
    let bytes = Bytes::from_static(b"\xff\xfe{}");
    assert_eq!(clean_generation_reply(bytes.clone()).to_bytes(), bytes);
}

proptest! {
    #[test]
    fn any_bytes_come_through(body in prop::collection::vec(any::<u8>(), 0..200)) {
        // No JSON object comes out of this generator often enough to matter.
        prop_assert_eq!(clean_generation_reply(body.clone().into()).to_bytes(), body);
    }
}
