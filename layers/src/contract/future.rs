use std::{
    fmt,
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use http::{Request, Response, request::Parts};
use http_body::Body;
use tower_service::Service;

use super::{
    ContractBody, PassthroughBody,
    decide::{self, Chosen, Question},
    layer::Rules,
    upload::Upload,
};
use crate::{
    body::EitherBody,
    call::CallWhenReady,
    error::{BoxError, ContractError},
    handoff::{Handoff, Validated},
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
    /// Whether the context worker may be called. The body is not touched meanwhile.
    Question {
        question: Question,
        then: Option<(B, Arc<Rules>, Parts, Chosen, S)>,
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
    Validate(Chosen, S),
    Check(P),
}

impl<B, S, P, F, G> ContractFuture<B, S, P, F, G>
where
    B: Body<Data = Bytes>,
{
    pub(super) fn failed(error: ContractError) -> Self {
        Self { state: State::Failed { error: Some(error.into()) } }
    }

    pub(super) fn ask(
        question: Question,
        body: B,
        rules: Arc<Rules>,
        parts: Parts,
        chosen: Chosen,
        inner: S,
    ) -> Self {
        Self { state: State::Question { question, then: Some((body, rules, parts, chosen, inner)) } }
    }

    pub(super) fn validate(body: B, rules: &Rules, parts: Parts, chosen: Chosen, inner: S) -> Self {
        Self { state: State::read(body, rules, parts, Then::Validate(chosen, inner)) }
    }

    pub(super) fn check(body: B, rules: &Rules, parts: Parts, passthrough: P) -> Self {
        Self { state: State::read(body, rules, parts, Then::Check(passthrough)) }
    }

    pub(super) fn pass(passthrough: P, request: Request<PassthroughBody<B>>) -> Self {
        Self { state: State::Pass { response: CallWhenReady::new(passthrough, request) } }
    }
}

impl<B: Body<Data = Bytes>, S, P, F, G> State<B, S, P, F, G> {
    fn read(body: B, rules: &Rules, parts: Parts, then: Then<S, P>) -> Self {
        let body = Upload::new(body, rules.max_body, &rules.budget, rules.body_timeout);
        Self::Body { body, then: Some((parts, then)) }
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
                StateProj::Question { question, then } => {
                    if then.is_none() {
                        return Poll::Pending; // it has been answered, and the future is polled all the same
                    }
                    let answer = decide::looked_up(ready!(question.0.as_mut().poll(cx)));
                    let Some((body, rules, parts, mut chosen, inner)) = then.take() else {
                        return Poll::Pending;
                    };
                    chosen.addresses = Some(answer?);
                    this.state.set(State::read(body, &rules, parts, Then::Validate(chosen, inner)));
                }
                StateProj::Body { body, then } => {
                    let body = ready!(body.poll(cx))?;
                    let Some((parts, then)) = then.take() else { return Poll::Pending };
                    match then {
                        Then::Validate(chosen, inner) => {
                            let handoff = decide::validate(chosen, body)?;
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
            State::Question { .. } => "ContractFuture(question)",
            State::Body { .. } => "ContractFuture(body)",
            State::Handoff { .. } => "ContractFuture(handoff)",
            State::Pass { .. } => "ContractFuture(pass)",
        })
    }
}
