//! Connections on both sides of the sidecar. Which headers travel over them is in `cases.rs`.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod common;

use std::time::{Duration, Instant};

use common::{Answer, Ask, Client, End, Raw, World, chat_body, completions_body, eventually};
use serde_json::json;
use trtllm_sim::{Cut, CutAt, CutHow, Fault, On, SeenRequest, expected_answer};

#[tokio::test]
async fn connections_are_used_again() {
    let world = World::start(&[]).await;
    for two in [false, true] {
        let mut client = if two { Client::http2(world.data).await } else { Client::http1(world.data).await };
        for number in 0..10 {
            let stream = number % 2 == 0;
            for body in [chat_body("again", stream), completions_body("again", stream)] {
                Answer::of(&client.send(&world.ask(&body)).await).is(&expected_answer(&body));
                Answer::of(&client.send(&Ask::of(&body)).await).is(&expected_answer(&body));
            }
            assert_eq!(client.send(&world.post("/v1/chat/completions", "[]")).await.status, 400);
        }
        assert!(!client.is_closed());
    }
    let (context, generation) = (world.context.state(), world.generation.state());
    assert_eq!(context.context_requests, 40);
    // one for the legs and what was asked before them; beside it one for what passes through, and for questions
    assert!(context.connections <= 2, "{}", context.connections);
    assert!(generation.connections <= 4, "{}", generation.connections);
    world.finish().await;
}

#[tokio::test]
async fn many_requests_on_one_http2_connection() {
    let world = World::of(|c| c, |g| g.token_gap(Duration::from_millis(3)), &[]).await;
    let client = Client::http2(world.data).await;
    let asked: Vec<_> = (0..64)
        .map(|number| {
            let body = match number % 2 {
                0 => chat_body(&format!("stream {number}"), number % 4 == 0),
                _ => completions_body(&format!("stream {number}"), number % 4 == 1),
            };
            let (mut client, ask) = (client.share(), world.ask(&body));
            tokio::spawn(async move { Answer::of(&client.send(&ask).await).is(&expected_answer(&body)) })
        })
        .collect();
    for asked in asked {
        asked.await.unwrap();
    }
    world.finish().await;
}

#[tokio::test]
async fn pipelined_requests_are_answered_in_order() {
    let world = World::start(&[]).await;
    let bodies = [chat_body("one", true), completions_body("two", false), chat_body("three", false)];
    let mut raw = Raw::connect(world.data).await;
    let wire: Vec<u8> = bodies.iter().flat_map(|body| world.ask(body).wire()).collect();
    raw.write(wire).await;
    for body in &bodies {
        Answer::of(&raw.reply().await).is(&expected_answer(body));
    }
    world.finish().await;
}

#[tokio::test]
async fn workers_that_close_idle_connections() {
    let short = Duration::from_millis(30);
    let world = World::of(|c| c.keep_alive(short), |g| g.keep_alive(short), &[]).await;
    let mut client = Client::http1(world.data).await;
    for _ in 0..4 {
        let body = chat_body("idle", true);
        Answer::of(&client.send(&world.ask(&body)).await).is(&expected_answer(&body));
        Answer::of(&client.send(&Ask::of(&body)).await).is(&expected_answer(&body));
        eventually("all connections are closed", || {
            world.context.state().open_connections == 0 && world.generation.state().open_connections == 0
        })
        .await;
    }
    assert!(world.context.state().connections >= 4);
    world.finish().await;
}

#[tokio::test]
async fn idle_connections_are_closed_by_the_sidecar_first() {
    let long = Duration::from_secs(600);
    let world = World::of(|c| c.keep_alive(long), |g| g.keep_alive(long), &[]).await;
    let body = chat_body("idle", true);
    Answer::of(&world.exchange(&body).await).is(&expected_answer(&body));
    Answer::of(&world.send(&Ask::of(&body)).await).is(&expected_answer(&body));
    assert!(world.context.state().open_connections >= 1);
    eventually("they are closed, although the workers keep them", || {
        world.context.state().open_connections == 0 && world.generation.state().open_connections == 0
    })
    .await;
    world.finish().await;
}

#[tokio::test]
async fn context_connections_that_close_as_they_are_used_again() {
    let world = World::start(&[]).await;
    let body = chat_body("race", true);
    Answer::of(&world.exchange(&body).await).is(&expected_answer(&body));
    for how in [CutHow::Fin, CutHow::Rst] {
        let mut fault = Fault::on(On::Any);
        (fault.cut, fault.times) = (Some(Cut { at: CutAt::Reuse, how }), Some(25));
        world.context.set_fault(fault);
        for _ in 0..25 {
            Answer::of(&world.exchange(&body).await).is(&expected_answer(&body));
        }
        world.context.clear_faults();
    }
    let mut ids: Vec<_> = world.context_legs().iter().map(SeenRequest::disagg_request_id).collect();
    assert_eq!(ids.len(), 51);
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), 51);
    world.finish().await;
}

#[tokio::test]
async fn heads_that_are_too_large() {
    let world = World::start(&[]).await;
    let ask = world.ask(&chat_body("x", false));
    let many = (0..500).fold(ask.clone(), |ask, number| ask.header(&format!("x-{number}"), "1"));
    for ask in [many, ask.header("x-request-id", "r".repeat(1 << 20))] {
        let mut raw = Raw::connect(world.data).await;
        // the sidecar may stop reading before all is written
        let _ = tokio::time::timeout(Duration::from_secs(5), raw.try_write(ask.wire())).await;
        if let Some((status, _)) = raw.try_head().await {
            assert!(status == 431 || status == 400, "{status}");
        }
        assert_eq!(world.called(), (0, 0));
    }
    let body = chat_body("still there", true);
    Answer::of(&world.exchange(&body).await).is(&expected_answer(&body));
    world.finish().await;
}

#[tokio::test]
async fn a_request_without_an_answer_in_its_connection_does_not_hold_up_others() {
    let world = World::start(&[]).await;
    let start = Instant::now();
    let ask = world.ask(&chat_body("hangs", true)).fault(&json!({"on": "context", "hang": "before_head"}));
    let hanging: Vec<_> = {
        let mut all = Vec::new();
        for _ in 0..50 {
            all.push(Raw::asking(world.data, &ask).await);
        }
        all
    };
    let body = chat_body("does not", true);
    let reply = world.exchange(&body).await;
    assert_eq!(reply.end, End::Complete);
    Answer::of(&reply).is(&expected_answer(&body));
    assert!(start.elapsed() < Duration::from_secs(10));
    drop(hanging);
    world.finish().await;
}
