//! When a response is over without saying so.

use http::{HeaderMap, Method, StatusCode, header::CONTENT_LENGTH};
use http_body::SizeHint;

/// How many bytes of a response are still to be handed out, as far as its head tells.
#[derive(Debug, Default)]
pub(super) struct Length {
    /// From `content-length`.
    left: Option<u64>,
}

impl Length {
    /// What a server will send of this response.
    pub(super) fn of(bodiless: bool, status: StatusCode, headers: &HeaderMap) -> Self {
        if bodiless || has_no_body(status) {
            return Self { left: Some(0) };
        }
        let header = headers.get(CONTENT_LENGTH);
        Self { left: header.and_then(|value| value.to_str().ok()).and_then(|value| value.parse().ok()) }
    }

    /// This many bytes were handed out.
    pub(super) fn sent(&mut self, bytes: u64) {
        self.left = self.left.map(|left| left.saturating_sub(bytes));
    }

    /// Whether a server asks for no more, given what the body says of itself.
    pub(super) fn is_met(&self, end_stream: bool, hint: &SizeHint) -> bool {
        end_stream || self.left == Some(0) || hint.exact() == Some(0)
    }
}

/// Whether a request of this method is answered without a body (RFC 9110, section 9.3.2).
pub(super) fn is_bodiless(method: &Method) -> bool {
    method == Method::HEAD
}

/// Whether a response of this status has no body (RFC 9110, section 6.4.1).
fn has_no_body(status: StatusCode) -> bool {
    status.is_informational() || status == StatusCode::NO_CONTENT || status == StatusCode::NOT_MODIFIED
}
