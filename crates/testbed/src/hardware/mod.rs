//! Emulated hardware: a FUSE file system that looks like the `/sys` of a two-package server with RAPL, cpufreq, cpuidle
//! and control groups, and behaves like it. An agent runs on it unchanged: [`Emulated::root`] takes the place of `/sys`,
//! [`Emulated::proc_root`] that of `/proc`.
//!
//! # What an emulated core is
//! The emulated machine has N cores (16 by default). R real cores (60 % of the real machine by default) stand for all of
//! them, so one emulated core at full speed is R/N of a real one. The agent sees and gives only emulated cores: it writes
//! quotas of up to N cores into `fs/cgroup` of the tree. Behind each emulated group is a real group, below one base group of
//! the emulator's, and the emulator gives it
//!
//! ```text
//! real quota = R/N x entitled emulated cores x speed          speed = f/f_max x duty cycle
//! ```
//!
//! where *entitled* is the least of the group's quota, the quotas above it, and the CPUs of its cpuset. So fewer cores, a
//! lower frequency and a power cap each slow the real processes by as much as they would on such a machine. The base group is
//! held to what the whole machine could do, for groups without a limit of their own.
//!
//! Counters are turned back: a group that used the share u of its real quota was busy on u x entitled emulated cores. So
//! `usage_usec` over entitled cores x time is a utilisation between 0 and 1 at every frequency, and the same work costs more
//! busy time on slower cores, as on real ones. Throttling counts only while the emulated group has a quota.
//!
//! What this does not reproduce: one thread of the service may use more than one emulated core, up to a whole real one. The
//! service has the right capacity, not the right speed of a single request at low load; a single request is slowed once
//! the group's real quota is below one core.
//!
//! # Power
//! Each package draws its base, a static part for each allocated core (one that a living or limited group may use) and a
//! dynamic part k V(f)^2 f for each busy one ([`config::PowerFigures`]). Limits of the package's zone (and HSMP's on AMD) choose the highest
//! frequency at which the expected power fits, below the lowest frequency a duty cycle, and what was drawn over the limit is
//! paid back over its time window. cpufreq chooses too, and the lower wins. Memory is beside the package, in its dram zone, as
//! on real servers: a cap on the packages does not hold it.
//!
//! # Invariants
//! - Everything is marked: the tree holds `headroom-testbed/emulated`. Whatever reads energy from a tree with that file labels
//!   it emulated.
//! - [`machine::Machine`], and the control groups and faults around it, read no clock: the same steps give the same figures.
//! - Energy never falls, and never rises by more than every core busy at full speed would draw.
//! - A group's busy time never exceeds what it was entitled to in any interval.
//! - What is changed in real control groups is written down first ([`RealOptions::record`]) and put back on drop. After kill
//!   -9 the real quota stays as it was until the next [`Emulated::mount`] with that record, which lifts it and takes living
//!   groups over, or until [`recover`], which moves the processes out and removes the groups.
//!
//! # Faults
//! Through [`Control`], or by writing lines to `headroom-testbed/faults` (root only), such as
//! `set error write EINVAL intel-rapl:0/constraint_0_power_limit_uw`, `set locked intel-rapl:0`, `clear`. See [`fault`].
//!
//! # Needs
//! `/dev/fuse` and root; no package. For another user `fusermount3` (Debian: fuse3) and `user_allow_other` in
//! `/etc/fuse.conf`; real control groups need root in any case.

mod backing;
pub mod config;
mod cpufreq;
mod cpuidle;
mod emulated;
pub mod error;
pub mod fault;
mod fuse;
mod group;
mod groups;
pub mod machine;
mod place;
mod power;
mod rapl;
mod real;
mod record;
mod shared;
mod text;
mod tree;
mod world;
mod zones;

pub use config::{CgroupVersion, Driver, FrequencyRange, HardwareConfig, PowerFigures};
pub use emulated::{Control, Emulated, RealOptions, detach_dead};
pub use error::HardwareError;
pub use fault::{Command, Fault, Operation};
pub use machine::Machine;
pub use record::{Recovered, recover};
pub use world::{GroupState, Snapshot};

#[cfg(test)]
mod groups_tests;
#[cfg(test)]
mod machine_tests;
#[cfg(test)]
mod world_tests;
