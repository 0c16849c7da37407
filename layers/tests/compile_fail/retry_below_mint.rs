//! A retry below `MintLayer` would send an id twice.

use std::future::{Ready, ready};

use http::{Request, Response};
use tower::{
    Layer,
    retry::{Policy, RetryLayer},
    util::BoxCloneSyncService,
};
use tower_disagg::{
    check,
    error::BoxError,
    handoff::{Handoff, Minted, Validated},
    mint::MintLayer,
};

/// Tries everything again.
#[derive(Clone)]
struct Again;

impl<B: Clone> Policy<Request<B>, Response<String>, BoxError> for Again {
    type Future = Ready<()>;

    fn retry(&mut self, _: &mut Request<B>, result: &mut Result<Response<String>, BoxError>) -> Option<Ready<()>> {
        result.is_err().then(|| ready(()))
    }

    fn clone_request(&mut self, request: &Request<B>) -> Option<Request<B>> {
        Some(request.clone())
    }
}

type Next = BoxCloneSyncService<Request<Handoff<Minted>>, Response<String>, BoxError>;

fn stack(next: Next) {
    let retry = RetryLayer::new(Again);
    check::<Request<Handoff<Validated>>, _>(retry.layer(MintLayer::default().layer(next.clone())));
    check::<Request<Handoff<Minted>>, _>(retry.layer(next));
}

fn main() {
    let _ = stack;
}
