use std::{error::Error, fmt};

use crate::json::JsonError;

/// Why a context worker's reply cannot be handed on.
///
/// The text names the field and what is wrong with it, as in "`choices` is empty", and quotes nothing of the reply. It
/// is meant to stand behind a text that says what was being read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplyError {
    kind: ReplyErrorKind,
    field: &'static str,
    reason: &'static str,
    source: Option<JsonError>,
    may_hold_cache: bool,
}

/// What went wrong at the context worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReplyErrorKind {
    /// The reply is no usable handoff and no finished answer (`invalid_context_reply`).
    NotUsable,
    /// The context worker gave the request up (`context_aborted`).
    Aborted,
}

impl ReplyError {
    pub(super) fn not_usable(field: &'static str, reason: &'static str) -> Self {
        Self { kind: ReplyErrorKind::NotUsable, field, reason, source: None, may_hold_cache: true }
    }

    pub(super) fn json(field: &'static str, reason: &'static str, source: JsonError) -> Self {
        Self { source: Some(source), ..Self::not_usable(field, reason) }
    }

    pub(super) fn aborted(field: &'static str, reason: &'static str) -> Self {
        Self { kind: ReplyErrorKind::Aborted, ..Self::not_usable(field, reason) }
    }

    pub(super) fn with_cache(self, may_hold_cache: bool) -> Self {
        Self { may_hold_cache, ..self }
    }

    /// What kind of failure it is.
    pub fn kind(&self) -> ReplyErrorKind {
        self.kind
    }

    /// Whether the context worker may hold a KV cache for the request all the same, which nobody will collect.
    ///
    /// It may whenever a reply is not understood. A request that it gave up holds nothing, unless its reply names the
    /// id of a handoff: then the reason was perhaps one that is not known yet.
    pub fn may_hold_cache(&self) -> bool {
        self.may_hold_cache
    }

    /// The path of the field at fault, such as `choices[0].finish_reason`; empty when it is the reply as a whole.
    pub fn field(&self) -> &str {
        self.field
    }

    /// What is wrong with the field, to be read after its name.
    pub fn reason(&self) -> &str {
        self.reason
    }
}

impl fmt::Display for ReplyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.field {
            "" => f.write_str("the body")?,
            field => write!(f, "`{field}`")?,
        }
        write!(f, " {}", self.reason)?;
        match &self.source {
            Some(source) => write!(f, " ({source})"),
            None => Ok(()),
        }
    }
}

impl Error for ReplyError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_ref().map(|source| source as _)
    }
}
