//! Each generation takes exactly what the tables say it takes.

use super::*;
use Generation::{G0, G1, G2Early, G2Late, G3, G4, G4n};

const CHAT: &str = r#""model":"m","messages":[{"role":"user","content":"hi"}]"#;
const TEXT: &str = r#""model":"m","prompt":"hi""#;

fn ask_json(endpoint: Endpoint, generation: Generation, json: &str) -> Result<Ask, Fail> {
    ask(endpoint, generation, Some("application/json"), json.as_bytes())
}

fn base(endpoint: Endpoint) -> &'static str {
    match endpoint {
        Endpoint::Chat => CHAT,
        Endpoint::Completions => TEXT,
    }
}

/// A request with these members added; a repeated key replaces that of the base.
fn outcome(endpoint: Endpoint, generation: Generation, members: &str) -> Result<Ask, Fail> {
    ask_json(endpoint, generation, &format!("{{{},{members}}}", base(endpoint)))
}

#[track_caller]
fn accepts(endpoint: Endpoint, generation: Generation, members: &str) -> Ask {
    match outcome(endpoint, generation, members) {
        Ok(ask) => ask,
        Err(fail) => panic!("{generation} {endpoint:?} {members:.200}: {:.400}", fail.reason()),
    }
}

#[track_caller]
fn refuses(endpoint: Endpoint, generation: Generation, members: &str) -> String {
    match outcome(endpoint, generation, members) {
        Err(Fail::Schema(text)) => text,
        other => panic!("{generation} {endpoint:?} {members:.200}: {other:?}"),
    }
}

const BOTH: [Endpoint; 2] = [Endpoint::Chat, Endpoint::Completions];
const CHAT_ONLY: [Endpoint; 1] = [Endpoint::Chat];
const TEXT_ONLY: [Endpoint; 1] = [Endpoint::Completions];

fn params(member: &str) -> String {
    format!(r#""disaggregated_params":{{"request_type":"context_only",{member}}}"#)
}

/// Member of `disaggregated_params`, generations that know it.
#[test]
fn disaggregated_params_by_generation() {
    let from =
        |first: Generation| Generation::ALL.into_iter().filter(move |g| *g >= first).collect::<Vec<_>>();
    let table = [
        (r#""first_gen_tokens":[1]"#, from(G0)),
        (r#""ctx_request_id":1"#, from(G0)),
        (r#""encoded_opaque_state":"AAEC""#, from(G0)),
        (r#""draft_tokens":null"#, from(G0)),
        (r#""disagg_request_id":null"#, from(G1)),
        (r#""ctx_dp_rank":null"#, from(G1)),
        (r#""ctx_info_endpoint":null"#, from(G1)),
        (r#""schedule_style":null"#, from(G1)),
        (r#""first_gen_log_probs":null"#, from(G2Early)),
        (r#""first_gen_logits":null"#, from(G2Early)),
        (r#""conversation_id":null"#, vec![G2Early, G2Late, G3]),
        (r#""ctx_usage":null"#, from(G2Late)),
        (r#""return_prompt_token_ids_b64":false"#, from(G3)),
        (r#""resolved_thinking":null"#, from(G4)),
        (r#""unheard_of":null"#, vec![]),
    ];
    for (member, known) in table {
        for generation in Generation::ALL {
            for endpoint in BOTH {
                if known.contains(&generation) {
                    accepts(endpoint, generation, &params(member));
                } else {
                    let text = refuses(endpoint, generation, &params(member));
                    assert!(text.contains("extra_forbidden"), "{text}");
                }
            }
        }
    }
}

/// Client fields, the endpoints that have them, and since when.
#[test]
fn top_level_by_generation() {
    let table: [(&str, &[Endpoint], &[Endpoint], Generation); 24] = [
        (r#""prompt_ignore_length":1"#, &BOTH, &[], G1),
        (r#""logprobs":1"#, &TEXT_ONLY, &[], G1),
        (r#""response_format":{"type":"json_schema","json_schema":{}}"#, &BOTH, &[], G1),
        (r#""messages":[{"role":"user","content":"x","extra":1}]"#, &CHAT_ONLY, &[], G1),
        (r#""thinking_token_budget":5"#, &BOTH, &[], G2Late),
        (r#""media_io_kwargs":{"video":{"fps":1}}"#, &CHAT_ONLY, &TEXT_ONLY, G2Late),
        (r#""agent_hierarchy":null"#, &CHAT_ONLY, &TEXT_ONLY, G2Late),
        (
            r#""tools":[{"type":"function","function":{"name":"f","strict":true}}]"#,
            &CHAT_ONLY,
            &TEXT_ONLY,
            G2Late,
        ),
        (r#""messages":[{"role":"user","content":null}]"#, &CHAT_ONLY, &TEXT_ONLY, G2Late),
        (r#""conversation_params":{"conversation_id":"a"}"#, &BOTH, &[], G3),
        (r#""conversation_params":null"#, &BOTH, &[], G3),
        (r#""mm_processor_kwargs":{}"#, &CHAT_ONLY, &TEXT_ONLY, G3),
        (r#""prompt_token_ids_b64":"AQAAAA==""#, &CHAT_ONLY, &TEXT_ONLY, G3),
        (r#""priority":0.5"#, &BOTH, &[], G4),
        (r#""thinking":{"type":"enabled"}"#, &CHAT_ONLY, &TEXT_ONLY, G4),
        (r#""tool_choice":"auto""#, &CHAT_ONLY, &TEXT_ONLY, G4),
        (r#""tool_choice":"required","tools":[{"function":{"name":"f"}}]"#, &CHAT_ONLY, &TEXT_ONLY, G4),
        (r#""reasoning_effort":"none""#, &CHAT_ONLY, &TEXT_ONLY, G4),
        (r#""reasoning_effort":"max""#, &CHAT_ONLY, &TEXT_ONLY, G4),
        (r#""parallel_tool_calls":true"#, &CHAT_ONLY, &TEXT_ONLY, G4n),
        (r#""injected_chat_template_kwargs":[]"#, &CHAT_ONLY, &TEXT_ONLY, G4n),
        (r#""conversation_params":{"conversation_id":"a","subagent_affinity_id":"b"}"#, &BOTH, &[], G4n),
        (r#""prompt_token_ids":[1]"#, &CHAT_ONLY, &TEXT_ONLY, G0),
        (r#""cache_salt":"s""#, &CHAT_ONLY, &TEXT_ONLY, G0),
    ];
    for (members, has, never, since) in table {
        for generation in Generation::ALL {
            for endpoint in has {
                if generation >= since {
                    accepts(*endpoint, generation, members);
                } else {
                    refuses(*endpoint, generation, members);
                }
            }
            for endpoint in never {
                refuses(*endpoint, generation, members);
            }
        }
    }
    for field in ["metadata", "store", "service_tier", "nvext", "prompt_cache_key", "suffix"] {
        for generation in Generation::ALL {
            refuses(Endpoint::Chat, generation, &format!("\"{field}\":null"));
        }
    }
}

#[test]
fn what_newer_generations_refuse() {
    let message_tools = r#""messages":[{"role":"user","content":"x","tools":[]}]"#;
    for generation in [G1, G2Late, G3] {
        accepts(Endpoint::Chat, generation, message_tools);
    }
    for generation in [G4, G4n] {
        assert!(refuses(Endpoint::Chat, generation, message_tools).contains("'messages'"));
        accepts(
            Endpoint::Chat,
            generation,
            r#""messages":[{"role":"system","content":"x","tools":[{}]}],"tool_choice":"required""#,
        );
    }
    let values = vec!["1"; 1_001].join(",");
    let tool = |schema: String| format!(r#""tools":[{{"function":{{"name":"f","parameters":{schema}}}}}]"#);
    let many = tool(format!(r#"{{"properties":{{"a":{{"enum":[{values}]}}}}}}"#));
    accepts(Endpoint::Chat, G4, &many);
    refuses(Endpoint::Chat, G4n, &many);
    let sample = tool(format!(r#"{{"default":{{"enum":[{values}]}},"properties":{{"enum":{{}}}}}}"#));
    accepts(Endpoint::Chat, G4n, &sample);
}

/// The coercion table: what is taken, the same by all generations.
#[test]
fn leniency() {
    let ids = |value: &str| params(&format!(r#""disagg_request_id":{value}"#));
    let style = |value: &str| params(&format!(r#""schedule_style":{value}"#));
    for generation in [G1, G2Early, G3, G4n] {
        for (value, number) in [
            ("0", 0),
            ("0.0", 0),
            (r#""0""#, 0),
            (r#""0.0""#, 0),
            ("false", 0),
            ("1", 1),
            ("1.0", 1),
            ("true", 1),
        ] {
            let ask = accepts(Endpoint::Chat, generation, &style(value));
            assert_eq!(ask.params.unwrap().schedule_style, Some(number), "{value}");
        }
        for value in ["2", "-1", "0.5", r#""context_first""#, r#""CONTEXT_FIRST""#, "[]"] {
            refuses(Endpoint::Chat, generation, &style(value));
        }
        for (value, id) in [
            (r#""123""#, 123),
            (r#"" 123 ""#, 123),
            (r#""+5""#, 5),
            (r#""1_000""#, 1_000),
            ("1e18", 1_000_000_000_000_000_000),
            ("true", 1),
            ("0", 0),
            ("9007199254740993.0", 9_007_199_254_740_992),
            ("9007199254740993", 9_007_199_254_740_993),
        ] {
            let ask = accepts(Endpoint::Chat, generation, &ids(value));
            assert_eq!(ask.params.unwrap().disagg_request_id, Some(id), "{value}");
        }
        for value in ["1.5", r#""1e18""#, "1e30", "[1]", r#""1__0""#, r#""""#] {
            refuses(Endpoint::Chat, generation, &ids(value));
        }
        // Taken by the schema, refused by the engine below it.
        for value in ["9223372036854775808", "18446744073709551616", "-1"] {
            let fail = outcome(Endpoint::Chat, generation, &ids(value));
            assert!(matches!(fail, Err(Fail::Engine(_))), "{value}");
        }
        for value in ["[]", "null", r#"["5"]"#, "[5.0]", "[true]", "[-1]"] {
            accepts(Endpoint::Chat, generation, &params(&format!(r#""first_gen_tokens":{value}"#)));
        }
        for value in ["5", "[[5]]"] {
            refuses(Endpoint::Chat, generation, &params(&format!(r#""first_gen_tokens":{value}"#)));
        }
        for value in [r#""AA EC""#, r#""!!""#, r#""""#] {
            accepts(Endpoint::Chat, generation, &params(&format!(r#""encoded_opaque_state":{value}"#)));
        }
        let odd = outcome(Endpoint::Chat, generation, &params(r#""encoded_opaque_state":"A""#));
        assert!(matches!(odd, Err(Fail::Engine(_))));
    }
    for value in ["0", r#""false""#, r#""no""#] {
        accepts(Endpoint::Chat, G3, &params(&format!(r#""return_prompt_token_ids_b64":{value}"#)));
    }
    for value in ["2", "null"] {
        refuses(Endpoint::Chat, G3, &params(&format!(r#""return_prompt_token_ids_b64":{value}"#)));
    }
    let ask = accepts(Endpoint::Chat, G3, &params(r#""first_gen_log_probs":[-0.12345678901234567]"#));
    assert_eq!(ask.params.unwrap().first_gen_log_probs, Some(vec![-0.123_456_789_012_345_67]));
    accepts(Endpoint::Chat, G3, &params(r#""first_gen_log_probs":[NaN,-Infinity]"#));
    let shape = outcome(Endpoint::Chat, G3, &params(r#""first_gen_log_probs":["x"]"#));
    assert!(matches!(shape, Err(Fail::Engine(_))));
}

#[test]
fn streaming_and_counts() {
    for endpoint in BOTH {
        for generation in Generation::ALL {
            for (value, stream) in [
                ("true", true),
                ("1", true),
                ("1.0", true),
                (r#""true""#, true),
                (r#""yes""#, true),
                (r#""on""#, true),
                ("0", false),
                (r#""false""#, false),
                ("null", false),
            ] {
                let ask = accepts(endpoint, generation, &format!(r#""stream":{value}"#));
                assert_eq!(ask.stream, stream, "{value}");
            }
            for value in ["2", "[]", r#""maybe""#] {
                refuses(endpoint, generation, &format!(r#""stream":{value}"#));
            }
            for value in ["1", "1.0", r#""1""#, "true", "0", "-1", "2"] {
                accepts(endpoint, generation, &format!(r#""n":{value}"#));
            }
            for member in [
                r#""n":null"#,
                r#""n":1.5"#,
                r#""top_k":null"#,
                r#""min_tokens":null"#,
                r#""ignore_eos":null"#,
                r#""max_tokens":5.5"#,
                r#""max_tokens":1e400"#,
                r#""truncate_prompt_tokens":0"#,
                r#""response_format":{"type":"text","x":1}"#,
                r#""response_format":{"type":"yaml"}"#,
                r#""unheard_of":null"#,
                r#""user":5"#,
            ] {
                refuses(endpoint, generation, member);
            }
            for member in [
                r#""max_tokens":"5""#,
                r#""max_tokens":5.0"#,
                r#""max_tokens":0"#,
                r#""max_tokens":-1"#,
                r#""max_tokens":null"#,
                r#""temperature":NaN"#,
                r#""temperature":Infinity"#,
                r#""temperature":1e999"#,
                r#""temperature":"0.7""#,
                r#""stop":null"#,
                r#""user":null"#,
                r#""seed":null"#,
                r#""presence_penalty":null"#,
                r#""user":"\ud83d""#,
                r#""stop":["a","b"]"#,
                r#""logit_bias":{"5":1}"#,
                r#""early_stopping":"never""#,
                r#""disaggregated_params":null"#,
            ] {
                accepts(endpoint, generation, member);
            }
            accepts(endpoint, generation, &format!(r#""seed":{}"#, "7".repeat(400)));
            let huge = outcome(endpoint, generation, &format!(r#""seed":{}"#, "7".repeat(5_000)));
            assert!(matches!(huge, Err(Fail::Detail(400, _))));
        }
    }
    refuses(Endpoint::Chat, G3, r#""echo":null"#);
    accepts(Endpoint::Chat, G3, r#""tools":null"#);
    for members in
        [r#""max_tokens":5,"max_completion_tokens":5"#, r#""max_tokens":null,"max_completion_tokens":5"#]
    {
        refuses(Endpoint::Chat, G4, members);
    }
    accepts(Endpoint::Chat, G4, r#""max_completion_tokens":5"#);
    refuses(Endpoint::Completions, G4, r#""max_completion_tokens":5"#);
}

#[test]
fn stream_options() {
    // Options, and whether chat and completions take them without a stream.
    let table = [
        ("null", true, true),
        ("{}", false, true),
        (r#"{"include_usage":true}"#, false, false),
        (r#"{"include_usage":null}"#, false, false),
        (r#"{"continuous_usage_stats":true}"#, false, false),
    ];
    for generation in Generation::ALL {
        for (options, chat, text) in table {
            for (endpoint, alone) in [(Endpoint::Chat, chat), (Endpoint::Completions, text)] {
                let options = format!(r#""stream_options":{options}"#);
                accepts(endpoint, generation, &format!(r#""stream":true,{options}"#));
                for stream in ["", r#""stream":false,"#, r#""stream":null,"#] {
                    let members = format!("{stream}{options}");
                    if alone {
                        accepts(endpoint, generation, &members);
                    } else {
                        refuses(endpoint, generation, &members);
                    }
                }
            }
        }
        for options in [r#"{"include_obfuscation":false}"#, "[]", "false"] {
            for stream in ["true", "false"] {
                for endpoint in BOTH {
                    let members = format!(r#""stream":{stream},"stream_options":{options}"#);
                    refuses(endpoint, generation, &members);
                }
            }
        }
    }
    let usage = |options: &str| {
        let members = format!(r#""stream":true,"stream_options":{options}"#);
        accepts(Endpoint::Chat, G3, &members).usage_chunk
    };
    assert!(usage("{}") && usage(r#"{"include_usage":true}"#));
    assert!(!usage("null") && !usage(r#"{"include_usage":false}"#));
    assert!(!usage(r#"{"include_usage":null}"#));
}

#[test]
fn tools_and_probabilities() {
    let tool = r#""tools":[{"type":"function","function":{"name":"f"}}]"#;
    for generation in Generation::ALL {
        accepts(Endpoint::Chat, generation, &format!(r#"{tool},"tool_choice":"auto""#));
        accepts(Endpoint::Chat, generation, r#""tools":[],"tool_choice":"auto""#);
        accepts(Endpoint::Chat, generation, r#""tool_choice":"none""#);
        let named = r#""tool_choice":{"type":"function","function":{"name":"f"}}"#;
        accepts(Endpoint::Chat, generation, &format!("{tool},{named}"));
        for members in [
            r#""tool_choice":null"#,
            r#""top_logprobs":0"#,
            r#""top_logprobs":2,"logprobs":false"#,
            r#""tools":[{"type":"function","function":{"name":"f"},"x":1}]"#,
            r#""tools":[{"type":"function","function":{"name":"f","x":1}}]"#,
            r#""tools":[{"type":"other","function":{"name":"f"}}]"#,
            r#""tools":[{"type":"function"}]"#,
            r#""tools":{}"#,
            r#""reasoning_effort":"huge""#,
            r#""cache_salt":" ""#,
            r#""documents":[5]"#,
        ] {
            refuses(Endpoint::Chat, generation, members);
        }
        refuses(Endpoint::Chat, generation, &format!(r#"{tool},"tool_choice":"sometimes""#));
        let crash = outcome(Endpoint::Chat, generation, r#""top_logprobs":"5","logprobs":true"#);
        assert!(matches!(crash, Err(Fail::Crash(_))));
        if generation >= G1 {
            let crash = outcome(Endpoint::Completions, generation, r#""logprobs":"1""#);
            assert!(matches!(crash, Err(Fail::Crash(_))));
        }
        refuses(Endpoint::Completions, generation, r#""suffix":"x""#);
        accepts(Endpoint::Completions, generation, r#""suffix":"""#);
    }
    refuses(Endpoint::Chat, G4, r#""tools":[],"tool_choice":"required""#);
    for value in ["-0.1", "1.1", "NaN", r#""x""#] {
        refuses(Endpoint::Chat, G4, &format!(r#""priority":{value}"#));
    }
}

#[test]
fn conversations_and_usage() {
    let conversation = |value: &str| format!(r#""conversation_params":{{"conversation_id":{value}}}"#);
    for value in [r#"" a ""#, "5", "[]"] {
        accepts(Endpoint::Chat, G3, &conversation(value));
    }
    for value in [r#""""#, r#""  ""#, "null", "{}"] {
        refuses(Endpoint::Chat, G3, &conversation(value));
    }
    refuses(Endpoint::Chat, G3, r#""conversation_params":{}"#);
    refuses(Endpoint::Chat, G3, r#""conversation_params":{"conversation_id":"a","x":1}"#);
    let usage = |value: &str| params(&format!(r#""ctx_usage":{value}"#));
    for value in [
        "{}",
        r#"{"prompt_tokens":3,"total_tokens":4,"completion_tokens":1,"prompt_tokens_details":{"cached_tokens":2}}"#,
        r#"{"completion_tokens":null,"prompt_tokens_details":null}"#,
    ] {
        accepts(Endpoint::Chat, G3, &usage(value));
    }
    for value in [
        r#"{"prompt_tokens":null}"#,
        r#"{"prompt_tokens_details":{"cached_tokens":null}}"#,
        r#"{"prompt_tokens_details":{"cached_tokens":1,"audio_tokens":0}}"#,
        r#"{"completion_tokens_details":null}"#,
        "[]",
    ] {
        refuses(Endpoint::Chat, G3, &usage(value));
    }
}

#[test]
fn prompts() {
    let text =
        |prompt: &str| ask_json(Endpoint::Completions, G3, &format!(r#"{{"model":"m","prompt":{prompt}}}"#));
    for prompt in [
        r#""""#,
        r#"[""]"#,
        "[[]]",
        r#"["a","b"]"#,
        "[1.0,2]",
        "[true]",
        r#"["1","2"]"#,
        "[[1,2]]",
        r#""\ud83d""#,
        r#""a\u0000b""#,
    ] {
        assert!(text(prompt).is_ok(), "{prompt}: {:?}", text(prompt));
    }
    for prompt in ["null", "5", "{}", "[1.5]", r#"[1,"a"]"#, r#"[["a"]]"#] {
        assert!(matches!(text(prompt), Err(Fail::Schema(_))), "{prompt}");
    }
    assert!(matches!(text("[]"), Err(Fail::Engine(_))));
    let echo = outcome(Endpoint::Completions, G3, r#""prompt":[1],"echo":true"#);
    assert!(matches!(echo, Err(Fail::Engine(_))));
    accepts(Endpoint::Completions, G3, r#""echo":true"#);
    accepts(Endpoint::Chat, G3, r#""messages":[]"#);
    accepts(Endpoint::Chat, G3, r#""messages":[],"prompt_token_ids":[1]"#);
    for messages in
        ["null", "5", "[5]", r#"[{"content":"x"}]"#, r#"[{"role":5}]"#, r#"[{"role":"user","content":5}]"#]
    {
        refuses(Endpoint::Chat, G3, &format!(r#""messages":{messages}"#));
    }
    let only_ids = ask_json(Endpoint::Chat, G3, r#"{"model":"m","prompt_token_ids":[1]}"#);
    assert!(matches!(only_ids, Err(Fail::Schema(_))));
}

#[test]
fn refusals_quote_what_the_real_ones_quote() {
    let secret =
        r#""disaggregated_params":{"request_type":"generation_only","encoded_opaque_state":"U0VDUkVU"}"#;
    let no_model = |generation| {
        let json = format!(r#"{{"messages":[],{secret}}}"#);
        match ask_json(Endpoint::Chat, generation, &json) {
            Err(Fail::Schema(text)) => text,
            other => panic!("{other:?}"),
        }
    };
    for generation in Generation::ALL {
        assert!(no_model(generation).contains("U0VDUkVU"), "the whole body");
        let unknown = refuses(Endpoint::Chat, generation, &format!(r#"{secret},"x":"only this""#));
        assert!(unknown.contains("'only this'") && !unknown.contains("U0VDUkVU"));
        let no_type = r#""disaggregated_params":{"encoded_opaque_state":"U0VDUkVU"}"#;
        assert!(refuses(Endpoint::Chat, generation, no_type).contains("U0VDUkVU"));
    }
    assert!(no_model(G1).starts_with("[{'type': 'missing', 'loc': ('body', 'model')"));
    assert!(no_model(G3).starts_with("1 validation error:\n"));
    // The step from a newer context worker to an older generation worker.
    let auto = format!(r#"{secret},"tool_choice":"auto""#);
    assert!(refuses(Endpoint::Chat, G3, &auto).contains("U0VDUkVU"));
    accepts(Endpoint::Chat, G4, &auto);
    let ids = vec!["123"; 20_000].join(",");
    let long = refuses(Endpoint::Chat, G3, &format!(r#""prompt_token_ids":[{ids}],"tool_choice":"auto""#));
    assert!(long.len() > 100_000);
}

#[test]
fn bodies_and_content_types() {
    let body = format!("{{{CHAT}}}");
    let with = |generation, content_type, bytes: &[u8]| {
        ask(Endpoint::Chat, generation, content_type, bytes).map(|_| ())
    };
    let json = Some("application/json");
    for content_type in [
        "application/json",
        "application/json; charset=utf-16",
        "Application/JSON",
        "application/vnd.api+json",
    ] {
        assert_eq!(with(G3, Some(content_type), body.as_bytes()), Ok(()), "{content_type}");
    }
    for content_type in ["text/plain", "application/x-www-form-urlencoded", "application/jsonx", ""] {
        let answer = with(G3, Some(content_type), body.as_bytes());
        assert!(matches!(answer, Err(Fail::Crash(_))), "{content_type}");
    }
    assert!(matches!(with(G3, None, body.as_bytes()), Err(Fail::Crash(_))));
    assert_eq!(with(G1, None, body.as_bytes()), Ok(()));
    for bytes in ["[]", "\"x\"", "5", "true"] {
        assert!(matches!(with(G1, json, bytes.as_bytes()), Err(Fail::Crash(_))), "{bytes}");
    }
    assert!(matches!(with(G3, json, b"null"), Err(Fail::Crash(_))));
    assert!(matches!(with(G1, json, b"null"), Err(Fail::Schema(_))));
    for bytes in [&b""[..], b"{", b"{\"a\":1,}", b"{} x", b"{\"a\":\"\n\"}", b"{\"\\ud83d\":1}"] {
        assert!(matches!(with(G3, json, bytes), Err(Fail::Schema(_))), "{bytes:?}");
    }
    let deep = "[".repeat(100_000);
    for bytes in [&b"{\"a\":\"\xff\"}"[..], deep.as_bytes()] {
        assert!(matches!(with(G3, json, bytes), Err(Fail::Detail(400, _))));
    }
    let wide: Vec<u8> = body.encode_utf16().flat_map(u16::to_le_bytes).collect();
    assert_eq!(with(G3, json, &wide), Ok(()));
    assert_eq!(with(G3, json, format!("\u{feff}{body}").as_bytes()), Ok(()));
    // The last of a repeated key counts, however it is spelt.
    let twice = format!(r#"{{{CHAT},"stream":false,"str\u0065am":true}}"#);
    assert!(ask_json(Endpoint::Chat, G3, &twice).unwrap().stream);
    let nested = params(r#""schedule_style":2,"schedule_styl\u0065":1"#);
    accepts(Endpoint::Chat, G3, &nested);
}

#[test]
fn request_types() {
    let kind = |kind: &str| {
        outcome(Endpoint::Chat, G3, &format!(r#""disaggregated_params":{{"request_type":{kind}}}"#))
    };
    assert!(kind(r#""context_only""#).is_ok());
    assert!(matches!(kind(r#""prefill""#), Err(Fail::Engine(_))));
    assert!(matches!(kind("5"), Err(Fail::Schema(_))));
    for value in ["{}", "[]", "5"] {
        refuses(Endpoint::Chat, G3, &format!(r#""disaggregated_params":{value}"#));
    }
}

/// Bodies with bytes changed, cut out and doubled: whatever the answer, there is one.
#[test]
fn no_body_makes_it_panic() {
    let seeds = [
        format!(
            r#"{{{CHAT},"stream":true,"stream_options":{{"include_usage":true}},"stop":["a"],"tools":[{{"function":{{"name":"f"}}}}]}}"#
        ),
        format!(r#"{{{TEXT},"n":2,"logprobs":1,"seed":-1.5e3,"user":"\ud83d\ude00 \u00e9"}}"#),
        format!(
            r#"{{{CHAT},{}}}"#,
            params(
                r#""disagg_request_id":9007199254740993,"encoded_opaque_state":"AAEC","first_gen_tokens":[1],"ctx_usage":{"prompt_tokens":3}"#
            )
        ),
    ];
    let mut random: u64 = 7;
    let mut next = |below: usize| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(random >> 33).unwrap() % below
    };
    const BYTES: &[u8] = b"{}[]\",:\\0-.e1ntfu\x00\xff\xed ";
    for round in 0..3_000 {
        let mut bytes = seeds[round % seeds.len()].clone().into_bytes();
        for _ in 0..=next(4) {
            let at = next(bytes.len());
            match next(3) {
                0 => bytes[at] = BYTES[next(BYTES.len())],
                1 => bytes.insert(at, BYTES[next(BYTES.len())]),
                _ => drop(bytes.drain(at..(at + 1 + next(8)).min(bytes.len()))),
            }
            if bytes.is_empty() {
                break;
            }
        }
        for endpoint in BOTH {
            let _ = ask(endpoint, G4n, Some("application/json"), &bytes);
        }
        let _ = crate::faults::Fault::from_json(&String::from_utf8_lossy(&bytes));
    }
}
