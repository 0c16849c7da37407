use std::{
    error::Error,
    fmt,
    net::{Ipv4Addr, Ipv6Addr},
    str::FromStr,
    sync::Arc,
};

use http::{HeaderMap, HeaderName, HeaderValue};

/// The header in which a router names the context worker of a request (contract, section 1).
///
/// It is for the sidecar alone and goes to neither engine.
pub const ROUTING_HEADER: HeaderName = HeaderName::from_static("x-prefiller-host-port");

/// The address of a context worker, `host:port`, as a router chose it.
///
/// The host is a DNS name, a dotted IPv4 address or an IPv6 address in brackets; the port is 1 to 65535 in plain
/// digits. A name may have underscores and one dot at its end, at most 63 characters between two dots and 253
/// altogether. Nothing else is taken, neither a scheme nor a path nor any of the spellings of an address that only a
/// resolver understands (`2130706433`, `127.1`, `0x7f000001`), so that a list of allowed endpoints means what it says.
///
/// Two endpoints are equal when their normal forms are: names in lower case, IPv6 addresses compressed. A name and an
/// address that it resolves to are different endpoints. `Clone` copies a handle.
#[derive(Clone)]
pub struct ContextEndpoint {
    /// The normal form. All comparisons are made on it.
    text: Arc<str>,
    address: Address,
    port: u16,
}

#[derive(Clone, Copy)]
enum Address {
    Name,
    V4(Ipv4Addr),
    V6(Ipv6Addr),
}

/// The host of a [`ContextEndpoint`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Host<'a> {
    /// A DNS name, in lower case.
    Name(&'a str),
    /// An IPv4 address.
    V4(Ipv4Addr),
    /// An IPv6 address.
    V6(Ipv6Addr),
}

impl ContextEndpoint {
    /// The host.
    pub fn host(&self) -> Host<'_> {
        match self.address {
            Address::Name => Host::Name(self.text.split_once(':').map_or(&*self.text, |(name, _)| name)),
            Address::V4(address) => Host::V4(address),
            Address::V6(address) => Host::V6(address),
        }
    }

    /// The port, never 0.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// `host:port` in its normal form, which is a URI authority.
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

/// The endpoint that the routing header of a request names; `None` when there is no such header.
///
/// Call it before the header is removed: a repeated header has to be seen.
///
/// # Errors
///
/// [`EndpointError`] when the header occurs more than once, or its value is not `host:port`.
pub fn context_endpoint(headers: &HeaderMap) -> Result<Option<ContextEndpoint>, EndpointError> {
    let mut values = headers.get_all(ROUTING_HEADER).iter();
    match (values.next(), values.next()) {
        (None, _) => Ok(None),
        (Some(value), None) => value.try_into().map(Some),
        (Some(_), Some(_)) => Err(EndpointError(EndpointErrorKind::Repeated)),
    }
}

// === parsing ===

/// More than the longest name with its dot, a colon and a port.
const LONGEST: usize = 260;

impl FromStr for ContextEndpoint {
    type Err = EndpointError;

    fn from_str(text: &str) -> Result<Self, EndpointError> {
        parse(text).map_err(EndpointError)
    }
}

impl TryFrom<&HeaderValue> for ContextEndpoint {
    type Error = EndpointError;

    fn try_from(value: &HeaderValue) -> Result<Self, EndpointError> {
        value.to_str().map_err(|_| EndpointError(EndpointErrorKind::Characters))?.parse()
    }
}

fn parse(text: &str) -> Result<ContextEndpoint, EndpointErrorKind> {
    if text.is_empty() {
        return Err(EndpointErrorKind::Empty);
    }
    if text.len() > LONGEST {
        return Err(EndpointErrorKind::TooLong);
    }
    if !text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._:[]".contains(&byte)) {
        return Err(EndpointErrorKind::Characters);
    }
    let (host, port) = text.rsplit_once(':').ok_or(EndpointErrorKind::Port)?;
    let port = parse_port(port).ok_or(EndpointErrorKind::Port)?;
    let address = parse_host(host).ok_or(EndpointErrorKind::Host)?;
    let text = match address {
        Address::Name => format!("{}:{port}", host.to_ascii_lowercase()),
        Address::V4(address) => format!("{address}:{port}"),
        Address::V6(address) => format!("[{address}]:{port}"),
    };
    Ok(ContextEndpoint { text: text.into(), address, port })
}

/// Digits only, since `u16::from_str` takes a sign; no leading zero, so that there is one spelling for a port.
fn parse_port(port: &str) -> Option<u16> {
    let plain = port.bytes().all(|byte| byte.is_ascii_digit()) && !port.starts_with('0');
    plain.then(|| port.parse().ok()).flatten()
}

fn parse_host(host: &str) -> Option<Address> {
    if let Some(bracketed) = host.strip_prefix('[') {
        return bracketed.strip_suffix(']')?.parse().ok().map(Address::V6);
    }
    if ends_in_number(host) {
        return host.parse().ok().map(Address::V4);
    }
    is_name(host).then_some(Address::Name)
}

/// Whether a resolver would take the host for an IPv4 address, in whatever spelling: no top-level domain is a number.
fn ends_in_number(host: &str) -> bool {
    let host = host.strip_suffix('.').unwrap_or(host);
    let last = host.rsplit('.').next().unwrap_or(host);
    let hex = last.strip_prefix("0x").or_else(|| last.strip_prefix("0X"));
    match hex {
        Some(digits) => digits.bytes().all(|byte| byte.is_ascii_hexdigit()),
        None => !last.is_empty() && last.bytes().all(|byte| byte.is_ascii_digit()),
    }
}

fn is_name(host: &str) -> bool {
    let host = host.strip_suffix('.').unwrap_or(host);
    host.len() <= 253 && host.split('.').all(is_label)
}

fn is_label(label: &str) -> bool {
    (1..=63).contains(&label.len())
        && !label.starts_with('-')
        && !label.ends_with('-')
        && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_')
}

// === comparing and showing ===

impl PartialEq for ContextEndpoint {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for ContextEndpoint {}

impl PartialOrd for ContextEndpoint {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for ContextEndpoint {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.text.cmp(&other.text)
    }
}

impl std::hash::Hash for ContextEndpoint {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.text.hash(state);
    }
}

impl fmt::Display for ContextEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.text)
    }
}

impl fmt::Debug for ContextEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ContextEndpoint({})", self.text)
    }
}

// === errors ===

/// Why no endpoint could be read.
///
/// The text does not quote the value: when a gateway lets a client's own header by, the value is anybody's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EndpointError(EndpointErrorKind);

/// What was wrong, in an [`EndpointError`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum EndpointErrorKind {
    /// The header is there more than once.
    Repeated,
    /// The value is empty.
    Empty,
    /// The value is longer than any `host:port`.
    TooLong,
    /// A character that no `host:port` has: white space, a comma, `@`, `/`, a letter outside ASCII, ...
    Characters,
    /// The host is neither a DNS name nor a dotted IPv4 nor a bracketed IPv6 address.
    Host,
    /// The port is missing or not 1 to 65535 in plain digits.
    Port,
}

impl EndpointError {
    /// What was wrong.
    pub fn kind(&self) -> EndpointErrorKind {
        self.0
    }
}

impl fmt::Display for EndpointError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            EndpointErrorKind::Repeated => {
                "it occurs more than once; exactly one context worker may be named"
            }
            EndpointErrorKind::Empty => "it is empty; leave it out when no context worker was chosen",
            EndpointErrorKind::TooLong => "it is longer than any `host:port`",
            EndpointErrorKind::Characters => {
                "it has a character that `host:port` cannot have (no list, scheme, user, path or white space)"
            }
            EndpointErrorKind::Host => {
                "the host is neither a DNS name nor a dotted IPv4 address nor an IPv6 address in brackets"
            }
            EndpointErrorKind::Port => "the port is missing or not 1 to 65535 in plain digits",
        })
    }
}

impl Error for EndpointError {}

#[cfg(test)]
mod tests;
