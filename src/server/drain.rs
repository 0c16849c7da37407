use std::time::Duration;

use super::{Phase, Phases};

/// How a sidecar ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Outcome {
    /// Everything that ran was finished.
    Complete,
    /// Something was cut: a request, or a handoff that was being settled.
    Cut,
    /// It ended by itself, since the release of the generation worker, when it was heard of for the first time, could
    /// not do what a setting asks for. The log says which.
    EngineTooOld,
}

/// Leads through the phases once `Leaving` is reached: grace, then what runs, then settlements.
///
/// `idle` ends when no connection is left, `settled` when no request and no settlement runs; `busy` says whether a request or a
/// settlement is running. Returns when all is done, the time is over, or somebody is in a hurry, with the phase at
/// `Cut`, so that what is left ends visibly incomplete.
pub(super) async fn drain(
    phases: &Phases,
    grace: Duration,
    most: Duration,
    idle: impl Future<Output = ()>,
    settled: impl Future<Output = ()>,
    busy: impl FnOnce() -> bool,
) -> Outcome {
    phases.reached(Phase::Leaving).await;
    tokio::select! {
        () = tokio::time::sleep(grace) => {}
        () = phases.reached(Phase::Finishing) => {}
    }
    phases.advance(Phase::Finishing);
    let done = async {
        idle.await;
        settled.await;
    };
    let done = tokio::select! {
        biased;
        () = done => true,
        () = phases.reached(Phase::Hurrying) => false,
        () = tokio::time::sleep(most) => false,
    };
    let outcome = if done || !busy() { Outcome::Complete } else { Outcome::Cut };
    phases.advance(Phase::Cut);
    outcome
}
