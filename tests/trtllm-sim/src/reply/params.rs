//! `disaggregated_params` of a reply.

use crate::json::Value;
use crate::release::Generation;
use crate::schema::fields::names;
use crate::schema::params::DISAGGREGATED;

/// The object with every key that the generation knows, in its order: those
/// given, and null for the others (`false` for the one that cannot be null).
pub(crate) fn handoff(generation: Generation, given: &[(&str, Value)]) -> Value {
    Value::obj(names(DISAGGREGATED, generation).map(|name| {
        let value = given.iter().find(|(given, _)| *given == name);
        let default = if name == "return_prompt_token_ids_b64" { Value::Bool(false) } else { Value::Null };
        (name, value.map_or(default, |(_, value)| value.clone()))
    }))
}
