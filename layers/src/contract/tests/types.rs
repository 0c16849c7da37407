//! What the types are, and what they show.

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use tokio_test::{assert_pending, task};
use tower_layer::Layer;
use tower_service::Service;

use super::{CANARY, CHAT, Handed, Passed, Reply, chat, plain, rig, whole};
use crate::{
    buffer::BufferBudget,
    contract::{Contract, ContractBody, ContractFuture, ContractLayer, NoPassthrough, PassthroughBody},
    handoff::{Handoff, Validated},
    test_util::{
        LegDouble, ScriptedBody, assert_body_traits, assert_future_traits, assert_layer_traits,
        assert_service_traits, leg,
    },
};

#[test]
fn everything_can_be_shared_and_shown() {
    type Service = Contract<LegDouble<Handed, Reply>, LegDouble<Passed, Reply>>;
    assert_layer_traits::<ContractLayer<NoPassthrough>>();
    assert_service_traits::<Service>();
    assert_service_traits::<NoPassthrough>();
    assert_future_traits::<super::Future>();
    assert_body_traits::<PassthroughBody<ScriptedBody>>();
    assert_body_traits::<ContractBody<ScriptedBody, Full<Bytes>>>();
    // Whatever the parts are like.
    assert_future_traits::<<Service as tower_service::Service<Request<ScriptedBody>>>::Future>();
}

#[test]
fn helpers_give_the_types_they_say() {
    let layer: ContractLayer<u8> = ContractLayer::new(1);
    let layer: ContractLayer<u8> =
        layer.max_body(1).guard(true).allow(|_| true).budget(BufferBudget::unlimited());
    let layer: ContractLayer<&str> = layer.passthrough("client");
    let service: Contract<u8, &str> = layer.layer(7);
    assert_eq!(service.get_ref(), &7);
    assert_eq!(service.into_inner(), 7);
    let _: ContractLayer<NoPassthrough> = ContractLayer::without_passthrough();
    assert_eq!(ContractLayer::<()>::DEFAULT_MAX_BODY, 32 * 1024 * 1024);
}

#[test]
fn the_defaults_are_those_of_the_docs() {
    let shown = format!("{:?}", ContractLayer::new(()));
    for part in ["max_body: 33554432", "body_timeout: None", "guard: true", "limit: 18446744073709551615"] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
}

#[test]
fn futures_show_their_state_and_no_content() {
    let mut rig = rig();
    let shown = |call: &task::Spawn<super::Future>| {
        let shown = format!("{call:?}");
        assert!(!shown.contains(CANARY), "{shown}");
        shown
    };
    assert!(shown(&rig.call(chat(whole(CHAT)))).contains("ContractFuture(body)"));

    let mut call = rig.call(chat(whole(CHAT)));
    assert_pending!(call.poll());
    assert!(shown(&call).contains("ContractFuture(handoff)"));
    let (handed, _reply) = rig.handed();
    assert!(!format!("{handed:?}").contains(CANARY), "{handed:?}");

    let mut call = rig.call(plain(whole(CHAT)));
    assert_pending!(call.poll());
    assert!(shown(&call).contains("ContractFuture(pass)"));
    let (passed, _reply) = rig.passed();
    assert!(!format!("{passed:?}").contains(CANARY), "{passed:?}");

    let call = rig.call(super::request(
        http::Method::PUT,
        "/v1/completions",
        &[("x-prefiller-host-port", "a:1")],
        whole(CHAT),
    ));
    assert!(shown(&call).contains("ContractFuture(failed)"));
    assert!(!format!("{:?}", rig.service).contains(CANARY));
}

#[test]
fn a_body_that_shows_itself_is_not_shown_by_the_future() {
    let (next, mut inner) = leg::<Request<Handoff<Validated>>, Response<Full<Bytes>>>();
    let mut service = ContractLayer::new(NoPassthrough::new()).layer(next);
    let mut call: task::Spawn<ContractFuture<Full<Bytes>, _, _, _, _>> =
        task::spawn(service.call(chat(Full::from(CHAT))));
    assert!(!format!("{call:?}").contains(CANARY));
    assert_pending!(call.poll());
    assert!(!format!("{call:?}").contains(CANARY));
    assert!(inner.try_next().is_some());
}
