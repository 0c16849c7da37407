//! Group 3: the ids of a handoff.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::json;
use trtllm_sim::expected_answer;

use crate::common::{
    Answer, Client, World, chat_body, completions_body, members,
    pair::{BOTH, CHAT, JSON, Pair, body, handoff, id_of, params_of},
    worker::{Said, reply},
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b19_parallel_requests_have_ids_of_their_own() {
    parallel(256, &[]).await;
    parallel(50, &["--node-id", "3", "--process-id", "5"]).await;
    parallel(50, &["--machine-id", "197"]).await;
}

async fn parallel(requests: usize, identity: &[&str]) {
    let world = World::start(identity).await;
    let asked = (0..requests).map(|number| {
        let text = format!("request number {number}");
        let body = match number % 4 {
            0 | 1 => chat_body(&text, number % 2 == 0),
            _ => completions_body(&text, number % 2 == 0),
        };
        let ask = world.ask(&body);
        let data = world.data;
        tokio::spawn(async move {
            let reply = Client::http1(data).await.send(&ask).await;
            Answer::of(&reply).is(&expected_answer(&body));
        })
    });
    for asked in asked.collect::<Vec<_>>() {
        asked.await.unwrap();
    }
    let prompt = |request: &trtllm_sim::SeenRequest| {
        let body = request.json().unwrap();
        // on the generation leg of a completions request the prompt is token ids
        let said = body["messages"][0]["content"].as_str().or(body["prompt"].as_str());
        said.map_or_else(|| body["prompt"].to_string(), str::to_owned)
    };
    let mut ids = BTreeSet::new();
    let mut by_prompt = BTreeMap::new();
    for leg in world.context_legs() {
        let params = members(&leg.body)["disaggregated_params"].clone();
        let id = members(params.as_bytes())["disagg_request_id"].clone();
        let number: i64 = id.parse().expect("an integer in plain digits");
        assert!((1 << 42..i64::MAX).contains(&number), "{number}");
        if !identity.is_empty() {
            assert_eq!((number >> 16 & 0xff, number >> 10 & 0x3f), (3, 5), "{number:#x}");
        }
        assert!(ids.insert(id.clone()), "{id} twice");
        let mut key = prompt(&leg);
        if leg.path == "/v1/completions" {
            key = json!(trtllm_sim::prompt_tokens(&key)).to_string();
        }
        by_prompt.insert(key, id);
    }
    assert_eq!(ids.len(), requests);
    let legs = world.generation_legs();
    assert_eq!(legs.len(), requests);
    for leg in legs {
        let params = members(&leg.body)["disaggregated_params"].clone();
        let id = &members(params.as_bytes())["disagg_request_id"];
        assert_eq!(by_prompt.remove(&prompt(&leg)).as_ref(), Some(id), "the same id on both legs");
    }
    assert!(by_prompt.is_empty());
    world.finish().await;
}

#[tokio::test]
async fn b21_what_the_reply_hands_over_keeps_its_digits() {
    let pair = Pair::start(&[]).await;
    let floats = "[-0.12345678901234567890, 1E-7, -1.0e+2, -0.0]";
    for (member, value) in [
        ("ctx_request_id", "0"),
        ("ctx_request_id", "1"),
        ("ctx_request_id", "21831656151937025"),
        ("ctx_request_id", "9007199254740993"),
        ("ctx_request_id", "9223372036854775807"),
        ("ctx_request_id", "9223372036854775808"),
        ("ctx_request_id", "18446744073709551615"),
        // what the context worker has registered its cache under, whatever it was sent
        ("disagg_request_id", "0"),
        ("disagg_request_id", "9007199254740993"),
        ("disagg_request_id", "18446744073709551615"),
        ("first_gen_tokens", "[9007199254740993]"),
        ("first_gen_tokens", "[0,151643 ,7]"),
        ("draft_tokens", "[5,6]"),
        ("ctx_dp_rank", "7"),
        ("ctx_dp_rank", "18446744073709551616"),
        ("first_gen_log_probs", floats),
        ("first_gen_logits", "\"AAE=\\/\""),
    ] {
        for path in BOTH {
            pair.context.answer(move |leg| {
                let mut said = handoff(leg);
                let at = format!("\"{member}\":");
                // the member's own value, or one more member
                match said.find(&at).map(|start| start + at.len()) {
                    Some(start) => {
                        let rest = &said[start..];
                        let end = if rest.starts_with('[') {
                            rest.find(']').unwrap() + 1
                        } else {
                            rest.find(',').unwrap()
                        };
                        said.replace_range(start..start + end, value);
                    }
                    None => {
                        said = said.replacen("\"draft_tokens\"", &format!("{at}{value},\"draft_tokens\""), 1)
                    }
                }
                reply(200, JSON, said)
            });
            let answer = pair.exchange(path, body(path, r#""stream":true"#)).await;
            assert_eq!(answer.status, 200, "{member} {value}: {}", answer.text());
            let (context, generation) = pair.legs();
            let params = params_of(&generation);
            assert_eq!(params[member], value);
            if member != "disagg_request_id" {
                assert_eq!(params["disagg_request_id"], id_of(&context));
            }
            if member != "ctx_request_id" {
                assert_eq!(params["ctx_request_id"], id_of(&context));
            }
        }
    }
    pair.finish().await;
    // and an engine that hands over by such an id is served
    let world = World::alone(|context| context, |generation| generation, &[]).await;
    let before = world.metrics().await;
    let id = 9_007_199_254_740_993_i64; // no float holds it
    for body in [chat_body("another id", true), completions_body("another id", false)] {
        world.forget();
        let ask = world.ask(&body).fault(&json!({"on": "context", "register_id": id}));
        Answer::of(&world.send(&ask).await).is(&expected_answer(&body));
        assert_eq!(world.generation_legs()[0].disagg_request_id(), Some(id));
        assert_ne!(world.context_legs()[0].disagg_request_id(), Some(id));
    }
    assert_eq!(world.idle().await.since(&before)["disagg_id_mismatches_total"], 2.0);
    // the first token's log probability is one that the user sees
    let set = json!({"on": "context", "set": {
        "/choices/0/disaggregated_params/ctx_dp_rank": 7,
        "/choices/0/disaggregated_params/draft_tokens": [5, 6],
        "/choices/0/disaggregated_params/first_gen_log_probs": [-0.1],
    }});
    for (mut body, logprobs) in
        [(chat_body("digits", false), json!(true)), (completions_body("digits", false), json!(1))]
    {
        body["logprobs"] = logprobs;
        let answer = Answer::of(&world.send(&world.ask(&body).fault(&set)).await);
        answer.is(&expected_answer(&body));
        assert_eq!(answer.logprobs.len(), 12);
        let first = &answer.logprobs[0];
        let logprob = first.get("logprob").or_else(|| first.get(1)).unwrap();
        assert_eq!(logprob, -0.1, "{first}");
    }
    world.finish().await;
}

#[tokio::test]
async fn b23_each_attempt_has_an_id_of_its_own() {
    // the first attempts are read, and lost before a byte of a reply
    for (retries, lost) in [(1, 1), (3, 1), (3, 3)] {
        let flags = ["--context-retries", &retries.to_string()];
        let pair = Pair::start(&flags).await;
        for path in BOTH {
            for how in [Said::Reset, Said::Last(Vec::new())] {
                let mut attempts = 0;
                pair.context.answer(move |leg| {
                    attempts += 1;
                    if attempts <= lost { how.clone() } else { reply(200, JSON, handoff(leg)) }
                });
                assert_eq!(pair.exchange(path, body(path, r#""stream":true"#)).await.status, 200);
                let (context, generation) = (pair.context.legs(), pair.generation.legs());
                assert_eq!((context.len(), generation.len()), (lost + 1, 1));
                let ids: Vec<_> = context.iter().map(id_of).collect();
                assert_eq!(BTreeSet::from_iter(&ids).len(), ids.len(), "{ids:?}");
                let params = params_of(&generation[0]);
                let last = ids.last().unwrap();
                assert_eq!((&params["disagg_request_id"], &params["ctx_request_id"]), (last, last));
                pair.forget();
            }
        }
        pair.finish().await;
    }
    // and when all are lost
    for (retries, attempts) in [("0", 1), ("1", 2), ("3", 4)] {
        let world =
            World::alone(|context| context, |generation| generation, &["--context-retries", retries]).await;
        let served = chat_body("served", true);
        Answer::of(&world.exchange(&served).await).is(&expected_answer(&served));
        for how in ["fin", "rst"] {
            world.forget();
            let before = world.metrics().await;
            let fault = json!({"on": "context", "cut": {"at": "head", "how": how}});
            let what = format!("{how}, {retries} retries");
            let reply = world.send(&world.ask(&chat_body("lost", how == "fin")).fault(&fault)).await;
            reply.is_error(502, "context_unreachable");
            assert_eq!(world.called(), (attempts, 0), "{what}");
            let ids: BTreeSet<_> = world.context_legs().iter().map(|leg| leg.disagg_request_id()).collect();
            assert_eq!(ids.len(), attempts, "a fresh id for each attempt");
            let retried = world.metrics().await.since(&before);
            let expected = (attempts > 1).then_some((attempts - 1) as f64);
            assert_eq!(retried.get("disagg_context_retries_total").copied(), expected, "{what}");
        }
        // nobody listens
        world.forget();
        world.context.shutdown().await;
        world.exchange(&chat_body("nobody", true)).await.is_error(502, "context_unreachable");
        assert_eq!(world.called(), (0, 0));
        world.finish_with_orphans().await;
    }
    // a reply of which a byte was seen is never asked for again: see b29
    let pair = Pair::start(&["--context-retries", "3"]).await;
    pair.context.says(Said::Last(b"H".to_vec()));
    pair.exchange(CHAT, body(CHAT, "")).await.is_error(502, "context_unreachable");
    assert_eq!(pair.called(), (1, 0));
    pair.finish().await;
}
