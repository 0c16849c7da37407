use std::fmt;

use http::{
    HeaderMap, Response, StatusCode, Version,
    header::{CONTENT_LENGTH, TRANSFER_ENCODING},
};
use hyper::ext::ReasonPhrase;
use tower_disagg::leg::{LegError, LegErrorKind};

/// A reply that hyper lets through, but whose length or meaning two readers could see differently.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OddReply {
    /// Both a length and chunks.
    TwoLengths,
    /// A transfer coding other than `chunked` alone.
    Coding,
    /// It leaves HTTP.
    Upgrade,
}

/// Refuses odd replies; what is left is an HTTP/1.1 message, whatever version the worker wrote.
pub(super) fn check<B>(mut reply: Response<B>) -> Result<Response<B>, LegError> {
    if let Some(odd) = oddity(reply.status(), reply.headers()) {
        return Err(LegError::new(LegErrorKind::Interrupted).with_source(odd));
    }
    *reply.version_mut() = Version::HTTP_11;
    // a worker's own text, which a server would write into its status line
    reply.extensions_mut().remove::<ReasonPhrase>();
    Ok(reply)
}

fn oddity(status: StatusCode, headers: &HeaderMap) -> Option<OddReply> {
    if status == StatusCode::SWITCHING_PROTOCOLS {
        return Some(OddReply::Upgrade);
    }
    let mut codings = headers.get_all(TRANSFER_ENCODING).iter();
    let coding = codings.next()?;
    if codings.next().is_some() || !coding.as_bytes().eq_ignore_ascii_case(b"chunked") {
        return Some(OddReply::Coding);
    }
    headers.contains_key(CONTENT_LENGTH).then_some(OddReply::TwoLengths)
}

impl fmt::Display for OddReply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TwoLengths => "the reply has both content-length and transfer-encoding",
            Self::Coding => "the reply has a transfer-encoding other than chunked",
            Self::Upgrade => "the reply switches protocols",
        })
    }
}

impl std::error::Error for OddReply {}
