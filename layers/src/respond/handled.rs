//! From an error to an answer.

use std::{error::Error, fmt, sync::Arc};

use bytes::Bytes;
use http::{
    HeaderValue, Response, StatusCode,
    header::{CONTENT_LENGTH, CONTENT_TYPE, RETRY_AFTER},
};
use http_body::Body;

use super::{RespondBody, RespondLayer};
use crate::error::{BoxError, ErrorReply, chain};

/// How many causes of an error are logged.
const LOGGED_CAUSES: usize = 8;

/// The error behind an answer, in the extensions of the response, for loggers outside of
/// [`RespondLayer`](super::RespondLayer). The client does not see it.
#[derive(Debug, Clone)]
pub struct HandledError {
    code: &'static str,
    error: Arc<dyn Error + Send + Sync>,
}

impl HandledError {
    /// The code that the client was told: one of a closed set, so fit for a label.
    pub fn code(&self) -> &'static str {
        self.code
    }

    /// The error as the inner service returned it.
    pub fn error(&self) -> &(dyn Error + Send + Sync + 'static) {
        &*self.error
    }
}

/// Logs an error and answers it.
pub(super) fn answer<B: Body>(layer: &RespondLayer, error: BoxError) -> Response<RespondBody<B>> {
    let reply = layer.reply(&*error);
    log(&reply, &*error);
    let mut response = render(&reply);
    response.extensions_mut().insert(HandledError { code: reply.code, error: error.into() });
    response
}

/// The response that says `reply`.
fn render<B: Body>(reply: &ErrorReply) -> Response<RespondBody<B>> {
    let text = Bytes::from(reply.body());
    let length = HeaderValue::from(text.len());
    let mut response = Response::new(RespondBody::text(text));
    *response.status_mut() = reply.status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(CONTENT_LENGTH, length);
    if let Some(retry_after) = &reply.retry_after {
        headers.insert(RETRY_AFTER, retry_after.clone());
    }
    response
}

/// A client's mistake is its own affair; a failure on this side is ours.
fn log(reply: &ErrorReply, error: &(dyn Error + 'static)) {
    let ErrorReply { status, code, .. } = reply;
    let (status, error) = (status.as_u16(), Causes(error));
    if reply.status >= StatusCode::INTERNAL_SERVER_ERROR {
        tracing::warn!(status, code, %error, "request failed");
    } else {
        tracing::debug!(status, code, %error, "request refused");
    }
}

/// An error and its causes, in one line.
struct Causes<'a>(&'a (dyn Error + 'static));

impl fmt::Display for Causes<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut said = self.0.to_string();
        for cause in chain(self.0).skip(1).take(LOGGED_CAUSES) {
            let cause = cause.to_string();
            // An error often repeats what caused it.
            if !said.contains(&cause) {
                said = format!("{said}: {cause}");
            }
        }
        f.write_str(&said)
    }
}
