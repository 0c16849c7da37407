//! Handoffs at every stage, what the workers say to them, and how they ended; for this crate's own tests.

use std::{
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body::{Body, Frame, SizeHint};
use tokio::sync::mpsc;

use crate::{
    error::BoxError,
    handoff::{Handoff, Minted, Open, Primed, Verdict},
    leg::{LegBody, ReplyHead},
    settle::{Settler, Ticket},
    trtllm::{ClientRequest, ContextReply, DisaggRequestId, Endpoint},
};

/// In prompts, replies and states of these tests, and to be seen in no error, log or `Debug`.
pub(crate) const CANARY: &str = "CANARY";

/// The id of all handoffs here.
pub(crate) const ID: u64 = (1 << 42) + 7;

/// A chat that streams.
pub(crate) const STREAMED: &str =
    r#"{"model":"m","messages":[{"role":"user","content":"CANARY"}],"stream":true,"max_tokens":9}"#;

/// The same chat, not streamed.
pub(crate) const WHOLE: &str =
    r#"{"model":"m","messages":[{"role":"user","content":"CANARY"}],"max_tokens":9}"#;

/// A context reply that makes a generation leg due.
pub(crate) const DUE: &str = r#"{"id":"chatcmpl-1","object":"chat.completion","created":1790000000,"model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"CANARY-FIRST"},"logprobs":null,"finish_reason":"length","stop_reason":null,"disaggregated_params":{"request_type":"context_only","first_gen_tokens":[4321],"ctx_request_id":77,"encoded_opaque_state":"CANARYSTATEQUFBQUFBQUFBQUFBQUFBQUFBQQ==","disagg_request_id":4398046511111,"ctx_dp_rank":0,"ctx_info_endpoint":"tcp://10.0.0.5:37771","schedule_style":0,"ctx_usage":null,"resolved_thinking":true}}],"usage":{"prompt_tokens":3,"total_tokens":4,"completion_tokens":1},"prompt_token_ids":[1,2,3]}"#;

/// A context reply that is the whole answer.
pub(crate) const ENDED: &str = r#"{"id":"chatcmpl-1","object":"chat.completion","created":1790000000,"model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"Yes."},"logprobs":null,"finish_reason":"stop","stop_reason":null,"disaggregated_params":{"request_type":"context_only","ctx_request_id":null}}],"prompt_token_ids":[1,2,3]}"#;

/// A context worker that gave the request up.
pub(crate) const ABORTED: &str =
    r#"{"choices":[{"index":0,"message":{"content":"CANARY"},"finish_reason":"cancelled"}]}"#;

pub(crate) fn minted(body: &'static str) -> Handoff<Minted> {
    minted_for(Endpoint::Chat, body)
}

pub(crate) fn minted_for(endpoint: Endpoint, body: &'static str) -> Handoff<Minted> {
    let request = ClientRequest::parse(endpoint, Bytes::from_static(body.as_bytes())).unwrap();
    let context = "10.0.0.5:8001".parse().unwrap();
    Handoff::validated(request, context).mint(DisaggRequestId::new(ID).unwrap())
}

pub(crate) fn primed(body: &'static str, reply: &'static str, ticket: Ticket) -> Handoff<Primed> {
    let reply = ContextReply::parse(Endpoint::Chat, Bytes::from_static(reply.as_bytes())).unwrap();
    minted(body).prime_with(reply, ticket)
}

pub(crate) fn open(body: &'static str, ticket: Ticket) -> Handoff<Open> {
    match primed(body, DUE, ticket).judge() {
        Verdict::Generate(open) => open,
        Verdict::Terminal(_) => panic!("a generation leg is due"),
    }
}

/// A client's request as the layers above hand it down.
pub(crate) fn request<B>(body: B) -> Request<B> {
    Request::post("/v1/chat/completions").body(body).unwrap()
}

/// A context reply with this status.
pub(crate) fn context_reply(status: u16, body: &'static str) -> Response<Bytes> {
    let body = Bytes::from_static(body.as_bytes());
    Response::builder().status(status).header("content-type", "application/json").body(body).unwrap()
}

/// Does what a leg does when the head of the reply to `request` is here.
pub(crate) fn head_arrives(request: &Request<LegBody>, status: u16) {
    let head = request.extensions().get::<ReplyHead>().expect("a context request has a signal");
    head.arrived(StatusCode::from_u16(status).unwrap());
}

/// How the handoffs of a settler ended, in the order of the counts.
pub(crate) fn ends(settler: &Settler) -> Vec<&'static str> {
    let counts = settler.counts();
    [
        ("collected", counts.collected),
        ("released", counts.released),
        ("refused", counts.refused),
        ("failed", counts.failed),
        ("abandoned", counts.abandoned),
    ]
    .into_iter()
    .flat_map(|(name, count)| (0..count).map(move |_| name))
    .collect()
}

/// Lets the tasks in the background run until there is nothing left for them to do.
pub(crate) async fn background() {
    for _ in 0..32 {
        tokio::task::yield_now().await;
    }
}

/// A body that is written as the test goes along.
pub(crate) struct Pipe {
    frames: mpsc::UnboundedReceiver<Result<Frame<Bytes>, BoxError>>,
    size: SizeHint,
    seen: Arc<Seen>,
}

/// Writes a [`Pipe`], and knows what became of it.
pub(crate) struct PipeEnd {
    frames: Option<mpsc::UnboundedSender<Result<Frame<Bytes>, BoxError>>>,
    seen: Arc<Seen>,
}

#[derive(Default)]
struct Seen {
    bytes: AtomicUsize,
    dropped: AtomicBool,
}

pub(crate) fn pipe() -> (Pipe, PipeEnd) {
    let (sender, frames) = mpsc::unbounded_channel();
    let seen = Arc::new(Seen::default());
    (Pipe { frames, size: SizeHint::new(), seen: seen.clone() }, PipeEnd { frames: Some(sender), seen })
}

impl Pipe {
    /// Says that so many bytes are to come.
    pub(crate) fn announcing(mut self, bytes: u64) -> Self {
        self.size = SizeHint::with_exact(bytes);
        self
    }
}

impl PipeEnd {
    pub(crate) fn send(&self, data: impl Into<Bytes>) {
        self.frame(Ok(Frame::data(data.into())));
    }

    pub(crate) fn fail(&self) {
        self.frame(Err("reset".into()));
    }

    pub(crate) fn end(&mut self) {
        self.frames = None;
    }

    /// How many bytes have been read.
    pub(crate) fn read(&self) -> usize {
        self.seen.bytes.load(Ordering::Relaxed)
    }

    pub(crate) fn is_dropped(&self) -> bool {
        self.seen.dropped.load(Ordering::Relaxed)
    }

    fn frame(&self, frame: Result<Frame<Bytes>, BoxError>) {
        if let Some(frames) = &self.frames {
            // Nobody may be reading any more.
            let _ = frames.send(frame);
        }
    }
}

impl Body for Pipe {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let frame = ready!(self.frames.poll_recv(cx));
        if let Some(Ok(frame)) = &frame {
            let bytes = frame.data_ref().map_or(0, Bytes::len);
            self.seen.bytes.fetch_add(bytes, Ordering::Relaxed);
        }
        Poll::Ready(frame)
    }

    fn size_hint(&self) -> SizeHint {
        self.size
    }
}

impl Drop for Pipe {
    fn drop(&mut self) {
        self.seen.dropped.store(true, Ordering::Relaxed);
    }
}

impl std::fmt::Debug for Pipe {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Pipe")
    }
}
