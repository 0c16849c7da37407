//! Logs and metrics of the process.

use std::{io::IsTerminal, sync::OnceLock, time::Duration};

use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use tracing::{Metadata, level_filters::LevelFilter};
use tracing_subscriber::{
    EnvFilter, Layer, filter::FilterFn, fmt, layer::SubscriberExt, registry, util::SubscriberInitExt,
};

use crate::config::{Config, LogFormat};

/// Starts logging to standard error, as `config` says. Does nothing where logging has been started already.
pub fn log(config: &Config) {
    // the filter was read once when the settings were
    let filter = EnvFilter::try_new(config.log.as_str()).unwrap_or_else(|_| EnvFilter::new("info"));
    let format = config
        .log_format
        .unwrap_or_else(|| if std::io::stderr().is_terminal() { LogFormat::Text } else { LogFormat::Json });
    let lines = fmt::layer().with_writer(std::io::stderr);
    let lines = match format {
        LogFormat::Text => lines.with_ansi(std::io::stderr().is_terminal()).boxed(),
        LogFormat::Json => lines.json().flatten_event(true).with_current_span(false).boxed(),
    };
    let _ = registry().with(lines.with_filter(filter)).with(FilterFn::new(is_harmless)).try_init();
}

/// Whether lines of this kind can be written at any level. The HTTP libraries print headers and bytes when they trace,
/// so only what they warn about gets through.
fn is_harmless(metadata: &Metadata<'_>) -> bool {
    let library = metadata.target().split("::").next().unwrap_or_default();
    !matches!(library, "h2" | "hyper" | "hyper_util" | "tower") || *metadata.level() <= LevelFilter::WARN
}

/// Bounds of the buckets of durations, in seconds: from a cached prompt to a long answer.
const SECONDS: [f64; 16] =
    [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0];

/// Bounds of the buckets of sizes, in bytes.
const BYTES: [f64; 8] = [1e3, 1e4, 1e5, 1e6, 4e6, 1.6e7, 6.4e7, 2.56e8];

/// How often what histograms have gathered is moved into their buckets, so that it does not pile up unread.
const UPKEEP: Duration = Duration::from_secs(5);

/// The metrics of the process, for `/metrics`. The first call installs the recorder; where another one had been
/// installed before, that one gets all measurements and this page stays empty.
pub(crate) fn metrics() -> &'static PrometheusHandle {
    static HANDLE: OnceLock<PrometheusHandle> = OnceLock::new();
    HANDLE.get_or_init(|| {
        let buckets = |builder: PrometheusBuilder, suffix: &str, bounds: &[f64]| {
            // fails only for an empty list
            builder.set_buckets_for_metric(Matcher::Suffix(suffix.to_owned()), bounds)
        };
        let builder = buckets(PrometheusBuilder::new(), "_seconds", &SECONDS)
            .and_then(|builder| buckets(builder, "_bytes", &BYTES))
            .unwrap_or_default();
        let recorder = builder.build_recorder();
        let handle = recorder.handle();
        if metrics::set_global_recorder(recorder).is_err() {
            tracing::warn!("another metrics recorder is installed; /metrics will be empty");
        }
        describe();
        handle
    })
}

/// The help texts on the page.
fn describe() {
    use metrics::{Unit, describe_counter, describe_gauge, describe_histogram};
    describe_gauge!("disagg_requests_in_flight", "Requests whose response has not ended");
    describe_gauge!("disagg_buffered_bytes", "Bytes of requests and replies that are held");
    describe_gauge!("disagg_settlements_active", "Handoffs that are being finished without a client");
    describe_counter!("disagg_requests_total", "Requests that have ended, by outcome");
    describe_counter!("disagg_refused_requests_total", "Requests that were not let in, by reason");
    describe_counter!("disagg_context_retries_total", "Context legs that were tried again");
    describe_counter!("disagg_conversation_ids_total", "Handoffs looked at for a conversation, by result");
    describe_counter!("disagg_settlements_total", "Handoffs finished without a client, by result");
    describe_counter!("disagg_orphaned_handoffs_total", "Handoffs left on a context worker, by reason");
    describe_counter!(
        "disagg_generation_streams_total",
        "Streams of the generation worker, by how they ended"
    );
    describe_counter!(
        "disagg_id_mismatches_total",
        "Context replies that report another id than they were sent"
    );
    describe_counter!("disagg_auth_key_reloads_total", "Times the signing key was read again, by result");
    describe_counter!("disagg_uncleaned_replies_total", "Generation replies too large to be cleaned");
    describe_histogram!("disagg_context_leg_seconds", Unit::Seconds, "Context legs, until the whole reply");
    describe_histogram!("disagg_generation_head_seconds", Unit::Seconds, "Generation legs, until the head");
}

/// Keeps the histograms small. Never ends.
pub(crate) async fn upkeep() {
    let mut ticks = tokio::time::interval(UPKEEP);
    loop {
        ticks.tick().await;
        metrics().run_upkeep();
    }
}
