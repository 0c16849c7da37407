use proptest::prelude::*;
use serde_json::{Value as Json, json};

use super::*;
use crate::trtllm::{
    Endpoint,
    fixtures::{ID, client, id, object, request, text},
};

fn leg(body: &str) -> String {
    text(&context_body(&request(Endpoint::Chat, body), id()))
}

fn params_value() -> String {
    format!(r#"{{"request_type":"context_only","disagg_request_id":{ID},"schedule_style":0}}"#)
}

fn params() -> String {
    format!(r#""disaggregated_params":{}"#, params_value())
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
fn every_spelling_of_a_key_counts() {
    let leg = leg(r#"{"str\u0065am":true,"stream\u005foptions":{},"disaggregated\u005fparams":null,"x":1}"#);
    assert_eq!(
        leg,
        format!(r#"{{"str\u0065am":false,"disaggregated\u005fparams":{},"x":1}}"#, params_value())
    );
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
    fn all_else_is_the_clients(mut client in client(Endpoint::Completions)) {
        let made = object(&context_body(
            &request(Endpoint::Completions, &Json::Object(client.clone()).to_string()),
            id(),
        ));
        client.remove("stream_options");
        client.insert("stream".into(), false.into());
        client.insert(
            "disaggregated_params".into(),
            json!({"request_type": "context_only", "disagg_request_id": ID, "schedule_style": 0}),
        );
        prop_assert_eq!(made, client);
    }
}
