use std::{borrow::Cow, error::Error, fmt};

use http::StatusCode;

use super::{BoxError, ErrorReply, report::Report};

/// A request that cannot be handed off, or not as it is. Made by [`ContractLayer`](crate::contract::ContractLayer),
/// before a worker was called.
#[derive(Debug)]
pub struct ContractError {
    kind: ContractErrorKind,
    report: Report,
}

/// What is wrong with a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ContractErrorKind {
    /// The routing header is empty, malformed, repeated or a list: the router's fault, so a 502.
    InvalidEppMetadata,
    /// The routing header names an endpoint that is not in the allow-list.
    EndpointNotAllowed,
    /// The name in the routing header cannot be resolved, and what it resolves to decides whether it may be called.
    EndpointUnresolved,
    /// The routing header came with a method or path that cannot be handed off.
    UnsupportedEndpoint,
    /// The body is not one JSON object, or a member has the wrong type or occurs twice.
    InvalidRequest,
    /// Well-formed, but no single handoff can serve it (several choices, beams, batches, echoed tokens).
    UnsupportedRequest,
    /// The client sent members that only a proxy or a worker may set.
    HandoffFieldsForbidden,
    /// The body is larger than the cap.
    RequestTooLarge,
    /// The body was not received in time.
    RequestTimeout,
    /// The body broke off.
    RequestIncomplete,
    /// No routing header, and requests without one are not served here.
    NotServed,
}

impl ContractErrorKind {
    fn parts(self) -> (StatusCode, &'static str, &'static str) {
        match self {
            Self::InvalidEppMetadata => (
                StatusCode::BAD_GATEWAY,
                "invalid_epp_metadata",
                "the routing header set by the endpoint picker is not exactly one host:port",
            ),
            Self::EndpointNotAllowed => (
                StatusCode::FORBIDDEN,
                "context_endpoint_not_allowed",
                "the context endpoint in the routing header is not in the allow-list",
            ),
            Self::EndpointUnresolved => (
                StatusCode::BAD_GATEWAY,
                "context_unreachable",
                "the name of the context endpoint cannot be resolved",
            ),
            Self::UnsupportedEndpoint => (
                StatusCode::NOT_IMPLEMENTED,
                "unsupported_endpoint",
                "only POST to /v1/chat/completions and /v1/completions can be handed off between workers",
            ),
            Self::InvalidRequest => (StatusCode::BAD_REQUEST, "invalid_request", "the request is not valid"),
            Self::UnsupportedRequest => (
                StatusCode::BAD_REQUEST,
                "unsupported_request",
                "the request cannot be handed off between workers",
            ),
            Self::HandoffFieldsForbidden => (
                StatusCode::BAD_REQUEST,
                "handoff_fields_forbidden",
                "the request has members that only the serving side may set",
            ),
            Self::RequestTooLarge => (
                StatusCode::PAYLOAD_TOO_LARGE,
                "request_too_large",
                "the request body is larger than the limit",
            ),
            Self::RequestTimeout => {
                (StatusCode::REQUEST_TIMEOUT, "request_timeout", "the request body was not received in time")
            }
            Self::RequestIncomplete => {
                (StatusCode::BAD_REQUEST, "invalid_request", "the request body ended before it was complete")
            }
            Self::NotServed => (
                StatusCode::NOT_FOUND,
                "not_found",
                "requests without a routing header from the endpoint picker are not served here",
            ),
        }
    }
}

impl ContractError {
    /// An error of this kind, with the text that belongs to it.
    pub fn new(kind: ContractErrorKind) -> Self {
        Self { kind, report: Report::default() }
    }

    /// Says more than the kind does. The text reaches the client.
    pub fn with_message(mut self, message: impl Into<Cow<'static, str>>) -> Self {
        self.report.message = Some(message.into());
        self
    }

    /// Names the member of the request that is at fault.
    pub fn with_param(mut self, param: impl Into<Cow<'static, str>>) -> Self {
        self.report.param = Some(param.into());
        self
    }

    /// Adds what caused it, for logs.
    pub fn with_source(mut self, source: impl Into<BoxError>) -> Self {
        self.report.source = Some(source.into());
        self
    }

    /// What is wrong.
    pub fn kind(&self) -> ContractErrorKind {
        self.kind
    }

    /// What the client is told.
    pub fn reply(&self) -> ErrorReply {
        let (status, code, _) = self.kind.parts();
        ErrorReply::new(status, code, self.to_string())
            .with_param(self.report.param.as_deref().map(str::to_owned))
    }
}

impl fmt::Display for ContractError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.report.text(self.kind.parts().2))
    }
}

impl Error for ContractError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.report.cause()
    }
}
