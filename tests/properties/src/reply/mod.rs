//! The validator of context replies, and what is made of a reply that it takes.
//!
//! The verdict is reached here a second time from the tables of the contract, section 3. Of a reply that is taken, the
//! generation request (`generation.rs`) or the client's answer (`terminal.rs`) is compared with what section 4 says.

mod generation;
mod terminal;
mod verdict;

use bytes::Bytes;
use tower_disagg::trtllm::{ContextReply, Due, Endpoint, ReplyErrorKind};

use self::verdict::{Verdict, verdict};
use crate::{oracle::json::Doc, quote::assert_quotes_nothing, request::ENDPOINTS};

/// Reads `body` as the reply to a request to each endpoint.
pub fn reply(body: &[u8]) {
    let doc = Doc::parse(body);
    for endpoint in ENDPOINTS {
        let expected = doc.as_ref().map_or(Verdict::NotUsable, |doc| verdict(endpoint, doc.root()));
        match ContextReply::parse(endpoint, Bytes::copy_from_slice(body)) {
            Ok(reply) => {
                let doc = doc.as_ref().expect("what is taken is JSON");
                accepted(&reply, endpoint, body);
                match reply.due() {
                    Due::Generation => {
                        assert_eq!(expected, Verdict::Due);
                        generation::check(&reply, doc.root());
                    }
                    Due::Nothing => {
                        assert_eq!(expected, Verdict::Terminal);
                        terminal::check(&reply, doc.root());
                    }
                }
            }
            Err(error) => {
                assert_quotes_nothing(&error, body);
                match error.kind() {
                    ReplyErrorKind::Aborted => assert_eq!(expected, Verdict::Aborted, "{error}"),
                    ReplyErrorKind::NotUsable => assert_eq!(expected, Verdict::NotUsable, "{error}"),
                    other => panic!("unknown: {other:?}"),
                }
            }
        }
    }
}

fn accepted(reply: &ContextReply, endpoint: Endpoint, body: &[u8]) {
    assert_eq!((reply.endpoint(), reply.size()), (endpoint, body.len()));
}
