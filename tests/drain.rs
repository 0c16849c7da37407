//! The way out: what runs is finished, nothing new is begun.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod common;

use std::{net::SocketAddr, time::Duration};

use common::{
    Answer, Ask, Client, End, Leave, Leaver, PATIENCE, Raw, SOON, World, chat_body, completions_body,
    eventually, within,
};
use disagg_sidecar::Outcome;
use serde_json::json;
use tokio::{net::TcpStream, task::JoinHandle};
use trtllm_sim::expected_answer;

async fn outcome(running: JoinHandle<Outcome>) -> Outcome {
    tokio::time::timeout(PATIENCE, running).await.expect("an end in time").unwrap()
}

/// Waits until nobody accepts connections any more.
async fn closed(address: SocketAddr) {
    let closed = async {
        while TcpStream::connect(address).await.is_ok() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(PATIENCE, closed).await.expect("closed in time");
}

#[tokio::test]
async fn what_runs_is_finished_and_nothing_new_is_begun() {
    let world = World::of(|c| c, |g| g.token_gap(Duration::from_millis(30)), &[]).await;
    world.ready().await;
    let (streams, waits) = (chat_body("streams", true), completions_body("waits", false));
    let mut streaming = Raw::asking(world.data, &world.ask(&streams)).await;
    let mut streaming_two = Leaver::asking(&world, &world.ask(&streams), Leave::Stream).await;
    let slow = json!({"on": "context", "before_head_ms": 300});
    let mut waiting = Raw::asking(world.data, &world.ask(&waits).fault(&slow)).await;
    // neither has asked for anything since
    let mut idle = Client::http1(world.data).await;
    assert_eq!(idle.send(&Ask::get("/health")).await.status, 200);
    let mut late = Raw::connect(world.data).await;
    let wire = world.ask(&streams).wire();
    late.write(&wire[..30]).await;
    let word = trtllm_sim::token_text(expected_answer(&streams).completion_token_ids[0]);
    streaming.until(&word).await;
    streaming_two.has_seen(&word).await;
    eventually("the other one waits", || world.context_legs().len() == 3).await;
    let legs = world.called();

    world.handle.drain();
    closed(world.data).await;
    assert!(!world.running.is_finished());
    assert_eq!(world.admin("/livez").await.status, 200);
    let ready = world.admin("/readyz").await;
    assert_eq!((ready.status.as_u16(), ready.text().as_str()), (503, "draining\n"));
    eventually("the idle connection is closed", || idle.is_closed()).await;
    // a request that was on its way
    late.write(&wire[30..]).await;
    let refused = late.reply().await;
    refused.is_error(503, "shutting_down");
    assert_eq!(refused.header("retry-after"), Some("1"));
    assert_eq!(refused.header("connection"), Some("close"));
    assert!(late.ends().await);

    Answer::of(&streaming.reply().await).is(&expected_answer(&streams));
    Answer::of(&waiting.reply().await).is(&expected_answer(&waits));
    streaming_two.has_seen("[DONE]").await;
    assert_eq!(outcome(world.running).await, Outcome::Complete);
    assert_eq!((world.context.state().context_requests as usize, legs.0), (3, 3));
    assert_eq!((world.context.state().kv_held, world.context.state().aborts), (0, 0));
    assert_eq!(world.generation.state().generation_aborts, 0);
    closed(world.admin).await;
}

#[tokio::test]
async fn during_the_grace_new_requests_are_served() {
    let world = World::start(&["--drain-grace", "600s"]).await;
    world.ready().await;
    assert_eq!(world.send(&Ask::get("/ready")).await.status, 200);
    let drained = Client::http1(world.admin).await.send(&Ask::post("/drain", "")).await;
    assert_eq!(drained.status, 202);
    assert_eq!(world.admin("/readyz").await.status, 503);
    assert_eq!(world.send(&Ask::get("/ready")).await.status, 503);
    assert_eq!(world.send(&Ask::get("/health")).await.status, 200);
    for body in [chat_body("grace", true), completions_body("grace", false)] {
        Answer::of(&world.exchange(&body).await).is(&expected_answer(&body));
    }
    world.quiet().await;
    // whoever is in a hurry need not wait for its end
    world.handle.cut();
    assert_eq!(outcome(world.running).await, Outcome::Complete);
}

#[tokio::test]
async fn settlements_are_finished() {
    let transfer = Duration::from_millis(200);
    let world = World::of(|c| c.kv_transfer(transfer), |g| g.token_gap(transfer), &[]).await;
    for stream in [true, false] {
        let leaver = Leaver::asking(&world, &world.ask(&chat_body("leaves", stream)), Leave::Close).await;
        let legs = world.called();
        eventually("the transfer is under way", || {
            world.called().1 > legs.1 && world.context.state().kv_held > 0
        })
        .await;
        leaver.leave().await;
    }
    world.handle.drain();
    assert_eq!(outcome(world.running).await, Outcome::Complete);
    let (context, generation) = (world.context.state(), world.generation.state());
    assert_eq!((context.kv_held, context.pulls), (0, 2));
    assert_eq!((generation.fetched, generation.transfer_aborts), (2, 0));
}

#[tokio::test]
async fn what_does_not_end_in_time_is_cut_visibly() {
    for hurry in [false, true] {
        let world = World::start(&["--drain-timeout", if hurry { "600s" } else { "200ms" }]).await;
        let body = chat_body("endless", true);
        let hang = json!({"on": "generation", "hang": {"after_tokens": 2}});
        let mut one = Raw::asking(world.data, &world.ask(&body).fault(&hang)).await;
        let word = trtllm_sim::token_text(expected_answer(&body).completion_token_ids[1]);
        one.until(&word).await;
        let mut client = Client::http2(world.data).await;
        let two = client.start(&world.ask(&body).fault(&hang)).await.unwrap();
        let wait = json!({"on": "context", "hang": "before_head"});
        let mut waiting = Raw::asking(world.data, &world.ask(&body).fault(&wait)).await;
        eventually("all are under way", || world.called() == (3, 2)).await;

        world.handle.drain();
        closed(world.data).await;
        if hurry {
            assert!(!world.running.is_finished());
            world.handle.cut();
        }
        let reply = one.reply().await;
        assert_eq!((reply.status.as_u16(), reply.end), (200, End::Cut));
        assert!(reply.text().contains(&word) && !reply.text().contains("[DONE]"));
        let rest = http_body_util::BodyExt::collect(two.into_body());
        let rest = tokio::time::timeout(PATIENCE, rest).await.expect("an end in time");
        assert!(rest.is_err(), "a stream that is cut ends with an error");
        assert!(waiting.try_head().await.is_none(), "no answer is made up");
        assert_eq!(outcome(world.running).await, Outcome::Cut);
        within(SOON, "the workers see it", || {
            world.context.state().aborts == 1 && world.generation.state().generation_aborts == 2
        })
        .await;
    }
}

#[tokio::test]
async fn with_nothing_to_do_it_ends_at_once() {
    let world = World::start(&[]).await;
    let mut idle = Client::http2(world.data).await;
    assert_eq!(idle.send(&Ask::get("/health")).await.status, 200);
    let silent = Raw::connect(world.data).await;
    world.handle.drain();
    world.handle.drain();
    assert_eq!(outcome(world.running).await, Outcome::Complete);
    drop(silent);
}
