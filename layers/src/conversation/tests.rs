use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response};
use tokio_test::{assert_pending, assert_ready, assert_ready_err, assert_ready_ok, task};
use tower_layer::Layer;
use tower_service::Service;
use tower_test::mock::{self, Mock};

use super::{
    Conversation, ConversationLayer, IdSource,
    decide::{Found, MAX_ID, find, set},
};
use crate::{
    handoff::{Handoff, Minted, Open, Primed, Validated},
    json::Object,
    test_util::{LegDouble, Probe, Recorded, assert_layer_traits, assert_service_traits, leg},
    trtllm::{CONVERSATION_HEADERS, ClientRequest, DisaggRequestId, Endpoint},
};

mod compose;

fn sources(list: &[&str]) -> Vec<IdSource> {
    list.iter().map(|text| text.parse().unwrap()).collect()
}

/// Names and values of headers.
type List<'a> = &'a [(&'static str, &'a [u8])];

fn headers(list: List<'_>) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in list {
        headers.append(*name, HeaderValue::from_bytes(value).unwrap());
    }
    headers
}

fn object(text: &str) -> Object {
    Object::parse(Bytes::copy_from_slice(text.as_bytes())).unwrap()
}

fn id(text: &[u8]) -> Found {
    Found::Id(HeaderValue::from_bytes(text).unwrap())
}

// === sources ===

#[test]
fn sources_are_read_and_written() {
    for text in ["header:x-chat-id", "body:/user", "body:/nvext/agent_context/session_id", "body:/a~1b/0"] {
        assert_eq!(text.parse::<IdSource>().unwrap().to_string(), text);
    }
    assert_eq!("header:X-Chat-Id".parse::<IdSource>().unwrap().to_string(), "header:x-chat-id");
    assert_eq!("body:/a:b".parse::<IdSource>().unwrap().to_string(), "body:/a:b");
}

#[test]
fn what_is_no_source() {
    for (text, said) in [
        ("", "header:NAME or body:/POINTER"),
        ("x-chat-id", "header:NAME or body:/POINTER"),
        ("/user", "header:NAME or body:/POINTER"),
        ("Header:x", "header:NAME or body:/POINTER"),
        ("cookie:x", "header:NAME or body:/POINTER"),
        ("header:", "name of a header"),
        ("header: x", "name of a header"),
        ("header:x y", "name of a header"),
        ("header:x:y", "name of a header"),
        ("body:", "starts with a slash"),
        ("body:user", "starts with a slash"),
        ("body:/a~b", "~0"),
    ] {
        let error = text.parse::<IdSource>().unwrap_err().to_string();
        assert!(error.contains(said), "{text}: {error}");
    }
}

// === decisions ===

#[test]
fn an_id_in_a_header() {
    let long = "x".repeat(MAX_ID);
    let longer = "x".repeat(MAX_ID + 1);
    #[rustfmt::skip]
    let cases: &[(List<'_>, Found)] = &[
        (&[], Found::Absent),
        (&[("x-other", b"a")], Found::Absent),
        (&[("x-id", b"a")], id(b"a")),
        (&[("x-id", b"a"), ("x-id", b"b")], id(b"b")),
        (&[("x-id", b"")], Found::Absent),
        (&[("x-id", b" \t ")], Found::Absent),
        (&[("x-id", b"\xa0\x85")], Found::Absent),
        (&[("x-id", b"a"), ("x-id", b" ")], Found::Absent),
        (&[("x-id", b" "), ("x-id", b"a")], id(b"a")),
        (&[("x-id", b"a b\tc, d; e=\"f\"")], id(b"a b\tc, d; e=\"f\"")),
        (&[("x-id", b" a ")], id(b" a ")),
        (&[("x-id", "\u{e9}".as_bytes())], id(b"\xc3\xa9")),
        (&[("x-id", b"\xff")], id(b"\xff")),
        (&[("x-id", long.as_bytes())], id(long.as_bytes())),
        (&[("x-id", longer.as_bytes())], Found::Unusable),
    ];
    for (list, found) in cases {
        assert_eq!(find(&sources(&["header:x-id"]), &headers(list), &object("{}")), *found, "{list:?}");
    }
}

#[test]
fn an_id_in_the_body() {
    let plain = |text: &str| format!("\"{text}\"");
    let escaped = |count: usize| format!("\"{}\"", "\\u0041".repeat(count));
    for (value, found) in [
        (plain("a"), id(b"a")),
        (plain(" a\\n"), id(b"a")),
        (plain("\\u001f a \\u001c\\u00a0"), id(b"a")),
        (plain("a b"), id(b"a b")),
        (plain("\\u0061\\/\\\""), id(b"a/\"")),
        (plain("\u{e9}\u{1f600}"), id("\u{e9}\u{1f600}".as_bytes())),
        (plain("\\ud83d\\ude00"), id("\u{1f600}".as_bytes())),
        (plain(""), Found::Absent),
        (plain(" \\t\\u3000\\u001d"), Found::Absent),
        (plain("a\\nb"), Found::Unusable),
        (plain("a\\u0000"), Found::Unusable),
        (plain("a\\u007fb"), Found::Unusable),
        (plain("\\ud83d"), Found::Unusable),
        (plain(&"x".repeat(MAX_ID)), id("x".repeat(MAX_ID).as_bytes())),
        (plain(&"x".repeat(MAX_ID + 1)), Found::Unusable),
        (escaped(MAX_ID), id("A".repeat(MAX_ID).as_bytes())),
        (escaped(MAX_ID + 1), Found::Unusable),
        (plain(&"\u{e9}".repeat(MAX_ID / 2 + 1)), Found::Unusable),
        ("5".into(), id(b"5")),
        ("-5".into(), id(b"-5")),
        ("9007199254740993".into(), id(b"9007199254740993")),
        ("7".repeat(MAX_ID), id("7".repeat(MAX_ID).as_bytes())),
        ("7".repeat(MAX_ID + 1), Found::Unusable),
        ("5.0".into(), Found::Unusable),
        ("5e3".into(), Found::Unusable),
        ("true".into(), Found::Unusable),
        ("[]".into(), Found::Unusable),
        (r#"["a"]"#.into(), Found::Unusable),
        ("{}".into(), Found::Unusable),
        ("null".into(), Found::Absent),
    ] {
        let body = object(&format!(r#"{{"meta":{{"id":{value}}}}}"#));
        assert_eq!(find(&sources(&["body:/meta/id"]), &HeaderMap::new(), &body), found, "{value}");
    }
    for (body, found) in [
        ("{}", Found::Absent),
        (r#"{"meta":null}"#, Found::Absent),
        (r#"{"meta":"id"}"#, Found::Absent),
        (r#"{"meta":{"id":"a"},"meta":{}}"#, Found::Absent),
        (r#"{"meta":{"id":1},"m\u0065ta":{"id":2,"\u0069d":3}}"#, id(b"3")),
        (r#"{"meta":{"id":"a","\ud83d":1}}"#, Found::Unusable),
    ] {
        assert_eq!(find(&sources(&["body:/meta/id"]), &HeaderMap::new(), &object(body)), found, "{body}");
    }
}

#[test]
fn the_first_usable_source_wins() {
    let all = ["header:x-a", "body:/b", "header:x-c"];
    let long = "x".repeat(MAX_ID + 1);
    #[rustfmt::skip]
    let cases: &[(List<'_>, &str, Found)] = &[
        (&[("x-a", b"a"), ("x-c", b"c")], r#"{"b":"b"}"#, id(b"a")),
        (&[("x-c", b"c")], r#"{"b":"b"}"#, id(b"b")),
        (&[("x-c", b"c")], "{}", id(b"c")),
        (&[("x-a", b" "), ("x-c", b"c")], r#"{"b":""}"#, id(b"c")),
        (&[("x-a", long.as_bytes()), ("x-c", b"c")], r#"{"b":true}"#, id(b"c")),
        (&[("x-c", b" ")], r#"{"b":true}"#, Found::Unusable),
        (&[("x-a", long.as_bytes())], r#"{"b":null}"#, Found::Unusable),
        (&[], "{}", Found::Absent),
    ];
    for (list, body, found) in cases {
        assert_eq!(find(&sources(&all), &headers(list), &object(body)), *found, "{list:?} {body}");
    }
}

#[test]
fn a_body_that_names_its_conversation_has_its_way() {
    for (params, named) in [
        (r#"{"conversation_id":"a"}"#, true),
        (r#"{"conversation_id":null}"#, true),
        ("{}", true),
        (r#""a""#, true),
        ("null", false),
        (r#"null,"conversation_params":{}"#, true),
        (r#"{},"conversation\u005fparams":null"#, false),
    ] {
        let body = object(&format!(r#"{{"conversation_params":{params}}}"#));
        let found = find(&sources(&["header:x-id"]), &headers(&[("x-id", b"a")]), &body);
        assert_eq!(found, if named { Found::Named } else { id(b"a") }, "{params}");
    }
}

#[test]
fn a_worker_finds_the_id_before_any_other() {
    let every: Vec<HeaderName> = CONVERSATION_HEADERS.into();
    let other = HeaderName::from_static("x-other");
    for target in every.iter().chain([&other]) {
        let mut headers = HeaderMap::new();
        for name in every.iter().chain([&other]) {
            headers.append(name, HeaderValue::from_static("1"));
            headers.append(name, HeaderValue::from_static("2"));
        }
        set(&mut headers, target, HeaderValue::from_static("id"));
        let values = |name: &HeaderName| headers.get_all(name).iter().collect::<Vec<_>>();
        assert_eq!(values(target), ["id"], "{target}");
        if *target == other {
            assert!(every.iter().all(|name| values(name) == ["1", "2"]));
        } else {
            // As a worker looks.
            let first = every.iter().find(|name| headers.contains_key(*name));
            assert_eq!(first, Some(target));
            let after = every.iter().skip_while(|name| *name != target).skip(1);
            assert!(after.chain([&other]).all(|name| values(name) == ["1", "2"]), "{target}");
        }
    }
}

// === the service ===

type Sent = Request<Handoff<Validated>>;
type Reply = Response<&'static str>;

const BODY: &str = r#"{"messages":[{"role":"user","content":"CANARY-5f3a"}],"user":"7f3a"}"#;

fn handoff() -> Handoff<Validated> {
    let request = ClientRequest::parse(Endpoint::Chat, Bytes::from_static(BODY.as_bytes())).unwrap();
    Handoff::validated(request, "10.0.0.5:8001".parse().unwrap())
}

fn request() -> Sent {
    Request::post("/v1/chat/completions?q")
        .header("x-session-id", "theirs")
        .header("x-session-id", "again")
        .header("x-claude-session-id", "c")
        .header("x-correlation-id", "trace")
        .extension(7_u8)
        .body(handoff())
        .unwrap()
}

fn layer(list: &[&str]) -> ConversationLayer {
    ConversationLayer::new(sources(list))
}

/// What the inner service is sent.
fn sent(layer: &ConversationLayer, request: Sent) -> Sent {
    let (inner, mut handle) = leg::<Sent, Reply>();
    let mut service = layer.layer(inner);
    assert_ready_ok!(task::spawn(()).enter(|cx, _| service.poll_ready(cx)));
    drop(service.call(request));
    handle.try_next().unwrap().0
}

#[test]
fn the_inner_service_gets_the_request_with_the_id() {
    let seen = sent(&layer(&["body:/user"]), request());
    assert_eq!((seen.method(), seen.uri()), (&Method::POST, &"/v1/chat/completions?q".parse().unwrap()));
    assert_eq!(*seen.headers(), headers(&[("x-session-id", b"7f3a"), ("x-correlation-id", b"trace")]));
    assert_eq!(seen.extensions().get::<u8>(), Some(&7));
    assert_eq!(seen.body().request().body(), BODY);

    let header = layer(&["body:/user"]).header(HeaderName::from_static("x-correlation-id"));
    assert_eq!(*sent(&header, request()).headers(), headers(&[("x-correlation-id", b"7f3a")]));
}

#[test]
fn a_client_cannot_nominate_the_id_away() {
    let mut from = request();
    from.headers_mut().insert("x-chat-id", HeaderValue::from_static("7f3b"));
    from.headers_mut().insert("connection", HeaderValue::from_static("x-session-id, x-chat-id"));
    let mut seen = sent(&layer(&["header:x-chat-id"]), from);
    crate::leg::headers::strip_request(seen.headers_mut());
    assert_eq!(*seen.headers(), headers(&[("x-session-id", b"7f3b"), ("x-correlation-id", b"trace")]));
}

#[test]
fn what_has_no_id_goes_on_as_it_came() {
    for list in [&[][..], &["header:x-none"], &["body:/messages"], &["header:x-none", "body:/none"]] {
        let seen = sent(&layer(list), request());
        assert_eq!(seen.headers(), request().headers(), "{list:?}");
        assert_eq!(seen.body().request().body(), BODY);
    }
}

#[test]
fn what_came_of_it_is_counted() {
    let named = r#"{"messages":[],"user":"a","conversation_params":{"conversation_id":"b"}}"#;
    for (list, body, counted) in [
        (&["body:/user"][..], BODY, Some("set")),
        (&["body:/none"], BODY, Some("absent")),
        (&["body:/messages"], BODY, Some("unusable")),
        (&["body:/user"], named, Some("named")),
        (&[], BODY, None),
    ] {
        let recorded = Recorded::default();
        let body = ClientRequest::parse(Endpoint::Chat, Bytes::from_static(body.as_bytes())).unwrap();
        let handoff = Handoff::validated(body, "10.0.0.5:8001".parse().unwrap());
        metrics::with_local_recorder(&recorded, || sent(&layer(list), Request::new(handoff)));
        let expected =
            counted.map(|result| (format!("disagg_conversation_ids_total{{result={result}}}"), 1.0));
        assert_eq!(recorded.all(), expected.into_iter().collect());
    }
}

fn mocked() -> (Conversation<Mock<Sent, Reply>>, mock::Handle<Sent, Reply>) {
    let (inner, handle) = mock::pair();
    (layer(&["body:/user"]).layer(inner), handle)
}

#[test]
fn readiness_is_that_of_the_inner_service() {
    let (service, mut handle) = mocked();
    let mut service = task::spawn(service);
    handle.allow(0);
    assert_pending!(service.enter(|cx, mut service| service.poll_ready(cx)));
    handle.allow(1);
    assert!(service.is_woken());
    assert_ready_ok!(service.enter(|cx, mut service| service.poll_ready(cx)));
}

#[test]
fn answers_and_errors_pass_as_they_are() {
    let (mut service, mut handle) = mocked();
    for fails in [false, true] {
        handle.allow(1);
        assert_ready_ok!(task::spawn(()).enter(|cx, _| service.poll_ready(cx)));
        let mut call = task::spawn(service.call(request()));
        let (_, reply) = assert_ready!(task::spawn(handle.next_request()).poll()).unwrap();
        if fails {
            reply.send_error("the cause");
            assert_eq!(assert_ready_err!(call.poll()).to_string(), "the cause");
        } else {
            reply.send_response(Response::new("answer"));
            assert_eq!(assert_ready_ok!(call.poll()).into_body(), "answer");
        }
    }
    handle.send_error("gone");
    assert_eq!(assert_ready_err!(task::spawn(()).enter(|cx, _| service.poll_ready(cx))).to_string(), "gone");
}

#[test]
fn dropping_the_future_drops_the_call() {
    let (inner, mut handle) = leg::<Sent, Reply>();
    let mut service = layer(&["body:/user"]).layer(inner);
    assert_ready_ok!(task::spawn(()).enter(|cx, _| service.poll_ready(cx)));
    let mut call = task::spawn(service.call(request()));
    assert_pending!(call.poll());
    let (_, reply) = handle.try_next().unwrap();
    drop(call);
    assert!(reply.is_cancelled());
}

#[test]
#[should_panic(expected = "had not been polled to readiness")]
fn a_clone_does_not_inherit_readiness() {
    let (inner, _handle) = leg::<Sent, Reply>();
    let mut service = layer(&["body:/user"]).layer(Probe::new(inner));
    assert_ready_ok!(task::spawn(()).enter(|cx, _| service.poll_ready(cx)));
    drop(service.clone().call(request()));
}

#[test]
fn it_stands_at_any_stage_and_says_nothing_of_content() {
    fn takes<S: crate::handoff::Stage>()
    where
        Conversation<LegDouble<Request<Handoff<S>>, Reply>>: Service<Request<Handoff<S>>, Response = Reply>,
    {
    }
    takes::<Validated>();
    takes::<Minted>();
    takes::<Primed>();
    takes::<Open>();
    assert_layer_traits::<ConversationLayer>();
    assert_service_traits::<Conversation<LegDouble<Sent, Reply>>>();

    let (inner, mut handle) = leg::<Request<Handoff<Minted>>, Reply>();
    let mut service = layer(&["body:/user"]).layer(inner);
    assert_ready_ok!(task::spawn(()).enter(|cx, _| service.poll_ready(cx)));
    let minted = handoff().mint(DisaggRequestId::new(1 << 50).unwrap());
    drop(service.call(Request::new(minted)));
    assert_eq!(handle.try_next().unwrap().0.headers()["x-session-id"], "7f3a");
    assert!(!format!("{service:?}").contains("CANARY"));
    let _: LegDouble<Request<Handoff<Minted>>, Reply> = service.into_inner();
}
