//! The two simulated engines, and what they do while a request runs.

use std::{error::Error, time::Duration};

use trtllm_sim::{Config, Engine, Role, State};

use crate::timeline::Timeline;

pub(crate) struct Engines {
    pub(crate) context: Engine,
    pub(crate) generation: Engine,
}

impl Engines {
    /// Engines that take their time, so that there is something to see.
    pub(crate) async fn start() -> Result<Self, Box<dyn Error>> {
        let prefill = Duration::from_millis(2);
        let gap = Duration::from_millis(10);
        let transfer = Duration::from_millis(30);
        Ok(Self {
            context: Engine::start(Config::new(Role::Context).prefill_per_token(prefill)).await?,
            generation: Engine::start(Config::new(Role::Generation).token_gap(gap).kv_transfer(transfer))
                .await?,
        })
    }

    /// Forgets the requests seen before.
    pub(crate) fn forget(&self) {
        self.context.forget();
        self.generation.forget();
    }

    /// Starts to watch what the engines do.
    pub(crate) fn watch<'a>(&'a self, timeline: &'a Timeline) -> Watch<'a> {
        Watch { engines: self, timeline, context: self.context.state(), generation: self.generation.state() }
    }
}

/// Notes what is new at the engines.
pub(crate) struct Watch<'a> {
    engines: &'a Engines,
    timeline: &'a Timeline,
    context: State,
    generation: State,
}

impl Watch<'_> {
    /// Looks every millisecond, for as long as it is polled.
    pub(crate) async fn run(&mut self) {
        let mut tick = tokio::time::interval(Duration::from_millis(1));
        loop {
            tick.tick().await;
            self.look();
        }
    }

    pub(crate) fn look(&mut self) {
        let Self { timeline, .. } = self;
        let (before, now) = (&self.context, self.engines.context.state());
        requests(timeline, "context", before, &now);
        if now.kv_held != before.kv_held {
            timeline.note("context", format!("KV held: {} -> {}", before.kv_held, now.kv_held));
        }
        if now.terminal > before.terminal {
            timeline.note("context", "the answer ends in the context step; nothing is held");
        }
        self.context = now;
        let (before, now) = (&self.generation, self.engines.generation.state());
        requests(timeline, "generation", before, &now);
        if now.fetched > before.fetched {
            timeline.note("generation", "has pulled the KV cache");
        }
        if now.generation_aborts > before.generation_aborts {
            timeline.note("generation", "its client left; aborts the rest");
        }
        self.generation = now;
    }
}

fn requests(timeline: &Timeline, hop: &'static str, before: &State, now: &State) {
    for request in now.requests.iter().skip(before.requests.len()) {
        let what = match (request.request_type(), request.disagg_request_id()) {
            (Some(kind), Some(id)) => format!(": {kind}, id {id}"),
            _ if request.path == "/version" => ": the sidecar asks for its release".to_owned(),
            _ => String::new(),
        };
        timeline.note(hop, format!("{} {}{what}", request.method, request.path));
    }
}
