//! The sidecar: the layers of [`tower_disagg`] put together beside one generation worker of TensorRT-LLM.
//!
//! | | |
//! |---|---|
//! | [`Config`] | all settings: flags, environment, TOML file |
//! | [`stack`] | the assembled layers as a service, for a server of your own |
//! | [`Sidecar`] | listeners, probes, metrics and drain around the stack; what the binary runs |

mod admission;
mod allow;
mod auth;
mod client;
mod config;
mod engine;
mod ids;
mod passthrough;
mod pause;
mod retry;
mod server;
mod stack;
pub mod telemetry;
mod timed;

pub use self::{
    auth::AuthKeyFile,
    config::{
        AllowEntry, Config, ConfigError, EngineVersion, GenerationUrl, LogFilter, LogFormat, Passthrough,
        Switch,
    },
    server::{Handle, Outcome, Sidecar, Signals, StartError},
    stack::stack,
};
