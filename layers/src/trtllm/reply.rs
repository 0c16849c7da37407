//! The context worker's reply: what it has to be for a handoff, or for an answer (contract, section 3).

use std::{collections::BTreeSet, fmt};

use bytes::Bytes;

use super::{
    DisaggRequestId, Endpoint,
    reply_error::{ReplyError, ReplyErrorKind},
    token_ids::{self, Tokens},
};
use crate::json::{JsonError, Kind, Object, Value};

/// A context reply that can be used.
///
/// Keeps the bytes as they came, and shares them with what is made of them. `Debug` shows sizes only.
#[derive(Clone)]
pub struct ContextReply {
    endpoint: Endpoint,
    object: Object,
    choice: Object,
    /// `None`: the answer is complete.
    state: Option<State>,
}

/// What the generation worker needs.
#[derive(Clone)]
struct State {
    params: Object,
    disagg_request_id: Option<u64>,
    opaque: Option<Value>,
    info_endpoint: Option<Value>,
    tokens: Tokens,
}

/// What is due after a context reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Due {
    /// A generation leg: the context worker holds the KV cache until one collects it.
    Generation,
    /// The context step finished the request. There is nothing to collect, and a generation leg would fail in the
    /// engine's event loop.
    Nothing,
}

/// The id that the generation leg carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GenerationId {
    id: u64,
    foreign: bool,
}

impl GenerationId {
    /// The number.
    pub fn get(self) -> u64 {
        self.id
    }

    /// Whether the context worker named another id than it was sent. Its own is what the KV cache is registered
    /// under, so that one is used, and the operator should be told.
    pub fn is_foreign(self) -> bool {
        self.foreign
    }
}

impl fmt::Display for GenerationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.id.fmt(f)
    }
}

const CHOICES: &str = "choices";
const CHOICE: &str = "choices[0]";
const FINISH: &str = "choices[0].finish_reason";
const PARAMS: &str = "choices[0].disaggregated_params";
const CTX_REQUEST_ID: &str = "choices[0].disaggregated_params.ctx_request_id";
const DISAGG_REQUEST_ID: &str = "choices[0].disaggregated_params.disagg_request_id";
const FIRST_GEN_TOKENS: &str = "choices[0].disaggregated_params.first_gen_tokens";
const OPAQUE_STATE: &str = "choices[0].disaggregated_params.encoded_opaque_state";
const INFO_ENDPOINT: &str = "choices[0].disaggregated_params.ctx_info_endpoint";

const REPEATED: &str = "occurs more than once";

impl ContextReply {
    /// Reads the body of a context worker's reply with a 2xx status.
    ///
    /// # Errors
    ///
    /// [`ReplyError`], of the kind `Aborted` when the finish reason says so, else `NotUsable`. A member that a
    /// decision rests on and that occurs twice is an error: which one the generation worker would go by is not ours
    /// to guess.
    pub fn parse(endpoint: Endpoint, body: Bytes) -> Result<Self, ReplyError> {
        let object = Object::parse(body).map_err(|error| match error {
            JsonError::WrongKind => ReplyError::not_usable("", "is JSON, but not an object"),
            error => ReplyError::json("", "is not one JSON object", error),
        })?;
        if object.members().any(|(key, value)| key == "error" && !value.is_null()) {
            return Err(ReplyError::not_usable("error", "is there, although the status says success"));
        }
        let choice = only_choice(&object)?;
        let finish = Finish::of(&choice).map_err(|error| match error.kind() {
            ReplyErrorKind::Aborted => error.with_cache(names_a_handoff(&choice)),
            ReplyErrorKind::NotUsable => error,
        })?;
        let state = match finish {
            Finish::Ended => None,
            // Without a reason the request may be unfinished; then a complete handoff is the only way on, and one
            // token must never pass for an answer.
            Finish::Due | Finish::Unset => Some(State::read(endpoint, &object, &choice)?),
        };
        Ok(Self { endpoint, object, choice, state })
    }

    /// What is due now.
    pub fn due(&self) -> Due {
        if self.state.is_some() { Due::Generation } else { Due::Nothing }
    }

    /// The API it is a reply of.
    pub fn endpoint(&self) -> Endpoint {
        self.endpoint
    }

    /// The size of the body in bytes.
    pub fn size(&self) -> usize {
        self.object.text().len()
    }

    /// The request id that the context worker reports, when it does and a generation leg is due.
    pub fn disagg_request_id(&self) -> Option<u64> {
        self.state.as_ref()?.disagg_request_id
    }

    /// The id for the generation leg of a request that was sent with `ours`.
    pub fn id_for_generation(&self, ours: DisaggRequestId) -> GenerationId {
        let ours = ours.get();
        let id = self.disagg_request_id().unwrap_or(ours);
        GenerationId { id, foreign: id != ours }
    }

    /// `encoded_opaque_state` as JSON text, unless it is null or absent; part of what is signed (contract,
    /// section 8).
    pub fn opaque_state(&self) -> Option<&Value> {
        self.state.as_ref()?.opaque.as_ref()
    }

    /// `ctx_info_endpoint` as JSON text, unless it is null or absent; part of what is signed (contract, section 8).
    pub fn info_endpoint(&self) -> Option<&Value> {
        self.state.as_ref()?.info_endpoint.as_ref()
    }

    /// Whether `disaggregated_params` has this member, be it null: then the context worker's release knows it.
    pub fn shows(&self, member: &str) -> bool {
        self.params().is_some_and(|params| params.contains(member))
    }

    pub(super) fn object(&self) -> &Object {
        &self.object
    }

    pub(super) fn choice(&self) -> &Object {
        &self.choice
    }

    pub(super) fn params(&self) -> Option<&Object> {
        self.state.as_ref().map(|state| &state.params)
    }

    pub(super) fn tokens(&self) -> &Tokens {
        self.state.as_ref().map_or(&Tokens::Absent, |state| &state.tokens)
    }
}

impl fmt::Debug for ContextReply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ContextReply")
            .field("endpoint", &self.endpoint)
            .field("due", &self.due())
            .field("bytes", &self.size())
            .finish_non_exhaustive()
    }
}

fn only_choice(reply: &Object) -> Result<Object, ReplyError> {
    let choices = reply.get(CHOICES).map_err(|_| ReplyError::not_usable(CHOICES, REPEATED))?;
    let choices = choices.ok_or_else(|| ReplyError::not_usable(CHOICES, "is missing"))?;
    let mut choices = choices.elements(1).map_err(|error| match error {
        JsonError::TooManyMembers => ReplyError::not_usable(CHOICES, "has more than one element"),
        _ => ReplyError::not_usable(CHOICES, "is not a list"),
    })?;
    let choice = choices.pop().ok_or_else(|| ReplyError::not_usable(CHOICES, "is empty"))?;
    object(CHOICE, &choice)
}

fn object(field: &'static str, value: &Value) -> Result<Object, ReplyError> {
    value.object().map_err(|error| match error {
        JsonError::WrongKind => ReplyError::not_usable(field, "is not an object"),
        error => ReplyError::json(field, "cannot be read", error),
    })
}

/// What a finish reason means for the handoff.
enum Finish {
    /// A generation leg is due.
    Due,
    /// There is none; orchestrators differ in what that means.
    Unset,
    /// The answer is complete.
    Ended,
}

impl Finish {
    fn of(choice: &Object) -> Result<Self, ReplyError> {
        let reason = choice.get("finish_reason").map_err(|_| ReplyError::not_usable(FINISH, REPEATED))?;
        let Some(reason) = reason.filter(|reason| !reason.is_null()) else { return Ok(Self::Unset) };
        if reason.kind() != Kind::String {
            return Err(ReplyError::not_usable(FINISH, "is not a string"));
        }
        match reason.as_text().as_deref() {
            Some("length" | "not_finished") => Ok(Self::Due),
            Some("stop" | "tool_calls" | "content_filter") => Ok(Self::Ended),
            Some("cancelled") => Err(ReplyError::aborted(FINISH, "is `cancelled`")),
            Some("abort") => Err(ReplyError::aborted(FINISH, "is `abort`")),
            Some("error") => Err(ReplyError::aborted(FINISH, "is `error`")),
            Some("timeout") => Err(ReplyError::aborted(FINISH, "is `timeout`")),
            _ => Err(ReplyError::aborted(FINISH, "is none that ends a request well")),
        }
    }
}

/// Whether a choice names the id that a worker gives to a cache that waits to be collected.
fn names_a_handoff(choice: &Object) -> bool {
    let params = choice.last("disaggregated_params").and_then(|params| params.object().ok());
    params.and_then(|params| params.last("ctx_request_id")).is_some_and(|id| !id.is_null())
}

impl State {
    fn read(endpoint: Endpoint, reply: &Object, choice: &Object) -> Result<Self, ReplyError> {
        let params =
            choice.get("disaggregated_params").map_err(|_| ReplyError::not_usable(PARAMS, REPEATED))?;
        let params = match params {
            None => {
                return Err(ReplyError::not_usable(PARAMS, "is missing, so there is nothing to hand over"));
            }
            Some(params) if params.is_null() => {
                return Err(ReplyError::not_usable(PARAMS, "is null, so there is nothing to hand over"));
            }
            Some(params) => object(PARAMS, &params)?,
        };
        let mut seen = BTreeSet::new();
        if !params.members().all(|(key, _)| seen.insert(key)) {
            return Err(ReplyError::not_usable(PARAMS, "has a member more than once"));
        }
        // Nothing is repeated, so the last is the only one.
        let member = |key| params.last(key).filter(|value| !value.is_null());

        let id = member("ctx_request_id");
        id.as_ref()
            .ok_or_else(|| ReplyError::not_usable(CTX_REQUEST_ID, "is missing or null"))
            .and_then(|id| request_id(CTX_REQUEST_ID, id))?;
        let disagg_request_id =
            member("disagg_request_id").map(|id| request_id(DISAGG_REQUEST_ID, &id)).transpose()?;
        let tokens = member("first_gen_tokens")
            .ok_or_else(|| ReplyError::not_usable(FIRST_GEN_TOKENS, "is missing or null"))?;
        token_ids::check_generated(&tokens)
            .map_err(|reason| ReplyError::not_usable(FIRST_GEN_TOKENS, reason))?;

        let opaque = string(OPAQUE_STATE, member("encoded_opaque_state"))?;
        let info_endpoint = string(INFO_ENDPOINT, member("ctx_info_endpoint"))?;
        let says_something =
            |value: &Option<Value>| value.as_ref().is_some_and(|value| value.as_str().len() > 2);
        if !says_something(&opaque) && !says_something(&info_endpoint) {
            let reason = "is missing or empty, and so is `ctx_info_endpoint`: the KV cache cannot be found";
            return Err(ReplyError::not_usable(OPAQUE_STATE, reason));
        }
        let tokens = Tokens::read(endpoint, reply)?;
        Ok(Self { params, disagg_request_id, opaque, info_endpoint, tokens })
    }
}

/// Ids are unsigned 64-bit numbers in the engine; its request model would take anything.
fn request_id(field: &'static str, value: &Value) -> Result<u64, ReplyError> {
    let id = value.as_i128().ok_or_else(|| ReplyError::not_usable(field, "is not an integer"))?;
    u64::try_from(id).map_err(|_| ReplyError::not_usable(field, "is negative or above 64 bits"))
}

fn string(field: &'static str, value: Option<Value>) -> Result<Option<Value>, ReplyError> {
    match value {
        Some(value) if value.kind() != Kind::String => Err(ReplyError::not_usable(field, "is not a string")),
        value => Ok(value),
    }
}

#[cfg(test)]
mod tests;
