//! HTTP/1.1 below the handlers: connections that can be cut, bodies that can end badly.

mod body;
mod conn;

pub(crate) use body::{Broken, Open, Sender, SimBody};
pub(crate) use conn::{Conn, serve};
