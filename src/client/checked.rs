//! The addresses that alone may be dialled, on their way from a request through hyper's client to the connector.
//!
//! The client tells its pool and its connector nothing but the scheme and authority of a request. So the addresses are
//! written into the authority, where a URI may have a user: they are part of the pool's key then, and a connection
//! serves only requests that may go where it goes; and the host is still the worker's name, for the `host` header and
//! for TLS. No user gets there in another way, since neither routing headers nor settings can have an `@`, and none is
//! sent: a request of HTTP/1.1 has a path for its target.

use std::{
    io,
    net::{IpAddr, SocketAddr, SocketAddrV6},
};

use http::{Uri, uri::Authority};
use tower_disagg::leg::CheckedAddresses;

/// The same place, to be dialled at `addresses` only.
pub(super) fn pin(place: &Authority, addresses: &CheckedAddresses) -> Result<Authority, http::Error> {
    let (_, place) = place.as_str().rsplit_once('@').unwrap_or(("", place.as_str()));
    let addresses: Vec<String> = addresses.as_slice().iter().map(write).collect();
    Ok(format!("{}@{place}", addresses.join(",")).parse()?)
}

/// Where `uri` may be dialled, if not by its name.
///
/// # Errors
///
/// Fails when that cannot be read: then it may not be dialled at all.
pub(super) fn pinned(uri: &Uri) -> io::Result<Option<Vec<SocketAddr>>> {
    let Some((addresses, _)) = uri.authority().and_then(|place| place.as_str().rsplit_once('@')) else {
        return Ok(None);
    };
    let read: Option<Vec<_>> = addresses.split(',').map(read).collect();
    read.map(Some).ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "no address may be dialled"))
}

/// An address with its port, in characters that a user may have, of which `http` takes only a few colons.
fn write(address: &SocketAddr) -> String {
    let ip = address.ip().to_string().replace(':', "-");
    let scope = match address {
        SocketAddr::V6(address) if address.scope_id() != 0 => format!("~{}", address.scope_id()),
        _ => String::new(),
    };
    format!("{ip}{scope}_{}", address.port())
}

fn read(text: &str) -> Option<SocketAddr> {
    let (ip, port) = text.rsplit_once('_')?;
    let (ip, scope) = ip.split_once('~').unwrap_or((ip, "0"));
    let (port, scope) = (port.parse().ok()?, scope.parse().ok()?);
    Some(match ip.replace('-', ":").parse().ok()? {
        ip @ IpAddr::V4(_) => SocketAddr::new(ip, port),
        IpAddr::V6(ip) => SocketAddrV6::new(ip, port, 0, scope).into(),
    })
}
