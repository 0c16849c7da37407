use bytes::Bytes;
use serde_json::json;

/// The body of a context reply to a chat request that was sent with `id`: the first token is there, the KV cache waits,
/// and a generation leg is due.
///
/// ```
/// use tower_disagg::{test_util::context_reply, trtllm::{ContextReply, Due, Endpoint}};
///
/// let reply = ContextReply::parse(Endpoint::Chat, context_reply(1 << 42)).unwrap();
/// assert_eq!(reply.due(), Due::Generation);
/// ```
pub fn context_reply(id: u64) -> Bytes {
    let choice = json!({
        "index": 0,
        "message": {"role": "assistant", "content": "Hel"},
        "finish_reason": "length",
        "disaggregated_params": {
            "request_type": "context_only",
            "first_gen_tokens": [4321],
            "ctx_request_id": id,
            "disagg_request_id": id,
            "encoded_opaque_state": "AAECAwQFBgcICQoLDA0ODw==",
            "ctx_info_endpoint": "tcp://192.0.2.5:37771",
            "ctx_dp_rank": 0,
            "schedule_style": 0,
        },
    });
    reply(choice)
}

/// The body of a chat context reply that is the whole answer, `text`: no KV cache is held.
///
/// ```
/// use tower_disagg::{test_util::terminal_reply, trtllm::{ContextReply, Due, Endpoint}};
///
/// let reply = ContextReply::parse(Endpoint::Chat, terminal_reply("Hi")).unwrap();
/// assert_eq!(reply.due(), Due::Nothing);
/// ```
pub fn terminal_reply(text: &str) -> Bytes {
    reply(json!({
        "index": 0,
        "message": {"role": "assistant", "content": text},
        "finish_reason": "stop",
        "disaggregated_params": null,
    }))
}

fn reply(choice: serde_json::Value) -> Bytes {
    let usage = json!({"prompt_tokens": 3, "total_tokens": 4, "completion_tokens": 1});
    let reply = json!({
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": "m",
        "choices": [choice],
        "usage": usage,
        "prompt_token_ids": [1, 2, 3],
    });
    Bytes::from(reply.to_string())
}
