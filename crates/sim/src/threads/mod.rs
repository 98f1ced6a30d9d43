//! A server with one thread per connection, more threads than cores: the world of REEF (Li, Jiang, Che and Wang, "REEF:
//! Energy-efficient, application-QoS-aware thread processing in oversubscribed server environments", SoCC 2025).
//!
//! ```
//! use headroom_sim::threads::{GateFigures, ThreadsScenario, run};
//!
//! let scenario = ThreadsScenario { duration_s: 1.0, warm_up_s: 0.1, ..ThreadsScenario::default() };
//! let alone = run(&scenario, &mut |_| None, 1)?;
//! let gated = ThreadsScenario { gate: Some(GateFigures::default()), ..scenario };
//! // A policy is asked once a period; here it leaves everything as it is.
//! let gated = run(&gated, &mut |period| { assert_eq!(period.connections.len(), 64); None }, 1)?;
//! assert!(gated.ipq <= alone.ipq);
//! # Ok::<(), headroom_sim::RunError>(())
//! ```
//!
//! # The model
//!
//! - **Clients.** Closed loop: each connection sends its next query a while after the last was answered. Open loop: Poisson, each
//!   query on a connection drawn at random. A connection answers its queries in their order.
//! - **Query.** CPU work in instructions; with a probability it accesses the disk in the middle, once or more; with a probability its
//!   transaction locks one of some hot rows. All are draws of the connection's own stream: no gate and no scheduler changes them.
//! - **IPQ inflation.** Each stretch of CPU work grows by a curve of the threads that are active (runnable, or waiting for the disk)
//!   when it begins ([`IpqCurve`]).
//! - **Kernel.** Cores, run queues, slices, the cost of a switch, wake-up preemption ([`KernelFigures`]). A core that wakes begins
//!   after the exit latency of its idle state. Queues are evened out when a thread wakes and when a core runs out of work, not in
//!   between.
//! - **Disk.** One queue, first come, first served, in front of servers that work in parallel.
//! - **Locks.** First come, first served. The holder may be parked by the gate, or wait for the disk or its client.
//! - **On-call gate.** At most C workers have a slot. A round passes over the connections in order and lets each that waits serve up
//!   to N queries; the next begins D after all slots of the last are back. A worker with tokens left keeps its slot for a while for
//!   its next query (linger). One that waits for the disk or a lock gives its slot back at once, and takes it again without waiting.
//!   [`GateSettings`] can be changed once a period by the policy that [`run`] is given.
//! - **Power.** Core by core by [`headroom_physics`]: which core runs, how long each idles, what it costs to enter an idle state, and
//!   when a package sleeps. All cores run at their highest frequency.
//!
//! What it is not: no caches, NUMA, interrupts or network; no memory of who is slow (the fair policy takes turns, and gives no credit
//! to threads that slept); and the gate's own thread costs nothing but `wake_s`.

mod check;
mod cpu;
mod curve;
mod disk;
mod gate;
mod locks;
mod policy;
mod query;
mod scenario;
mod totals;
mod world;

#[cfg(test)]
mod tests;

pub use curve::{IpqCurve, IpqPoint};
pub use gate::GateSettings;
pub use policy::{ConnectionObservation, GateObservation};
pub use scenario::{
    DiskFigures, GateFigures, KernelFigures, KernelPolicy, LockFigures, QueryArrivals, QueryFigures,
    ThreadsScenario,
};
pub use totals::{IdlePeriods, ThreadShares, ThreadsTotals};
pub use world::run;
