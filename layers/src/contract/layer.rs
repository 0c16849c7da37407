use std::{fmt, sync::Arc, time::Duration};

use tower_layer::Layer;

use super::{AllowContext, Contract, NoPassthrough};
use crate::{buffer::BufferBudget, trtllm::ContextEndpoint};

/// Validates requests that are to be handed off. See the [module](super).
#[derive(Clone)]
pub struct ContractLayer<P> {
    passthrough: P,
    rules: Arc<Rules>,
}

/// What all services of a layer share.
#[derive(Clone)]
pub(super) struct Rules {
    pub(super) max_body: u64,
    pub(super) body_timeout: Option<Duration>,
    pub(super) budget: BufferBudget,
    pub(super) allow: Arc<dyn AllowContext>,
    pub(super) guard: bool,
}

impl ContractLayer<NoPassthrough> {
    /// Refuses requests that have no routing header, without reading their bodies.
    pub fn without_passthrough() -> Self {
        Self::new(NoPassthrough::new()).guard(false)
    }
}

impl<P> ContractLayer<P> {
    /// The largest request body, unless set otherwise: 32 MiB.
    pub const DEFAULT_MAX_BODY: u64 = 32 << 20;

    /// Sends requests that have no routing header to `passthrough`.
    pub fn new(passthrough: P) -> Self {
        let rules = Rules {
            max_body: Self::DEFAULT_MAX_BODY,
            body_timeout: None,
            budget: BufferBudget::unlimited(),
            allow: Arc::new(|_: &ContextEndpoint| true),
            guard: true,
        };
        Self { passthrough, rules: Arc::new(rules) }
    }

    /// Refuses bodies of more than `bytes`.
    pub fn max_body(self, bytes: u64) -> Self {
        self.with(|rules| rules.max_body = bytes)
    }

    /// Refuses bodies that are not complete after `timeout`, counted from the head of the request, or from the answer
    /// when a name had to be looked up first: nobody is told to send a body before that. Without it they may take for
    /// ever. It needs a tokio runtime with time.
    pub fn body_timeout(self, timeout: Duration) -> Self {
        self.with(|rules| rules.body_timeout = Some(timeout))
    }

    /// Counts the bytes held against `budget`, which others may share.
    pub fn budget(self, budget: BufferBudget) -> Self {
        self.with(|rules| rules.budget = budget)
    }

    /// Hands off only to endpoints that `allow` accepts; others are refused before the body is read. Without it any
    /// endpoint will do, which is right only where clients cannot set the routing header themselves.
    pub fn allow(self, allow: impl Fn(&ContextEndpoint) -> bool + Send + Sync + 'static) -> Self {
        self.allow_by(allow)
    }

    /// The same by something that may have to look up a name first, and then says at which addresses the endpoint may be
    /// called. (A method of its own, since a closure given to [`allow`](Self::allow) needs no types that way.)
    pub fn allow_by(self, allow: impl AllowContext) -> Self {
        self.with(|rules| rules.allow = Arc::new(allow))
    }

    /// Whether the body of a POST without a routing header is read and checked for members that only the serving side
    /// may set, before it goes on unchanged. On unless turned off: a worker obeys such members from anybody.
    ///
    /// Turned off, a client can hand the worker a state of its own, have it connect to an address, or join somebody
    /// else's transfer by its number. A key on the worker (`internal_request_auth_key`, contract, section 8) keeps out
    /// such generation requests, but neither context requests nor the other members meant for the serving side, so turn
    /// it off only where all clients that get here are trusted.
    ///
    /// Requests with a routing header are checked all the same, and headers that only the serving side may set are
    /// dropped either way.
    pub fn guard(self, guard: bool) -> Self {
        self.with(|rules| rules.guard = guard)
    }

    /// Sends requests that have no routing header to another service.
    pub fn passthrough<Q>(self, passthrough: Q) -> ContractLayer<Q> {
        ContractLayer { passthrough, rules: self.rules }
    }

    fn with(mut self, change: impl FnOnce(&mut Rules)) -> Self {
        change(Arc::make_mut(&mut self.rules));
        self
    }
}

impl<P: fmt::Debug> fmt::Debug for ContractLayer<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ContractLayer")
            .field("passthrough", &self.passthrough)
            .field("rules", &self.rules)
            .finish()
    }
}

impl fmt::Debug for Rules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rules")
            .field("max_body", &self.max_body)
            .field("body_timeout", &self.body_timeout)
            .field("budget", &self.budget)
            .field("guard", &self.guard)
            .finish_non_exhaustive()
    }
}

impl<S, P: Clone> Layer<S> for ContractLayer<P> {
    type Service = Contract<S, P>;

    fn layer(&self, inner: S) -> Self::Service {
        Contract::new(inner, self.passthrough.clone(), self.rules.clone())
    }
}
