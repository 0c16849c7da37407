use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use http::StatusCode;

/// Tells the context layer that the head of a context reply has arrived.
///
/// [`ContextLayer`](crate::context::ContextLayer) puts one into the extensions of every leg request, and whoever reads
/// the reply calls [`arrived`](Self::arrived) as soon as it has the head ([`BufferReply`](super::BufferReply) does).
/// From then on the KV cache is committed on the context worker: dropping the leg frees nothing any more, so a client
/// that leaves makes the layer finish the handoff instead. A leg that never calls it counts as uncommitted until its
/// reply is whole.
#[derive(Debug, Clone, Default)]
pub struct ReplyHead(Arc<AtomicBool>);

impl ReplyHead {
    /// One that nothing has arrived at.
    pub fn new() -> Self {
        Self::default()
    }

    /// The head is here; `status` says whether the worker holds anything for the request (it does after a 2xx).
    pub fn arrived(&self, status: StatusCode) {
        if status.is_success() {
            self.0.store(true, Ordering::Release);
        }
    }

    /// Whether the worker holds a KV cache that only a generation leg can collect.
    pub fn is_committed(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}
