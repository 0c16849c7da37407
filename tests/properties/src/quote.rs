//! Texts of errors may not hold what was read: it can be a prompt, or internal state.

use std::{
    collections::HashSet,
    error::Error,
    hash::{BuildHasher, RandomState},
};

/// Names that the contract gives; they are in inputs and in error texts alike. Longer ones first.
const NAMES: [&str; 16] = [
    "injected_chat_template_kwargs",
    "continuous_usage_stats",
    "subagent_affinity_id",
    "prompt_token_ids_b64",
    "disaggregated_params",
    "encoded_opaque_state",
    "conversation_params",
    "disagg_request_id",
    "ctx_info_endpoint",
    "first_gen_tokens",
    "prompt_token_ids",
    "use_beam_search",
    "ctx_request_id",
    "stream_options",
    "finish_reason",
    "include_usage",
];

/// The longest piece of an input that may be in a text by accident.
const RUN: usize = 12;

/// Panics when the text of an error quotes `input`.
pub(crate) fn assert_quotes_nothing(error: &(dyn Error + 'static), input: &[u8]) {
    let mut error = Some(error);
    while let Some(one) = error {
        assert_unquoted(&one.to_string(), input);
        assert_unquoted(&format!("{one:?}"), input);
        error = one.source();
    }
}

/// Pieces are compared by their hashes: a fuzzer that sees what its input is compared with writes the texts of errors into
/// it.
fn assert_unquoted(text: &str, input: &[u8]) {
    let text = NAMES.iter().fold(text.to_owned(), |text, name| text.replace(name, "…"));
    let hasher = RandomState::new();
    let runs: HashSet<u64> = text.as_bytes().windows(RUN).map(|run| hasher.hash_one(run)).collect();
    let quoted = input.windows(RUN).find(|run| runs.contains(&hasher.hash_one(run)));
    assert!(quoted.is_none(), "{text:?} quotes {:?}", quoted.map(String::from_utf8_lossy));
}
