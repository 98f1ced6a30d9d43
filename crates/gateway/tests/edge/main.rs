//! The gateway before real servers and raw clients.

mod backends;
mod closing;
#[path = "../common/mod.rs"]
mod common;
mod failing;
mod failures;
mod http2;
mod killed;
mod leaving;
mod lifecycle;
mod pieces;
mod protocol;
mod proxying;
mod slow;
