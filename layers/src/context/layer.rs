use tower_layer::Layer;

use super::Context;
use crate::settle::Settler;

/// Runs the context leg. See the [module](super).
#[derive(Debug, Clone)]
pub struct ContextLayer<L> {
    leg: L,
    settler: Settler,
}

impl<L> ContextLayer<L> {
    /// Sends context requests to `leg`. Handoffs that nobody waits for any more are dropped and counted, unless
    /// [`settle`](Self::settle) says otherwise.
    pub fn new(leg: L) -> Self {
        Self { leg, settler: Settler::off() }
    }

    /// Finishes handoffs that nobody waits for any more in the background, by `settler`.
    pub fn settle(mut self, settler: Settler) -> Self {
        self.settler = settler;
        self
    }
}

impl<S, L: Clone> Layer<S> for ContextLayer<L> {
    type Service = Context<S, L>;

    fn layer(&self, inner: S) -> Self::Service {
        Context::new(inner, self.leg.clone(), self.settler.clone())
    }
}
