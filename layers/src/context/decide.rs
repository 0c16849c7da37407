use bytes::Bytes;
use http::{
    Response,
    header::{CONTENT_TYPE, RETRY_AFTER},
};

use crate::{
    error::{BoxError, ContextError, ContextErrorKind, find},
    leg::{LegError, LegErrorKind, headers::is_encoded},
    trtllm::{ContextReply, Endpoint, ReplyErrorKind, worker_message},
};

/// What the answer of a context worker means (contract, section 3).
pub(super) fn read(endpoint: Endpoint, reply: Response<Bytes>) -> Result<ContextReply, ContextError> {
    let (head, body) = reply.into_parts();
    let status = head.status;
    let retry_after = head.headers.get(RETRY_AFTER).cloned();
    if status.is_client_error() {
        let error = ContextError::new(ContextErrorKind::Rejected(status)).with_retry_after(retry_after);
        return Err(match worker_message(&body) {
            Some(message) => error.with_worker_message(message),
            None => error,
        });
    }
    if status.is_server_error() {
        // The text is not shown: it may quote the request, or name hosts of the cluster.
        return Err(ContextError::new(ContextErrorKind::Failed(status))
            .with_message(format!("the context worker failed with status {}", status.as_u16()))
            .with_retry_after(retry_after));
    }
    if !status.is_success() {
        return Err(unusable(format!("status {} is no answer to a context request", status.as_u16())));
    }
    let media_type = head.headers.get(CONTENT_TYPE).map(|value| value.as_bytes().to_ascii_lowercase());
    if media_type.is_some_and(|value| value.starts_with(b"text/event-stream")) {
        return Err(unusable("it is an event stream".to_owned()));
    }
    if is_encoded(&head.headers) {
        return Err(unusable("it is compressed, which was not asked for".to_owned()));
    }
    ContextReply::parse(endpoint, body).map_err(|error| match error.kind() {
        ReplyErrorKind::Aborted => ContextError::new(ContextErrorKind::Aborted).with_source(error),
        _ => unusable(error.to_string()).with_source(error),
    })
}

fn unusable(why: String) -> ContextError {
    ContextError::new(ContextErrorKind::InvalidReply)
        .with_message(format!("the reply of the context worker is not a usable handoff: {why}"))
}

/// What the failure of a context leg means.
pub(super) fn leg_failed(error: BoxError) -> ContextError {
    let kind = match LegErrorKind::of(&*error) {
        LegErrorKind::Connect | LegErrorKind::Lost => ContextErrorKind::Unreachable,
        LegErrorKind::Timeout => ContextErrorKind::Timeout,
        LegErrorKind::ReplyTooLarge => ContextErrorKind::ReplyTooLarge,
        LegErrorKind::Overloaded => ContextErrorKind::Overloaded,
        LegErrorKind::UnsupportedEngine => ContextErrorKind::UnsupportedEngine,
        LegErrorKind::Interrupted => ContextErrorKind::Interrupted,
    };
    let message = find::<LegError>(&*error).and_then(LegError::message).map(str::to_owned);
    let failed = ContextError::new(kind).with_source(error);
    match message {
        Some(message) => failed.with_message(message),
        None => failed,
    }
}
