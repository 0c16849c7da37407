use std::{
    mem,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll},
};

use tower_service::Service;

/// Wraps a service and holds whoever uses it to the contract of `Service`.
///
/// A `service_fn` is always ready, so a layer that calls a clone it never polled works in tests and fails in front of
/// a connection pool. Put a `Probe` around it and the test fails too.
///
/// # Panics
///
/// When it is called and this very value was not ready since its last call; a clone starts out not ready.
///
/// ```
/// use tower::{Service, ServiceExt, service_fn};
/// use tower_disagg::test_util::Probe;
///
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// let mut probe = Probe::new(service_fn(async |n: u32| Ok::<_, std::io::Error>(n + 1)));
/// let counts = probe.counts();
/// assert_eq!(probe.ready().await.unwrap().call(1).await.unwrap(), 2);
/// drop(probe);
/// assert_eq!((counts.calls(), counts.drops()), (1, 1));
/// # });
/// ```
#[derive(Debug)]
pub struct Probe<S> {
    inner: S,
    ready: bool,
    counts: ProbeCounts,
}

impl<S> Probe<S> {
    /// A probe around `inner`.
    pub fn new(inner: S) -> Self {
        Self { inner, ready: false, counts: ProbeCounts::default() }
    }

    /// What this probe and its clones have seen; valid after they are gone.
    pub fn counts(&self) -> ProbeCounts {
        self.counts.clone()
    }
}

impl<S: Service<Req>, Req> Service<Req> for Probe<S> {
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        let poll = self.inner.poll_ready(cx);
        self.ready = matches!(poll, Poll::Ready(Ok(())));
        poll
    }

    fn call(&mut self, request: Req) -> S::Future {
        assert!(mem::take(&mut self.ready), "a service was called that had not been polled to readiness");
        self.counts.0.calls.fetch_add(1, Ordering::Relaxed);
        self.inner.call(request)
    }
}

impl<S: Clone> Clone for Probe<S> {
    /// Readiness belongs to one value: the clone has to ask for its own.
    fn clone(&self) -> Self {
        Self { inner: self.inner.clone(), ready: false, counts: self.counts.clone() }
    }
}

impl<S> Drop for Probe<S> {
    fn drop(&mut self) {
        self.counts.0.drops.fetch_add(1, Ordering::Relaxed);
    }
}

/// What a [`Probe`] and its clones have seen.
#[derive(Debug, Clone, Default)]
pub struct ProbeCounts(Arc<Counts>);

#[derive(Debug, Default)]
struct Counts {
    calls: AtomicUsize,
    drops: AtomicUsize,
}

impl ProbeCounts {
    /// How often any of them was called.
    pub fn calls(&self) -> usize {
        self.0.calls.load(Ordering::Relaxed)
    }

    /// How many of them were dropped.
    pub fn drops(&self) -> usize {
        self.0.drops.load(Ordering::Relaxed)
    }
}
