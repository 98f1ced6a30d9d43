//! What an edge is put to, beside HAProxy: the same load and the same faults go to our gateway and to an HAProxy that is told the
//! same ([`products::Setup`]), and what is counted of the two is compared.
//!
//! Counts and orders alone are compared, never times: the machine that this runs on has others on it. Where HAProxy is not installed
//! the same is asked of our gateway, and `skipped` says that nothing stood beside it.

mod clients;
#[path = "../common/mod.rs"]
mod common;
mod dripping;
mod kill;
mod limit;
mod outage;
mod products;
mod slow_reader;
mod slow_upload;
