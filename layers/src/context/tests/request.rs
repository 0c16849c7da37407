//! What the context worker is sent.

use http::{HeaderValue, Method, Version};
use http_body::Body as _;
use http_body_util::BodyExt;

use super::{super::request::leg_request, *};
use crate::{
    leg::{CheckedAddresses, ReplyHead},
    trtllm::{ClientRequest, DisaggRequestId, Endpoint, context_body},
};

#[tokio::test]
async fn the_leg_gets_the_clients_request_with_the_handoff_in_it() {
    let mut s = setup(Settler::off());
    let client = Request::post("/v1/chat/completions?a=1&b=%20%2F")
        .version(Version::HTTP_2)
        .header("authorization", "Bearer t")
        .header("x-request-id", "r")
        .header("x-gateway-a", "1")
        .header("x-gateway-a", "2")
        .header("x-session-id", "s")
        .header("content-type", "text/json; charset=utf-16")
        .header("accept", "text/event-stream")
        .header("accept-encoding", "gzip")
        .header("host", "proxy")
        .header("content-length", "999")
        .header("expect", "100-continue")
        .header("connection", "close, x-mine")
        .header("x-mine", "1")
        .header("te", "trailers")
        .header("transfer-encoding", "chunked")
        .header("x-prefiller-host-port", "10.0.0.5:8001")
        .header("x-trtllm-disagg-auth", "sha256=0")
        .extension("a client's")
        .body(minted(STREAMED))
        .unwrap();
    let mut call = task::spawn(s.service.ready().await.unwrap().call(client));
    assert_pending!(call.poll());
    let (request, _reply) = s.leg.try_next().unwrap();

    assert_eq!(request.method(), Method::POST);
    assert_eq!(request.version(), Version::HTTP_11);
    assert_eq!(request.uri(), "http://10.0.0.5:8001/v1/chat/completions?a=1&b=%20%2F");
    let mut headers: Vec<(&str, &str)> =
        request.headers().iter().map(|(name, value)| (name.as_str(), value.to_str().unwrap())).collect();
    headers.sort_unstable();
    assert_eq!(
        headers,
        [
            ("accept", "text/event-stream"),
            ("authorization", "Bearer t"),
            ("content-type", "application/json"),
            ("x-gateway-a", "1"),
            ("x-gateway-a", "2"),
            ("x-request-id", "r"),
            ("x-session-id", "s"),
        ]
    );
    assert!(!request.extensions().get::<ReplyHead>().unwrap().is_committed());
    assert_eq!(request.extensions().get::<&str>(), None, "extensions belong to the client's connection");
    let body = request.into_body();
    let expected = context_body(minted(STREAMED).request(), minted(STREAMED).id()).to_bytes();
    assert_eq!(body.size_hint().exact(), Some(expected.len() as u64));
    let body = body.collect().await.unwrap().to_bytes();
    assert_eq!(body, expected);
    let json: serde_json::Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(
        json,
        serde_json::json!({
            "model": "m", "messages": [{"role": "user", "content": "CANARY"}], "max_tokens": 9, "stream": false,
            "disaggregated_params": {"request_type": "context_only", "disagg_request_id": ID, "schedule_style": 0},
        })
    );
}

#[test]
fn the_target_is_the_chosen_worker_with_the_clients_query() {
    const PROMPT: &str = r#"{"prompt":"x"}"#;
    let long = format!("/v1/chat/completions?{}", "q".repeat(60_000));
    let cases = [
        (Endpoint::Chat, STREAMED, "/v1/chat/completions", "http://10.0.0.5:8001/v1/chat/completions"),
        (Endpoint::Completions, PROMPT, "/v1/completions?x", "http://10.0.0.5:8001/v1/completions?x"),
        (
            Endpoint::Chat,
            STREAMED,
            "https://elsewhere:1/v1/chat/completions?",
            "http://10.0.0.5:8001/v1/chat/completions?",
        ),
        // The path is that of the endpoint that was validated, whatever somebody above made of the URI.
        (Endpoint::Chat, STREAMED, "/other?x=1#f", "http://10.0.0.5:8001/v1/chat/completions?x=1"),
        (Endpoint::Chat, STREAMED, &long, &format!("http://10.0.0.5:8001{long}")),
    ];
    for (endpoint, body, uri, expected) in cases {
        let (parts, handoff) =
            Request::builder().method("PUT").uri(uri).body(minted_for(endpoint, body)).unwrap().into_parts();
        let request = leg_request(&parts, &handoff, ReplyHead::new(), crate::leg::HangUp::new()).unwrap();
        assert_eq!((request.method(), request.uri().to_string().as_str()), (&Method::POST, expected));
        assert_eq!(request.headers()["content-type"], HeaderValue::from_static("application/json"));
    }
}

#[test]
fn checked_addresses_go_along_and_the_name_stays() {
    let named = || {
        let request = ClientRequest::parse(Endpoint::Chat, Bytes::from_static(STREAMED.as_bytes())).unwrap();
        Handoff::validated(request, "Prefill-0.test:8001".parse().unwrap())
    };
    let checked = CheckedAddresses::new(["10.0.0.5:8001".parse().unwrap()]).unwrap();
    for (handoff, expected) in [(named(), None), (named().at(checked.clone()), Some(&checked))] {
        let handoff = handoff.mint(DisaggRequestId::new(ID).unwrap());
        let (parts, handoff) =
            Request::builder().uri("/v1/chat/completions").body(handoff).unwrap().into_parts();
        let request = leg_request(&parts, &handoff, ReplyHead::new(), crate::leg::HangUp::new()).unwrap();
        assert_eq!(request.extensions().get::<CheckedAddresses>(), expected);
        assert_eq!(request.uri(), "http://prefill-0.test:8001/v1/chat/completions");
    }
}

#[tokio::test]
async fn the_inner_service_gets_the_clients_request_and_the_reply() {
    let mut s = setup(Settler::off());
    let client = Request::post("/v1/chat/completions?a=1")
        .header("x-prefiller-host-port", "10.0.0.5:8001")
        .header("accept-encoding", "gzip")
        .extension("a client's")
        .body(minted(STREAMED))
        .unwrap();
    let mut call = task::spawn(s.service.ready().await.unwrap().call(client));
    assert_pending!(call.poll());
    s.leg.try_next().unwrap().1.send_response(context_reply(200, DUE));
    assert!(call.is_woken());
    assert_pending!(call.poll());
    let (request, mut reply) = s.inner.try_next().unwrap();
    assert_eq!(
        (request.method(), request.uri().to_string().as_str()),
        (&Method::POST, "/v1/chat/completions?a=1")
    );
    assert_eq!(request.headers().len(), 2);
    assert_eq!(request.extensions().get::<&str>(), Some(&"a client's"));
    assert_eq!(request.body().id().get(), ID);
    assert_eq!(request.body().reply().size(), DUE.len());
    assert_eq!(request.body().request().body(), STREAMED);
    let inner = Response::builder().status(207).header("x", "y").body(ScriptedBody::new().data("d")).unwrap();
    reply.send_response(inner);
    let response = tokio_test::assert_ready_ok!(call.poll());
    assert_eq!((response.status().as_u16(), &response.headers()["x"]), (207, &HeaderValue::from_static("y")));
    assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), "d");
}
