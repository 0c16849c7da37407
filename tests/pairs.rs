//! Every pair of releases does everything: both endpoints, streamed and whole, with and without log probabilities,
//! thinking, and a context worker that had some of the prompt cached.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod common;

use common::{Answer, Ask, Client, World, chat_body, completions_body, members};
use serde_json::{Value, json};
use tokio::task::JoinSet;
use trtllm_sim::{Config, Fault, Generation, expected_answer};

const SUPPORTED: [Generation; 6] = [
    Generation::G1,
    Generation::G2Early,
    Generation::G2Late,
    Generation::G3,
    Generation::G4,
    Generation::G4n,
];

/// A worker, by what it says of its release.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Worker {
    Release(&'static str),
    /// A text that names no release; it has this schema.
    Custom(Generation),
    /// It has no `/version`.
    Silent(Generation),
}

impl Worker {
    fn of(generation: Generation) -> Self {
        Self::Release(generation.sample_release())
    }

    fn configure(self, config: Config) -> Config {
        match self {
            Self::Release(release) => config.release(release),
            Self::Custom(generation) => config.release("custom build").generation(generation),
            Self::Silent(generation) => {
                let fault = Fault::from_json(r#"{"on":"version","status":404}"#).unwrap().remove(0);
                config.release("1.2.1").generation(generation).fault(fault)
            }
        }
    }

    fn schema(self) -> Generation {
        match self {
            Self::Release(release) => Generation::of_release(release).unwrap(),
            Self::Custom(generation) | Self::Silent(generation) => generation,
        }
    }
}

/// What reaches the generation worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Told {
    /// What the context worker counted. Without, the generation worker takes all that was transferred for cached.
    usage: bool,
    /// The log probability of the first token. Without, the client does not get it.
    logprobs: bool,
    /// How the context worker read what was asked about thinking, a hint.
    thinking: bool,
}

/// By contract, section 2, in the words of the simulated engines' generations.
fn told(context: Worker, generation: Worker) -> Told {
    let known = |since| context.schema() >= since && generation.schema() >= since;
    let shown = |since| context.schema() >= since;
    let usage = match generation {
        // there or not by what is between rc13 and rc22; nobody else's reply says which
        Worker::Release("1.3.0rc20" | "1.3.0rc20.post1" | "1.3.0rc21") => context == generation,
        Worker::Release(_) => generation.schema() >= Generation::G3,
        _ => shown(Generation::G2Late),
    };
    let thinking = match generation {
        Worker::Release("1.3.0rc25") => context == generation,
        _ => known(Generation::G4),
    };
    Told { usage, logprobs: known(Generation::G2Early), thinking }
}

/// One request of the product.
#[derive(Debug, Clone)]
struct Case {
    body: Value,
    logprobs: bool,
    thinking: bool,
    /// Whether the context worker had a quarter of the prompt cached.
    cached: bool,
}

/// Both endpoints, streamed and whole, with everything on and off.
fn product() -> Vec<Case> {
    let mut cases = Vec::new();
    for number in 0..32 {
        let [stream, logprobs, cached, thinking, chat] = [1, 2, 4, 8, 16].map(|bit| number & bit != 0);
        if thinking && !chat {
            continue;
        }
        let text = format!("a pair of releases, case {number}");
        let mut body = if chat { chat_body(&text, stream) } else { completions_body(&text, stream) };
        if stream {
            body["stream_options"] = json!({"include_usage": true});
        }
        if logprobs {
            body["logprobs"] = if chat { json!(true) } else { json!(1) };
        }
        if thinking {
            body["chat_template_kwargs"] = json!({"enable_thinking": true});
        }
        cases.push(Case { body, logprobs, thinking, cached });
    }
    assert_eq!(cases.len(), 16 + 8);
    cases
}

/// The same with everything on or off together.
fn extremes() -> Vec<Case> {
    let alike = |case: &Case| {
        case.logprobs == case.cached
            && (case.thinking == case.logprobs || case.body.get("messages").is_none())
    };
    product().into_iter().filter(alike).collect()
}

/// Sends each case, looks at what reached the generation worker, and compares the answer with the one that the
/// generation worker gives alone.
async fn all_right(context: Worker, generation: Worker, cases: Vec<Case>, flags: &[&str]) {
    let world = World::of(|c| context.configure(c), |g| generation.configure(g), flags).await;
    let told = told(context, generation);
    for case in &cases {
        let what = format!("{context:?} to {generation:?}, {case:?}");
        let alone = Client::http1(world.generation.addr()).await.send(&Ask::of(&case.body)).await;
        let mut ask = world.ask(&case.body);
        if !case.cached {
            ask = ask
                .fault(&json!({"on": "context", "set": {"/usage/prompt_tokens_details/cached_tokens": 0}}));
        }
        let reply = world.send(&ask).await;
        assert_eq!(reply.status, 200, "{what}: {}", reply.text());

        let leg = members(&world.generation_legs().pop().unwrap().body);
        let params = members(leg["disaggregated_params"].as_bytes());
        assert_eq!(params["request_type"], r#""generation_only""#);
        for (member, sent) in [
            ("ctx_usage", told.usage),
            ("first_gen_log_probs", told.logprobs && case.logprobs),
            ("resolved_thinking", told.thinking && case.thinking),
        ] {
            assert_eq!(params.contains_key(member), sent, "{member}: {what}");
        }

        let (mut expected, answer) = (Answer::of(&alone), Answer::of(&reply));
        let prompt = expected_answer(&case.body).prompt_token_ids.len();
        assert_eq!(
            (expected.usage["prompt_tokens"] == json!(prompt), expected.logprobs.is_empty()),
            (true, !case.logprobs)
        );
        if case.logprobs && !told.logprobs {
            // chat leaves it out, completions says null
            match case.body.get("messages") {
                Some(_) => drop(expected.logprobs.remove(0)),
                None => expected.logprobs[0].as_array_mut().unwrap()[1..3].fill(Value::Null),
            }
        }
        expected.usage["prompt_tokens_details"]["cached_tokens"] = json!(match (told.usage, case.cached) {
            (false, _) => prompt,
            (true, false) => 0,
            (true, true) => prompt / 4,
        });
        assert_eq!(answer, expected, "{what}");
        answer.is(&expected_answer(&case.body));
    }
    for engine in [&world.context, &world.generation] {
        assert_eq!(engine.state().rejections, Vec::<String>::new(), "{context:?} to {generation:?}");
    }
    assert_eq!(world.called(), (cases.len(), 2 * cases.len()));
    world.finish().await;
}

/// A world for each pair, all of them at a time.
async fn all_pairs(pairs: impl IntoIterator<Item = (Worker, Worker)>, cases: impl Fn() -> Vec<Case>) {
    let mut running = JoinSet::new();
    for (context, generation) in pairs {
        running.spawn(all_right(context, generation, cases(), &[]));
    }
    while let Some(result) = running.join_next().await {
        result.unwrap();
    }
}

fn square(workers: &[Worker]) -> Vec<(Worker, Worker)> {
    workers.iter().flat_map(|context| workers.iter().map(|generation| (*context, *generation))).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_supported_pair_does_everything() {
    let pairs = square(&SUPPORTED.map(Worker::of));
    assert_eq!(pairs.len(), 36);
    all_pairs(pairs, product).await;
}

/// Releases at the borders of generations, where it is not certain to which one they belong; amended and final ones;
/// and one that is newer than any known.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_pair_of_odd_releases() {
    let odd = [
        "1.3.0rc9.post1",
        "1.3.0rc20",
        "1.3.0rc20.post1",
        "1.3.0rc21",
        "1.3.0rc22.post1",
        "1.3.0rc24+cu13",
        "1.3.0rc25",
        "1.3.0",
        "9.9.9",
    ];
    all_pairs(square(&odd.map(Worker::Release)), extremes).await;
}

/// A worker that does not say is taken for the newest, but is sent only what the context worker's reply shows. So it
/// works with one of its own generation, whichever that is, and the newest with all.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pairs_with_workers_of_unknown_release() {
    let mut pairs = Vec::new();
    for schema in SUPPORTED {
        for unknown in [Worker::Custom, Worker::Silent] {
            pairs.push((unknown(schema), unknown(schema)));
            pairs.push((Worker::of(schema), unknown(schema)));
            pairs.push((Worker::of(schema), unknown(Generation::G4n)));
            pairs.extend(SUPPORTED.map(|generation| (unknown(schema), Worker::of(generation))));
        }
    }
    all_pairs(pairs, extremes).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pairs_whose_release_is_set() {
    for release in ["1.3.0rc5", "1.3.0rc22.post1", "1.3.0", "9.9.9"] {
        let worker = Worker::Release(release);
        all_right(worker, worker, extremes(), &["--engine-version", release]).await;
    }
}

#[tokio::test]
async fn members_of_a_newer_context_worker_do_not_reach_older_ones() {
    for generation in [Generation::G1, Generation::G2Early, Generation::G2Late, Generation::G3] {
        let world = World::of(|c| c.release("9.9.9"), |g| g.release(generation.sample_release()), &[]).await;
        let more = json!({"on": "context", "set": {
            "/choices/0/disaggregated_params/future": {"x": [1, {"y": null}]},
            "/choices/0/future": 1,
            "/usage/future": 1,
            "/usage/prompt_tokens_details/future": 1,
            "/future": [],
        }});
        for body in [chat_body("future", true), completions_body("future", false)] {
            let reply = world.send(&world.ask(&body).fault(&more)).await;
            Answer::of(&reply).is(&expected_answer(&body));
            assert!(
                !String::from_utf8_lossy(&world.generation_legs().pop().unwrap().body)
                    .contains("\"future\":")
            );
        }
        world.finish().await;
    }
}
