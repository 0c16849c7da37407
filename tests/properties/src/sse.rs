//! The reader of event streams, as `GenerationLayer` has it.
//!
//! Whatever a worker sends, in whatever pieces: the client gets the very same pieces, none is held back or held on to,
//! and how the stream is counted depends on its text alone. It is `done` when there is an event whose data is `[DONE]`,
//! and `error_event` when there is one whose data begins with `{"error"`, as a reader of the whole text finds them
//! (HTML standard, "server-sent events"), with two differences: an event that the body ends in counts like one that an
//! empty line ends, and a byte-order mark is no white space.

use std::sync::OnceLock;

use bytes::Bytes;
use http::StatusCode;
use tower_disagg::trtllm::{ContextReply, Endpoint};

use crate::{
    leg::{Answer, Seen, relay},
    oracle::sse::events,
};

/// Streams `input` in several ways of cutting it; its first byte says where one of them cuts.
pub fn sse(input: &[u8]) {
    let Some((&seed, text)) = input.split_first() else { return };
    let end = end(text);
    stream(text, vec![text], false, end.unwrap_or("no_done"));
    // Byte by byte, as far as that is quick.
    let (bytes, rest) = text.split_at(text.len().min(300));
    let pieces = bytes.chunks(1).chain(rest.chunks(100));
    stream(text, pieces.collect(), false, end.unwrap_or("no_done"));
    let pieces = cut(text, seed);
    stream(text, pieces.clone(), false, end.unwrap_or("no_done"));
    stream(text, pieces.clone(), true, "broken");
    leave_early(&pieces, usize::from(seed) % (pieces.len() + 1));
}

/// How a text ends as a stream, when it says.
fn end(text: &[u8]) -> Option<&'static str> {
    let events = events(text);
    let mut data = events.data.iter().chain(&events.unfinished);
    if data.clone().any(|data| data.starts_with(b"{\"error\"")) {
        return Some("error_event");
    }
    data.any(|data| data == b"[DONE]").then_some("done")
}

/// Pieces of 0 to 7 bytes and now and then a longer one, the same ones for the same seed.
fn cut(text: &[u8], seed: u8) -> Vec<&[u8]> {
    let mut state = u32::from(seed) | 0x100;
    let mut rest = text;
    let mut pieces = Vec::new();
    while !rest.is_empty() {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let length = if state >> 28 == 0 { 100 } else { (state >> 24) as usize % 8 };
        let (piece, more) = rest.split_at(length.min(rest.len()));
        pieces.push(piece);
        rest = more;
    }
    pieces
}

fn answer(pieces: &[&[u8]], breaks: bool) -> Answer {
    let chunks = pieces.iter().map(|piece| Bytes::copy_from_slice(piece)).collect();
    Answer { status: StatusCode::OK, content_type: "text/event-stream", chunks, breaks }
}

fn stream(text: &[u8], pieces: Vec<&[u8]>, breaks: bool, end: &str) {
    let answer = answer(&pieces, breaks);
    let sent = answer.chunks.clone();
    let (seen, ends) = relay(reply(), answer, usize::MAX);
    let Seen::Reply { status: StatusCode::OK, frames, broke } = seen else { panic!("{seen:?}") };
    assert_eq!(frames.concat(), text, "nothing is changed");
    assert_eq!(frames, sent, "nothing is regrouped");
    assert_eq!(broke, breaks);
    assert_eq!(ends, [end], "in {} pieces", pieces.len());
    drop(frames);
    for chunk in sent.iter().filter(|chunk| !chunk.is_empty()) {
        assert!(chunk.is_unique(), "a piece that was relayed is held on to");
    }
}

/// A client that leaves after some pieces: complete is what was complete by then.
fn leave_early(pieces: &[&[u8]], frames: usize) {
    let (seen, ends) = relay(reply(), answer(pieces, false), frames);
    assert!(matches!(seen, Seen::Reply { .. }));
    assert_eq!(ends, [end(&pieces[..frames].concat()).unwrap_or("dropped")], "after {frames} pieces");
}

fn reply() -> &'static ContextReply {
    static REPLY: OnceLock<ContextReply> = OnceLock::new();
    REPLY.get_or_init(|| {
        let body = br#"{"choices":[{"finish_reason":"length","disaggregated_params":{"ctx_request_id":1,"first_gen_tokens":[1],"encoded_opaque_state":"AAECAwQFBgcICQoL"}}]}"#;
        ContextReply::parse(Endpoint::Chat, Bytes::from_static(body)).unwrap()
    })
}
