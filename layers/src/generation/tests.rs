use http::{Request, Response};
use tokio_test::{assert_pending, assert_ready_ok, task};
use tower::{Layer, Service, ServiceExt};

use super::*;
use crate::{
    leg::LegBody,
    settle::Settler,
    test_util::{LegDouble, LegHandle, LegReply, leg},
    tests::handoffs::*,
};

mod leaving;
mod refusals;
mod request;
mod sign;
mod stream;
mod watch;
mod whole;

type Inner = LegDouble<Request<LegBody>, Response<Pipe>>;
type Call = task::Spawn<GenerationFuture<Pipe>>;

struct Setup {
    service: Generation<Inner>,
    handle: LegHandle<Request<LegBody>, Response<Pipe>>,
    settler: Settler,
}

fn setup(layer: GenerationLayer, settler: Settler) -> Setup {
    let (inner, handle) = leg();
    Setup { service: layer.layer(inner), handle, settler }
}

impl Setup {
    /// A call that was polled, and the leg of it.
    async fn running(&mut self, client: &'static str) -> (Call, Request<LegBody>, LegReply<Response<Pipe>>) {
        let handoff = open(client, self.settler.ticket());
        let mut call = task::spawn(self.service.ready().await.unwrap().call(request(handoff)));
        assert_pending!(call.poll());
        let (sent, reply) = self.handle.try_next().expect("the leg was called");
        (call, sent, reply)
    }

    /// A call whose leg was answered with a head; the future has seen it.
    async fn answered(&mut self, head: http::response::Builder) -> (Call, Answer, PipeEnd) {
        let (mut call, _, mut reply) = self.running(STREAMED).await;
        let (body, end) = pipe();
        reply.send_response(head.body(body).unwrap());
        assert!(call.is_woken());
        let answer = match call.poll() {
            std::task::Poll::Ready(answer) => Some(answer),
            std::task::Poll::Pending => None,
        };
        (call, answer, end)
    }

    /// The body of a stream that has a head.
    async fn streaming(&mut self) -> (RelayBody<Pipe>, PipeEnd) {
        let (_, answer, end) = self.answered(events()).await;
        (answer.expect("a stream is relayed at once").unwrap().into_body(), end)
    }

    fn ends(&self) -> Vec<&'static str> {
        ends(&self.settler)
    }
}

type Answer = Option<Result<Response<RelayBody<Pipe>>, crate::error::BoxError>>;

fn events() -> http::response::Builder {
    Response::builder().header("content-type", "text/event-stream; charset=utf-8")
}

fn json() -> http::response::Builder {
    Response::builder().header("content-type", "application/json")
}
