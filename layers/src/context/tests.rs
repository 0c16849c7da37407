use bytes::Bytes;
use http::{Request, Response};
use tokio_test::{assert_pending, assert_ready_ok, task};
use tower::{Layer, Service, ServiceExt};

use super::*;
use crate::{
    handoff::{Handoff, Primed},
    leg::LegBody,
    settle::Settler,
    test_util::{LegDouble, LegHandle, LegReply, ScriptedBody, leg},
    tests::handoffs::*,
};

mod leaving;
mod replies;
mod request;
mod sequence;

type Leg = LegDouble<Request<LegBody>, Response<Bytes>>;
type Inner = LegDouble<Request<Handoff<Primed>>, Response<ScriptedBody>>;
type Call = task::Spawn<ContextFuture<ScriptedBody>>;

struct Setup {
    service: Context<Inner, Leg>,
    leg: LegHandle<Request<LegBody>, Response<Bytes>>,
    inner: LegHandle<Request<Handoff<Primed>>, Response<ScriptedBody>>,
    settler: Settler,
}

fn setup(settler: Settler) -> Setup {
    let (leg_service, leg_handle) = leg();
    let (inner_service, inner_handle) = leg();
    let service = ContextLayer::new(leg_service).settle(settler.clone()).layer(inner_service);
    Setup { service, leg: leg_handle, inner: inner_handle, settler }
}

impl Setup {
    /// A call that was not polled.
    fn call(&mut self) -> Call {
        assert_ready_ok!(task::spawn(self.service.ready()).poll());
        task::spawn(self.service.call(handoffs_request()))
    }

    /// A call whose leg runs, with what the leg was sent.
    async fn running(&mut self) -> (Call, Request<LegBody>, LegReply<Response<Bytes>>) {
        let mut call = self.call();
        assert_pending!(call.poll());
        let (request, reply) = self.leg.try_next().expect("the leg was called");
        (call, request, reply)
    }

    fn ends(&self) -> Vec<&'static str> {
        ends(&self.settler)
    }
}

fn handoffs_request() -> Request<Handoff<crate::handoff::Minted>> {
    request(minted(STREAMED))
}
