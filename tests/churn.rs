//! A thousand requests, half of which are cancelled at any time: nothing is left behind.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod common;

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use common::{Answer, Leave, Leaver, World, chat_body, completions_body};
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use trtllm_sim::expected_answer;

const REQUESTS: u64 = 1_000;
const AT_A_TIME: usize = 50;
/// How long the context engine holds what nobody collects.
const ENGINE_TIMEOUT: Duration = Duration::from_secs(3);

/// A small generator of numbers; each request has one of its own, so a seed gives the same requests in any order.
struct Random(u64);

impl Random {
    fn below(&mut self, most: u64) -> u64 {
        // splitmix64
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % most
    }
}

/// What one request is to do.
#[derive(Debug)]
struct Plan {
    body: Value,
    fault: Value,
    /// When it leaves, and how; otherwise it waits for the whole answer.
    leaves: Option<(Duration, Leave)>,
}

impl Plan {
    fn new(seed: u64, number: u64) -> Self {
        let mut random = Random(seed ^ (number << 32));
        random.below(2);
        let text = format!("request {number}");
        let stream = random.below(2) == 0;
        let mut body =
            if random.below(2) == 0 { chat_body(&text, stream) } else { completions_body(&text, stream) };
        body["max_tokens"] = json!(1 + random.below(16));
        // some end in their context step; all take some time in each window
        let eos = random.below(10) == 0;
        let fault = json!([
            {"on": "context", "eos": eos, "before_head_ms": random.below(40)},
            {"on": "generation", "before_head_ms": random.below(10), "before_first_token_ms": random.below(30),
                "token_gap_ms": random.below(8)},
        ]);
        let leaves = number.is_multiple_of(2).then(|| {
            let after = Duration::from_millis(random.below(200));
            (after, Leave::ALL[random.below(4) as usize])
        });
        Self { body, fault, leaves }
    }
}

fn seed() -> u64 {
    match std::env::var("CHURN_SEED") {
        Ok(seed) => seed.parse().expect("CHURN_SEED is a number"),
        Err(_) => SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_micros() as u64,
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_left_behind() {
    let seed = seed();
    println!("CHURN_SEED={seed}");
    let world = World::alone(
        |c| c.kv_transfer(Duration::from_millis(16)).transfer_timeout(ENGINE_TIMEOUT),
        |g| g,
        &[],
    )
    .await;
    let world = std::sync::Arc::new(world);
    let places = std::sync::Arc::new(Semaphore::new(AT_A_TIME));
    let mut running = tokio::task::JoinSet::new();
    for number in 0..REQUESTS {
        let place = places.clone().acquire_owned().await.unwrap();
        let (world, plan) = (world.clone(), Plan::new(seed, number));
        running.spawn(async move {
            let _place = place;
            let ask = world.ask(&plan.body).fault(&plan.fault);
            match plan.leaves {
                Some((after, how)) => {
                    let leaver = Leaver::asking(&world, &ask, how).await;
                    tokio::time::sleep(after).await;
                    leaver.leave().await;
                }
                None => {
                    let answer = Answer::of(&world.send(&ask).await);
                    if answer.finish == "stop" && answer.text.is_empty() {
                        assert!(plan.fault[0]["eos"] == json!(true), "{plan:?}");
                    } else {
                        answer.is(&expected_answer(&plan.body));
                    }
                }
            }
        });
    }
    while let Some(done) = running.join_next().await {
        done.unwrap();
    }
    let metrics = world.idle().await;
    world.quiet().await;
    assert_eq!(metrics.in_flight(), 0.0);
    assert_eq!(metrics.get("disagg_buffered_bytes"), 0.0);
    assert_eq!(metrics.get("disagg_settlements_active"), 0.0);
    let ended = ["completed", "cancelled", "failed"]
        .map(|outcome| metrics.get(&format!("disagg_requests_total{{outcome=\"{outcome}\"}}")));
    // an upload that breaks off is a failure; all that stayed have got their answers
    assert!(ended[2] <= REQUESTS as f64 / 10.0, "{ended:?}");
    assert!(ended[0] >= REQUESTS as f64 / 2.0 && ended[1] > 100.0, "{ended:?}");
    let (context, generation) = (world.context.state(), world.generation.state());
    // every window was hit
    assert!(
        context.aborts > 5 && generation.generation_aborts > 20,
        "{} {}",
        context.aborts,
        generation.generation_aborts
    );
    let settled = metrics.get("disagg_settlements_total{result=\"collected\"}");
    assert!(settled > 5.0, "{settled}");
    for reason in ["abandoned", "failed", "refused"] {
        assert_eq!(
            metrics.get(&format!("disagg_orphaned_handoffs_total{{reason=\"{reason}\"}}")),
            0.0,
            "{reason}"
        );
    }
    assert_eq!((context.failed_pulls, generation.failed_fetches), (0, 0));
    // Each is accounted for, those among them whose reply was on its way when the client left. None had to wait for the
    // engine's timeout.
    assert_eq!(context.context_requests, context.aborts + context.terminal + context.pulls + context.expired);
    assert_eq!(context.expired, 0, "left behind");
    assert_eq!((context.rejections, generation.rejections), (vec![], vec![]));
    assert_eq!(generation.fetched, context.pulls);
    // and the next one is served
    let body = chat_body("the next one", true);
    Answer::of(&world.exchange(&body).await).is(&expected_answer(&body));
    std::sync::Arc::into_inner(world).unwrap().finish().await;
}
