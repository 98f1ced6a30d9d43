//! Control laws: deterministic state machines that are given what was seen in one period and answer with what to
//! do and why.
//!
//! A law does no I/O, reads no clock and draws no unseeded randomness, so that the same value of the same type
//! runs live, in simulation and in a table of literals. What is deliberately absent here: Linux, HTTP, async, the
//! simulator. [`observation`] is what a law is given, [`decision`] what it answers, [`law`] the interface.
//!
//! | module | it is |
//! |---|---|
//! | [`headroom`] | our own law: the cheapest point that keeps the SLO with a stated confidence |
//! | [`slo_power`] | the SLO-Power system as published: Control Unit, Elastic Scaler, Power Allocator |
//! | [`hpa`] | the Horizontal Pod Autoscaler of Kubernetes, in full and as the SLO-Power authors ran it |
//! | [`pegasus`] | Pegasus, as published and as the SLO-Power authors ran it |
//! | [`power_manager`] | fixed caps by SLO level, and the powersave governor |
//! | [`fixed`] | everything on: the reference that savings are measured against |
//! | [`history`] | what came in before a law began |
//! | [`batching`] | how long a gateway holds requests to group them, and the frequency: as published, and our own |
//! | [`guardian`] | the wrapper of every law that puts all to full when telemetry is lost or requests fail |
//! | [`calibrate`] | the wrapper of a law whose μ nobody gave: observed from the traffic, and again when it drifts |
//! | [`capacity`] | how many requests a second a server can take: from its accept queue, a benchmark, or its CPU |
//! | [`placement`] | which machine serves which requests, by the size of their answers |
//! | [`resize`] | how many servers a cluster has on, and the power state of each |
//! | [`queueing`] | Equations 1 to 3 of the SLO-Power paper; processor sharing: the exact mean, and a percentile |
//! | [`estimate`] | the least-squares line read one step ahead |
//! | [`reflex`] | what is put in force between two decisions when more requests are in flight than expected |
//! | [`registry`] | the laws by name: parameters, how each is built, what can be searched |
//! | [`oncall`] | on-call threads: how many run at once, the delay between their rounds, batch sizes, core areas |
//! | [`stack`] | several laws in one period, each on its levers, slow ones with a period of their own |
//! | [`spread`] | one decision for a cluster, spread over its nodes |
//!
//! ```
//! use headroom_control::{CoreRange, LawConfig, LawContext, LawName, Observation, Plant, PowerEnvelope, Slo, Traffic};
//! use headroom_units::{Cores, PerSecond, Ratio, Seconds, Watts};
//!
//! let cores = CoreRange::new(Cores::new(1.0), Cores::new(16.0), Cores::new(1.0))?;
//! let power = PowerEnvelope { base: Watts::new(46.0), per_core: Watts::new(2.9), lowest_cap: Watts::new(47.0) };
//! let plant = Plant::new(cores, power)?;
//! let slo = Slo::new(Ratio::new(0.95), Seconds::from_millis(250.0))?;
//! let context = LawContext { slo, plant, service_rate: PerSecond::new(20.0), machines: Vec::new() };
//! let mut law = LawConfig::of("slo-power".parse::<LawName>()?).build(&context)?;
//! let observation = Observation {
//!     length: Seconds::new(1.0),
//!     in_force: plant.full(),
//!     traffic: Some(Traffic { arrivals: 40, completions: 40, ..Traffic::default() }),
//!     utilisation: Some(Ratio::new(0.13)),
//!     ..Observation::default()
//! };
//! let decision = law.decide(&observation);
//! assert!(decision.setting.cores() <= Some(Cores::new(16.0)));
//! assert!(!decision.reasons.is_empty(), "every decision has its reason");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

pub mod batching;
pub mod calibrate;
#[cfg(test)]
#[path = "../tests/common/mod.rs"]
mod common;
#[cfg(test)]
extern crate self as headroom_control;

pub mod capacity;
pub mod constant;
pub mod decision;
pub mod elastic;
pub mod estimate;
mod everything_on;
pub mod fixed;
mod growth;
pub mod guardian;
pub mod headroom;
pub mod history;
pub mod hpa;
pub mod joint;
pub mod law;
mod linear;
mod needed;
pub mod observation;
pub mod oncall;
pub mod parameter;
pub mod pegasus;
pub mod placement;
pub mod plant;
pub mod power_manager;
pub mod queueing;
pub mod reflex;
pub mod registry;
pub mod resize;
pub mod slo_power;
pub mod spread;
pub mod stack;

pub use batching::{
    Batching, BatchingDvfs, BatchingTuning, CoordinatorTuning, CpuUse, Dvfs, DvfsTuning, Seek, SeekTuning,
};
pub use calibrate::Calibrating;
pub use capacity::{Capacity, Estimate, QueueMonitor, QueueTuning};
pub use constant::{Constant, ConstantConfig};
pub use decision::{Allocation, Decision, Reason};
pub use elastic::{Elastic, ElasticTuning, ServerTraits};
pub use fixed::Fixed;
pub use guardian::{FailingLimits, Guardian};
pub use headroom::{Headroom, HeadroomTuning};
pub use history::LoadHistory;
pub use hpa::{Hpa, HpaTuning, K8sAsRun, K8sAsRunTuning};
pub use joint::{Joint, JointTuning};
pub use law::Law;
pub use observation::{
    BatchObservation, CacheObservation, ClassObservation, Distribution, Latency, NodeObservation,
    Observation, OncallObservation, Traffic, missed_latency,
};
pub use parameter::OutOfRange;
pub use pegasus::{Pegasus, PegasusTuning, PegasusVariant};
pub use plant::{CoreRange, FrequencyRange, Plant, PlantError, PowerEnvelope, Slo, StepRange};
pub use power_manager::{PowerManager, PowerManagerTuning, Powersave};
pub use reflex::Reflex;
pub use registry::{Foreseen, LawConfig, LawContext, LawError, LawName, LawNames, NoSuchLaw, Parameter};
pub use resize::{Fleet, Stepwise};
pub use slo_power::{Mode, SloPower, Tuning};
pub use spread::{NodeCapacity, NodeShare, Spread};
pub use stack::{Part, Stack, StackError};
