use http::{
    Method, Request, Uri,
    header::{ACCEPT_ENCODING, CONTENT_TYPE, HeaderValue},
    request::Parts,
    uri::PathAndQuery,
};

use crate::{
    handoff::{Handoff, Open},
    leg::{LegBody, headers::strip_request},
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
    *request.uri_mut() = target(&parts.uri, handoff.request().endpoint().path(), origin);
    *request.headers_mut() = parts.headers;
    strip_request(request.headers_mut());
    // A reply that comes encoded could not be searched for internal state.
    request.headers_mut().remove(ACCEPT_ENCODING);
    request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    request
}

fn target(client: &Uri, path: &'static str, origin: Option<&Uri>) -> Uri {
    let mut target = http::uri::Parts::default();
    if let Some(origin) = origin {
        target.scheme = origin.scheme().cloned();
        target.authority = origin.authority().cloned();
    }
    target.path_and_query = match client.query() {
        // The query stood in a valid URI before.
        Some(query) => PathAndQuery::try_from(format!("{path}?{query}")).ok(),
        None => Some(PathAndQuery::from_static(path)),
    };
    Uri::from_parts(target).unwrap_or_else(|_| Uri::from_static(path))
}
