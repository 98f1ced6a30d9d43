//! What listeners take: certificates by name, clients' certificates, the PROXY protocol; what a source may ask; all addresses of a name.
#[path = "../common/mod.rs"]
mod common;

mod certificates;
mod clients;
mod haproxy;
mod names;
mod proxied;
mod sources;
mod tls;
mod uploads;
