//! Drives a `GenerationLayer` over a worker that answers what a property says, and watches what it counts.

use std::{
    collections::VecDeque,
    convert::Infallible,
    future::{Ready, ready},
    pin::{Pin, pin},
    sync::{Arc, Mutex},
    task::{Context, Poll, Waker},
};

use bytes::Bytes;
use http::{Request, Response, StatusCode, header::CONTENT_TYPE};
use http_body::{Body, Frame};
use metrics::{
    Counter, CounterFn, Gauge, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit,
    with_local_recorder,
};
use tower_disagg::{
    error::{BoxError, GenerationError, GenerationErrorKind, find},
    generation::GenerationLayer,
    handoff::{Handoff, Verdict},
    leg::LegBody,
    trtllm::{ClientRequest, ContextReply, DisaggRequestId, Endpoint},
};
use tower_layer::Layer;
use tower_service::Service;

/// What a worker answers.
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) content_type: &'static str,
    pub(crate) chunks: Vec<Bytes>,
    /// Whether the body ends with an error.
    pub(crate) breaks: bool,
}

/// What a client sees of it.
#[derive(Debug, PartialEq)]
pub(crate) enum Seen {
    /// A reply: its status, the data of each frame, and whether it broke off.
    Reply { status: StatusCode, frames: Vec<Bytes>, broke: bool },
    /// An error of the layer.
    Error(GenerationErrorKind),
}

/// Sends a request with `reply` as its context reply to a worker that gives `answer`, and reads what comes back, at
/// most `frames` of it; also the values of `end` under which streams were counted.
pub(crate) fn relay(reply: &ContextReply, answer: Answer, frames: usize) -> (Seen, Vec<String>) {
    let ends = Ends::default();
    let seen = with_local_recorder(&ends, || {
        let worker = Worker(Some(answer));
        let mut service = GenerationLayer::new().layer(worker);
        let cx = &mut Context::from_waker(Waker::noop());
        assert!(service.poll_ready(cx).is_ready());
        let mut call = pin!(service.call(handoff(reply)));
        let Poll::Ready(answer) = call.as_mut().poll(cx) else { panic!("nothing is left to wait for") };
        match answer {
            Ok(response) => read(response, frames, cx),
            Err(error) => Seen::Error(kind(&error)),
        }
    });
    (seen, ends.take())
}

fn handoff(reply: &ContextReply) -> Request<Handoff<tower_disagg::handoff::Open>> {
    let client: &[u8] = match reply.endpoint() {
        Endpoint::Chat => br#"{"messages":[],"stream":true}"#,
        Endpoint::Completions => br#"{"prompt":"a","stream":true}"#,
    };
    let client = ClientRequest::parse(reply.endpoint(), Bytes::from_static(client)).unwrap();
    let handoff = Handoff::validated(client, "h:1".parse().unwrap()).mint(DisaggRequestId::MIN);
    match handoff.prime(reply.clone()).judge() {
        Verdict::Generate(open) => Request::new(open),
        Verdict::Terminal(_) => panic!("a reply after which no generation leg is due"),
    }
}

fn read<B>(response: Response<B>, most: usize, cx: &mut Context<'_>) -> Seen
where
    B: Body<Data = Bytes, Error = BoxError> + Unpin,
{
    let (status, mut body) = (response.status(), response.into_body());
    let (mut frames, mut broke) = (Vec::new(), false);
    while frames.len() < most {
        match Pin::new(&mut body).poll_frame(cx) {
            Poll::Ready(Some(Ok(frame))) => frames.push(frame.into_data().expect("there are no trailers")),
            Poll::Ready(Some(Err(error))) => {
                assert_eq!(kind(&error), GenerationErrorKind::Interrupted);
                broke = true;
            }
            Poll::Ready(None) => break,
            Poll::Pending => panic!("nothing is left to wait for"),
        }
    }
    Seen::Reply { status, frames, broke }
}

fn kind(error: &BoxError) -> GenerationErrorKind {
    find::<GenerationError>(&**error).expect("an error of the layer").kind()
}

// === the worker ===

#[derive(Debug)]
struct Worker(Option<Answer>);

impl std::fmt::Debug for Answer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Answer({}, {} chunks)", self.status, self.chunks.len())
    }
}

impl Service<Request<LegBody>> for Worker {
    type Response = Response<Chunks>;
    type Error = Infallible;
    type Future = Ready<Result<Response<Chunks>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<LegBody>) -> Self::Future {
        let answer = self.0.take().expect("called once");
        let body = Chunks { left: answer.chunks.into(), breaks: answer.breaks };
        let mut response = Response::new(body);
        *response.status_mut() = answer.status;
        response.headers_mut().insert(CONTENT_TYPE, answer.content_type.parse().unwrap());
        ready(Ok(response))
    }
}

/// A body of these chunks, of which nothing is known in advance.
struct Chunks {
    left: VecDeque<Bytes>,
    breaks: bool,
}

impl Body for Chunks {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        Poll::Ready(match self.left.pop_front() {
            Some(chunk) => Some(Ok(Frame::data(chunk))),
            None if std::mem::take(&mut self.breaks) => Some(Err("reset".into())),
            None => None,
        })
    }
}

// === what is counted ===

/// The values of the label `end` of `disagg_generation_streams_total`, as often as it was counted.
#[derive(Debug, Clone, Default)]
struct Ends(Arc<Mutex<Vec<String>>>);

impl Ends {
    fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

#[derive(Debug)]
struct End {
    label: String,
    all: Ends,
}

impl CounterFn for End {
    fn increment(&self, value: u64) {
        assert_eq!(value, 1);
        self.all.0.lock().unwrap().push(self.label.clone());
    }

    fn absolute(&self, _: u64) {
        panic!("a count is not set");
    }
}

impl Recorder for Ends {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        if key.name() != "disagg_generation_streams_total" {
            return Counter::noop();
        }
        let labels = key.labels().map(|label| label.value()).collect::<Vec<_>>().join(",");
        Counter::from_arc(Arc::new(End { label: labels, all: self.clone() }))
    }

    fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::noop()
    }

    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::noop()
    }
}
