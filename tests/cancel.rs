//! Clients that leave: what the workers see of it, and what is left behind (nothing).

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod common;

use std::{collections::BTreeMap, time::Duration};

use common::{
    Answer, Ask, Client, Leave, Leaver, Metrics, Raw, SOON, World, chat_body, completions_body, eventually,
    within,
};
use serde_json::{Value, json};
use trtllm_sim::expected_answer;

/// The same engines for all tests here: tokens take their time, and so does the transfer of KV.
async fn world(flags: &[&str]) -> World {
    world_with(Duration::from_secs(60), flags).await
}

async fn world_with(transfer_timeout: Duration, flags: &[&str]) -> World {
    let (gap, transfer) = (Duration::from_millis(5), Duration::from_millis(64));
    let context = |c: trtllm_sim::Config| c.kv_transfer(transfer).transfer_timeout(transfer_timeout);
    let world = World::alone(context, |g| g.token_gap(gap), flags).await;
    // afterwards the releases are known, and what comes are the requests of the test
    Answer::of(&world.exchange(&chat_body("first", false)).await);
    world.idle().await;
    world.forget();
    world
}

fn requests() -> [Value; 4] {
    [
        chat_body("leaves", true),
        chat_body("leaves", false),
        completions_body("leaves", true),
        completions_body("leaves", false),
    ]
}

/// Every kind of request, left in every way. `leave` sends it, waits for the right moment, and leaves.
macro_rules! each {
    ($world:ident, $ways:expr, $leave:expr, $check:expr) => {
        for (number, body) in requests().into_iter().enumerate() {
            for how in $ways(number) {
                $world.forget();
                let before = Before::of(&$world).await;
                let leave: Leaver = $leave(&body, how).await;
                let client = leave.leave().await;
                $check(&body, &before).await;
                let after = $world.idle().await;
                before.only_cancelled(&after, &body, how);
                if let Some(mut client) = client {
                    // the connection serves on
                    let other = chat_body("another stream", true);
                    Answer::of(&client.send(&$world.ask(&other)).await).is(&expected_answer(&other));
                    $world.idle().await;
                }
            }
        }
    };
}

/// How things stood before a request.
struct Before {
    metrics: Metrics,
    context: trtllm_sim::State,
    generation: trtllm_sim::State,
}

impl Before {
    async fn of(world: &World) -> Self {
        Self {
            metrics: world.idle().await,
            context: world.context.state(),
            generation: world.generation.state(),
        }
    }

    fn counted(&self, after: &Metrics) -> BTreeMap<String, f64> {
        after.since(&self.metrics)
    }

    #[track_caller]
    fn only_cancelled(&self, after: &Metrics, body: &Value, how: Leave) {
        let counted = self.counted(after);
        let requests: Vec<_> =
            counted.iter().filter(|(name, _)| name.starts_with("disagg_requests_total")).collect();
        let cancelled = "disagg_requests_total{outcome=\"cancelled\"}".to_owned();
        assert_eq!(requests, [(&cancelled, &1.0)], "{how:?}, {body}");
    }

    /// That settlements ended so, once, or that there was none; the same for orphans.
    #[track_caller]
    fn settled(&self, after: &Metrics, settled: Option<&str>, orphaned: Option<&str>) {
        let counted = self.counted(after);
        for (name, label, value) in [
            ("disagg_settlements_total", "result", settled),
            ("disagg_orphaned_handoffs_total", "reason", orphaned),
        ] {
            let seen: Vec<_> = counted.iter().filter(|(series, _)| series.starts_with(name)).collect();
            match value {
                Some(value) => assert_eq!(seen, [(&format!("{name}{{{label}=\"{value}\"}}"), &1.0)]),
                None => assert!(seen.is_empty(), "{seen:?}"),
            }
        }
    }
}

fn stream(body: &Value) -> bool {
    body["stream"] == json!(true)
}

// === before the context reply ===

#[tokio::test]
async fn before_the_context_reply_the_context_leg_is_dropped() {
    let world = world(&[]).await;
    let fault = json!({"on": "context", "hang": "before_head"});
    each!(
        world,
        |_| Leave::ALL,
        async |body: &Value, how| {
            let leaver = Leaver::asking(&world, &world.ask(body).fault(&fault), how).await;
            eventually("the context leg is there", || world.called() == (1, 0)).await;
            leaver
        },
        async |_: &Value, before: &Before| {
            within(SOON, "the worker sees its client leave", || {
                let state = world.context.state();
                state.aborts == before.context.aborts + 1 && state.open_requests == 0
            })
            .await;
            assert_eq!(world.called(), (1, 0), "no generation leg");
            before.settled(&world.idle().await, None, None);
        }
    );
    world.finish().await;
}

#[tokio::test]
async fn a_client_that_stops_sending_counts_as_gone() {
    let world = world(&[]).await;
    let fault = json!({"on": "context", "hang": "before_head"});
    let mut raw = Raw::asking(world.data, &world.ask(&chat_body("half", true)).fault(&fault)).await;
    eventually("the context leg is there", || world.called() == (1, 0)).await;
    raw.half_close().await;
    within(SOON, "the worker sees its client leave", || world.context.state().aborts == 1).await;
    world.finish().await;
}

#[tokio::test]
async fn during_its_upload_no_worker_is_called() {
    let world = world(&[]).await;
    let before = Before::of(&world).await;
    for reset in [false, true] {
        let mut raw = Raw::connect(world.data).await;
        raw.write(world.ask(&json!({})).head("content-length: 100")).await;
        raw.write("{").await;
        // over another connection, so that this one has been read
        assert_eq!(world.send(&Ask::get("/health")).await.status, 200);
        if reset { raw.reset() } else { drop(raw) }
    }
    let counted = before.counted(&world.idle().await);
    let ended: f64 = counted.values().sum();
    assert_eq!(ended, 2.0, "{counted:?}");
    assert_eq!(world.called(), (0, 0));
    world.finish().await;
}

// === between the context reply and the first byte of the generation reply ===

#[tokio::test]
async fn while_kv_is_transferred_the_handoff_is_finished_without_the_client() {
    let world = world(&[]).await;
    each!(
        world,
        |_| Leave::ALL,
        async |body: &Value, how| {
            let leaver = Leaver::asking(&world, &world.ask(body), how).await;
            eventually("the transfer is under way", || {
                world.called() == (1, 1) && world.context.state().kv_held == 1
            })
            .await;
            leaver
        },
        async |body: &Value, before: &Before| {
            within(SOON, "the KV is collected and the rest is dropped", || {
                let (context, generation) = (world.context.state(), world.generation.state());
                context.pulls == before.context.pulls + 1
                    && context.kv_held == 0
                    && generation.open_requests == 0
            })
            .await;
            let generation = world.generation.state();
            assert_eq!(generation.fetched, before.generation.fetched + 1);
            assert_eq!(generation.transfer_aborts, 0);
            // a stream is dropped after its first byte; a whole reply is all there with it
            let aborts = generation.generation_aborts - before.generation.generation_aborts;
            assert_eq!(aborts, u64::from(stream(body)), "{body} {generation:?}");
            assert_eq!(world.context.state().aborts, before.context.aborts);
            before.settled(&world.idle().await, Some("collected"), None);
        }
    );
    world.finish().await;
}

#[tokio::test]
async fn after_the_head_of_a_stream_it_is_held_to_its_first_byte() {
    let world = world(&[]).await;
    let fault = json!({"on": "generation", "before_first_token_ms": 150});
    for how in Leave::ALL {
        for body in [chat_body("head", true), completions_body("head", true)] {
            let before = Before::of(&world).await;
            world.forget();
            let leaver = Leaver::asking(&world, &world.ask(&body).fault(&fault), how).await;
            eventually("the KV is collected", || {
                world.generation.state().fetched > before.generation.fetched
            })
            .await;
            leaver.leave().await;
            within(SOON, "the stream is dropped", || {
                world.generation.state().generation_aborts == before.generation.generation_aborts + 1
            })
            .await;
            let after = world.idle().await;
            before.settled(&after, Some("collected"), None);
        }
    }
    world.finish().await;
}

#[tokio::test]
async fn a_context_reply_whose_end_does_not_come_is_given_up_in_time() {
    let world = world_with(Duration::from_millis(400), &["--settle-timeout", "50ms"]).await;
    let fault = json!({"on": "context", "hang": "after_head"});
    each!(
        world,
        |number| [Leave::ALL[number]],
        async |body: &Value, how| {
            let leaver = Leaver::asking(&world, &world.ask(body).fault(&fault), how).await;
            eventually("the context step is done", || world.context.state().kv_held == 1).await;
            // by the time that these are through, the head has been read
            for _ in 0..3 {
                assert_eq!(world.send(&Ask::get("/health")).await.status, 200);
            }
            leaver
        },
        async |_: &Value, before: &Before| {
            within(SOON, "the leg is dropped", || world.context.state().open_requests == 0).await;
            let after = world.idle().await;
            before.settled(&after, Some("abandoned"), Some("abandoned"));
            assert_eq!(world.generation.state().generation_requests, before.generation.generation_requests);
            // what is held has no owner, until the engine's own timeout
            eventually("the KV is given up", || world.context.state().expired == before.context.expired + 1)
                .await;
        }
    );
    world.finish().await;
}

#[tokio::test]
async fn a_settlement_that_the_generation_worker_refuses_is_an_orphan() {
    let world = world(&[]).await;
    let fault = json!({"on": "generation", "status": 400, "before_head_ms": 100});
    for body in [chat_body("refused", true), completions_body("refused", false)] {
        world.forget();
        let before = Before::of(&world).await;
        let leaver = Leaver::asking(&world, &world.ask(&body).fault(&fault), Leave::Close).await;
        eventually("the generation leg is there", || world.called() == (1, 1)).await;
        leaver.leave().await;
        within(SOON, "the worker has answered", || world.generation.state().open_requests == 0).await;
        before.settled(&world.idle().await, Some("refused"), Some("refused"));
    }
    world.finish_with_orphans().await;
}

#[tokio::test]
async fn where_settling_is_off_nobody_collects_the_kv() {
    let world = world(&["--settle", "off"]).await;
    let before = Before::of(&world).await;
    let leaver = Leaver::asking(&world, &world.ask(&chat_body("off", true)), Leave::Close).await;
    eventually("the transfer is under way", || {
        world.called() == (1, 1) && world.context.state().kv_held == 1
    })
    .await;
    leaver.leave().await;
    // what settling is there to prevent
    within(SOON, "the worker sees its client leave", || {
        let state = world.generation.state();
        state.transfer_aborts + state.generation_aborts == 1 && state.open_requests == 0
    })
    .await;
    assert_eq!(world.context.state().kv_held, 1, "nobody has collected it");
    before.settled(&world.idle().await, None, Some("abandoned"));
    world.finish_with_orphans().await;
}

// === after the first byte of the generation reply ===

#[tokio::test]
async fn after_the_first_byte_the_generation_leg_is_dropped() {
    let world = world(&[]).await;
    // no other token will come to tell the proxy that nobody reads
    let fault = json!({"on": "generation", "hang": {"after_tokens": 3}});
    for body in [chat_body("leaves", true), completions_body("leaves", true)] {
        for how in Leave::ALL {
            world.forget();
            let before = Before::of(&world).await;
            let mut leaver = Leaver::asking(&world, &world.ask(&body).fault(&fault), how).await;
            leaver.has_seen(&trtllm_sim::token_text(expected_answer(&body).completion_token_ids[2])).await;
            let client = leaver.leave().await;
            within(SOON, "the worker sees its client leave", || {
                let state = world.generation.state();
                state.generation_aborts == before.generation.generation_aborts + 1 && state.open_requests == 0
            })
            .await;
            let after = world.idle().await;
            before.only_cancelled(&after, &body, how);
            before.settled(&after, None, None);
            let dropped = before.counted(&after)["disagg_generation_streams_total{end=\"dropped\"}"];
            assert_eq!(dropped, 1.0);
            if let Some(mut client) = client {
                let other = chat_body("another stream", true);
                Answer::of(&client.send(&world.ask(&other)).await).is(&expected_answer(&other));
            }
        }
    }
    world.finish().await;
}

#[tokio::test]
async fn what_passes_through_is_dropped_at_any_time() {
    let world = world(&[]).await;
    for fault in [json!({"hang": "before_head"}), json!({"hang": {"after_tokens": 1}})] {
        for how in Leave::ALL {
            let before = Before::of(&world).await;
            world.forget();
            let ask = Ask::of(&chat_body("passing", true)).fault(&fault);
            let leaver = Leaver::asking(&world, &ask, how).await;
            eventually(&format!("the request is there {how:?} {fault}"), || world.called() == (0, 1)).await;
            leaver.leave().await;
            within(SOON, "the worker sees its client leave", || {
                world.generation.state().generation_aborts == before.generation.generation_aborts + 1
            })
            .await;
            before.settled(&world.idle().await, None, None);
        }
    }
    world.finish().await;
}

// === several at a time ===

#[tokio::test]
async fn one_connection_that_leaves_requests_in_all_three_windows() {
    let world = world(&[]).await;
    let before = Before::of(&world).await;
    let client = Client::http2(world.data).await;
    let ask = |body: &Value, fault: Value| {
        let (mut client, ask) = (client.share(), world.ask(body).fault(&fault));
        tokio::spawn(async move {
            let response = client.start(&ask).await;
            let _ = http_body_util::BodyExt::collect(response?.into_body()).await;
            hyper::Result::Ok(())
        })
    };
    let body = chat_body("three", true);
    let third = ask(&body, json!({"on": "generation", "hang": {"after_tokens": 2}}));
    eventually("one streams", || {
        let state = world.generation.state();
        state.fetched == before.generation.fetched + 1
            && state.body_bytes > before.generation.body_bytes + 400
    })
    .await;
    let first = ask(&body, json!({"on": "context", "hang": "before_head"}));
    eventually("one waits", || world.called() == (2, 1)).await;
    let second = ask(&body, json!({}));
    eventually("one is being transferred", || world.called() == (3, 2)).await;
    drop(client);
    for asked in [first, second, third] {
        let _ = asked.await.unwrap();
    }
    within(SOON, "the workers see their client leave", || {
        let (context, generation) = (world.context.state(), world.generation.state());
        context.aborts == 1 && context.kv_held == 0 && generation.generation_aborts == 2
    })
    .await;
    let after = world.idle().await;
    before.settled(&after, Some("collected"), None);
    assert_eq!(before.counted(&after)["disagg_requests_total{outcome=\"cancelled\"}"], 3.0);
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn others_are_not_touched() {
    let world = world(&[]).await;
    let streams = (0..8).map(|number| {
        let body = chat_body(&format!("stays {number}"), true);
        let (data, ask) = (world.data, world.ask(&body));
        tokio::spawn(async move {
            Answer::of(&Client::http1(data).await.send(&ask).await).is(&expected_answer(&body));
        })
    });
    let streams: Vec<_> = streams.collect();
    // replies come when their clients have gone already
    let late = json!({"on": "context", "before_head_ms": 60});
    let leaving = (0..64).map(async |number: u64| {
        let ask = world.ask(&chat_body(&format!("leaves {number}"), number.is_multiple_of(2))).fault(&late);
        let leaver = Leaver::asking(&world, &ask, Leave::ALL[number as usize % 4]).await;
        tokio::time::sleep(Duration::from_millis(40 + number % 40)).await;
        leaver.leave().await;
    });
    let leaving: Vec<_> = leaving.collect();
    futures_all(leaving).await;
    for stream in streams {
        stream.await.unwrap();
    }
    world.idle().await;
    world.finish().await;
}

/// Runs all of them at a time.
async fn futures_all(futures: Vec<impl Future<Output = ()>>) {
    let mut futures: Vec<_> = futures.into_iter().map(|future| (Box::pin(future), false)).collect();
    std::future::poll_fn(|cx| {
        for (future, done) in futures.iter_mut().filter(|(_, done)| !done) {
            *done = future.as_mut().poll(cx).is_ready();
        }
        if futures.iter().all(|(_, done)| *done) {
            std::task::Poll::Ready(())
        } else {
            std::task::Poll::Pending
        }
    })
    .await;
}
