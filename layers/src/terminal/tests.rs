use std::time::Duration;

use http::{HeaderValue, Request, Response, StatusCode};
use http_body::Body as _;
use http_body_util::BodyExt;
use tokio_test::{assert_pending, assert_ready_err, assert_ready_ok, task};
use tower::{Layer, Service, ServiceExt};

use super::*;
use crate::{
    handoff::{Handoff, Open},
    settle::Settler,
    test_util::{
        LegDouble, LegHandle, Probe, ScriptedBody, assert_body_traits, assert_future_traits,
        assert_layer_traits, assert_service_traits, leg,
    },
    tests::handoffs::*,
};

type Inner = LegDouble<Request<Handoff<Open>>, Response<ScriptedBody>>;
type Handle = LegHandle<Request<Handoff<Open>>, Response<ScriptedBody>>;

/// Whatever is asked of this settler, it would do.
fn settler() -> Settler {
    Settler::new(Duration::from_secs(30))
}

fn setup() -> (Terminal<Probe<Inner>>, Handle) {
    let (inner, handle) = leg();
    (TerminalLayer::new().layer(Probe::new(inner)), handle)
}

#[test]
fn types_can_be_shared_and_printed() {
    assert_layer_traits::<TerminalLayer>();
    assert_service_traits::<Terminal<Inner>>();
    assert_future_traits::<TerminalFuture<Inner, <Inner as Service<Request<Handoff<Open>>>>::Future>>();
    assert_body_traits::<TerminalBody<ScriptedBody>>();
    let (service, _handle) = setup();
    let _: &Probe<Inner> = service.get_ref();
    let _: Probe<Inner> = service.into_inner();
}

#[tokio::test]
async fn a_finished_request_is_answered_without_the_inner_service() {
    let whole = r#"{"id":"chatcmpl-1","object":"chat.completion","created":1790000000,"model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"Yes."},"logprobs":null,"finish_reason":"stop","stop_reason":null}]}"#;
    for (client, media, no_cache) in
        [(WHOLE, "application/json", None), (STREAMED, "text/event-stream; charset=utf-8", Some("no-cache"))]
    {
        let (mut service, mut handle) = setup();
        let counts = service.get_ref().counts();
        // A generation worker that is busy, or gone, is no reason to wait.
        handle.block();
        let settler = settler();
        let request = request(primed(client, ENDED, settler.ticket()));
        let mut call = task::spawn(service.ready().await.unwrap().call(request));
        assert_eq!(ends(&settler), ["released"], "nothing was held, whatever happens to the answer");
        let response = assert_ready_ok!(call.poll());
        assert!(!format!("{call:?}{response:?}").contains("Yes."));
        drop(call);

        assert_eq!(response.status(), StatusCode::OK);
        let header = |name: &str| response.headers().get(name).map(HeaderValue::to_str).map(Result::unwrap);
        assert_eq!((header("content-type"), header("cache-control")), (Some(media), no_cache));
        let length = response.headers().get("content-length").cloned();
        let body = response.into_body();
        let size = body.size_hint().exact().unwrap();
        let body = String::from_utf8(body.collect().await.unwrap().to_bytes().to_vec()).unwrap();
        assert_eq!(size, body.len() as u64);
        if client == WHOLE {
            assert_eq!(body, whole);
            assert_eq!(length.unwrap(), body.len().to_string().as_str());
        } else {
            assert_eq!(length, None, "as a worker's streams");
            let chunks: Vec<_> = body.split_terminator("\n\n").collect();
            assert!(chunks.iter().all(|chunk| chunk.starts_with("data: ")), "{body}");
            assert!(
                body.contains(r#""content":"Yes.""#) && body.contains(r#""finish_reason":"stop""#),
                "{body}"
            );
            assert_eq!(chunks.last(), Some(&"data: [DONE]"));
        }
        assert!(!body.contains("disaggregated_params") && !body.contains("prompt_token_ids"), "{body}");
        assert!(handle.try_next().is_none());
        assert_eq!((counts.calls(), ends(&settler), settler.active()), (0, vec!["released"], 0));
    }
}

#[tokio::test]
async fn a_dropped_answer_settles_nothing() {
    let (mut service, mut handle) = setup();
    let settler = settler();
    let call = service.ready().await.unwrap().call(request(primed(STREAMED, ENDED, settler.ticket())));
    drop(call);
    let call = service.ready().await.unwrap().call(request(primed(STREAMED, ENDED, settler.ticket())));
    drop(call.await.unwrap());
    background().await;
    assert_eq!((ends(&settler), settler.active()), (vec!["released"; 2], 0));
    assert!(handle.try_next().is_none());
}

#[tokio::test]
async fn a_generation_that_is_due_is_the_inner_services() {
    let (mut service, mut handle) = setup();
    handle.block();
    let settler = Settler::off();
    let mut client = request(primed(STREAMED, DUE, settler.ticket()));
    *client.uri_mut() = "/v1/chat/completions?a=1".parse().unwrap();
    client.headers_mut().insert("x-a", HeaderValue::from_static("b"));
    client.extensions_mut().insert(7_u8);
    let mut call = task::spawn(service.ready().await.unwrap().call(client));
    assert_pending!(call.poll());
    assert!(handle.try_next().is_none(), "not ready");
    handle.allow(1);
    assert!(call.is_woken());
    assert_pending!(call.poll());
    let (request, mut reply) = handle.try_next().unwrap();
    assert!(!format!("{call:?}{request:?}").contains(CANARY));
    assert_eq!(
        (request.method().as_str(), request.uri().to_string().as_str()),
        ("POST", "/v1/chat/completions?a=1")
    );
    assert_eq!(
        (&request.headers()["x-a"], request.extensions().get()),
        (&HeaderValue::from_static("b"), Some(&7_u8))
    );
    let open = request.body();
    assert_eq!((open.id().get(), open.reply().size()), (ID, DUE.len()));
    assert!(open.ticket().is_open(), "whoever sends the leg says how it ended");

    let trailers = http::HeaderMap::from_iter([("x-t".parse().unwrap(), HeaderValue::from_static("1"))]);
    let body = ScriptedBody::new().data("ab").trailers(trailers.clone()).exact_size().eager_end();
    reply.send_response(Response::builder().status(207).header("x-r", "1").body(body).unwrap());
    let response = assert_ready_ok!(call.poll());
    assert_eq!((response.status().as_u16(), response.headers().len()), (207, 1));
    let mut body = response.into_body();
    assert_eq!((body.size_hint().exact(), body.is_end_stream()), (Some(2), false));
    assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), "ab");
    assert_eq!(body.frame().await.unwrap().unwrap().into_trailers().unwrap(), trailers);
    assert!(body.is_end_stream());
    assert_eq!(ends(&settler), [""; 0]);
    drop(request);
    assert_eq!(ends(&settler), ["abandoned"]);
}

#[tokio::test]
async fn errors_of_the_inner_service_pass() {
    let (mut service, mut handle) = setup();
    let mut call =
        task::spawn(service.ready().await.unwrap().call(request(primed(STREAMED, DUE, settler().ticket()))));
    assert_pending!(call.poll());
    handle.try_next().unwrap().1.send_error(std::io::Error::other("x"));
    assert!(assert_ready_err!(call.poll()).is::<std::io::Error>());

    handle.fail_ready("gone");
    let settler = settler();
    let call = service.ready().await.unwrap().call(request(primed(STREAMED, DUE, settler.ticket())));
    assert_eq!(call.await.unwrap_err().to_string(), "gone");
    assert_eq!(ends(&settler), ["abandoned"], "the handoff went with the call");
}

#[tokio::test]
async fn dropping_the_future_drops_the_inner_one() {
    let (mut service, mut handle) = setup();
    let mut call =
        task::spawn(service.ready().await.unwrap().call(request(primed(STREAMED, DUE, settler().ticket()))));
    assert_pending!(call.poll());
    let (_, reply) = handle.try_next().unwrap();
    drop(call);
    assert!(reply.is_cancelled());
}
