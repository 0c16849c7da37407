//! The sidecar.

mod client;
mod config;

pub use self::config::{AllowEntry, Config, ConfigError, EngineVersion, GenerationUrl, LogFilter, LogFormat, Passthrough, Switch};
