//! HTTP/2 to backends: many exchanges at a time over few connections.
//!
//! The protocol itself is the crate `h2`, which is also what serves clients' HTTP/2. A stream is polled by the request it carries, as an
//! HTTP/1.1 connection is ([`crate::upstream`]); the connection has a task of its own.

mod connection;
mod head;
mod lines;
mod stream;

pub(crate) use connection::{Connection, connect};
pub(crate) use head::request;
pub(crate) use lines::{Lines, Turn};
pub(crate) use stream::Stream;
