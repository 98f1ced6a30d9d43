//! A server with one thread per connection, more threads than cores: the world of REEF (Li, Jiang, Che and Wang, "REEF:
//! Energy-efficient, application-QoS-aware thread processing in oversubscribed server environments", SoCC 2025).
//!
//! ```
//! use headroom_sim::threads::{GateFigures, ThreadsScenario, run};
//!
//! let scenario = ThreadsScenario { duration_s: 1.0, warm_up_s: 0.1, ..ThreadsScenario::default() };
//! let alone = run(&scenario, &mut |_| None, 1)?;
//! let gated = ThreadsScenario { gate: Some(GateFigures::default()), ..scenario };
//! // A law is asked once a period, as live; here it leaves everything as it is.
//! let gated = run(&gated, &mut |period| { assert_eq!(period.oncall.as_ref().map(|oncall| oncall.each.len()), Some(64)); None }, 1)?;
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
//! - **Areas.** A law of areas gives connections cores of their own, at a frequency of their own, and threads weights
//!   ([`run_areas`]). Each area has its own rounds.
//! - **Kernel.** Cores, run queues, slices, the cost of a switch, wake-up preemption ([`KernelFigures`]). A core that wakes begins
//!   after the exit latency of its idle state. Queues are evened out when a thread wakes and when a core runs out of work, not in
//!   between.
//! - **Disk.** One queue, first come, first served, in front of servers that work in parallel.
//! - **Locks.** First come, first served. The holder may be parked by the gate, or wait for the disk or its client.
//! - **On-call gate.** At most C workers have a slot. In a round each connection that waits serves up to N queries, in the order in which
//!   they came; the next begins D after all slots of the last are back. A worker with tokens left keeps its slot for a while for its next
//!   query (linger). One that waits for the disk or a lock gives its slot back at once, and takes it again without waiting.
//!   The law that [`run`] is given changes C, N, D and what each connection may do once a period: what is observed and decided is of
//!   the types of live control.
//! - **Classes.** Connections of a class share SLOs, weights, arrivals and queries ([`ClassFigures`]). How a connection keeps its SLOs is
//!   judged by its last 128 latencies, as live.
//! - **Incidents.** Storms of queries, disks that stall, connections that are killed, a load that steps up or down ([`Incident`]).
//! - **Power.** Core by core by [`headroom_physics`]: which core runs, how long each idles, what it costs to enter an idle state, and
//!   when a package sleeps.
//!
//! What it is not: no caches, NUMA, interrupts or network; no memory of who is slow (the fair policy takes turns, and gives no credit
//! to threads that slept); and the gate's own thread costs nothing but `wake_s`.

mod check;
mod classes;
mod cpu;
mod curve;
mod disk;
mod gate;
mod locks;
mod query;
mod recent;
mod scenario;
mod totals;
mod world;

#[cfg(test)]
mod tests;

pub use classes::{ClassFigures, DisengagementTarget, SloChange, TailTarget};
pub use curve::{IpqCurve, IpqPoint};
pub use scenario::{
    DiskFigures, GateFigures, Incident, KernelFigures, KernelPolicy, LockFigures, QueryArrivals,
    QueryFigures, ThreadsScenario,
};
pub use totals::{ClassTotals, IdlePeriods, ThreadShares, ThreadsTotals};
pub use world::{run, run_areas, run_law};
