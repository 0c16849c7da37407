use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::trtllm::{Endpoint, fixtures::*};

fn reply(state: serde_json::Value, endpoint: serde_json::Value) -> ContextReply {
    usable(
        Endpoint::Chat,
        &with_members(json!({"encoded_opaque_state": state, "ctx_info_endpoint": endpoint})),
    )
}

const STATE: &str = "QUJDREVGR0hJSktMTU5PUFFSU1RVVldYWVo/+/8x";

fn leaks(body: &str) -> bool {
    may_carry_state(body.as_bytes(), &reply(json!(STATE), json!("tcp://10.0.0.5:37771")))
}

#[test]
fn useful_errors_pass() {
    for body in [
        "",
        r#"{"error":"[{'type': 'extra_forbidden', 'loc': ('body', 'priority'), 'msg': 'Extra inputs are not permitted', 'input': 5}]"}"#,
        r#"{"object":"error","message":"prompt length (9000) exceeds max_seq_len (8192)\n","code":400}"#,
        r#"{"error":{"message":"quota \u2013 try later","code":429}}"#,
        "Internal Server Error",
        r"C:\users \\ \\\\ \u12",
    ] {
        assert!(!leaks(body), "{body}");
    }
}

#[test]
fn quotations_of_the_state_are_found_in_every_spelling() {
    let quoted = json!({"error": format!("input: {{'s': '{STATE}'}}")}).to_string();
    let twice = json!({"error": json!({"s": STATE}).to_string()}).to_string();
    for body in [
        quoted.clone(),
        quoted.replace('/', r"\/"),
        quoted.replace('/', r"\u002F").replace('+', r"\u002b"),
        twice.clone(),
        twice.replace('/', r"\\\/"),
        json!({"a": twice}).to_string().replace('Q', r"\\\\u0051"),
        // Shortened quotations show the beginning, or the end.
        format!("input_value='{}...'", &STATE[..20]),
        format!("input_value='...{}'", &STATE[STATE.len() - 18..]),
        STATE[STATE.len() - 18..].replace('/', r"\/"),
        "no context at tcp://10.0.0.5:37771".into(),
        "connect to 10.0.0.5:37771 failed".into(),
        r#"{"error":"tcp:\/\/10.0.0.5:37771"}"#.into(),
        "{'encoded_opaque_state': ...}".into(),
        r#"{"error":"bad ctx_info_endpoint"}"#.into(),
        r"\\\\\\\\".repeat(200) + r"\u005c".repeat(200).as_str(),
    ] {
        assert!(leaks(&body), "{body}");
    }
}

#[test]
fn size_alone_is_enough() {
    assert!(!leaks(&"x".repeat(MAX_RELAYED_ERROR)));
    assert!(leaks(&"x".repeat(MAX_RELAYED_ERROR + 1)));
}

#[test]
fn short_and_absent_states_do_not_match_by_accident() {
    let short = reply(json!("AA"), json!(null));
    assert!(!may_carry_state(b"the AAA team", &short));
    assert!(may_carry_state(b"{'x': 'AA'}", &short));
    let none = reply(json!(""), json!("tcp://10.0.0.5:37771"));
    assert!(!may_carry_state(b"anything ''", &none));
    let sample = reply(json!("b3BhcXVl"), json!("x"));
    assert!(may_carry_state(br#"{"message":"got b3BhcXVl here"}"#, &sample));
    assert!(!may_carry_state(b"except", &sample));
}

#[test]
fn a_state_with_escapes_in_the_reply_is_compared_plain() {
    let body = chat_reply().to_string().replace("AAECAwQ=", r"ab\/cdefghijklmnop\u003d");
    let reply = parse(Endpoint::Chat, &body).unwrap();
    assert!(may_carry_state(b"ab/cdefghijklmnop=", &reply));
    assert!(may_carry_state(br"ab\/cdefghijklmnop\u003d", &reply));
}

proptest! {
    #[test]
    fn any_bytes_are_judged_and_the_state_is_found_anywhere(
        before in prop::collection::vec(any::<u8>(), 0..300),
        after in prop::collection::vec(any::<u8>(), 0..300),
    ) {
        let reply = reply(json!(STATE), json!(null));
        let body = [&before[..], b"\"", STATE.as_bytes(), b"\"", &after[..]].concat();
        prop_assert!(may_carry_state(&body, &reply));
        may_carry_state(&before, &reply);
    }
}

#[test]
fn filler_at_the_ends_of_a_state_is_no_state() {
    let zeros = "A".repeat(20);
    for state in
        [format!("{zeros}QUJDREVGR0hJSktMTQ=="), format!("QUJDREVGR0hJSktMTQ{zeros}"), format!("{zeros}BCA=")]
    {
        let reply = reply(json!(state), json!(null));
        for text in [zeros.clone(), "A".repeat(64), format!("data:image/png;base64,{zeros}")] {
            assert!(!carries_state(text.as_bytes(), &reply), "{text} of {state}");
            assert!(!may_carry_state(text.as_bytes(), &reply), "{text} of {state}");
        }
        assert!(carries_state(format!("it is {state}.").as_bytes(), &reply), "{state}");
    }
}

#[test]
fn the_ends_of_a_state_are_found_however_it_is_written() {
    let long = format!("{STATE}{}{STATE}", "x".repeat(500));
    let escaped: String = long.bytes().map(|byte| format!("\\u{byte:04x}")).collect();
    for written in
        [json!(long).to_string(), format!("\"{escaped}\""), format!("\"{}\"", long.replace('/', r"\/"))]
    {
        let state: Box<serde_json::value::RawValue> = serde_json::from_str(&written).unwrap();
        let body = body_with_state(&state);
        let reply = ContextReply::parse(Endpoint::Chat, body.into()).unwrap();
        for part in [&STATE[..16], &STATE[STATE.len() - 16..]] {
            assert!(carries_state(part.as_bytes(), &reply), "{part} of {written}");
        }
    }
}

fn body_with_state(state: &serde_json::value::RawValue) -> String {
    format!(
        r#"{{"choices":[{{"finish_reason":"length","disaggregated_params":{{"ctx_request_id":1,"first_gen_tokens":[1],"encoded_opaque_state":{state}}}}}]}}"#
    )
}
