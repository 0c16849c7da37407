use proptest::prelude::*;
use serde_json::{Value as Json, json};

use super::*;
use crate::trtllm::{Endpoint, Engine, fixtures::*, generation_body};

/// A chat reply whose members of the handoff have these JSON texts; `None` leaves a member out.
pub(in crate::trtllm) fn reply(info_endpoint: Option<&str>, opaque_state: Option<&str>) -> ContextReply {
    let mut reply = chat_reply();
    let params = reply["choices"][0]["disaggregated_params"].as_object_mut().unwrap();
    for (key, text) in [("ctx_info_endpoint", info_endpoint), ("encoded_opaque_state", opaque_state)] {
        match text {
            Some(_) => params.insert(key.to_owned(), json!(format!("<{key}>"))),
            None => params.remove(key),
        };
    }
    let text = reply.to_string();
    let text = text.replacen("\"<ctx_info_endpoint>\"", info_endpoint.unwrap_or_default(), 1);
    parse(Endpoint::Chat, &text.replacen("\"<encoded_opaque_state>\"", opaque_state.unwrap_or_default(), 1))
        .unwrap()
}

pub(in crate::trtllm) fn message(info_endpoint: Option<&str>, opaque_state: Option<&str>) -> SignedMessage {
    let reply = reply(info_endpoint, opaque_state);
    SignedMessage::of(&reply, &Shape::between(&Engine::Unknown, &Engine::Unknown, &reply))
}

fn text(message: &SignedMessage) -> String {
    String::from_utf8(message.to_vec()).unwrap()
}

#[test]
fn absent_null_and_empty_members() {
    let tcp = Some(r#""tcp://10.0.0.5:37771""#);
    for (info_endpoint, opaque_state, expected) in [
        (
            tcp,
            Some(r#""AAEC""#),
            r#"{"ctx_info_endpoint":"tcp://10.0.0.5:37771","encoded_opaque_state":"AAEC"}"#,
        ),
        (None, Some(r#""AAEC""#), r#"{"ctx_info_endpoint":null,"encoded_opaque_state":"AAEC"}"#),
        (Some("null"), Some(r#""AAEC""#), r#"{"ctx_info_endpoint":null,"encoded_opaque_state":"AAEC"}"#),
        (Some(r#""""#), Some(r#""AAEC""#), r#"{"ctx_info_endpoint":"","encoded_opaque_state":"AAEC"}"#),
        (tcp, None, r#"{"ctx_info_endpoint":"tcp://10.0.0.5:37771","encoded_opaque_state":null}"#),
        (tcp, Some("null"), r#"{"ctx_info_endpoint":"tcp://10.0.0.5:37771","encoded_opaque_state":null}"#),
        (tcp, Some(r#""""#), r#"{"ctx_info_endpoint":"tcp://10.0.0.5:37771","encoded_opaque_state":""}"#),
        (
            Some(r#""null""#),
            Some(r#""null""#),
            r#"{"ctx_info_endpoint":"null","encoded_opaque_state":"null"}"#,
        ),
    ] {
        assert_eq!(text(&message(info_endpoint, opaque_state)), expected);
    }
}

/// The texts are what Python 3 makes of the same: `json.dumps(json.loads(text))`.
#[test]
fn escapes_are_those_of_the_worker_not_those_of_the_reply() {
    for (sent, signed) in [
        (r#""tcp:\/\/h\u003a1""#, r#""tcp://h:1""#),
        (r#""\u0041AE\u0043""#, r#""AAEC""#),
        (r#""\u0022\u005c\u005C\"\\""#, r#""\"\\\\\"\\""#),
        (r#""\b\f\n\r\t""#, r#""\b\f\n\r\t""#),
        (r#""\u0008\u000C\u000a\u000D\u0009\u0000\u001f\u000b""#, r#""\b\f\n\r\t\u0000\u001f\u000b""#),
        ("\"\u{7e}\u{7f}\u{80}\u{e9}\u{2028}\u{ffff}\"", r#""~\u007f\u0080\u00e9\u2028\uffff""#),
        (r#""\u007e\u007F\u0080\u00E9\u2028\uFFFF""#, r#""~\u007f\u0080\u00e9\u2028\uffff""#),
        ("\"\u{1f600}x\u{10ffff}\"", r#""\ud83d\ude00x\udbff\udfff""#),
        (r#""\ud83d\ude00x\uDBFF\uDFFF""#, r#""\ud83d\ude00x\udbff\udfff""#),
        // halves of pairs
        (r#""\ud83d""#, r#""\ud83d""#),
        (r#""\ude00 \uD83D\u0041\udfff""#, r#""\ude00 \ud83dA\udfff""#),
        (r#""\ud83d\ud83d\ude00""#, r#""\ud83d\ud83d\ude00""#),
        (r#"" ""#, r#"" ""#),
    ] {
        let expected = format!(r#"{{"ctx_info_endpoint":{signed},"encoded_opaque_state":"AAEC"}}"#);
        assert_eq!(text(&message(Some(sent), Some(r#""AAEC""#))), expected, "{sent}");
        let expected = format!(r#"{{"ctx_info_endpoint":"h","encoded_opaque_state":{signed}}}"#);
        assert_eq!(text(&message(Some(r#""h""#), Some(sent))), expected, "{sent}");
    }
}

#[test]
fn an_opaque_state_without_escapes_is_not_cut_up() {
    let state = format!("\"{}\"", "QUFB".repeat(75_000));
    let message = message(None, Some(&state));
    let mut pieces = Vec::new();
    message.for_each(|piece| pieces.push(piece.len()));
    assert!(pieces.len() < 10 && pieces.contains(&300_000), "{pieces:?}");
}

#[test]
fn debug_shows_no_content() {
    let message = message(Some(r#""tcp://CANARY""#), Some(r#""CANARY""#));
    let shown = format!("{message:?}");
    assert!(shown.contains("8 bytes") && !shown.contains("CANARY"), "{shown}");
}

#[test]
fn the_header_has_64_lower_case_digits_and_is_sensitive() {
    let mac = std::array::from_fn(|at| (at as u8).wrapping_mul(0x1f).wrapping_add(0x0a));
    let value = signature_value(mac).unwrap();
    let expected: String = mac.iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(value, format!("sha256={expected}"));
    assert!(value.is_sensitive());
    assert_eq!(SIGNATURE_HEADER, "x-trtllm-disagg-auth");
}

/// What a worker signs that was sent this request: it decodes the members and writes them again.
fn by_the_worker(body: &Json) -> String {
    let member = |name: &str| match body["disaggregated_params"].get(name) {
        None | Some(Json::Null) => "null".to_owned(),
        Some(value) => {
            let mut out = String::from("\"");
            for char in value.as_str().unwrap().chars() {
                match char {
                    '"' | '\\' => out.extend(['\\', char]),
                    '\u{8}' => out += "\\b",
                    '\t' => out += "\\t",
                    '\n' => out += "\\n",
                    '\u{c}' => out += "\\f",
                    '\r' => out += "\\r",
                    ' '..='~' => out.push(char),
                    _ => char
                        .encode_utf16(&mut [0; 2])
                        .iter()
                        .for_each(|unit| out += &format!("\\u{unit:04x}")),
                }
            }
            out + "\""
        }
    };
    let (endpoint, state) = (member("ctx_info_endpoint"), member("encoded_opaque_state"));
    format!(r#"{{"ctx_info_endpoint":{endpoint},"encoded_opaque_state":{state}}}"#)
}

/// A JSON string, each character escaped or not.
fn written() -> impl Strategy<Value = String> {
    let char = prop_oneof![
        any::<char>(),
        prop::char::range('\0', '\u{ff}'),
        "[A-Za-z0-9+/=]".prop_map(|one| one.chars().next().unwrap())
    ];
    let chars = prop::collection::vec((char, any::<bool>(), any::<bool>()), 1..40);
    chars.prop_map(|chars| {
        let mut out = String::from("\"");
        for (char, escaped, upper) in chars {
            if escaped {
                for unit in char.encode_utf16(&mut [0; 2]) {
                    out += &if upper { format!("\\u{unit:04X}") } else { format!("\\u{unit:04x}") };
                }
            } else {
                out +=
                    serde_json::to_string(&char).unwrap().trim_start_matches('"').strip_suffix('"').unwrap();
            }
        }
        out + "\""
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn what_is_signed_is_what_is_sent(
        endpoint in prop::option::of(written()),
        state in written(),
        context in prop::sample::select(&["1.2.0", "1.3.0rc5", "1.3.0rc24", "1.4.0rc1", "nightly"][..]),
        generation in prop::sample::select(&["1.2.0", "1.3.0rc5", "1.3.0rc24", "1.4.0rc1", "nightly"][..]),
    ) {
        let reply = reply(endpoint.as_deref(), Some(&state));
        let shape = Shape::between(&worker(context), &worker(generation), &reply);
        let sent = generation_body(&chat(), &reply, id(), &shape);
        let sent: Json = serde_json::from_slice(&sent.to_bytes()).unwrap();
        prop_assert_eq!(text(&SignedMessage::of(&reply, &shape)), by_the_worker(&sent));
    }
}

#[test]
fn a_member_that_is_not_sent_is_signed_as_null() {
    let reply = reply(Some(r#""tcp://10.0.0.5:37771""#), Some(r#""AAEC""#));
    // this release does not know the endpoint
    let shape = Shape::between(&Engine::Unknown, &worker("1.2.0"), &reply);
    assert_eq!(
        text(&SignedMessage::of(&reply, &shape)),
        r#"{"ctx_info_endpoint":null,"encoded_opaque_state":"AAEC"}"#
    );
}
