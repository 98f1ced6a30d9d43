//! On-call worker threads: the decisions of a scheduler that admits queries in rounds, as REEF ("Ideal Batching") has them.
//!
//! Everything here is a pure state machine: no clock, no I/O, no randomness. The levers that carry the answers out are not
//! part of this module. Sources are the REEF paper by its sections, equations and Algorithm 1, and the public implementations of the
//! systems that it builds on; there \[F\] is a published fact, \[R\] a reconstruction and \[D\] a design of ours.
//!
//! | module | it answers |
//! |---|---|
//! | [`policy`] | who may send how many queries in a turn |
//! | [`saturation`] | C: how many workers at once are enough for the most throughput |
//! | [`tail`] | which mean latency keeps a percentile or a user disengagement ratio |
//! | [`consolidation`] | how many cores each area of threads has |
//! | [`delay`] | D: how long to wait between rounds; N: how many queries a turn has |
//! | [`areas`] | which connections run on which cores: what the laws of areas answer |
//! | [`kmeans`] | which connections belong to one core area |
//! | [`law`] | C, N and D together: as published, and ours |
//!
//! Throughout, a *round* is one scheduling round (Section 3.4), C the concurrency limit, N the batch size in queries (tokens
//! of one turn) and D the inter-scheduling-round (ISR) delay.

pub mod areas;
pub mod consolidation;
pub mod delay;
mod gamma;
mod guarded;
pub mod kmeans;
pub mod law;
pub mod policy;
pub mod saturation;
pub mod tail;
