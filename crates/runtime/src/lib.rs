//! The live world: what is read, decided and carried out once a period, on this machine ([`live`]) and on many ([`cluster`]).
//!
//! A run is a [`live::ControlLoop`]: a law of [`headroom_control`] between a [`live::Telemetry`] and a [`live::Device`],
//! with [`live::Sink`]s that read what each period leaves behind. The service's gateway is a process of its own ([`door`]);
//! whatever a run changes on a machine is put back at its end, by a guard where it is killed ([`live::undo`],
//! [`live::guard`]). [`resize`] switches the servers of a cluster on and off; [`capacity`] estimates what one server can take.
//!
//! This crate has no formula and reads no command line: a program converts its arguments and its configuration into the
//! plain types here.
#![forbid(unsafe_code)]

pub mod capacity;
pub mod cluster;
pub mod descriptors;
pub mod door;
pub mod live;
pub mod oncall;
pub mod queue_sample;
pub mod resize;

/// A number that no other start of a program has: the standard library's hasher is seeded by the system.
pub fn random() -> u64 {
    use std::hash::{BuildHasher, Hasher, RandomState};
    RandomState::new().build_hasher().finish()
}
