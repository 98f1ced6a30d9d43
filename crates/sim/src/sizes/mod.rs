//! Machines of several kinds that answer requests by their size, the world of Yamada, Kawai and Oshima's measurements (see
//! [`headroom_physics::serving`]): one machine under a profile's workload ([`profile()`]), and several behind a router that may send requests
//! by their size ([`fleet`]).
//!
//! ```
//! use headroom_physics::{ServingKind, StudiedService};
//! use headroom_sim::sizes::{ProfileScenario, profile};
//! use headroom_units::Ratio;
//!
//! let arm = ServingKind::Arm;
//! let cost = arm.cost(StudiedService::Memcached).of(10.0 * 1024.0);
//! let full = profile(&ProfileScenario::of(arm.machine(), cost, Ratio::new(1.0)), 1)?;
//! let quarter = profile(&ProfileScenario::of(arm.machine(), cost, Ratio::new(0.25)), 1)?;
//! let per_joule = |cell: &headroom_sim::sizes::ProfileTotals| cell.throughput.get() / cell.power.get();
//! assert!(per_joule(&quarter) < per_joule(&full));
//! # Ok::<(), headroom_sim::RunError>(())
//! ```
//!
//! # The model
//!
//! - **Request.** Processor time on one core, then bytes over the link: a worker reads the request, finds the answer and writes it, and
//!   what it wrote leaves through the socket's buffer. A real server overlaps the two for large answers; what a machine can serve is the
//!   same either way (each resource is used as long), only the time of a request alone is the sum here and the larger there.
//! - **Cores and link.** Both are shared by all requests there (processor sharing): n requests on k cores are served at min(1, k/n) of a
//!   core each, m transfers at 1/m of the link each.
//! - **Power.** Idle, and the watts of busy cores and of a busy link in proportion to how busy they are.
//! - **Density.** A client sends for its share of a window, waits for the answer that is outstanding, and pauses for the rest of the
//!   window, together with the others or by itself ([`Pausing`]). Of large answers so much is outstanding that the machine works on
//!   before the pause begins: at 999 KB a hundred of them are a second of a gigabit. Clients that do not wait drop what is outstanding,
//!   and what it has taken is lost.
//! - **Router** (of a [`fleet`]). Round robin, fewest requests, or a law of [`Lever::Placement`](headroom_units::Lever::Placement), which is
//!   told of the requests by class of size and machine and answers with weights. It learns the size of a route from its answers, as a gateway
//!   does: the first requests of a route are of no known size and go where the fewest are.
//! - **Power switches.** How many machines are on is a law's too; what is made of it is the live loop's own code
//!   ([`headroom_control::resize::Fleet`]): the first of the list come first and the last go first. Booting, shutting down and off have
//!   watts of their own.

pub mod fleet;
mod machine;
mod profile;

pub use machine::SizesEnergy;
pub use profile::{Pausing, ProfileScenario, ProfileTotals, profile};
