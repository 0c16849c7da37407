//! The upload: caps, budget, deadline, and what is refused without one.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use http::{HeaderMap, Method};
use http_body::SizeHint;
use tokio::time::advance;
use tokio_test::{assert_pending, assert_ready_err};

use super::{CHAT, WORKER, chat, plain, request, rig, rig_of, told, watched, whole};
use crate::{
    buffer::BufferBudget,
    error::{ContractError, ContractErrorKind, find},
    test_util::ScriptedBody,
};

const TICK: Duration = Duration::from_millis(1);
const LIMIT: Duration = Duration::from_secs(30);

#[test]
fn what_the_head_decides_is_refused_before_the_body_is_read() {
    let (path, header) = ("/v1/completions", "x-prefiller-host-port");
    for (expected, head) in [
        ((502, "invalid_epp_metadata"), request(Method::POST, path, &[(header, "a:1,b:2")], ())),
        (
            (502, "invalid_epp_metadata"),
            request(Method::POST, path, &[(header, WORKER), (header, WORKER)], ()),
        ),
        ((403, "context_endpoint_not_allowed"), request(Method::POST, path, &[(header, "evil:1")], ())),
        ((501, "unsupported_endpoint"), request(Method::POST, "/v1/responses", &[(header, WORKER)], ())),
        ((501, "unsupported_endpoint"), request(Method::PUT, path, &[(header, WORKER)], ())),
    ] {
        let mut rig = rig_of(|layer| layer.allow(|endpoint| endpoint.as_str() == WORKER));
        let (body, script) = watched(ScriptedBody::new().pending());
        let mut call = rig.call(head.map(|()| body));
        assert!(script.is_dropped(), "{expected:?}: the body is held for nothing");
        let error = assert_ready_err!(call.poll());
        let (status, code, param) = told(&error);
        assert_eq!(((status, code), param), (expected, None));
        assert_eq!(script.polls(), 0, "{expected:?}");
        rig.assert_untouched();
    }
}

#[test]
fn the_allow_list_is_asked_once_and_only_about_well_formed_endpoints() {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = asked.clone();
    let mut rig = rig_of(|layer| {
        layer.allow(move |_| {
            count.fetch_add(1, Ordering::Relaxed);
            true
        })
    });
    drop(rig.call(plain(whole(CHAT))));
    drop(rig.call(request(
        Method::POST,
        "/v1/completions",
        &[("x-prefiller-host-port", "a,b")],
        whole(CHAT),
    )));
    assert_eq!(asked.load(Ordering::Relaxed), 0);
    assert_pending!(rig.call(chat(whole(CHAT))).poll());
    assert_eq!(asked.load(Ordering::Relaxed), 1);
}

#[test]
fn a_body_in_one_piece_is_not_copied() {
    let sent = Bytes::from(CHAT.to_owned());
    let mut rig = rig();
    let mut call = rig.call(chat(whole(sent.clone())));
    assert_pending!(call.poll());
    let (seen, _reply) = rig.handed();
    assert_eq!(seen.body().request().body().as_ptr(), sent.as_ptr());
    assert_eq!(seen.body().request().body(), &sent);
}

#[test]
fn a_body_in_pieces_is_put_together() {
    // Cut inside a letter, with empty frames and trailers.
    let text = r#"{"messages":[{"content":"é"}]}"#.as_bytes();
    let cut = text.iter().position(|byte| *byte == 0xc3).unwrap() + 1;
    let (head, tail) = (Bytes::copy_from_slice(&text[..cut]), Bytes::copy_from_slice(&text[cut..]));
    let mut rig = rig();
    let (body, script) =
        watched(ScriptedBody::new().data(head).pending().data("").data(tail).trailers(HeaderMap::new()));
    let mut call = rig.call(chat(body));
    assert_pending!(call.poll());
    rig.assert_untouched();
    assert!(!call.is_woken());
    script.wake();
    assert!(call.is_woken());
    assert_pending!(call.poll());
    assert_eq!(rig.handed().0.body().request().body(), text);
    assert!(script.is_ended() && script.polls_after_end() == 0);
    assert!(script.is_dropped(), "the upload is kept after its end");
}

#[test]
fn a_body_at_the_cap_passes_and_one_byte_more_does_not() {
    let limit = CHAT.len() as u64;
    let over = format!("{CHAT} ");
    let (first, rest) = over.split_at(20);
    for (text, body) in [
        (CHAT, whole(CHAT)),
        (CHAT, whole(CHAT).exact_size()),
        (CHAT, ScriptedBody::new().data(&CHAT.as_bytes()[..9]).data(&CHAT.as_bytes()[9..])),
        (&over, whole(over.clone())),
        (&over, ScriptedBody::new().data(first.to_owned()).data(rest.to_owned())),
    ] {
        let mut rig = rig_of(|layer| layer.max_body(limit));
        let mut call = rig.call(chat(body));
        if text == CHAT {
            assert_pending!(call.poll());
            assert_eq!(rig.handed().0.body().request().body(), text.as_bytes());
        } else {
            assert_eq!(told(&assert_ready_err!(call.poll())), (413, "request_too_large", None));
            rig.assert_untouched();
        }
    }
}

#[test]
fn a_body_that_says_it_is_too_long_is_not_read() {
    for hint in [SizeHint::with_exact(65), at_least(65), SizeHint::with_exact(u64::MAX)] {
        let mut rig = rig_of(|layer| layer.max_body(64));
        let (body, script) = watched(whole(CHAT).claim_size(hint));
        let error = assert_ready_err!(rig.call(chat(body)).poll());
        assert_eq!(told(&error), (413, "request_too_large", None));
        assert!(error.to_string().contains("64 bytes"), "{error}");
        assert_eq!(script.polls(), 0);
    }
}

fn at_least(bytes: u64) -> SizeHint {
    let mut hint = SizeHint::new();
    hint.set_lower(bytes);
    hint
}

#[test]
fn no_more_is_read_of_a_body_than_shows_that_it_is_too_long() {
    let mut rig = rig_of(|layer| layer.max_body(10));
    let (body, script) =
        watched(ScriptedBody::new().data("12345").data("67890").data("1").data("never").data("never"));
    assert_ready_err!(rig.call(chat(body)).poll());
    assert_eq!(script.polls(), 3);
}

#[test]
fn caps_and_checks_hold_for_what_passes_through_as_well() {
    let mut rig = rig_of(|layer| layer.max_body(4));
    let error = assert_ready_err!(rig.call(plain(whole("12345"))).poll());
    assert_eq!(told(&error), (413, "request_too_large", None));
    rig.assert_untouched();
}

#[test]
fn the_budget_is_shared_and_given_back() {
    let size = CHAT.len() as u64;
    let budget = BufferBudget::new(2 * size);
    let mut rig = rig_of(|layer| layer.budget(budget.clone()));
    let mut calls = [rig.call(chat(whole(CHAT))), rig.call(plain(whole(CHAT)))];
    for call in &mut calls {
        assert_pending!(call.poll());
    }
    assert_eq!(budget.held(), 2 * size);

    // Not one byte is left, so that the smallest body is one too many.
    let mut third = rig.call(plain(whole("x")));
    assert_eq!(told(&assert_ready_err!(third.poll())), (503, "overloaded", None));

    // The bytes are held by whoever may still send them, and by nobody else.
    let (handed, _first) = rig.inner.try_next().unwrap();
    let (passed, _second) = rig.passthrough.try_next().unwrap();
    assert!(rig.inner.try_next().is_none() && rig.passthrough.try_next().is_none());
    drop(calls);
    assert_eq!(budget.held(), 2 * size);
    let text = handed.body().request().body().slice(3..5);
    drop(handed);
    assert_eq!(budget.held(), 2 * size, "a slice of it is there");
    drop(text);
    assert_eq!(budget.held(), size);
    drop(passed);
    assert_eq!(budget.held(), 0);
}

#[test]
fn an_upload_that_ends_badly_gives_its_bytes_back() {
    let budget = BufferBudget::new(1 << 20);
    let mut rig = rig_of(|layer| layer.budget(budget.clone()));
    let mut waiting = rig.call(chat(ScriptedBody::new().data("{").pending()));
    assert_pending!(waiting.poll());
    assert_eq!(budget.held(), 1);
    drop(waiting);
    assert_eq!(budget.held(), 0);

    let mut broken = rig.call(chat(ScriptedBody::new().data("{").error("reset by peer")));
    let error = assert_ready_err!(broken.poll());
    assert_eq!(told(&error), (400, "invalid_request", None));
    assert_eq!(find::<ContractError>(&*error).unwrap().kind(), ContractErrorKind::RequestIncomplete);
    let mut causes = std::iter::successors(error.source(), |cause| cause.source());
    assert!(causes.any(|cause| cause.to_string() == "reset by peer"));
    drop(broken);
    assert_eq!(budget.held(), 0);

    assert_ready_err!(rig.call(chat(whole("[]"))).poll());
    assert_eq!(budget.held(), 0);
    rig.assert_untouched();
}

#[tokio::test(start_paused = true)]
async fn an_upload_has_until_the_deadline_and_not_a_tick_longer() {
    for head in [chat(()), plain(())] {
        let mut rig = rig_of(|layer| layer.body_timeout(LIMIT));
        let (body, script) = watched(ScriptedBody::new().data("{").pending().data("}"));
        let mut call = rig.call(head.map(|()| body));
        assert_pending!(call.poll());
        advance(LIMIT - TICK).await;
        assert!(!call.is_woken());
        assert_pending!(call.poll());
        advance(TICK).await;
        assert!(call.is_woken(), "nothing wakes it at the deadline");
        assert_eq!(told(&assert_ready_err!(call.poll())), (408, "request_timeout", None));
        rig.assert_untouched();
        drop(call);
        assert!(script.is_dropped());
    }
}

#[tokio::test(start_paused = true)]
async fn the_deadline_counts_from_the_head_and_for_the_whole_upload() {
    let mut rig = rig_of(|layer| layer.body_timeout(LIMIT));
    let (body, script) = watched(ScriptedBody::new().data("{").pending().data(" ").pending().data("}"));
    let mut call = rig.call(chat(body));
    // Not from the first poll,
    advance(LIMIT / 2).await;
    assert_pending!(call.poll());
    // and not anew with each frame.
    script.wake();
    assert_pending!(call.poll());
    advance(LIMIT / 2 - TICK).await;
    assert_pending!(call.poll());
    advance(TICK).await;
    assert_eq!(told(&assert_ready_err!(call.poll())), (408, "request_timeout", None));
}

#[tokio::test(start_paused = true)]
async fn a_body_that_is_there_at_the_deadline_is_in_time() {
    let mut rig = rig_of(|layer| layer.body_timeout(LIMIT));
    let (body, script) = watched(ScriptedBody::new().pending().data(CHAT));
    let mut call = rig.call(chat(body));
    assert_pending!(call.poll());
    advance(LIMIT * 2).await;
    script.wake();
    assert_pending!(call.poll());
    rig.handed();
}

#[tokio::test(start_paused = true)]
async fn the_deadline_is_that_of_the_upload_alone() {
    let mut rig = rig_of(|layer| layer.body_timeout(LIMIT));
    rig.inner.block();
    let mut call = rig.call(chat(whole(CHAT)));
    assert_pending!(call.poll());
    advance(LIMIT * 10).await;
    assert!(!call.is_woken());
    assert_pending!(call.poll());
    rig.inner.unblock();
    assert_pending!(call.poll());
    let (_, reply) = rig.handed();
    advance(LIMIT * 10).await;
    assert_pending!(call.poll());
    assert!(!reply.is_cancelled());
}

#[test]
fn without_a_deadline_no_clock_is_needed() {
    let mut rig = rig();
    assert_pending!(rig.call(chat(ScriptedBody::new().pending())).poll());
}
