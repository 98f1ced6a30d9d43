//! A cluster of web servers with accept queues, the world of the capacity paper (see
//! [`headroom_control::capacity`]): connections are dropped where a queue is full and come again as TCP retries them,
//! servers boot and shut down, and a law of the lever [`Servers`](headroom_units::Lever) decides how many are on. What is made
//! of a decision (which servers are started and stopped, what a lost balancer forbids), the arrival rate where a queue
//! cannot be read, and the energy by model are the live loop's own code, [`headroom_control::resize`].
//!
//! A world of its own beside the processor-sharing one of [`run`](crate::run()): there a request that arrives is served at
//! once with all others, here it waits until a worker process takes it, or is turned away.
//!
//! ```
//! use headroom_control::resize::AlwaysOn;
//! use headroom_sim::Bare;
//! use headroom_sim::accept::{AcceptScenario, run};
//! use headroom_workload::ArrivalProcess;
//!
//! let scenario = AcceptScenario {
//!     arrivals: ArrivalProcess::Poisson { rate_per_s: 300.0 },
//!     duration_s: 60.0,
//!     servers: 1,
//!     ..AcceptScenario::default()
//! };
//! let totals = run(&scenario, &mut Bare(&mut AlwaysOn), 1, &mut |step| assert_eq!(step.servers.len(), 1))?;
//! assert_eq!(totals.drops, 0);
//! # Ok::<(), headroom_sim::RunError>(())
//! ```
//!
//! # The model
//!
//! - **Attempt.** A request is one connection. Where the accept queue of the server that the balancer chose holds fewer
//!   than its limit, it waits there; else the attempt is dropped and the client tries again after the times of
//!   [`SynRetries`], then gives up. The handshake takes no time, so that dropping its first packet (the queue was full) and
//!   its last (it became full meanwhile) are one.
//! - **Worker processes.** So many, that take connections first come, first served. A request is CPU work, shared with the
//!   server's other requests as processor sharing, then a wait for something else, for which the worker is occupied.
//! - **Balancer.** Round robin over the servers that take requests; a retry goes to the server that dropped it while that
//!   one does.
//! - **Power.** Idle to full in proportion to CPU utilisation; figures of their own for booting, shutting down and off.
//!   What is commanded of a server, and a boot or shutdown that ends, takes effect at the end of a sampling step.

mod scenario;
mod server;
mod world;

pub use scenario::{AcceptFault, AcceptScenario, SynRetries};
pub use world::{AcceptStep, AcceptTotals, ServerStep, run};
