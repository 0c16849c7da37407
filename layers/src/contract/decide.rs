use std::{fmt, future::Future, pin::Pin};

use bytes::Bytes;
use http::{Method, header::CONTENT_TYPE, request::Parts};
use http_body_util::LengthLimitError;

use super::{Allowance, LookUp, layer::Rules};
use crate::{
    buffer::CollectError,
    error::{AdmissionError, AdmissionErrorKind, BoxError, ContractError, ContractErrorKind, find},
    handoff::{Handoff, Validated},
    leg::CheckedAddresses,
    trtllm::{
        ClientRequest, ContextEndpoint, Endpoint, ROUTING_HEADER, RequestError, RequestErrorKind,
        check_passthrough, context_endpoint,
    },
};

/// Where a request goes.
#[derive(Debug)]
pub(super) enum Route {
    /// From the context worker to the generation worker, once its body is found valid.
    Handoff(Chosen),
    /// The same, once the context worker is found to be allowed.
    Ask(Chosen, Question),
    /// On unchanged, once its body is found free of handoff fields.
    Check,
    /// On unchanged.
    Pass,
}

/// What the head of a request says about its handoff.
#[derive(Debug)]
pub(super) struct Chosen {
    pub(super) endpoint: Endpoint,
    pub(super) context: ContextEndpoint,
    /// Where alone the context worker may be dialled.
    pub(super) addresses: Option<CheckedAddresses>,
}

/// Whether a context worker may be called, where that has to be found out.
pub(super) struct Question(pub(super) Pin<Box<dyn Future<Output = LookUp> + Send>>);

impl fmt::Debug for Question {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Question")
    }
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
        // methods are case-sensitive, but not every server takes them so
        let check = rules.guard && parts.method.as_str().eq_ignore_ascii_case(Method::POST.as_str());
        return Ok(if check { Route::Check } else { Route::Pass });
    };
    let question = match rules.allow.allow(&context) {
        Allowance::Allowed => None,
        Allowance::Refused => return Err(ContractError::new(ContractErrorKind::EndpointNotAllowed)),
        Allowance::Pending(question) => Some(Question(question)),
    };
    let endpoint = Endpoint::from_path(parts.uri.path()).filter(|_| parts.method == Method::POST);
    let endpoint = endpoint.ok_or_else(|| ContractError::new(ContractErrorKind::UnsupportedEndpoint))?;
    let chosen = Chosen { endpoint, context, addresses: None };
    Ok(match question {
        None => Route::Handoff(chosen),
        Some(question) => Route::Ask(chosen, question),
    })
}

/// Where the context worker may be dialled, after its name was looked up.
pub(super) fn looked_up(answer: LookUp) -> Result<CheckedAddresses, ContractError> {
    match answer {
        LookUp::Allowed(addresses) => Ok(addresses),
        LookUp::Refused => Err(ContractError::new(ContractErrorKind::EndpointNotAllowed)),
        LookUp::Failed(error) => {
            Err(ContractError::new(ContractErrorKind::EndpointUnresolved).with_source(error))
        }
    }
}

/// The handoff that a request asks for.
pub(super) fn validate(chosen: Chosen, body: Bytes) -> Result<Handoff<Validated>, ContractError> {
    let request = ClientRequest::parse(chosen.endpoint, body).map_err(invalid)?;
    let handoff = Handoff::validated(request, chosen.context);
    Ok(match chosen.addresses {
        Some(addresses) => handoff.at(addresses),
        None => handoff,
    })
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
