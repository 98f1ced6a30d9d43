//! Built-in services to control, so that a demo needs nothing from outside.
//!
//! - [`hardware`]: a `/sys` that looks like a two-package server's and behaves like it, for machines that have none.
//! - [`wiki`]: a wiki whose pages cost real CPU time to render, an order of magnitude more for the longest than
//!   for the shortest.
//!
//! Nothing here is needed in production.
#![forbid(unsafe_code)]

pub mod hardware;
pub mod wiki;
