//! A simulated `trtllm-serve` engine as a program.

use clap::{Parser, ValueEnum};
use std::io::Write as _;
use std::process::ExitCode;
use std::time::Duration;
use trtllm_sim::{Config, DEFAULT_TOKENS, Engine, Generation, Role};

/// A simulated TensorRT-LLM engine (`trtllm-serve`) on 127.0.0.1: validates as
/// strictly as the real one, answers deterministically, and hands KV over for
/// real. State at GET /sim/state, faults at POST and DELETE /sim/faults.
#[derive(Debug, Parser)]
#[command(version)]
struct Args {
    /// Which part of a disaggregated request it takes.
    #[arg(long, value_enum)]
    role: RoleArg,
    /// Port on 127.0.0.1; 0 takes a free one.
    #[arg(long, default_value_t = 0)]
    port: u16,
    /// The release it says it is; sets the generation of its schema.
    #[arg(long, default_value = "1.3.0rc24", value_parser = release)]
    release: String,
    /// The generation of the schema, whatever the release: g0, g1, g2-early, g2, g3, g4, g4n.
    #[arg(long, value_parser = generation)]
    generation: Option<Generation>,
    /// The model it lists.
    #[arg(long, default_value = "sim")]
    model: String,
    /// Natural length of an answer, in tokens.
    #[arg(long, default_value_t = DEFAULT_TOKENS)]
    tokens: usize,
    /// Time between two tokens, e.g. 20ms.
    #[arg(long, default_value = "0s", value_parser = humantime::parse_duration)]
    token_gap: Duration,
    /// Time to read one prompt token, e.g. 100us.
    #[arg(long, default_value = "0s", value_parser = humantime::parse_duration)]
    prefill_per_token: Duration,
    /// How long a KV transfer takes.
    #[arg(long, default_value = "0s", value_parser = humantime::parse_duration)]
    kv_transfer: Duration,
    /// How long KV is held for a generation worker that does not come.
    #[arg(long, default_value = "60s", value_parser = humantime::parse_duration)]
    transfer_timeout: Duration,
    /// How long an idle connection is kept.
    #[arg(long, default_value = "5s", value_parser = humantime::parse_duration)]
    keep_alive: Duration,
    /// Let several tokens share a write.
    #[arg(long)]
    coalesce: bool,
    /// Let every context step end the answer.
    #[arg(long)]
    eos_in_context: bool,
    /// Let every context step make the whole answer, where no limit cuts it (a real one makes one token).
    #[arg(long)]
    whole_in_context: bool,
    /// Send a stream's head before the KV is pulled.
    #[arg(long)]
    head_first: bool,
    /// Leave internal state out of non-streaming generation replies.
    #[arg(long)]
    no_internal_state: bool,
    /// Leave the opaque state out of context replies.
    #[arg(long)]
    no_opaque_state: bool,
    /// Least size of the opaque state, in bytes before encoding.
    #[arg(long, default_value_t = 96)]
    opaque_bytes: usize,
    /// Leave the endpoint out of context replies.
    #[arg(long)]
    no_info_endpoint: bool,
    /// How many attention-DP ranks it has.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1024))]
    ranks: u16,
    /// Keep the requests of a conversation on one rank (1.3.0rc21 and newer).
    #[arg(long)]
    conversation_affinity: bool,
    /// Key with which generation requests must be signed.
    #[arg(long, env = "TRTLLM_SIM_AUTH_KEY", hide_env_values = true)]
    auth_key: Option<String>,
    /// How many requests /sim/state remembers.
    #[arg(long, default_value_t = 4096)]
    remember: usize,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum RoleArg {
    Context,
    Generation,
    Both,
}

fn release(text: &str) -> Result<String, String> {
    Generation::of_release(text).map(|_| text.to_owned())
}

fn generation(text: &str) -> Result<Generation, String> {
    Generation::named(text).ok_or_else(|| format!("no generation {text:?}"))
}

impl Args {
    fn config(self) -> Config {
        let role = match self.role {
            RoleArg::Context => Role::Context,
            RoleArg::Generation => Role::Generation,
            RoleArg::Both => Role::Both,
        };
        let mut config = Config::new(role)
            .port(self.port)
            .release(self.release)
            .model(self.model)
            .tokens(self.tokens)
            .token_gap(self.token_gap)
            .prefill_per_token(self.prefill_per_token)
            .kv_transfer(self.kv_transfer)
            .transfer_timeout(self.transfer_timeout)
            .keep_alive(self.keep_alive)
            .coalesce(self.coalesce)
            .eos_in_context(self.eos_in_context)
            .whole_in_context(self.whole_in_context)
            .head_first(self.head_first)
            .internal_state(!self.no_internal_state)
            .opaque_state(!self.no_opaque_state)
            .opaque_bytes(self.opaque_bytes)
            .info_endpoint(!self.no_info_endpoint)
            .ranks(self.ranks.into())
            .conversation_affinity(self.conversation_affinity)
            .remember(self.remember);
        if let Some(generation) = self.generation {
            config = config.generation(generation);
        }
        if let Some(key) = self.auth_key {
            config = config.auth_key(key);
        }
        config
    }
}

#[tokio::main]
async fn main() -> ExitCode {
    // Bad flags end here, with the code 2.
    let config = Args::parse().config();
    match run(config).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("trtllm-sim: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn run(config: Config) -> std::io::Result<()> {
    let (role, release) = config.describe();
    // Before the line below, so that no signal sent after it is missed.
    let stop = stop_signal()?;
    let engine = Engine::start(config).await?;
    let mut out = std::io::stdout();
    writeln!(out, "trtllm-sim listening on {} role={role} release={release}", engine.hostport())?;
    out.flush()?;
    stop.await;
    engine.shutdown().await;
    Ok(())
}

#[cfg(unix)]
fn stop_signal() -> std::io::Result<impl Future<Output = ()>> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    })
}

#[cfg(not(unix))]
fn stop_signal() -> std::io::Result<impl Future<Output = ()>> {
    Ok(async {
        let _ = tokio::signal::ctrl_c().await;
    })
}
