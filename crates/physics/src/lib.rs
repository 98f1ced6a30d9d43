//! What a machine draws, and why: one model for the simulator, the emulated hardware and the meter of machines that
//! have none.
//!
//! A watt has a cause here, and a lever saves only through one of them:
//!
//! | cause | what lowers it |
//! |---|---|
//! | a busy core: leakage by voltage, C V² f | a lower frequency, and with it a lower voltage |
//! | an idle core: its idle state | longer idle periods, so that a deeper state pays ([`idle`], [`governor`]) |
//! | a package: uncore and memory | all its cores in their deepest state at once ([`cores`]) |
//! | the machine: fans, disks, supply | switching it off, for longer than a boot costs ([`server`]) |
//!
//! A core that is not allocated is an idle core like any other: a CPU quota switches nothing off.
//!
//! [`cores::CoreTracker`] follows each core through time, for a simulator that knows who runs when;
//! [`expected::idle_power`] says what the same comes to on average, for a meter or a law that knows rates alone, and
//! [`lengths`] for one that measured idle periods. [`efficiency`] has the measures of REEF, [`serving`] what requests take
//! of a machine's cores and link.
//!
//! ```
//! use headroom_physics::{MachineFigures, expected::{Load, idle_power}};
//! use headroom_units::{Cores, PerSecond};
//!
//! let machine = MachineFigures::skylake(8);
//! // Eight hundred wake-ups a second keep eight cores in shallow states; on two of them, the rest sleep.
//! let spread = Load { busy: Cores::new(0.8), wakeups: PerSecond::new(8000.0), on: 8 };
//! let packed = Load { on: 2, ..spread };
//! assert!(idle_power(&machine, packed).cores < idle_power(&machine, spread).cores);
//! ```
#![forbid(unsafe_code)]

pub mod cores;
pub mod efficiency;
pub mod expected;
pub mod frequency;
pub mod governor;
pub mod idle;
mod kind;
pub mod lengths;
pub mod machine;
pub mod saving;
pub mod server;
pub mod serving;

pub use cores::{CoreTracker, IdleTotals, Placement};
pub use frequency::{Frequencies, FrequencyFigures, Level, Pace};
pub use idle::IdleState;
pub use kind::Machine;
pub use machine::{FigureError, MachineFigures};
pub use server::ServerFigures;
pub use serving::{RequestCost, ServiceCost, ServingKind, ServingLoad, ServingMachine, StudiedService};
