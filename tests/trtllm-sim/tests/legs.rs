//! Legs as upstream's own orchestrator shapes them, one pair of samples for each generation.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod support;

use serde_json::Value;
use std::collections::BTreeMap;
use support::*;
use trtllm_sim::{Config, Engine, Generation, Role};

fn samples() -> [(Generation, Value); 5] {
    let read = |text| serde_json::from_str(text).unwrap();
    [
        (Generation::G1, read(include_str!("fixtures/g1.json"))),
        (Generation::G2Late, read(include_str!("fixtures/g2.json"))),
        (Generation::G3, read(include_str!("fixtures/g3.json"))),
        (Generation::G4, read(include_str!("fixtures/g4.json"))),
        (Generation::G4n, read(include_str!("fixtures/g4n.json"))),
    ]
}

async fn worker(generation: Generation) -> Engine {
    Engine::start(Config::new(Role::Both).release(generation.sample_release())).await.unwrap()
}

/// Whether the schema took it; what the engine then does is another matter.
fn taken(reply: &Reply) -> bool {
    reply.status == 200 || reply.json()["object"] == "error"
}

/// All paths to members, with whether they are null.
fn shape(value: &Value, path: &str, out: &mut BTreeMap<String, bool>) {
    match value {
        Value::Object(members) => {
            for (name, value) in members {
                out.insert(format!("{path}/{name}"), value.is_null());
                shape(value, &format!("{path}/{name}"), out);
            }
        }
        Value::Array(items) => {
            for item in items.iter().filter(|item| item.is_object()) {
                shape(item, &format!("{path}/0"), out);
            }
        }
        _ => {}
    }
}

#[tokio::test]
async fn context_legs_get_replies_of_the_sampled_shape() {
    for (generation, sample) in samples() {
        for (kind, path) in [("chat", CHAT), ("completions", COMPLETIONS)] {
            let engine = worker(generation).await;
            let reply = post(&engine, path, &sample[kind]["context_request"]).await;
            assert_eq!(reply.status, 200, "{generation} {kind}: {}", reply.text());
            let (mut ours, mut theirs) = (BTreeMap::new(), BTreeMap::new());
            shape(&reply.json(), "", &mut ours);
            shape(&sample[kind]["context_reply"], "", &mut theirs);
            // Their sample is of a worker that returns no style and no log probability.
            let free = |path: &String| {
                ["schedule_style", "logprobs", "first_gen_log_probs"].iter().any(|f| path.contains(f))
            };
            ours.retain(|path, _| !free(path));
            theirs.retain(|path, _| !free(path));
            assert_eq!(ours, theirs, "{generation} {kind}");
        }
    }
}

#[tokio::test]
async fn generation_legs_fit_their_own_generation_and_those_the_rules_say() {
    // Verbatim between generations: conversation_id and resolved_thinking are in
    // the way, and members that the older one has not heard of.
    let fits = |from: Generation, to: Generation| match from {
        Generation::G1 => true,
        Generation::G2Late => (Generation::G2Late..=Generation::G3).contains(&to),
        Generation::G3 => to == Generation::G3,
        _ => to >= Generation::G4,
    };
    for (from, sample) in samples() {
        for (to, _) in samples() {
            let engine = worker(to).await;
            for (kind, path) in [("chat", CHAT), ("completions", COMPLETIONS)] {
                let reply = post(&engine, path, &sample[kind]["generation_request"]).await;
                assert_eq!(taken(&reply), fits(from, to), "{from} to {to} {kind}: {}", reply.text());
                // Its KV is nowhere, so no leg is served.
                assert_eq!(reply.status, 400);
            }
        }
    }
}
