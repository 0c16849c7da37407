//! Releases of `trtllm-serve`, as `GET /version` names them.

use std::{cmp::Ordering, fmt, sync::Arc};

use bytes::Bytes;

use super::schema::Schema;
use crate::json::Object;

/// The releases a handoff works with, for error texts (contract, section 2: older ones have no global request id).
pub const SUPPORTED: &str = "1.3.0rc3 and newer";

/// The releases that keep the turns of a conversation together, for error texts (contract, section 9).
pub const KEEPS_CONVERSATIONS: &str = "1.3.0rc21 and newer";

/// The most of a version text that is kept, in bytes.
const MAX_TEXT: usize = 64;

/// A release such as `1.3.0rc24` or `1.3.0rc22.post1`, or a text that names none that can be read.
///
/// `Display` gives the text back, cut to 64 bytes and with anything but visible ASCII replaced, so that it can be
/// logged. Comparing reads the number: a release candidate is before the final release, a post release after what it
/// amends, a development build before what it leads to; a local label (`+cu13`) does not count. A text that cannot be
/// read is equal to the same text only, and neither before nor after anything.
#[derive(Debug, Clone)]
pub struct Release {
    text: Arc<str>,
    number: Option<Number>,
}

impl Release {
    /// Reads a version text; one that is not understood is kept as unknown.
    pub fn parse(text: &str) -> Self {
        let text = text.trim();
        let number = if text.len() <= MAX_TEXT { Number::parse(text) } else { None };
        let visible = |c: char| if c.is_ascii_graphic() { c } else { '?' };
        let mut kept: String = text.chars().take(MAX_TEXT).map(visible).collect();
        if kept.is_empty() {
            kept.push('?');
        }
        Self { text: kept.into(), number }
    }

    /// Reads the reply to `GET /version`: `{"version":"1.3.0rc24"}`.
    ///
    /// `None` when it is not such an object; a version that is not understood is still a release.
    pub fn from_version_reply(body: &[u8]) -> Option<Self> {
        let object = Object::parse(Bytes::copy_from_slice(body)).ok()?;
        let text = object.last("version")?.as_text()?;
        (!text.trim().is_empty()).then(|| Self::parse(&text))
    }

    /// Whether the text could be read as a release number.
    pub fn is_recognised(&self) -> bool {
        self.number.is_some()
    }

    pub(super) fn number(&self) -> Option<Number> {
        self.number
    }
}

impl fmt::Display for Release {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl PartialEq for Release {
    fn eq(&self, other: &Self) -> bool {
        match (self.number, other.number) {
            (Some(one), Some(two)) => one == two,
            (None, None) => self.text == other.text,
            _ => false,
        }
    }
}

impl Eq for Release {}

impl PartialOrd for Release {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        match (self.number, other.number) {
            (Some(one), Some(two)) => Some(one.cmp(&two)),
            _ => (self == other).then_some(Ordering::Equal),
        }
    }
}

/// What is known of a worker.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Engine {
    /// Nothing: it has not answered `GET /version` yet, or has no such path.
    #[default]
    Unknown,
    /// It named a release, or an operator did.
    Known(Release),
}

impl Engine {
    /// What a worker of this release knows.
    pub fn schema(&self) -> Schema {
        match self.number() {
            Some(number) => Schema::of(number),
            None => Schema::UNKNOWN,
        }
    }

    /// Whether a handoff with it can work, see [`SUPPORTED`]; an unknown release has the benefit of the doubt.
    pub fn is_supported(&self) -> bool {
        self.schema().is_supported()
    }

    /// Whether it is newer than any release whose schema has been read. It is treated as the newest one that has, and
    /// the operator should be told once.
    pub fn is_newer_than_known(&self) -> bool {
        self.number().is_some_and(super::schema::is_newer_than_known)
    }

    /// The release, when one was named.
    pub fn release(&self) -> Option<&Release> {
        match self {
            Self::Unknown => None,
            Self::Known(release) => Some(release),
        }
    }

    fn number(&self) -> Option<Number> {
        self.release().and_then(Release::number)
    }
}

impl fmt::Display for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown => f.write_str("unknown"),
            Self::Known(release) => release.fmt(f),
        }
    }
}

/// A release number; the order of the fields is the order of comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Number {
    release: [u32; 3],
    stage: Stage,
    stage_number: u32,
    /// `None` is before `Some`, as it should be.
    post: Option<u32>,
    /// A development build is before what it leads to, so "none" has to be the largest.
    development: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    Development,
    Alpha,
    Beta,
    Candidate,
    Final,
}

impl Number {
    const NO_DEVELOPMENT: u32 = u32::MAX;

    /// A final release.
    pub(super) const fn new(major: u32, minor: u32, patch: u32) -> Self {
        let release = [major, minor, patch];
        Self { release, stage: Stage::Final, stage_number: 0, post: None, development: Self::NO_DEVELOPMENT }
    }

    /// A release candidate of this release.
    pub(super) const fn rc(self, number: u32) -> Self {
        Self { stage: Stage::Candidate, stage_number: number, ..self }
    }

    /// What a release has in common with more candidates of it, or with what amends it.
    pub(super) fn line(self) -> impl Ord {
        (self.release, self.stage)
    }

    /// Python's version syntax (PEP 440), as far as it is used for packages on an index.
    fn parse(text: &str) -> Option<Self> {
        let text = text.to_ascii_lowercase();
        let text = text.strip_prefix('v').unwrap_or(&text);
        // What follows a plus names a build, not other code.
        let mut text = Cursor(text.split('+').next().unwrap_or_default());
        let mut number = Self::new(text.number()?, 0, 0);
        for part in &mut number.release[1..] {
            let Some(rest) =
                text.0.strip_prefix('.').filter(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
            else {
                break;
            };
            text = Cursor(rest);
            *part = text.number()?;
        }
        const STAGES: [(&str, Stage); 6] = [
            ("rc", Stage::Candidate),
            ("c", Stage::Candidate),
            ("alpha", Stage::Alpha),
            ("a", Stage::Alpha),
            ("beta", Stage::Beta),
            ("b", Stage::Beta),
        ];
        for (word, stage) in STAGES {
            if let Some(stage_number) = text.word(word) {
                (number.stage, number.stage_number) = (stage, stage_number?);
                break;
            }
        }
        if let Some(post) = text.word("post") {
            number.post = Some(post?);
        }
        if let Some(development) = text.word("dev") {
            number.development = development?;
            if number.stage == Stage::Final && number.post.is_none() {
                number.stage = Stage::Development;
            }
        }
        text.0.is_empty().then_some(number)
    }
}

struct Cursor<'a>(&'a str);

impl Cursor<'_> {
    fn number(&mut self) -> Option<u32> {
        let end = self.0.find(|c: char| !c.is_ascii_digit()).unwrap_or(self.0.len());
        let (digits, rest) = self.0.split_at(end);
        self.0 = rest;
        // Nine digits fit, and leave the largest value free.
        if digits.len() > 9 { None } else { digits.parse().ok() }
    }

    /// A word with the number behind it (0 when there is none); `None` when another text is here.
    fn word(&mut self, word: &str) -> Option<Option<u32>> {
        let separator = ['.', '-', '_'];
        let rest = self.0.strip_prefix(separator).unwrap_or(self.0).strip_prefix(word)?;
        let digits = rest.strip_prefix(separator).unwrap_or(rest);
        if digits.starts_with(|c: char| c.is_ascii_digit()) {
            self.0 = digits;
            Some(self.number())
        } else {
            self.0 = rest;
            Some(Some(0))
        }
    }
}

#[cfg(test)]
mod tests;
