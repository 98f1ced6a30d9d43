//! The protocol over its channels: TCP with certificates, Unix sockets, and who may do what.

mod access;
#[path = "../common/mod.rs"]
mod common;
mod mtls;
mod unix;
