//! Simulated `trtllm-serve` engines, as strict as the real ones, for tests and demos.
//!
//! An [`Engine`] listens on 127.0.0.1, validates requests as a release of
//! TensorRT-LLM does (unknown members, coercions, error shapes, by schema
//! generation), and hands KV over for real: a context engine holds it until a
//! generation engine pulls it over TCP with the ids and the secret that the
//! context reply carried, or until it times out.
//!
//! ```
//! use trtllm_sim::{Config, Engine, Role, expected_answer};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> std::io::Result<()> {
//! let context = Engine::start(Config::new(Role::Context).release("1.3.0rc24")).await?;
//! let generation = Engine::start(Config::new(Role::Generation).tokens(16)).await?;
//! println!("{} and {}", context.hostport(), generation.hostport());
//!
//! let request = serde_json::json!({"messages": [{"role": "user", "content": "hi"}], "model": "m"});
//! assert_eq!(expected_answer(&request).finish_reason, "stop");
//! assert_eq!(context.state().kv_held, 0);
//! # Ok(())
//! # }
//! ```
//!
//! # Rules of the answers
//!
//! * Prompt tokens: a start token, then for chat each message's role, one
//!   token for every four characters of its content, and an end token; for a
//!   completions text one token for every four characters; token ids are taken
//!   as given.
//! * Token `i` of the answer is a function of all prompt token ids and of `i`;
//!   its text is a space and four letters ([`answer_text`]). The first token of
//!   a `generation_only` request is the one in `first_gen_tokens`.
//! * An answer has the configured length (16 tokens unless told otherwise), at
//!   least `min_tokens`, at most `max_tokens` (then `finish_reason` is
//!   `length`). With `ignore_eos` and `max_tokens` it has exactly `max_tokens`.
//!   `stop` and `stop_token_ids` end it as usual.
//! * A tool is called when `tools` is not empty and `tool_choice` is
//!   `required` (the first tool) or names one, or else (unless it is `none`)
//!   when the last message holds `#tool` (the first tool) or `#tool:name`; each
//!   such mark is a call. The arguments are `{"text":"<the answer text>"}`;
//!   several calls have a share each of the answer (by its natural length).
//! * With `chat_template_kwargs.enable_thinking`, else an enabled `thinking`,
//!   else a `reasoning_effort` other than `none`, the first half of the answer
//!   (by its natural length) is `reasoning_content`.
//! * Log probabilities follow from the token id. The first one of a
//!   `generation_only` request is the one in `first_gen_log_probs`; when that is
//!   absent the token has none.
//! * A quarter of the prompt tokens counts as cached. A generation worker
//!   reports `ctx_usage`, or without it all prompt tokens as cached.
//!
//! # Conversations
//!
//! An engine has attention-DP ranks ([`Config::ranks`]), and its requests take
//! turns on them. With [`Config::conversation_affinity`] those of one
//! conversation stay on one rank. The id is the body's
//! `conversation_params.conversation_id`, or else in the first header of those
//! that a worker of the release looks at. A context reply says the rank in
//! `ctx_dp_rank`.
//!
//! # Control
//!
//! `GET /sim/state` is [`State`] as JSON; `POST /sim/faults` takes a
//! [`Fault`] or a list of them, `DELETE /sim/faults` clears them; the request
//! header `x-sim-fault` holds a fault for one request; `DELETE /sim/state`
//! forgets the requests seen.

mod answer;
mod auth;
mod config;
mod conversation;
mod engine;
mod faults;
mod http1;
mod json;
mod kv;
mod release;
mod reply;
mod schema;
mod serve;
mod shared;
mod state;

pub use answer::{
    Expected, ExpectedTool, answer_text, answer_token, expected_answer, expected_answer_of, prompt_tokens,
    token_text,
};
pub use config::{Config, DEFAULT_TOKENS, Role};
pub use conversation::Conversation;
pub use engine::Engine;
pub use faults::{Cut, CutAt, CutHow, Fault, Hang, On};
pub use release::Generation;
pub use state::{SeenRequest, State};
