use super::RequestError;
use crate::json::{JsonError, Kind, Object, Value};

/// Refuses an object in which any occurrence of a handoff field carries something.
///
/// An engine takes these from whoever can reach it, and acts on them: it decodes opaque bytes, connects to an
/// address, joins a transfer by number (contract, section 2, and section 8 for those meant for the server only).
/// `null` says nothing and passes, and so does an empty `disaggregated_params`.
pub(in crate::trtllm) fn refuse_handoff_fields(object: &Object) -> Result<(), RequestError> {
    object.members().try_for_each(|(key, value)| match key {
        "disaggregated_params" if !says_nothing(&value) => {
            Err(RequestError::handoff_field("disaggregated_params"))
        }
        "prompt_token_ids" if !value.is_null() => Err(RequestError::handoff_field("prompt_token_ids")),
        "prompt_token_ids_b64" if !value.is_null() => {
            Err(RequestError::handoff_field("prompt_token_ids_b64"))
        }
        "injected_chat_template_kwargs" if !value.is_null() => {
            Err(RequestError::handoff_field("injected_chat_template_kwargs"))
        }
        "conversation_params" => refuse_affinity(&value),
        _ => Ok(()),
    })
}

fn says_nothing(value: &Value) -> bool {
    value.is_null() || (value.kind() == Kind::Object && value.object().is_ok_and(|object| object.is_empty()))
}

fn refuse_affinity(conversation: &Value) -> Result<(), RequestError> {
    const MEMBER: &str = "subagent_affinity_id";
    match conversation.object() {
        Ok(object) if object.members().any(|(key, value)| key == MEMBER && !value.is_null()) => {
            Err(RequestError::handoff_field("conversation_params.subagent_affinity_id"))
        }
        // What is no object cannot have the member; its type is for the worker to judge.
        Ok(_) | Err(JsonError::WrongKind) => Ok(()),
        Err(error) => Err(RequestError::unreadable("conversation_params", error)),
    }
}
