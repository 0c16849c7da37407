//! Two simulated engines, the real sidecar between them, and clients that look closely.

#![allow(dead_code, unreachable_pub, unused_imports, reason = "each test program uses a part of it")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod answer;
mod ask;
mod hyper_client;
mod key_file;
mod leaver;
mod log;
mod metrics;
pub mod pair;
mod raw;
mod reply;
mod wait;
pub mod worker;
mod world;

pub use self::{
    answer::Answer,
    ask::{Ask, chat_body, completions_body, members, spelt},
    hyper_client::Client,
    key_file::KeyFile,
    leaver::{Leave, Leaver},
    log::Log,
    metrics::Metrics,
    raw::Raw,
    reply::{End, Reply},
    wait::{PATIENCE, SOON, eventually, within},
    world::World,
};
