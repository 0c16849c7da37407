//! The grammar of the routing header: `trtllm::context_endpoint` and `ContextEndpoint`.
//!
//! Against a grammar of its own (contract, section 1), against `http::uri::Authority`, which takes more and has to mean
//! the same by what both take, and against a resolver's `inet_aton`, which takes spellings of an IPv4 address that
//! must not get by as names.

use std::{
    hash::{BuildHasher, RandomState},
    net::{Ipv4Addr, Ipv6Addr},
};

use http::{HeaderMap, HeaderValue, uri::Authority};
use tower_disagg::trtllm::{
    ContextEndpoint, EndpointError, EndpointErrorKind, Host, ROUTING_HEADER, context_endpoint,
};

use crate::quote::assert_quotes_nothing;

/// Reads `value` as the value of the routing header.
pub fn header(value: &[u8]) {
    let as_text = std::str::from_utf8(value).ok().map(str::parse::<ContextEndpoint>);
    if let Some(read) = &as_text {
        check(value, read);
    }
    let Ok(header) = HeaderValue::from_bytes(value) else {
        assert!(as_text.is_none_or(|read| read.is_err()), "what no header can hold");
        return;
    };
    let read = context_endpoint(&HeaderMap::from_iter([(ROUTING_HEADER, header.clone())]));
    match (&read, as_text) {
        (Ok(endpoint), Some(Ok(same))) => assert_eq!(*endpoint, Some(same)),
        (Err(error), Some(Err(same))) if value.is_ascii() => assert_eq!(*error, same),
        (Err(error), _) => assert_eq!(error.kind(), EndpointErrorKind::Characters),
        (Ok(_), _) => panic!("a value that is no text"),
    }
    let mut twice = HeaderMap::from_iter([(ROUTING_HEADER, header.clone())]);
    twice.append(ROUTING_HEADER, header);
    assert_eq!(context_endpoint(&twice).unwrap_err().kind(), EndpointErrorKind::Repeated);
}

fn check(value: &[u8], read: &Result<ContextEndpoint, EndpointError>) {
    let text = std::str::from_utf8(value).unwrap();
    let expected = grammar(text);
    let endpoint = match read {
        Ok(endpoint) => endpoint,
        Err(error) => {
            assert_quotes_nothing(error, value);
            assert_eq!(expected, None, "{error}");
            return;
        }
    };
    assert_eq!(
        Some((endpoint.host(), endpoint.port())),
        expected.as_ref().map(|(host, port)| (host.borrow(), *port))
    );
    assert!(!text.bytes().any(|byte| b"@,/?#%\\;*+ \t\r\n\0".contains(&byte) || !byte.is_ascii_graphic()));

    let normal: ContextEndpoint = endpoint.as_str().parse().expect("the normal form is a form");
    assert_eq!(
        (normal.as_str(), normal.host(), normal.port()),
        (endpoint.as_str(), endpoint.host(), endpoint.port())
    );
    let hasher = RandomState::new();
    assert_eq!((&normal, hasher.hash_one(&normal)), (endpoint, hasher.hash_one(endpoint)));
    assert!(text.eq_ignore_ascii_case(endpoint.as_str()) || matches!(endpoint.host(), Host::V6(_)));
    assert_eq!(endpoint.to_string(), endpoint.as_str());

    let authority: Authority = endpoint.as_str().parse().expect("a URI authority");
    assert_eq!(authority.port_u16(), Some(endpoint.port()));
    match endpoint.host() {
        Host::Name(name) => {
            assert_eq!(authority.host(), name);
            assert_eq!(inet_aton(name), None, "a resolver takes it for an address");
            assert_eq!(inet_aton(name.trim_end_matches('.')), None, "a resolver takes it for an address");
        }
        Host::V4(address) => assert_eq!(inet_aton(authority.host()), Some(address)),
        Host::V6(address) => assert_eq!(authority.host(), format!("[{address}]")),
    }
}

// === the grammar, once more ===

#[derive(Debug, PartialEq)]
enum Expected {
    Name(String),
    V4(Ipv4Addr),
    V6(Ipv6Addr),
}

impl Expected {
    fn borrow(&self) -> Host<'_> {
        match self {
            Self::Name(name) => Host::Name(name),
            Self::V4(address) => Host::V4(*address),
            Self::V6(address) => Host::V6(*address),
        }
    }
}

fn grammar(text: &str) -> Option<(Expected, u16)> {
    let (host, port) = text.split_at(text.rfind(':')?);
    let port = decimal(&port[1..], 65535).filter(|port| *port > 0)?;
    let host = match host.strip_prefix('[') {
        Some(inside) => {
            let inside = inside.strip_suffix(']')?;
            Expected::V6(inside.parse().ok()?)
        }
        None => dotted(host).map(Expected::V4).or_else(|| name(host).map(Expected::Name))?,
    };
    Some((host, u16::try_from(port).ok()?))
}

/// Four numbers from 0 to 255, none with a zero in front.
fn dotted(host: &str) -> Option<Ipv4Addr> {
    let parts: Vec<_> = host.split('.').map(|part| decimal(part, 255)).collect::<Option<_>>()?;
    let [a, b, c, d] = parts[..] else { return None };
    Some(Ipv4Addr::from((a << 24) | (b << 16) | (c << 8) | d))
}

fn decimal(text: &str, most: u32) -> Option<u32> {
    let plain = !text.is_empty() && text.len() <= 5 && text.bytes().all(|byte| byte.is_ascii_digit());
    let number = plain.then(|| text.bytes().fold(0, |sum, byte| sum * 10 + u32::from(byte - b'0')))?;
    (number <= most && number.to_string() == text).then_some(number)
}

/// Labels of 1 to 63 letters, digits, hyphens and underscores; the last one is no number in any notation.
fn name(host: &str) -> Option<String> {
    let lower = host.to_ascii_lowercase();
    let mut labels: Vec<&str> = lower.split('.').collect();
    if labels.last() == Some(&"") {
        labels.pop();
    }
    let last = *labels.last()?;
    let number = match last.strip_prefix("0x") {
        Some(hex) => hex.chars().all(|c| c.is_ascii_hexdigit()),
        None => last.chars().all(|c| c.is_ascii_digit()),
    };
    let length: usize = labels.iter().map(|label| label.len() + 1).sum();
    let good = |label: &&str| {
        let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '_';
        (1..=63).contains(&label.len())
            && label.chars().all(inner)
            && label.trim_matches('-').len() == label.len()
    };
    (!number && length <= 254 && labels.iter().all(good)).then_some(lower.clone())
}

/// What a resolver of the C library takes for an IPv4 address: one to four numbers, decimal, octal or hexadecimal, the
/// last of which fills what is left.
fn inet_aton(host: &str) -> Option<Ipv4Addr> {
    let numbers: Vec<u64> = host.split('.').map(c_number).collect::<Option<_>>()?;
    let (last, front) = numbers.split_last()?;
    if front.len() > 3 || front.iter().any(|part| *part > 255) {
        return None;
    }
    let rest = 32 - 8 * front.len() as u32;
    let in_front = front.iter().fold(0, |sum, part| (sum << 8) | part) << rest;
    let whole = (*last < 1 << rest).then_some(in_front | last)?;
    u32::try_from(whole).ok().map(Ipv4Addr::from)
}

fn c_number(text: &str) -> Option<u64> {
    let (digits, radix) = match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(hex) => (hex, 16),
        None if text.len() > 1 && text.starts_with('0') => (text, 8),
        None => (text, 10),
    };
    let plain = !digits.is_empty() && digits.chars().all(|c| c.is_digit(radix));
    plain.then(|| u64::from_str_radix(digits, radix).ok()).flatten()
}
