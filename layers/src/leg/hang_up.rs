use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    task::Waker,
};

/// Asks whoever sends a context request to end it without turning a deaf ear.
///
/// A client can leave just as the context reply is on its way: the worker has committed the KV cache, and a connection
/// that is closed now takes with it the only thing by which the cache could be collected. So a transport that is able
/// to closes its *sending* side alone, by which the worker sees that its client has gone, and still reads what was sent
/// before the worker saw it.
///
/// [`ContextLayer`](crate::context::ContextLayer) puts one into the extensions of every leg request. A transport that
/// honours it says so by [`accept`](Self::accept), and asks [`is_wanted`](Self::is_wanted) whenever it is polled. The
/// leg is then kept for a moment after its client has left; without that it is dropped at once.
#[derive(Debug, Clone, Default)]
pub struct HangUp(Arc<State>);

#[derive(Debug, Default)]
struct State {
    accepted: AtomicBool,
    wanted: AtomicBool,
    waker: Mutex<Option<Waker>>,
}

impl HangUp {
    /// One that nobody has accepted or asked for.
    pub fn new() -> Self {
        Self::default()
    }

    /// This leg closes its sending side when it is asked to, and goes on reading.
    pub fn accept(&self) {
        self.0.accepted.store(true, Ordering::Release);
    }

    /// Whether a transport has accepted.
    pub fn is_accepted(&self) -> bool {
        self.0.accepted.load(Ordering::Acquire)
    }

    /// The client has left.
    pub fn ask(&self) {
        self.0.wanted.store(true, Ordering::Release);
        if let Some(waker) = self.waker().take() {
            waker.wake();
        }
    }

    /// Whether the client has left.
    pub fn is_asked(&self) -> bool {
        self.0.wanted.load(Ordering::Acquire)
    }

    /// Whether the sending side is to be closed; otherwise `waker` is woken when it is.
    pub fn is_wanted(&self, waker: &Waker) -> bool {
        let mut known = self.waker();
        if !known.as_ref().is_some_and(|known| known.will_wake(waker)) {
            *known = Some(waker.clone());
        }
        drop(known);
        self.0.wanted.load(Ordering::Acquire)
    }

    /// Nothing here panics while it holds the lock; if it ever did, what the lock protects is whole all the same.
    fn waker(&self) -> MutexGuard<'_, Option<Waker>> {
        self.0.waker.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
