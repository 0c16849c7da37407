use bytes::Bytes;
use http::{Method, header::CONTENT_TYPE, request::Parts};
use http_body_util::LengthLimitError;

use super::layer::Rules;
use crate::{
    buffer::CollectError,
    error::{AdmissionError, AdmissionErrorKind, BoxError, ContractError, ContractErrorKind, find},
    handoff::{Handoff, Validated},
    trtllm::{
        ClientRequest, ContextEndpoint, Endpoint, ROUTING_HEADER, RequestError, RequestErrorKind,
        check_passthrough, context_endpoint,
    },
};

/// Where a request goes.
#[derive(Debug)]
pub(super) enum Route {
    /// From the context worker to the generation worker, once its body is found valid.
    Handoff(Endpoint, ContextEndpoint),
    /// On unchanged, once its body is found free of handoff fields.
    Check,
    /// On unchanged.
    Pass,
}

/// Decides by the head alone (contract, section 1); nothing has been read of the body yet.
pub(super) fn route(parts: &Parts, rules: &Rules) -> Result<Route, ContractError> {
    let context = context_endpoint(&parts.headers).map_err(|error| {
        ContractError::new(ContractErrorKind::InvalidEppMetadata)
            .with_message(format!(
                "the header `{ROUTING_HEADER}` set by the endpoint picker is not usable: {error}"
            ))
            .with_source(error)
    })?;
    let Some(context) = context else {
        let check = rules.guard && parts.method == Method::POST;
        return Ok(if check { Route::Check } else { Route::Pass });
    };
    if !(rules.allow)(&context) {
        return Err(ContractError::new(ContractErrorKind::EndpointNotAllowed));
    }
    match Endpoint::from_path(parts.uri.path()).filter(|_| parts.method == Method::POST) {
        Some(endpoint) => Ok(Route::Handoff(endpoint, context)),
        None => Err(ContractError::new(ContractErrorKind::UnsupportedEndpoint)),
    }
}

/// The handoff that a request asks for.
pub(super) fn validate(
    endpoint: Endpoint,
    context: ContextEndpoint,
    body: Bytes,
) -> Result<Handoff<Validated>, ContractError> {
    let request = ClientRequest::parse(endpoint, body).map_err(invalid)?;
    Ok(Handoff::validated(request, context))
}

/// Whether a request may go on without a handoff.
pub(super) fn check(parts: &Parts, body: &Bytes) -> Result<(), ContractError> {
    let mut types = parts.headers.get_all(CONTENT_TYPE).iter();
    // Which of several counts is anybody's guess, so none is relied on.
    let only = types.next().filter(|_| types.next().is_none());
    check_passthrough(only, body).map_err(invalid)
}

fn invalid(error: RequestError) -> ContractError {
    let kind = match error.kind() {
        RequestErrorKind::Unsupported => ContractErrorKind::UnsupportedRequest,
        RequestErrorKind::HandoffFields => ContractErrorKind::HandoffFieldsForbidden,
        _ => ContractErrorKind::InvalidRequest,
    };
    let param = error.field().map(str::to_owned);
    let failed = ContractError::new(kind).with_message(error.to_string()).with_source(error);
    match param {
        Some(param) => failed.with_param(param),
        None => failed,
    }
}

/// Why a body of at most `limit` bytes could not be read.
pub(super) fn unread(error: CollectError, limit: u64) -> BoxError {
    match error {
        CollectError::TooLarge => ContractError::new(ContractErrorKind::RequestTooLarge)
            .with_message(format!("the request body is larger than the limit of {limit} bytes"))
            .into(),
        CollectError::Overloaded => AdmissionError::new(AdmissionErrorKind::Overloaded)
            .with_message("the proxy has no room to hold the request; try again later")
            .into(),
        CollectError::Body(_) => {
            // What tower-http's request body limit makes of a body, above or below this layer.
            let limited = find::<LengthLimitError>(&error).is_some();
            let kind = if limited {
                ContractErrorKind::RequestTooLarge
            } else {
                ContractErrorKind::RequestIncomplete
            };
            ContractError::new(kind).with_source(error).into()
        }
    }
}
