//! Engines, the sidecar, and what has to hold when all is over.

use std::{net::SocketAddr, time::Duration};

use disagg_sidecar::{Config, Handle, Outcome, Sidecar};
use serde_json::Value;
use tokio::{
    sync::{RwLock, RwLockReadGuard, RwLockWriteGuard},
    task::JoinHandle,
};
use trtllm_sim::{Engine, Role, SeenRequest};

use super::{Ask, Client, Metrics, PATIENCE, Reply, eventually};

/// A context worker, a generation worker with its sidecar, all in this process.
#[derive(Debug)]
pub struct World {
    pub context: Engine,
    pub generation: Engine,
    pub data: SocketAddr,
    pub admin: SocketAddr,
    pub handle: Handle,
    pub running: JoinHandle<Outcome>,
    company: Company,
}

/// The metrics are those of the process: tests that look at them have it to themselves.
#[derive(Debug)]
enum Company {
    Shared(RwLockReadGuard<'static, ()>),
    Alone(RwLockWriteGuard<'static, ()>),
}

static WORLDS: RwLock<()> = RwLock::const_new(());

impl World {
    /// Engines that answer at once, and a sidecar with these flags, in which `CONTEXT_PORT` is the port of the context
    /// worker.
    pub async fn start(flags: &[&str]) -> Self {
        Self::of(|context| context, |generation| generation, flags).await
    }

    /// The same with other engines.
    pub async fn of(
        context: impl FnOnce(trtllm_sim::Config) -> trtllm_sim::Config,
        generation: impl FnOnce(trtllm_sim::Config) -> trtllm_sim::Config,
        flags: &[&str],
    ) -> Self {
        let company = Company::Shared(WORLDS.read().await);
        Self::build(company, context, generation, flags).await
    }

    /// The same for a test that looks at metrics.
    pub async fn alone(
        context: impl FnOnce(trtllm_sim::Config) -> trtllm_sim::Config,
        generation: impl FnOnce(trtllm_sim::Config) -> trtllm_sim::Config,
        flags: &[&str],
    ) -> Self {
        let company = Company::Alone(WORLDS.write().await);
        Self::build(company, context, generation, flags).await
    }

    async fn build(
        company: Company,
        context: impl FnOnce(trtllm_sim::Config) -> trtllm_sim::Config,
        generation: impl FnOnce(trtllm_sim::Config) -> trtllm_sim::Config,
        flags: &[&str],
    ) -> Self {
        let context = Engine::start(context(trtllm_sim::Config::new(Role::Context))).await.unwrap();
        let generation = Engine::start(generation(trtllm_sim::Config::new(Role::Generation))).await.unwrap();
        let url = generation.url();
        let port = context.addr().port().to_string();
        let flags: Vec<String> = flags.iter().map(|flag| flag.replace("CONTEXT_PORT", &port)).collect();
        let mut all = vec!["--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"];
        all.extend(flags.iter().map(String::as_str));
        if !all.contains(&"--generation-url") {
            all.extend(["--generation-url", &url]);
        }
        let config = Config::from_args(all).unwrap();
        let sidecar = Sidecar::bind(config).await.unwrap();
        let (data, admin, handle) = (sidecar.data_addr(), sidecar.admin_addr(), sidecar.handle());
        let running = tokio::spawn(sidecar.run());
        Self { context, generation, data, admin, handle, running, company }
    }

    /// A request that is routed to the context worker.
    pub fn ask(&self, body: &Value) -> Ask {
        Ask::of(body).via(&self.context.hostport())
    }

    /// The same with a text for a body.
    pub fn post(&self, path: &str, body: impl Into<bytes::Bytes>) -> Ask {
        Ask::post(path, body).via(&self.context.hostport())
    }

    /// Sends a request over a connection of its own and reads the whole answer.
    pub async fn send(&self, ask: &Ask) -> Reply {
        Client::http1(self.data).await.send(ask).await
    }

    /// Sends a routed request.
    pub async fn exchange(&self, body: &Value) -> Reply {
        self.send(&self.ask(body)).await
    }

    /// Asks on the admin port.
    pub async fn admin(&self, path: &str) -> Reply {
        Client::http1(self.admin).await.send(&Ask::get(path)).await
    }

    /// Waits until the sidecar says that it is ready.
    pub async fn ready(&self) {
        let waiting = async {
            while self.admin("/readyz").await.status != 200 {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(PATIENCE, waiting).await.expect("ready in time");
    }

    pub async fn metrics(&self) -> Metrics {
        assert!(matches!(self.company, Company::Alone(_)), "metrics are for tests that are alone");
        self.page().await
    }

    async fn page(&self) -> Metrics {
        Metrics::parse(&self.admin("/metrics").await.text())
    }

    /// Waits until no request is in flight, by the gauge, and no settlement is running; returns the page.
    pub async fn idle(&self) -> Metrics {
        let waiting = async {
            loop {
                let metrics = self.metrics().await;
                if metrics.in_flight() == 0.0 && metrics.get("disagg_settlements_active") == 0.0 {
                    return metrics;
                }
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        tokio::time::timeout(PATIENCE, waiting).await.expect("nothing in flight in time")
    }

    /// The legs that reached the context worker.
    pub fn context_legs(&self) -> Vec<SeenRequest> {
        posts(&self.context)
    }

    /// The legs, and other POSTs, that reached the generation worker.
    pub fn generation_legs(&self) -> Vec<SeenRequest> {
        posts(&self.generation)
    }

    /// How many legs reached the context worker and the generation worker.
    pub fn called(&self) -> (usize, usize) {
        (self.context_legs().len(), self.generation_legs().len())
    }

    pub fn forget(&self) {
        self.context.forget();
        self.generation.forget();
    }

    /// Waits until the engines have nothing left of any request, and looks at what must never have happened.
    pub async fn quiet(&self) {
        let left = || {
            let (context, generation) = (self.context.state(), self.generation.state());
            (context.kv_ids, context.open_requests, generation.open_requests)
        };
        let mut last = left();
        let settled = async {
            while last != (Vec::new(), 0, 0) {
                tokio::time::sleep(Duration::from_millis(2)).await;
                last = left();
            }
        };
        let quiet = tokio::time::timeout(PATIENCE, settled).await.is_ok();
        assert!(quiet, "KV held, open context requests, open generation requests: {last:?}");
        for state in [self.context.state(), self.generation.state()] {
            assert_eq!(state.duplicate_ids, 0, "an id was used twice");
            assert_eq!(state.transfer_aborts, 0, "a transfer was interrupted");
            assert_eq!(state.stranded, 0, "KV was stranded");
        }
    }

    /// The end of a test: quiet, and a drain that has nothing to cut.
    pub async fn finish(self) {
        self.quiet().await;
        self.drain().await;
    }

    /// The same where handoffs have failed on purpose: the context worker may hold their KV until its timeout.
    pub async fn finish_with_orphans(self) {
        let (context, generation) = (&self.context, &self.generation);
        eventually("no request is open", || {
            context.state().open_requests == 0 && generation.state().open_requests == 0
        })
        .await;
        assert_eq!(context.state().duplicate_ids, 0, "an id was used twice");
        self.drain().await;
    }

    /// A drain that has nothing to cut.
    pub async fn drain(self) {
        self.handle.drain();
        let outcome = tokio::time::timeout(PATIENCE, self.running).await.expect("a drain in time");
        assert_eq!(outcome.unwrap(), Outcome::Complete);
    }
}

fn posts(engine: &Engine) -> Vec<SeenRequest> {
    let requests = engine.state().requests;
    requests.into_iter().filter(|request| request.method != http::Method::GET).collect()
}
