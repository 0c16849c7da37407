use std::sync::Arc;

use tower_layer::Layer;

use super::{Mint, RandomIds};

/// Gives each request its disaggregation request id. See the [module](super).
#[derive(Debug)]
pub struct MintLayer<M = RandomIds> {
    maker: Arc<M>,
}

impl<M> MintLayer<M> {
    /// Takes ids from `maker`, which all services of this layer share.
    pub fn new(maker: M) -> Self {
        Self { maker: Arc::new(maker) }
    }
}

impl Default for MintLayer {
    /// Random ids.
    fn default() -> Self {
        Self::new(RandomIds::new())
    }
}

impl<M> Clone for MintLayer<M> {
    fn clone(&self) -> Self {
        Self { maker: self.maker.clone() }
    }
}

impl<S, M> Layer<S> for MintLayer<M> {
    type Service = Mint<S, M>;

    fn layer(&self, inner: S) -> Self::Service {
        Mint::new(inner, self.maker.clone())
    }
}
