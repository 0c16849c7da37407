//! Group 1: what a client may write, and what the legs make of it.

use bytes::Bytes;
use serde_json::{Value, json};
use trtllm_sim::expected_answer;

use crate::common::pair::{BOTH, CHAT, COMPLETIONS, Pair, body};
use crate::common::{Answer, Ask, Raw, World, chat_body, completions_body, members};

/// The same text at every place where a client may write a value of its own.
fn everywhere(path: &str, value: &str) -> Vec<String> {
    let asked = if path == CHAT {
        format!(r#"{{"messages":[{{"role":"user","content":"hi","x":{value}}},{value}]}}"#)
    } else {
        format!(r#"{{"prompt":"hi","x":{value}}}"#)
    };
    vec![
        asked,
        body(path, &format!(r#""seed":{value}"#)),
        body(path, &format!(r#""logit_bias":{{"5":{value}}},"x":[[{value},{value}]]"#)),
        body(path, &format!(r#""tools":[{{"function":{{"parameters":{{"a":{{"b":[{value}]}}}}}}}}]"#)),
        body(path, &format!("\"vendor\" :\t{value} ,\"stream\":true")),
    ]
}

#[tokio::test]
async fn b01_numbers_keep_their_digits() {
    let pair = Pair::start(&[]).await;
    let (long, longer) = ("9".repeat(400), "123456789".repeat(600));
    let exact = format!("0.{}", "1234567890".repeat(9));
    for number in [
        "9007199254740993",
        "-9007199254740993",
        "18446744073709551616",
        "-9223372036854775809",
        "-100",
        "-0",
        "-0.0",
        "1.0",
        "1.50",
        "0.1e-7",
        "1E+2",
        "1e2",
        "1E400",
        "-1e-400",
        "5e-324",
        &exact,
        &long,
        &longer,
    ] {
        for path in BOTH {
            for body in everywhere(path, number) {
                pair.keeps(path, &body).await;
            }
        }
    }
    pair.finish().await;
}

#[tokio::test]
async fn b04_strings_that_parsers_differ_about_are_kept() {
    let pair = Pair::start(&[]).await;
    for text in [
        // half of a pair, first and second, alone, swapped, at the end
        r"hi \ud83d",
        r"\ud83d",
        r"\udc00",
        r"\ude00\ud83d",
        r"a\uD83D\u0041",
        r"\ud83d\\ude00",
        // whole pairs, NUL, what needs no escape and has one
        r"\ud83d\ude00",
        r"a\u0000b",
        r"\/ \u002f \u0041 \u00e9 \u00E9",
        "é 世界 😀",
        // no letters, but text
        "\u{7f}\u{80}\u{9f}\u{2028}\u{2029}\u{feff}\u{fffd}\u{fffe}\u{10ffff}",
        r"\b\f\n\r\t\u0001\u001f\\\u0022",
        "}],{\\\":",
    ] {
        let value = format!("\"{text}\"");
        for path in BOTH {
            let mut bodies = everywhere(path, &value);
            bodies.push(if path == CHAT {
                format!(r#"{{"messages":[{{"role":"user","content":{value}}}],"user":{value}}}"#)
            } else {
                format!(r#"{{"prompt":{value},"stop":[{value}]}}"#)
            });
            for body in bodies {
                pair.keeps(path, &body).await;
            }
        }
    }
    // the engines refuse these, wherever they stand: half a pair in a key, what JSON does not allow in a string
    for member in [
        "\"\\ud83d\":1",
        "\"\\udc00x\":null",
        "\"x\":\"\t\"",
        "\"x\":\"\u{0}\"",
        "\"x\":\"\\x41\"",
        "\"x\":\"\\ud8\"",
        "\"x\":\"\\u12g4\"",
        "\"x\n\":1",
    ] {
        for path in BOTH {
            let reply = pair.exchange(path, body(path, member)).await;
            reply.is_error(400, "invalid_request");
            assert_eq!(pair.called(), (0, 0), "{member}");
        }
    }
    pair.finish().await;
}

#[tokio::test]
async fn b06_depth_costs_nothing() {
    let pair = Pair::start(&[]).await;
    for (depth, paths) in [(200, &BOTH[..]), (1_000, &BOTH[..]), (100_000, &[CHAT])] {
        for (open, inner, close) in [("{\"a\":", "1", "}"), ("[", "", "]"), ("[{\"\":", "null", "}]")] {
            let deep = format!("{}{inner}{}", open.repeat(depth), close.repeat(depth));
            let tools = format!(r#""tools":[{{"type":"function","function":{{"parameters":{deep}}}}}]"#);
            for path in paths {
                pair.keeps(path, &body(path, &tools)).await;
            }
        }
    }
    // what is not closed is no JSON, handed off or not
    for junk in ["[", "{\"a\":", "[{\"a\":"] {
        let junk = junk.repeat(200_000);
        for (path, bad) in [(CHAT, junk.clone()), (COMPLETIONS, format!("{{\"model\":\"m\",\"x\":{junk}"))] {
            let ask = pair.ask(path, bad.clone());
            pair.send(&ask).await.is_error(400, "invalid_request");
            pair.send(&Ask::post(path, bad)).await.is_error(400, "invalid_request");
            assert_eq!(pair.called(), (0, 0));
        }
    }
    pair.keeps(CHAT, &body(CHAT, "")).await;
    pair.finish().await;
}

#[tokio::test]
async fn b07_fields_may_be_missing_or_null() {
    let world = World::start(&[]).await;
    let long = |mut body: Value, members: &Value| {
        body.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
        body
    };
    let chat = json!({"model": "sim", "messages": [{"role": "user", "content": "fields"}]});
    let text = json!({"model": "sim", "prompt": "fields"});
    for (more, streams) in [
        (json!({}), false),
        (json!({"max_tokens": 12}), false),
        (json!({"max_tokens": null}), false),
        (json!({"stream": null}), false),
        (json!({"stream": false}), false),
        (json!({"stream": false, "stream_options": null}), false),
        (json!({"stream": true}), true),
        (json!({"stream": true, "stream_options": null}), true),
        (json!({"stream": true, "stream_options": {"include_usage": null}}), true),
        (json!({"stop": null, "seed": null, "user": null, "disaggregated_params": null}), false),
        (json!({"disaggregated_params": {}, "stream": true}), true),
        (json!({"use_beam_search": false, "n": 1}), false),
    ] {
        for base in [&chat, &text] {
            let body = long(base.clone(), &more);
            world.forget();
            let reply = world.exchange(&body).await;
            let answer = Answer::of(&reply);
            let mut asked = body.clone();
            asked.as_object_mut().unwrap().remove("disaggregated_params");
            answer.is(&expected_answer(&asked));
            let kind = if streams { "text/event-stream" } else { "application/json" };
            assert!(reply.header("content-type").unwrap().starts_with(kind), "{body}");
            let context = members(&world.context_legs()[0].body);
            assert_eq!(context["stream"], "false", "{body}");
            assert!(!context.contains_key("stream_options"), "{body}");
            let generation = members(&world.generation_legs()[0].body);
            for name in ["max_tokens", "max_completion_tokens", "stream", "stream_options", "n"] {
                let as_sent = body.get(name).map(Value::to_string);
                assert_eq!(generation.get(name), as_sent.as_ref(), "{name} of {body}");
            }
        }
    }
    world.finish().await;
    // those that the real engines refuse as null are theirs to refuse
    let pair = Pair::start(&[]).await;
    for member in [r#""n":null"#, r#""best_of":null"#, r#""use_beam_search":null"#, r#""max_tokens":null"#] {
        for path in BOTH {
            pair.keeps(path, &body(path, member)).await;
        }
    }
    pair.keeps(COMPLETIONS, &body(COMPLETIONS, r#""echo":null"#)).await;
    pair.keeps(CHAT, r#"{"stream":true}"#).await;
    pair.finish().await;
}

/// Members that a proxy with a model of its own would lose, change or stumble over.
const VENDOR: &[&str] = &[
    r#""tools":[{"type":"function","function":{"name":"f","strict":true,"parameters":{"type":"object","properties":{"z":{},"a":{}},"required":[]}}}],"tool_choice":"auto""#,
    r#""tool_choice":{"type":"function","function":{"name":"f"}},"parallel_tool_calls":false"#,
    r#""response_format":{"type":"json_schema","json_schema":{"name":"n","schema":{"minimum":1.50,"pattern":"^\\d+$"}}}"#,
    r#""response_format":{"type":"ebnf","ebnf":"root ::= \"a\" | \u0022b\""}"#,
    r#""chat_template_kwargs":{"enable_thinking":false},"stop":["\n\n","é"]"#,
    r#""vendor_x":{"a":[null,true,{}]},"nvext":{"annotations":[]},"metadata":{"":""}"#,
    r#"""  :  ""  ,  " ": "" "#,
    // a worker lets the last one win, also where two keys only look different
    r#""vendor":1,"vendor":2,"vend\u006fr":[3],"vendor":{"a":1,"a":2}"#,
    r#""\u0073eed":7,"str\u0065am":true,"stream\u005foptions":{"include_usage":true}"#,
    r#""seed":1,"seed":2,"temperature":0,"temperature":1e0"#,
    // nested, they are nobody's but the worker's
    r#""x":{"disaggregated_params":{"request_type":"generation_only"},"stream":1,"prompt_token_ids":[9]}"#,
    r#""stream_":1,"STREAM":2,"Disaggregated_Params":3,"prompt_token_ids_":4,"disaggregated_params ":5"#,
    // what JSON libraries mark their own values with
    r#""$serde_json::private::RawValue":"1","x":{"$serde_json::private::RawValue":"]"}"#,
    r#""$serde_json::private::Number":"z","x":{"$serde_json::private::Number":"1e"},"y":["$serde_json::private::Number"]"#,
    r#""x":[{"$serde_json::private::RawValue":{"$serde_json::private::RawValue":null}}],"$__toml_private_datetime":"x""#,
    r##""__proto__":{"a":1},"constructor":null,"x":{"__proto__":[]},"$ref":"#/x","@type":"a""##,
    r#""user":"","x":-0,"y":[],"z":{},"t":"null","w":"\u0000""#,
];

#[tokio::test]
async fn b08_what_nobody_here_knows_is_kept() {
    let pair = Pair::start(&[]).await;
    for more in VENDOR {
        for path in BOTH {
            pair.keeps(path, &body(path, more)).await;
        }
    }
    let all = VENDOR[..8].join(",\r\n ");
    // and after it what a leg changes
    for last in [r#""stream":true,"stream_options":{"include_usage":true}"#, r#""disaggregated_params":null"#]
    {
        for path in BOTH {
            pair.keeps(path, &format!("\t{{{all},{last},{} \n", &body(path, "")[1..])).await;
        }
    }
    for query in ["?api-version=1", "?", "?a=b&c=%20%7b"] {
        let reply = pair.exchange(&format!("{CHAT}{query}"), body(CHAT, "")).await;
        assert_eq!(reply.status, 200);
        let (context, generation) = pair.legs();
        assert_eq!([context.path(), generation.path()], [&format!("{CHAT}{query}"); 2]);
    }
    pair.finish().await;
}

#[tokio::test]
async fn b09_one_prompt() {
    let world = World::start(&[]).await;
    for (prompt, tokens) in [
        (json!("some text"), trtllm_sim::prompt_tokens("some text")),
        (json!(["some text"]), trtllm_sim::prompt_tokens("some text")),
        (json!([5, 6]), vec![5, 6]),
        (json!([[5, 6]]), vec![5, 6]),
        (json!([5]), vec![5]),
    ] {
        for stream in [false, true] {
            world.forget();
            let body = json!({"model": "sim", "prompt": prompt, "seed": 3, "stream": stream});
            Answer::of(&world.exchange(&body).await).is(&expected_answer(&body));
            let (context, generation) = (world.context_legs(), world.generation_legs());
            assert_eq!(context[0].json().unwrap()["prompt"], prompt);
            // as the reply has it, so that both engines agree on the length
            let got = generation[0].json().unwrap()["prompt"].clone();
            assert!(got == json!(tokens) || got == json!([tokens]), "{got}");
            assert!(generation[0].json().unwrap().get("prompt_token_ids").is_none());
        }
    }
    world.forget();
    for (member, code) in [
        (r#""prompt":["a","b"]"#, "unsupported_request"),
        (r#""prompt":[[1],[2]]"#, "unsupported_request"),
        (r#""prompt":["a",[1]]"#, "unsupported_request"),
        (r#""prompt":[[],[]]"#, "unsupported_request"),
        (r#""prompt":[]"#, "invalid_request"),
        (r#""prompt":[ ]"#, "invalid_request"),
        (r#""prompt":[null]"#, "invalid_request"),
        (r#""prompt":[{}]"#, "invalid_request"),
        (r#""prompt":{}"#, "invalid_request"),
        (r#""prompt":null"#, "invalid_request"),
        (r#""prompt":5"#, "invalid_request"),
        (r#""prompt":true"#, "invalid_request"),
        (r#""prompt":"a","prompt":"a""#, "invalid_request"),
        (r#""prompt":"a","pr\u006fmpt":"b""#, "invalid_request"),
        (r#""seed":1"#, "invalid_request"),
    ] {
        for stream in ["false", "true"] {
            let body = format!(r#"{{"model":"sim","stream":{stream},{member}}}"#);
            let reply = world.send(&world.post(COMPLETIONS, body)).await;
            assert_eq!(reply.is_error(400, code)["param"], "prompt", "{member}");
        }
    }
    // the generation leg has token ids for a prompt, and these cannot be echoed
    for (echo, code) in
        [("true", "unsupported_request"), ("1", "invalid_request"), ("\"no\"", "invalid_request")]
    {
        let reply = world
            .send(&world.post(COMPLETIONS, format!(r#"{{"model":"sim","prompt":"a","echo":{echo}}}"#)))
            .await;
        assert_eq!(reply.is_error(400, code)["param"], "echo");
    }
    assert_eq!(world.called(), (0, 0));
    // where nothing echoes, it is the worker's to judge; and chat has no prompt
    for body in [
        json!({"model": "sim", "prompt": "a", "echo": false, "max_tokens": 3}),
        json!({"model": "sim", "messages": [{"role": "user", "content": "a"}], "echo": false, "max_tokens": 3}),
    ] {
        Answer::of(&world.exchange(&body).await).is(&expected_answer(&body));
    }
    world.finish().await;
}

#[tokio::test]
async fn b10_more_than_one_choice() {
    let pair = Pair::start(&[]).await;
    for (members, code, param) in [
        (r#""n":2"#, "unsupported_request", "n"),
        (r#""n":128"#, "unsupported_request", "n"),
        (r#""n":2.0"#, "unsupported_request", "n"),
        (r#""n":2e0"#, "unsupported_request", "n"),
        (r#""n":18446744073709551617"#, "unsupported_request", "n"),
        (r#""best_of":2"#, "unsupported_request", "best_of"),
        (r#""best_of":2,"n":1"#, "unsupported_request", "best_of"),
        (r#""use_beam_search":true"#, "unsupported_request", "use_beam_search"),
        (r#""use_beam_search":true,"n":2"#, "unsupported_request", "n"),
        (r#""n":"2""#, "invalid_request", "n"),
        (r#""n":"1""#, "invalid_request", "n"),
        (r#""n":0"#, "invalid_request", "n"),
        (r#""n":-1"#, "invalid_request", "n"),
        (r#""n":1.5"#, "invalid_request", "n"),
        (r#""n":true"#, "invalid_request", "n"),
        (r#""n":[1]"#, "invalid_request", "n"),
        (r#""n":{}"#, "invalid_request", "n"),
        (r#""n":1,"n":1"#, "invalid_request", "n"),
        (r#""n":1,"\u006e":2"#, "invalid_request", "n"),
        (r#""best_of":true"#, "invalid_request", "best_of"),
        (r#""best_of":1,"best_of":2"#, "invalid_request", "best_of"),
        (r#""use_beam_search":1"#, "invalid_request", "use_beam_search"),
        (r#""use_beam_search":"false""#, "invalid_request", "use_beam_search"),
    ] {
        for path in BOTH {
            for stream in ["false", "true"] {
                let reply = pair.exchange(path, body(path, &format!(r#""stream":{stream},{members}"#))).await;
                assert_eq!(reply.is_error(400, code)["param"], param, "{members}");
                assert_eq!(pair.called(), (0, 0), "{members}");
            }
        }
    }
    for members in [
        r#""n":1"#,
        r#""n":null"#,
        r#""n":1.0"#,
        r#""n":1e0"#,
        r#""best_of":1"#,
        r#""use_beam_search":false"#,
        r#""x":{"n":2,"best_of":2},"N":2"#,
    ] {
        for path in BOTH {
            pair.keeps(path, &body(path, members)).await;
        }
    }
    // what passes through is the worker's to judge
    for path in BOTH {
        assert_eq!(pair.send(&Ask::post(path, body(path, r#""n":2"#))).await.status, 200);
        assert_eq!(pair.called(), (0, 1));
    }
    pair.finish().await;
}

#[tokio::test]
async fn b11_bodies_of_an_odd_shape() {
    let world = World::start(&[]).await;
    let cut = |body: &str| body[..body.len() - 3].to_owned();
    for path in BOTH {
        let good = body(path, "");
        let utf16 = |order: fn(u16) -> [u8; 2]| good.encode_utf16().flat_map(order).collect::<Vec<u8>>();
        let marked = |mark: &[u8], text: Vec<u8>| [mark, &text].concat();
        for bad in [
            Vec::new(),
            b" \r\n\t".to_vec(),
            b"[]".to_vec(),
            b"null".to_vec(),
            b"17".to_vec(),
            b"true".to_vec(),
            b"\"x\"".to_vec(),
            b"data: {}".to_vec(),
            b"\xef\xbb\xbf".to_vec(),
            format!("[{good}]").into_bytes(),
            format!("{good}{{}}").into_bytes(),
            format!("{good},").into_bytes(),
            format!("{good}\u{0}").into_bytes(),
            format!("{good}\n{good}").into_bytes(),
            format!("\u{feff}{good}").into_bytes(),
            format!("\u{a0}{good}").into_bytes(),
            format!("// x\n{good}").into_bytes(),
            format!("{},}}", &good[..good.len() - 1]).into_bytes(),
            good.replace('"', "'").into_bytes(),
            good.replace("\"m\"", "NaN").into_bytes(),
            good.replace("\"m\"", "-Infinity").into_bytes(),
            good.replace("\"m\"", "01").into_bytes(),
            cut(&good).into_bytes(),
            good.as_bytes()[1..].to_vec(),
            good.replace("hi", "h\u{ff}").encode_utf16().map(|unit| unit as u8).collect(),
            good.replace("hi", "@")
                .bytes()
                .flat_map(|b| if b == b'@' { vec![0xc3] } else { vec![b] })
                .collect(),
            good.replace("hi", "@")
                .bytes()
                .flat_map(|b| if b == b'@' { vec![0xed, 0xa0, 0xbd] } else { vec![b] })
                .collect(),
            good.replace("hi", "@")
                .bytes()
                .flat_map(|b| if b == b'@' { vec![0xc0, 0x80] } else { vec![b] })
                .collect(),
            utf16(u16::to_le_bytes),
            utf16(u16::to_be_bytes),
            marked(b"\xff\xfe", utf16(u16::to_le_bytes)),
            marked(b"\xfe\xff", utf16(u16::to_be_bytes)),
        ] {
            let what = String::from_utf8_lossy(&bad).into_owned();
            let bad = Bytes::from(bad);
            let reply = world.send(&world.post(path, bad.clone())).await;
            assert_eq!(reply.is_error(400, "invalid_request")["param"], Value::Null, "{what}");
            // the same in chunks
            let mut raw = Raw::connect(world.data).await;
            raw.write(world.post(path, "").head("transfer-encoding: chunked")).await;
            for byte in &bad {
                raw.write([b"1\r\n", &[*byte][..], b"\r\n"].concat()).await;
            }
            raw.write("0\r\n\r\n").await;
            raw.reply().await.is_error(400, "invalid_request");
            assert_eq!(world.called(), (0, 0), "{what}");
        }
        // neither a length nor chunks is no body
        let mut raw = Raw::connect(world.data).await;
        raw.write(world.post(path, "").head("x-no-length: 1")).await;
        raw.reply().await.is_error(400, "invalid_request");
    }
    // fields that a decision rests on, and that are not what they must be
    for (member, param) in [
        (r#""stream":1"#, "stream"),
        (r#""stream":"true""#, "stream"),
        (r#""stream":"yes""#, "stream"),
        (r#""stream":[]"#, "stream"),
        (r#""stream":true,"stream":true"#, "stream"),
        (r#""stream":true,"str\u0065am":false"#, "stream"),
        (r#""stream_options":7"#, "stream_options"),
        (r#""stream_options":[]"#, "stream_options"),
        (r#""stream_options":"""#, "stream_options"),
        (r#""stream_options":{},"stream_options":{}"#, "stream_options"),
        (r#""stream_options":{"include_usage":1}"#, "stream_options.include_usage"),
        (r#""stream_options":{"include_usage":true,"include_usage":true}"#, "stream_options.include_usage"),
        (r#""disaggregated_params":null,"disaggregated_params":null"#, "disaggregated_params"),
        (r#""disaggregated_params":null,"disaggregated\u005fparams":{}"#, "disaggregated_params"),
    ] {
        for path in BOTH {
            let reply = world.send(&world.post(path, body(path, member))).await;
            assert_eq!(reply.is_error(400, "invalid_request")["param"], param, "{member}");
        }
    }
    for messages in ["\"hi\"", "{}", "5", "null", "[],\"messages\":[]"] {
        let reply = world.send(&world.post(CHAT, format!(r#"{{"model":"m","messages":{messages}}}"#))).await;
        assert_eq!(reply.is_error(400, "invalid_request")["param"], "messages", "{messages}");
    }
    assert_eq!(world.called(), (0, 0));

    // odd, and right: white space around, and an upload in chunks, cut inside of letters
    for body in [chat_body("cut in the middle of é and 😀", true), completions_body("é and 😀", false)]
    {
        world.forget();
        let ask = world.ask(&body);
        let spaced = Ask { body: format!(" \r\n\t{body}\n \r").into(), ..ask.clone() };
        Answer::of(&world.send(&spaced).await).is(&expected_answer(&body));
        let mut raw = Raw::connect(world.data).await;
        raw.write(ask.head("Transfer-Encoding: Chunked")).await;
        for byte in ask.body.iter() {
            raw.write([b"1;x=y\r\n", &[*byte][..], b"\r\n"].concat()).await;
        }
        raw.write("0\r\nx-trailer: 1\r\n\r\n").await;
        Answer::of(&raw.reply().await).is(&expected_answer(&body));
        let legs = [world.context_legs(), world.generation_legs()].concat();
        assert_eq!(legs.len(), 4);
        for leg in legs {
            assert!(leg.header("content-length").is_some() != leg.header("transfer-encoding").is_some());
            assert_eq!(leg.header("x-trailer"), None);
        }
    }
    world.finish().await;
}
