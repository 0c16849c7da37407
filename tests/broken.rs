//! Generation replies that break: the client gets what there was, and sees that it is not all.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod common;

use common::{
    Answer, Ask, Client, End, Raw, Reply, SOON, World, chat_body, completions_body, eventually, within,
};
use serde_json::{Value, json};
use trtllm_sim::expected_answer;

/// Over HTTP/1.1, read by hand, and over HTTP/2; handed off and passed through.
async fn all_ways(world: &World, body: &Value, fault: &Value) -> Vec<Reply> {
    let mut replies = Vec::new();
    for ask in [world.ask(body), Ask::of(body)] {
        // the handoff's own leg alone
        let mut fault = fault.clone();
        fault["on"] = json!(if ask.headers.len() > 1 { "generation" } else { "aggregated" });
        let ask = ask.fault(&fault);
        let mut raw = Raw::asking(world.data, &ask).await;
        let reply = raw.reply().await;
        if reply.end == End::Cut {
            assert!(raw.ends().await, "the connection ends with the message");
        }
        replies.push(reply);
        let mut client = Client::http2(world.data).await;
        replies.push(client.send(&ask).await);
        // the other streams of the connection live on
        assert_eq!(client.send(&Ask::get("/health")).await.status, 200);
    }
    replies
}

fn streams() -> [Value; 2] {
    [chat_body("broken", true), completions_body("broken", true)]
}

/// The first tokens of the answer, as text.
fn beginning(body: &Value, tokens: usize) -> String {
    let expected = expected_answer(body);
    trtllm_sim::answer_text(&expected.prompt_token_ids, tokens)
}

#[tokio::test]
async fn a_connection_that_breaks_in_a_stream() {
    let world = World::start(&[]).await;
    for body in streams() {
        for how in ["fin", "rst", "garbage"] {
            for after in [0, 1, 150, 700] {
                let fault = json!({"cut": {"at": "body", "after_bytes": after, "how": how}});
                for reply in all_ways(&world, &body, &fault).await {
                    assert_eq!((reply.status.as_u16(), reply.end), (200, End::Cut), "{how} after {after}");
                    assert_eq!(reply.body.len(), after, "{how}: {}", reply.text());
                    assert!(!reply.text().contains("[DONE]"));
                    let text = Answer::so_far(&reply).text;
                    assert!(expected_answer(&body).text.starts_with(&text), "{text}");
                }
            }
        }
    }
    // one leg each: what may have been read is not sent again
    assert_eq!(world.called(), (2 * 3 * 4 * 2, 2 * 3 * 4 * 4));
    world.finish().await;
}

#[tokio::test]
async fn an_engine_that_fails_in_a_stream() {
    let world = World::start(&[]).await;
    for tokens in [0, 1, 5] {
        for frame in [false, true] {
            let chat = chat_body("broken", true);
            let fault = json!({"error_after_tokens": tokens, "error_frame": frame});
            for reply in all_ways(&world, &chat, &fault).await {
                assert_eq!((reply.status.as_u16(), reply.end), (200, End::Cut));
                assert!(!reply.text().contains("[DONE]"));
                assert_eq!(
                    Answer::so_far(&reply).text,
                    if tokens == 0 { String::new() } else { beginning(&chat, tokens) }
                );
                assert_eq!(reply.text().contains("data: {\"error\""), frame, "{}", reply.text());
            }
        }
        // completions says so in an event, and ends in good order: relayed as it is
        let text = completions_body("broken", true);
        for reply in all_ways(&world, &text, &json!({"error_after_tokens": tokens})).await {
            assert_eq!((reply.status.as_u16(), reply.end), (200, End::Complete));
            let events = reply.events();
            assert_eq!(events.len(), tokens + 2);
            assert!(events[tokens].starts_with("{\"error\""), "{events:?}");
            assert_eq!(events[tokens + 1], "[DONE]");
        }
    }
    world.finish().await;
}

#[tokio::test]
async fn nothing_is_added_to_a_stream_without_a_last_event() {
    let world = World::start(&[]).await;
    for body in streams() {
        for reply in all_ways(&world, &body, &json!({"no_done": true})).await {
            assert_eq!((reply.status.as_u16(), reply.end), (200, End::Complete));
            assert!(!reply.text().contains("[DONE]"));
            let answer = Answer::so_far(&reply);
            assert_eq!((answer.text, answer.done), (expected_answer(&body).text, false));
        }
    }
    world.finish().await;
}

#[tokio::test]
async fn a_worker_that_falls_silent_in_a_stream() {
    let world = World::start(&["--generation-idle-timeout", "100ms"]).await;
    for body in streams() {
        for tokens in [1, 4] {
            let fault = json!({"hang": {"after_tokens": tokens}});
            for reply in all_ways(&world, &body, &fault).await {
                assert_eq!((reply.status.as_u16(), reply.end), (200, End::Cut));
                assert_eq!(Answer::so_far(&reply).text, beginning(&body, tokens));
                assert!(!reply.text().contains("[DONE]"));
            }
            within(SOON, "its connections are closed", || world.generation.state().open_requests == 0).await;
        }
    }
    world.finish().await;
}

#[tokio::test]
async fn long_streams_have_no_deadline_of_their_own() {
    // every time limit is shorter than the stream, and longer than a gap in it
    let gap = std::time::Duration::from_millis(40);
    let flags = [
        "--context-timeout",
        "400ms",
        "--generation-head-timeout",
        "400ms",
        "--generation-idle-timeout",
        "400ms",
    ];
    let world =
        World::of(|c| c, |g| g.token_gap(gap), &[&flags[..], &["--request-body-timeout", "400ms"]].concat())
            .await;
    let mut body = chat_body("long", true);
    body["max_tokens"] = json!(20);
    body["ignore_eos"] = json!(true);
    let start = std::time::Instant::now();
    Answer::of(&world.exchange(&body).await).is(&expected_answer(&body));
    assert!(start.elapsed() > std::time::Duration::from_millis(700), "{:?}", start.elapsed());
    world.finish().await;
}

#[tokio::test]
async fn whole_replies_that_break_off_are_errors() {
    let world = World::start(&[]).await;
    for body in [chat_body("broken", false), completions_body("broken", false)] {
        for how in ["fin", "rst"] {
            let fault = json!({"on": "generation", "cut": {"at": "body", "after_bytes": 100, "how": how}});
            for two in [false, true] {
                let mut client =
                    if two { Client::http2(world.data).await } else { Client::http1(world.data).await };
                let reply = client.send(&world.ask(&body).fault(&fault)).await;
                reply.is_error(502, "generation_interrupted");
                assert_eq!(client.send(&Ask::get("/health")).await.status, 200);
            }
        }
    }
    world.finish().await;
}

#[tokio::test]
async fn a_generation_worker_that_dies_with_many_streams() {
    let world = World::of(|c| c, |g| g.token_gap(std::time::Duration::from_millis(20)), &[]).await;
    let asked: Vec<_> = (0..12)
        .map(|number| {
            let mut body = chat_body(&format!("dies {number}"), true);
            body["max_tokens"] = json!(100_000);
            body["ignore_eos"] = json!(true);
            let (data, ask) = (world.data, world.ask(&body));
            tokio::spawn(async move { (Raw::asking(data, &ask).await.reply().await, body) })
        })
        .collect();
    eventually("all stream", || world.generation.state().fetched == 12).await;
    world.generation.shutdown().await;
    for asked in asked {
        let (reply, _) = asked.await.unwrap();
        if reply.status == 200 {
            assert_eq!(reply.end, End::Cut);
            assert!(!reply.text().contains("[DONE]"));
        } else {
            reply.is_error(503, "generation_unreachable");
        }
    }
    world.finish_with_orphans().await;
}
