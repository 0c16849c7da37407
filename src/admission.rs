//! How many requests are let in.

use std::{
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use http::{Request, Response};
use http_body::{Body, Frame, SizeHint};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tower_disagg::error::{AdmissionError, AdmissionErrorKind, BoxError};
use tower_layer::Layer;
use tower_service::Service;

use crate::server::{Phase, Phases};

/// Lets a number of requests in at a time, each counted until the body of its response has ended or was dropped.
/// Others are refused at once; so are all when the process no longer serves.
#[derive(Debug, Clone)]
pub(crate) struct AdmissionLayer {
    places: Arc<Semaphore>,
    phases: Phases,
}

impl AdmissionLayer {
    pub(crate) fn new(most: u32, phases: Phases) -> Self {
        let most = usize::try_from(most).unwrap_or(usize::MAX).min(Semaphore::MAX_PERMITS);
        Self { places: Arc::new(Semaphore::new(most)), phases }
    }

    fn enter(&self) -> Result<OwnedSemaphorePermit, AdmissionError> {
        let refuse = |kind, reason: &'static str| {
            metrics::counter!("disagg_refused_requests_total", "reason" => reason).increment(1);
            AdmissionError::new(kind)
        };
        if self.phases.now() >= Phase::Finishing {
            return Err(refuse(AdmissionErrorKind::ShuttingDown, "shutting_down"));
        }
        let place = self.places.clone().try_acquire_owned();
        place.map_err(|_| refuse(AdmissionErrorKind::Overloaded, "overloaded"))
    }
}

impl<S> Layer<S> for AdmissionLayer {
    type Service = Admission<S>;

    fn layer(&self, inner: S) -> Self::Service {
        Admission { inner, layer: self.clone() }
    }
}

/// The service of [`AdmissionLayer`].
#[derive(Debug, Clone)]
pub(crate) struct Admission<S> {
    inner: S,
    layer: AdmissionLayer,
}

impl<S, R, B> Service<Request<R>> for Admission<S>
where
    S: Service<Request<R>, Response = Response<B>>,
    S::Error: Into<BoxError>,
{
    type Response = Response<AdmittedBody<B>>;
    type Error = BoxError;
    type Future = AdmissionFuture<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, request: Request<R>) -> Self::Future {
        match self.layer.enter() {
            Ok(place) => AdmissionFuture::Admitted { reply: self.inner.call(request), place: Some(place) },
            Err(error) => AdmissionFuture::Refused { error: Some(error) },
        }
    }
}

/// The future of [`Admission`].
#[derive(Debug)]
#[pin_project::pin_project(project = AdmissionProj)]
pub(crate) enum AdmissionFuture<F> {
    Refused {
        error: Option<AdmissionError>,
    },
    Admitted {
        #[pin]
        reply: F,
        place: Option<OwnedSemaphorePermit>,
    },
}

impl<F, B, E> Future for AdmissionFuture<F>
where
    F: Future<Output = Result<Response<B>, E>>,
    E: Into<BoxError>,
{
    type Output = Result<Response<AdmittedBody<B>>, BoxError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match self.project() {
            AdmissionProj::Refused { error } => match error.take() {
                Some(error) => Poll::Ready(Err(error.into())),
                None => Poll::Pending,
            },
            AdmissionProj::Admitted { reply, place } => {
                let reply = ready!(reply.poll(cx)).map_err(Into::into)?;
                let place = place.take();
                Poll::Ready(Ok(reply.map(|inner| AdmittedBody { inner, place })))
            }
        }
    }
}

/// A body that holds a place until it has ended.
#[derive(Debug)]
#[pin_project::pin_project]
pub(crate) struct AdmittedBody<B> {
    #[pin]
    inner: B,
    place: Option<OwnedSemaphorePermit>,
}

impl<B: Default> Default for AdmittedBody<B> {
    fn default() -> Self {
        Self { inner: B::default(), place: None }
    }
}

impl<B: Body> Body for AdmittedBody<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        let mut this = self.project();
        let frame = ready!(this.inner.as_mut().poll_frame(cx));
        // a server need not ask again once it has all that was announced
        if !matches!(frame, Some(Ok(_))) || this.inner.is_end_stream() {
            *this.place = None;
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use bytes::Bytes;
    use http_body_util::{BodyExt, Full};
    use tower::{ServiceExt, service_fn};
    use tower_disagg::error::{ErrorReply, find};

    use super::*;

    fn service(
        most: u32,
        phases: &Phases,
    ) -> impl Service<Request<()>, Response = Response<AdmittedBody<Full<Bytes>>>, Error = BoxError> + Clone + use<>
    {
        let inner =
            service_fn(async |_: Request<()>| Ok::<_, Infallible>(Response::new(Full::<Bytes>::from("x"))));
        AdmissionLayer::new(most, phases.clone()).layer(inner)
    }

    fn kind(error: BoxError) -> AdmissionErrorKind {
        find::<AdmissionError>(&*error).unwrap().kind()
    }

    #[tokio::test]
    async fn a_place_is_held_until_the_body_has_ended() {
        let service = service(2, &Phases::new());
        let call = || service.clone().oneshot(Request::new(()));
        let (first, second) = (call().await.unwrap(), call().await.unwrap());
        let refused = call().await.unwrap_err();
        assert!(ErrorReply::of(&*refused).retry_after.is_some());
        assert_eq!(kind(refused), AdmissionErrorKind::Overloaded);
        drop(first);
        let mut third = call().await.unwrap();
        call().await.unwrap_err();
        // the only frame is the last one, and nobody asks for the end
        third.body_mut().frame().await.unwrap().unwrap();
        let fourth = call().await.unwrap();
        call().await.unwrap_err();
        drop((second, fourth, third));
        call().await.unwrap();
    }

    #[tokio::test]
    async fn a_dropped_call_gives_its_place_back() {
        let inner = service_fn(async |_: Request<()>| {
            std::future::pending::<Result<Response<Full<Bytes>>, Infallible>>().await
        });
        let layer = AdmissionLayer::new(1, Phases::new());
        let mut service = layer.layer(inner);
        let call = service.call(Request::new(()));
        assert_eq!(layer.places.available_permits(), 0);
        drop(call);
        assert_eq!(layer.places.available_permits(), 1);
    }

    #[tokio::test]
    async fn nobody_is_let_in_after_the_grace() {
        let phases = Phases::new();
        let service = service(1, &phases);
        let call = || service.clone().oneshot(Request::new(()));
        phases.advance(Phase::Leaving);
        call().await.unwrap();
        phases.advance(Phase::Finishing);
        assert_eq!(kind(call().await.unwrap_err()), AdmissionErrorKind::ShuttingDown);
    }
}
