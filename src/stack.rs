//! The layers, put together as a configuration says.

use std::{convert::Infallible, sync::Arc};

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use hyper::body::Incoming;
use tower::{
    ServiceBuilder,
    layer::util::{Identity, Stack as Both},
    timeout::{Timeout, TimeoutLayer},
    util::{MapErrLayer, MapResponseLayer},
};
use tower_disagg::{
    buffer::BufferBudget,
    cancel::{CancelLayer, InFlight},
    check,
    context::ContextLayer,
    contract::{ContractLayer, PassthroughBody},
    conversation::ConversationLayer,
    error::BoxError,
    generation::{Engines, GenerationLayer, SharedKey},
    handoff::{Handoff, Minted, Open, Primed, Validated},
    leg::{BufferReply, BufferReplyLayer, LegBody, LegErrorKind},
    mint::MintLayer,
    respond::RespondLayer,
    settle::Settler,
    terminal::TerminalLayer,
    trtllm::{ContextEndpoint, Engine},
};
use tower_layer::Layer;
use tower_service::Service;

use crate::{
    admission::AdmissionLayer,
    allow::{AllowList, Lookups, Resolver, system},
    client::{GatherBody, HttpClient, IdleLayer, is_connection_failure},
    config::{Config, EngineVersion, Passthrough as Mode, Switch},
    engine::{ContextGateLayer, GenerationGateLayer, PROBE_REPLY, Releases, Wanted},
    ids::Ids,
    passthrough::Passthrough,
    retry::ContextRetries,
    server::Phases,
    timed::TimedLayer,
};

/// What belongs to one stack, whatever type of request bodies it serves.
#[derive(Debug, Clone)]
pub(crate) struct Assembly {
    config: Config,
    budget: BufferBudget,
    cancel: CancelLayer,
    admission: AdmissionLayer,
    settler: Settler,
    releases: Releases,
    signing_key: Option<SharedKey>,
    /// One maker for all services: two with the same identity would repeat each other's ids.
    ids: Arc<Ids>,
    lookups: Lookups,
    /// Both legs share one pool.
    legs: HttpClient<LegBody>,
    /// Questions to workers leave the pool alone.
    questions: HttpClient<LegBody>,
}

/// Asks workers for their release: one deadline, a small reply.
type Probe = Timeout<BufferReply<HttpClient<LegBody>>>;

/// Deadlines of a generation leg: for the head, and for each pause afterwards. Inside of them small chunks are gathered.
type Deadlines =
    Both<MapResponseLayer<Gather>, Both<TimeoutLayer, Both<TimedLayer, Both<IdleLayer, Identity>>>>;

type Gather = fn(Response<Incoming>) -> Response<GatherBody<Incoming>>;

fn gather(reply: Response<Incoming>) -> Response<GatherBody<Incoming>> {
    reply.map(GatherBody::new)
}

/// What a generation worker may take to say its release, once there is a connection.
const PROBE_TIME: std::time::Duration = std::time::Duration::from_secs(2);

impl Assembly {
    pub(crate) fn new(config: Config, phases: Phases) -> Self {
        Self::with_resolver(config, phases, system())
    }

    /// The same where names that decide by their addresses are looked up otherwise.
    pub(crate) fn with_resolver(config: Config, phases: Phases, resolver: Resolver) -> Self {
        let pinned = match &config.engine_version {
            EngineVersion::Auto => None,
            EngineVersion::Pinned(release) => Some(Engine::Known(release.clone())),
        };
        let settler = match config.settle {
            Switch::On => Settler::new(config.settle_timeout),
            Switch::Off => Settler::off(),
        };
        let signing_key = config.auth_key_file.as_ref().map(|file| SharedKey::new(file.key().clone()));
        let wanted =
            Wanted { signatures: signing_key.is_some(), conversations: !config.conversation_from.is_empty() };
        let releases = Releases::new(pinned, wanted);
        Self {
            budget: BufferBudget::new(config.max_buffered_bytes),
            cancel: CancelLayer::new(),
            admission: AdmissionLayer::new(config.max_in_flight, phases),
            settler,
            ids: Arc::new(Ids::new(&config, releases.clone())),
            releases,
            signing_key,
            lookups: Lookups::new(resolver, config.connect_timeout),
            legs: HttpClient::new(config.connect_timeout),
            questions: HttpClient::unpooled(config.connect_timeout),
            config,
        }
    }

    /// The requests in flight.
    pub(crate) fn in_flight(&self) -> InFlight {
        self.cancel.in_flight()
    }

    /// Finishes handoffs whose client has left.
    pub(crate) fn settler(&self) -> &Settler {
        &self.settler
    }

    /// What generation requests are signed with, so that it can be replaced.
    pub(crate) fn signing_key(&self) -> Option<SharedKey> {
        self.signing_key.clone()
    }

    /// The client for questions to workers.
    pub(crate) fn questions(&self) -> HttpClient<LegBody> {
        self.questions.clone()
    }

    /// Brings the gauges up to date that nobody else keeps.
    pub(crate) fn gauge(&self) {
        metrics::gauge!("disagg_buffered_bytes").set(self.budget.held() as f64);
        metrics::gauge!("disagg_settlements_active").set(self.settler.active() as f64);
    }

    /// Waits until it is known that the local generation worker cannot do what the settings ask for.
    pub(crate) async fn unfit_engine(&self) {
        self.releases.unfit().await;
    }

    /// Refuses handoffs that the local generation worker could not take over.
    pub(crate) fn generation_gate(&self) -> GenerationGateLayer<Probe> {
        let uri = self.config.generation_url.uri();
        let authority = uri.authority().cloned();
        // a URL without an authority is refused when settings are read
        let authority = authority.unwrap_or_else(|| http::uri::Authority::from_static("127.0.0.1:8001"));
        GenerationGateLayer::new(self.releases.clone(), self.probe(), authority)
    }

    fn probe(&self) -> Probe {
        let probe = BufferReplyLayer::new(PROBE_REPLY).layer(self.questions.clone());
        Timeout::new(probe, self.config.connect_timeout + PROBE_TIME)
    }

    /// The context leg: one deadline around the question for the release, the call and its whole reply.
    fn context_leg(
        &self,
    ) -> impl Service<Request<LegBody>, Response = Response<Bytes>, Error = BoxError, Future: Send + 'static>
    + Clone
    + Send
    + Sync
    + std::fmt::Debug
    + 'static
    + use<> {
        ServiceBuilder::new()
            .timeout(self.config.context_timeout)
            .layer(ContextGateLayer::new(self.releases.clone(), self.probe()))
            .layer(TimedLayer::new("disagg_context_leg_seconds"))
            .layer(BufferReplyLayer::new(self.config.max_reply_bytes).budget(self.budget.clone()))
            .service(self.legs.clone())
    }

    fn deadlines(&self) -> Deadlines {
        ServiceBuilder::new()
            .layer(IdleLayer::new(self.config.generation_idle_timeout))
            .layer(TimedLayer::new("disagg_generation_head_seconds"))
            .timeout(self.config.generation_head_timeout)
            .map_response(gather as Gather)
            .into_inner()
    }

    /// What a failed connection to the generation worker means beyond the request.
    fn doubt(&self) -> MapErrLayer<impl Fn(BoxError) -> BoxError + Clone + Send + Sync + 'static + use<>> {
        let releases = self.releases.clone();
        MapErrLayer::new(move |error: BoxError| {
            if is_connection_failure(LegErrorKind::of(&*error)) {
                releases.doubt_local();
            }
            error
        })
    }

    /// The stack for request bodies of type `B`.
    pub(crate) fn service<B>(
        &self,
    ) -> impl Service<
        Request<B>,
        Response = Response<impl Body<Data = Bytes, Error = BoxError> + Send + 'static + use<B>>,
        Error = Infallible,
        Future: Send + 'static,
    >
    + Clone
    + Send
    + Sync
    + 'static
    + use<B>
    where
        B: Body<Data = Bytes> + Send + Unpin + 'static,
        B::Error: Into<BoxError>,
    {
        let origin = self.config.generation_url.uri();

        let client = ServiceBuilder::new().layer(self.doubt()).layer(self.deadlines()).service(HttpClient::<
            PassthroughBody<B>,
        >::new(
            self.config.connect_timeout,
        ));
        let passthrough = match self.config.passthrough {
            Mode::Off => Passthrough::off(),
            Mode::Guarded | Mode::Verbatim => Passthrough::new(client, origin.clone()),
        };
        let contract = ContractLayer::new(passthrough)
            .max_body(self.config.max_request_bytes)
            .body_timeout(self.config.request_body_timeout)
            .budget(self.budget.clone())
            .allow_by(AllowList::new(&self.config.allow_context, self.lookups.clone()))
            .guard(self.config.passthrough == Mode::Guarded);

        let client =
            ServiceBuilder::new().layer(self.doubt()).layer(self.deadlines()).service(self.legs.clone());
        let generation = GenerationLayer::new()
            .to(origin.clone())
            .engines(Known(self.releases.clone()))
            .max_whole(self.config.max_reply_bytes)
            .budget(self.budget.clone());
        let generation = match self.signing_key() {
            Some(key) => generation.sign(key),
            None => generation,
        };
        let generation = check::<Request<Handoff<Open>>, _>(generation.layer(client));
        let terminal = check::<Request<Handoff<Primed>>, _>(TerminalLayer::new().layer(generation));
        let context = ContextLayer::new(self.context_leg()).settle(self.settler.clone());
        let context = check::<Request<Handoff<Minted>>, _>(context.layer(terminal));
        let handoff = ServiceBuilder::new()
            .layer(ConversationLayer::new(self.config.conversation_from.clone()))
            .retry(ContextRetries::new(self.config.context_retries))
            .layer(self.generation_gate())
            .layer(MintLayer::new(self.ids.clone()))
            .service(context);
        let handoff = check::<Request<Handoff<Validated>>, _>(handoff);

        let service = ServiceBuilder::new()
            .layer(RespondLayer::new())
            .layer(self.cancel.clone())
            .layer(self.admission.clone())
            .layer(contract)
            .service(handoff);
        check::<Request<B>, _>(service)
    }
}

/// What the generation layer wants to know.
struct Known(Releases);

impl Engines for Known {
    fn generation(&self) -> Engine {
        self.0.local_or_last()
    }

    fn context(&self, endpoint: &ContextEndpoint) -> Engine {
        self.0.context(endpoint.as_str())
    }

    fn refused(&self, endpoint: &ContextEndpoint) {
        self.0.refused(endpoint.as_str());
    }
}

/// The whole stack, as a service for any server: what the binary runs, without its listeners, `/health` and `/ready`.
///
/// It connects to the workers that `config` and the routing headers name, and needs a tokio runtime with time and
/// network when it is called. It is not drained by itself: drop it when its server is done. The key of `--auth-key-file`
/// stays the one that was read with the settings; only a [`Sidecar`](crate::Sidecar) reads it again. A generation worker
/// that is too old for `--conversation-from` ends a `Sidecar`; here it is an error in the log.
///
/// Call it once and clone the service: each call makes a pool of connections, limits and, where `config` sets an
/// identity for request ids, a maker of ids. Two makers of one identity would repeat each other's ids.
///
/// ```
/// use bytes::Bytes;
/// use http_body_util::Full;
///
/// let config = disagg_sidecar::Config::from_args(["--generation-url", "http://127.0.0.1:8001"])?;
/// let service = disagg_sidecar::stack::<Full<Bytes>>(&config);
/// # tower_disagg::check::<http::Request<Full<Bytes>>, _>(service);
/// # Ok::<(), disagg_sidecar::ConfigError>(())
/// ```
pub fn stack<B>(
    config: &Config,
) -> impl Service<
    Request<B>,
    Response = Response<impl Body<Data = Bytes, Error = BoxError> + Send + 'static + use<B>>,
    Error = Infallible,
    Future: Send + 'static,
>
+ Clone
+ Send
+ Sync
+ 'static
+ use<B>
where
    B: Body<Data = Bytes> + Send + Unpin + 'static,
    B::Error: Into<BoxError>,
{
    Assembly::new(config.clone(), Phases::new()).service()
}
