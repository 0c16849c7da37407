//! Requests that the context step has finished: there is an answer, and no generation leg.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod common;

use common::{Answer, Ask, Client, World, chat_body, completions_body};
use serde_json::{Value, json};
use trtllm_sim::{Engine, Role, expected_answer_of};

fn with(mut body: Value, extra: Value) -> Value {
    body.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
    body
}

fn bodies() -> Vec<Value> {
    let tools = json!([{"type": "function", "function": {"name": "look"}}]);
    let said = |text: &str, extra| {
        with(json!({"model": "sim", "messages": [{"role": "user", "content": text}]}), extra)
    };
    vec![
        said("one word", json!({})),
        said("one word", json!({"logprobs": true, "top_logprobs": 1})),
        said("use the #tool", json!({"tools": tools})),
        said("think", json!({"chat_template_kwargs": {"enable_thinking": true}})),
        json!({"model": "sim", "prompt": "one word"}),
        json!({"model": "sim", "prompt": "one word", "logprobs": 1}),
        json!({"model": "sim", "prompt": [[7, 8, 9]]}),
    ]
}

/// Engines whose answers have one token, so that every context step ends its request.
async fn short() -> World {
    World::of(|context| context.tokens(1), |generation| generation.tokens(1), &[]).await
}

#[tokio::test]
async fn the_answer_is_what_one_engine_would_have_said() {
    let world = short().await;
    // reasoning is the first half of an answer, so of two tokens the first is all of it
    let alone = Engine::start(trtllm_sim::Config::new(Role::Both).tokens(1)).await.unwrap();
    for body in bodies() {
        for (stream, options) in [
            (false, json!(null)),
            (true, json!(null)),
            (true, json!({"include_usage": true})),
            (true, json!({"include_usage": false})),
        ] {
            world.forget();
            let body = with(body.clone(), json!({"stream": stream, "stream_options": options}));
            let reply = world.exchange(&body).await;
            let answer = Answer::of(&reply);
            answer.is(&expected_answer_of(&body, 1));
            assert!(!(answer.text.is_empty() && answer.reasoning.is_empty() && answer.tool_calls.is_empty()));
            let direct = Client::http1(alone.addr()).await.send(&Ask::of(&body)).await;
            let direct_answer = Answer::of(&direct);
            // an event may be cut differently; what they come to is the same
            assert_eq!(
                Answer { chunks: 0, ..answer.clone() },
                Answer { chunks: 0, ..direct_answer },
                "{body}"
            );
            assert_eq!(reply.header("content-type"), direct.header("content-type"));
            if !stream {
                assert_eq!(reply.comparable(), direct.comparable());
            }
            assert_eq!(answer.usage.is_null(), stream && options != json!({"include_usage": true}));
            for internal in ["disaggregated_params", "prompt_token_ids"] {
                assert!(!reply.text().contains(internal), "{}", reply.text());
            }
            assert_eq!(world.called(), (1, 0), "{body}");
        }
    }
    let context = world.context.state();
    assert_eq!((context.terminal, context.pulls), (context.context_requests, 0));
    world.finish().await;
}

/// Answers of every shape, and what is to be found in each. They end in a context step that makes all of them.
fn shapes() -> Vec<(Value, Value, &'static [&'static str])> {
    let tool = |name: &str| json!({"type": "function", "function": {"name": name}});
    let chat = |text: &str, extra| {
        with(json!({"model": "sim", "messages": [{"role": "user", "content": text}]}), extra)
    };
    let prompt = |extra| with(json!({"model": "sim", "prompt": "tell"}), extra);
    let think = json!({"chat_template_kwargs": {"enable_thinking": true}});
    let calls = json!({"tools": [tool("look"), tool("go")], "logprobs": true});
    // Of the thoughts the sixth token, of the completion the tenth.
    let thought = trtllm_sim::expected_answer(&chat("think", json!({}))).completion_token_ids[5];
    let text = trtllm_sim::expected_answer(&prompt(json!({}))).completion_token_ids[9];
    let word = trtllm_sim::token_text(text);
    let unicode = json!({"say": "e\u{301}\u{85}漢字 👩\u{200d}👩\u{200d}👧 \u{2028}\"\\\r\n{}data: [DONE]\n\n\u{feff}ע"});
    let none = json!(null);
    vec![
        (chat("tell", json!({"logprobs": true, "top_logprobs": 3})), none.clone(), &["top_logprobs"]),
        (chat("think", think.clone()), none.clone(), &["reasoning_content"]),
        (chat("think", with(think, json!({"stop_token_ids": [thought]}))), none.clone(), &["stop_reason"]),
        (chat("#tool:go, then #tool:look", calls), none.clone(), &["\"look\"", "\"go\"", "tool_calls"]),
        (chat("tell", json!({})), unicode.clone(), &["漢字", "👩\u{200d}👩\u{200d}👧", "\\r\\n"]),
        (chat("tell", json!({})), json!({"finish": "content_filter"}), &["content_filter"]),
        (chat("tell", json!({})), json!({"eos": true}), &["\"content\":\"\""]),
        (prompt(json!({"logprobs": 3})), none.clone(), &["token_logprobs"]),
        (prompt(json!({"stop": [word[2..]]})), none.clone(), &["stop_reason"]),
        (prompt(json!({"stop_token_ids": [text]})), none.clone(), &["stop_reason"]),
        (prompt(json!({"detokenize": false, "logprobs": 1})), none, &["token_ids"]),
        (prompt(json!({})), unicode, &["漢字", "👩\u{200d}👩\u{200d}👧", "\\r\\n"]),
        (prompt(json!({})), json!({"finish": "content_filter"}), &["content_filter"]),
        (prompt(json!({})), json!({"eos": true}), &["\"text\":\"\""]),
    ]
}

/// JSON in ASCII, as headers have to be.
fn ascii(json: &Value) -> String {
    let mut out = String::new();
    for c in json.to_string().chars() {
        if (' '..='~').contains(&c) {
            out.push(c);
        } else {
            c.encode_utf16(&mut [0; 2]).iter().for_each(|unit| out.push_str(&format!("\\u{unit:04x}")));
        }
    }
    out
}

#[tokio::test]
async fn an_answer_of_any_shape_is_that_of_an_engine_alone() {
    let world = World::of(|context| context.whole_in_context(true), |generation| generation, &[]).await;
    let mut asked = 0;
    for (body, fault, found) in shapes() {
        for options in [
            json!({}),
            json!({"stream": true}),
            json!({"stream": true, "stream_options": {}}),
            json!({"stream": true, "stream_options": {"continuous_usage_stats": true}}),
        ] {
            world.forget();
            let body = with(body.clone(), options);
            let faulty = |ask: Ask| {
                if fault.is_null() { ask } else { ask.header("x-sim-fault", ascii(&fault)) }
            };
            let reply = Client::http2(world.data).await.send(&faulty(world.ask(&body))).await;
            assert_eq!(world.called(), (1, 0), "{body}");
            asked += 1;
            // Without the routing header the generation engine makes the answer token by token.
            let alone = Client::http1(world.data).await.send(&faulty(Ask::of(&body))).await;
            assert_eq!(
                Answer { chunks: 0, ..Answer::of(&reply) },
                Answer { chunks: 0, ..Answer::of(&alone) },
                "{body}"
            );
            assert_eq!(reply.header("content-type"), alone.header("content-type"));
            for found in found {
                assert!(reply.text().contains(found), "{found}: {}", reply.text());
            }
            for internal in ["disaggregated_params", "prompt_token_ids"] {
                assert!(!reply.text().contains(internal), "{}", reply.text());
            }
            if body.get("stream").is_none() {
                assert_eq!(reply.comparable(), alone.comparable());
            } else if !fault.to_string().contains("DONE") {
                let told = |reply: &common::Reply| {
                    let events = reply.events();
                    events.iter().filter(|event| !event.contains("\"usage\":{") && *event != "[DONE]").count()
                        == 0
                };
                assert_eq!(told(&reply), told(&alone), "{body}");
            }
        }
    }
    let context = world.context.state();
    assert_eq!((context.terminal, context.pulls, context.kv_held), (asked, 0, 0));
    world.finish().await;
}

#[tokio::test]
async fn nothing_internal_is_in_an_answer_and_nothing_else_is_changed() {
    let world = World::start(&[]).await;
    let headers = json!({
        "x-context": "SECRET", "connection": "close, x-context", "keep-alive": "timeout=1", "set-cookie": "SECRET",
        "x-sim-internal": "tcp://10.0.0.5:37771", "content-type": "application/json; charset=utf-8",
    });
    // A lone half of a pair, escapes and digits that no reader of JSON would write again like this.
    let said = r#""a\ud83d\/\u00e9\u0000""#;
    for (body, said) in [
        (chat_body("x", false), format!(r#""message":{{"role":"assistant","content":{said}}}"#)),
        (completions_body("x", false), format!(r#""text":{said}"#)),
    ] {
        let params = r#""disaggregated_params":{"encoded_opaque_state":"SECRET"},"disaggregated\u005fparams":["SECRET"]"#;
        let ids = r#""prompt\u005ftoken_ids":["SECRET"],"prompt_token_ids":"SECRET","prompt_token_ids_b64":"SECRET""#;
        let stays = format!(r#""x":1.00,{said},"finish_reason":"stop","mm_embedding_handle":{{"h":1E2}}"#);
        let reply = format!(
            r#"{{{ids},"id":"c-1","created":7,"model":"m" ,"choices":[ {{{params},{stays},{params}}} ],{ids}}}"#
        );
        let fault = json!({"on": "context", "reply": reply, "headers": headers});
        for two in [false, true] {
            for stream in [false, true] {
                let body = with(body.clone(), json!({"stream": stream}));
                let mut client =
                    if two { Client::http2(world.data).await } else { Client::http1(world.data).await };
                let answer = client.send(&world.ask(&body).header("x-sim-fault", ascii(&fault))).await;
                let text = answer.text();
                assert_eq!(answer.status, 200, "{text}");
                if stream {
                    assert!(text.contains(r#"a\ud83d\/\u00e9\u0000"#), "{text}");
                    assert!(
                        text.starts_with(r#"data: {"id":"c-1","#) && text.ends_with("\n\ndata: [DONE]\n\n")
                    );
                    assert_eq!(answer.header("content-type"), Some("text/event-stream; charset=utf-8"));
                    assert_eq!(answer.header("cache-control"), Some("no-cache"));
                } else {
                    assert_eq!(
                        text,
                        format!(r#"{{"id":"c-1","created":7,"model":"m" ,"choices":[ {{{stays}}} ]}}"#)
                    );
                    assert_eq!(answer.header("content-type"), Some("application/json"));
                    assert_eq!(answer.header("cache-control"), None);
                }
                assert_eq!(answer.header("content-length"), Some(text.len().to_string().as_str()));
                assert!(
                    !text.contains("SECRET") && !format!("{:?}", answer.headers).contains("SECRET"),
                    "{text}"
                );
                let names: Vec<_> = answer.headers.keys().map(http::HeaderName::as_str).collect();
                let known = ["content-type", "content-length", "cache-control", "date"];
                assert!(names.iter().all(|name| known.contains(name)), "{names:?}");
                // The worker's connection was to be closed; the client's serves on.
                assert_eq!(client.send(&Ask::get("/health")).await.status, 200);
            }
        }
    }
    assert_eq!(world.generation_legs().len(), 0);
    world.finish_with_orphans().await; // by the fault: the worker held KV for what it said it had finished
}

#[tokio::test]
async fn an_end_at_once_is_an_empty_answer() {
    let world = World::of(|context| context.eos_in_context(true), |generation| generation, &[]).await;
    for mut body in [chat_body("say nothing", true), completions_body("say nothing", true)] {
        for stream in [true, false] {
            body["stream"] = json!(stream);
            for two in [true, false] {
                let mut client =
                    if two { Client::http2(world.data).await } else { Client::http1(world.data).await };
                let answer = Answer::of(&client.send(&world.ask(&body)).await);
                assert_eq!((answer.text.as_str(), answer.finish.as_str(), answer.done), ("", "stop", true));
                // the connection serves on
                assert_eq!(client.send(&Ask::get("/health")).await.status, 200);
            }
        }
    }
    assert_eq!(world.called(), (8, 0));
    world.finish().await;
}

#[tokio::test]
async fn a_stop_that_the_client_named() {
    let world = World::start(&[]).await;
    for mut body in [chat_body("stop", true), completions_body("stop", true)] {
        let first = trtllm_sim::expected_answer(&body).completion_token_ids[0];
        let word = trtllm_sim::token_text(first);
        for stop in [json!({"stop_token_ids": [first]}), json!({"stop": [word[2..]]})] {
            for stream in [true, false] {
                body["stream"] = json!(stream);
                let body = with(body.clone(), stop.clone());
                let answer = Answer::of(&world.exchange(&body).await);
                let expected = trtllm_sim::expected_answer(&body);
                answer.is(&expected);
                let reason =
                    answer.stop_reason.as_str().map_or_else(|| answer.stop_reason.to_string(), str::to_owned);
                assert_eq!(Some(reason), expected.stop_reason);
            }
        }
    }
    assert_eq!(world.generation_legs().len(), 0);
    world.finish().await;
}

#[tokio::test]
async fn the_finish_reason_decides_whatever_else_there_is() {
    let world = World::start(&[]).await;
    for reason in ["stop", "tool_calls", "content_filter"] {
        for stream in [true, false] {
            let body = chat_body("finished", stream);
            for remove in [vec![], vec!["/choices/0/disaggregated_params"], vec!["/prompt_token_ids"]] {
                let fault =
                    json!({"on": "context", "set": {"/choices/0/finish_reason": reason}, "remove": remove});
                let answer = Answer::of(&world.send(&world.ask(&body).fault(&fault)).await);
                assert_eq!((answer.finish.as_str(), answer.done), (reason, true));
            }
        }
    }
    assert_eq!(world.generation_legs().len(), 0);
    world.finish_with_orphans().await; // by the worker's fault: it held KV for what it had finished
}
