use http::{
    Method, Request, Uri,
    header::{CONTENT_TYPE, HeaderValue},
    request::Parts,
};

use crate::{
    error::{ContractError, ContractErrorKind},
    handoff::{Handoff, Minted},
    leg::{HangUp, LegBody, ReplyHead, headers::strip_context_request, with_query},
    trtllm::context_body,
};

/// The request of the context leg (contract, section 3): the client's path, query and headers, and its JSON with
/// three members changed.
pub(super) fn leg_request(
    parts: &Parts,
    handoff: &Handoff<Minted>,
    head: ReplyHead,
    hang_up: HangUp,
) -> Result<Request<LegBody>, ContractError> {
    let body = LegBody::new(context_body(handoff.request(), handoff.id()));
    let mut request = Request::new(body);
    *request.method_mut() = Method::POST;
    *request.uri_mut() = uri(parts, handoff)
        .map_err(|error| ContractError::new(ContractErrorKind::InvalidEppMetadata).with_source(error))?;
    *request.headers_mut() = parts.headers.clone();
    strip_context_request(request.headers_mut());
    request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    request.extensions_mut().insert(head);
    request.extensions_mut().insert(hang_up);
    if let Some(addresses) = handoff.checked_addresses() {
        request.extensions_mut().insert(addresses.clone());
    }
    Ok(request)
}

fn uri(parts: &Parts, handoff: &Handoff<Minted>) -> Result<Uri, http::Error> {
    Uri::builder()
        .scheme("http")
        .authority(handoff.context_endpoint().as_str())
        .path_and_query(with_query(handoff.request().endpoint().path(), &parts.uri))
        .build()
}
