use std::{
    fmt,
    net::{IpAddr, SocketAddr},
    str::FromStr,
};

use ipnet::IpNet;
use tower_disagg::trtllm::{ContextEndpoint, Host};

/// One entry of the list of context endpoints that may be called.
///
/// | written as | lets through |
/// |---|---|
/// | `host:port` | this endpoint, in any spelling of its normal form |
/// | `*.suffix:port` | names with at least one label before the suffix |
/// | `10.0.0.0/8:8000`, `fd00::/8:8000-8010` | literal addresses inside the network, on these ports |
///
/// A name is compared as a name, and an address is no name: no network lets a name through that is not listed as one.
/// Where there are networks for its port, they bound what a listed name may lead to: it is resolved, and called at
/// nothing but those of its addresses that are inside one of them. An IPv4 address written as IPv6
/// (`[::ffff:10.0.0.1]`) is not inside an IPv4 network; one that a resolver wrote so is, and is called as IPv4.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AllowEntry(Rule);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Rule {
    Exactly(ContextEndpoint),
    /// The suffix has its leading dot, and no dot at its end.
    Below {
        suffix: String,
        port: u16,
    },
    Network {
        network: IpNet,
        ports: (u16, u16),
    },
}

impl AllowEntry {
    /// Whether this entry lets a request through to `endpoint`, without anything being resolved.
    pub fn allows(&self, endpoint: &ContextEndpoint) -> bool {
        match &self.0 {
            Rule::Exactly(allowed) => allowed == endpoint,
            Rule::Below { suffix, port } => {
                let Host::Name(name) = endpoint.host() else { return false };
                let name = name.strip_suffix('.').unwrap_or(name);
                *port == endpoint.port()
                    && name.strip_suffix(&**suffix).is_some_and(|label| !label.is_empty())
            }
            Rule::Network { network, ports } => {
                let address = match endpoint.host() {
                    Host::V4(address) => IpAddr::V4(address),
                    Host::V6(address) => IpAddr::V6(address),
                    Host::Name(_) => return false,
                };
                (ports.0..=ports.1).contains(&endpoint.port()) && contains(network, &address)
            }
        }
    }

    /// Whether a listed name may lead to this address for all that this entry says: whether it is a network that the
    /// address is in, in its normal form.
    pub fn allows_resolved(&self, address: SocketAddr) -> bool {
        let Rule::Network { network, .. } = &self.0 else { return false };
        self.bounds_names_at(address.port()) && network.contains(&address.ip().to_canonical())
    }

    /// Whether it says where names with this port may lead.
    fn bounds_names_at(&self, port: u16) -> bool {
        matches!(self.0, Rule::Network { ports: (first, last), .. } if (first..=last).contains(&port))
    }
}

/// A network that is given as IPv6 has no IPv4 address in it, in whatever spelling, unless it is one of mapped
/// addresses: `::/0` does not mean the IPv4 internet.
fn contains(network: &IpNet, address: &IpAddr) -> bool {
    const MAPPED: u8 = 96;
    let mapped = matches!(address, IpAddr::V6(address) if address.to_ipv4_mapped().is_some());
    network.contains(address) && (!mapped || network.prefix_len() >= MAPPED)
}

/// What a list says of an endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Allowed {
    Yes,
    No,
    /// What its name resolves to decides, by [`resolved`].
    ByAddress,
}

/// Whether `endpoint` may be called: it may when the list is empty, or when one of its entries says so; a name that is
/// listed, only where the networks for its port, if there are any, say so too.
pub(crate) fn allowed(list: &[AllowEntry], endpoint: &ContextEndpoint) -> Allowed {
    let named = matches!(endpoint.host(), Host::Name(_));
    if !list.is_empty() && !list.iter().any(|entry| entry.allows(endpoint)) {
        Allowed::No
    } else if named && list.iter().any(|entry| entry.bounds_names_at(endpoint.port())) {
        Allowed::ByAddress
    } else {
        Allowed::Yes
    }
}

/// Where an endpoint may be called whose name resolves to `found`: at those of these addresses that a network has, in
/// their order and their normal form.
pub(crate) fn resolved(
    list: &[AllowEntry],
    port: u16,
    found: &[SocketAddr],
) -> impl Iterator<Item = SocketAddr> {
    let at = move |found: &SocketAddr| {
        let mut at = *found;
        // what is mapped is IPv4: it is checked as such, and dialled as such; a scope stays
        if let ip @ IpAddr::V4(_) = at.ip().to_canonical() {
            at.set_ip(ip);
        }
        at.set_port(port);
        at
    };
    found.iter().map(at).filter(|at| list.iter().any(|entry| entry.allows_resolved(*at)))
}

const EXPECTED: &str = "expected host:port, *.suffix:port, or NETWORK/LENGTH:port or :port-port";

impl FromStr for AllowEntry {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let rule = if text.contains('/') {
            network(text)
        } else if let Some(rest) = text.strip_prefix('*') {
            below(rest)
        } else {
            text.parse().ok().map(Rule::Exactly)
        };
        rule.map(Self).ok_or_else(|| EXPECTED.to_owned())
    }
}

/// `.suffix:port`, by the grammar of an endpoint.
fn below(rest: &str) -> Option<Rule> {
    let named: ContextEndpoint = rest.strip_prefix('.')?.parse().ok()?;
    let Host::Name(name) = named.host() else { return None };
    let suffix = format!(".{}", name.strip_suffix('.').unwrap_or(name));
    Some(Rule::Below { suffix, port: named.port() })
}

/// `network/length:port` or `network/length:first-last`; an IPv6 network may be in brackets.
fn network(text: &str) -> Option<Rule> {
    let (address, rest) = text.split_once('/')?;
    let (length, ports) = rest.split_once(':')?;
    let bare = address.strip_prefix('[').and_then(|inner| inner.strip_suffix(']'));
    let address: IpAddr = match bare {
        Some(bare) => IpAddr::V6(bare.parse().ok()?),
        None => address.parse().ok()?,
    };
    let network = IpNet::new(address, number(length)?.try_into().ok()?).ok()?;
    let ports = match ports.split_once('-') {
        Some((first, last)) => (port(first)?, port(last)?),
        None => (port(ports)?, port(ports)?),
    };
    (ports.0 <= ports.1).then_some(Rule::Network { network, ports })
}

fn port(text: &str) -> Option<u16> {
    number(text).filter(|port| *port > 0)
}

/// Digits only: `parse` takes a sign.
fn number(text: &str) -> Option<u16> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}

impl fmt::Display for AllowEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Rule::Exactly(endpoint) => f.write_str(endpoint.as_str()),
            Rule::Below { suffix, port } => write!(f, "*{suffix}:{port}"),
            Rule::Network { network, ports: (first, last) } => write!(f, "{network}:{first}-{last}"),
        }
    }
}
