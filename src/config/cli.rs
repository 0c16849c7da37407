use std::{net::SocketAddr, path::PathBuf, time::Duration};

use clap::{
    ArgAction, Parser, ValueEnum,
    builder::{PathBufValueParser, TypedValueParser},
};

use tower_disagg::conversation::IdSource;

use super::{
    allow::AllowEntry,
    value::{EngineVersion, GenerationUrl, LogFilter, bytes, duration, positive_duration},
};
use crate::auth::AuthKeyFile;

/// Runs the context/generation handoff of TensorRT-LLM engines beside a generation worker.
///
/// Requests that an endpoint picker routed to a context worker (header x-prefiller-host-port) are handed off: prefilled
/// there, continued by the local generation worker. All others pass through to the local generation worker.
///
/// Every option can also be set by an environment variable, DISAGG_ and the option's name in capitals, or by a key of
/// the option's name in the TOML file given with --config. An option on the command line beats the environment, which
/// beats the file, which beats the default.
#[derive(Debug, Clone, Parser)]
#[command(name = "disagg-sidecar", version, max_term_width = 100, disable_help_subcommand = true)]
#[non_exhaustive]
pub struct Config {
    /// TOML file with settings
    #[arg(long, value_name = "FILE", env = "DISAGG_CONFIG")]
    pub config: Option<PathBuf>,

    /// Data port: OpenAI requests, GET /health, GET /ready
    #[arg(long, value_name = "ADDR", env = "DISAGG_LISTEN", help_heading = LISTENERS)]
    #[arg(default_value = "0.0.0.0:8000")]
    pub listen: SocketAddr,

    /// Admin port: /livez, /readyz, /metrics, POST /drain
    #[arg(long, value_name = "ADDR", env = "DISAGG_ADMIN_LISTEN", help_heading = LISTENERS)]
    #[arg(default_value = "0.0.0.0:9090")]
    pub admin_listen: SocketAddr,

    /// The local generation worker
    #[arg(long, value_name = "URL", env = "DISAGG_GENERATION_URL", help_heading = WORKERS)]
    #[arg(default_value = "http://127.0.0.1:8001")]
    pub generation_url: GenerationUrl,

    /// Release of all workers, such as 1.3.0rc24; "auto" asks each worker
    #[arg(long, value_name = "RELEASE", env = "DISAGG_ENGINE_VERSION", help_heading = WORKERS)]
    #[arg(default_value = "auto")]
    pub engine_version: EngineVersion,

    /// Context endpoints that may be called: host:port, *.suffix:port, NETWORK/LEN:port or :port-port (repeatable)
    ///
    /// A name has to be listed as a name. Networks are for literal addresses, and bound where a listed name may lead:
    /// where there is one for its port, the name is resolved, within the connect timeout, and called at nothing but those
    /// of its addresses that are inside. Unset: any endpoint.
    #[arg(long, value_name = "ENTRY", env = "DISAGG_ALLOW_CONTEXT", help_heading = WORKERS)]
    #[arg(action = ArgAction::Append, value_delimiter = ',')]
    pub allow_context: Vec<AllowEntry>,

    /// File with the workers' internal_request_auth_key: generation requests are signed with it
    ///
    /// All of it is the key (UTF-8, at most 64 KiB), save one line end at the end. It is read again on SIGHUP and when it
    /// changes, which is noticed within seconds; a file that cannot be used any more leaves the last key in use. Unset:
    /// requests are not signed.
    #[arg(long, value_name = "FILE", env = "DISAGG_AUTH_KEY_FILE", help_heading = WORKERS)]
    #[arg(value_parser = PathBufValueParser::new().try_map(AuthKeyFile::read))]
    pub auth_key_file: Option<AuthKeyFile>,

    /// Requests without a routing header: "guarded" refuses handoff fields in POST bodies, "off" answers 404
    ///
    /// "verbatim" looks at no body: clients can then send the worker handoff fields of their own, which it obeys. Use it
    /// only where none but trusted clients reach the data port, and give the worker an internal_request_auth_key.
    #[arg(long, value_name = "MODE", env = "DISAGG_PASSTHROUGH", help_heading = WORKERS)]
    #[arg(value_enum, default_value = "guarded")]
    pub passthrough: Passthrough,

    /// Identity of this process in request ids, 0-255; needs --process-id. Unset: random ids
    ///
    /// No one else who hands requests off to the same workers may have the same identity.
    #[arg(long, value_name = "N", env = "DISAGG_NODE_ID", help_heading = IDS)]
    #[arg(value_parser = clap::value_parser!(u8))]
    pub node_id: Option<u8>,

    /// Identity of this process within its node, 0-63; needs --node-id
    #[arg(long, value_name = "N", env = "DISAGG_PROCESS_ID", help_heading = IDS)]
    #[arg(value_parser = clap::value_parser!(u8).range(0..=63))]
    pub process_id: Option<u8>,

    /// Identity of this process as one number, 0-1020, in place of the two above
    ///
    /// Ids are laid out as the release of the generation worker lays them out: it is the machine id before 1.3.0rc22,
    /// and later node and process in one. Until the release is known, as the newest.
    #[arg(long, value_name = "N", env = "DISAGG_MACHINE_ID", help_heading = IDS)]
    #[arg(value_parser = clap::value_parser!(u16).range(0..=1020))]
    pub machine_id: Option<u16>,

    /// Largest request body
    #[arg(long, value_name = "SIZE", env = "DISAGG_MAX_REQUEST_BYTES", help_heading = LIMITS)]
    #[arg(value_parser = bytes, default_value = "32MiB")]
    pub max_request_bytes: u64,

    /// Largest context reply, and largest non-streaming generation reply that is held to be cleaned
    #[arg(long, value_name = "SIZE", env = "DISAGG_MAX_REPLY_BYTES", help_heading = LIMITS)]
    #[arg(value_parser = bytes, default_value = "64MiB")]
    pub max_reply_bytes: u64,

    /// All requests and replies that are held at a time, together
    #[arg(long, value_name = "SIZE", env = "DISAGG_MAX_BUFFERED_BYTES", help_heading = LIMITS)]
    #[arg(value_parser = bytes, default_value = "1GiB")]
    pub max_buffered_bytes: u64,

    /// Requests at a time, each counted until its response has ended
    #[arg(long, value_name = "N", env = "DISAGG_MAX_IN_FLIGHT", help_heading = LIMITS)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..), default_value = "4096")]
    pub max_in_flight: u32,

    /// How long a client may take to send its request body
    #[arg(long, value_name = "TIME", env = "DISAGG_REQUEST_BODY_TIMEOUT", help_heading = TIMES)]
    #[arg(value_parser = positive_duration, default_value = "30s")]
    pub request_body_timeout: Duration,

    /// How long a connection to a worker may take
    #[arg(long, value_name = "TIME", env = "DISAGG_CONNECT_TIMEOUT", help_heading = TIMES)]
    #[arg(value_parser = positive_duration, default_value = "5s")]
    pub connect_timeout: Duration,

    /// The whole context leg, reply included
    #[arg(long, value_name = "TIME", env = "DISAGG_CONTEXT_TIMEOUT", help_heading = TIMES)]
    #[arg(value_parser = positive_duration, default_value = "180s")]
    pub context_timeout: Duration,

    /// Until the generation worker begins to answer
    #[arg(long, value_name = "TIME", env = "DISAGG_GENERATION_HEAD_TIMEOUT", help_heading = TIMES)]
    #[arg(value_parser = positive_duration, default_value = "180s")]
    pub generation_head_timeout: Duration,

    /// Longest pause of the generation worker inside a reply, and of a client that takes nothing of one
    #[arg(long, value_name = "TIME", env = "DISAGG_GENERATION_IDLE_TIMEOUT", help_heading = TIMES)]
    #[arg(value_parser = positive_duration, default_value = "300s")]
    pub generation_idle_timeout: Duration,

    /// Attempts after a first one whose connection failed before any byte of a reply; each has a fresh id
    #[arg(long, value_name = "N", env = "DISAGG_CONTEXT_RETRIES", help_heading = HANDOFF)]
    #[arg(value_parser = clap::value_parser!(u32).range(0..=100), default_value = "1")]
    pub context_retries: u32,

    /// Finish a handoff whose client has left, so that the context worker gets its memory back
    #[arg(long, value_name = "on|off", env = "DISAGG_SETTLE", help_heading = HANDOFF)]
    #[arg(value_enum, default_value = "on", hide_possible_values = true)]
    pub settle: Switch,

    /// How long that may take
    #[arg(long, value_name = "TIME", env = "DISAGG_SETTLE_TIMEOUT", help_heading = HANDOFF)]
    #[arg(value_parser = positive_duration, default_value = "30s")]
    pub settle_timeout: Duration,

    /// Where a request says which conversation it belongs to: header:NAME or body:/POINTER (repeatable, first one wins)
    ///
    /// The id goes to both workers in x-session-id, so that they can keep the turns of a conversation on one rank. Needs
    /// engines of 1.3.0rc21 and newer. Unset: both get the client's headers as they are.
    #[arg(long, value_name = "SOURCE", env = "DISAGG_CONVERSATION_FROM", help_heading = HANDOFF)]
    #[arg(action = ArgAction::Append, value_delimiter = ',')]
    pub conversation_from: Vec<IdSource>,

    /// After SIGTERM, SIGINT or POST /drain: how long requests in flight may take to finish
    #[arg(long, value_name = "TIME", env = "DISAGG_DRAIN_TIMEOUT", help_heading = SHUTDOWN)]
    #[arg(value_parser = duration, default_value = "30s")]
    pub drain_timeout: Duration,

    /// Before that: how long new requests are served although readiness is withdrawn
    #[arg(long, value_name = "TIME", env = "DISAGG_DRAIN_GRACE", help_heading = SHUTDOWN)]
    #[arg(value_parser = duration, default_value = "0s")]
    pub drain_grace: Duration,

    /// "text" or "json". Unset: text on a terminal, else json
    #[arg(long, value_name = "FORMAT", env = "DISAGG_LOG_FORMAT", help_heading = LOGS)]
    #[arg(value_enum, hide_possible_values = true)]
    pub log_format: Option<LogFormat>,

    /// What is logged: a level, or a list of target=level
    #[arg(long, value_name = "FILTER", env = "DISAGG_LOG", help_heading = LOGS)]
    #[arg(default_value = "info")]
    pub log: LogFilter,
}

const LISTENERS: &str = "Listeners";
const WORKERS: &str = "Workers";
const IDS: &str = "Request ids";
const LIMITS: &str = "Limits (sizes such as 512KiB, 32MiB, 1GiB)";
const TIMES: &str = "Times (such as 500ms, 30s, 2m)";
const HANDOFF: &str = "Handoff";
const SHUTDOWN: &str = "Shutdown";
const LOGS: &str = "Logs";

/// What is done with requests that have no routing header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
#[non_exhaustive]
pub enum Passthrough {
    /// POST bodies are read, checked for handoff fields, and sent on unchanged.
    Guarded,
    /// Sent on as they come.
    Verbatim,
    /// Answered with 404.
    Off,
}

/// A setting that is on or off.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Switch {
    /// It is done.
    On,
    /// It is not.
    Off,
}

/// How log lines are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
#[non_exhaustive]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}
