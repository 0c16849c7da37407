//! Context, terminal and generation layer together, between workers that are played by the test.

use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body as _;
use http_body_util::BodyExt;
use tokio::time::advance;
use tokio_test::{assert_pending, assert_ready, assert_ready_err, assert_ready_ok, task};
use tower::{Service, ServiceBuilder, ServiceExt};

use crate::{
    context::{Context, ContextFuture, ContextLayer},
    error::{BoxError, ContextError, GenerationError, find},
    generation::{Generation, GenerationLayer, RelayBody},
    leg::LegBody,
    settle::Settler,
    terminal::{Terminal, TerminalBody, TerminalLayer},
    test_util::{LegDouble, LegHandle, LegReply, leg},
    tests::handoffs::*,
};

mod orders;

type ContextLeg = LegDouble<Request<LegBody>, Response<Bytes>>;
type GenerationLeg = LegDouble<Request<LegBody>, Response<Pipe>>;
type Body = TerminalBody<RelayBody<Pipe>>;
type Call = task::Spawn<ContextFuture<Body>>;

const BOUND: Duration = Duration::from_secs(30);

struct Chain {
    service: Context<Terminal<Generation<GenerationLeg>>, ContextLeg>,
    context: LegHandle<Request<LegBody>, Response<Bytes>>,
    generation: LegHandle<Request<LegBody>, Response<Pipe>>,
    settler: Settler,
}

fn chain(settler: Settler) -> Chain {
    let (context_leg, context) = leg();
    let (generation_leg, generation) = leg();
    let service = ServiceBuilder::new()
        .layer(ContextLayer::new(context_leg).settle(settler.clone()))
        .layer(TerminalLayer::new())
        .layer(GenerationLayer::new())
        .service(generation_leg);
    Chain { service, context, generation, settler }
}

impl Chain {
    async fn call(&mut self, client: &'static str) -> (Call, Request<LegBody>, LegReply<Response<Bytes>>) {
        let mut call = task::spawn(self.service.ready().await.unwrap().call(request(minted(client))));
        assert_pending!(call.poll());
        let (sent, reply) = self.context.try_next().unwrap();
        (call, sent, reply)
    }

    /// A call whose generation leg runs.
    async fn generating(&mut self, client: &'static str) -> (Call, LegReply<Response<Pipe>>) {
        let (mut call, _, mut reply) = self.call(client).await;
        reply.send_response(context_reply(200, DUE));
        assert_pending!(call.poll());
        let (_, reply) = self.generation.try_next().expect("generation is due");
        (call, reply)
    }

    fn ends(&self) -> Vec<&'static str> {
        ends(&self.settler)
    }
}

fn answer(media: &str, status: u16) -> (Response<Pipe>, PipeEnd) {
    let (body, end) = pipe();
    (Response::builder().status(status).header("content-type", media).body(body).unwrap(), end)
}

const EVENTS: &str = "text/event-stream";
const JSON: &str = "application/json";

#[tokio::test]
async fn the_client_sees_the_generation_reply_and_nothing_else() {
    for (client, media, sent, seen) in [
        (STREAMED, EVENTS, "data: {\"a\":1}\n\ndata: [DONE]\n\n", "data: {\"a\":1}\n\ndata: [DONE]\n\n"),
        (WHOLE, JSON, r#"{"choices":[{"disaggregated_params":1}],"x":1}"#, r#"{"choices":[{}],"x":1}"#),
    ] {
        let mut c = chain(Settler::new(BOUND));
        let (mut call, _, mut reply) = c.call(client).await;
        let mut context = context_reply(200, DUE);
        context.headers_mut().insert("x-context", "CANARY".parse().unwrap());
        reply.send_response(context);
        assert_pending!(call.poll());
        let (_, mut reply) = c.generation.try_next().unwrap();
        let (response, mut end) = answer(media, 200);
        reply.send_response(response);
        end.send(sent);
        end.end();
        let response = assert_ready_ok!(call.poll());
        assert!(!response.headers().contains_key("x-context"));
        assert!(!format!("{response:?}").contains(CANARY));
        assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), seen);
        assert_eq!((c.ends(), c.settler.active()), (vec!["collected"], 0));
        assert!(c.generation.try_next().is_none() && c.context.try_next().is_none(), "one leg each");
    }
}

#[tokio::test]
async fn a_terminal_reply_needs_no_generation_worker() {
    for client in [STREAMED, WHOLE] {
        let mut c = chain(Settler::new(BOUND));
        c.generation.fail_ready("gone");
        let (mut call, request, mut reply) = c.call(client).await;
        head_arrives(&request, 200);
        reply.send_response(context_reply(200, ENDED));
        let response = assert_ready_ok!(call.poll());
        // The client leaves before it has read the answer: nothing was held.
        drop((call, response));
        assert!(c.generation.try_next().is_none());
        assert_eq!((c.ends(), c.settler.active()), (vec!["released"], 0));
    }
}

#[tokio::test(start_paused = true)]
async fn a_terminal_reply_that_comes_after_the_client_left_is_released() {
    let mut c = chain(Settler::new(BOUND));
    let (call, request, mut reply) = c.call(STREAMED).await;
    head_arrives(&request, 200);
    drop(call);
    assert_eq!(c.settler.active(), 1);
    reply.send_response(context_reply(200, ENDED));
    background().await;
    assert!(c.generation.try_next().is_none());
    assert_eq!((c.ends(), c.settler.active(), c.settler.counts().settled), (vec!["released"], 0, 1));
}

#[tokio::test]
async fn errors_say_which_leg_failed() {
    let mut c = chain(Settler::new(BOUND));
    let (mut call, _, mut reply) = c.call(STREAMED).await;
    reply.send_error("reset");
    assert!(find::<ContextError>(&*assert_ready_err!(call.poll())).is_some());
    let (mut call, mut reply) = c.generating(STREAMED).await;
    reply.send_error("reset");
    assert!(find::<GenerationError>(&*assert_ready_err!(call.poll())).is_some());
    drop(call);
    assert_eq!((c.ends(), c.settler.active()), (vec!["failed"], 0));
}

/// Reading a reply to its end, or an error, is for a client; nobody is there.
#[tokio::test(start_paused = true)]
async fn a_settled_call_is_left_as_soon_as_its_handoff_has_ended() {
    for (media, status, sent, expected) in
        [(JSON, 200, "{", "collected"), (EVENTS, 200, "d", "collected"), (JSON, 500, "", "refused")]
    {
        let mut c = chain(Settler::new(BOUND));
        let (call, mut reply) = c.generating(WHOLE).await;
        drop(call);
        let (response, end) = answer(media, status);
        reply.send_response(response);
        background().await;
        if !sent.is_empty() {
            assert_eq!((c.ends(), c.settler.active()), (vec![], 1));
            end.send(sent);
        }
        background().await;
        assert_eq!((c.ends(), c.settler.active()), (vec![expected], 0), "{media} {status}");
        assert!(end.is_dropped(), "the rest is not generated for nobody: {media} {status}");
    }
}

/// A layer in between gives up: the generation leg is held to its first byte all the same, by the layer it is in.
#[tokio::test(start_paused = true)]
async fn a_timeout_between_context_and_generation_leaves_a_leg_that_is_finished() {
    let settler = Settler::new(BOUND);
    let (context_leg, mut contexts) = leg::<Request<LegBody>, Response<Bytes>>();
    let (generation_leg, mut generations) = leg::<Request<LegBody>, Response<Pipe>>();
    let mut service = ServiceBuilder::new()
        .layer(ContextLayer::new(context_leg).settle(settler.clone()))
        .timeout(Duration::from_secs(5))
        .layer(TerminalLayer::new())
        .layer(GenerationLayer::new())
        .service(generation_leg);
    let mut call = task::spawn(service.ready().await.unwrap().call(request(minted(STREAMED))));
    assert_pending!(call.poll());
    contexts.try_next().unwrap().1.send_response(context_reply(200, DUE));
    assert_pending!(call.poll());
    let (_, mut reply) = generations.try_next().unwrap();
    advance(Duration::from_secs(5)).await;
    let error = assert_ready_err!(call.poll());
    assert!(error.is::<tower::timeout::error::Elapsed>());
    assert!(!reply.is_cancelled());
    assert_eq!((ends(&settler), settler.active()), (vec![], 1), "once, not by both layers");
    drop(call);
    let (response, end) = answer(EVENTS, 200);
    reply.send_response(response);
    end.send("x");
    background().await;
    assert_eq!((ends(&settler), settler.active(), end.is_dropped()), (vec!["collected"], 0, true));

    // The client has left, and then the layer in between gives up as well: that is a failure, and no second try.
    let mut call = task::spawn(service.ready().await.unwrap().call(request(minted(STREAMED))));
    assert_pending!(call.poll());
    contexts.try_next().unwrap().1.send_response(context_reply(200, DUE));
    assert_pending!(call.poll());
    let (_, reply) = generations.try_next().unwrap();
    drop(call);
    background().await;
    assert_eq!(settler.active(), 1);
    advance(Duration::from_secs(5)).await;
    background().await;
    assert_eq!((ends(&settler), settler.active()), (vec!["collected", "failed"], 0));
    assert!(reply.is_cancelled());
}

/// A layer in between takes the reply's body and puts another in its place.
#[tokio::test(start_paused = true)]
async fn a_body_that_is_replaced_on_the_way_is_held_to_its_first_byte() {
    for leaves in [false, true] {
        let settler = Settler::new(BOUND);
        let (context_leg, mut contexts) = leg::<Request<LegBody>, Response<Bytes>>();
        let (generation_leg, mut generations) = leg::<Request<LegBody>, Response<Pipe>>();
        let mut service = ServiceBuilder::new()
            .layer(ContextLayer::new(context_leg).settle(settler.clone()))
            .map_response(|response: Response<Body>| response.map(|_| http_body_util::Empty::<Bytes>::new()))
            .layer(TerminalLayer::new())
            .layer(GenerationLayer::new())
            .service(generation_leg);
        let mut call = task::spawn(service.ready().await.unwrap().call(request(minted(STREAMED))));
        assert_pending!(call.poll());
        contexts.try_next().unwrap().1.send_response(context_reply(200, DUE));
        assert_pending!(call.poll());
        let (_, mut reply) = generations.try_next().unwrap();
        let (response, end) = answer(EVENTS, 200);
        if leaves {
            drop(call);
            reply.send_response(response);
            background().await;
            // Nothing came of what was being finished.
            assert_eq!((ends(&settler), settler.active()), (vec!["failed"], 0));
        } else {
            reply.send_response(response);
            drop(assert_ready_ok!(call.poll()));
            drop(call);
            assert_eq!((ends(&settler), settler.active(), end.is_dropped()), (vec![], 1, false));
            end.send("x");
            background().await;
            assert_eq!((ends(&settler), settler.active(), end.is_dropped()), (vec!["collected"], 0, true));
        }
    }
}

/// What is not ready when the reply is here is waited for by whoever is there, client or settlement.
#[tokio::test(start_paused = true)]
async fn a_client_that_leaves_while_the_generation_worker_is_busy() {
    let mut c = chain(Settler::new(BOUND));
    c.generation.block();
    let (mut call, _, mut reply) = c.call(STREAMED).await;
    reply.send_response(context_reply(200, DUE));
    assert_pending!(call.poll());
    drop(call);
    background().await;
    assert!(c.generation.try_next().is_none());
    c.generation.allow(1);
    background().await;
    let (_, mut reply) = c.generation.try_next().unwrap();
    let (response, end) = answer(EVENTS, 200);
    reply.send_response(response);
    end.send("x");
    background().await;
    assert_eq!((c.ends(), c.settler.active()), (vec!["collected"], 0));
}

#[tokio::test]
async fn a_stream_that_breaks_keeps_what_came_before() {
    let mut c = chain(Settler::new(BOUND));
    let (mut call, mut reply) = c.generating(STREAMED).await;
    let (response, end) = answer(EVENTS, 200);
    reply.send_response(response);
    let mut body = task::spawn(assert_ready_ok!(call.poll()).into_body());
    end.send("data: 1\n\n");
    end.fail();
    let frame = assert_ready!(body.enter(|cx, body| body.poll_frame(cx))).unwrap().unwrap();
    assert_eq!(frame.into_data().unwrap(), "data: 1\n\n");
    let error: BoxError = assert_ready!(body.enter(|cx, body| body.poll_frame(cx))).unwrap().unwrap_err();
    assert_eq!(find::<GenerationError>(&*error).unwrap().reply().code, "generation_interrupted");
}
