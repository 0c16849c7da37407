use std::{
    future::{Ready, ready},
    task::{Context, Poll},
};

use http::{Request, Response};
use tower_service::Service;

use crate::{
    error::{BoxError, ContractError, ContractErrorKind},
    leg::LegBody,
};

/// A passthrough that refuses: requests without a routing header are not served (404, `not_found`).
///
/// [`ContractLayer::without_passthrough`](super::ContractLayer::without_passthrough) has it, and does not read bodies
/// that nobody is going to get.
#[derive(Debug, Clone, Copy, Default)]
#[non_exhaustive]
pub struct NoPassthrough;

impl NoPassthrough {
    /// There is nothing to set.
    pub const fn new() -> Self {
        Self
    }
}

impl<B> Service<Request<B>> for NoPassthrough {
    type Response = Response<LegBody>;
    type Error = BoxError;
    type Future = Ready<Result<Response<LegBody>, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<B>) -> Self::Future {
        ready(Err(ContractError::new(ContractErrorKind::NotServed).into()))
    }
}
