//! One of the demo's clusters as a world of `headroom compare --worlds`: the same servers, day and law, simulated.

use super::{KNOWN_DAYS, PERIOD, day, hardware, law_config, session};
use crate::commands::trace;
use crate::simulate::Setting;
use headroom_console::Failure;
use headroom_control::LawName;
use headroom_sim::balancer::Rule;
use headroom_sim::power::Machine;
use headroom_sim::scenario::NodeGroup;
use headroom_units::{PerSecond, Seconds};
use headroom_workload::Trace;

/// How long the demo's day is by default.
const LENGTH: Seconds = Seconds::new(90.0);
/// What one core serves there, about, on the machine that its figures were measured on.
const RATE_PER_CORE_S: f64 = 20.0;
const TARGET_MS: f64 = 500.0;

/// Its servers.
pub fn nodes() -> Vec<NodeGroup> {
    vec![NodeGroup {
        count: super::SERVERS as u32,
        cores: f64::from(hardware::CORES),
        machine: Machine::Figures(Box::new(hardware::figures())),
        ..NodeGroup::default()
    }]
}

/// Its period, service, and what of a law is compressed with the day.
pub fn change(setting: &mut Setting) {
    let service = &mut setting.scenario.service;
    service.period_s = PERIOD.as_secs_f64();
    service.rate_per_core_s = RATE_PER_CORE_S;
    service.target_ms = TARGET_MS;
    setting.scenario.balancer.rule = Rule::LeastConnections {};
    setting.scenario.power_states = Some(session::tuning());
    setting.law.joint = law_config(LawName::JOINT, LENGTH).joint;
}

/// Its day on a cluster of this capacity, and those before.
///
/// # Errors
/// None that is known: a trace that cannot be made.
pub fn load(capacity: PerSecond, seed: u64) -> Result<(Trace, Option<Trace>), Failure> {
    let (before, trace) = trace::with_days_before("wikipedia", Seconds::new(10.0), seed, KNOWN_DAYS)?;
    let of = |part: &Trace, length: Seconds| {
        day::between(part, &trace, day::RANGE, capacity, length).map_err(Failure::usage)
    };
    let before = before.map(|before| of(&before, LENGTH * KNOWN_DAYS as f64));
    Ok((of(&trace, LENGTH)?, before.transpose()?))
}
