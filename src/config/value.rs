//! How single values are written.

use std::{fmt, str::FromStr, time::Duration};

use http::Uri;
use tower_disagg::trtllm::{Engine, Release, SUPPORTED};
use tracing_subscriber::{EnvFilter, filter::LevelFilter};

/// The longest time that can be set: 365 days. Longer ones are taken for mistakes, and could not be added to a clock.
const LONGEST: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// A time, zero included.
pub(super) fn duration(text: &str) -> Result<Duration, String> {
    let expected = || "expected a time such as 500ms, 30s or 2m".to_owned();
    let time = humantime::parse_duration(text).map_err(|_| expected())?;
    if time > LONGEST { Err("expected a time of at most 365d".to_owned()) } else { Ok(time) }
}

/// A time above zero.
pub(super) fn positive_duration(text: &str) -> Result<Duration, String> {
    match duration(text)? {
        Duration::ZERO => Err("expected a time above zero, such as 500ms or 30s".to_owned()),
        time => Ok(time),
    }
}

/// A number of bytes above zero; all units are binary.
pub(super) fn bytes(text: &str) -> Result<u64, String> {
    let parser = parse_size::Config::new().with_binary();
    match parser.parse_size(text) {
        Ok(size) if size > 0 => Ok(size),
        Ok(_) => Err("expected a size above zero, such as 512KiB or 32MiB".to_owned()),
        Err(_) => Err("expected a size such as 512KiB, 32MiB or 1GiB".to_owned()),
    }
}

/// Where the local generation worker listens: `http://host:port`, nothing else.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GenerationUrl(Uri);

impl GenerationUrl {
    /// The scheme and authority, with the path `/`.
    pub fn uri(&self) -> &Uri {
        &self.0
    }
}

impl FromStr for GenerationUrl {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let expected = |why: &str| format!("expected http://host:port ({why})");
        let uri: Uri = text.parse().map_err(|_| expected("this is no URL"))?;
        if uri.scheme_str() != Some("http") {
            return Err(expected("the scheme must be http"));
        }
        let authority = uri.authority().filter(|authority| !authority.host().is_empty());
        let authority = authority.ok_or_else(|| expected("there is no host"))?;
        if authority.as_str().contains('@') {
            return Err(expected("user names are not supported"));
        }
        // `Authority` lets ports through that are no numbers
        let port = authority.as_str().strip_prefix(authority.host()).unwrap_or_default();
        if !port.is_empty() && authority.port_u16().is_none_or(|port| port == 0) {
            return Err(expected("the port must be 1-65535"));
        }
        if !matches!(uri.path(), "" | "/") || uri.query().is_some() {
            return Err(expected("without a path or query"));
        }
        Ok(Self(uri))
    }
}

impl fmt::Display for GenerationUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Which release the workers have.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum EngineVersion {
    /// Each worker is asked.
    Auto,
    /// All have this one; nobody is asked.
    Pinned(Release),
}

impl FromStr for EngineVersion {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "auto" {
            return Ok(Self::Auto);
        }
        let release = Release::parse(text);
        if !release.is_recognised() {
            return Err("expected auto, or a release such as 1.3.0rc24".to_owned());
        }
        if !Engine::Known(release.clone()).is_supported() {
            return Err(format!("this release is not supported: expected {SUPPORTED}"));
        }
        Ok(Self::Pinned(release))
    }
}

/// What is logged, in the syntax of [`EnvFilter`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogFilter(String);

impl LogFilter {
    /// The filter as it was written.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for LogFilter {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        // a word alone that is no level would be taken for a target, and silence all others
        let mut parts = text.split(',').filter(|part| !part.is_empty());
        let sound = parts.all(|part| part.contains(['=', '[']) || part.parse::<LevelFilter>().is_ok());
        match EnvFilter::try_new(text) {
            Ok(_) if sound && !text.trim().is_empty() => Ok(Self(text.to_owned())),
            _ => Err("expected off, error, warn, info, debug or trace, or a list of target=level".to_owned()),
        }
    }
}
