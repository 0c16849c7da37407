use std::collections::HashSet;

use super::*;

fn endpoint(text: &str) -> ContextEndpoint {
    text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
}

#[test]
fn hosts_of_each_kind_are_read() {
    let v6 = |text: &str| Host::V6(text.parse().unwrap());
    for (text, host, port, normal) in [
        ("127.0.0.1:8001", Host::V4(Ipv4Addr::LOCALHOST), 8001, "127.0.0.1:8001"),
        ("[::1]:8001", v6("::1"), 8001, "[::1]:8001"),
        ("[2001:DB8:0:0::1]:1", v6("2001:db8::1"), 1, "[2001:db8::1]:1"),
        ("[::ffff:127.0.0.1]:8001", v6("::ffff:127.0.0.1"), 8001, "[::ffff:127.0.0.1]:8001"),
        ("h.ns.svc:8001", Host::Name("h.ns.svc"), 8001, "h.ns.svc:8001"),
        ("Worker_0.NS.svc.:65535", Host::Name("worker_0.ns.svc."), 65535, "worker_0.ns.svc.:65535"),
        ("h:1", Host::Name("h"), 1, "h:1"),
        ("10-0-0-5.pod:80", Host::Name("10-0-0-5.pod"), 80, "10-0-0-5.pod:80"),
        ("xn--bcher-kva.example:80", Host::Name("xn--bcher-kva.example"), 80, "xn--bcher-kva.example:80"),
        ("0xg:80", Host::Name("0xg"), 80, "0xg:80"),
        ("1.2.3.4.com:80", Host::Name("1.2.3.4.com"), 80, "1.2.3.4.com:80"),
        ("_tcp.my_host:80", Host::Name("_tcp.my_host"), 80, "_tcp.my_host:80"),
        ("localhost.:80", Host::Name("localhost."), 80, "localhost.:80"),
        ("255.255.255.255:65535", Host::V4(Ipv4Addr::BROADCAST), 65535, "255.255.255.255:65535"),
        ("[1:2:3:4:5:6:7:8]:80", v6("1:2:3:4:5:6:7:8"), 80, "[1:2:3:4:5:6:7:8]:80"),
        ("[::FFFF:7F00:1]:80", v6("::ffff:7f00:1"), 80, "[::ffff:127.0.0.1]:80"),
    ] {
        let read = endpoint(text);
        assert_eq!((read.host(), read.port(), read.as_str()), (host, port, normal), "{text}");
        assert_eq!(read.to_string(), normal);
        // The normal form is a fixed point, and what an HTTP client needs.
        assert_eq!(endpoint(normal), read);
        let authority: http::uri::Authority = normal.parse().unwrap();
        assert_eq!(authority.port_u16(), Some(port));
    }
}

#[test]
fn everything_else_is_refused() {
    use EndpointErrorKind::*;
    for (text, kind) in [
        ("", Empty),
        ("prefill", Port),
        ("prefill:", Port),
        ("prefill:0", Port),
        ("prefill:00080", Port),
        ("prefill:080", Port),
        ("prefill:abc", Port),
        ("prefill:65536", Port),
        ("prefill:4294967297", Port),
        ("prefill:-1", Port),
        ("prefill:0x50", Port),
        ("prefill:00", Port),
        ("prefill:1e3", Port),
        ("prefill:18446744073709551617", Port),
        (":", Port),
        ("null", Port),
        ("127.0.0.1", Port),
        ("[::1]", Port),
        ("::1", Host),
        (":8001", Host),
        ("::1:8001", Host),
        ("2001:db8::1:8001", Host),
        ("a:b:80", Host),
        ("[]:8001", Host),
        ("[zz]:8001", Host),
        ("[::1:8001", Host),
        ("::1]:8001", Host),
        ("[[::1]]:8001", Host),
        ("[127.0.0.1]:8001", Host),
        ("[::1]x:8001", Host),
        ("[::1].:8001", Host),
        ("2130706433:80", Host),
        ("127.1:80", Host),
        ("1.2.3.4.:80", Host),
        ("1.2.3.256:80", Host),
        ("1.2.3.4.5:80", Host),
        ("010.0.0.1:80", Host),
        ("0x7f000001:80", Host),
        ("0X7F.1:80", Host),
        ("0x7f.1:80", Host),
        ("0x7f.0.0.1:80", Host),
        ("0177.0.0.1:80", Host),
        ("127.0.0.01:80", Host),
        ("127.000.000.001:80", Host),
        ("127.0.1:80", Host),
        ("0:80", Host),
        ("host.0x1f:80", Host),
        ("host.0x:80", Host),
        ("host.9:80", Host),
        ("-h:80", Host),
        ("h-:80", Host),
        ("h..x:80", Host),
        (".h:80", Host),
        (".:80", Host),
        ("h..:80", Host),
        ("h:+8001", Characters),
        ("*:8001", Characters),
        ("a;b:8001", Characters),
        ("a:1,b:2", Characters),
        ("a:1,", Characters),
        (",a:1", Characters),
        ("a:1;q=1", Characters),
        ("a:1 b:2", Characters),
        ("\"h:1\"", Characters),
        ("h:1\\", Characters),
        ("//h:1", Characters),
        ("h~1:80", Characters),
        ("h!:80", Characters),
        ("u:p@h:1", Characters),
        ("http://h:1", Characters),
        ("h:1/", Characters),
        ("h:1?x", Characters),
        ("h:1#x", Characters),
        (" h:1", Characters),
        ("h:1 ", Characters),
        ("h\t:1", Characters),
        ("h:1\t", Characters),
        ("\th:1", Characters),
        ("h: 1", Characters),
        ("h :1", Characters),
        ("h:1\r", Characters),
        ("h:1\n", Characters),
        ("h:1\u{7f}", Characters),
        ("h%41:1", Characters),
        ("h%00:1", Characters),
        ("[fe80::1%eth0]:1", Characters),
        ("[fe80::1%25eth0]:1", Characters),
        ("[fe80::1%1]:1", Characters),
        ("[v1.a]:1", Host),
        ("[1:2:3:4:5:6:7]:1", Host),
        ("[1:2:3:4:5:6:7:8:9]:1", Host),
        ("[::1::]:1", Host),
        ("[::10000]:1", Host),
        ("[::ffff:127.0.0.01]:1", Host),
        ("[::ffff:127.0.0.256]:1", Host),
        ("[host]:1", Host),
        ("[::1]:", Port),
        ("[::1]1", Port),
        ("bücher.example:80", Characters),
        ("h:\u{661}", Characters),
        ("h:\u{ff11}", Characters),
        ("h\u{2024}x:1", Characters),
        ("h\u{a0}:1", Characters),
        ("h\u{200b}:1", Characters),
        ("h\0:1", Characters),
    ] {
        let error = text.parse::<ContextEndpoint>().unwrap_err();
        assert_eq!(error.kind(), kind, "{text:?}");
    }
}

#[test]
fn names_have_the_limits_of_dns() {
    let label = "a".repeat(63);
    let longest = format!("{label}.{label}.{label}.{}", "a".repeat(61));
    assert_eq!(longest.len(), 253);
    assert!(matches!(endpoint(&format!("{longest}:65535")).host(), Host::Name(name) if name == longest));
    endpoint(&format!("{longest}.:65535"));
    let kind = |text: String| text.parse::<ContextEndpoint>().unwrap_err().kind();
    assert_eq!(kind(format!("{longest}a:1")), EndpointErrorKind::Host);
    assert_eq!(kind(format!("{label}a:1")), EndpointErrorKind::Host);
    assert_eq!(kind(format!("{longest}aa:65535")), EndpointErrorKind::TooLong);
    assert_eq!(kind("a".repeat(1 << 20)), EndpointErrorKind::TooLong);
}

#[test]
fn equality_is_that_of_the_normal_form() {
    let same = [("H.ns:80", "h.NS:80"), ("[0:0::1]:80", "[::1]:80"), ("[::A]:80", "[::a]:80")];
    for (a, b) in same {
        assert_eq!(endpoint(a), endpoint(b));
        assert_eq!(HashSet::from([endpoint(a), endpoint(b)]).len(), 1);
    }
    for (a, b) in [
        ("h:80", "h:81"),
        ("h:80", "h.:80"),
        ("127.0.0.1:80", "[::ffff:127.0.0.1]:80"),
        ("localhost:80", "127.0.0.1:80"),
    ] {
        assert_ne!(endpoint(a), endpoint(b));
    }
}

#[test]
fn the_header_occurs_once_or_not_at_all() {
    let read = |values: &[&[u8]]| {
        let mut headers = HeaderMap::new();
        headers.insert("x-other", HeaderValue::from_static("h:1"));
        for value in values {
            headers.append("X-Prefiller-Host-Port", HeaderValue::from_bytes(value).unwrap());
        }
        context_endpoint(&headers).map_err(|error| error.kind())
    };
    assert_eq!(read(&[]), Ok(None));
    assert_eq!(read(&[b"h:1"]), Ok(Some(endpoint("h:1"))));
    assert_eq!(read(&[b""]), Err(EndpointErrorKind::Empty));
    assert_eq!(read(&[b"h:1", b"h:1"]), Err(EndpointErrorKind::Repeated));
    assert_eq!(read(&[b"h:1", b""]), Err(EndpointErrorKind::Repeated));
    assert_eq!(read(&[b"h:1,h:2"]), Err(EndpointErrorKind::Characters));
    assert_eq!(read(&[b"h\xff:1"]), Err(EndpointErrorKind::Characters));
    assert_eq!(read(&[b"h:1\x80"]), Err(EndpointErrorKind::Characters));
    assert_eq!(read(&[b"h:1\t"]), Err(EndpointErrorKind::Characters));
    assert_eq!(read(&[b"", b""]), Err(EndpointErrorKind::Repeated));
    assert_eq!(read(&[b"\xff", b"h:1"]), Err(EndpointErrorKind::Repeated));
    assert_eq!(read(&["h\u{e9}:1".as_bytes()]), Err(EndpointErrorKind::Characters));
}

#[test]
fn errors_do_not_quote_the_value() {
    for text in ["secret", "secret@h:1", "-secret:1", &"secret".repeat(100)] {
        let error = text.parse::<ContextEndpoint>().unwrap_err();
        assert!(!format!("{error} {error:?}").contains("secret"));
        assert!(!error.to_string().is_empty());
    }
}

#[test]
fn clones_share_the_text() {
    let one = endpoint("h.ns.svc:8001");
    assert_eq!(one.clone().as_str().as_ptr(), one.as_str().as_ptr());
    assert_eq!(format!("{one:?} {one:>15}"), "ContextEndpoint(h.ns.svc:8001)   h.ns.svc:8001");
}
