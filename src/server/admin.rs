use std::{convert::Infallible, sync::Arc, time::Duration};

use bytes::Bytes;
use http::{
    HeaderValue, Method, Request, Response, StatusCode, Uri,
    header::{ALLOW, CONTENT_TYPE},
};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use tokio::{sync::Mutex, time::Instant};
use tower::ServiceExt;
use tower_disagg::leg::LegBody;

use super::{Phase, Phases, front::text};
use crate::{stack::Assembly, telemetry};

/// How long the generation worker may take to say that it is well, and how long its word is good for.
const HEALTH_TIME: Duration = Duration::from_secs(1);

/// What the admin port answers.
#[derive(Debug, Clone)]
pub(super) struct Admin(Arc<State>);

#[derive(Debug)]
struct State {
    phases: Phases,
    assembly: Assembly,
    health: Uri,
    /// What was last heard, and when; held while the worker is asked, so that many probes ask once.
    heard: Mutex<Option<(Readiness, Instant)>>,
}

/// Whether new requests should come here, and if not, why.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Readiness {
    Ready,
    Not(&'static str),
}

impl Admin {
    /// `origin` is that of the generation worker.
    pub(super) fn new(phases: Phases, assembly: Assembly, origin: &Uri) -> Self {
        let mut parts = origin.clone().into_parts();
        parts.path_and_query = Some(http::uri::PathAndQuery::from_static("/health"));
        // a scheme, an authority and a path always make a URI
        let health = Uri::from_parts(parts).unwrap_or_default();
        Self(Arc::new(State { phases, assembly, health, heard: Mutex::default() }))
    }

    pub(super) async fn answer(
        self,
        request: Request<Incoming>,
    ) -> Result<Response<Full<Bytes>>, Infallible> {
        let read = request.method() == Method::GET || request.method() == Method::HEAD;
        Ok(match request.uri().path() {
            "/livez" if read => text(StatusCode::OK, "ok\n"),
            "/readyz" if read => match self.readiness().await {
                Readiness::Ready => text(StatusCode::OK, "ready\n"),
                Readiness::Not(why) => text(StatusCode::SERVICE_UNAVAILABLE, why),
            },
            "/metrics" if read => {
                self.0.assembly.gauge();
                metrics_page()
            }
            "/drain" if request.method() == Method::POST => {
                self.0.phases.advance(Phase::Leaving);
                text(StatusCode::ACCEPTED, "draining\n")
            }
            "/livez" | "/readyz" | "/metrics" => not_allowed("GET, HEAD"),
            "/drain" => not_allowed("POST"),
            _ => text(StatusCode::NOT_FOUND, "not found\n"),
        })
    }

    async fn readiness(&self) -> Readiness {
        let state = &*self.0;
        if state.phases.now() > Phase::Serving {
            return Readiness::Not("draining\n");
        }
        let mut heard = state.heard.lock().await;
        if let Some((readiness, at)) = *heard
            && at.elapsed() < HEALTH_TIME
        {
            return readiness;
        }
        let gate = state.assembly.generation_gate();
        if let Some((Readiness::Not(_), _)) = *heard {
            gate.doubt();
        }
        let asked = tokio::time::timeout(HEALTH_TIME, self.ask()).await;
        let readiness = asked.unwrap_or(Readiness::Not("the generation worker did not answer in time\n"));
        if readiness != Readiness::Ready {
            gate.doubt();
        }
        *heard = Some((readiness, Instant::now()));
        readiness
    }

    /// Asks the generation worker for its release, unless that is known, and for its health.
    async fn ask(&self) -> Readiness {
        let gate = self.0.assembly.generation_gate();
        match gate.settled().await {
            None => return Readiness::Not("the generation worker has not answered yet\n"),
            Some(engine) if !engine.is_supported() => {
                return Readiness::Not("the release of the generation worker is not supported\n");
            }
            Some(engine) if gate.loses_conversations(&engine) => {
                return Readiness::Not("the generation worker is too old for --conversation-from\n");
            }
            Some(_) => {}
        }
        let mut request = Request::new(LegBody::empty());
        *request.uri_mut() = self.0.health.clone();
        let Ok(reply) = self.0.assembly.questions().oneshot(request).await else {
            return Readiness::Not("the generation worker cannot be reached\n");
        };
        let healthy = reply.status().is_success();
        // read, so that the worker is not cut off while it answers
        let body = http_body_util::Limited::new(reply.into_body(), 64 << 10);
        let _ = body.collect().await;
        if healthy { Readiness::Ready } else { Readiness::Not("the generation worker is not healthy\n") }
    }
}

fn metrics_page() -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::from(telemetry::metrics().render()));
    let kind = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}

fn not_allowed(methods: &'static str) -> Response<Full<Bytes>> {
    let mut response = text(StatusCode::METHOD_NOT_ALLOWED, "method not allowed\n");
    response.headers_mut().insert(ALLOW, HeaderValue::from_static(methods));
    response
}
