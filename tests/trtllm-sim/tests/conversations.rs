//! Which rank a request is placed on, and that it shows.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod support;

use serde_json::{Value, json};
use support::*;
use trtllm_sim::{Config, Engine, Generation, Role};

async fn engine(generation: Generation, ranks: usize, affinity: bool) -> Engine {
    let config = Config::new(Role::Both).release(generation.sample_release());
    Engine::start(config.ranks(ranks).conversation_affinity(affinity)).await.unwrap()
}

/// The rank that a context reply names, after a request with these headers.
async fn rank(engine: &Engine, headers: &[(&str, &str)], body: &Value, id: i64) -> Value {
    let headers = [&[JSON], headers].concat();
    let leg = context_leg(body, id).to_string();
    let reply = post_bytes(engine, CHAT, &headers, leg.as_bytes()).await;
    assert_eq!(reply.status, 200, "{}", reply.text());
    reply.json()["choices"][0]["disaggregated_params"]["ctx_dp_rank"].clone()
}

#[tokio::test]
async fn turns_of_a_conversation_stay_on_a_rank_when_that_is_on() {
    for generation in [Generation::G3, Generation::G4, Generation::G4n] {
        for (affinity, expected) in [(true, [0, 1, 0, 1]), (false, [0, 1, 2, 0])] {
            let engine = engine(generation, 3, affinity).await;
            let named = with(chat(), json!({"conversation_params": {"conversation_id": " a "}}));
            let ranks = [
                rank(&engine, &[("x-session-id", "a")], &chat(), 1 << 50).await,
                rank(&engine, &[("x-correlation-id", "b")], &chat(), 2 << 50).await,
                rank(&engine, &[("x-session-id", "b")], &named, 3 << 50).await,
                rank(&engine, &[("x-session-id", "b")], &chat(), 4 << 50).await,
            ];
            assert_eq!(ranks, expected, "{generation}");
            let state: Value = get(&engine, "/sim/state").await.json();
            let seen: Vec<_> = state["requests"]
                .as_array()
                .unwrap()
                .iter()
                .map(|request| (request["conversation"].clone(), request["rank"].clone()))
                .collect();
            let ids = ["a", "b", "a", "b"];
            assert_eq!(
                seen,
                ids.into_iter().zip(expected).map(|(i, r)| (json!(i), json!(r))).collect::<Vec<_>>()
            );
            let table = json!([{"id": "b", "rank": 1, "requests": 2}, {"id": "a", "rank": 0, "requests": 2}]);
            assert_eq!(state["conversations"], if affinity { table } else { json!([]) });
        }
    }
}

#[tokio::test]
async fn what_is_not_accepted_is_placed_nowhere() {
    let engine = engine(Generation::G3, 2, true).await;
    for params in [json!({"conversation_id": " "}), json!({"conversation_id": null}), json!({})] {
        let body = with(chat(), json!({"conversation_params": params}));
        assert_eq!(post(&engine, CHAT, &body).await.status, 400);
    }
    assert_eq!(get(&engine, "/version").await.status, 200);
    let state = engine.state();
    assert_eq!(state.requests.len(), 4);
    assert!(state.requests.iter().all(|seen| seen.rank.is_none() && seen.conversation.is_none()));
    assert_eq!(state.conversations, []);
    // null says nothing, and an aggregated request has a rank as well
    let body = with(chat(), json!({"conversation_params": null}));
    let headers = [JSON, ("x-session-id", "a")];
    assert_eq!(post_bytes(&engine, CHAT, &headers, body.to_string().as_bytes()).await.status, 200);
    let seen = engine.state().requests.pop().unwrap();
    assert_eq!((seen.conversation.as_deref(), seen.rank), (Some("a"), Some(0)));
}

#[tokio::test]
async fn older_engines_know_no_conversations() {
    for generation in [Generation::G0, Generation::G1, Generation::G2Early, Generation::G2Late] {
        let config = Config::new(Role::Both).release(generation.sample_release());
        let error = Engine::start(config.conversation_affinity(true)).await.unwrap_err();
        assert!(error.to_string().contains("kv_cache_routing_conversation_affinity"), "{error}");
        let engine = engine(generation, 2, false).await;
        let headers = [JSON, ("x-session-id", "a")];
        for expected in [0, 1] {
            let reply = post_bytes(&engine, CHAT, &headers, chat().to_string().as_bytes()).await;
            assert_eq!(reply.status, 200);
            let seen = engine.state().requests.pop().unwrap();
            assert_eq!((seen.conversation, seen.rank), (None, Some(expected)));
        }
    }
}
