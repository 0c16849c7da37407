//! The sidecar between two workers that take any request, so that legs can be compared with what the client wrote.

use std::collections::BTreeMap;

use bytes::Bytes;

use super::{
    Ask, Client, Reply, World, members, spelt,
    worker::{Double, Leg, Said, chunked, reply},
};

pub const CHAT: &str = "/v1/chat/completions";
pub const COMPLETIONS: &str = "/v1/completions";
pub const BOTH: [&str; 2] = [CHAT, COMPLETIONS];

pub const JSON: &str = "application/json";
pub const EVENTS: &str = "text/event-stream";

/// What the context worker hands over, in its own spelling.
pub const STATE: &str = "b3BhcXVlIHN0YXRlIG9mIGEgY29udGV4dCB3b3JrZXI=";

/// A request for this endpoint, with more members.
pub fn body(path: &str, more: &str) -> String {
    let asked =
        if path == CHAT { r#""messages":[{"role":"user","content":"hi"}]"# } else { r#""prompt":"hi""# };
    let comma = if more.is_empty() { "" } else { "," };
    format!(r#"{{"model":"m",{asked}{comma}{more}}}"#)
}

/// The `disaggregated_params` of a leg, as text.
pub fn params_of(leg: &Leg) -> BTreeMap<String, String> {
    members(named(&leg.body, &["disaggregated_params"])["disaggregated_params"].as_bytes())
}

/// The text of the id that a leg carries.
pub fn id_of(leg: &Leg) -> String {
    params_of(leg)["disagg_request_id"].clone()
}

/// The reply of a context worker whose step is done and whose cache waits.
pub fn handoff(leg: &Leg) -> String {
    let id = id_of(leg);
    let (object, said) = if leg.path().starts_with(CHAT) {
        ("chat.completion", r#""message":{"role":"assistant","content":"A"}"#)
    } else {
        ("text_completion", r#""text":"A""#)
    };
    format!(
        r#"{{"id":"c-1","object":"{object}","created":1,"model":"m","choices":[{{"index":0,{said},"finish_reason":"length","disaggregated_params":{{"request_type":"context_only","first_gen_tokens":[32],"ctx_request_id":{id},"encoded_opaque_state":"{STATE}","draft_tokens":null,"disagg_request_id":{id},"ctx_dp_rank":0,"ctx_info_endpoint":"tcp://10.0.0.9:5555","schedule_style":0}}}}],"usage":{{"prompt_tokens":3,"completion_tokens":1,"total_tokens":4,"prompt_tokens_details":{{"cached_tokens":1}}}},"prompt_token_ids":[1,2,3]}}"#
    )
}

/// That reply with a text in it replaced.
pub fn handoff_with(leg: &Leg, found: &str, replaced: &str) -> String {
    let reply = handoff(leg);
    assert!(reply.contains(found), "{found} is not in {reply}");
    reply.replacen(found, replaced, 1)
}

/// The events of an answer.
pub const ANSWER: [&str; 5] = [
    "data: {\"id\":\"g\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"A\"},\"text\":\"A\",\"finish_reason\":null}]}\n\n",
    "data: {\"id\":\"g\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"B\"},\"text\":\"B\",\"finish_reason\":null}]}\n\n",
    "data: {\"id\":\"g\",\"choices\":[{\"index\":0,\"delta\":{},\"text\":\"\",\"finish_reason\":\"stop\"}]}\n\n",
    "data: {\"id\":\"g\",\"choices\":[],\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":2}}\n\n",
    "data: [DONE]\n\n",
];

/// The same in one piece.
pub const WHOLE: &str = r#"{"id":"g","choices":[{"index":0,"message":{"role":"assistant","content":"AB"},"text":"AB","finish_reason":"stop"}]}"#;

fn answer(leg: &Leg) -> Said {
    let asked = if leg.body.is_empty() { Vec::new() } else { spelt(&leg.body) };
    let stream = asked.into_iter().rfind(|(key, _)| decoded(key) == "stream");
    if stream.is_some_and(|(_, value)| value == "true") {
        chunked(200, EVENTS, ANSWER)
    } else {
        reply(200, JSON, WHOLE)
    }
}

/// See the [module](self).
#[derive(Debug)]
pub struct Pair {
    pub world: World,
    pub context: Double,
    pub generation: Double,
}

impl Pair {
    /// Workers of the release 1.3.0rc24.
    pub async fn start(flags: &[&str]) -> Self {
        Self::of_release("1.3.0rc24", flags).await
    }

    pub async fn of_release(release: &str, flags: &[&str]) -> Self {
        let (context, generation) = doubles();
        let url = generation.url();
        let all = [&["--engine-version", release, "--generation-url", &url], flags].concat();
        Self { world: World::start(&all).await, context, generation }
    }

    /// For a test that looks at metrics.
    pub async fn alone(flags: &[&str]) -> Self {
        let (context, generation) = doubles();
        let url = generation.url();
        let all = [&["--engine-version", "1.3.0rc24", "--generation-url", &url], flags].concat();
        let world = World::alone(|context| context, |generation| generation, &all).await;
        Self { world, context, generation }
    }

    pub fn ask(&self, path: &str, body: impl Into<Bytes>) -> Ask {
        Ask::post(path, body).via(&self.context.hostport())
    }

    pub async fn send(&self, ask: &Ask) -> Reply {
        Client::http1(self.world.data).await.send(ask).await
    }

    pub async fn exchange(&self, path: &str, body: impl Into<Bytes>) -> Reply {
        self.send(&self.ask(path, body)).await
    }

    /// How many requests the context worker and the generation worker got; forgets them.
    pub fn called(&self) -> (usize, usize) {
        let called = (self.context.legs().len(), self.generation.legs().len());
        self.forget();
        called
    }

    pub fn forget(&self) {
        self.context.forget();
        self.generation.forget();
    }

    /// The one context leg and the one generation leg that there were; forgets them.
    #[track_caller]
    pub fn legs(&self) -> (Leg, Leg) {
        let (mut context, mut generation) = (self.context.legs(), self.generation.legs());
        assert_eq!((context.len(), generation.len()), (1, 1), "one leg each");
        self.forget();
        (context.remove(0), generation.remove(0))
    }

    /// Sends a request, and looks at both legs: they are the client's members, each in its own text and all in their
    /// order, but for those that a handoff changes.
    pub async fn keeps(&self, path: &str, body: &str) {
        let what: String = body.chars().take(300).collect();
        let reply = self.exchange(path, body.to_owned()).await;
        assert_eq!(reply.status, 200, "{what}: {}", reply.text());
        let (context, generation) = self.legs();

        let changed = ["stream", "stream_options", "disaggregated_params"];
        assert_eq!(
            without(&context.body, &changed),
            without(body.as_bytes(), &changed),
            "context leg of {what}"
        );
        let ours = named(&context.body, &changed);
        let id = id_of(&context);
        let params =
            format!(r#"{{"request_type":"context_only","disagg_request_id":{id},"schedule_style":0}}"#);
        assert_eq!(ours["stream"], "false", "{what}");
        assert_eq!(ours["disaggregated_params"], params, "{what}");
        assert_eq!(ours.len(), 2, "{what}: {ours:?}");

        let tokens = if path.starts_with(CHAT) { "prompt_token_ids" } else { "prompt" };
        let changed = ["disaggregated_params", "prompt_token_ids_b64", tokens];
        assert_eq!(
            without(&generation.body, &changed),
            without(body.as_bytes(), &changed),
            "generation leg of {what}"
        );
        let ours = named(&generation.body, &changed);
        assert_eq!(ours[tokens], "[1,2,3]", "{what}");
        assert_eq!(ours.len(), 2, "{what}: {ours:?}");
        assert_eq!(params_of(&generation)["disagg_request_id"], id);
    }

    pub async fn finish(self) {
        self.world.finish().await;
    }
}

fn doubles() -> (Double, Double) {
    (Double::start(|leg| reply(200, JSON, handoff(leg))), Double::start(answer))
}

fn decoded(key: &str) -> String {
    serde_json::from_str(key).unwrap()
}

fn without(json: &[u8], keys: &[&str]) -> Vec<(String, String)> {
    spelt(json).into_iter().filter(|(key, _)| !keys.contains(&decoded(key).as_str())).collect()
}

/// Members of these names; none of them may be there twice.
fn named(json: &[u8], keys: &[&str]) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for (key, value) in spelt(json) {
        let key = decoded(&key);
        if keys.contains(&key.as_str()) {
            assert_eq!(found.insert(key, value), None, "a member is there twice");
        }
    }
    found
}
