use tower_layer::Layer;

use super::Terminal;

/// Answers requests that the context step has finished. See the [module](super).
#[derive(Debug, Clone, Copy, Default)]
#[non_exhaustive]
pub struct TerminalLayer;

impl TerminalLayer {
    /// There is nothing to set.
    pub const fn new() -> Self {
        Self
    }
}

impl<S> Layer<S> for TerminalLayer {
    type Service = Terminal<S>;

    fn layer(&self, inner: S) -> Self::Service {
        Terminal::new(inner)
    }
}
