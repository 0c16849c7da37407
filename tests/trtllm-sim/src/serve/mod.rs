//! Requests to answers.

mod context;
mod control;
mod generate;
mod inference;
mod info;
mod respond;
mod route;
mod stream;
mod work;

pub(crate) use route::handle;
