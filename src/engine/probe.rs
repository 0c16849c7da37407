use bytes::Bytes;
use http::{Request, Response, StatusCode, Uri, uri::Authority};
use tower::ServiceExt;
use tower_disagg::{
    error::BoxError,
    leg::{CheckedAddresses, LegBody, LegErrorKind},
    trtllm::{Engine, Release},
};
use tower_service::Service;

use crate::client::is_connection_failure;

/// The largest reply to `GET /version` that is read.
pub(crate) const PROBE_REPLY: u64 = 64 << 10;

/// A client for probes: returns whole replies, within a time.
pub(crate) trait VersionProbe:
    Service<Request<LegBody>, Response = Response<Bytes>, Error = BoxError, Future: Send>
    + Clone
    + Send
    + Sync
    + 'static
{
}

impl<P> VersionProbe for P where
    P: Service<Request<LegBody>, Response = Response<Bytes>, Error = BoxError, Future: Send>
        + Clone
        + Send
        + Sync
        + 'static
{
}

/// What a worker says of its release.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) engine: Engine,
    /// Whether it holds for longer: the worker named a release, or has no such path.
    pub(super) lasting: bool,
}

/// Asks the worker at `authority` for its release.
///
/// It is asked where the request may go that the question is for: at `addresses` only, where there are such.
///
/// Fails only when there is no connection to the worker; a worker that answers anything else is of unknown release.
pub(super) async fn ask<P: VersionProbe>(
    probe: P,
    authority: &Authority,
    addresses: Option<&CheckedAddresses>,
) -> Result<Answer, BoxError> {
    let uri =
        Uri::builder().scheme("http").authority(authority.clone()).path_and_query("/version").build()?;
    let mut request = Request::new(LegBody::empty());
    *request.uri_mut() = uri;
    if let Some(addresses) = addresses {
        request.extensions_mut().insert(addresses.clone());
    }
    match probe.oneshot(request).await {
        Ok(reply) => Ok(read(&reply)),
        Err(error) if is_connection_failure(LegErrorKind::of(&*error)) => Err(error),
        Err(_) => Ok(Answer { engine: Engine::Unknown, lasting: false }),
    }
}

fn read(reply: &Response<Bytes>) -> Answer {
    let named = match reply.status() {
        StatusCode::OK => Release::from_version_reply(reply.body()),
        StatusCode::NOT_FOUND => return Answer { engine: Engine::Unknown, lasting: true },
        _ => None,
    };
    match named {
        Some(release) => Answer { engine: Engine::Known(release), lasting: true },
        None => Answer { engine: Engine::Unknown, lasting: false },
    }
}
