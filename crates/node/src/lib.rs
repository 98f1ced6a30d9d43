//! One Linux machine: what it draws, what can be set on it, and the guarantee that whatever was set is put back.
//!
//! - [`cgroup`] finds the control group of a service, given as a path, a systemd unit, a container or a process,
//!   and can make a fresh one.
//! - [`cpu`] limits the cores of that group (quota and cpuset) and reads what it used and how it was throttled.
//! - [`power`] says how many watts the machine draws: counted by RAPL, or computed by a model where no sensor is.
//! - [`limit`] sets power limits that the hardware holds: RAPL's and HSMP's.
//! - [`cap`] holds a power cap, by the hardware or in software, and joins cores and cap into one [`cap::Limiter`].
//! - [`restore`] keeps what was found before the first write, and puts it back: on drop, on panic, on a signal,
//!   and after kill -9 from a state file.
//! - [`probe`] says in plain words which levers and meters this machine has.
//! - [`ours`] sees that nobody else can change a run folder.
//! - [`agent`] serves one machine over gRPC, under a lease.
//! - [`frequency`] reads the current frequency relative to the highest, and limits it.
//! - [`queue`] measures the accept queue of a port, in five ways.
//! - [`work`] reads what the whole machine did: processor time by kind, and what passed its links.
//! - [`switch`] switches another machine's power: IPMI, Redfish, Wake-on-LAN, commands.
//! - [`perf`] counts instructions, context switches and CPU time of a program from its start.
//! - [`idle`] reads how long the CPUs were in which idle state, and measures how long their idle periods are.
//!
//! Nothing here decides how much a service needs: it is given an allocation and keeps it within what the machine
//! allows. Every path starts at [`Roots`], so that a test can stand a tree in the place of `/sys` and `/proc`.
//! The code is synchronous: it belongs on a thread of its own, not on an async runtime. The network side of [`agent`]
//! alone is not.
//!
//! ```no_run
//! use headroom_node::queue::{QueueOptions, choose};
//!
//! let (mut meter, choice) = choose("auto".parse()?, &QueueOptions::new(8080))?;
//! println!("{choice}");
//! let sample = meter.sample()?;
//! println!("connections in the queue: {:?}", sample.length);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![deny(unsafe_code)]

pub mod agent;
mod bpf;
pub mod cap;
pub mod cgroup;
mod clock;
pub mod cpu;
pub mod file;
pub mod frequency;
pub mod hsmp;
pub mod idle;
pub mod limit;
pub mod order;
pub mod ours;
mod panel;
pub mod perf;
pub mod power;
mod powercap;
pub mod probe;
mod process;
pub mod program;
pub mod queue;
pub mod restore;
mod roots;
mod sharing;
pub mod switch;
#[cfg(test)]
#[path = "../tests/common/testing.rs"]
mod testing;
mod tool;
pub mod work;

// Under the name that the tests of the whole have for it.
#[cfg(test)]
extern crate self as headroom_node;

pub use roots::Roots;
