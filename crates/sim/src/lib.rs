//! The simulated world: what the live loop is to a machine, this is to a model of one, millions of events a second.
//!
//! [`run`] takes a [`Scenario`], a law (in its guardian, as it runs live) and a seed. Each period the law is given the
//! same [`Observation`](headroom_control::Observation) that the live loop gives it, and its [`Decision`](headroom_control::Decision)
//! is carried out. A law cannot tell the difference: there is no `if simulated` anywhere.
//!
//! ```
//! use headroom_control::{Fixed, Guardian};
//! use headroom_sim::{Scenario, run};
//!
//! let scenario = Scenario { duration_s: Some(60.0), ..Scenario::default() };
//! let plant = scenario.plant()?;
//! let mut law = Guardian::new(Box::new(Fixed::new(plant)), plant, 5);
//! let totals = run(&scenario, &mut law, 1, &mut |period| assert!(period.cores.get() == 48.0))?;
//! assert_eq!(totals.periods, 60);
//! # Ok::<(), headroom_sim::RunError>(())
//! ```
//!
//! # What the world is
//!
//! | part | module | model |
//! |---|---|---|
//! | requests | [`headroom_workload::process`] | a trace, Poisson, even, MMPP, or users who think; sizes of any shape |
//! | balancer | [`balancer`] | round robin, least connections, weighted, by size; notices a lost node after a while |
//! | node | `server`, `node` | M/G/k processor sharing: n requests on k cores are served at min(1, k/n) each; k may be a fraction |
//! | power | [`power`] | by cores allocated, cores busy, and frequency; boot and shutdown draw power of their own |
//! | quota | [`quota`] | cores held by the kernel's bandwidth control: so much CPU time a period, on any cores |
//! | caps | [`capping`] | a running average held by the frequency, below the lowest by stopping, as RAPL does |
//! | faults | [`faults`] | nodes lost, switched off, slow, deaf to caps; telemetry lost |
//! | the possible | [`bound`] | the least energy that keeps the SLO when all arrivals are known |
//! | accept queues | [`accept`] | a world of its own: clusters that are resized, limited queues, TCP's retries, worker processes |
//! | cache and batches | [`tiers`] | a world of its own: closed-loop users, a front tier with cache and batcher, an application, a database |
//! | sizes | [`sizes`] | a world of its own: machines of several kinds, each with cores and a link, by the size of answers |
//! | threads | [`threads`] | a world of its own: a thread per connection, run queues, disk, locks, the on-call gate |
//! | control | `world` | periods; telemetry with delay, noise, loss; decisions take effect after their delays |
//!
//! # What can be relied on
//!
//! - **Deterministic.** Same scenario, law and seed: same bytes out. Nothing is drawn for two purposes from one stream, so
//!   changing the law changes neither arrivals nor sizes ([`headroom_workload::random`]).
//! - **Checked in every run.** Little's law (L = λ W, as an identity of the run's own sums), conservation of work, of
//!   requests and of energy (sum over states of power times time). A run whose accounts differ ends in an error.
//! - **Bounded.** Memory does not grow with a run's length; events and requests in flight have limits
//!   ([`scenario::Limits`]) that end the run with an error that says so.
//!
//! # What it is not
//!
//! A request is one piece of work on one core: no memory or caches that warm up, but for [`sizes`] no network, and but for [`threads`] no disk
//! and no locks; but for [`accept`], no queue in front of the node and no client that gives up. All cores of a node run at one
//! frequency, and a cap is held by the whole node at once. Cores are shared ideally: but for [`threads`] no scheduler's time
//! slices and no cost of switching, and but for [`quota`] no quota period. The operating system's
//! governor is `performance`: a core that is not limited runs at its highest frequency.
#![forbid(unsafe_code)]

pub mod accept;
pub mod balancer;
pub mod bound;
pub mod capping;
mod drawn;
mod energy;
mod error;
pub mod faults;
mod heap;
pub mod histogram;
mod node;
pub mod power;
pub mod quota;
mod requests;
pub mod scenario;
pub mod search;
mod server;
pub mod sizes;
pub mod threads;
pub mod tiers;
pub mod totals;
mod world;

pub use energy::{EnergyByCause, SavedByCause};
pub use error::{RunError, ScenarioError};
pub use faults::Fault;
pub use histogram::LatencyHistogram;
pub use node::{NodeOutcome, NodeState};
pub use scenario::Scenario;
pub use totals::{RunLatency, Totals};
pub use world::{Bare, Controller, Outcome, run, run_many};
