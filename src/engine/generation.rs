use std::{
    future::Future,
    mem,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use http::{Request, uri::Authority};
use tower_disagg::{
    error::{BoxError, GenerationError, GenerationErrorKind},
    leg::{LegError, LegErrorKind},
    trtllm::{Engine, SUPPORTED},
};
use tower_layer::Layer;
use tower_service::Service;

use super::{
    Releases,
    probe::{self, VersionProbe},
};

/// Stands before the context leg: refuses a handoff when the local generation worker could not take it over, so that
/// no context run is spent on it.
///
/// A worker that has not been heard of is asked there and then: it may be loading still, or gone. Many requests at a
/// time ask once.
#[derive(Debug, Clone)]
pub(crate) struct GenerationGateLayer<P> {
    releases: Releases,
    probe: P,
    authority: Authority,
}

impl<P> GenerationGateLayer<P> {
    /// For the generation worker at `authority`.
    pub(crate) fn new(releases: Releases, probe: P, authority: Authority) -> Self {
        Self { releases, probe, authority }
    }
}

impl<S, P: Clone> Layer<S> for GenerationGateLayer<P> {
    type Service = GenerationGate<S, P>;

    fn layer(&self, inner: S) -> Self::Service {
        GenerationGate { inner, gate: self.clone() }
    }
}

/// The service of [`GenerationGateLayer`].
#[derive(Debug, Clone)]
pub(crate) struct GenerationGate<S, P> {
    inner: S,
    gate: GenerationGateLayer<P>,
}

impl<S, P, B> Service<Request<B>> for GenerationGate<S, P>
where
    S: Service<Request<B>, Response: Send, Error = BoxError, Future: Send> + Clone + Send + 'static,
    P: VersionProbe,
    B: Send + 'static,
{
    type Response = S::Response;
    type Error = BoxError;
    type Future = GateFuture<S::Future, S::Response>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        match self.gate.releases.local() {
            Some(engine) if engine.is_supported() => GateFuture::Through(self.inner.call(request)),
            known => {
                let clone = self.inner.clone();
                let mut inner = mem::replace(&mut self.inner, clone);
                let gate = self.gate.clone();
                GateFuture::Asking(Box::pin(async move {
                    gate.admit(known).await?;
                    inner.call(request).await
                }))
            }
        }
    }
}

/// The future of [`GenerationGate`].
#[pin_project::pin_project(project = GateProj)]
pub(crate) enum GateFuture<F, R> {
    Through(#[pin] F),
    Asking(Pin<Box<dyn Future<Output = Result<R, BoxError>> + Send>>),
}

impl<F, R> Future for GateFuture<F, R>
where
    F: Future<Output = Result<R, BoxError>>,
{
    type Output = Result<R, BoxError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match self.project() {
            GateProj::Through(inner) => inner.poll(cx),
            GateProj::Asking(inner) => inner.as_mut().poll(cx),
        }
    }
}

impl<F, R> std::fmt::Debug for GateFuture<F, R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Through(_) => "GateFuture::Through",
            Self::Asking(_) => "GateFuture::Asking",
        })
    }
}

impl<P: VersionProbe> GenerationGateLayer<P> {
    async fn admit(&self, known: Option<Engine>) -> Result<(), GenerationError> {
        let engine = match known {
            Some(engine) => engine,
            None => self
                .hear()
                .await
                .map_err(|error| GenerationError::new(GenerationErrorKind::Unreachable).with_source(error))?,
        };
        if engine.is_supported() {
            return Ok(());
        }
        let message = format!(
            "the generation worker is of release {engine}, which cannot take a handoff over: {SUPPORTED} can"
        );
        Err(GenerationError::new(GenerationErrorKind::UnsupportedEngine).with_message(message))
    }

    /// The release, asked for when it is not known; `None` when there is no telling yet.
    pub(crate) async fn settled(&self) -> Option<Engine> {
        if self.releases.local().is_none() {
            let _ = self.hear().await;
        }
        self.releases.local()
    }

    /// Whether a worker of this release cannot keep conversations together, although it is to.
    pub(crate) fn loses_conversations(&self, engine: &Engine) -> bool {
        self.releases.loses_conversations(engine)
    }

    /// The worker was not well, so what answers next may be another one.
    pub(crate) fn doubt(&self) {
        self.releases.doubt_local();
    }

    /// Asks, or hears what another one is told who is asking already. What a worker answers that is still loading, or
    /// busy, does not last and changes nothing.
    async fn hear(&self) -> Result<Engine, BoxError> {
        let before = self.releases.questions();
        let _asking = self.releases.asking_local().await;
        if let Some(said) = self.releases.said_since(before) {
            return said.ok_or_else(|| LegError::new(LegErrorKind::Connect).into());
        }
        let asked = probe::ask(self.probe.clone(), &self.authority, None).await;
        self.releases.said(asked.as_ref().ok().map(|answer| answer.engine.clone()));
        let answer = asked.inspect_err(|_| self.releases.forget_local())?;
        if answer.lasting {
            self.releases.set_local(answer.engine.clone());
        }
        self.releases.note_newer(&answer.engine);
        Ok(answer.engine)
    }
}

const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// How often a worker that answers is asked: it may have been replaced while nobody looked.
const ASK_AGAIN: Duration = Duration::from_secs(5 * 60);

/// Asks the local generation worker for its release until it answers, and again from time to time and whenever it is
/// in doubt. Never ends.
pub(crate) async fn watch<P: VersionProbe>(gate: GenerationGateLayer<P>) {
    let mut pause = FIRST_PAUSE;
    loop {
        if gate.releases.local().is_some() {
            // in the meantime what was heard holds
            let _ = tokio::time::timeout(ASK_AGAIN, gate.releases.doubted()).await;
            pause = FIRST_PAUSE;
        }
        if let Err(error) = gate.hear().await {
            tracing::debug!(%error, "the generation worker does not answer");
        }
        if gate.releases.local().is_none() {
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }
}
