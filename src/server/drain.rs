use std::time::Duration;

use tokio::time::{Instant, timeout_at};

use super::{Phase, Phases};

/// How a sidecar ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Outcome {
    /// Everything that ran was finished.
    Complete,
    /// Something was cut: a request, or a handoff that was being settled.
    Cut,
}

/// Leads through the phases once `Leaving` is reached: grace, then what runs, then settlements.
///
/// `idle` ends when no connection is left, `settled` when no settlement runs. Returns when all is done or the time is
/// over, with the phase at `Cut`, so that what is left ends visibly incomplete.
pub(super) async fn drain(
    phases: &Phases,
    grace: Duration,
    most: Duration,
    idle: impl Future<Output = ()>,
    settled: impl Future<Output = ()>,
) -> Outcome {
    phases.reached(Phase::Leaving).await;
    tokio::select! {
        () = tokio::time::sleep(grace) => {}
        () = phases.reached(Phase::Finishing) => {}
    }
    phases.advance(Phase::Finishing);
    let deadline = Instant::now() + most;
    let finish = async {
        idle.await;
        settled.await;
    };
    let outcome = tokio::select! {
        biased;
        done = timeout_at(deadline, finish) => match done {
            Ok(()) => Outcome::Complete,
            Err(_) => Outcome::Cut,
        },
        () = phases.reached(Phase::Cut) => Outcome::Cut,
    };
    phases.advance(Phase::Cut);
    outcome
}
