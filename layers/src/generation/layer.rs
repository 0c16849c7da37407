use std::sync::Arc;

use http::Uri;
use tower_layer::Layer;

use super::{Engines, Generation, Signer};
use crate::{buffer::BufferBudget, trtllm::Engine};

/// Runs the generation leg and relays its reply. See the [module](super).
#[derive(Clone)]
pub struct GenerationLayer {
    pub(super) config: Arc<Config>,
}

/// What all services of a layer share.
#[derive(Clone)]
pub(super) struct Config {
    pub(super) engines: Arc<dyn Engines>,
    pub(super) origin: Option<Uri>,
    pub(super) max_whole: u64,
    pub(super) budget: BufferBudget,
    pub(super) signer: Option<Arc<dyn Signer>>,
}

impl GenerationLayer {
    /// How many bytes of a reply that is no stream are held to clean it, unless set otherwise: 64 MiB.
    pub const DEFAULT_MAX_WHOLE: u64 = 64 << 20;

    /// Takes all workers for engines of the newest release, and leaves it to the inner service where requests go.
    pub fn new() -> Self {
        let config = Config {
            engines: Arc::new(Engine::Unknown),
            origin: None,
            max_whole: Self::DEFAULT_MAX_WHOLE,
            budget: BufferBudget::unlimited(),
            signer: None,
        };
        Self { config: Arc::new(config) }
    }

    /// Shapes requests for the releases that `engines` knows; a single [`Engine`] stands for all workers.
    pub fn engines(self, engines: impl Engines + 'static) -> Self {
        self.with(|config| config.engines = Arc::new(engines))
    }

    /// Sends requests to this scheme (`http` when there is none) and authority. Without it they carry the client's path
    /// and query alone.
    pub fn to(self, origin: Uri) -> Self {
        self.with(|config| config.origin = Some(origin))
    }

    /// Holds up to `bytes` of a reply that is no stream, to remove internal state from it. A larger one is relayed as
    /// it is, and counted.
    pub fn max_whole(self, bytes: u64) -> Self {
        self.with(|config| config.max_whole = bytes)
    }

    /// Counts the bytes held against `budget`, which others may share. A reply that finds no room is answered with 503, `overloaded`.
    pub fn budget(self, budget: BufferBudget) -> Self {
        self.with(|config| config.budget = budget)
    }

    /// Signs each request by `signer`, such as a `SigningKey` (feature `hmac`); what a client sent in place of a signature
    /// is dropped in any case. Without it requests are not signed, which is right for workers that have no
    /// `internal_request_auth_key` (contract, section 8).
    pub fn sign(self, signer: impl Signer + 'static) -> Self {
        self.with(|config| config.signer = Some(Arc::new(signer)))
    }

    fn with(mut self, change: impl FnOnce(&mut Config)) -> Self {
        change(Arc::make_mut(&mut self.config));
        self
    }
}

impl Default for GenerationLayer {
    fn default() -> Self {
        Self::new()
    }
}

impl std::fmt::Debug for GenerationLayer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Config { origin, max_whole, budget, signer, .. } = &*self.config;
        f.debug_struct("GenerationLayer")
            .field("origin", origin)
            .field("max_whole", max_whole)
            .field("budget", budget)
            .field("signs", &signer.is_some())
            .finish_non_exhaustive()
    }
}

impl<S> Layer<S> for GenerationLayer {
    type Service = Generation<S>;

    fn layer(&self, inner: S) -> Self::Service {
        Generation::new(inner, self)
    }
}
