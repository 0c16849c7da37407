//! The wire contract with `trtllm-serve`: what is asked of a request, what the legs are sent, what may come back.
//!
//! Everything here is a pure function of bytes; nothing waits, and nothing knows about tower.

/// The header in which an endpoint picker names the context worker (contract, section 1).
pub const ROUTING_HEADER: http::HeaderName = http::HeaderName::from_static("x-prefiller-host-port");
