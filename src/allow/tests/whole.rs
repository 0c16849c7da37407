//! The whole stack between simulated engines, with a resolver that says what the test wants.

use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use http::{Request, StatusCode};
use http_body_util::{BodyExt, Full};
use tokio::net::TcpListener;
use tower::ServiceExt;
use trtllm_sim::{Cut, CutAt, CutHow, Engine, Fault, Generation, On, Role};

use super::*;
use crate::{Config, server::Phases, stack::Assembly};

const BODY: &str = r#"{"model":"sim","messages":[{"role":"user","content":"x"}],"max_tokens":4}"#;

/// Two engines of a release, and what the sidecar is told between them.
struct Setup {
    context: Engine,
    generation: Engine,
    names: Names,
}

impl Setup {
    async fn new() -> Self {
        let release = Generation::G2Late.sample_release();
        let engine = |role| Engine::start(trtllm_sim::Config::new(role).release(release));
        let (context, generation) =
            (engine(Role::Context).await.unwrap(), engine(Role::Generation).await.unwrap());
        Self { context, generation, names: Names::default() }
    }

    fn port(&self) -> u16 {
        self.context.addr().port()
    }

    /// Sends a request that names `worker.test` through a new stack; status and code.
    async fn send(&self, flags: &[&str]) -> (StatusCode, Option<String>) {
        let url = self.generation.url();
        let name = format!("*.test:{}", self.port());
        let mut all = vec!["--generation-url", &url, "--allow-context", &name];
        all.extend(flags);
        let config = Config::from_args(all).unwrap();
        let service = Assembly::with_resolver(config, Phases::new(), self.names.resolver()).service();
        let request = Request::post("/v1/chat/completions")
            .header("x-prefiller-host-port", format!("Worker.test:{}", self.port()))
            .body(Full::new(Bytes::from_static(BODY.as_bytes())));
        let reply = service.oneshot(request.unwrap()).await.unwrap();
        let status = reply.status();
        let body = reply.into_body().collect().await.unwrap().to_bytes();
        let body: serde_json::Value = serde_json::from_slice(&body).unwrap();
        (status, body["error"]["code"].as_str().map(str::to_owned))
    }

    /// The context worker was asked under its name, and no other address was connected to.
    fn was_called(&self, legs: usize, elsewhere: &Elsewhere) {
        let requests = self.context.state().requests;
        let named = format!("worker.test:{}", self.port());
        assert!(requests.iter().all(|request| request.header("host") == Some(&named)), "{requests:?}");
        let questions = requests.iter().filter(|request| request.path == "/version").count();
        assert_eq!((requests.len() - questions, questions), (legs, legs.min(1)));
        assert_eq!(elsewhere.connections(), 0);
    }
}

/// A listener at another address, on the port of the context worker.
struct Elsewhere(Arc<AtomicUsize>);

impl Elsewhere {
    async fn new(ip: &str, port: u16) -> Self {
        let listener = TcpListener::bind((ip, port)).await.unwrap();
        let accepted = Arc::new(AtomicUsize::new(0));
        let count = accepted.clone();
        tokio::spawn(async move {
            while listener.accept().await.is_ok() {
                count.fetch_add(1, Ordering::Relaxed);
            }
        });
        Self(accepted)
    }

    fn connections(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

#[tokio::test]
async fn the_address_that_was_checked_is_the_one_that_is_dialled() {
    let setup = Setup::new().await;
    let elsewhere = Elsewhere::new("127.0.0.2", setup.port()).await;
    // whoever asked a second time would be sent elsewhere
    setup.names.say("worker.test", &[&["127.0.0.1"], &["127.0.0.2"]]);
    let allow = format!("127.0.0.0/8:{}", setup.port());
    assert_eq!(setup.send(&["--allow-context", &allow]).await, (StatusCode::OK, None));
    assert_eq!(setup.names.asked(), ["worker.test"]);
    setup.was_called(1, &elsewhere);
    // what was heard of its release is known under its name: between workers of this release it is needed
    let leg = setup.generation.state().requests.pop().unwrap();
    assert!(!leg.json().unwrap()["disaggregated_params"]["ctx_usage"].is_null());
}

#[tokio::test]
async fn another_attempt_goes_to_the_same_address() {
    let setup = Setup::new().await;
    let elsewhere = Elsewhere::new("127.0.0.2", setup.port()).await;
    setup.names.say("worker.test", &[&["127.0.0.1"], &["127.0.0.2"]]);
    let mut fault = Fault::on(On::Context);
    // so late that the answer of the resolver would not be taken for true any more
    fault.before_head = Duration::from_millis(2100);
    fault.cut = Some(Cut { at: CutAt::Head, how: CutHow::Rst });
    fault.times = Some(1);
    setup.context.set_fault(fault);
    let allow = format!("127.0.0.0/8:{}", setup.port());
    let reply = setup.send(&["--allow-context", &allow, "--engine-version", "1.3.0rc24"]).await;
    assert_eq!(reply, (StatusCode::OK, None));
    assert_eq!(setup.names.asked(), ["worker.test"]);
    assert_eq!(setup.context.state().requests.len(), 2);
    assert_eq!(elsewhere.connections(), 0);
}

#[tokio::test]
async fn of_several_addresses_only_the_allowed_ones_are_dialled() {
    let setup = Setup::new().await;
    let elsewhere = Elsewhere::new("127.0.0.2", setup.port()).await;
    let port = setup.port();
    // the first is not allowed, at the second is nobody
    setup.names.say("worker.test", &[&["127.0.0.2", "127.0.0.3", "127.0.0.1"]]);
    let allow = format!("127.0.0.1/32:{port},127.0.0.3/32:{port}");
    assert_eq!(setup.send(&["--allow-context", &allow]).await, (StatusCode::OK, None));
    setup.was_called(1, &elsewhere);
    // without the last one there is nobody
    let allow = format!("127.0.0.3/32:{port}");
    let (status, code) = setup.send(&["--allow-context", &allow]).await;
    assert_eq!((status.as_u16(), code.as_deref()), (502, Some("context_unreachable")));
    setup.was_called(1, &elsewhere);
}

#[tokio::test]
async fn names_that_lead_elsewhere_or_nowhere_are_refused() {
    let setup = Setup::new().await;
    let elsewhere = Elsewhere::new("127.0.0.2", setup.port()).await;
    let port = setup.port();
    let allow = format!("127.0.0.1/32:{port},::/0:{port}");
    let flags = ["--allow-context", &allow, "--connect-timeout", "200ms"];
    let refused = (403, Some("context_endpoint_not_allowed"));
    for (answer, expected) in [
        (Some(&["127.0.0.2"][..]), refused),
        (Some(&["169.254.169.254", "[::ffff:169.254.169.254]", "[::ffff:127.0.0.2]"]), refused),
        (Some(&[]), refused),
        (None, (502, Some("context_unreachable"))),
    ] {
        if let Some(answer) = answer {
            setup.names.say("worker.test", &[answer]);
        } else {
            setup.names.hold(); // late
        }
        let (status, code) = setup.send(&flags).await;
        assert_eq!((status.as_u16(), code.as_deref()), expected, "{answer:?}");
        setup.was_called(0, &elsewhere);
    }
    assert!(setup.generation.state().requests.iter().all(|request| request.path == "/version"));
}
