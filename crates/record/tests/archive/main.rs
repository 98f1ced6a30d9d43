//! The flight recorder, read back and printed.

#[path = "../common/mod.rs"]
mod common;
mod oncall;
mod output;
mod parts;
mod past;
mod recorder;
mod summary;
