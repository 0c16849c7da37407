//! The wire contract with `trtllm-serve`: what is asked of a request, what the legs are sent, what may come back.
//!
//! Everything here is a pure function of bytes; nothing waits, and nothing knows about tower.
//!
//! | the rule for | is in |
//! |---|---|
//! | the routing header | `endpoint.rs` |
//! | what a client may ask for, and what it may not send | `request.rs` and `request/`, `guard.rs` |
//! | where a worker looks for a conversation | `conversation.rs` |
//! | what a release knows: **one row a release** | `schema.rs`, read by `version.rs` and `shape.rs` |
//! | the context request | `context.rs` |
//! | the context reply: `finish_reason`, choices, a complete handoff | `reply.rs`, `token_ids.rs` |
//! | the generation request | `generation.rs`, `params.rs`, `usage.rs` |
//! | what is signed of it, and with what | `signature.rs`, `signing_key.rs` |
//! | the answer when the context step was all | `terminal.rs` and `terminal/` |
//! | what a client must not see | `clean.rs`, `strip.rs`, `leak.rs`, `worker_error.rs` |

mod endpoint;
mod guard;
mod id;
mod request;

pub use self::{
    endpoint::{ContextEndpoint, EndpointError, EndpointErrorKind, Host, ROUTING_HEADER, context_endpoint},
    guard::check_passthrough,
    id::DisaggRequestId,
    request::{ClientRequest, Delivery, Endpoint, RequestError, RequestErrorKind, StreamUsage},
};

// What comes back from the workers, and what is made of it.
#[cfg(test)]
mod fixtures;

mod clean;
mod context;
mod conversation;
mod generation;
mod leak;
mod params;
mod reply;
mod reply_error;
mod schema;
mod shape;
mod signature;
#[cfg(feature = "hmac")]
mod signing_key;
mod strip;
mod terminal;
mod token_ids;
mod usage;
mod version;
mod worker_error;

pub(crate) use self::signature::signature_value;
#[cfg(feature = "hmac")]
pub use self::signing_key::{EmptyKey, SigningKey};
pub use self::{
    clean::clean_generation_reply,
    context::context_body,
    conversation::{CONVERSATION_HEADERS, SESSION_HEADER, names_conversation},
    generation::generation_body,
    leak::{MAX_RELAYED_ERROR, carries_state, may_carry_state, strip_state},
    reply::{ContextReply, Due, GenerationId},
    reply_error::{ReplyError, ReplyErrorKind},
    schema::{IdLayout, Knowledge, Schema},
    shape::Shape,
    signature::{SIGNATURE_HEADER, SignedMessage},
    terminal::{terminal_stream, terminal_whole},
    version::{Engine, KEEPS_CONVERSATIONS, Release, SUPPORTED},
    worker_error::{MAX_MESSAGE, worker_message},
};
