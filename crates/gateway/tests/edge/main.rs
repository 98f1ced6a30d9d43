//! The gateway before real servers and raw clients.

mod backends;
#[path = "../common/mod.rs"]
mod common;
mod failures;
mod http2;
mod lifecycle;
mod protocol;
mod proxying;
