//! Where a worker looks for the id of a conversation (contract, section 9).

use http::HeaderName;

use crate::json::Object;

/// The header that every release looks at which keeps conversations together.
pub const SESSION_HEADER: HeaderName = HeaderName::from_static("x-session-id");

/// The headers that a worker takes the id of a conversation from, in the order of the newest releases: the first that
/// is not blank counts. Older ones do not know the first two.
pub const CONVERSATION_HEADERS: [HeaderName; 6] = [
    HeaderName::from_static("x-claude-code-session-id"),
    HeaderName::from_static("x-claude-session-id"),
    SESSION_HEADER,
    HeaderName::from_static("x-correlation-id"),
    HeaderName::from_static("x-session-affinity"),
    HeaderName::from_static("x-multi-turn-session-id"),
];

/// Whether a body names its conversation by itself. Then no header counts; of a repeated member the last one does.
pub fn names_conversation(body: &Object) -> bool {
    body.last("conversation_params").is_some_and(|params| !params.is_null())
}
