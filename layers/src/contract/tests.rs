use std::task::Poll;

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response};
use tokio_test::task::{self, Spawn};
use tower_layer::Layer;
use tower_service::Service;

use super::{Contract, ContractFuture, ContractLayer, PassthroughBody};
use crate::{
    error::{BoxError, ErrorReply},
    handoff::{Handoff, Validated},
    test_util::{LegDouble, LegDoubleFuture, LegHandle, LegReply, ScriptHandle, ScriptedBody, leg},
};

mod allow;
mod bodies;
mod calls;
mod compose;
mod decide;
mod passthrough;
mod types;
mod upload;

/// Stands in every body here; must never be in a text that people get to see.
const CANARY: &str = "CANARY-5f3a";
const CHAT: &str = r#"{"model":"m","messages":[{"role":"user","content":"CANARY-5f3a"}]}"#;
const WORKER: &str = "10.0.0.5:8001";

type Reply = Response<ScriptedBody>;
type Handed = Request<Handoff<Validated>>;
type Passed = Request<PassthroughBody<ScriptedBody>>;
type Future = ContractFuture<
    ScriptedBody,
    LegDouble<Handed, Reply>,
    LegDouble<Passed, Reply>,
    LegDoubleFuture<Reply>,
    LegDoubleFuture<Reply>,
>;

/// The service between two doubles.
struct Rig {
    service: Contract<LegDouble<Handed, Reply>, LegDouble<Passed, Reply>>,
    inner: LegHandle<Handed, Reply>,
    passthrough: LegHandle<Passed, Reply>,
}

fn rig() -> Rig {
    rig_of(|layer| layer)
}

fn rig_of(
    set: impl FnOnce(ContractLayer<LegDouble<Passed, Reply>>) -> ContractLayer<LegDouble<Passed, Reply>>,
) -> Rig {
    let (client, passthrough) = leg();
    let (next, inner) = leg();
    Rig { service: set(ContractLayer::new(client)).layer(next), inner, passthrough }
}

impl Rig {
    /// Calls the service as its callers have to: only when it is ready, which it always is.
    fn call(&mut self, request: Request<ScriptedBody>) -> Spawn<Future> {
        let ready = task::spawn(())
            .enter(|cx, _| Service::<Request<ScriptedBody>>::poll_ready(&mut self.service, cx));
        assert!(matches!(ready, Poll::Ready(Ok(()))));
        task::spawn(self.service.call(request))
    }

    /// Neither service has been called since somebody looked.
    fn assert_untouched(&mut self) {
        assert!(self.inner.try_next().is_none(), "the inner service was called");
        assert!(self.passthrough.try_next().is_none(), "the passthrough service was called");
    }

    fn handed(&mut self) -> (Handed, LegReply<Reply>) {
        let call = self.inner.try_next().expect("the inner service was not called");
        assert!(self.passthrough.try_next().is_none(), "both services were called");
        call
    }

    fn passed(&mut self) -> (Passed, LegReply<Reply>) {
        let call = self.passthrough.try_next().expect("the passthrough service was not called");
        assert!(self.inner.try_next().is_none(), "both services were called");
        call
    }
}

fn request<B>(method: Method, path: &str, headers: &[(&str, &str)], body: B) -> Request<B> {
    let mut request = Request::builder().method(method).uri(path);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    request.body(body).unwrap()
}

/// A chat request that names a context worker.
fn chat<B>(body: B) -> Request<B> {
    request(Method::POST, "/v1/chat/completions", &[("x-prefiller-host-port", WORKER)], body)
}

/// A chat request that names none.
fn plain<B>(body: B) -> Request<B> {
    request(Method::POST, "/v1/chat/completions", &[], body)
}

fn whole(text: impl Into<Bytes>) -> ScriptedBody {
    ScriptedBody::new().data(text)
}

/// A body, and what watches it.
fn watched(body: ScriptedBody) -> (ScriptedBody, ScriptHandle) {
    let handle = body.handle();
    (body, handle)
}

fn text_of(body: PassthroughBody<ScriptedBody>) -> Bytes {
    body.into_inner().expect("the body was not read").into_bytes()
}

/// What the client would be told, as (status, code, param); and nothing of its content.
fn told(error: &BoxError) -> (u16, &'static str, Option<String>) {
    let reply = ErrorReply::of(&**error);
    assert!(!reply.message.contains(CANARY), "{}", reply.message);
    assert!(!format!("{error:?}").contains(CANARY), "{error:?}");
    (reply.status.as_u16(), reply.code, reply.param)
}

fn values<'a>(headers: &'a HeaderMap, name: &str) -> Vec<&'a str> {
    headers.get_all(name).iter().map(|value| value.to_str().unwrap()).collect()
}
