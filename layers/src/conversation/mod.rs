//! Names the conversation of a request to both workers, so that its turns can stay together.
//!
//! A worker with attention data parallelism can place the turns of a conversation on one rank, where the cache of the
//! earlier ones is. It takes the id of the conversation from the body's `conversation_params`, or from a few headers
//! (contract, section 9). Both reach both workers as the client sent them, without this layer. It is for clients and
//! gateways that say the id elsewhere: it takes it from there, and sets the header that workers look at.
//!
//! # Example
//!
//! ```
//! use tower::{ServiceBuilder, service_fn};
//! use tower_disagg::conversation::ConversationLayer;
//! # use tower_disagg::handoff::{Handoff, Validated};
//!
//! # async fn next(_: http::Request<Handoff<Validated>>) -> Result<http::Response<String>, std::io::Error> { unreachable!() }
//! let layer = ConversationLayer::new(["header:x-chat-id".parse()?, "body:/user".parse()?]);
//! let service = ServiceBuilder::new().layer(layer).service(service_fn(next));
//! # tower_disagg::check::<http::Request<Handoff<Validated>>, _>(service);
//! # Ok::<(), tower_disagg::conversation::IdSourceError>(())
//! ```
//!
//! # Customising
//!
//! Another header, and what comes of it:
//!
//! ```
//! use bytes::Bytes;
//! use http::{HeaderName, Request, Response};
//! use tower::{ServiceBuilder, ServiceExt, service_fn};
//! use tower_disagg::{
//!     conversation::ConversationLayer, handoff::{Handoff, Validated}, trtllm::{ClientRequest, Endpoint},
//! };
//!
//! # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
//! let layer = ConversationLayer::new(["body:/chat_template_kwargs/chat".parse()?])
//!     .header(HeaderName::from_static("x-correlation-id"));
//! let service = ServiceBuilder::new().layer(layer).service(service_fn(async |request: Request<Handoff<Validated>>| {
//!     Ok::<_, std::io::Error>(Response::new(request.headers()["x-correlation-id"].clone()))
//! }));
//!
//! let body = Bytes::from_static(br#"{"model":"m","messages":[],"chat_template_kwargs":{"chat":" 7f3a "}}"#);
//! let request = ClientRequest::parse(Endpoint::Chat, body)?;
//! let handoff = Handoff::validated(request, "10.0.0.5:8001".parse()?);
//! assert_eq!(service.oneshot(Request::new(handoff)).await?.into_body(), "7f3a");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # }).unwrap();
//! ```
//!
//! | | type |
//! |---|---|
//! | request in | `http::Request<Handoff<S>>`, of any stage `S` |
//! | request out | the same, with the header |
//! | response | unchanged |
//!
//! # Which id, and what becomes of the request
//!
//! The first source with a usable id wins: a string that is not blank, or in a body a whole number; at most 256 bytes;
//! nothing that a header cannot carry. White space around it does not count.
//!
//! | the request | is sent with | `disagg_conversation_ids_total{result}` |
//! |---|---|---|
//! | has a usable id | the id in the header, once. Headers at which a worker looks before that one are removed: the two `x-claude-…` in front of `x-session-id`. Those after it stay | `set` |
//! | has a `conversation_params` of its own that is not `null` | no change: a worker looks there before all headers | `named` |
//! | has nothing at any source | no change | `absent` |
//! | has something, but no usable id | no change | `unusable` |
//!
//! The body is never changed. So a member that the id is taken from reaches the workers, too, and they refuse members at
//! the top level that they do not know, `nvext` and `metadata` among them (contract, section 2). `user`,
//! `chat_template_kwargs` and, from 1.3.0rc3 on, what is in `messages` are accepted.
//!
//! An id is a hint, and one that is missing or odd is no error. Workers before 1.3.0rc21 make nothing of it:
//! [`keeps_conversations`](crate::trtllm::Schema::keeps_conversations) tells.
//!
//! # Ordering
//!
//! Between [`ContractLayer`](crate::contract::ContractLayer) and the layers that retry and mint, so that both legs get
//! the header. Requests that pass through without a handoff do not come by here. In a
//! [`HandoffLayer`](crate::HandoffLayer), [`conversations`](crate::HandoffLayer::conversations) puts it there.
//!
//! # Readiness
//!
//! That of the inner service.
//!
//! # Cancellation
//!
//! The future is that of the inner service.
//!
//! # Errors
//!
//! None of its own.

mod decide;
mod layer;
mod service;
mod source;

pub use self::{
    layer::ConversationLayer,
    service::Conversation,
    source::{IdSource, IdSourceError},
};

#[cfg(test)]
mod tests;
