//! The version gate: which releases are asked for, when, and what is refused.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod common;

use common::{Answer, Ask, Client, World, chat_body, completions_body, members};
use serde_json::{Value, json};
use trtllm_sim::{Engine, Generation, expected_answer};

async fn pair(context: &str, generation: &str, flags: &[&str]) -> World {
    World::of(|c| c.release(context), |g| g.release(generation), flags).await
}

fn bodies() -> Vec<Value> {
    let with = |mut body: Value, member: &str, value: Value| {
        body[member] = value;
        body
    };
    vec![
        chat_body("any release", true),
        with(chat_body("any release", false), "logprobs", json!(true)),
        with(chat_body("any release", true), "chat_template_kwargs", json!({"enable_thinking": true})),
        completions_body("any release", false),
        with(completions_body("any release", false), "logprobs", json!(1)),
        with(completions_body("any release", true), "stream_options", json!({"include_usage": true})),
    ]
}

/// How often workers were asked for their release.
fn probes(engine: &Engine) -> usize {
    engine.state().requests.iter().filter(|request| request.path == "/version").count()
}

#[tokio::test]
async fn releases_without_a_global_id_are_refused() {
    let (old, new) = (Generation::G0.sample_release(), Generation::G3.sample_release());
    for old in [old, "1.3.0rc2", "0.21.0"] {
        for (context, generation, what) in
            [(old, new, "context"), (new, old, "generation"), (old, old, "generation")]
        {
            let world = pair(context, generation, &[]).await;
            for body in [chat_body("x", true), completions_body("x", false)] {
                let error = world.exchange(&body).await.is_error(502, "unsupported_engine_version");
                let message = error["message"].as_str().unwrap();
                let said = [what, old, "1.3.0rc3 and newer"].iter().all(|part| message.contains(part));
                assert!(said, "{message}");
                assert_eq!(world.called(), (0, 0), "{context} to {generation}");
            }
            // what needs no handoff is served
            let body = chat_body("x", true);
            Answer::of(&world.send(&Ask::of(&body)).await).is(&expected_answer(&body));
            let ready = world.admin("/readyz").await;
            assert_eq!(ready.status.as_u16(), if generation == old { 503 } else { 200 });
            world.finish().await;
        }
    }
}

#[tokio::test]
async fn a_worker_is_asked_once() {
    let world = pair("1.3.0rc24", "1.3.0rc27", &[]).await;
    world.ready().await;
    let asked = probes(&world.generation);
    assert!((1..=2).contains(&asked), "{asked}: at the start, and by whom it may concern");
    for _ in 0..5 {
        world.exchange(&chat_body("x", false)).await;
    }
    assert_eq!((probes(&world.context), probes(&world.generation)), (1, asked));
    world.finish().await;
}

#[tokio::test]
async fn many_first_requests_ask_a_context_worker_once() {
    let world = pair("1.3.0rc24", "1.3.0rc24", &[]).await;
    let slow = trtllm_sim::Fault::from_json(r#"{"on":"version","before_head_ms":100}"#).unwrap().remove(0);
    world.context.set_fault(slow);
    let asked = (0..16).map(|number| {
        let body = chat_body(&format!("first {number}"), true);
        let (data, ask) = (world.data, world.ask(&body));
        tokio::spawn(async move {
            Answer::of(&Client::http1(data).await.send(&ask).await).is(&expected_answer(&body));
        })
    });
    for asked in asked.collect::<Vec<_>>() {
        asked.await.unwrap();
    }
    assert_eq!(probes(&world.context), 1);
    world.finish().await;
}

#[tokio::test]
async fn a_pinned_release_is_not_asked_for() {
    for release in ["1.3.0rc24", "1.3.0rc5"] {
        let world = pair(release, release, &["--engine-version", release]).await;
        for body in bodies() {
            Answer::of(&world.exchange(&body).await).is(&expected_answer(&body));
        }
        assert_eq!(world.admin("/readyz").await.status, 200);
        assert_eq!((probes(&world.context), probes(&world.generation)), (0, 0));
        world.finish().await;
    }
}

#[tokio::test]
async fn workers_that_do_not_say_are_taken_for_new() {
    for fault in [
        json!({"on": "version", "status": 404}),
        json!({"on": "version", "status": 500}),
        json!({"on": "version", "reply": "not JSON"}),
        json!({"on": "version", "reply": "{\"version\":\"custom build\"}"}),
        json!({"on": "version", "reply": "{\"version\":\"9.9.9\"}"}),
    ] {
        let fault = trtllm_sim::Fault::from_json(&fault.to_string()).unwrap().remove(0);
        let badly = |config: trtllm_sim::Config| config.release("1.4.0rc2").fault(fault.clone());
        let world = World::of(badly, badly, &[]).await;
        let body = json!({"model": "sim", "messages": [{"role": "user", "content": "new"}],
            "chat_template_kwargs": {"enable_thinking": true}});
        Answer::of(&world.exchange(&body).await).is(&expected_answer(&body));
        let params = members(&world.generation_legs()[0].body)["disaggregated_params"].clone();
        assert_eq!(
            members(params.as_bytes()).get("resolved_thinking").map(String::as_str),
            Some("true"),
            "{fault:?}"
        );
        world.finish().await;
    }
}

#[tokio::test]
async fn a_worker_that_came_back_as_another_release_is_asked_again() {
    let world = pair("1.3.0rc24", "1.3.0rc24", &[]).await;
    let body = chat_body("again", true);
    Answer::of(&world.exchange(&body).await).is(&expected_answer(&body));
    let port = world.context.addr().port();
    world.context.shutdown().await;
    world.exchange(&body).await.is_error(502, "context_unreachable");
    let config =
        |release: &str| trtllm_sim::Config::new(trtllm_sim::Role::Context).port(port).release(release);
    let new = Engine::start(config("1.3.0rc27")).await.unwrap();
    Answer::of(&world.exchange(&body).await).is(&expected_answer(&body));
    assert_eq!((probes(&new), new.state().kv_held), (1, 0));
    new.shutdown().await;
    world.exchange(&body).await.is_error(502, "context_unreachable");
    let old = Engine::start(config("1.2.1")).await.unwrap();
    world.exchange(&body).await.is_error(502, "unsupported_engine_version");
    assert_eq!((probes(&old), old.state().context_requests), (1, 0));
    world.finish().await;
}

/// Nobody sees it go: no request runs, no probe comes, and the new one listens at once.
#[tokio::test]
async fn a_worker_that_was_replaced_unseen_is_asked_again_when_a_handoff_was_refused() {
    let thinks = json!({"model": "sim", "messages": [{"role": "user", "content": "again"}],
        "chat_template_kwargs": {"enable_thinking": true}});
    let world = pair("1.4.0rc1", "1.4.0rc1", &[]).await;
    Answer::of(&world.exchange(&thinks).await).is(&expected_answer(&thinks));
    let port = world.generation.addr().port();
    world.generation.shutdown().await;
    let config = trtllm_sim::Config::new(trtllm_sim::Role::Generation).port(port).release("1.3.0rc24");
    let old = Engine::start(config).await.unwrap();
    // what was heard a moment ago is not doubted
    tokio::time::sleep(std::time::Duration::from_millis(5_500)).await;
    assert_eq!(world.exchange(&thinks).await.status, 400);
    let served = async {
        while world.exchange(&thinks).await.status != 200 {
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(common::PATIENCE, served).await.expect("shaped for the new one in time");
    assert_eq!(probes(&old), 1);
    world.finish_with_orphans().await;
}

#[tokio::test]
async fn a_generation_worker_that_loads_for_a_while() {
    // nothing listens yet where the generation worker will be
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let url = format!("http://127.0.0.1:{port}");
    let world = World::of(|c| c, |g| g, &["--generation-url", &url]).await;
    let body = chat_body("loading", true);
    world.exchange(&body).await.is_error(503, "generation_unreachable");
    assert_eq!(world.called(), (0, 0), "no context run is spent on it");
    assert_eq!(world.admin("/livez").await.status, 200);
    assert_eq!(world.admin("/readyz").await.status, 503);
    let generation = trtllm_sim::Config::new(trtllm_sim::Role::Generation).port(port);
    let generation = Engine::start(generation).await.unwrap();
    Answer::of(&world.exchange(&body).await).is(&expected_answer(&body));
    world.ready().await;
    assert_eq!(world.admin("/livez").await.status, 200);
    assert_eq!(generation.state().generation_requests, 1);
    world.finish().await;
}
