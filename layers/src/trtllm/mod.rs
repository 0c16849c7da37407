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
