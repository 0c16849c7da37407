use std::{
    fmt,
    future::Future,
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use http::{Request, Response, request::Parts};
use http_body::Body;
use tower_service::Service;

use super::{ContractBody, PassthroughBody, decide, layer::Rules, upload::Upload};
use crate::{
    body::EitherBody,
    call::CallWhenReady,
    error::{BoxError, ContractError},
    handoff::{Handoff, Validated},
    trtllm::{ContextEndpoint, Endpoint},
};

/// The future of [`Contract`](super::Contract).
#[pin_project::pin_project]
#[must_use = "futures do nothing unless polled"]
pub struct ContractFuture<B, S, P, F, G> {
    #[pin]
    state: State<B, S, P, F, G>,
}

#[pin_project::pin_project(project = StateProj)]
enum State<B, S, P, F, G> {
    Failed {
        error: Option<BoxError>,
    },
    /// The upload.
    Body {
        #[pin]
        body: Upload<B>,
        then: Option<(Parts, Then<S, P>)>,
    },
    Handoff {
        #[pin]
        response: CallWhenReady<S, Request<Handoff<Validated>>, F>,
    },
    Pass {
        #[pin]
        response: CallWhenReady<P, Request<PassthroughBody<B>>, G>,
    },
}

/// What happens to a request whose body has been read.
enum Then<S, P> {
    Validate(Endpoint, ContextEndpoint, S),
    Check(P),
}

impl<B, S, P, F, G> ContractFuture<B, S, P, F, G>
where
    B: Body<Data = Bytes>,
{
    pub(super) fn failed(error: ContractError) -> Self {
        Self { state: State::Failed { error: Some(error.into()) } }
    }

    pub(super) fn validate(
        body: B,
        rules: &Rules,
        parts: Parts,
        endpoint: Endpoint,
        context: ContextEndpoint,
        inner: S,
    ) -> Self {
        Self::read(body, rules, parts, Then::Validate(endpoint, context, inner))
    }

    pub(super) fn check(body: B, rules: &Rules, parts: Parts, passthrough: P) -> Self {
        Self::read(body, rules, parts, Then::Check(passthrough))
    }

    pub(super) fn pass(passthrough: P, request: Request<PassthroughBody<B>>) -> Self {
        Self { state: State::Pass { response: CallWhenReady::new(passthrough, request) } }
    }

    fn read(body: B, rules: &Rules, parts: Parts, then: Then<S, P>) -> Self {
        let body = Upload::new(body, rules.max_body, &rules.budget, rules.body_timeout);
        Self { state: State::Body { body, then: Some((parts, then)) } }
    }
}

impl<B, S, P, F, G, SB, PB> Future for ContractFuture<B, S, P, F, G>
where
    B: Body<Data = Bytes>,
    B::Error: Into<BoxError>,
    S: Service<Request<Handoff<Validated>>, Response = Response<SB>, Future = F>,
    S::Error: Into<BoxError>,
    F: Future<Output = Result<Response<SB>, S::Error>>,
    P: Service<Request<PassthroughBody<B>>, Response = Response<PB>, Future = G>,
    P::Error: Into<BoxError>,
    G: Future<Output = Result<Response<PB>, P::Error>>,
{
    type Output = Result<Response<ContractBody<SB, PB>>, BoxError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        loop {
            match this.state.as_mut().project() {
                StateProj::Failed { error } => {
                    return error.take().map_or(Poll::Pending, |error| Poll::Ready(Err(error)));
                }
                StateProj::Body { body, then } => {
                    let body = ready!(body.poll(cx))?;
                    let Some((parts, then)) = then.take() else { return Poll::Pending };
                    match then {
                        Then::Validate(endpoint, context, inner) => {
                            let handoff = decide::validate(endpoint, context, body)?;
                            let request = Request::from_parts(parts, handoff);
                            let response = CallWhenReady::new(inner, request);
                            this.state.set(State::Handoff { response });
                        }
                        Then::Check(passthrough) => {
                            decide::check(&parts, &body)?;
                            let request = Request::from_parts(parts, PassthroughBody::whole(body));
                            let response = CallWhenReady::new(passthrough, request);
                            this.state.set(State::Pass { response });
                        }
                    }
                }
                StateProj::Handoff { response } => {
                    let response = ready!(response.poll(cx)).map_err(Into::into)?;
                    return Poll::Ready(Ok(response.map(EitherBody::Left)));
                }
                StateProj::Pass { response } => {
                    let response = ready!(response.poll(cx)).map_err(Into::into)?;
                    return Poll::Ready(Ok(response.map(EitherBody::Right)));
                }
            }
        }
    }
}

impl<B, S, P, F, G> fmt::Debug for ContractFuture<B, S, P, F, G> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.state {
            State::Failed { .. } => "ContractFuture(failed)",
            State::Body { .. } => "ContractFuture(body)",
            State::Handoff { .. } => "ContractFuture(handoff)",
            State::Pass { .. } => "ContractFuture(pass)",
        })
    }
}
