use http::HeaderValue;

use crate::{
    error::{BoxError, GenerationError, GenerationErrorKind, find},
    leg::{LegError, LegErrorKind},
};

/// Whether a reply is an event stream, which is relayed as it comes.
pub(super) fn is_stream(content_type: Option<&HeaderValue>) -> bool {
    const STREAM: &[u8] = b"text/event-stream";
    content_type.is_some_and(|value| {
        value.as_bytes().get(..STREAM.len()).is_some_and(|it| it.eq_ignore_ascii_case(STREAM))
    })
}

/// What the failure of a generation leg means.
pub(super) fn leg_failed(error: BoxError) -> GenerationError {
    let kind = match LegErrorKind::of(&*error) {
        LegErrorKind::Timeout => GenerationErrorKind::Timeout,
        LegErrorKind::UnsupportedEngine => GenerationErrorKind::UnsupportedEngine,
        LegErrorKind::Connect | LegErrorKind::Lost => GenerationErrorKind::Unreachable,
        // The worker was there, and has seen the request.
        LegErrorKind::Interrupted | LegErrorKind::ReplyTooLarge | LegErrorKind::Overloaded => {
            GenerationErrorKind::Interrupted
        }
    };
    let message = find::<LegError>(&*error).and_then(LegError::message).map(str::to_owned);
    let failed = GenerationError::new(kind).with_source(error);
    match message {
        Some(message) => failed.with_message(message),
        None => failed,
    }
}
