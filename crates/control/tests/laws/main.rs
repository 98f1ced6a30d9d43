//! The laws, each in tables of literals, and the properties that all have.

#[path = "../common/mod.rs"]
mod common;
mod headroom;
mod hpa;
mod joint;
mod pegasus;
mod properties;
mod slo_power;
