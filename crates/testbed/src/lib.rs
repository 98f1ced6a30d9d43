//! Built-in services to control, so that a demo needs nothing from outside.
//!
//! - [`wiki`]: a wiki whose pages cost real CPU time to render, an order of magnitude more for the longest than
//!   for the shortest.
//!
//! Nothing here is needed in production.
#![forbid(unsafe_code)]

pub mod wiki;
