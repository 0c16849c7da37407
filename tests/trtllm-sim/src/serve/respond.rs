//! Answers of every shape but the good ones.

use crate::http1::SimBody;
use crate::json::{Value, text};
use crate::schema::Fail;
use bytes::Bytes;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE, HeaderName, HeaderValue, SERVER, TRANSFER_ENCODING};
use http::{Response, StatusCode};

pub(super) const JSON: &str = "application/json";
pub(super) const PLAIN: &str = "text/plain; charset=utf-8";
pub(super) const EVENTS: &str = "text/event-stream; charset=utf-8";

/// An answer with a content type, or without one when that is empty.
pub(super) fn answer(status: u16, content_type: &'static str, body: SimBody) -> Response<SimBody> {
    let mut response = Response::new(body);
    *response.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::BAD_GATEWAY);
    let headers = response.headers_mut();
    headers.insert(SERVER, HeaderValue::from_static("uvicorn"));
    if !content_type.is_empty() {
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    }
    response
}

/// An answer of JSON text.
pub(super) fn json(status: u16, body: impl Into<Bytes>) -> Response<SimBody> {
    answer(status, JSON, SimBody::whole(body))
}

/// `{"detail": ...}`, as the web framework says things.
pub(super) fn detail(status: u16, message: &str) -> Response<SimBody> {
    json(status, text(&Value::obj([("detail", Value::str(message))])))
}

/// The error object of the worker itself.
pub(super) fn error_object(status: u16, kind: &str, message: &str) -> String {
    text(&Value::obj([
        ("object", Value::str("error")),
        ("message", Value::str(message)),
        ("type", Value::str(kind)),
        ("param", Value::Null),
        ("code", Value::int(status)),
    ]))
}

/// The answer to a request that is not served.
pub(super) fn failed(fail: &Fail) -> Response<SimBody> {
    match fail {
        Fail::Schema(message) => json(400, text(&Value::obj([("error", Value::str(message.as_str()))]))),
        Fail::Engine(message) => json(400, error_object(400, "BadRequestError", message)),
        Fail::Detail(status, message) => detail(*status, message),
        Fail::Crash(_) => answer(500, PLAIN, SimBody::whole("Internal Server Error")),
    }
}

/// Adds headers; a content type replaces the one there. What is no header is
/// left out, and so is what frames the message: a cut breaks the framing better.
pub(super) fn add_headers(response: &mut Response<SimBody>, headers: &[(String, String)]) {
    for (name, value) in headers {
        let name = HeaderName::from_bytes(name.as_bytes());
        if let (Ok(name), Ok(value)) = (name, HeaderValue::from_str(value)) {
            if name == CONTENT_LENGTH || name == TRANSFER_ENCODING {
                continue;
            }
            if name == CONTENT_TYPE {
                response.headers_mut().insert(name, value);
            } else {
                response.headers_mut().append(name, value);
            }
        }
    }
}
