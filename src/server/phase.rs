use tokio::sync::watch;

/// How far the process is on its way out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Phase {
    /// Not at all.
    Serving,
    /// Readiness is withdrawn; new requests are still served.
    Leaving,
    /// Nothing new is served; what runs is finished.
    Finishing,
    /// The same, but somebody has asked to end at once.
    Hurrying,
    /// What still runs is cut. Only the drain itself goes on to this, so that it knows what it cuts.
    Cut,
    /// Nothing is left but questions on the admin port.
    Closing,
    /// The end.
    Over,
}

/// The phase of the process, seen and advanced from everywhere. It never goes back.
#[derive(Debug, Clone)]
pub(crate) struct Phases(watch::Sender<Phase>);

impl Phases {
    pub(crate) fn new() -> Self {
        Self(watch::Sender::new(Phase::Serving))
    }

    pub(crate) fn now(&self) -> Phase {
        *self.0.borrow()
    }

    /// Goes on to `phase`, unless it was reached before.
    pub(crate) fn advance(&self, phase: Phase) {
        self.0.send_if_modified(|now| {
            let later = phase > *now;
            *now = (*now).max(phase);
            later
        });
    }

    /// Waits until `phase` is reached. Cancel safe.
    pub(crate) async fn reached(&self, phase: Phase) {
        let mut watching = self.0.subscribe();
        // fails only when there is no sender, and `self` is one
        let _ = watching.wait_for(|now| *now >= phase).await;
    }
}
