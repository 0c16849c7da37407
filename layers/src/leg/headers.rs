//! Which headers travel from the client to a worker and back.
//!
//! Contract, section 1: everything an endpoint picker or a client sets goes on **both** legs, save what belongs to one
//! connection only, what the body's new length would contradict, and what only the serving side may say.

use http::{
    HeaderMap, HeaderName, HeaderValue,
    header::{
        ACCEPT_ENCODING, CONNECTION, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, COOKIE, EXPECT, HOST,
        PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, TE, TRAILER, TRANSFER_ENCODING, UPGRADE,
    },
};

use crate::trtllm::{ROUTING_HEADER, SIGNATURE_HEADER};

const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");
const PROXY_CONNECTION: HeaderName = HeaderName::from_static("proxy-connection");
const HTTP2_SETTINGS: HeaderName = HeaderName::from_static("http2-settings");

/// Headers that hold for one connection (RFC 9110, section 7.6.1).
const HOP_BY_HOP: [HeaderName; 10] = [
    CONNECTION,
    KEEP_ALIVE,
    PROXY_CONNECTION,
    PROXY_AUTHENTICATE,
    PROXY_AUTHORIZATION,
    HTTP2_SETTINGS,
    TE,
    TRAILER,
    TRANSFER_ENCODING,
    UPGRADE,
];

/// Headers that `Connection` must not nominate, since they say to every recipient how a body is to be read (RFC 9110,
/// section 7.6.1). Without them a worker reads another body than the one that was checked.
const DESCRIBE_THE_BODY: [HeaderName; 2] = [CONTENT_TYPE, CONTENT_ENCODING];

/// Headers that the serving side alone may put on a request to a worker (contract, section 8).
const SERVING_SIDE_ONLY: [HeaderName; 3] = [
    SIGNATURE_HEADER,
    HeaderName::from_static("x-trtllm-subagent-affinity-id"),
    HeaderName::from_static("x-trtllm-subagent-affinity-auth"),
];

/// Removes from a client's request what must not reach a worker. Cookies that came in pieces are put together.
pub fn strip_request(headers: &mut HeaderMap) {
    strip_hop_by_hop(headers);
    strip_serving_side(headers);
    for name in [&ROUTING_HEADER, &HOST, &CONTENT_LENGTH, &EXPECT] {
        headers.remove(name);
    }
    join_cookies(headers);
}

/// HTTP/2 lets cookies come in several headers, HTTP/1 does not: whoever reads the first one only would miss the rest
/// (RFC 9113, section 8.2.3).
fn join_cookies(headers: &mut HeaderMap) {
    let pieces: Vec<_> = headers.get_all(COOKIE).iter().map(HeaderValue::as_bytes).collect();
    if pieces.len() < 2 {
        return;
    }
    // what stood in headers stands in one
    if let Ok(mut cookies) = HeaderValue::from_bytes(&pieces.join(&b"; "[..])) {
        cookies.set_sensitive(true);
        headers.insert(COOKIE, cookies);
    }
}

/// Removes from a client's request what only the serving side may say: signatures, and what they vouch for.
/// [`strip_request`] does so, too.
pub fn strip_serving_side(headers: &mut HeaderMap) {
    for name in &SERVING_SIDE_ONLY {
        headers.remove(name);
    }
}

/// Removes from a client's request what must not reach a context worker: its reply has to be readable, so no
/// compression is asked for.
pub fn strip_context_request(headers: &mut HeaderMap) {
    strip_request(headers);
    headers.remove(ACCEPT_ENCODING);
}

/// Removes from a worker's reply what holds for the connection to the worker only.
pub fn strip_response(headers: &mut HeaderMap) {
    strip_hop_by_hop(headers);
}

/// Whether a reply's body is encoded, so that nothing can be read or found in it. It was not asked for, but a worker or
/// something in front of it may compress all the same.
pub fn is_encoded(headers: &HeaderMap) -> bool {
    headers.get_all(CONTENT_ENCODING).iter().any(|value| !value.as_bytes().eq_ignore_ascii_case(b"identity"))
}

/// Removes what holds for one connection only.
pub(crate) fn strip_hop_by_hop(headers: &mut HeaderMap) {
    let nominated: Vec<HeaderName> = headers
        .get_all(CONNECTION)
        .iter()
        .flat_map(|value| value.as_bytes().split(|&byte| byte == b','))
        .filter_map(|name| HeaderName::from_bytes(name.trim_ascii()).ok())
        .filter(|name| !DESCRIBE_THE_BODY.contains(name))
        .collect();
    for name in nominated.iter().chain(&HOP_BY_HOP) {
        headers.remove(name);
    }
}
