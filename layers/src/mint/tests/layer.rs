//! The layer: what it adds to requests and responses, and how it gets out of the way.

use std::{
    error::Error,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use tokio_test::{assert_pending, assert_ready, assert_ready_err, assert_ready_ok, task};
use tower_layer::Layer;
use tower_service::Service;
use tower_test::mock::{self, Mock};

use crate::{
    error::{BoxError, ErrorReply, find},
    handoff::{Handoff, Minted, Validated},
    mint::{IdError, IdErrorKind, MakeDisaggRequestId, Mint, MintFuture, MintLayer, RandomIds},
    test_util::{
        LegDouble, LegHandle, Probe, assert_future_traits, assert_layer_traits, assert_service_traits, leg,
    },
    trtllm::{ClientRequest, DisaggRequestId, Endpoint},
};

pub(super) const BODY: &str = r#"{"messages":[{"role":"user","content":"CANARY-5f3a"}]}"#;
const FIRST: u64 = 1 << 50;

type Sent = Request<Handoff<Minted>>;
type Reply = Response<String>;

pub(super) fn handoff() -> Handoff<Validated> {
    let request = ClientRequest::parse(Endpoint::Chat, Bytes::from_static(BODY.as_bytes())).unwrap();
    Handoff::validated(request, "10.0.0.5:8001".parse().unwrap())
}

fn request() -> Request<Handoff<Validated>> {
    Request::post("/v1/chat/completions?q").header("x-custom", "1").extension(7_u8).body(handoff()).unwrap()
}

/// One after the other.
#[derive(Debug)]
pub(super) struct Counting(AtomicU64);

impl Counting {
    pub(super) fn new() -> Self {
        Self(AtomicU64::new(FIRST))
    }

    fn made(&self) -> u64 {
        self.0.load(Ordering::Relaxed) - FIRST
    }
}

impl MakeDisaggRequestId for Counting {
    fn make(&self) -> Result<DisaggRequestId, IdError> {
        DisaggRequestId::new(self.0.fetch_add(1, Ordering::Relaxed)).ok_or_else(IdError::exhausted)
    }
}

fn mocked() -> (Mint<Mock<Sent, Reply>, Counting>, mock::Handle<Sent, Reply>) {
    let (inner, handle) = mock::pair();
    (MintLayer::new(Counting::new()).layer(inner), handle)
}

fn doubled() -> (Mint<LegDouble<Sent, Reply>, Counting>, LegHandle<Sent, Reply>) {
    let (inner, handle) = leg();
    (MintLayer::new(Counting::new()).layer(inner), handle)
}

fn poll_ready<S: Service<Request<Handoff<Validated>>>>(
    service: &mut S,
) -> std::task::Poll<Result<(), S::Error>> {
    task::spawn(()).enter(|cx, _| service.poll_ready(cx))
}

#[test]
fn the_inner_service_gets_the_request_with_an_id() {
    let (mut service, mut handle) = doubled();
    assert_ready_ok!(poll_ready(&mut service));
    let sent = request();
    let text = sent.body().request().body().clone();
    let mut call = task::spawn(service.call(sent));
    assert_pending!(call.poll());

    let (seen, mut reply) = handle.try_next().unwrap();
    assert_eq!((seen.method(), seen.uri()), (&Method::POST, &"/v1/chat/completions?q".parse().unwrap()));
    assert_eq!(seen.headers().len(), 1);
    assert_eq!(seen.headers()["x-custom"], "1");
    assert_eq!(seen.extensions().get::<u8>(), Some(&7));
    assert_eq!(seen.body().id().get(), FIRST);
    assert_eq!(seen.extensions().get::<DisaggRequestId>(), Some(&seen.body().id()));
    assert_eq!(seen.body().request().body().as_ptr(), text.as_ptr());
    assert_eq!(seen.body().context_endpoint().as_str(), "10.0.0.5:8001");

    reply.send_response(
        Response::builder().status(201).header("x-worker", "7").body("text".to_owned()).unwrap(),
    );
    let response = assert_ready_ok!(call.poll());
    assert_eq!(response.extensions().get::<DisaggRequestId>().unwrap().get(), FIRST);
    assert_eq!(
        (response.status(), &response.headers()["x-worker"]),
        (StatusCode::CREATED, &"7".parse().unwrap())
    );
    assert_eq!(response.headers().len(), 1, "a client is told nothing of the id");
    assert_eq!(response.into_body(), "text");
}

#[test]
fn each_request_has_an_id_of_its_own_whoever_is_called() {
    let layer = MintLayer::new(Counting::new());
    let (inner, mut handle) = leg::<Sent, Reply>();
    let mut first = layer.layer(inner.clone());
    let mut second = layer.clone().layer(inner.clone());
    let mut third = first.clone();
    let mut ids = Vec::new();
    for service in [&mut first, &mut second, &mut third, &mut layer.layer(inner)] {
        assert_ready_ok!(poll_ready(service));
        drop(service.call(request()));
        ids.push(handle.try_next().unwrap().0.body().id().get() - FIRST);
    }
    assert_eq!(ids, [0, 1, 2, 3]);
}

#[test]
fn an_id_belongs_to_an_attempt_even_if_nothing_comes_of_it() {
    let (mut service, mut handle) = doubled();
    for attempt in 0..3 {
        assert_ready_ok!(poll_ready(&mut service));
        let call = task::spawn(service.call(request()));
        let (seen, reply) = handle.try_next().unwrap();
        drop(call);
        assert!(reply.is_cancelled());
        assert_eq!(seen.body().id().get(), FIRST + attempt);
    }
}

#[test]
fn readiness_is_that_of_the_inner_service() {
    let ids = Arc::new(Counting::new());
    let (inner, mut handle) = mock::pair::<Sent, Reply>();
    let mut service = task::spawn(MintLayer::new(ids.clone()).layer(inner));
    handle.allow(0);
    assert_pending!(service.enter(|cx, mut service| service.poll_ready(cx)));
    assert!(!service.is_woken());
    handle.allow(1);
    assert!(service.is_woken());
    assert_ready_ok!(service.enter(|cx, mut service| service.poll_ready(cx)));
    assert_pending!(task::spawn(handle.next_request()).poll());
    assert_eq!(ids.made(), 0, "an id before there is a request");
}

#[test]
fn errors_of_readiness_and_of_the_call_pass_as_they_are() {
    let (mut service, mut handle) = mocked();
    handle.allow(1);
    assert_ready_ok!(poll_ready(&mut service));
    let mut call = task::spawn(service.call(request()));
    let (_, reply) = assert_ready!(task::spawn(handle.next_request()).poll()).unwrap();
    reply.send_error(IdError::failed("the cause"));
    let error = assert_ready_err!(call.poll());
    assert!(error.is::<IdError>(), "it was wrapped: {error:?}");
    assert_eq!(error.source().unwrap().to_string(), "the cause");

    handle.send_error("the leg is gone");
    assert_eq!(assert_ready_err!(poll_ready(&mut service)).to_string(), "the leg is gone");
}

#[test]
fn without_an_id_nothing_is_sent() {
    let (inner, mut handle) = leg::<Sent, Reply>();
    let maker = || Err::<DisaggRequestId, _>(IdError::failed("no entropy"));
    let mut service = MintLayer::new(maker).layer(inner);
    assert_ready_ok!(poll_ready(&mut service));
    let mut call = task::spawn(service.call(request()));
    let error = assert_ready_err!(call.poll());
    assert!(handle.try_next().is_none());
    let found = find::<IdError>(&*error).unwrap();
    assert_eq!(found.kind(), IdErrorKind::Source);
    assert_eq!(found.source().unwrap().to_string(), "no entropy");
    // The cause is for logs.
    let reply = ErrorReply::of(&*error);
    assert_eq!((reply.status.as_u16(), reply.code), (500, "internal_error"));
    assert!(!reply.message.contains("entropy"));
}

#[test]
fn a_failed_id_does_not_use_up_the_place_that_was_reserved() {
    let (inner, mut handle) = leg::<Sent, Reply>();
    let ids = Counting::new();
    let maker = move || match ids.make()? {
        id if id.get() == FIRST => Err(IdError::exhausted()),
        id => Ok(id),
    };
    let mut service = MintLayer::new(maker).layer(inner);
    handle.allow(1);
    assert_ready_ok!(poll_ready(&mut service));
    assert_ready_err!(task::spawn(service.call(request())).poll());
    assert_ready_ok!(poll_ready(&mut service));
    assert_pending!(task::spawn(service.call(request())).poll());
    assert_eq!(handle.try_next().unwrap().0.body().id().get(), FIRST + 1);
}

#[test]
fn who_leaves_takes_the_call_along_and_after_the_response_nothing() {
    let (mut service, mut handle) = doubled();
    // Before the first poll.
    assert_ready_ok!(poll_ready(&mut service));
    let call = service.call(request());
    let (_, reply) = handle.try_next().unwrap();
    drop(call);
    assert!(reply.is_cancelled());
    // While it waits.
    assert_ready_ok!(poll_ready(&mut service));
    let mut call = task::spawn(service.call(request()));
    assert_pending!(call.poll());
    let (_, reply) = handle.try_next().unwrap();
    drop(call);
    assert!(reply.is_cancelled());
    // After the response.
    assert_ready_ok!(poll_ready(&mut service));
    let mut call = task::spawn(service.call(request()));
    let (_, mut reply) = handle.try_next().unwrap();
    reply.send_response(Response::default());
    assert_ready_ok!(call.poll());
    drop(call);
    assert!(!reply.is_cancelled());
}

#[test]
fn a_clone_is_not_ready() {
    let (mut service, handle) = doubled();
    handle.allow(1);
    assert_ready_ok!(poll_ready(&mut service));
    let mut clone = service.clone();
    assert_pending!(poll_ready(&mut clone));
    // The one that was ready can be called; the double would panic otherwise.
    drop(service.call(request()));
    handle.unblock();
    assert_ready_ok!(poll_ready(&mut clone));
    drop(clone.call(request()));
}

#[tokio::test]
async fn each_call_is_made_on_the_service_that_was_ready() {
    let inner = Probe::new(tower::service_fn(async |_: Sent| Ok::<_, BoxError>(Response::new(()))));
    let counts = inner.counts();
    let mut service = MintLayer::default().layer(inner);
    for _ in 0..3 {
        let ready = tower::ServiceExt::<Request<Handoff<Validated>>>::ready(&mut service).await.unwrap();
        ready.call(request()).await.unwrap();
    }
    assert_eq!((counts.calls(), counts.drops()), (3, 0));
}

#[test]
fn everything_can_be_shared_and_shown() {
    type Service = Mint<LegDouble<Sent, Reply>, RandomIds>;
    assert_layer_traits::<MintLayer>();
    assert_layer_traits::<MintLayer<Counting>>();
    assert_service_traits::<Service>();
    assert_future_traits::<MintFuture<crate::test_util::LegDoubleFuture<Reply>>>();

    let (mut service, handle) = doubled();
    assert_ready_ok!(poll_ready(&mut service));
    let call = service.call(request());
    for shown in [format!("{service:?}"), format!("{call:?}"), format!("{handle:?}")] {
        assert!(!shown.contains("CANARY"), "{shown}");
    }
    let shown = format!("{:?}", MintLayer::default());
    assert!(shown.contains("RandomIds"), "{shown}");
}

#[test]
fn helpers_give_the_types_they_say() {
    let layer: MintLayer = MintLayer::default();
    let service: Mint<u8, RandomIds> = layer.layer(7);
    assert_eq!((service.get_ref(), service.clone().into_inner()), (&7, 7));
    // The maker need not be `Clone`, and is shared.
    let layer: MintLayer<Counting> = MintLayer::new(Counting::new());
    let _: [Mint<(), Counting>; 2] = [layer.layer(()), layer.clone().layer(())];
    let direct: Mint<u8, Counting> = Mint::new(1, Arc::new(Counting::new()));
    assert_eq!(direct.into_inner(), 1);
}
