use std::{
    fmt,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

use http::StatusCode;
use metrics::Gauge;

use super::{InFlight, OnRelease, Outcome};

/// One request in flight. Releases it when it is dropped, as what was last said of it.
pub(super) struct Guard {
    status: Option<StatusCode>,
    ending: Ending,
    in_flight: InFlight,
    hook: Arc<dyn OnRelease>,
    /// The one that was incremented, so that the same one is decremented.
    gauge: Gauge,
}

/// What dropping the guard would mean.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ending {
    /// Nobody waits any more.
    Cancelled,
    /// Something inside returned an error, or is running and has not returned: then it panicked.
    Failed,
    /// The whole response was handed out.
    Completed,
}

impl Guard {
    pub(super) fn new(in_flight: InFlight, hook: Arc<dyn OnRelease>) -> Self {
        in_flight.enter();
        let gauge = metrics::gauge!("disagg_requests_in_flight");
        gauge.increment(1.0);
        Self { status: None, ending: Ending::Cancelled, in_flight, hook, gauge }
    }

    /// Runs something of the inner service. If it panics, the request has failed.
    pub(super) fn run<T>(&mut self, inner: impl FnOnce() -> T) -> T {
        self.ending = Ending::Failed;
        let value = inner();
        self.ending = Ending::Cancelled;
        value
    }

    /// The response has a head.
    pub(super) fn head(&mut self, status: StatusCode) {
        self.status = Some(status);
    }

    /// Releases the request if it has ended; else gives the guard back.
    pub(super) fn unless(mut self, ended: Option<Ending>) -> Option<Self> {
        let Some(ending) = ended else { return Some(self) };
        self.ending = ending;
        None
    }

    fn outcome(&self) -> Outcome {
        match (self.ending, self.status) {
            (Ending::Completed, Some(status)) => Outcome::Completed(status),
            (Ending::Cancelled, status) => Outcome::Cancelled(status),
            (Ending::Failed | Ending::Completed, status) => Outcome::Failed(status),
        }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        let outcome = self.outcome();
        let hook = AssertUnwindSafe(|| self.hook.on_release(outcome));
        if catch_unwind(hook).is_err() {
            tracing::error!("the release hook of a request panicked");
        }
        self.gauge.decrement(1.0);
        metrics::counter!("disagg_requests_total", "outcome" => outcome.as_str()).increment(1);
        // Last: who sees no request in flight may rely on all hooks having run.
        self.in_flight.leave();
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guard").field("status", &self.status).finish_non_exhaustive()
    }
}
