//! One handoff, and how far it has come: [`Handoff<S>`].
//!
//! What the stack knows about a request travels in the **type of the request body**. A `Handoff<S>` holds the bytes
//! the client sent, shared and never copied, and what stage `S` has learned. It is an [`http_body::Body`] that yields
//! the client's JSON, so any `tower` or `tower-http` layer fits between two of ours, and a stage that is skipped or
//! swapped does not compile.
//!
//! | stage | reached by | carries in addition | `Clone` |
//! |---|---|---|---|
//! | [`Validated`] | [`Handoff::validated`] | context endpoint, the addresses it was checked at, the parsed request | yes |
//! | [`Minted`] | [`mint`](Handoff::mint) | the disaggregation request id | no |
//! | [`Primed`] | [`prime`](Handoff::prime) | the context reply | no |
//! | [`Open`] | [`judge`](Handoff::judge), when generation is due | - | no |
//!
//! An id must never be sent twice, so nothing that has one can be cloned: a retry layer fits above
//! [`MintLayer`](crate::mint::MintLayer), where each attempt gets an id of its own, and does not compile below it.
//!
//! The transitions are public: any layer here can be replaced by your own, and a test reaches any stage in a line.
//!
//! ```
//! use bytes::Bytes;
//! use tower_disagg::{handoff::{Handoff, Verdict}, trtllm::{ClientRequest, ContextReply, DisaggRequestId, Endpoint}};
//!
//! let body = Bytes::from_static(br#"{"model":"m","messages":[]}"#);
//! let request = ClientRequest::parse(Endpoint::Chat, body)?;
//! let handoff = Handoff::validated(request, "10.0.0.5:8001".parse()?);
//! let minted = handoff.clone().mint(DisaggRequestId::new(1 << 42).unwrap());
//! let reply = Bytes::from_static(br#"{"choices":[{"index":0,"finish_reason":"stop","message":{"content":"Hi"}}]}"#);
//! let reply = ContextReply::parse(Endpoint::Chat, reply)?;
//! assert!(matches!(minted.prime(reply).judge(), Verdict::Terminal(_)));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A stage cannot be skipped:
//!
//! ```compile_fail,E0599
//! # use tower_disagg::{handoff::*, trtllm::*};
//! fn skip(handoff: Handoff<Validated>, reply: ContextReply) {
//!     handoff.prime(reply); // no id was minted
//! }
//! ```
//!
//! and nothing with an id can be sent a second time:
//!
//! ```compile_fail,E0277
//! # use tower_disagg::handoff::*;
//! fn replay<B: Clone>() {}
//! replay::<Handoff<Minted>>();
//! ```

mod body;
mod stage;
mod transition;

pub use self::{
    stage::{Minted, Open, Primed, Stage, Validated},
    transition::Verdict,
};
use crate::{
    leg::CheckedAddresses,
    trtllm::{ClientRequest, ContextEndpoint},
};

/// A request on its way through the handoff, at stage `S`. See the [module](self).
///
/// `Debug` shows ids and sizes, never content.
#[derive(Debug)]
pub struct Handoff<S: Stage> {
    request: ClientRequest,
    endpoint: ContextEndpoint,
    /// Where alone it may be dialled, when it was let in for what its name resolves to.
    addresses: Option<CheckedAddresses>,
    /// Whether [`Body`](http_body::Body) has yielded the client's JSON.
    yielded: bool,
    stage: S,
}

impl Clone for Handoff<Validated> {
    /// Shares the client's bytes. The copy yields them from the start.
    fn clone(&self) -> Self {
        Self {
            addresses: self.addresses.clone(),
            ..Self::validated(self.request.clone(), self.endpoint.clone())
        }
    }
}

impl<S: Stage> Handoff<S> {
    /// What the client asked for.
    pub fn request(&self) -> &ClientRequest {
        &self.request
    }

    /// The context worker that was chosen for it.
    pub fn context_endpoint(&self) -> &ContextEndpoint {
        &self.endpoint
    }

    /// The only addresses at which that worker may be dialled; `None` when its name may be resolved. Every attempt has
    /// the same ones.
    pub fn checked_addresses(&self) -> Option<&CheckedAddresses> {
        self.addresses.as_ref()
    }

    fn step<T: Stage>(self, next: impl FnOnce(S) -> T) -> Handoff<T> {
        let Self { request, endpoint, addresses, yielded: _, stage } = self;
        Handoff { request, endpoint, addresses, yielded: false, stage: next(stage) }
    }
}

#[cfg(test)]
mod tests;
