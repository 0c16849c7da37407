//! Conversations: ids reach both workers, untouched unless the sidecar is asked to take them from elsewhere.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod common;

use std::{collections::BTreeMap, time::Duration};

use common::{Answer, Ask, Client, PATIENCE, Raw, World, chat_body, completions_body, members};
use disagg_sidecar::{Config, Outcome};
use http::HeaderMap;
use serde_json::{Value, json};
use trtllm_sim::{Engine, Fault, Role, SeenRequest, expected_answer};

/// In the order in which the newest workers look.
const HEADERS: [&str; 6] = [
    "x-claude-code-session-id",
    "x-claude-session-id",
    "x-session-id",
    "x-correlation-id",
    "x-session-affinity",
    "x-multi-turn-session-id",
];

const NEWEST: &str = "1.4.0rc2";

/// Engines of a release that keep conversations on one of four ranks.
async fn keeping(release: &str, flags: &[&str]) -> World {
    let set = |config: trtllm_sim::Config| config.release(release).ranks(4).conversation_affinity(true);
    World::of(set, set, flags).await
}

fn bodies() -> [Value; 2] {
    [chat_body("a turn", true), completions_body("a turn", false)]
}

fn with(mut body: Value, member: &str, value: Value) -> Value {
    body[member] = value;
    body
}

/// The headers of a request, without what is for one connection.
fn headers(mut headers: HeaderMap) -> HeaderMap {
    for name in ["host", "content-length", "x-prefiller-host-port"] {
        headers.remove(name);
    }
    headers
}

/// The members of a body that no leg changes, as they were written.
fn untouched(body: &[u8]) -> BTreeMap<String, String> {
    let mut members = members(body);
    let changed = ["stream", "stream_options", "disaggregated_params", "prompt", "prompt_token_ids"];
    members.retain(|name, _| !changed.contains(&&**name));
    members
}

/// Both legs of the latest handoff.
fn legs(world: &World) -> [SeenRequest; 2] {
    [world.context_legs().pop().unwrap(), world.generation_legs().pop().unwrap()]
}

/// What both workers took for the id of the conversation, and where they placed it.
fn placed(world: &World) -> [(Option<String>, usize); 2] {
    legs(world).map(|leg| (leg.conversation, leg.rank.unwrap()))
}

fn ids(world: &World) -> [Option<String>; 2] {
    legs(world).map(|leg| leg.conversation)
}

// === off ===

#[tokio::test]
async fn unless_asked_both_legs_carry_what_the_client_sent() {
    type Case = (&'static [(&'static str, &'static str)], Option<&'static str>, Option<&'static str>);
    const ID: &str = r#"{"conversation_id" : " b\u00e9 "}"#;
    #[rustfmt::skip]
    const MORE: [Case; 9] = [
        (&[], None, None),
        (&[], Some(ID), Some("b\u{e9}")),
        (&[("x-session-id", "a")], Some(ID), Some("b\u{e9}")),
        (&[("x-session-id", "a")], Some("null"), Some("a")),
        (&[("x-session-id", "a"), ("x-session-id", "z")], None, Some("z")),
        (&[("x-session-id", "z"), ("x-session-id", "")], None, None),
        (&[("x-session-id", ""), ("x-correlation-id", "b")], None, Some("b")),
        (&[("x-session-affinity", "c"), ("x-claude-session-id", "d"), ("x-correlation-id", "e")], None, Some("d")),
        (&[("x-chat-id", "f")], None, None),
    ];
    let single: Vec<[(&str, &str); 1]> = HEADERS.iter().map(|name| [(*name, "a b, c")]).collect();
    let single = single.iter().map(|header| (&header[..], None, Some("a b, c")));
    let world = keeping(NEWEST, &[]).await;
    for (list, params, id) in single.chain(MORE) {
        for body in bodies() {
            let mut text = body.to_string();
            if let Some(params) = params {
                text = text.replacen('{', &format!(r#"{{"conversation_params": {params} , "#), 1);
            }
            let path = Ask::of(&body).path;
            let mut ask = world.post(&path, text.clone());
            for (name, value) in list {
                ask = ask.header(name, *value);
            }
            let reply = world.send(&ask).await;
            assert_eq!(reply.status, 200, "{}", reply.text());
            let sent = headers(ask.request("x").headers().clone());
            for leg in legs(&world) {
                assert_eq!(headers(leg.headers.clone()), sent, "{list:?}");
                assert_eq!(untouched(&leg.body), untouched(text.as_bytes()));
                if params.is_some() {
                    // With the spaces around it.
                    let start = text.split("\"m").next().unwrap();
                    assert!(leg.body.starts_with(start.as_bytes()), "{start:?}: {:?}", leg.body);
                }
                assert_eq!(leg.conversation.as_deref(), id, "{list:?} {params:?}");
            }
        }
    }
    for id in [r#""""#, r#"" ""#, "null"] {
        let text =
            format!(r#"{{"model":"m","messages":[],"conversation_params":{{"conversation_id":{id}}}}}"#);
        let reply = world.send(&world.post("/v1/chat/completions", text)).await;
        reply.is_error(400, "context_rejected");
    }
    world.finish().await;
}

#[tokio::test]
async fn unless_asked_an_id_elsewhere_means_nothing() {
    let world = keeping("1.3.0rc24", &[]).await;
    let body = with(chat_body("x", true), "user", json!("7f3a"));
    let ranks = |world: &World| placed(world).map(|(id, rank)| (id.is_none(), rank));
    for expected in [0, 1, 2] {
        world.send(&world.ask(&body).header("x-chat-id", "7f3a")).await;
        assert_eq!(ranks(&world), [(true, expected); 2]);
    }
    world.finish().await;
}

// === on ===

/// One conversation after the other is told of in turns; each stays on its rank, on both workers.
#[tokio::test]
async fn turns_stay_on_one_rank_and_conversations_spread() {
    let in_body = |body: Value, id: &str| Ask::of(&with(body, "user", json!(id)));
    let in_messages = |id: &str| {
        let message = json!({"role": "user", "content": "x", "session": {"id": id}});
        Ask::of(&with(chat_body("", true), "messages", json!([message])))
    };
    let [chat, completion] = bodies();
    let header = |name: &'static str, id: &str| Ask::of(&chat).header(name, id);
    type Way<'a> = &'a dyn Fn(&str) -> Ask;
    let turns: [(&[&str], [Way<'_>; 2]); 3] = [
        (
            &["--conversation-from", "body:/user"],
            [&|id| in_body(chat.clone(), id), &|id| in_body(completion.clone(), id)],
        ),
        (
            &["--conversation-from", "header:x-chat-id,header:x-thread-id"],
            [&|id| header("x-chat-id", id), &|id| header("x-thread-id", id)],
        ),
        (
            &[
                "--conversation-from",
                "header:x-chat-id",
                "--conversation-from",
                "body:/messages/0/session/id",
            ],
            [&|id| header("x-chat-id", id), &in_messages],
        ),
    ];
    for release in ["1.3.0rc21", "1.3.0rc24", "1.3.0rc27", NEWEST] {
        for (flags, ways) in &turns {
            let world = keeping(release, flags).await;
            // Not the order in which ranks take turns.
            for (turn, order) in [[0, 1, 2, 3], [2, 0, 3, 1], [3, 3, 0, 1]].into_iter().enumerate() {
                for conversation in order {
                    let id = format!("conversation-{conversation}");
                    let ask = ways[turn % 2](&id).via(&world.context.hostport());
                    let reply = world.send(&ask).await;
                    assert_eq!(reply.status, 200, "{}", reply.text());
                    let expected = (Some(id), conversation);
                    assert_eq!(placed(&world), [expected.clone(), expected], "{release} {flags:?}");
                    // What the context worker said of its rank goes to the generation worker.
                    let sent = world.generation_legs().pop().unwrap().json().unwrap();
                    assert_eq!(sent["disaggregated_params"]["ctx_dp_rank"], conversation);
                }
            }
            world.finish().await;
        }
    }
}

#[tokio::test]
async fn the_id_from_the_source_is_the_one_that_workers_use() {
    for release in ["1.3.0rc24", NEWEST] {
        let world = keeping(release, &["--conversation-from", "body:/user,header:x-chat-id"]).await;
        for body in bodies() {
            let body = with(body, "user", json!("ours"));
            let mut ask = world.ask(&body);
            for name in HEADERS {
                ask = ask.header(name, "theirs").header(name, "again");
            }
            Answer::of(&world.send(&ask).await).is(&expected_answer(&body));
            let mut expected = headers(ask.request("x").headers().clone());
            expected.remove("x-claude-code-session-id");
            expected.remove("x-claude-session-id");
            expected.insert("x-session-id", "ours".parse().unwrap());
            for leg in legs(&world) {
                assert_eq!(headers(leg.headers.clone()), expected);
                assert_eq!(untouched(&leg.body), untouched(body.to_string().as_bytes()));
            }
            assert_eq!(ids(&world), [Some("ours".to_owned()), Some("ours".to_owned())]);
        }
        world.finish().await;
    }
}

#[tokio::test]
async fn letters_beyond_ascii_are_the_same_on_both_workers() {
    let world = keeping(NEWEST, &["--conversation-from", "body:/user"]).await;
    let body = with(chat_body("x", true), "user", json!(" \u{e9}\u{4f60} \n"));
    world.exchange(&body).await;
    let [context, generation] = legs(&world).map(|leg| leg.headers["x-session-id"].clone());
    assert_eq!((context.as_bytes(), &context), ("\u{e9}\u{4f60}".as_bytes(), &generation));
    let [context, generation] = ids(&world);
    assert!(context.is_some() && context == generation);
    world.finish().await;
}

#[tokio::test]
async fn what_has_no_usable_id_goes_on_as_it_came_and_is_counted() {
    let set = |config: trtllm_sim::Config| config.release(NEWEST);
    let world = World::alone(set, set, &["--conversation-from", "header:x-chat-id,body:/user"]).await;
    let before = world.metrics().await;
    let plain = chat_body("x", false);
    let named = with(plain.clone(), "conversation_params", json!({"conversation_id": "named"}));
    for (body, header, id) in [
        (plain.clone(), "", "theirs"),
        (with(plain.clone(), "user", json!(null)), "", "theirs"),
        (with(plain.clone(), "user", json!("a\nb")), "", "theirs"),
        (with(plain.clone(), "user", json!("a\u{0}")), &"x".repeat(257), "theirs"),
        (with(named.clone(), "user", json!("ours")), "ours", "named"),
        (plain.clone(), &"x".repeat(256), &"x".repeat(256)),
    ] {
        let ask = world.ask(&body).header("x-chat-id", header).header("x-session-id", "theirs");
        let reply = world.send(&ask).await;
        assert_eq!(reply.status, 200, "{}", reply.text());
        assert_eq!(ids(&world), [Some(id.to_owned()), Some(id.to_owned())]);
        let [context, generation] = legs(&world).map(|leg| headers(leg.headers));
        assert_eq!(context, generation);
        if id == "theirs" || id == "named" {
            assert_eq!(context, headers(ask.request("x").headers().clone()));
        }
    }
    // What passes through is not looked at.
    let aggregated = Ask::of(&plain).header("x-chat-id", "ours").header("x-session-id", "theirs");
    assert_eq!(world.send(&aggregated).await.status, 200);
    assert_eq!(world.generation_legs().pop().unwrap().conversation.as_deref(), Some("theirs"));
    let grown = world.idle().await.since(&before);
    let counted: Vec<_> = ["set", "named", "absent", "unusable"]
        .map(|result| grown[&format!("disagg_conversation_ids_total{{result=\"{result}\"}}")])
        .into();
    assert_eq!(counted, [1.0, 1.0, 2.0, 2.0]);
    world.finish().await;
}

/// The body is sent as it came, so a worker that does not know the member refuses it, with the header and without.
#[tokio::test]
async fn a_member_that_workers_do_not_know_stays_in_the_body() {
    let world = keeping(NEWEST, &["--conversation-from", "body:/nvext/agent_context/session_id"]).await;
    let body = with(chat_body("x", true), "nvext", json!({"agent_context": {"session_id": "7f3a"}}));
    let error = world.exchange(&body).await.is_error(400, "context_rejected");
    assert!(error["message"].as_str().unwrap().contains("nvext"), "{error}");
    let leg = world.context_legs().pop().unwrap();
    assert_eq!(leg.header("x-session-id"), Some("7f3a"));
    assert_eq!(untouched(&leg.body), untouched(body.to_string().as_bytes()));
    world.finish().await;
}

#[tokio::test]
async fn an_older_context_worker_only_loses_the_hint() {
    let world = World::of(
        |context| context.release("1.3.0rc5"),
        |generation| generation.ranks(4).conversation_affinity(true),
        &["--conversation-from", "body:/user"],
    )
    .await;
    world.ready().await;
    for body in bodies() {
        let body = with(body, "user", json!("7f3a"));
        Answer::of(&world.exchange(&body).await).is(&expected_answer(&body));
        assert_eq!(ids(&world), [None, Some("7f3a".to_owned())]);
        assert!(legs(&world).iter().all(|leg| leg.header("x-session-id") == Some("7f3a")));
    }
    world.finish().await;
}

// === releases that are too old ===

const ASKED: [&str; 2] = ["--conversation-from", "header:x-chat-id"];

#[test]
fn a_pinned_release_that_is_too_old_stops_the_start() {
    for old in ["1.3.0rc5", "1.3.0rc20"] {
        let pinned = ["--engine-version", old];
        let error = Config::from_args([ASKED, pinned].concat()).unwrap_err().to_string();
        for part in ["--conversation-from", old, "1.3.0rc21 and newer"] {
            assert!(error.contains(part), "{error}");
        }
        Config::from_args(pinned).unwrap();
    }
}

async fn outcome(world: &mut World) -> Outcome {
    tokio::time::timeout(PATIENCE, &mut world.running).await.expect("an end in time").unwrap()
}

#[tokio::test]
async fn a_first_generation_worker_that_is_too_old_ends_the_sidecar() {
    for old in ["1.2.1", "1.3.0rc5", "1.3.0rc20"] {
        let mut world = World::of(|c| c, |generation| generation.release(old), &ASKED).await;
        assert_eq!(outcome(&mut world).await, Outcome::EngineTooOld);
        assert_eq!(world.context.state().context_requests, 0);
        let world = World::of(|c| c, |generation| generation.release(old), &[]).await;
        if old != "1.2.1" {
            world.ready().await;
        }
        world.finish().await;
    }
}

#[tokio::test]
async fn one_that_loads_for_a_while_ends_it_when_it_is_there() {
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let url = format!("http://127.0.0.1:{port}");
    let mut world = World::of(|c| c, |g| g, &[&ASKED[..], &["--generation-url", &url]].concat()).await;
    assert_eq!(world.admin("/livez").await.status, 200);
    assert_eq!(world.admin("/readyz").await.status, 503);
    assert!(!world.running.is_finished(), "there is nothing to be said of nobody");
    let old = trtllm_sim::Config::new(Role::Generation).port(port).release("1.3.0rc20");
    let _old = Engine::start(old).await.unwrap();
    assert_eq!(outcome(&mut world).await, Outcome::EngineTooOld);
}

/// What runs when it turns out is finished first, whatever the grace time for others.
#[tokio::test]
async fn what_runs_is_finished_before_the_end() {
    let flags = [&ASKED[..], &["--drain-grace", "600s"]].concat();
    let slow = |g: trtllm_sim::Config| g.release("1.3.0rc20").token_gap(Duration::from_millis(20));
    let generation = Engine::start(slow(trtllm_sim::Config::new(Role::Generation))).await.unwrap();
    // It says its release only when it is told to.
    let fault = |json: &str| Fault::from_json(json).unwrap().remove(0);
    generation.set_fault(fault(r#"{"on": "version", "status": 503}"#));
    let url = generation.url();
    let flags = [&flags[..], &["--generation-url", &url]].concat();
    let mut world = World::of(|c| c, |g| g, &flags).await;
    let body = chat_body("under way", true);
    let mut raw = Raw::asking(world.data, &Ask::of(&body)).await;
    raw.until(&trtllm_sim::token_text(expected_answer(&body).completion_token_ids[0])).await;
    generation.clear_faults();
    Answer::of(&raw.reply().await).is(&expected_answer(&body));
    assert_eq!(outcome(&mut world).await, Outcome::EngineTooOld);
}

/// Waits until the sidecar says one of these of its readiness.
async fn readiness(world: &World, says: &[&str]) -> u16 {
    let waiting = async {
        loop {
            let reply = world.admin("/readyz").await;
            if says.iter().any(|says| reply.text().contains(says)) {
                return reply.status.as_u16();
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(PATIENCE, waiting).await.unwrap_or_else(|_| panic!("not in time: {says:?}"))
}

#[tokio::test]
async fn one_that_is_replaced_by_an_older_one_is_not_ready_and_serves_on() {
    let mut world = keeping("1.3.0rc24", &ASKED).await;
    world.ready().await;
    let body = chat_body("replaced", true);
    Answer::of(&world.exchange(&body).await).is(&expected_answer(&body));
    let port = world.generation.addr().port();
    for (release, says) in [
        ("1.3.0rc20", "too old for --conversation-from"),
        ("1.3.0rc27", "ready"),
        ("1.3.0rc5", "too old for --conversation-from"),
    ] {
        world.generation.shutdown().await;
        readiness(&world, &["cannot be reached", "not answered yet"]).await;
        let config = trtllm_sim::Config::new(Role::Generation).port(port).release(release);
        world.generation = Engine::start(config).await.unwrap();
        let status = readiness(&world, &[says]).await;
        assert_eq!(status, if says == "ready" { 200 } else { 503 });
        // Handed off all the same, and shaped for the release.
        let ask = world.ask(&body).header("x-chat-id", "7f3a");
        Answer::of(&Client::http1(world.data).await.send(&ask).await).is(&expected_answer(&body));
        assert!(!world.running.is_finished());
    }
    world.finish().await;
}
