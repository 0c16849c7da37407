//! Another attempt at a context leg whose connection failed before any byte of a reply.

use std::future::{Ready, ready};

use http::Request;
use tower::retry::Policy;
use tower_disagg::{
    error::{BoxError, ContextError, find},
    handoff::{Handoff, Validated},
};

/// Retries what [`ContextError::is_retryable`] says can be retried, a number of times. It stands above the layer that
/// mints the id, so each attempt has a fresh one.
#[derive(Debug, Clone)]
pub(crate) struct ContextRetries {
    left: u32,
}

impl ContextRetries {
    /// At most `retries` attempts after the first.
    pub(crate) fn new(retries: u32) -> Self {
        Self { left: retries }
    }
}

impl<R> Policy<Request<Handoff<Validated>>, R, BoxError> for ContextRetries {
    type Future = Ready<()>;

    fn retry(
        &mut self,
        _: &mut Request<Handoff<Validated>>,
        result: &mut Result<R, BoxError>,
    ) -> Option<Ready<()>> {
        let error = result.as_ref().err()?;
        let retryable = find::<ContextError>(&**error).is_some_and(ContextError::is_retryable);
        if !retryable || self.left == 0 {
            return None;
        }
        self.left -= 1;
        metrics::counter!("disagg_context_retries_total").increment(1);
        tracing::info!(%error, "another attempt at the context leg");
        Some(ready(()))
    }

    fn clone_request(
        &mut self,
        request: &Request<Handoff<Validated>>,
    ) -> Option<Request<Handoff<Validated>>> {
        (self.left > 0).then(|| request.clone())
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use tower_disagg::{
        error::ContextErrorKind,
        trtllm::{ClientRequest, Endpoint},
    };

    use super::*;

    fn request() -> Request<Handoff<Validated>> {
        let body = Bytes::from_static(br#"{"model":"m","messages":[]}"#);
        let parsed = ClientRequest::parse(Endpoint::Chat, body).unwrap();
        Request::new(Handoff::validated(parsed, "h:1".parse().unwrap()))
    }

    fn retried(policy: &mut ContextRetries, kind: ContextErrorKind) -> bool {
        let mut result: Result<(), BoxError> = Err(ContextError::new(kind).into());
        policy.retry(&mut request(), &mut result).is_some()
    }

    #[test]
    fn only_what_no_byte_was_seen_of_is_retried() {
        use http::StatusCode;
        for kind in [
            ContextErrorKind::Interrupted,
            ContextErrorKind::Timeout,
            ContextErrorKind::Rejected(StatusCode::BAD_REQUEST),
            ContextErrorKind::Failed(StatusCode::SERVICE_UNAVAILABLE),
            ContextErrorKind::InvalidReply,
            ContextErrorKind::Aborted,
        ] {
            assert!(!retried(&mut ContextRetries::new(5), kind), "{kind:?}");
        }
        assert!(retried(&mut ContextRetries::new(5), ContextErrorKind::Unreachable));
        let mut other: Result<(), BoxError> = Err("other".into());
        assert!(ContextRetries::new(5).retry(&mut request(), &mut other).is_none());
        assert!(ContextRetries::new(5).retry(&mut request(), &mut Ok(())).is_none());
    }

    #[test]
    fn attempts_are_counted() {
        let mut policy = ContextRetries::new(2);
        let outcomes = [(); 4].map(|()| retried(&mut policy, ContextErrorKind::Unreachable));
        assert_eq!(outcomes, [true, true, false, false]);
        assert!(Policy::<_, (), BoxError>::clone_request(&mut policy, &request()).is_none());
        assert!(Policy::<_, (), BoxError>::clone_request(&mut ContextRetries::new(1), &request()).is_some());
    }
}
