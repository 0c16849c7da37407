//! The wire contract with `trtllm-serve`: what is asked of a request, what the legs are sent, what may come back.
//!
//! Everything here is a pure function of bytes; nothing waits, and nothing knows about tower.

mod endpoint;
mod guard;
mod id;
mod request;

pub use self::{
    endpoint::{ContextEndpoint, EndpointError, EndpointErrorKind, Host, ROUTING_HEADER, context_endpoint},
    guard::check_passthrough,
    id::DisaggRequestId,
    request::{ClientRequest, Delivery, Endpoint, RequestError, RequestErrorKind},
};

// What comes back from the workers, and what is made of it.
#[cfg(test)]
mod fixtures;

mod clean;
mod context;
mod generation;
mod leak;
mod params;
mod reply;
mod reply_error;
mod schema;
mod shape;
mod strip;
mod terminal;
mod token_ids;
mod usage;
mod version;
mod worker_error;

pub use self::{
    clean::clean_generation_reply,
    context::context_body,
    generation::generation_body,
    leak::{MAX_RELAYED_ERROR, carries_state, may_carry_state},
    reply::{ContextReply, Due, GenerationId},
    reply_error::{ReplyError, ReplyErrorKind},
    schema::{IdLayout, Knowledge, Schema},
    shape::Shape,
    terminal::{terminal_stream, terminal_whole},
    version::{Engine, Release, SUPPORTED},
    worker_error::{MAX_MESSAGE, worker_message},
};
