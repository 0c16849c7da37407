use super::{Handoff, Minted, Open, Primed, Validated};
use crate::{
    leg::CheckedAddresses,
    settle::{Resolution, Settler, Ticket},
    trtllm::{ClientRequest, ContextEndpoint, ContextReply, DisaggRequestId, Due},
};

/// What is to be done after the context step; see [`Handoff::judge`].
#[derive(Debug)]
pub enum Verdict {
    /// A generation leg is due.
    Generate(Handoff<Open>),
    /// The context step is the whole answer: nothing is held, and no generation leg may be sent.
    Terminal(Handoff<Primed>),
}

impl Handoff<Validated> {
    /// A request that holds to the contract, for the context worker at `endpoint`.
    pub fn validated(request: ClientRequest, endpoint: ContextEndpoint) -> Self {
        Self { request, endpoint, addresses: None, yielded: false, stage: Validated }
    }

    /// Lets the context worker be dialled at `addresses` and nowhere else, whatever its name resolves to later.
    pub fn at(mut self, addresses: CheckedAddresses) -> Self {
        self.addresses = Some(addresses);
        self
    }

    /// Gives it the id under which both workers will know it. The id must never have been used before.
    pub fn mint(self, id: DisaggRequestId) -> Handoff<Minted> {
        self.step(|Validated| Minted { id })
    }
}

impl Handoff<Minted> {
    /// The disaggregation request id.
    pub fn id(&self) -> DisaggRequestId {
        self.stage.id
    }

    /// Adds the reply of the context worker, with a ticket of its own that settles nothing; see
    /// [`prime_with`](Self::prime_with).
    pub fn prime(self, reply: ContextReply) -> Handoff<Primed> {
        self.prime_with(reply, Settler::off().ticket())
    }

    /// Adds the reply of the context worker, and the ticket that follows the handoff to its end.
    pub fn prime_with(self, reply: ContextReply, ticket: Ticket) -> Handoff<Primed> {
        ticket.commit();
        self.step(|Minted { id }| Primed { id, reply, ticket })
    }
}

impl Handoff<Primed> {
    /// The disaggregation request id.
    pub fn id(&self) -> DisaggRequestId {
        self.stage.id
    }

    /// What the context worker answered.
    pub fn reply(&self) -> &ContextReply {
        &self.stage.reply
    }

    /// Decides what comes next, by the reply's `finish_reason` (contract, section 3).
    pub fn judge(self) -> Verdict {
        match self.stage.reply.due() {
            Due::Generation => {
                Verdict::Generate(self.step(|Primed { id, reply, ticket }| Open { id, reply, ticket }))
            }
            Due::Nothing => {
                self.stage.ticket.resolve(Resolution::Released);
                Verdict::Terminal(self)
            }
        }
    }
}

impl Handoff<Open> {
    /// The disaggregation request id.
    pub fn id(&self) -> DisaggRequestId {
        self.stage.id
    }

    /// What the context worker answered.
    pub fn reply(&self) -> &ContextReply {
        &self.stage.reply
    }

    /// Follows the handoff to its end; whoever sends the generation request says how it ended.
    pub fn ticket(&self) -> &Ticket {
        &self.stage.ticket
    }
}
