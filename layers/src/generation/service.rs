use std::{
    fmt,
    sync::Arc,
    task::{Context, Poll},
};

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use tower_service::Service;

use super::{GenerationFuture, GenerationLayer, RelayBody, layer::Config, request::leg_request, sign::sign};
use crate::{
    error::BoxError,
    handoff::{Handoff, Open},
    leg::LegBody,
    trtllm::Shape,
};

/// The service of [`GenerationLayer`].
#[derive(Clone)]
pub struct Generation<S> {
    inner: S,
    config: Arc<Config>,
}

impl<S> Generation<S> {
    /// Sends generation requests to `inner`, with the settings of `layer`.
    pub fn new(inner: S, layer: &GenerationLayer) -> Self {
        Self { inner, config: layer.config.clone() }
    }

    /// The inner service.
    pub fn get_ref(&self) -> &S {
        &self.inner
    }

    /// The inner service.
    pub fn into_inner(self) -> S {
        self.inner
    }
}

impl<S, B> Service<Request<Handoff<Open>>> for Generation<S>
where
    S: Service<Request<LegBody>, Response = Response<B>>,
    S::Error: Into<BoxError>,
    S::Future: Send + 'static,
    B: Body<Data = Bytes> + Send + Unpin + 'static,
    B::Error: Into<BoxError>,
{
    type Response = Response<RelayBody<B>>;
    type Error = BoxError;
    type Future = GenerationFuture<B>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, request: Request<Handoff<Open>>) -> Self::Future {
        let (parts, handoff) = request.into_parts();
        let engines = &self.config.engines;
        let context = engines.context(handoff.context_endpoint());
        let shape = Shape::between(&context, &engines.generation(), handoff.reply());
        let id = handoff.reply().id_for_generation(handoff.id());
        if id.is_foreign() {
            tracing::warn!(
                minted = %handoff.id(), reported = %id, context_endpoint = %handoff.context_endpoint(),
                "the context worker reports another disaggregation request id than it was sent; its own is used"
            );
            metrics::counter!("disagg_id_mismatches_total").increment(1);
        }
        let mut request = leg_request(parts, &handoff, &shape, self.config.origin.as_ref());
        if let Some(signer) = &self.config.signer {
            sign(request.headers_mut(), &**signer, handoff.reply(), &shape);
        }
        GenerationFuture::new(self.inner.call(request), &handoff, self.config.clone())
    }
}

impl<S: fmt::Debug> fmt::Debug for Generation<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Generation").field("inner", &self.inner).finish_non_exhaustive()
    }
}
