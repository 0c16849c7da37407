//! Whether the context step was the whole answer cannot be told before its reply.

use bytes::Bytes;
use http::{Request, Response};
use tower::{Layer, util::BoxCloneSyncService};
use tower_disagg::{
    check,
    context::ContextLayer,
    error::BoxError,
    handoff::{Handoff, Minted, Open},
    leg::LegBody,
    terminal::TerminalLayer,
};

type Leg = BoxCloneSyncService<Request<LegBody>, Response<Bytes>, BoxError>;
type Next = BoxCloneSyncService<Request<Handoff<Open>>, Response<LegBody>, BoxError>;

fn right(leg: Leg, next: Next) {
    let terminal = TerminalLayer::new().layer(next);
    check::<Request<Handoff<Minted>>, _>(ContextLayer::new(leg).layer(terminal));
}

fn wrong(leg: Leg, next: Next) {
    let context = ContextLayer::new(leg).layer(next);
    check::<Request<Handoff<Minted>>, _>(TerminalLayer::new().layer(context));
}

fn main() {
    let _ = (right, wrong);
}
