use http::{
    Method, Request, Uri,
    header::{ACCEPT_ENCODING, CONTENT_TYPE, HeaderValue},
    request::Parts,
};

use crate::{
    handoff::{Handoff, Open},
    leg::{LegBody, headers::strip_request, target, with_query},
    trtllm::{Shape, generation_body},
};

/// The request of the generation leg (contract, section 4).
pub(super) fn leg_request(
    parts: Parts,
    handoff: &Handoff<Open>,
    shape: &Shape,
    origin: Option<&Uri>,
) -> Request<LegBody> {
    let body = generation_body(handoff.request(), handoff.reply(), handoff.id(), shape);
    let mut request = Request::new(LegBody::new(body));
    *request.method_mut() = Method::POST;
    *request.uri_mut() = target(origin, with_query(handoff.request().endpoint().path(), &parts.uri));
    *request.headers_mut() = parts.headers;
    strip_request(request.headers_mut());
    // A reply that comes encoded could not be searched for internal state.
    request.headers_mut().remove(ACCEPT_ENCODING);
    request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    request
}
