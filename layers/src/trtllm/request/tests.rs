use super::{
    Endpoint::{Chat, Completions},
    RequestErrorKind::{HandoffFields, Invalid, Unsupported},
    *,
};

type Verdict = Result<Delivery, (RequestErrorKind, Option<&'static str>)>;

fn verdict(endpoint: Endpoint, body: &str) -> Verdict {
    let body = Bytes::copy_from_slice(body.as_bytes());
    ClientRequest::parse(endpoint, body)
        .map(|request| request.delivery())
        .map_err(|error| (error.kind(), error.field()))
}

/// The verdict on a request with these members besides the usual ones.
fn with(endpoint: Endpoint, members: &str) -> Verdict {
    let usual = match endpoint {
        Chat => r#""model":"m","messages":[{"role":"user","content":"hi"}]"#,
        Completions => r#""model":"m","prompt":"hi""#,
    };
    verdict(endpoint, &format!("{{{usual},{members}}}"))
}

fn on_both(members: &str, expected: Verdict) {
    assert_eq!(with(Chat, members), expected, "chat: {members}");
    assert_eq!(with(Completions, members), expected, "completions: {members}");
}

fn refused(kind: RequestErrorKind, field: &'static str) -> Verdict {
    Err((kind, Some(field)))
}

const WHOLE: Verdict = Ok(Delivery::Whole);
const STREAM: Verdict = Ok(Delivery::Stream { usage: StreamUsage::Never });

#[test]
fn only_the_exact_paths_are_handed_off() {
    assert_eq!(Endpoint::from_path("/v1/chat/completions"), Some(Chat));
    assert_eq!(Endpoint::from_path("/v1/completions"), Some(Completions));
    for path in [
        "",
        "/",
        "/v1/completions/",
        "/V1/completions",
        "//v1/completions",
        "/v1/chat/completions?x",
        "/v1/responses",
    ] {
        assert_eq!(Endpoint::from_path(path), None, "{path}");
    }
    assert_eq!(
        [Chat, Completions].map(|endpoint| Endpoint::from_path(endpoint.path())),
        [Some(Chat), Some(Completions)]
    );
}

#[test]
fn the_body_is_kept_as_it_came() {
    let text = " {\"messages\" : [], \"seed\":9007199254740993,\"x\":1e400, \"c\":\"\\ud83d\" }\n";
    let body = Bytes::from(text);
    let request = ClientRequest::parse(Chat, body.clone()).unwrap();
    assert_eq!(request.body().as_ptr(), body.as_ptr());
    assert_eq!(request.body(), text);
    assert_eq!(request.object().members().count(), 4);
    assert_eq!((request.endpoint(), request.delivery()), (Chat, Delivery::Whole));
    let clone = request.clone();
    assert_eq!(clone.body().as_ptr(), body.as_ptr());
}

#[test]
fn a_body_is_exactly_one_object() {
    for body in [
        "",
        " ",
        "[]",
        "null",
        "\"{}\"",
        "{}{}",
        "{} x",
        "\u{feff}{}",
        "{\"a\":}",
        &"[".repeat(200_000),
        "{\"a\":NaN}",
    ] {
        for endpoint in [Chat, Completions] {
            assert_eq!(verdict(endpoint, body), Err((Invalid, None)), "{:.20}", body);
        }
    }
    let utf16: Vec<u8> = "{\"messages\":[]}".encode_utf16().flat_map(u16::to_le_bytes).collect();
    for body in [utf16.clone(), [b"\xff\xfe".to_vec(), utf16].concat(), b"{\"a\":\"\xff\"}".to_vec()] {
        let error = ClientRequest::parse(Chat, body.into()).unwrap_err();
        assert_eq!((error.kind(), error.field()), (Invalid, None));
        assert!(std::error::Error::source(&error).is_some());
    }
}

#[test]
fn fields_that_nobody_here_knows_pass() {
    let deep = format!("{}{}", "{\"a\":".repeat(200) + "1", "}".repeat(200));
    for members in [
        r#""tools":[{"type":"function","function":{"name":"f"}}],"tool_choice":"auto""#,
        r#""response_format":{"type":"json_schema","json_schema":{"n":2,"stream":"x","prompt":[]}}"#,
        r#""chat_template_kwargs":{"enable_thinking":false},"stop":["\n\n","é"],"vendor_x":{"a":[null,true,{}]}"#,
        r#""":1,"metadata":{"disaggregated_params":{"x":1}},"nvext":{},"temperature":1e999,"x":1,"x":2"#,
        r#""max_tokens":null,"user":"\ud83d","seed":18446744073709551616"#,
        r#""conversation_params":{"conversation_id":"a"}"#,
        r#""N":2,"Stream":"yes","ctx_request_id":5"#,
        &format!("\"tools\":{deep}"),
    ] {
        on_both(members, WHOLE);
    }
}

#[test]
fn stream_is_a_truth_value_or_null() {
    for (members, delivery) in [
        (r#""stream":true"#, STREAM),
        (r#""stream":false"#, WHOLE),
        (r#""stream":null"#, WHOLE),
        (r#""str\u0065am":true"#, STREAM),
    ] {
        on_both(members, delivery);
    }
    for value in ["1", "0", "\"true\"", "\"yes\"", "\"\"", "[]", "{}", "1.0"] {
        on_both(&format!("\"stream\":{value}"), refused(Invalid, "stream"));
    }
}

#[test]
fn options_of_a_stream_need_one() {
    for stream in ["", r#","stream":false"#, r#","stream":null"#] {
        for options in [r#"{"include_usage":true}"#, r#"{"include_usage":null}"#, r#"{"x":1}"#] {
            on_both(&format!(r#""stream_options":{options}{stream}"#), refused(Invalid, "stream_options"));
        }
        // here the endpoints differ, as a worker's do
        let chat = format!(r#"{{"messages":[],"stream_options":{{ }}{stream}}}"#);
        assert_eq!(verdict(Chat, &chat), refused(Invalid, "stream_options"));
        let completion = format!(r#"{{"prompt":"x","stream_options":{{ }}{stream}}}"#);
        assert_eq!(verdict(Completions, &completion), WHOLE);
        on_both(&format!(r#""stream_options":null{stream}"#), WHOLE);
    }
}

#[test]
fn usage_is_asked_for_in_stream_options() {
    use StreamUsage::{AtEnd, Never, Throughout};
    for (options, usage) in [
        ("null", Never),
        ("{}", AtEnd),
        (r#"{"include_usage":true}"#, AtEnd),
        (r#"{"include_usag\u0065":true}"#, AtEnd),
        (r#"{"include_usage":false}"#, Never),
        (r#"{"include_usage":null}"#, Never),
        (r#"{"include_usage":true,"continuous_usage_stats":true}"#, Throughout),
        (r#"{"include_usage":true,"continuous_usage_stats":false}"#, AtEnd),
        (r#"{"include_usage":true,"continuous_usage_stats":null}"#, AtEnd),
        (r#"{ "continuous_usage_stats":true }"#, Throughout),
        (r#"{"include_usage":false,"continuous_usage_stats":true}"#, Never),
        (r#"{"include_usage":null,"continuous_usage_stats":true}"#, Never),
    ] {
        on_both(&format!(r#""stream":true,"stream_options":{options}"#), Ok(Delivery::Stream { usage }));
    }
    for value in ["true", "false", "[]", "\"\"", "0", r#"{"include_obfuscation":true}"#, r#"{"x":null}"#] {
        let members = format!("\"stream\":true,\"stream_options\":{value}");
        on_both(&members, refused(Invalid, "stream_options"));
    }
    for (member, field) in [
        ("include_usage", "stream_options.include_usage"),
        ("continuous_usage_stats", "stream_options.continuous_usage_stats"),
    ] {
        for value in ["1", "\"true\"", "{}"] {
            let members = format!(r#""stream":true,"stream_options":{{"{member}":{value}}}"#);
            on_both(&members, refused(Invalid, field));
        }
        let (last, rest) = (member.chars().last().unwrap(), &member[..member.len() - 1]);
        let escaped = format!("{rest}\\u{:04x}", u32::from(last));
        let members = format!(r#""stream_options":{{"{member}":true,"{escaped}":false}}"#);
        on_both(&members, refused(Invalid, field));
    }
}

#[test]
fn there_is_one_choice() {
    for field in ["n", "best_of"] {
        for value in ["1", "1.0", "1e0", "10E-1", "null"] {
            on_both(&format!("\"{field}\":{value}"), WHOLE);
        }
        for value in ["2", "2.0", "1e1", "128", "18446744073709551616", &"9".repeat(300)] {
            on_both(&format!("\"{field}\":{value}"), refused(Unsupported, field));
        }
        for value in [
            "0", "-0", "-1", "1.5", "0.1", "\"2\"", "\"1\"", "true", "false", "[]", "{}", "1e400", "1e-400",
            "-1e400",
        ] {
            on_both(&format!("\"{field}\":{value}"), refused(Invalid, field));
        }
    }
    on_both(r#""use_beam_search":true"#, refused(Unsupported, "use_beam_search"));
    on_both(r#""use_beam_search":true,"n":1"#, refused(Unsupported, "use_beam_search"));
    on_both(r#""use_beam_search":true,"n":2"#, refused(Unsupported, "n"));
    on_both(r#""use_beam_search":false,"n":1,"best_of":1"#, WHOLE);
    on_both(r#""use_beam_search":null"#, WHOLE);
    on_both(r#""use_beam_search":1"#, refused(Invalid, "use_beam_search"));
}

#[test]
fn a_completion_has_one_prompt() {
    let many = format!("[{}]", vec!["1"; 200_000].join(","));
    let nested = format!("[[{}]]", vec!["1"; 200_000].join(","));
    for prompt in [
        "\"a\"",
        "\"\"",
        "[\"a\"]",
        "[\"\"]",
        "[1,2]",
        "[1]",
        "[[1,2]]",
        "[[]]",
        "[1.0,2]",
        "[true]",
        "\"\\ud83d\"",
        &many,
        &nested,
    ] {
        assert_eq!(verdict(Completions, &format!("{{\"prompt\":{prompt}}}")), WHOLE, "{:.40}", prompt);
    }
    for prompt in ["[\"a\",\"b\"]", "[[1],[2]]", "[[1],\"a\"]", "[\"a\",1]", "[[],[]]", "[\"a\",null]"] {
        let body = format!("{{\"prompt\":{prompt}}}");
        assert_eq!(verdict(Completions, &body), refused(Unsupported, "prompt"), "{prompt}");
    }
    for prompt in ["[]", "[ ]", "null", "5", "{}", "true", "[null]", "[{}]", "[{},{}]"] {
        let body = format!("{{\"prompt\":{prompt}}}");
        assert_eq!(verdict(Completions, &body), refused(Invalid, "prompt"), "{prompt}");
    }
    assert_eq!(verdict(Completions, r#"{"model":"m"}"#), refused(Invalid, "prompt"));
    assert_eq!(verdict(Completions, r#"{"prompt":"a","prompt":"b"}"#), refused(Invalid, "prompt"));
    // On chat it is a field like any other.
    assert_eq!(with(Chat, r#""prompt":["a","b"],"prompt":5"#), WHOLE);
}

#[test]
fn a_completion_does_not_echo() {
    assert_eq!(with(Completions, "\"echo\":true"), refused(Unsupported, "echo"));
    assert_eq!(with(Completions, "\"echo\":false"), WHOLE);
    assert_eq!(with(Completions, "\"echo\":null"), WHOLE);
    assert_eq!(with(Completions, "\"echo\":\"true\""), refused(Invalid, "echo"));
    assert_eq!(with(Completions, "\"echo\":false,\"ec\\u0068o\":true"), refused(Invalid, "echo"));
    assert_eq!(with(Chat, "\"echo\":true"), WHOLE);
}

#[test]
fn messages_are_a_list_when_they_are_there() {
    for (body, expected) in [
        (r#"{"messages":[]}"#, WHOLE),
        (r#"{}"#, WHOLE),
        (r#"{"messages":null}"#, refused(Invalid, "messages")),
        (r#"{"messages":"hi"}"#, refused(Invalid, "messages")),
        (r#"{"messages":{}}"#, refused(Invalid, "messages")),
        (r#"{"messages":[],"messages":[]}"#, refused(Invalid, "messages")),
    ] {
        assert_eq!(verdict(Chat, body), expected, "{body}");
    }
    assert_eq!(with(Completions, r#""messages":5"#), WHOLE);
}

#[test]
fn fields_that_decide_occur_once() {
    for (field, value) in [
        ("stream", "false"),
        ("stream_options", "null"),
        ("n", "1"),
        ("best_of", "null"),
        ("use_beam_search", "false"),
        ("disaggregated_params", "null"),
        ("prompt_token_ids", "null"),
        ("prompt_token_ids_b64", "null"),
    ] {
        on_both(&format!("\"{field}\":{value}"), WHOLE);
        on_both(&format!("\"{field}\":{value},\"{field}\":{value}"), refused(Invalid, field));
        let spelt = format!("\\u{:04x}{}", field.as_bytes()[0], &field[1..]);
        on_both(&format!("\"{field}\":{value},\"x\":1,\"{spelt}\":{value}"), refused(Invalid, field));
    }
}

#[test]
fn handoff_fields_are_not_the_clients() {
    for (field, value) in [
        ("disaggregated_params", r#"{"request_type":"generation_only","encoded_opaque_state":"QUFB"}"#),
        ("disaggregated_params", r#"{"":null}"#),
        ("disaggregated_params", "[]"),
        ("disaggregated_params", "\"\""),
        ("disaggregated_params", "0"),
        ("disaggregated_params", "false"),
        ("prompt_token_ids", "[9]"),
        ("prompt_token_ids", "[]"),
        ("prompt_token_ids_b64", "\"AAAA\""),
        ("prompt_token_ids_b64", "\"\""),
        ("injected_chat_template_kwargs", "{}"),
    ] {
        on_both(&format!("\"{field}\":{value}"), refused(HandoffFields, field));
        on_both(&format!("\"{field}\":null,\"{field}\":{value}"), refused(HandoffFields, field));
        on_both(&format!("\"{field}\":{value},\"{field}\":null"), refused(HandoffFields, field));
        let spelt = format!("\\u{:04x}{}", field.as_bytes()[0], &field[1..]);
        on_both(&format!("\"{spelt}\":{value}"), refused(HandoffFields, field));
        on_both(&format!("\"{field}\":null"), WHOLE);
    }
    on_both("\"disaggregated_params\":{ }", WHOLE);
    let affinity = "conversation_params.subagent_affinity_id";
    for (value, expected) in [
        (r#"{"subagent_affinity_id":"a"}"#, refused(HandoffFields, affinity)),
        (r#"{"subagent_affinity_id":null,"subagent_affinity\u005fid":0}"#, refused(HandoffFields, affinity)),
        (r#"{"subagent_affinity_id":null}"#, WHOLE),
        (r#"{}"#, WHOLE),
        ("null", WHOLE),
        ("[]", WHOLE),
        ("\"subagent_affinity_id\"", WHOLE),
        (r#"{"\ud83d":1}"#, refused(Invalid, "conversation_params")),
    ] {
        on_both(&format!("\"conversation_params\":{value}"), expected);
        on_both(&format!("\"conversation_params\":{value},\"conversation_params\":{{}}"), expected);
    }
    // Before anything else that could be wrong, and too large to be looked at is not innocent.
    on_both("\"n\":2,\"prompt_token_ids\":[9],\"stream\":7", refused(HandoffFields, "prompt_token_ids"));
    let members: Vec<String> = (0..2000).map(|number| format!("\"k{number}\":0")).collect();
    on_both(
        &format!("\"conversation_params\":{{{}}}", members.join(",")),
        refused(Invalid, "conversation_params"),
    );
    on_both(
        &format!("\"disaggregated_params\":{{{}}}", members.join(",")),
        refused(HandoffFields, "disaggregated_params"),
    );
    on_both(&members.join(","), Err((Invalid, None)));
}

#[test]
fn errors_say_what_to_do_and_quote_nothing() {
    let text = |endpoint, body: &str| {
        ClientRequest::parse(endpoint, Bytes::copy_from_slice(body.as_bytes())).unwrap_err().to_string()
    };
    for (body, expected) in [
        (r#"SECRET"#, "the request body is not one JSON object: it is not valid JSON (line 1, column 1)"),
        (r#"["SECRET"]"#, "the request body is JSON, but not an object"),
        ("", "the request body is not one JSON object: it is empty"),
        (r#"{"n":"SECRET"}"#, "`n` must be a positive whole number or null"),
        (
            r#"{"n":2}"#,
            "`n` must be 1 where context and generation run on different engines; send several requests instead",
        ),
        (r#"{"n":1,"n":1}"#, "`n` occurs more than once; send it once"),
        (
            r#"{"disaggregated_params":{"SECRET":"SECRET"}}"#,
            "`disaggregated_params` is only for the engines to tell each other; leave it out",
        ),
        (r#"{"prompt":"a","stream":"SECRET"}"#, "`stream` must be true, false or null"),
        (r#"{"prompt":{"SECRET":1}}"#, "`prompt` must be a text or a list of token ids"),
        (r#"{}"#, "`prompt` is missing"),
    ] {
        assert_eq!(text(Completions, body), expected);
    }
    let request = ClientRequest::parse(Chat, Bytes::from_static(br#"{"messages":["SECRET"]}"#)).unwrap();
    assert!(!format!("{request:?}").contains("SECRET"));
}

#[test]
fn requests_and_errors_go_between_threads() {
    fn shared<T: Clone + Send + Sync + std::fmt::Debug + 'static>() {}
    shared::<ClientRequest>();
    shared::<RequestError>();
    shared::<crate::trtllm::ContextEndpoint>();
}
