//! Group 5: answers that the context step has finished, and limits.

use serde_json::json;
use trtllm_sim::expected_answer;

use crate::common::{
    Answer, World, chat_body, completions_body, members,
    pair::{ANSWER, BOTH, CHAT, EVENTS, JSON, Pair, body, id_of},
    worker::{chunked, reply},
};

/// A reply that ends the request, and what the client is to see of it: the same bytes, without what a handoff adds.
fn ended(path: &str, finish: &str, params: &str, tokens: &str) -> (String, String) {
    let said = if path == CHAT {
        r#""message":{"role":"assistant","content":"Y\u0065s","tool_calls":[{"function":{"arguments":"{\"disaggregated_params\":1}"}}]}"#
    } else {
        r#""text":"Y\u0065s, \"prompt_token_ids\"""#
    };
    let whole = |params: &str, tokens: &str| {
        format!(
            "{{ \"id\" : \"c-1\",\n \"choices\":[ {{\"index\":0,{said},\"finish_reason\":\"{finish}\"{params}, \"logprobs\":null}} ],\"usage\":{{\"x\":1.50}}{tokens}}}"
        )
    };
    (whole(params, tokens), whole("", ""))
}

#[tokio::test]
async fn b37_the_context_step_was_the_whole_answer() {
    let pair = Pair::alone(&[]).await;
    let null = r#", "disaggregated_params" : {"request_type":"context_only","ctx_request_id":null,"disagg_request_id":null,"first_gen_tokens":null,"encoded_opaque_state":null}"#;
    let ids = r#","disaggregated_params":{"request_type":"context_only","first_gen_tokens":[2],"ctx_request_id":<ID>,"disagg_request_id":<ID>,"encoded_opaque_state":"AAEC","ctx_info_endpoint":"tcp://a:1"}"#;
    for path in BOTH {
        for finish in ["stop", "tool_calls", "content_filter"] {
            for (params, tokens) in [
                (null, r#","prompt_token_ids":[1,2]"#),
                (ids, r#","prompt_token_ids":[1,2],"prompt_token_ids_b64":null"#),
                (ids, r#" , "prompt_token_ids_b64" : "AQAAAA==""#),
                (r#","disaggregated_params":null"#, r#","prompt_token_ids":null"#),
                (r#","disaggregated\u005fparams":{}"#, r#","prompt_token\u005fids":[]"#),
                (null, ""),
                ("", r#","prompt_token_ids":[1,2]"#),
                // what a handoff would be refused for does not matter here
                (
                    r#","disaggregated_params":"x","disaggregated_params":[]"#,
                    r#","prompt_token_ids":{},"prompt_token_ids":[1]"#,
                ),
            ] {
                for chunks in [false, true] {
                    let (said, seen) = ended(path, finish, params, tokens);
                    pair.context.answer(move |leg| {
                        let said = said.replace("<ID>", &id_of(leg));
                        if chunks {
                            chunked(200, JSON, [&said[..7], &said[7..]])
                        } else {
                            reply(200, JSON, said)
                        }
                    });
                    let answer = pair.exchange(path, body(path, "")).await;
                    assert_eq!(answer.status, 200, "{}", answer.text());
                    assert_eq!(answer.text(), seen, "{params} {tokens}");
                    assert_eq!(answer.header("content-type"), Some(JSON));
                    assert_eq!(answer.header("content-length"), Some(seen.len().to_string().as_str()));
                    assert_eq!(
                        pair.called(),
                        (1, 0),
                        "a generation leg would fail in the engine's event loop"
                    );
                }
            }
        }
        // with nothing to take out they are the very same bytes
        let said = ended(path, "stop", "", "").0;
        let same = said.clone();
        pair.context.answer(move |_| reply(200, JSON, &same));
        assert_eq!(pair.exchange(path, body(path, "")).await.text(), said);
        pair.forget();
    }
    assert_eq!(pair.world.idle().await.in_flight(), 0.0);
    pair.finish().await;
    // an engine whose first token is the end
    let world = World::of(|context| context.eos_in_context(true), |generation| generation, &[]).await;
    for body in [chat_body("say nothing", false), completions_body("say nothing", false)] {
        let reply = world.exchange(&body).await;
        let answer = Answer::of(&reply);
        assert_eq!((answer.text.as_str(), answer.finish.as_str()), ("", "stop"));
        let keys = members(&reply.body);
        assert!(!keys.contains_key("prompt_token_ids") && keys.contains_key("usage"), "{keys:?}");
        assert!(!reply.text().contains("disaggregated_params"));
    }
    assert_eq!(world.called(), (2, 0));
    assert_eq!(world.context.state().kv_held, 0);
    world.finish().await;
}

#[tokio::test]
async fn b39_one_token_still_takes_both_legs() {
    let world = World::start(&[]).await;
    for limit in ["max_tokens", "max_completion_tokens"] {
        for stream in [true, false] {
            for mut body in [chat_body("one", stream), completions_body("one", stream)] {
                let members = body.as_object_mut().unwrap();
                members.remove("max_tokens");
                if limit == "max_completion_tokens" && members.contains_key("prompt") {
                    continue;
                }
                body[limit] = json!(1);
                world.forget();
                let answer = Answer::of(&world.exchange(&body).await);
                answer.is(&expected_answer(&body));
                assert_eq!((answer.finish.as_str(), answer.text.is_empty()), ("length", false));
                assert_eq!(world.called(), (1, 1), "somebody has to collect the cache");
            }
        }
    }
    let (context, generation) = (world.context.state(), world.generation.state());
    assert_eq!((context.kv_held, context.pulls), (0, 6));
    assert_eq!(generation.generation_requests, 6);
    world.finish().await;
    // and the client sees what the generation worker wrote, and nothing else
    let pair = Pair::start(&[]).await;
    for path in BOTH {
        let events = [ANSWER[0], ANSWER[4]];
        pair.generation.answer(move |_| chunked(200, EVENTS, events));
        let answer = pair.exchange(path, body(path, r#""stream":true,"max_tokens":1"#)).await;
        assert_eq!(answer.text(), events.concat());
        assert_eq!(pair.called(), (1, 1));
    }
    pair.finish().await;
}

#[tokio::test]
async fn b40_limits_are_the_clients_on_both_legs() {
    let pair = Pair::start(&[]).await;
    for limits in [
        r#""min_tokens":8,"max_completion_tokens":64,"ignore_eos":true"#,
        r#""min_tokens":8,"max_tokens":8"#,
        r#""max_tokens":16,"max_completion_tokens":16"#,
        r#""max_tokens":1"#,
        r#""max_tokens":0"#,
        r#""max_tokens":-1,"min_tokens":null"#,
        r#""max_tokens":16.0,"stop":"a","stop_token_ids":[2],"include_stop_str_in_output":true"#,
        r#""truncate_prompt_tokens":5,"thinking_token_budget":3,"prompt_ignore_length":1,"max_new_tokens":7"#,
        r#""temperature":0,"top_p":1.0,"top_k":-1,"seed":null"#,
    ] {
        for path in BOTH {
            for stream in ["true", "false"] {
                pair.keeps(path, &body(path, &format!(r#"{limits},"stream":{stream}"#))).await;
            }
        }
    }
    pair.finish().await;
    // a strict engine takes them on both legs, and keeps to them
    let world = World::start(&[]).await;
    for limits in [
        json!({"min_tokens": 8, "max_completion_tokens": 64, "ignore_eos": true}),
        json!({"min_tokens": 8, "max_tokens": 8}),
        json!({"min_tokens": 20}),
        json!({"max_tokens": 33, "ignore_eos": true}),
    ] {
        for mut body in [chat_body("limits", true), completions_body("limits", false)] {
            let members = body.as_object_mut().unwrap();
            members.remove("max_tokens");
            if members.contains_key("prompt") && limits.get("max_completion_tokens").is_some() {
                continue;
            }
            members.extend(limits.as_object().unwrap().clone());
            Answer::of(&world.exchange(&body).await).is(&expected_answer(&body));
        }
    }
    world.finish().await;
}

#[tokio::test]
async fn b41_stream_options_go_with_the_stream() {
    // an engine answers 400 to options where nothing is streamed
    let world = World::start(&[]).await;
    for options in [
        json!(null),
        json!({}),
        json!({"include_usage": true}),
        json!({"include_usage": false}),
        json!({"include_usage": null}),
        json!({"include_usage": true, "continuous_usage_stats": true}),
    ] {
        for mut body in [chat_body("options", true), completions_body("options", true)] {
            body["stream_options"] = options.clone();
            world.forget();
            Answer::of(&world.exchange(&body).await).is(&expected_answer(&body));
            let context = members(&world.context_legs()[0].body);
            assert_eq!((context["stream"].as_str(), context.get("stream_options")), ("false", None));
            let generation = members(&world.generation_legs()[0].body);
            assert_eq!(generation["stream"], "true");
            assert_eq!(generation["stream_options"], options.to_string());
        }
    }
    assert_eq!(world.context.state().rejections, Vec::<String>::new());
    // options without a stream would be refused by the generation worker, when the context step is spent
    for stream in [json!(false), json!(null)] {
        for mut body in [chat_body("options", false), completions_body("options", false)] {
            body["stream"] = stream.clone();
            body["stream_options"] = json!({"include_usage": true});
            world.forget();
            let error = world.exchange(&body).await.is_error(400, "invalid_request");
            assert_eq!(error["param"], "stream_options");
            assert_eq!(world.called(), (0, 0));
        }
    }
    // nor does the context worker see options that no engine knows
    for options in [json!({"include_usage": true, "include_obfuscation": false}), json!({"x": null})] {
        for mut body in [chat_body("options", true), completions_body("options", true)] {
            body["stream_options"] = options.clone();
            world.forget();
            let error = world.exchange(&body).await.is_error(400, "invalid_request");
            assert_eq!(error["param"], "stream_options");
            assert_eq!(world.called(), (0, 0));
        }
    }
    world.finish().await;
}
