use std::{
    future::Future,
    mem,
    pin::Pin,
    task::{Context, Poll},
};

use bytes::Bytes;
use http::{Request, Response, uri::Authority};
use tower_disagg::{
    error::BoxError,
    leg::{CheckedAddresses, LegBody, LegError, LegErrorKind},
    trtllm::{Engine, KEEPS_CONVERSATIONS, SUPPORTED},
};
use tower_layer::Layer;
use tower_service::Service;

use super::{
    Releases,
    probe::{self, VersionProbe},
};
use crate::client::is_connection_failure;

/// Goes around the context leg: asks each context worker for its release before the first request to it, and keeps
/// requests from those that are too old.
///
/// It stands inside the deadline of the leg, so a worker that is slow to say its release uses up the leg's time.
#[derive(Debug, Clone)]
pub(crate) struct ContextGateLayer<P> {
    releases: Releases,
    probe: P,
}

impl<P> ContextGateLayer<P> {
    pub(crate) fn new(releases: Releases, probe: P) -> Self {
        Self { releases, probe }
    }
}

impl<S, P: Clone> Layer<S> for ContextGateLayer<P> {
    type Service = ContextGate<S, P>;

    fn layer(&self, inner: S) -> Self::Service {
        ContextGate { inner, gate: self.clone() }
    }
}

/// The service of [`ContextGateLayer`].
#[derive(Debug, Clone)]
pub(crate) struct ContextGate<S, P> {
    inner: S,
    gate: ContextGateLayer<P>,
}

impl<S, P> Service<Request<LegBody>> for ContextGate<S, P>
where
    S: Service<Request<LegBody>, Response = Response<Bytes>, Error = BoxError, Future: Send>
        + Clone
        + Send
        + 'static,
    P: VersionProbe,
{
    type Response = Response<Bytes>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Bytes>, BoxError>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<LegBody>) -> Self::Future {
        let clone = self.inner.clone();
        let mut inner = mem::replace(&mut self.inner, clone);
        let gate = self.gate.clone();
        Box::pin(async move {
            let Some(authority) = request.uri().authority().cloned() else {
                return inner.call(request).await;
            };
            let engine = gate.engine(&authority, request.extensions().get()).await?;
            if !engine.is_supported() {
                let message = format!(
                    "the context worker is of release {engine}, which cannot hand a request over: {SUPPORTED} can"
                );
                return Err(LegError::new(LegErrorKind::UnsupportedEngine).with_message(message).into());
            }
            let result = inner.call(request).await;
            if let Err(error) = &result
                && is_connection_failure(LegErrorKind::of(&**error))
            {
                gate.releases.forget(authority.as_str());
            }
            result
        })
    }
}

impl<P: VersionProbe> ContextGateLayer<P> {
    /// The release of a worker, asked for when it is not known. One call asks, others wait for what it hears.
    async fn engine(
        &self,
        authority: &Authority,
        addresses: Option<&CheckedAddresses>,
    ) -> Result<Engine, BoxError> {
        if let Some(pinned) = self.releases.pinned() {
            return Ok(pinned.clone());
        }
        let entry = self.releases.entry(authority.as_str());
        if let Some(engine) = entry.known() {
            return Ok(engine);
        }
        let failures = entry.failures();
        let _asking = entry.asking.lock().await;
        if let Some(engine) = entry.known() {
            return Ok(engine);
        }
        if entry.failures() != failures {
            return Err(LegError::new(LegErrorKind::Connect).into());
        }
        match probe::ask(self.probe.clone(), authority, addresses).await {
            Ok(answer) => {
                let news = entry.learn(&answer);
                tracing::debug!(%authority, release = %answer.engine, "asked a context worker for its release");
                self.releases.note_newer(&answer.engine);
                if news && answer.engine.is_supported() && self.releases.loses_conversations(&answer.engine) {
                    tracing::warn!(
                        %authority,
                        release = %answer.engine,
                        "a context worker is too old to keep conversations together: {KEEPS_CONVERSATIONS} can"
                    );
                }
                Ok(answer.engine)
            }
            Err(error) => {
                entry.failed();
                self.releases.forget(authority.as_str());
                Err(error)
            }
        }
    }
}
