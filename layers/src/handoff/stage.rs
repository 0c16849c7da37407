use std::fmt;

use crate::{
    settle::Ticket,
    trtllm::{ContextReply, DisaggRequestId},
};

/// A stage of a [`Handoff`](super::Handoff). Sealed: the stages are the protocol's.
pub trait Stage: sealed::Sealed + fmt::Debug + Send + Sync + 'static {}

/// The request and the routing header hold to the contract. No id yet.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Validated;

/// A disaggregation request id belongs to it. Nothing has been sent.
#[derive(Debug)]
#[non_exhaustive]
pub struct Minted {
    pub(super) id: DisaggRequestId,
}

/// The context worker has answered, and the answer is usable.
#[derive(Debug)]
#[non_exhaustive]
pub struct Primed {
    pub(super) id: DisaggRequestId,
    pub(super) reply: ContextReply,
    pub(super) ticket: Ticket,
}

/// A generation leg is due: the KV cache waits on the context worker.
#[derive(Debug)]
#[non_exhaustive]
pub struct Open {
    pub(super) id: DisaggRequestId,
    pub(super) reply: ContextReply,
    pub(super) ticket: Ticket,
}

impl Stage for Validated {}
impl Stage for Minted {}
impl Stage for Primed {}
impl Stage for Open {}

mod sealed {
    #[expect(unnameable_types, reason = "that is what seals `Stage`")]
    pub trait Sealed {}
    impl Sealed for super::Validated {}
    impl Sealed for super::Minted {}
    impl Sealed for super::Primed {}
    impl Sealed for super::Open {}
}
