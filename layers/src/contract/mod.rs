//! Checks that a request can be handed off before anything is spent on it.
//!
//! ```
//! use http_body_util::Full;
//! use tower::{ServiceBuilder, service_fn};
//! use tower_disagg::contract::{ContractLayer, PassthroughBody};
//! # use bytes::Bytes;
//! # use tower_disagg::handoff::{Handoff, Validated};
//! # type Body = Full<Bytes>;
//!
//! # async fn pass(_: http::Request<PassthroughBody<Body>>) -> Result<http::Response<Body>, std::io::Error> { unreachable!() }
//! # async fn next(_: http::Request<Handoff<Validated>>) -> Result<http::Response<Body>, std::io::Error> { unreachable!() }
//! let passthrough = service_fn(pass); // requests that no context worker was chosen for
//! let service = ServiceBuilder::new().layer(ContractLayer::new(passthrough)).service(service_fn(next));
//! # tower_disagg::check::<http::Request<Body>, _>(service);
//! ```
//!
//! With limits, and for requests with a routing header only:
//!
//! ```
//! use std::time::Duration;
//! use tower_disagg::{contract::ContractLayer, trtllm::Host};
//!
//! let layer = ContractLayer::without_passthrough()
//!     .max_body(8 << 20)
//!     .body_timeout(Duration::from_secs(30))
//!     .allow(|endpoint| matches!(endpoint.host(), Host::V4(ip) if ip.octets()[0] == 10));
//! # let _ = layer;
//! ```
//!
//! Where it depends on what the name of a worker resolves to whether it may be called, [`allow_by`] takes an
//! [`AllowContext`] that looks the name up. The addresses that were checked are the only ones that are dialled:
//!
//! ```
//! use std::net::{IpAddr, SocketAddr};
//! use tower_disagg::{
//!     contract::{AllowContext, Allowance, ContractLayer, LookUp},
//!     leg::CheckedAddresses,
//!     trtllm::ContextEndpoint,
//! };
//!
//! # async fn resolve(_: ContextEndpoint) -> std::io::Result<Vec<SocketAddr>> { Ok(Vec::new()) }
//! struct InsideTheCluster;
//!
//! impl AllowContext for InsideTheCluster {
//!     fn allow(&self, endpoint: &ContextEndpoint) -> Allowance {
//!         let resolving = resolve(endpoint.clone()); // within a time of its own
//!         let inside = |address: &SocketAddr| matches!(address.ip(), IpAddr::V4(ip) if ip.octets()[0] == 10);
//!         Allowance::Pending(Box::pin(async move {
//!             match resolving.await {
//!                 Ok(found) => CheckedAddresses::new(found.into_iter().filter(inside))
//!                     .map_or(LookUp::Refused, LookUp::Allowed),
//!                 Err(error) => LookUp::Failed(error.into()),
//!             }
//!         }))
//!     }
//! }
//!
//! let layer = ContractLayer::without_passthrough().allow_by(InsideTheCluster);
//! # let _ = layer;
//! ```
//!
//! | | type |
//! |---|---|
//! | request in | `http::Request<B>`, any body of `Bytes` |
//! | request out, with a routing header | `http::Request<Handoff<Validated>>` |
//! | request out, without | `http::Request<PassthroughBody<B>>`, to the passthrough service |
//! | response | [`ContractBody`]: that of the one or the other |
//!
//! The head is judged first (contract, section 1): the routing header `x-prefiller-host-port` has to be exactly one
//! `host:port`, the endpoint has to be allowed, method and path have to be ones that can be handed off. A name whose
//! addresses decide is looked up last. Only then is the body read, to its end and up to a cap, and judged (sections 2
//! to 4, and [`ClientRequest::parse`](crate::trtllm::ClientRequest::parse)). The routing header is removed. From requests that pass
//! through, too, the headers are removed that only the serving side may set (section 8), and their bodies are checked for
//! such members, see [`guard`](ContractLayer::guard).
//!
//! # Ordering
//!
//! Above [`MintLayer`](crate::mint::MintLayer), below anything that looks at requests as the client sent them.
//! A retry layer goes between the two.
//!
//! # Readiness
//!
//! Always ready, since an upload comes first: the inner and the passthrough service are driven to readiness when the
//! body is there. A limit that is to push back on arrivals goes above.
//!
//! # Cancellation
//!
//! Dropping the future drops the look-up, the upload or the service called. Since the body is read to its end before
//! any leg starts, a server that stops reading while it waits for a reply still notices when the client leaves; during
//! a look-up it may not, which is why [`Allowance::Pending`] has to be bounded in time.
//!
//! # Errors
//!
//! A [`ContractError`](crate::error::ContractError) in a `BoxError`, or an
//! [`AdmissionError`](crate::error::AdmissionError) when there is no room to hold the body; errors of the services
//! pass through.
//!
//! [`allow_by`]: ContractLayer::allow_by

mod allow;
mod body;
mod decide;
mod future;
mod layer;
mod refuse;
mod service;
mod upload;

pub(crate) use self::upload::Upload;
use crate::body::EitherBody;

pub use self::{
    allow::{AllowContext, Allowance, LookUp},
    body::PassthroughBody,
    future::ContractFuture,
    layer::ContractLayer,
    refuse::NoPassthrough,
    service::Contract,
};

/// The body of a response: that of the handoff, or that of the passthrough service.
pub type ContractBody<S, P> = EitherBody<S, P>;

#[cfg(test)]
mod tests;
