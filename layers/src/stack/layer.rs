use std::time::Duration;

use http::Uri;
use tower_layer::Layer;

use super::Passthrough;
use crate::{
    buffer::BufferBudget,
    cancel::{Cancel, CancelBody, CancelLayer, InFlight, OnRelease},
    context::{Context, ContextLayer},
    contract::{AllowContext, Contract, ContractBody, ContractLayer},
    conversation::{Conversation, ConversationLayer},
    generation::{Engines, Generation, GenerationLayer, RelayBody, Signer},
    mint::{Mint, MintLayer, RandomIds},
    settle::Settler,
    terminal::{Terminal, TerminalBody, TerminalLayer},
    trtllm::ContextEndpoint,
};

/// The handoff, around a client that sends requests to the generation worker. See the [module](super).
///
/// Requests without a routing header go to the same client, after the body of a POST was checked.
#[derive(Debug, Clone)]
pub struct HandoffLayer<L, M = RandomIds> {
    cancel: CancelLayer,
    /// What requests pass through is known only when a service is made.
    contract: ContractLayer<()>,
    conversation: ConversationLayer,
    mint: MintLayer<M>,
    context: ContextLayer<L>,
    generation: GenerationLayer,
    origin: Option<Uri>,
    max_body: u64,
    body_timeout: Option<Duration>,
    budget: BufferBudget,
}

/// What [`HandoffLayer`] makes of a client `S`.
pub type HandoffService<S, L, M = RandomIds> =
    Cancel<Contract<Conversation<Mint<Context<Terminal<Generation<S>>, L>, M>>, Passthrough<S>>>;

/// The body of its responses, where those of the client have the body `B`.
pub type HandoffBody<B> = CancelBody<ContractBody<TerminalBody<RelayBody<B>>, B>>;

impl<L> HandoffLayer<L> {
    /// Sends context requests to `leg`. Ids are random; a handoff whose client has left is finished for up to 30 s.
    pub fn new(leg: L) -> Self {
        Self {
            cancel: CancelLayer::new(),
            contract: ContractLayer::new(()),
            conversation: ConversationLayer::default(),
            mint: MintLayer::default(),
            context: ContextLayer::new(leg).settle(Settler::new(Duration::from_secs(30))),
            generation: GenerationLayer::new(),
            origin: None,
            max_body: ContractLayer::<()>::DEFAULT_MAX_BODY,
            body_timeout: None,
            budget: BufferBudget::unlimited(),
        }
    }
}

impl<L, M> HandoffLayer<L, M> {
    /// Takes ids from `maker`; see [`MintLayer::new`].
    pub fn ids<N>(self, maker: N) -> HandoffLayer<L, N> {
        HandoffLayer {
            cancel: self.cancel,
            contract: self.contract,
            conversation: self.conversation,
            mint: MintLayer::new(maker),
            context: self.context,
            generation: self.generation,
            origin: self.origin,
            max_body: self.max_body,
            body_timeout: self.body_timeout,
            budget: self.budget,
        }
    }

    /// Names the conversation of each handoff to both workers as `layer` does; without it they get the headers as they
    /// came.
    pub fn conversations(mut self, layer: ConversationLayer) -> Self {
        self.conversation = layer;
        self
    }

    /// Finishes handoffs that nobody waits for any more by `settler`; see [`ContextLayer::settle`].
    pub fn settle(mut self, settler: Settler) -> Self {
        self.context = self.context.settle(settler);
        self
    }

    /// Hands off only to endpoints that `allow` accepts; see [`ContractLayer::allow`].
    pub fn allow(mut self, allow: impl Fn(&ContextEndpoint) -> bool + Send + Sync + 'static) -> Self {
        self.contract = self.contract.allow(allow);
        self
    }

    /// The same by something that may have to look up a name first; see [`ContractLayer::allow_by`].
    pub fn allow_by(mut self, allow: impl AllowContext) -> Self {
        self.contract = self.contract.allow_by(allow);
        self
    }

    /// Refuses bodies of more than `bytes`, 32 MiB unless set; see [`ContractLayer::max_body`].
    pub fn max_body(mut self, bytes: u64) -> Self {
        self.contract = self.contract.max_body(bytes);
        self.max_body = bytes;
        self
    }

    /// Refuses bodies that take longer than `timeout`; see [`ContractLayer::body_timeout`].
    pub fn body_timeout(mut self, timeout: Duration) -> Self {
        self.contract = self.contract.body_timeout(timeout);
        self.body_timeout = Some(timeout);
        self
    }

    /// Counts all bytes held against `budget`. Give it to the [`BufferReplyLayer`](crate::leg::BufferReplyLayer) of
    /// the context leg as well.
    pub fn budget(mut self, budget: BufferBudget) -> Self {
        self.contract = self.contract.budget(budget.clone());
        self.generation = self.generation.budget(budget.clone());
        self.budget = budget;
        self
    }

    /// Shapes requests for the releases that `engines` knows; see [`GenerationLayer::engines`].
    pub fn engines(mut self, engines: impl Engines + 'static) -> Self {
        self.generation = self.generation.engines(engines);
        self
    }

    /// Signs generation requests by `signer`, and no others; see [`GenerationLayer::sign`].
    pub fn sign(mut self, signer: impl Signer + 'static) -> Self {
        self.generation = self.generation.sign(signer);
        self
    }

    /// Sends generation requests, and those that pass through, to this scheme and authority; see
    /// [`GenerationLayer::to`].
    pub fn generation_to(mut self, origin: Uri) -> Self {
        self.generation = self.generation.to(origin.clone());
        self.origin = Some(origin);
        self
    }

    /// Calls `hook` once for each request; see [`CancelLayer::on_release`].
    pub fn on_release(mut self, hook: impl OnRelease) -> Self {
        self.cancel = self.cancel.on_release(hook);
        self
    }

    /// The requests in flight.
    pub fn in_flight(&self) -> InFlight {
        self.cancel.in_flight()
    }
}

impl<S: Clone, L: Clone, M> Layer<S> for HandoffLayer<L, M> {
    type Service = HandoffService<S, L, M>;

    fn layer(&self, client: S) -> Self::Service {
        let passthrough = Passthrough::new(client.clone(), self.max_body, self.budget.clone())
            .body_timeout(self.body_timeout)
            .to(self.origin.clone());
        let generation = self.generation.layer(client);
        let context = self.context.layer(TerminalLayer::new().layer(generation));
        let handoff = self.conversation.layer(self.mint.layer(context));
        let contract = self.contract.clone().passthrough(passthrough).layer(handoff);
        self.cancel.layer(contract)
    }
}
