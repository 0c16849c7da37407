use http::{
    Response,
    header::{CACHE_CONTROL, CONTENT_LENGTH, CONTENT_TYPE, HeaderValue},
};

use crate::{
    handoff::{Handoff, Primed},
    leg::LegBody,
    trtllm::{Delivery, terminal_stream, terminal_whole},
};

/// The context reply as the answer that the generation worker would have given (contract, section 4).
pub(super) fn answer(handoff: &Handoff<Primed>) -> Response<LegBody> {
    let (request, reply) = (handoff.request(), handoff.reply());
    match request.delivery() {
        Delivery::Whole => {
            let text = terminal_whole(reply);
            let length = text.len();
            let mut response = Response::new(LegBody::new(text));
            let headers = response.headers_mut();
            headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
            headers.insert(CONTENT_LENGTH, length.into());
            response
        }
        Delivery::Stream { .. } => {
            let mut response = Response::new(LegBody::new(terminal_stream(request, reply)));
            let headers = response.headers_mut();
            headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream; charset=utf-8"));
            headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
            response
        }
    }
}
