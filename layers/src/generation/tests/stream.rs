//! How a stream reaches the client.

use std::{convert::Infallible, time::Duration};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue};
use http_body::{Body as _, SizeHint};
use http_body_util::BodyExt;
use hyper_util::{rt::TokioIo, service::TowerToHyperService};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_test::assert_ready;
use tower_layer::Layer;

use super::*;
use crate::{
    error::{GenerationError, GenerationErrorKind, find},
    respond::RespondLayer,
    test_util::{Recorded, ScriptHandle, ScriptedBody},
};

fn settler() -> Settler {
    Settler::new(Duration::from_secs(30))
}

/// A relayed stream of this script, as it is after the head.
fn relay(body: ScriptedBody, settler: &Settler) -> (task::Spawn<RelayBody<ScriptedBody>>, ScriptHandle) {
    let handle = body.handle();
    let ticket = settler.ticket();
    ticket.commit();
    (task::spawn(RelayBody::stream(body, ticket)), handle)
}

fn trailers() -> HeaderMap {
    HeaderMap::from_iter([(HeaderName::from_static("x-t"), HeaderValue::from_static("1"))])
}

/// One poll of a body.
macro_rules! frame {
    ($body:expr) => {
        $body.enter(|cx, body| body.poll_frame(cx))
    };
}

#[tokio::test]
async fn the_head_is_here_before_the_first_byte() {
    let mut s = setup(GenerationLayer::new(), Settler::off());
    let head = Response::builder()
        .status(200)
        .header("content-type", "Text/Event-Stream")
        .header("cache-control", "no-cache")
        .header("x-worker", "1")
        .header("connection", "keep-alive, x-hop")
        .header("keep-alive", "timeout=5")
        .header("x-hop", "1")
        .header("transfer-encoding", "chunked");
    let (call, answer, mut end) = s.answered(head).await;
    let response = answer.unwrap().unwrap();
    let mut names: Vec<_> = response.headers().keys().map(HeaderName::as_str).collect();
    names.sort_unstable();
    assert_eq!(names, ["cache-control", "content-type", "x-worker"]);
    assert_eq!(response.headers()["content-type"], "Text/Event-Stream");
    assert_eq!(end.read(), 0, "nothing is read before it is asked for");
    drop(call);

    let mut body = task::spawn(response.into_body());
    assert_pending!(frame!(body));
    for (sent, expected) in [("data: 1\n\nda", 1), ("", 2), ("ta: 2\n\ndata: [DONE]\n\n: trailing\n", 3)] {
        end.send(sent);
        assert!(body.is_woken(), "{expected}");
        let got = assert_ready!(frame!(body)).unwrap().unwrap().into_data().unwrap();
        assert_eq!(got, sent, "not regrouped");
        assert_pending!(frame!(body));
    }
    end.end();
    assert!(assert_ready!(frame!(body)).is_none());
    assert_eq!(s.ends(), ["collected"]);
}

#[tokio::test]
async fn nothing_is_read_ahead() {
    let settler = settler();
    let (mut body, script) = relay(ScriptedBody::new().data("a").data("b").data("c"), &settler);
    assert_eq!(script.polls(), 0);
    assert_ready!(frame!(body)).unwrap().unwrap();
    assert_eq!(script.polls(), 1);
}

#[tokio::test]
async fn size_and_end_are_those_of_the_worker() {
    let settler = settler();
    let (mut body, _) =
        relay(ScriptedBody::new().data("abc").trailers(trailers()).exact_size().eager_end(), &settler);
    assert_eq!((body.size_hint().exact(), body.is_end_stream()), (Some(3), false));
    assert_eq!(assert_ready!(frame!(body)).unwrap().unwrap().into_data().unwrap(), "abc");
    assert_eq!((body.size_hint().exact(), body.is_end_stream()), (Some(0), false));
    assert_eq!(assert_ready!(frame!(body)).unwrap().unwrap().into_trailers().unwrap(), trailers());
    assert!(body.is_end_stream());

    let mut bounds = SizeHint::new();
    bounds.set_lower(5);
    bounds.set_upper(9);
    let (body, _) = relay(ScriptedBody::new().claim_size(bounds), &settler);
    assert_eq!((body.size_hint().lower(), body.size_hint().upper()), (5, Some(9)));
    let (mut body, script) = relay(ScriptedBody::new(), &settler);
    assert_eq!((body.size_hint().lower(), body.size_hint().upper(), body.is_end_stream()), (0, None, false));
    assert!(assert_ready!(frame!(body)).is_none());
    assert!(body.is_end_stream());
    assert_eq!(body.size_hint().exact(), Some(0));
    assert!(assert_ready!(frame!(body)).is_none(), "and again");
    assert_eq!((script.polls_after_end(), script.is_dropped()), (0, true));
    let default = RelayBody::<ScriptedBody>::default();
    assert_eq!((default.size_hint().exact(), default.is_end_stream()), (Some(0), true));
}

/// Trailers that come after a body said it was at its end are passed on.
#[tokio::test]
async fn a_hint_that_comes_early_loses_nothing() {
    let settler = settler();
    let (mut body, _) = relay(ScriptedBody::new().data("abc").trailers(trailers()).early_end(), &settler);
    assert_ready!(frame!(body)).unwrap().unwrap();
    assert!(body.is_end_stream());
    assert_eq!(assert_ready!(frame!(body)).unwrap().unwrap().into_trailers().unwrap(), trailers());
    assert!(assert_ready!(frame!(body)).is_none());
}

#[tokio::test]
async fn a_stream_that_breaks_ends_with_an_error() {
    for (script, end) in [
        (ScriptedBody::new().data("data: 1\n\n").error("CANARY").exact_size().eager_end(), "collected"),
        (ScriptedBody::new().error("CANARY").exact_size().eager_end(), "failed"),
    ] {
        let settler = settler();
        let (mut body, handle) = relay(script, &settler);
        if end == "collected" {
            assert_ready!(frame!(body)).unwrap().unwrap();
        }
        let error = assert_ready!(frame!(body)).unwrap().unwrap_err();
        assert!(handle.is_dropped(), "the connection is done with");
        let found = find::<GenerationError>(&*error).unwrap();
        assert_eq!(
            (found.kind(), found.reply().code),
            (GenerationErrorKind::Interrupted, "generation_interrupted")
        );
        assert!(!error.to_string().contains(CANARY));
        assert!(assert_ready!(frame!(body)).is_none());
        assert!(body.is_end_stream());
        drop(body);
        assert_eq!((ends(&settler), settler.active()), (vec![end], 0));
    }
}

/// hyper discards what it has not flushed when a body fails, and must not end the message as if it were whole.
#[tokio::test(start_paused = true)]
async fn a_client_gets_all_events_before_a_break_and_no_clean_end() {
    let service = tower::service_fn(async |_: Request<hyper::body::Incoming>| {
        let body = ScriptedBody::new().data("data: 1\n\n").data("data: 2\n\n").error("reset");
        let ticket = Settler::off().ticket();
        Ok::<_, Infallible>(Response::new(RelayBody::stream(body, ticket)))
    });
    let service = RespondLayer::new().layer(service);
    let (mut client, server) = tokio::io::duplex(1 << 16);
    let connection = hyper::server::conn::http1::Builder::new()
        .serve_connection(TokioIo::new(server), TowerToHyperService::new(service));
    let served = tokio::spawn(connection);
    client.write_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
    let mut got = String::new();
    let read = client.read_to_string(&mut got);
    tokio::time::timeout(Duration::from_secs(60), read).await.expect("the message ends").unwrap();
    assert!(got.contains("transfer-encoding: chunked"), "{got}");
    assert!(got.contains("data: 1\n\n") && got.contains("data: 2\n\n"), "{got}");
    assert!(!got.ends_with("0\r\n\r\n"), "a clean end was made up: {got}");
    assert!(served.await.unwrap().is_err());
}

#[tokio::test]
async fn an_end_without_a_byte_collected_nothing() {
    for body in
        [ScriptedBody::new(), ScriptedBody::new().data("").data(""), ScriptedBody::new().trailers(trailers())]
    {
        let settler = settler();
        let (body, _) = relay(body, &settler);
        let _ = body.into_inner().collect().await.unwrap();
        assert_eq!((ends(&settler), settler.active()), (vec!["failed"], 0));
    }
}

#[tokio::test]
async fn how_a_stream_ended_is_counted_once() {
    const DONE: &str = "data: {}\n\ndata: [DONE]\n\n";
    const ERROR: &str = "data: {\"error\":{\"message\":\"CANARY\"}}\n\n";
    let new = ScriptedBody::new;
    let cases: [(ScriptedBody, usize, &str); 13] = [
        (new().data(DONE), 9, "done"),
        (new().data("data: {}\n\n"), 9, "no_done"),
        (new(), 9, "no_done"),
        (new().data(ERROR).data(DONE), 9, "error_event"),
        (new().data(DONE).error("reset"), 9, "broken"),
        (new().data(ERROR).error("reset"), 9, "broken"),
        // The client leaves, or its server asks for no more.
        (new().data("data: {}\n\n").data(DONE), 1, "dropped"),
        (new().data("data: {}\n\n").data(DONE), 0, "dropped"),
        (new().data("data: {}\n\n").data(DONE), 2, "done"),
        (new().data(ERROR).data("data: [DONE]\n\n"), 1, "error_event"),
        (new().data("data: {}\n\n").eager_end(), 1, "no_done"),
        (new().data("data: [DONE]").eager_end(), 1, "done"),
        (new().data("data: [DONE]").pending(), 1, "done"),
    ];
    for (case, (script, polls, expected)) in cases.into_iter().enumerate() {
        let recorded = Recorded::default();
        metrics::with_local_recorder(&recorded, || {
            let (mut body, _) = relay(script, &Settler::off());
            for _ in 0..polls {
                let _ = frame!(body);
            }
        });
        let mut ends: Vec<_> = recorded
            .all()
            .into_iter()
            .filter(|(name, _)| name.starts_with("disagg_generation_streams"))
            .collect();
        assert_eq!(
            ends.pop(),
            Some((format!("disagg_generation_streams_total{{end={expected}}}"), 1.0)),
            "case {case}"
        );
        assert!(ends.is_empty(), "case {case}: {ends:?}");
    }
}

#[tokio::test]
async fn nothing_that_is_printed_holds_content() {
    let (mut body, _) = relay(ScriptedBody::new().data("data: CANARY\n\n").error("x"), &Settler::off());
    assert!(!format!("{body:?}").contains(CANARY));
    assert_ready!(frame!(body)).unwrap().unwrap();
    assert!(!format!("{:?}", body.into_inner()).contains(CANARY));
    let whole = RelayBody::<ScriptedBody>::whole(Bytes::from_static(b"CANARY").into());
    assert!(!format!("{whole:?}").contains(CANARY));
    let rest = RelayBody::rest("CANARY".into(), ScriptedBody::new(), Settler::off().ticket());
    assert!(!format!("{rest:?}").contains(CANARY));
}
