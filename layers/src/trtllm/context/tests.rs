use proptest::prelude::*;
use serde_json::{Map, Value as Json, json};

use super::*;
use crate::trtllm::{
    Endpoint,
    fixtures::{ID, id, object, request, text},
};

fn leg(body: &str) -> String {
    text(&context_body(&request(Endpoint::Chat, body), id()))
}

fn params() -> String {
    format!(
        r#""disaggregated_params":{{"request_type":"context_only","disagg_request_id":{ID},"schedule_style":0}}"#
    )
}

#[test]
fn stream_changes_in_place_and_its_options_go() {
    let leg = leg(r#"{"stream":true,"model":"m","stream_options":{"include_usage":true},"max_tokens":1}"#);
    assert_eq!(leg, format!(r#"{{"stream":false,"model":"m","max_tokens":1,{}}}"#, params()));
}

#[test]
fn stream_is_added_where_the_client_has_none_or_null() {
    assert_eq!(leg(r#"{"model":"m"}"#), format!(r#"{{"model":"m","stream":false,{}}}"#, params()));
    assert_eq!(leg(r#"{"stream":null}"#), format!(r#"{{"stream":false,{}}}"#, params()));
    assert_eq!(leg(r#"{"stream_options":null}"#), format!(r#"{{"stream":false,{}}}"#, params()));
}

#[test]
fn every_occurrence_and_spelling_of_a_key_counts() {
    let leg = leg(r#"{"stream":true,"str\u0065am":true,"stream\u005foptions":{},"stream_options":1}"#);
    assert_eq!(leg, format!(r#"{{"stream":false,{}}}"#, params()));
}

#[test]
fn limits_and_number_texts_stay() {
    let body = concat!(
        r#"{"min_tokens":8,"max_completion_tokens":64,"ignore_eos":true,"seed":9007199254740993,"#,
        r#""x_big":18446744073709551616,"x_neg":-9223372036854775809,"t":1.0e-7,"c":"\ud83d \/"}"#
    );
    let leg = leg(body);
    assert!(leg.starts_with(body.strip_suffix('}').unwrap()), "{leg}");
    assert!(!leg.contains("max_tokens\""));
}

proptest! {
    #[test]
    fn all_else_is_the_clients(
        client in prop::collection::btree_map("[a-zé_\\\\\"]{0,8}|stream|stream_options|max_tokens", any::<i64>(), 0..12)
    ) {
        let client: Map<String, Json> = client.into_iter().map(|(key, value)| (key, value.into())).collect();
        let made = object(&context_body(
            &request(Endpoint::Completions, &Json::Object(client.clone()).to_string()),
            id(),
        ));
        let mut expected = client;
        expected.remove("stream_options");
        expected.insert("stream".into(), false.into());
        expected.insert(
            "disaggregated_params".into(),
            json!({"request_type": "context_only", "disagg_request_id": ID, "schedule_style": 0}),
        );
        prop_assert_eq!(made, expected);
    }
}
