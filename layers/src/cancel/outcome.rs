use http::StatusCode;

/// How a request ended, with the status of its response when there was one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Outcome {
    /// The whole response was handed out.
    Completed(StatusCode),
    /// The service failed (no status) or the body did.
    Failed(Option<StatusCode>),
    /// The future or the body was dropped before its end.
    Cancelled(Option<StatusCode>),
}

impl Outcome {
    /// The status of the response, when its head was handed out.
    pub fn status(&self) -> Option<StatusCode> {
        match *self {
            Self::Completed(status) => Some(status),
            Self::Failed(status) | Self::Cancelled(status) => status,
        }
    }

    /// The name used in metrics and logs.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Completed(_) => "completed",
            Self::Failed(_) => "failed",
            Self::Cancelled(_) => "cancelled",
        }
    }
}

/// Told, once, how a request ended. Any `Fn(Outcome)` is one; `()` does nothing.
///
/// It is called from `poll` or from `drop`, on whichever thread that happens, so it has to be quick and must not
/// block. It should not panic: a panic is caught and logged, since one inside of a `drop` could end the process.
/// Its request still counts as in flight while it runs.
pub trait OnRelease: Send + Sync + 'static {
    /// A request has ended.
    fn on_release(&self, outcome: Outcome);
}

impl OnRelease for () {
    fn on_release(&self, _: Outcome) {}
}

impl<F: Fn(Outcome) + Send + Sync + 'static> OnRelease for F {
    fn on_release(&self, outcome: Outcome) {
        self(outcome);
    }
}
