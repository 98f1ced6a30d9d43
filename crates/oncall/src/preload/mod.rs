//! The preload library: what runs inside the server. It is compiled twice: with this crate, to be checked and tested, and by
//! `build.rs` as a shared object of its own (`root.rs`), which alone exports the hooks.
//!
//! It has no standard library, no allocator and no thread-local storage of its own, since the server's threads may be made, cancelled
//! and ended in any way; its state is the shared region and a few words.

pub(crate) use crate::layout;

mod answers;
mod areas;
mod blocked;
mod courtesy;
mod gaps;
mod habit;
mod holders;
mod hooks;
mod join;
mod lists;
pub(crate) mod lock;
mod owner;
pub(crate) mod processes;
pub(crate) mod rounds;
mod sets;
pub(crate) mod sys;
pub(crate) mod table;
mod transactions;
mod users;
mod waits;
mod watch;

#[cfg_attr(not(oncall_preload), allow(unused_imports, reason = "the panic handler's"))]
pub(crate) use sys::abort;
