//! What the generation worker is sent, and when.

use std::sync::{Arc, Mutex};

use http::{HeaderValue, Method, Uri, Version};
use http_body::Body as _;
use http_body_util::BodyExt;
use serde_json::{Value, json};
use tokio_test::assert_ready_err;
use tower::util::BoxCloneSyncService;

use super::{super::request::leg_request, *};
use crate::{
    error::{BoxError, GenerationError, GenerationErrorKind as Kind, find},
    handoff::Verdict,
    leg::{LegError, LegErrorKind},
    test_util::{
        Probe, Recorded, ScriptedBody, assert_body_traits, assert_future_traits, assert_layer_traits,
        assert_service_traits,
    },
    trtllm::{ContextEndpoint, Endpoint, Engine, Release, Shape},
};

#[test]
fn types_can_be_shared_and_printed() {
    assert_layer_traits::<GenerationLayer>();
    assert_service_traits::<Generation<Inner>>();
    assert_future_traits::<GenerationFuture<Pipe>>();
    assert_body_traits::<RelayBody<ScriptedBody>>();
    let s = setup(GenerationLayer::default(), Settler::off());
    let _: &Inner = s.service.get_ref();
    let _: Inner = s.service.into_inner();
}

#[tokio::test]
async fn the_leg_gets_the_clients_request_with_the_handoff_in_it() {
    let mut s = setup(GenerationLayer::new(), Settler::off());
    let client = Request::post("/v1/chat/completions?a=1&b=%20")
        .version(Version::HTTP_2)
        .header("authorization", "Bearer t")
        .header("x-request-id", "r")
        .header("x-gateway-a", "1")
        .header("x-gateway-a", "2")
        .header("content-type", "text/json")
        .header("accept", "text/event-stream")
        .header("accept-encoding", "gzip")
        .header("host", "proxy")
        .header("content-length", "999")
        .header("expect", "100-continue")
        .header("connection", "close, x-mine")
        .header("x-mine", "1")
        .header("x-prefiller-host-port", "10.0.0.5:8001")
        .header("x-trtllm-disagg-auth", "sha256=0")
        .extension("a client's")
        .body(open(STREAMED, s.settler.ticket()))
        .unwrap();
    let mut call = task::spawn(s.service.ready().await.unwrap().call(client));
    assert_pending!(call.poll());
    let (request, _reply) = s.handle.try_next().unwrap();
    assert_eq!((request.method(), request.version()), (&Method::POST, Version::HTTP_11));
    assert_eq!(request.uri(), "/v1/chat/completions?a=1&b=%20");
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
        ]
    );
    assert!(request.extensions().is_empty());
    assert!(!format!("{request:?}{call:?}{:?}", s.service).contains(CANARY));
    let body = request.into_body();
    let size = body.size_hint().exact().unwrap();
    let body = body.collect().await.unwrap().to_bytes();
    assert_eq!(size, body.len() as u64);
    let body: Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(
        body,
        json!({
            "model": "m", "messages": [{"role": "user", "content": "CANARY"}], "max_tokens": 9, "stream": true,
            "disaggregated_params": {
                "request_type": "generation_only", "first_gen_tokens": [4321], "ctx_request_id": 77,
                "encoded_opaque_state": "CANARYSTATEQUFBQUFBQUFBQUFBQUFBQUFBQQ==", "disagg_request_id": ID,
                "ctx_dp_rank": 0, "ctx_info_endpoint": "tcp://10.0.0.5:37771", "schedule_style": 0,
                "resolved_thinking": true,
                "ctx_usage": {"prompt_tokens": 3, "total_tokens": 4, "completion_tokens": 1},
            },
            "prompt_token_ids": [1, 2, 3],
        })
    );
}

#[test]
fn the_target_is_the_origin_with_the_clients_query() {
    let cases: [(&str, Option<&'static str>, &str); 8] = [
        ("/v1/chat/completions", None, "/v1/chat/completions"),
        ("/v1/chat/completions?a=1", None, "/v1/chat/completions?a=1"),
        ("http://proxy/v1/chat/completions?a=1", None, "/v1/chat/completions?a=1"),
        ("/other?", None, "/v1/chat/completions?"),
        ("/v1/chat/completions", Some("http://127.0.0.1:8001"), "http://127.0.0.1:8001/v1/chat/completions"),
        ("/x?a=%00&b", Some("https://[::1]:8001/base?q"), "https://[::1]:8001/v1/chat/completions?a=%00&b"),
        ("/v1/chat/completions?a=1", Some("worker:8001"), "http://worker:8001/v1/chat/completions?a=1"),
        // No origin at all.
        ("/v1/chat/completions?a=1", Some("/base"), "/v1/chat/completions?a=1"),
    ];
    for (client, origin, expected) in cases {
        let handoff = open(STREAMED, Settler::off().ticket());
        let shape = Shape::between(&Engine::Unknown, &Engine::Unknown, handoff.reply());
        let (parts, ()) = Request::put(client).body(()).unwrap().into_parts();
        let origin = origin.map(Uri::from_static);
        let request = leg_request(parts, &handoff, &shape, origin.as_ref());
        assert_eq!((request.method(), request.uri().to_string().as_str()), (&Method::POST, expected));
    }
}

/// Says what it was asked.
#[derive(Clone)]
struct Known(Arc<Mutex<Vec<ContextEndpoint>>>, &'static str);

impl Engines for Known {
    fn generation(&self) -> Engine {
        Engine::Known(Release::parse(self.1))
    }

    fn context(&self, endpoint: &ContextEndpoint) -> Engine {
        self.0.lock().unwrap().push(endpoint.clone());
        Engine::Unknown
    }
}

#[tokio::test]
async fn the_request_is_shaped_for_the_worker_that_gets_it() {
    let rc24 = || Engine::Known(Release::parse("1.3.0rc24"));
    let asked = Known(Arc::default(), "1.3.0rc24");
    let rc20 = Engine::Known(Release::parse("1.3.0rc20"));
    let cases = [
        (GenerationLayer::new(), true, true),
        (GenerationLayer::new().engines(Engine::Unknown), true, true),
        (GenerationLayer::new().engines(rc24()), false, true),
        (GenerationLayer::new().engines(Arc::new(rc24())), false, true),
        (GenerationLayer::new().engines(asked.clone()), false, true),
        // Some engines of this release know the usage; the reply shows it when both are of the same.
        (GenerationLayer::new().engines(rc20), false, true),
        (GenerationLayer::new().engines(Known(Arc::default(), "1.3.0rc20")), false, false),
        (GenerationLayer::new().engines(Known(Arc::default(), "1.3.0rc5")), false, false),
    ];
    for (layer, thinking, usage) in cases {
        let mut s = setup(layer, Settler::off());
        let (_call, request, _reply) = s.running(STREAMED).await;
        let body: Value = serde_json::from_slice(&request.into_body().into_bytes()).unwrap();
        let params = &body["disaggregated_params"];
        assert_eq!(
            (params.get("resolved_thinking").is_some(), params.get("ctx_usage").is_some()),
            (thinking, usage)
        );
        assert_eq!(params["encoded_opaque_state"], "CANARYSTATEQUFBQUFBQUFBQUFBQUFBQUFBQQ==");
    }
    assert_eq!(
        asked.0.lock().unwrap().iter().map(ContextEndpoint::as_str).collect::<Vec<_>>(),
        ["10.0.0.5:8001"]
    );
}

#[test]
fn a_layer_made_from_another_does_not_change_it() {
    let one = GenerationLayer::new().max_whole(5);
    let two = one.clone().max_whole(6).to(Uri::from_static("http://h"));
    assert_eq!((one.config.max_whole, one.config.origin.is_some()), (5, false));
    assert_eq!((two.config.max_whole, two.config.origin.is_some()), (6, true));
    assert_eq!(GenerationLayer::default().config.max_whole, 64 << 20);
    assert!(format!("{two:?}").contains("http://h/"));
}

#[tokio::test]
async fn ready_when_the_client_is() {
    let mut s = setup(GenerationLayer::new(), Settler::off());
    s.handle.block();
    let mut ready = task::spawn(s.service.ready());
    assert_pending!(ready.poll());
    s.handle.allow(1);
    assert!(ready.is_woken());
    assert_ready_ok!(ready.poll());
    s.handle.fail_ready("gone");
    assert_eq!(s.service.clone().ready().await.unwrap_err().to_string(), "gone");
}

#[tokio::test]
async fn a_clone_is_not_ready() {
    let mut s = setup(GenerationLayer::new(), Settler::off());
    s.handle.allow(1);
    s.service.ready().await.unwrap();
    let mut two = s.service.clone();
    assert_pending!(task::spawn(two.ready()).poll());
    let _call = s.service.call(request(open(STREAMED, s.settler.ticket())));
    assert!(s.handle.try_next().is_some());
}

#[tokio::test]
async fn a_leg_without_an_answer_says_what_happened() {
    let cases = [
        (LegErrorKind::Connect, Kind::Unreachable, 503, "generation_unreachable"),
        (LegErrorKind::Lost, Kind::Unreachable, 503, "generation_unreachable"),
        (LegErrorKind::Interrupted, Kind::Interrupted, 502, "generation_interrupted"),
        (LegErrorKind::ReplyTooLarge, Kind::Interrupted, 502, "generation_interrupted"),
        (LegErrorKind::Overloaded, Kind::Interrupted, 502, "generation_interrupted"),
        (LegErrorKind::Timeout, Kind::Timeout, 504, "generation_timeout"),
        (LegErrorKind::UnsupportedEngine, Kind::UnsupportedEngine, 502, "unsupported_engine_version"),
    ];
    let tower = if cfg!(feature = "tower") {
        (Kind::Timeout, 504, "generation_timeout")
    } else {
        (Kind::Interrupted, 502, "generation_interrupted")
    };
    let errors = cases
        .into_iter()
        .map(|(leg, kind, status, code)| {
            let error: BoxError = LegError::new(leg).with_source("CANARY").into();
            (error, (kind, status, code))
        })
        .chain([
            (BoxError::from("CANARY"), (Kind::Interrupted, 502, "generation_interrupted")),
            (
                std::io::Error::from(std::io::ErrorKind::ConnectionRefused).into(),
                (Kind::Unreachable, 503, "generation_unreachable"),
            ),
            (Box::new(tower::timeout::error::Elapsed::new()) as BoxError, tower),
        ]);
    for (leg, expected) in errors {
        let mut s = setup(GenerationLayer::new(), Settler::new(std::time::Duration::from_secs(30)));
        let (mut call, _, mut reply) = s.running(STREAMED).await;
        reply.send_error(leg);
        let error = assert_ready_err!(call.poll());
        let error = find::<GenerationError>(&*error).unwrap();
        let answer = error.reply();
        assert_eq!((error.kind(), answer.status.as_u16(), answer.code), expected);
        assert!(!answer.message.contains(CANARY));
        assert!(std::error::Error::source(error).is_some());
        drop(call);
        assert_eq!((s.ends(), s.settler.active()), (vec!["failed"], 0));
    }
    let said = super::super::decide::leg_failed(
        LegError::new(LegErrorKind::UnsupportedEngine).with_message("0.9 is too old").into(),
    );
    assert_eq!(said.reply().message, "0.9 is too old");
}

#[tokio::test]
async fn fits_around_boxed_clients_and_completions() {
    let client = tower::service_fn(async |request: Request<LegBody>| {
        let body: Value = serde_json::from_slice(&request.into_body().into_bytes()).unwrap();
        assert_eq!(body["prompt"], json!([1, 2, 3]));
        Ok::<_, std::io::Error>(events().body(ScriptedBody::new().data("data: [DONE]\n\n")).unwrap())
    });
    let service = GenerationLayer::new().layer(BoxCloneSyncService::new(Probe::new(client)));
    let reply = crate::trtllm::ContextReply::parse(Endpoint::Completions, DUE.into()).unwrap();
    let minted = minted_for(Endpoint::Completions, r#"{"prompt":"x"}"#);
    let Verdict::Generate(open) = minted.prime(reply).judge() else { panic!("due") };
    let response = service.oneshot(request(open)).await.unwrap();
    assert_eq!(
        response.headers()["content-type"],
        HeaderValue::from_static("text/event-stream; charset=utf-8")
    );
    assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), "data: [DONE]\n\n");
}

#[tokio::test]
async fn the_id_of_the_reply_is_used_and_another_is_counted() {
    const FOREIGN: &str = r#"{"choices":[{"finish_reason":"length","disaggregated_params":{"ctx_request_id":1,"disagg_request_id":5,"first_gen_tokens":[1],"encoded_opaque_state":"AAEC"}}]}"#;
    const NONE: &str = r#"{"choices":[{"finish_reason":"length","disaggregated_params":{"ctx_request_id":1,"disagg_request_id":null,"first_gen_tokens":[1],"encoded_opaque_state":"AAEC"}}]}"#;
    for (reply, used, counted) in [(DUE, ID, None), (NONE, ID, None), (FOREIGN, 5, Some(1.0))] {
        let recorded = Recorded::default();
        let _guard = metrics::set_default_local_recorder(&recorded);
        let mut s = setup(GenerationLayer::new(), Settler::off());
        let Verdict::Generate(open) = primed(STREAMED, reply, s.settler.ticket()).judge() else {
            panic!("due")
        };
        let _call = s.service.ready().await.unwrap().call(request(open));
        let (request, _reply) = s.handle.try_next().unwrap();
        let body: Value = serde_json::from_slice(&request.into_body().into_bytes()).unwrap();
        assert_eq!(body["disaggregated_params"]["disagg_request_id"], used);
        assert_eq!(recorded.value("disagg_id_mismatches_total"), counted);
    }
}
