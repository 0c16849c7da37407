//! The binary: settings, logs, signals, and a [`Sidecar`].

use std::process::ExitCode;

use disagg_sidecar::{Config, Outcome, Sidecar, Signals, telemetry};

fn main() -> ExitCode {
    let config = Config::load().unwrap_or_else(|error| error.exit());
    telemetry::log(&config);
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return failed(&error),
    };
    let code = runtime.block_on(run(config));
    // name resolution cannot be cancelled, and is not waited for
    runtime.shutdown_background();
    code
}

async fn run(config: Config) -> ExitCode {
    let signals = match Signals::take() {
        Ok(signals) => signals,
        Err(error) => return failed(&error),
    };
    let sidecar = match Sidecar::bind(config).await {
        Ok(sidecar) => sidecar,
        Err(error) => return failed(&error),
    };
    tokio::spawn(sidecar.handle().obey(signals));
    match sidecar.run().await {
        Outcome::Complete => ExitCode::SUCCESS,
        // the settings cannot be had, which is known only now
        Outcome::EngineTooOld => ExitCode::from(2),
        _ => ExitCode::FAILURE,
    }
}

fn failed(error: &dyn std::error::Error) -> ExitCode {
    tracing::error!(%error, "cannot start");
    ExitCode::FAILURE
}
