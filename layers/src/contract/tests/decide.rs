//! The decisions alone, without a runtime.

use std::error::Error;

use bytes::Bytes;
use http::{HeaderValue, Method, Request, request::Parts};

use super::{
    super::{
        decide::{self, Chosen, Route},
        layer::Rules,
    },
    CANARY, CHAT, WORKER, request,
};
use crate::{
    buffer::{BufferBudget, CollectError},
    error::{
        AdmissionError, AdmissionErrorKind, BoxError, ContractError, ContractErrorKind, ErrorReply, find,
    },
    trtllm::{ContextEndpoint, Endpoint, EndpointError, RequestError},
};

fn rules() -> Rules {
    Rules {
        max_body: 1,
        body_timeout: None,
        budget: BufferBudget::unlimited(),
        allow: std::sync::Arc::new(|_: &ContextEndpoint| true),
        guard: true,
    }
}

fn parts(method: Method, path: &str, headers: &[(&str, &str)]) -> Parts {
    request(method, path, headers, ()).into_parts().0
}

fn chosen(endpoint: Endpoint) -> Chosen {
    Chosen { endpoint, context: WORKER.parse().unwrap(), addresses: None }
}

fn reply_of(error: ContractError) -> ErrorReply {
    let boxed: BoxError = error.into();
    ErrorReply::of(&*boxed)
}

#[test]
fn each_kind_has_the_answer_of_the_error_table() {
    let rows = [
        (ContractErrorKind::InvalidEppMetadata, 502, "invalid_epp_metadata"),
        (ContractErrorKind::EndpointNotAllowed, 403, "context_endpoint_not_allowed"),
        (ContractErrorKind::EndpointUnresolved, 502, "context_unreachable"),
        (ContractErrorKind::UnsupportedEndpoint, 501, "unsupported_endpoint"),
        (ContractErrorKind::InvalidRequest, 400, "invalid_request"),
        (ContractErrorKind::UnsupportedRequest, 400, "unsupported_request"),
        (ContractErrorKind::HandoffFieldsForbidden, 400, "handoff_fields_forbidden"),
        (ContractErrorKind::RequestTooLarge, 413, "request_too_large"),
        (ContractErrorKind::RequestTimeout, 408, "request_timeout"),
        (ContractErrorKind::RequestIncomplete, 400, "invalid_request"),
        (ContractErrorKind::NotServed, 404, "not_found"),
    ];
    for (kind, status, code) in rows {
        let reply = reply_of(ContractError::new(kind));
        assert_eq!((reply.status.as_u16(), reply.code), (status, code), "{kind:?}");
        assert_eq!((reply.param, reply.retry_after), (None, None), "{kind:?}");
        assert!(!reply.message.is_empty());
    }
}

#[test]
fn a_routing_header_starts_a_handoff_on_two_endpoints() {
    for (path, endpoint) in [
        ("/v1/chat/completions", Endpoint::Chat),
        ("/v1/completions", Endpoint::Completions),
        ("/v1/chat/completions?tenant=a", Endpoint::Chat),
        ("http://gateway:80/v1/completions", Endpoint::Completions),
    ] {
        for (value, normal) in [
            (WORKER, WORKER),
            ("[2001:DB8:0::1]:65535", "[2001:db8::1]:65535"),
            ("Pod-7.prefill.svc:1", "pod-7.prefill.svc:1"),
        ] {
            let parts = parts(Method::POST, path, &[("X-Prefiller-Host-Port", value)]);
            let Route::Handoff(chosen) = decide::route(&parts, &rules()).unwrap() else {
                panic!("{path} {value}: no handoff")
            };
            assert_eq!((chosen.endpoint, chosen.context.as_str()), (endpoint, normal), "{path} {value}");
        }
    }
}

#[test]
fn a_routing_header_that_is_not_one_worker_is_the_routers_fault() {
    let long = format!("{}:8001", "a".repeat(300));
    for value in [
        "",
        " ",
        "prefill",
        "prefill:",
        ":8001",
        "prefill:0",
        "prefill:abc",
        "prefill:65536",
        "prefill:+80",
        "prefill:080",
        "2001:db8::1:8001",
        "[::1]",
        "[]:1",
        "u:p@h:1",
        "http://h:1",
        "h:1/",
        "h:1?q",
        "a:1,b:2",
        "a:1, b:2",
        "a :1",
        "*:8001",
        "2130706433:80",
        "127.1:80",
        "0x7f000001:80",
        &long,
    ] {
        let parts = parts(Method::POST, "/v1/chat/completions", &[("x-prefiller-host-port", value)]);
        let error = decide::route(&parts, &rules()).unwrap_err();
        assert!(find::<EndpointError>(&error).is_some(), "{value:?}: the cause is lost");
        let reply = reply_of(error);
        assert_eq!((reply.status.as_u16(), reply.code), (502, "invalid_epp_metadata"), "{value:?}");
        assert_eq!(reply.param, None);
        assert!(reply.message.contains("x-prefiller-host-port"), "{}", reply.message);
        let said = reply.message.replace("x-prefiller-host-port", "");
        assert!(value.len() < 4 || !said.contains(value), "quotes {value:?}: {said}");
    }
}

#[test]
fn a_routing_header_that_is_there_twice_is_refused_even_when_both_agree() {
    for (first, second) in [(WORKER, WORKER), (WORKER, "other:1"), (WORKER, ""), ("", WORKER)] {
        let header = "x-prefiller-host-port";
        let parts = parts(Method::POST, "/v1/completions", &[(header, first), (header, second)]);
        let error = decide::route(&parts, &rules()).unwrap_err();
        assert_eq!(error.kind(), ContractErrorKind::InvalidEppMetadata, "{first:?} {second:?}");
        assert!(error.to_string().contains("more than once"), "{error}");
    }
}

#[test]
fn a_routing_header_that_is_not_ascii_is_refused() {
    let mut request = request(Method::POST, "/v1/completions", &[], ());
    let value = HeaderValue::from_bytes(b"pr\xe4fill:1").unwrap();
    request.headers_mut().insert("x-prefiller-host-port", value);
    let error = decide::route(&request.into_parts().0, &rules()).unwrap_err();
    assert_eq!(error.kind(), ContractErrorKind::InvalidEppMetadata);
}

#[test]
fn a_routing_header_where_nothing_can_be_handed_off_is_not_dropped_in_silence() {
    for (method, path) in [
        (Method::POST, "/v1/responses"),
        (Method::POST, "/v1/embeddings"),
        (Method::POST, "/v1/chat/completions/"),
        (Method::POST, "//v1/chat/completions"),
        (Method::POST, "/V1/completions"),
        (Method::POST, "/"),
        (Method::GET, "/v1/models"),
        (Method::GET, "/v1/chat/completions"),
        (Method::PUT, "/v1/chat/completions"),
        (Method::HEAD, "/v1/completions"),
        (Method::OPTIONS, "*"),
    ] {
        let head = parts(method.clone(), path, &[("x-prefiller-host-port", WORKER)]);
        let reply = reply_of(decide::route(&head, &rules()).unwrap_err());
        assert_eq!((reply.status.as_u16(), reply.code), (501, "unsupported_endpoint"), "{method} {path}");
    }
}

#[test]
fn only_allowed_endpoints_are_asked() {
    let allow = |endpoint: &ContextEndpoint| endpoint.as_str() == "127.0.0.1:8001";
    let rules = Rules { allow: std::sync::Arc::new(allow), ..rules() };
    let route = |value: &str, path: &str| {
        decide::route(&parts(Method::POST, path, &[("x-prefiller-host-port", value)]), &rules)
    };

    assert!(matches!(route("127.0.0.1:8001", "/v1/completions"), Ok(Route::Handoff(..))));
    for value in [
        "127.0.0.1:9090",
        "localhost:8001",
        "LOCALHOST:8001",
        "[::ffff:127.0.0.1]:8001",
        "169.254.169.254:80",
        "127.0.0.1.:8001",
    ] {
        // The last of these is no address at all.
        let expected = if value == "127.0.0.1.:8001" {
            (502, "invalid_epp_metadata")
        } else {
            (403, "context_endpoint_not_allowed")
        };
        let reply = reply_of(route(value, "/v1/completions").unwrap_err());
        assert_eq!((reply.status.as_u16(), reply.code), expected, "{value}");
        assert!(!reply.message.contains(value), "tells which endpoints there are: {}", reply.message);
    }
    // Whoever may not be asked is not told what could have been asked.
    assert_eq!(route("other:1", "/v1/models").unwrap_err().kind(), ContractErrorKind::EndpointNotAllowed);
}

#[test]
fn a_name_is_looked_up_last_and_for_a_handoff_only() {
    let rules = Rules { allow: std::sync::Arc::new(super::allow::Unasked), ..rules() };
    let route = |method: Method, value: &str, path: &str| {
        decide::route(&parts(method, path, &[("x-prefiller-host-port", value)]), &rules)
    };
    let Ok(Route::Ask(chosen, _)) = route(Method::POST, "Prefill.test:1", "/v1/completions") else {
        panic!("nothing was asked")
    };
    assert_eq!((chosen.endpoint, chosen.context.as_str()), (Endpoint::Completions, "prefill.test:1"));
    assert_eq!(chosen.addresses, None);
    for (method, value, path, kind) in [
        (Method::POST, "prefill", "/v1/completions", ContractErrorKind::InvalidEppMetadata),
        (Method::POST, "prefill.test:1", "/v1/responses", ContractErrorKind::UnsupportedEndpoint),
        (Method::GET, "prefill.test:1", "/v1/completions", ContractErrorKind::UnsupportedEndpoint),
    ] {
        assert_eq!(route(method, value, path).unwrap_err().kind(), kind, "{path}");
    }
}

#[test]
fn without_a_routing_header_posts_are_checked_and_the_rest_passes() {
    let verbatim = Rules { guard: false, ..rules() };
    for (method, path, checked) in [
        (Method::POST, "/v1/chat/completions", true),
        (Method::POST, "/v1/responses", true),
        (Method::POST, "/", true),
        (Method::from_bytes(b"post").unwrap(), "/v1/chat/completions", true),
        (Method::GET, "/v1/models", false),
        (Method::HEAD, "/health", false),
        (Method::DELETE, "/v1/responses/1", false),
    ] {
        let head = parts(method.clone(), path, &[("x-other", WORKER)]);
        let route = decide::route(&head, &rules()).unwrap();
        assert_eq!(matches!(route, Route::Check), checked, "{method} {path}");
        assert_eq!(matches!(route, Route::Pass), !checked, "{method} {path}");
        assert!(matches!(decide::route(&head, &verbatim).unwrap(), Route::Pass), "{method} {path}");
    }
    // Neither setting lets a header by.
    let routed = parts(Method::POST, "/v1/completions", &[("x-prefiller-host-port", "x")]);
    assert!(decide::route(&routed, &verbatim).is_err());
}

/// The body, then (status, code, param).
type Refusal = (&'static [u8], &'static str, Option<&'static str>);

#[test]
fn a_body_that_cannot_be_handed_off_is_refused_by_what_is_wrong_with_it() {
    let chat: &[Refusal] = &[
        (b"", "invalid_request", None),
        (b" \n", "invalid_request", None),
        (b"[]", "invalid_request", None),
        (b"\"CANARY-5f3a\"", "invalid_request", None),
        (b"null", "invalid_request", None),
        (b"{\"a\":CANARY-5f3a}", "invalid_request", None),
        (b"{}{}", "invalid_request", None),
        (b"{\"a\":1", "invalid_request", None),
        (b"\xef\xbb\xbf{}", "invalid_request", None),
        (b"{\"a\":\"\xff\"}", "invalid_request", None),
        (b"{\0\"\0a\0\"\0:\x001\0}\0", "invalid_request", None),
        (br#"{"messages":"CANARY-5f3a"}"#, "invalid_request", Some("messages")),
        (br#"{"stream":1}"#, "invalid_request", Some("stream")),
        (br#"{"stream":"yes"}"#, "invalid_request", Some("stream")),
        (br#"{"stream":true,"stream":false}"#, "invalid_request", Some("stream")),
        (br#"{"stream":true,"\u0073tream":false}"#, "invalid_request", Some("stream")),
        (br#"{"stream_options":[]}"#, "invalid_request", Some("stream_options")),
        (
            br#"{"stream_options":{"include_usage":1}}"#,
            "invalid_request",
            Some("stream_options.include_usage"),
        ),
        (br#"{"n":"2"}"#, "invalid_request", Some("n")),
        (br#"{"n":0}"#, "invalid_request", Some("n")),
        (br#"{"n":2}"#, "unsupported_request", Some("n")),
        (br#"{"best_of":2}"#, "unsupported_request", Some("best_of")),
        (br#"{"use_beam_search":true}"#, "unsupported_request", Some("use_beam_search")),
        (
            br#"{"disaggregated_params":{"encoded_opaque_state":"CANARY-5f3a"}}"#,
            "handoff_fields_forbidden",
            Some("disaggregated_params"),
        ),
        (br#"{"disaggregated_params":[]}"#, "handoff_fields_forbidden", Some("disaggregated_params")),
        (
            br#"{"disaggregated\u005fparams":{"a":1}}"#,
            "handoff_fields_forbidden",
            Some("disaggregated_params"),
        ),
        (
            br#"{"disaggregated_params":null,"disaggregated_params":{}}"#,
            "invalid_request",
            Some("disaggregated_params"),
        ),
        (br#"{"prompt_token_ids":[9]}"#, "handoff_fields_forbidden", Some("prompt_token_ids")),
        (br#"{"prompt_token_ids_b64":"QQ=="}"#, "handoff_fields_forbidden", Some("prompt_token_ids_b64")),
    ];
    let completions: &[Refusal] = &[
        (br#"{"prompt":["a","b"]}"#, "unsupported_request", Some("prompt")),
        (br#"{"prompt":[[1],[2]]}"#, "unsupported_request", Some("prompt")),
        (br#"{"prompt":"a","echo":true}"#, "unsupported_request", Some("echo")),
        (br#"{"prompt":[]}"#, "invalid_request", Some("prompt")),
        (b"{}", "invalid_request", Some("prompt")),
    ];
    for (endpoint, rows) in [(Endpoint::Chat, chat), (Endpoint::Completions, completions)] {
        for (body, code, param) in rows {
            let shown = String::from_utf8_lossy(body);
            let error = decide::validate(chosen(endpoint), Bytes::from_static(body)).unwrap_err();
            assert!(
                error.source().is_some_and(|cause| cause.is::<RequestError>()),
                "{shown}: the cause is lost"
            );
            let reply = reply_of(error);
            assert_eq!(
                (reply.status.as_u16(), reply.code, reply.param.as_deref()),
                (400, *code, *param),
                "{shown}"
            );
            assert!(!reply.message.contains(CANARY), "{}", reply.message);
        }
    }
}

#[test]
fn depth_is_refused_without_recursion() {
    let deep = Bytes::from(vec![b'['; 200_000]);
    let error = decide::validate(chosen(Endpoint::Chat), deep).unwrap_err();
    assert_eq!(error.kind(), ContractErrorKind::InvalidRequest);
}

#[test]
fn a_valid_body_becomes_a_handoff_that_holds_it() {
    let body = Bytes::from_static(CHAT.as_bytes());
    let handoff = decide::validate(chosen(Endpoint::Chat), body.clone()).unwrap();
    assert_eq!(handoff.request().body().as_ptr(), body.as_ptr());
    assert_eq!(handoff.request().body().len(), body.len());
    assert_eq!(handoff.context_endpoint().as_str(), WORKER);
    assert_eq!(handoff.request().endpoint(), Endpoint::Chat);
}

#[test]
fn what_passes_by_is_checked_by_its_content_type() {
    let guilty = br#"{"disaggregated_params":{"a":1}}"#;
    let head = |types: &[&str]| {
        let mut request = Request::builder();
        for value in types {
            request = request.header("content-type", *value);
        }
        request.body(()).unwrap().into_parts().0
    };
    for (types, checked) in [
        (&[][..], true),
        (&["application/json"], true),
        (&["Application/JSON; charset=utf-16"], true),
        (&["application/vnd.api+json"], true),
        (&["nonsense"], true),
        (&["text/plain"], false),
        (&["multipart/form-data; boundary=x"], false),
        // Which of two counts is for the worker to say.
        (&["text/plain", "application/json"], true),
        (&["text/plain", "text/plain"], true),
    ] {
        let result = decide::check(&head(types), &Bytes::from_static(guilty));
        assert_eq!(result.is_err(), checked, "{types:?}");
        if let Err(error) = result {
            assert_eq!(error.kind(), ContractErrorKind::HandoffFieldsForbidden, "{types:?}");
        }
    }
}

#[test]
fn a_body_that_could_not_be_read_says_why() {
    let error = decide::unread(CollectError::TooLarge, 4096);
    let reply = ErrorReply::of(&*error);
    assert_eq!((reply.status.as_u16(), reply.code), (413, "request_too_large"));
    assert!(reply.message.contains("4096 bytes"), "{}", reply.message);

    let error = decide::unread(CollectError::Overloaded, 4096);
    assert_eq!(find::<AdmissionError>(&*error).unwrap().kind(), AdmissionErrorKind::Overloaded);
    let reply = ErrorReply::of(&*error);
    assert_eq!((reply.status.as_u16(), reply.code), (503, "overloaded"));
    assert_eq!(reply.retry_after.unwrap(), "1");

    let error = decide::unread(CollectError::Body(format!("at {CANARY}").into()), 4096);
    let reply = ErrorReply::of(&*error);
    assert_eq!((reply.status.as_u16(), reply.code), (400, "invalid_request"));
    assert!(!reply.message.contains(CANARY));
    let cause = error.source().and_then(Error::source).unwrap();
    assert_eq!(cause.to_string(), format!("at {CANARY}"));
}
