use std::{fmt, sync::Arc};

use tower_layer::Layer;

use super::{Cancel, InFlight, OnRelease, guard::Guard};

/// Counts requests until they are over, and tells a hook how each of them ended. See the [module](super) for examples.
///
/// Clones, and the services that they make, share one count and one hook.
#[derive(Clone)]
pub struct CancelLayer {
    in_flight: InFlight,
    hook: Arc<dyn OnRelease>,
}

impl CancelLayer {
    /// Counts, with a count of its own and without a hook.
    pub fn new() -> Self {
        Self { in_flight: InFlight::new(), hook: Arc::new(()) }
    }

    /// Calls `hook` once for each request, instead of the hook there was.
    pub fn on_release(mut self, hook: impl OnRelease) -> Self {
        self.hook = Arc::new(hook);
        self
    }

    /// Counts in `in_flight`, which other layers may share.
    pub fn count_in(mut self, in_flight: InFlight) -> Self {
        self.in_flight = in_flight;
        self
    }

    /// The requests in flight.
    pub fn in_flight(&self) -> InFlight {
        self.in_flight.clone()
    }

    /// A request has arrived.
    pub(super) fn enter(&self) -> Guard {
        Guard::new(self.in_flight.clone(), self.hook.clone())
    }
}

impl Default for CancelLayer {
    fn default() -> Self {
        Self::new()
    }
}

impl<S> Layer<S> for CancelLayer {
    type Service = Cancel<S>;

    fn layer(&self, inner: S) -> Cancel<S> {
        Cancel::new(inner, self.clone())
    }
}

impl fmt::Debug for CancelLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CancelLayer").field("in_flight", &self.in_flight.count()).finish_non_exhaustive()
    }
}
