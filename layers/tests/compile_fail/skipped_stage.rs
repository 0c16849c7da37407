//! Without `MintLayer` there is no id for the context leg.

use bytes::Bytes;
use http::{Request, Response};
use tower::{Layer, util::BoxCloneSyncService};
use tower_disagg::{
    check,
    context::ContextLayer,
    error::BoxError,
    handoff::{Handoff, Primed, Validated},
    leg::LegBody,
    mint::MintLayer,
};

type Leg = BoxCloneSyncService<Request<LegBody>, Response<Bytes>, BoxError>;
type Next = BoxCloneSyncService<Request<Handoff<Primed>>, Response<String>, BoxError>;

fn stack(leg: Leg, next: Next) {
    let context = ContextLayer::new(leg).layer(next);
    check::<Request<Handoff<Validated>>, _>(MintLayer::default().layer(context.clone()));
    check::<Request<Handoff<Validated>>, _>(context);
}

fn main() {
    let _ = stack;
}
