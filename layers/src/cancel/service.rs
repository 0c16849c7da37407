use std::task::{Context, Poll};

use http::{Request, Response};
use http_body::Body;
use tower_service::Service;

use super::{CancelBody, CancelFuture, CancelLayer, length::is_bodiless};

/// The service of [`CancelLayer`]. See the [module](super) for examples.
#[derive(Debug, Clone)]
pub struct Cancel<S> {
    inner: S,
    layer: CancelLayer,
}

impl<S> Cancel<S> {
    pub(super) fn new(inner: S, layer: CancelLayer) -> Self {
        Self { inner, layer }
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

impl<S, ReqBody, B> Service<Request<ReqBody>> for Cancel<S>
where
    S: Service<Request<ReqBody>, Response = Response<B>>,
    B: Body,
{
    type Response = Response<CancelBody<B>>;
    type Error = S::Error;
    type Future = CancelFuture<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<ReqBody>) -> Self::Future {
        let bodiless = is_bodiless(request.method());
        let mut guard = self.layer.enter();
        let future = guard.run(|| self.inner.call(request));
        CancelFuture::new(future, bodiless, guard)
    }
}
