//! Answers that follow from the prompt alone.
//!
//! Token `i` of an answer is a function of all prompt token ids and of `i`, and
//! its text is a function of its id. So the answer is the same from one worker
//! or from two, and a token that is lost, doubled or changed shows in the text.

mod expected;
mod plan;
pub(crate) mod tokens;

pub use expected::{Expected, ExpectedTool, expected_answer, expected_answer_of};
pub(crate) use plan::{Channel, END_OF_ANSWER, Finish, Mode, Piece, Plan, StopReason, Want, plan};
pub use tokens::{answer_text, answer_token, prompt_tokens, token_text};

#[cfg(test)]
mod tests;
