use std::{borrow::Cow, error::Error};

use http::HeaderValue;

use super::BoxError;

/// What every error of ours carries beside its kind.
#[derive(Debug, Default)]
pub(super) struct Report {
    /// Says more than the kind alone; shown to the client.
    pub(super) message: Option<Cow<'static, str>>,
    /// The member of the request that is at fault.
    pub(super) param: Option<Cow<'static, str>>,
    /// When to come back, in a worker's own words.
    pub(super) retry_after: Option<HeaderValue>,
    pub(super) source: Option<BoxError>,
}

impl Report {
    pub(super) fn text(&self, or: &'static str) -> String {
        self.message.as_deref().unwrap_or(or).to_owned()
    }

    pub(super) fn cause(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_deref().map(|source| source as _)
    }
}
