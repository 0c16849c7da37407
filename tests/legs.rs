//! Both legs beside those that TensorRT-LLM's own orchestrator makes of the same client request and context reply.
//!
//! The samples are of one pair of legs for each generation and endpoint. The context reply of a sample is played back as it
//! is, byte for byte; what the two workers are then sent may differ from the sample in the ways of [`ALLOWED`] and in no
//! other, and each of these ways has to occur, so that the list does not outlive its reasons. Upstream also adds a
//! `tool_choice` where there are tools; no sample has any.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod common;

use std::collections::{BTreeMap, BTreeSet};

use common::{World, members, spelt};
use serde_json::{Value, value::RawValue};
use trtllm_sim::{Fault, Generation, On};

/// What the client of all samples sent, and to where.
const CLIENTS: [(&str, &str, &str); 2] = [
    (
        "chat",
        "/v1/chat/completions",
        r#"{"model": "m", "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello é你😀"}], "stream": true, "stream_options": {"include_usage": true}, "max_tokens": 64, "temperature": 0.7, "seed": 7, "stop": ["END"]}"#,
    ),
    (
        "completions",
        "/v1/completions",
        r#"{"model": "m", "prompt": "Once upon a time", "max_tokens": 16, "temperature": 0, "logprobs": 1, "echo": false}"#,
    ),
];

const SAMPLES: [(Generation, &str); 5] = [
    (Generation::G1, include_str!("trtllm-sim/tests/fixtures/g1.json")),
    (Generation::G2Late, include_str!("trtllm-sim/tests/fixtures/g2.json")),
    (Generation::G3, include_str!("trtllm-sim/tests/fixtures/g3.json")),
    (Generation::G4, include_str!("trtllm-sim/tests/fixtures/g4.json")),
    (Generation::G4n, include_str!("trtllm-sim/tests/fixtures/g4n.json")),
];

/// Endpoint, part, and its text.
type Sample = BTreeMap<String, BTreeMap<String, Box<RawValue>>>;

/// A place where ours and theirs are not the same; a number or a string as it is written, or nothing.
#[derive(Debug)]
struct Difference {
    leg: &'static str,
    context: Generation,
    generation: Generation,
    at: String,
    theirs: Option<String>,
    ours: Option<String>,
}

impl Difference {
    fn is(&self, at: &str, theirs: Option<&str>, ours: Option<&str>) -> bool {
        self.at == at && self.theirs.as_deref() == theirs && self.ours.as_deref() == ours
    }

    /// Whether the generation worker knows the usage of the context step, by contract, section 2.
    fn usage_is_known(&self) -> bool {
        self.generation >= Generation::G3
            || (self.context, self.generation) == (Generation::G2Late, Generation::G2Late)
    }
}

type Way = (&'static str, fn(&Difference) -> bool);

/// How ours may differ, by contract, sections 3 and 4.
const ALLOWED: &[Way] = &[
    ("a limit of a chat keeps the client's name for it", |it| {
        it.is("/max_completion_tokens", Some("64"), None) || it.is("/max_tokens", None, Some("64"))
    }),
    ("numbers keep the client's digits", |it| {
        let number = |text: &Option<String>| text.as_deref()?.parse::<f64>().ok();
        // where both are whole, they are as many digits as they are
        let float = it.theirs.as_deref().is_some_and(|text| text.contains('.'));
        float && number(&it.theirs).is_some() && number(&it.theirs) == number(&it.ours)
    }),
    ("what is null is left out", |it| it.theirs.as_deref() == Some("null") && it.ours.is_none()),
    ("a default that older workers do not know is left out", |it| {
        it.is("/disaggregated_params/return_prompt_token_ids_b64", Some("false"), None)
    }),
    ("the schedule is said to workers of the first generation too", |it| {
        let unsaid = if it.leg == "context" { None } else { Some("null") };
        it.context == Generation::G1 && it.is("/disaggregated_params/schedule_style", unsaid, Some("0"))
    }),
    ("a context leg has an id of its own", |it| {
        let both = it.theirs.is_some() && it.ours.is_some();
        it.leg == "context" && it.at == "/disaggregated_params/disagg_request_id" && both
    }),
    ("usage goes to workers that know it", |it| {
        it.at.starts_with("/disaggregated_params/ctx_usage")
            && it.theirs.is_none()
            && it.ours.is_some()
            && it.usage_is_known()
    }),
    ("and to no other", |it| {
        it.at.starts_with("/disaggregated_params/ctx_usage")
            && it.theirs.is_some()
            && it.ours.is_none()
            && !it.usage_is_known()
    }),
];

/// The text of each value that has no parts, by its place.
fn leaves(json: &[u8]) -> BTreeMap<String, String> {
    fn walk(value: &Value, at: String, out: &mut BTreeMap<String, String>) {
        match value {
            Value::Object(members) if !members.is_empty() => {
                members.iter().for_each(|(key, value)| walk(value, format!("{at}/{key}"), out));
            }
            Value::Array(items) if !items.is_empty() => {
                items.iter().enumerate().for_each(|(index, value)| walk(value, format!("{at}/{index}"), out));
            }
            leaf => drop(out.insert(at, leaf.to_string())),
        }
    }
    let mut out = BTreeMap::new();
    // no key is there twice, at the top and in what the handoff adds
    let top = members(json);
    members(top["disaggregated_params"].as_bytes());
    walk(&serde_json::from_slice(json).unwrap(), String::new(), &mut out);
    out
}

fn keys(json: &[u8]) -> Vec<String> {
    spelt(json).into_iter().map(|(key, _)| key).collect()
}

#[tokio::test]
async fn legs_differ_from_upstreams_only_as_documented() {
    let (mut used, mut reordered, mut other) = (BTreeSet::new(), false, Vec::new());
    for (context, sample) in SAMPLES {
        let sample: Sample = serde_json::from_str(sample).unwrap();
        for (generation, _) in SAMPLES {
            let world = World::of(
                |worker| worker.release(context.sample_release()),
                |worker| worker.release(generation.sample_release()),
                &[],
            )
            .await;
            for (kind, path, client) in CLIENTS {
                world.forget();
                let mut fault = Fault::on(On::Context);
                fault.reply = Some(sample[kind]["context_reply"].get().to_owned());
                world.context.set_fault(fault);
                world.send(&world.post(path, client)).await;
                world.context.clear_faults();
                let (legs, generation_legs) = (world.context_legs(), world.generation_legs());
                assert_eq!((legs.len(), generation_legs.len()), (1, 1), "{context} to {generation}, {kind}");
                // the schema took all of it: what was refused is that the sample's cache is nowhere
                assert_eq!(world.context.state().rejections, Vec::<String>::new());
                let refused = world.generation.state().rejections;
                assert_eq!(refused.len(), 1, "{context} to {generation}: {refused:?}");
                assert!(refused[0].contains("opaque state"), "{refused:?}");
                for (leg, part, ours) in [
                    ("context", "context_request", &legs[0].body),
                    ("generation", "generation_request", &generation_legs[0].body),
                ] {
                    let theirs = sample[kind][part].get().as_bytes();
                    let (theirs, ours) = ((keys(theirs), leaves(theirs)), (keys(ours), leaves(ours)));
                    // the client's order, and then what the handoff adds
                    let clients: Vec<_> =
                        keys(client.as_bytes()).into_iter().filter(|key| ours.0.contains(key)).collect();
                    assert_eq!(ours.0[..clients.len()], clients);
                    let common = |of: &[String], with: &[String]| -> Vec<String> {
                        of.iter().filter(|key| with.contains(key)).cloned().collect()
                    };
                    reordered |= common(&theirs.0, &ours.0) != common(&ours.0, &theirs.0);
                    let places: BTreeSet<_> = theirs.1.keys().chain(ours.1.keys()).collect();
                    for at in places {
                        let (theirs, ours) = (theirs.1.get(at).cloned(), ours.1.get(at).cloned());
                        if theirs == ours {
                            continue;
                        }
                        let difference =
                            Difference { leg, context, generation, at: at.clone(), theirs, ours };
                        let ways: Vec<_> = ALLOWED.iter().filter(|(_, holds)| holds(&difference)).collect();
                        match ways[..] {
                            [(way, _)] => drop(used.insert(*way)),
                            _ => other.push(format!("{kind}: {difference:?}")),
                        }
                    }
                }
            }
            world.finish_with_orphans().await;
        }
    }
    assert!(other.is_empty(), "other differences:\n{}", other.join("\n"));
    let stale: Vec<_> = ALLOWED.iter().filter(|(way, _)| !used.contains(way)).map(|(way, _)| way).collect();
    assert!(stale.is_empty(), "differences that do not occur: {stale:?}");
    assert!(reordered, "the order of members is the same, and need not be left out of the comparison");
}
