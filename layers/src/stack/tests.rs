use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response};
use http_body_util::BodyExt;
use tokio_test::{assert_ready_ok, task};
use tower_layer::Layer;

use super::{HandoffBody, HandoffLayer, HandoffService};
use crate::{
    leg::LegBody,
    mint::RandomIds,
    test_util::{LegDouble, LegHandle, LegReply, ScriptedBody, leg},
};

mod handoff;
mod passthrough;
mod settings;
mod whole;

/// Stands in every request and reply; must never be in a text that people get to see.
const CANARY: &str = "CANARY-5f3a";
const CHAT: &str = r#"{"model":"m","messages":[{"role":"user","content":"CANARY-5f3a"}],"stream":true}"#;
const WORKER: &str = "10.0.0.5:8001";

type Client = LegDouble<Request<LegBody>, Response<ScriptedBody>>;
type ContextLeg = LegDouble<Request<LegBody>, Response<Bytes>>;
type Stack<M = RandomIds> = HandoffService<Client, ContextLeg, M>;
type Body = HandoffBody<ScriptedBody>;

/// The stack between two doubles.
struct Rig<M = RandomIds> {
    service: Stack<M>,
    context: LegHandle<Request<LegBody>, Response<Bytes>>,
    client: LegHandle<Request<LegBody>, Response<ScriptedBody>>,
}

fn rig() -> Rig {
    rig_of(|layer| layer)
}

fn rig_of<M>(set: impl FnOnce(HandoffLayer<ContextLeg>) -> HandoffLayer<ContextLeg, M>) -> Rig<M> {
    let (context_leg, context) = leg();
    let (send, client) = leg();
    Rig { service: set(HandoffLayer::new(context_leg)).layer(send), context, client }
}

impl<M> Rig<M> {
    fn context_request(&mut self) -> (Request<LegBody>, LegReply<Response<Bytes>>) {
        self.context.try_next().expect("the context worker was not called")
    }

    fn client_request(&mut self) -> (Request<LegBody>, LegReply<Response<ScriptedBody>>) {
        self.client.try_next().expect("the generation worker was not called")
    }

    fn assert_untouched(&mut self) {
        assert!(self.context.try_next().is_none(), "the context worker was called");
        assert!(self.client.try_next().is_none(), "the generation worker was called");
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

fn whole(text: impl Into<Bytes>) -> ScriptedBody {
    ScriptedBody::new().data(text)
}

/// The text of a request to a worker.
fn text(request: Request<LegBody>) -> String {
    String::from_utf8(request.into_body().into_bytes().to_vec()).unwrap()
}

fn json(request: Request<LegBody>) -> serde_json::Value {
    serde_json::from_str(&text(request)).unwrap()
}

/// What the context worker answers to a request that it was sent.
fn context_reply(asked: &serde_json::Value, finish_reason: &str) -> Response<Bytes> {
    let id = &asked["disaggregated_params"]["disagg_request_id"];
    let params = format!(
        r#"{{"request_type":"context_only","first_gen_tokens":[32],"ctx_request_id":{id},"encoded_opaque_state":"{CANARY}","draft_tokens":null,"disagg_request_id":{id},"ctx_dp_rank":0,"ctx_info_endpoint":"tcp://10.0.0.9:5555","schedule_style":0}}"#
    );
    let text = format!(
        r#"{{"id":"c","object":"chat.completion","created":1,"model":"m","choices":[{{"index":0,"message":{{"role":"assistant","content":"{CANARY}"}},"finish_reason":"{finish_reason}","disaggregated_params":{params}}}],"usage":{{"prompt_tokens":3,"completion_tokens":1,"total_tokens":4}},"prompt_token_ids":[1,2,3]}}"#
    );
    Response::builder().header("content-type", "application/json").body(text.into()).unwrap()
}

fn stream(body: ScriptedBody) -> Response<ScriptedBody> {
    Response::builder().header("content-type", "text/event-stream").body(body).unwrap()
}

/// All of a response body that has no more to wait for.
fn read(body: Body) -> Bytes {
    assert_ready_ok!(task::spawn(body.collect()).poll()).to_bytes()
}

fn values<'a>(headers: &'a HeaderMap, name: &str) -> Vec<&'a str> {
    headers.get_all(name).iter().map(|value| value.to_str().unwrap()).collect()
}
