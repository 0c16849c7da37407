use std::time::{Duration, Instant};

use serde_json::{Value as Json, json};

use super::*;
use crate::trtllm::fixtures::*;

mod rules;

#[test]
fn every_generation_has_a_usable_reply() {
    for release in RELEASES {
        let reply = usable(Endpoint::Chat, &with_params(params(release)));
        assert_eq!(reply.due(), Due::Generation);
        assert_eq!(reply.disagg_request_id(), Some(ID));
        assert_eq!(reply.opaque_state().unwrap().as_str(), r#""AAECAwQ=""#);
        assert_eq!(reply.info_endpoint().unwrap().as_str(), r#""tcp://10.0.0.5:37771""#);
        assert_eq!(reply.shows("ctx_usage"), members(release).contains(&"ctx_usage"));
    }
    assert_eq!(usable(Endpoint::Completions, &completions_reply()).due(), Due::Generation);
}

#[test]
fn ids_are_never_taken_through_a_float() {
    for digits in
        ["0", "21831656151937025", "9007199254740993", "9223372036854775807", "18446744073709551615"]
    {
        let body = chat_reply().to_string().replace(&ID.to_string(), digits);
        let reply = parse(Endpoint::Chat, &body).unwrap();
        assert_eq!(reply.id_for_generation(id()).to_string(), digits);
    }
    let above = chat_reply().to_string().replace(&ID.to_string(), "18446744073709551616");
    assert_eq!(parse(Endpoint::Chat, &above).unwrap_err().field(), CTX_REQUEST_ID);
}

#[test]
fn the_id_for_generation_is_the_one_that_the_context_worker_has() {
    let of = |reply: &Json| {
        let id = usable(Endpoint::Chat, reply).id_for_generation(id());
        (id.get(), id.is_foreign())
    };
    assert_eq!(of(&chat_reply()), (ID, false));
    assert_eq!(of(&with_members(json!({"disagg_request_id": null}))), (ID, false));
    assert_eq!(of(&with_params(without(params("1.3.0rc24"), "disagg_request_id"))), (ID, false));
    assert_eq!(of(&with_members(json!({"disagg_request_id": 77}))), (77, true));
    assert_eq!(of(&with_members(json!({"disagg_request_id": 0}))), (0, true));
}

#[test]
fn a_large_reply_is_read_in_reasonable_time() {
    let ids: Vec<u32> = (0..200_000).collect();
    let mut reply = with_members(json!({"encoded_opaque_state": "QUJD".repeat(75 * 1024)}));
    merge(&mut reply, json!({"prompt_token_ids": ids}));
    let body = Bytes::from(reply.to_string());
    let started = Instant::now();
    let reply = ContextReply::parse(Endpoint::Chat, body).unwrap();
    // Some 20 ms without optimisation; the bound is for what grows faster than the size.
    assert!(started.elapsed() < Duration::from_secs(2), "{:?}", started.elapsed());
    assert_eq!(reply.opaque_state().unwrap().as_str().len(), 300 * 1024 + 2);
}
