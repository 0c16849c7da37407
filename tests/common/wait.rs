//! Waiting with a bound, in place of sleeping.

use std::time::Duration;

/// How long anything may take; for what should take milliseconds, on a machine that is busy.
pub const PATIENCE: Duration = Duration::from_secs(15);

/// How soon a worker has to see that its client has gone. It is a matter of milliseconds; what this tells apart is
/// seeing it at all from seeing it with the next token, ping or timeout.
pub const SOON: Duration = Duration::from_secs(3);

/// Waits until `check` holds.
#[track_caller]
pub fn eventually(what: &str, check: impl FnMut() -> bool) -> impl Future<Output = ()> {
    within(PATIENCE, what, check)
}

/// Waits until `check` holds, for a given time at most.
#[track_caller]
pub fn within(limit: Duration, what: &str, mut check: impl FnMut() -> bool) -> impl Future<Output = ()> {
    let (what, caller) = (what.to_owned(), std::panic::Location::caller());
    async move {
        let waiting = async {
            while !check() {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        let held = tokio::time::timeout(limit, waiting).await.is_ok();
        assert!(held, "{caller}: not within {limit:?}: {what}");
    }
}
