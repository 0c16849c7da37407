//! Settings: flags, environment, file, defaults.

mod allow;
mod cli;
mod file;
mod value;

use std::{error::Error, ffi::OsString, fmt, path::Path};

use clap::{ArgMatches, Command, CommandFactory, FromArgMatches, error::ErrorKind};
use tower_disagg::trtllm::{Engine, KEEPS_CONVERSATIONS};

pub(crate) use self::allow::{Allowed, allowed, resolved};
pub use self::{
    allow::AllowEntry,
    cli::{Config, LogFormat, Passthrough, Switch},
    value::{EngineVersion, GenerationUrl, LogFilter},
};

/// Why the settings cannot be used, or what `--help` and `--version` print.
#[derive(Debug)]
pub struct ConfigError(clap::Error);

impl ConfigError {
    /// Prints it where it belongs and ends the process: with code 0 after `--help` and `--version`, else with 2.
    pub fn exit(&self) -> ! {
        self.0.exit()
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Error for ConfigError {}

impl From<clap::Error> for ConfigError {
    fn from(error: clap::Error) -> Self {
        Self(error)
    }
}

impl Config {
    /// The settings of this process: its arguments, its environment and the file that one of them names.
    ///
    /// # Errors
    ///
    /// Fails for unknown flags and keys and for bad values; the text names them and says what was expected.
    pub fn load() -> Result<Self, ConfigError> {
        read(Self::command(), std::env::args_os().collect())
    }

    /// The settings that these flags give, without the environment: for tests and for those who embed the sidecar.
    ///
    /// # Errors
    ///
    /// As [`load`](Self::load).
    ///
    /// ```
    /// let config = disagg_sidecar::Config::from_args(["--listen", "127.0.0.1:0", "--max-in-flight", "64"])?;
    /// assert_eq!(config.max_in_flight, 64);
    /// assert_eq!(config.max_request_bytes, 32 << 20);
    /// # Ok::<(), disagg_sidecar::ConfigError>(())
    /// ```
    pub fn from_args<I>(flags: I) -> Result<Self, ConfigError>
    where
        I: IntoIterator,
        I::Item: Into<OsString>,
    {
        let command = Self::command().mut_args(|arg| arg.env(None::<&str>));
        let program = OsString::from("disagg-sidecar");
        read(command, std::iter::once(program).chain(flags.into_iter().map(Into::into)).collect())
    }
}

fn read(command: Command, args: Vec<OsString>) -> Result<Config, ConfigError> {
    // the first pass refuses bad flags and finds the file; the second one has the file's values as defaults
    let matches = command.clone().try_get_matches_from(args.clone())?;
    let config = Config::from_arg_matches(&matches)?;
    let Some(path) = &config.config else { return check(command, config) };
    let (command, matches) = with_file(command, path, args)?;
    let config = Config::from_arg_matches(&matches)?;
    check(command, config)
}

fn with_file(
    mut command: Command,
    path: &Path,
    args: Vec<OsString>,
) -> Result<(Command, ArgMatches), ConfigError> {
    let bad = |command: &mut Command, why: String| {
        ConfigError(command.error(ErrorKind::InvalidValue, format!("--config {}: {why}", path.display())))
    };
    let text = std::fs::read_to_string(path).map_err(|error| bad(&mut command, error.to_string()))?;
    let mut filled = file::apply(command.clone(), &text).map_err(|why| bad(&mut command, why))?;
    match filled.try_get_matches_from_mut(args) {
        Ok(matches) => Ok((filled, matches)),
        Err(error) => {
            // flags and environment were good in the first pass
            let why = error.to_string();
            Err(bad(&mut command, why.trim_start_matches("error: ").trim_end().to_owned()))
        }
    }
}

/// What one flag asks of another. Not left to clap, for which a value from the file is a default.
fn check(mut command: Command, config: Config) -> Result<Config, ConfigError> {
    match identity(&config).or_else(|| conversations(&config)) {
        Some(problem) => Err(ConfigError(command.error(ErrorKind::ArgumentConflict, problem))),
        None => Ok(config),
    }
}

fn identity(config: &Config) -> Option<String> {
    let problem = match (config.node_id, config.process_id, config.machine_id) {
        (Some(_), None, _) => "--node-id needs --process-id",
        (None, Some(_), _) => "--process-id needs --node-id",
        (Some(_), Some(_), Some(_)) => {
            "--machine-id cannot be used with --node-id and --process-id: expected one identity"
        }
        _ => return None,
    };
    Some(problem.to_owned())
}

/// A release that is not pinned is asked for when the sidecar runs.
fn conversations(config: &Config) -> Option<String> {
    let EngineVersion::Pinned(release) = &config.engine_version else { return None };
    let able = Engine::Known(release.clone()).schema().keeps_conversations();
    (!config.conversation_from.is_empty() && !able).then(|| {
        format!(
            "--conversation-from needs engines of {KEEPS_CONVERSATIONS}, and --engine-version is {release}"
        )
    })
}

#[cfg(test)]
mod tests;
