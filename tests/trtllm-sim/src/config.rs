//! What a simulated engine is and how fast it works.

use crate::faults::Fault;
use crate::release::Generation;
use std::time::Duration;

/// The natural length of an answer, in tokens, unless told otherwise.
pub const DEFAULT_TOKENS: usize = 16;

/// Which part of a disaggregated request an engine takes.
///
/// Every role answers a request without `disaggregated_params`. The other
/// role's part is refused, so that a leg sent to the wrong worker shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// `context_only` requests.
    Context,
    /// `generation_only` requests.
    Generation,
    /// Both.
    Both,
}

impl Role {
    /// `context`, `generation` or `both`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Context => "context",
            Self::Generation => "generation",
            Self::Both => "both",
        }
    }
}

/// How to start an [`Engine`](crate::Engine).
#[derive(Debug, Clone)]
pub struct Config {
    pub(crate) role: Role,
    pub(crate) port: u16,
    pub(crate) release: String,
    pub(crate) generation: Option<Generation>,
    pub(crate) model: String,
    pub(crate) tokens: usize,
    pub(crate) token_gap: Duration,
    pub(crate) prefill_per_token: Duration,
    pub(crate) kv_transfer: Duration,
    pub(crate) transfer_timeout: Duration,
    pub(crate) keep_alive: Duration,
    pub(crate) coalesce: bool,
    pub(crate) eos_in_context: bool,
    pub(crate) whole_in_context: bool,
    pub(crate) head_first: bool,
    pub(crate) internal_state: bool,
    pub(crate) opaque_state: bool,
    pub(crate) opaque_bytes: usize,
    pub(crate) info_endpoint: bool,
    pub(crate) ranks: usize,
    pub(crate) conversation_affinity: bool,
    pub(crate) auth_key: Option<String>,
    pub(crate) remember: usize,
    pub(crate) remember_bytes: usize,
    pub(crate) max_body: usize,
    pub(crate) faults: Vec<Fault>,
}

/// The longest time anything may take: a year, which is as good as never and
/// keeps sums of times in range.
const MAX_TIME: Duration = Duration::from_secs(365 * 24 * 60 * 60);
/// The largest opaque state that may be asked for.
const MAX_OPAQUE: usize = 16 << 20;
/// The most ranks that may be asked for.
const MAX_RANKS: usize = 1_024;

impl Config {
    /// An engine of the release 1.3.0rc24 on a free port that answers at once.
    #[must_use]
    pub fn new(role: Role) -> Self {
        Self {
            role,
            port: 0,
            release: "1.3.0rc24".into(),
            generation: None,
            model: "sim".into(),
            tokens: DEFAULT_TOKENS,
            token_gap: Duration::ZERO,
            prefill_per_token: Duration::ZERO,
            kv_transfer: Duration::ZERO,
            transfer_timeout: Duration::from_secs(60),
            keep_alive: Duration::from_secs(5),
            coalesce: false,
            eos_in_context: false,
            whole_in_context: false,
            head_first: false,
            internal_state: true,
            opaque_state: true,
            opaque_bytes: 96,
            info_endpoint: true,
            ranks: 1,
            conversation_affinity: false,
            auth_key: None,
            remember: 4_096,
            remember_bytes: 256 << 20,
            max_body: 64 << 20,
            faults: Vec::new(),
        }
    }

    /// The port on 127.0.0.1; 0 takes a free one.
    #[must_use]
    pub fn port(mut self, port: u16) -> Self {
        self.port = port;
        self
    }

    /// The release it says it is, which sets the generation of its schema.
    #[must_use]
    pub fn release(mut self, release: impl Into<String>) -> Self {
        self.release = release.into();
        self
    }

    /// The generation of the schema, whatever the release says.
    #[must_use]
    pub fn generation(mut self, generation: Generation) -> Self {
        self.generation = Some(generation);
        self
    }

    /// The model that `/v1/models` lists; replies name the model of the request.
    #[must_use]
    pub fn model(mut self, model: impl Into<String>) -> Self {
        self.model = model.into();
        self
    }

    /// The natural length of an answer in tokens, at least one.
    #[must_use]
    pub fn tokens(mut self, tokens: usize) -> Self {
        self.tokens = tokens.max(1);
        self
    }

    /// The time between two tokens.
    #[must_use]
    pub fn token_gap(mut self, gap: Duration) -> Self {
        self.token_gap = gap.min(MAX_TIME);
        self
    }

    /// The time to read one prompt token.
    #[must_use]
    pub fn prefill_per_token(mut self, time: Duration) -> Self {
        self.prefill_per_token = time.min(MAX_TIME);
        self
    }

    /// How long the transfer of one request's KV takes on the wire.
    #[must_use]
    pub fn kv_transfer(mut self, time: Duration) -> Self {
        self.kv_transfer = time.min(MAX_TIME);
        self
    }

    /// How long KV is held for a generation worker that does not come. Like
    /// all times here it is a year at most.
    #[must_use]
    pub fn transfer_timeout(mut self, timeout: Duration) -> Self {
        self.transfer_timeout = timeout.min(MAX_TIME);
        self
    }

    /// How long an idle connection is kept; 5 s as the real worker does.
    #[must_use]
    pub fn keep_alive(mut self, timeout: Duration) -> Self {
        self.keep_alive = timeout.min(MAX_TIME);
        self
    }

    /// Whether several tokens may go into one write. Off: every event is a write of its own.
    #[must_use]
    pub fn coalesce(mut self, coalesce: bool) -> Self {
        self.coalesce = coalesce;
        self
    }

    /// Whether every context step ends the answer at once, with no token of text.
    #[must_use]
    pub fn eos_in_context(mut self, eos: bool) -> Self {
        self.eos_in_context = eos;
        self
    }

    /// Whether a context step makes the whole answer, where no limit cuts it: then every such request ends there.
    ///
    /// A real context step makes one token. This makes of every answer one that fits into it, as a reply to compare
    /// with that of an engine that serves the request alone.
    #[must_use]
    pub fn whole_in_context(mut self, whole: bool) -> Self {
        self.whole_in_context = whole;
        self
    }

    /// Whether a stream's head goes out before the KV is pulled. Then a failed
    /// pull cuts the stream instead of answering 400.
    #[must_use]
    pub fn head_first(mut self, head_first: bool) -> Self {
        self.head_first = head_first;
        self
    }

    /// Whether non-streaming generation replies carry `disaggregated_params`
    /// and `prompt_token_ids`, as real ones can. On by default.
    #[must_use]
    pub fn internal_state(mut self, internal_state: bool) -> Self {
        self.internal_state = internal_state;
        self
    }

    /// Whether context replies carry an opaque state.
    #[must_use]
    pub fn opaque_state(mut self, opaque_state: bool) -> Self {
        self.opaque_state = opaque_state;
        self
    }

    /// How many bytes the opaque state has before it is encoded, at most 16 MiB.
    #[must_use]
    pub fn opaque_bytes(mut self, bytes: usize) -> Self {
        self.opaque_bytes = bytes.min(MAX_OPAQUE);
        self
    }

    /// Whether context replies name the endpoint to pull from. Without it the
    /// opaque state names it, if there is one.
    #[must_use]
    pub fn info_endpoint(mut self, info_endpoint: bool) -> Self {
        self.info_endpoint = info_endpoint;
        self
    }

    /// How many attention-DP ranks it has, 1 to 1,024.
    #[must_use]
    pub fn ranks(mut self, ranks: usize) -> Self {
        self.ranks = ranks.clamp(1, MAX_RANKS);
        self
    }

    /// Whether the requests of a conversation stay on one rank
    /// (`kv_cache_routing_conversation_affinity`). Engines before 1.3.0rc21
    /// have no such option and do not start with it.
    #[must_use]
    pub fn conversation_affinity(mut self, affinity: bool) -> Self {
        self.conversation_affinity = affinity;
        self
    }

    /// The key with which generation requests must be signed. Without a key
    /// every signature is accepted.
    #[must_use]
    pub fn auth_key(mut self, key: impl Into<String>) -> Self {
        self.auth_key = Some(key.into());
        self
    }

    /// How many requests [`State`](crate::State) remembers; their bodies are
    /// bounded too, by 256 MiB in all.
    #[must_use]
    pub fn remember(mut self, requests: usize) -> Self {
        self.remember = requests;
        self
    }

    /// Adds a fault that holds from the start, as [`Engine::set_fault`](crate::Engine::set_fault) does later.
    #[must_use]
    pub fn fault(mut self, fault: Fault) -> Self {
        self.faults.push(fault);
        self
    }

    /// The role's name and the release, for a line that says what runs here.
    #[must_use]
    pub fn describe(&self) -> (&'static str, String) {
        (self.role.name(), self.release.clone())
    }

    /// The generation that the release or the override says.
    ///
    /// # Errors
    ///
    /// Says what is wrong with the release, or with an option that it does not have.
    pub fn schema(&self) -> Result<Generation, String> {
        let generation = match self.generation {
            Some(generation) => generation,
            None => Generation::of_release(&self.release)?,
        };
        if self.conversation_affinity && generation < Generation::G3 {
            return Err(format!("{generation} has no kv_cache_routing_conversation_affinity"));
        }
        Ok(generation)
    }
}
