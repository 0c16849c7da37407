//! A context leg whose reply is still a stream: what stands around the leg would not cover its body.

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use tower::{Layer, util::BoxCloneSyncService};
use tower_disagg::{
    check,
    context::ContextLayer,
    error::BoxError,
    handoff::{Handoff, Minted, Primed},
    leg::{BufferReplyLayer, LegBody},
};

type Client = BoxCloneSyncService<Request<LegBody>, Response<Full<Bytes>>, BoxError>;
type Next = BoxCloneSyncService<Request<Handoff<Primed>>, Response<String>, BoxError>;

fn stack(client: Client, next: Next) {
    let buffered = BufferReplyLayer::new(1 << 20).layer(client.clone());
    check::<Request<Handoff<Minted>>, _>(ContextLayer::new(buffered).layer(next.clone()));
    check::<Request<Handoff<Minted>>, _>(ContextLayer::new(client).layer(next));
}

fn main() {
    let _ = stack;
}
