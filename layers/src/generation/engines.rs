use crate::trtllm::{ContextEndpoint, Engine};

/// Knows the releases of the workers, as far as anybody does.
///
/// Request models of engines forbid members that they do not know, so the generation request is shaped for the worker
/// that gets it (contract, section 2). Asked once a request; the answer has to be at hand.
pub trait Engines: Send + Sync {
    /// The generation worker that requests are sent to.
    fn generation(&self) -> Engine;

    /// The context worker at `endpoint`.
    fn context(&self, endpoint: &ContextEndpoint) -> Engine;

    /// The generation worker has refused a request (400) that came from the context worker at `endpoint`: one of the two
    /// may have been replaced by another release. Must not block. Does nothing unless implemented.
    fn refused(&self, _endpoint: &ContextEndpoint) {}
}

/// All workers are of one release, or of none that is known.
impl Engines for Engine {
    fn generation(&self) -> Engine {
        self.clone()
    }

    fn context(&self, _: &ContextEndpoint) -> Engine {
        self.clone()
    }
}

impl<T: Engines + ?Sized> Engines for std::sync::Arc<T> {
    fn generation(&self) -> Engine {
        (**self).generation()
    }

    fn context(&self, endpoint: &ContextEndpoint) -> Engine {
        (**self).context(endpoint)
    }

    fn refused(&self, endpoint: &ContextEndpoint) {
        (**self).refused(endpoint);
    }
}
