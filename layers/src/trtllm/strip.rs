//! Takes the members of a handoff out of a reply that a client is to see.

use crate::json::{Kind, Object, Segments, Value};

const STATE: &str = "disaggregated_params";
const TOKENS: [&str; 2] = ["prompt_token_ids", "prompt_token_ids_b64"];

/// The reply without `choices[*].disaggregated_params`, `prompt_token_ids` and `prompt_token_ids_b64`; what stays
/// keeps its bytes. Of several `choices` the last one stays, which is the one that a client reads. `None` when there is
/// nothing to take out.
pub(super) fn without_handoff(reply: &Object) -> Option<Segments> {
    let choices = reply.last("choices");
    let repeated = reply.get("choices").is_err();
    let choices = match choices.as_ref().and_then(stripped_choices) {
        // The state may be in one of the others.
        None if repeated => choices.map(Segments::from),
        stripped => stripped,
    };
    if choices.is_none() && !TOKENS.iter().any(|key| reply.contains(key)) {
        return None;
    }
    let edit = TOKENS.iter().fold(reply.edit(), |edit, key| edit.remove(key));
    Some(
        match choices {
            Some(choices) => edit.set("choices", choices),
            None => edit,
        }
        .finish(),
    )
}

/// `None` when no element has the state.
fn stripped_choices(choices: &Value) -> Option<Segments> {
    let text = choices.bytes();
    let start = text.as_ptr() as usize;
    let mut out = Segments::new();
    let mut written = 0;
    let each = |choice: Value| {
        if choice.kind() != Kind::Object {
            return true;
        }
        if let Ok(object) = choice.object()
            && object.contains(STATE)
        {
            // Elements are slices of the list's text.
            let at = object.text().as_ptr() as usize - start;
            out.push(text.slice(written..at));
            written = at + object.text().len();
            out.append(object.edit().remove(STATE).finish());
        }
        true
    };
    choices.for_each(each).ok()?;
    if written == 0 {
        return None;
    }
    out.push(text.slice(written..));
    Some(out)
}
