use super::*;
use crate::trtllm::RequestErrorKind::{self, HandoffFields, Invalid};

const HOSTILE: &str = r#"{"model":"m","disaggregated_params":{"request_type":"generation_only"}}"#;

fn verdict(content_type: Option<&[u8]>, body: &[u8]) -> Result<(), RequestErrorKind> {
    let content_type = content_type.map(|value| HeaderValue::from_bytes(value).unwrap());
    check_passthrough(content_type.as_ref(), &Bytes::copy_from_slice(body)).map_err(|error| error.kind())
}

fn json(body: &[u8]) -> Result<(), RequestErrorKind> {
    verdict(Some(b"application/json"), body)
}

#[test]
fn what_could_be_json_is_read() {
    let types: &[Option<&[u8]>] = &[
        None,
        Some(b"application/json"),
        Some(b"Application/JSON"),
        Some(b"application/json; charset=utf-16"),
        Some(b"application/json;charset=utf-8;x=\"a/b\""),
        Some(b"  application/json\t;"),
        Some(b"application/vnd.api+json"),
        Some(b"application/vnd.API+Json ; v=1"),
        Some(b"text/json"),
        // Not well formed, so anybody's guess.
        Some(b""),
        Some(b"json"),
        Some(b";"),
        Some(b"/"),
        Some(b"text/"),
        Some(b"text/plain, application/json"),
        Some(b"application/json, text/plain"),
        Some(b"text/plain/json"),
        Some(b"application /json"),
        Some(b"application/(x)json"),
        Some(b"text/plain\xff"),
    ];
    for content_type in types {
        let shown = content_type.map(String::from_utf8_lossy);
        assert_eq!(verdict(*content_type, HOSTILE.as_bytes()), Err(HandoffFields), "{shown:?}");
        assert_eq!(verdict(*content_type, b"{\"model\":\"m\"}"), Ok(()), "{shown:?}");
        assert_eq!(verdict(*content_type, b""), Ok(()), "{shown:?}");
    }
}

#[test]
fn other_types_pass_unread() {
    for content_type in [
        "text/plain",
        "text/plain; x=application/json",
        "application/x-www-form-urlencoded",
        "multipart/form-data; boundary=x",
        "application/jsonl",
        "application/json5",
        "application/x-ndjson",
        "image/png",
    ] {
        assert_eq!(verdict(Some(content_type.as_bytes()), HOSTILE.as_bytes()), Ok(()), "{content_type}");
        assert_eq!(verdict(Some(content_type.as_bytes()), b"\xff\xfe\0"), Ok(()), "{content_type}");
    }
}

#[test]
fn every_occurrence_of_a_decoded_key_counts() {
    for body in [
        HOSTILE,
        r#"{"disaggregated\u005fparams":{"request_type":"context_only"}}"#,
        r#"{"disaggregated_params":null,"disaggregated_params":[1]}"#,
        r#"{"disaggregated_params":[1],"disaggregated_params":null}"#,
        r#"{"prompt_token_ids":[1]}"#,
        r#"{"prompt_token_ids_b64":"AAAA"}"#,
        r#"{"injected_chat_template_kwargs":{}}"#,
        r#"{"conversation_params":{"subagent_affinity_id":"a"},"conversation_params":null}"#,
    ] {
        assert_eq!(json(body.as_bytes()), Err(HandoffFields), "{body}");
    }
    for body in [
        r#"{"disaggregated_params":null,"disaggregated_params":{}}"#,
        r#"{"stream":"yes","n":5,"n":6,"prompt":["a","b"],"echo":true}"#,
        r#"{"input":{"disaggregated_params":{"a":1}}}"#,
        r#"{"x":"\ud83d"}"#,
    ] {
        assert_eq!(json(body.as_bytes()), Ok(()), "{body}");
    }
}

#[test]
fn a_body_that_cannot_be_judged_is_refused() {
    let units: Vec<u16> = HOSTILE.encode_utf16().collect();
    let (le, be): (Vec<u8>, Vec<u8>) = (
        units.iter().flat_map(|unit| unit.to_le_bytes()).collect(),
        units.iter().flat_map(|unit| unit.to_be_bytes()).collect(),
    );
    let wide: Vec<u8> = HOSTILE.chars().flat_map(|char| u32::from(char).to_le_bytes()).collect();
    let many: Vec<String> = (0..2000).map(|number| format!("\"k{number}\":0")).collect();
    for body in [
        le.clone(),
        be.clone(),
        [b"\xff\xfe".to_vec(), le].concat(),
        [b"\xfe\xff".to_vec(), be].concat(),
        wide,
        [b"\xef\xbb\xbf".to_vec(), HOSTILE.into()].concat(),
        b"{".to_vec(),
        b"{\"a\":NaN}".to_vec(),
        b"{} {}".to_vec(),
        b"{\"\\ud83d\":1}".to_vec(),
        b"\x1f\x8b\x08".to_vec(),
        b"not json".to_vec(),
        format!("{{{}}}", many.join(",")).into_bytes(),
        "[".repeat(200_000).into_bytes(),
    ] {
        assert_eq!(json(&body), Err(Invalid), "{:.40}", String::from_utf8_lossy(&body));
        assert_eq!(verdict(None, &body), Err(Invalid));
    }
}

#[test]
fn json_without_members_passes() {
    for body in [
        "",
        " \r\n",
        "[]",
        "null",
        "5",
        "\"disaggregated_params\"",
        "[{\"disaggregated_params\":{\"a\":1}}]",
        "{}",
    ] {
        assert_eq!(json(body.as_bytes()), Ok(()), "{body}");
    }
}
