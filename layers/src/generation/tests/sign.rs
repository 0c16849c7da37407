//! The signature on requests to the generation worker.

use std::sync::{Arc, Mutex};

use http::HeaderMap;

use super::*;
use crate::{
    handoff::{Handoff, Open},
    trtllm::{Engine, Release, SIGNATURE_HEADER, SignedMessage},
};

/// The headers of a leg whose client sent signatures of its own.
async fn headers(s: &mut Setup) -> HeaderMap {
    let handoff: Handoff<Open> = open(STREAMED, s.settler.ticket());
    let client = Request::post("/v1/chat/completions")
        .header("connection", "x-trtllm-disagg-auth")
        .header(SIGNATURE_HEADER, "sha256=forged")
        .header(SIGNATURE_HEADER, "sha256=twice")
        .body(handoff)
        .unwrap();
    let mut call = task::spawn(s.service.ready().await.unwrap().call(client));
    assert_pending!(call.poll());
    s.handle.try_next().expect("the leg was called").0.into_parts().0.headers
}

fn signatures(headers: &HeaderMap) -> Vec<&str> {
    headers.get_all(SIGNATURE_HEADER).iter().map(|value| value.to_str().unwrap()).collect()
}

#[tokio::test]
async fn each_request_is_signed_once_over_what_is_sent() {
    let asked = Arc::<Mutex<Vec<String>>>::default();
    let asks = asked.clone();
    let layer = GenerationLayer::new().sign(move |message: &SignedMessage| {
        asks.lock().unwrap().push(String::from_utf8(message.to_vec()).unwrap());
        Some([0xa1; 32])
    });
    let mut s = setup(layer, Settler::off());
    for _ in 0..2 {
        let headers = headers(&mut s).await;
        assert_eq!(signatures(&headers), [format!("sha256={}", "a1".repeat(32))]);
        assert!(headers[SIGNATURE_HEADER].is_sensitive());
        assert!(!format!("{headers:?}").contains("a1a1"));
    }
    let message = r#"{"ctx_info_endpoint":"tcp://10.0.0.5:37771","encoded_opaque_state":"CANARYSTATEQUFBQUFBQUFBQUFBQUFBQUFBQQ=="}"#;
    assert_eq!(*asked.lock().unwrap(), [message; 2]);
}

#[tokio::test]
async fn what_the_worker_is_not_sent_is_not_signed() {
    let asked = Arc::<Mutex<Vec<u8>>>::default();
    let asks = asked.clone();
    let layer = GenerationLayer::new().engines(Engine::Known(Release::parse("1.2.0"))).sign(
        move |message: &SignedMessage| {
            *asks.lock().unwrap() = message.to_vec();
            None
        },
    );
    let mut s = setup(layer, Settler::off());
    let _leg = s.running(STREAMED).await;
    assert!(asked.lock().unwrap().starts_with(br#"{"ctx_info_endpoint":null,"#));
}

#[tokio::test]
async fn without_a_signature_there_is_no_header() {
    for layer in [GenerationLayer::new(), GenerationLayer::new().sign(|_: &SignedMessage| None)] {
        let mut s = setup(layer, Settler::off());
        assert_eq!(signatures(&headers(&mut s).await), [""; 0]);
    }
}

#[cfg(feature = "hmac")]
#[tokio::test]
async fn a_key_and_its_successor() {
    use crate::trtllm::SigningKey;

    let key = |text: &str| SigningKey::new(text).unwrap();
    // computed with Python 3, see the vectors of `SigningKey`
    let secret = "sha256=b157bd158156d8a3b1062c345f617dfa0d723bc2889f008354c34f966bcb760f";
    let other = "sha256=e5288c871aeb3dab7e0912db0f8e82e9569248338bd04a5cb582611b32f47baf";
    let mut s = setup(GenerationLayer::new().sign(key("secret")), Settler::off());
    assert_eq!(signatures(&headers(&mut s).await), [secret]);

    let shared = SharedKey::new(key("secret"));
    let mut s = setup(GenerationLayer::new().sign(shared.clone()), Settler::off());
    assert_eq!(signatures(&headers(&mut s).await), [secret]);
    shared.replace(key("other"));
    assert_eq!(signatures(&headers(&mut s).await), [other]);
    assert_eq!(shared.current(), key("other"));
    assert!(!format!("{shared:?}").contains("other"));
}
