//! The laws that switch servers on and off: their tables, and how they are built.

use super::{Built, LawConfig, LawContext, LawError, LawName};
use crate::elastic::{Elastic, ServerTraits};
use crate::law::Law;
use crate::plant::{Plant, Slo};
use crate::resize::{Schedule, Scheduled, Stepwise, kinds};
use headroom_units::{PerSecond, Ratio, Seconds};
use serde::Deserialize;

/// `[law.static]`: what one server can take, by a benchmark.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct StaticConfig {
    /// Requests a second.
    pub capacity_per_s: Option<f64>,
}

/// `[law.scheduled]`: the servers by the time of day.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ScheduledConfig {
    /// So many servers in each slot, from 00:00 on.
    pub slots: Option<Vec<usize>>,
    /// Instead of slots an average daily load: requests a second from 00:00 on.
    pub curve_per_s: Option<Vec<f64>>,
    /// With a curve: what one server can take, in requests a second.
    pub capacity_per_s: Option<f64>,
    /// Seconds of one value of the curve.
    pub curve_step_s: f64,
    /// Seconds of one slot.
    pub slot_s: f64,
    /// Seconds before a slot at which its servers are started.
    pub lead_s: f64,
    /// Seconds by which the schedule's time of day is ahead of UTC.
    pub utc_offset_s: f64,
}

impl Default for ScheduledConfig {
    fn default() -> Self {
        Self {
            slots: None,
            curve_per_s: None,
            capacity_per_s: None,
            curve_step_s: 300.0,
            slot_s: 1_800.0,
            lead_s: 0.0,
            utc_offset_s: 0.0,
        }
    }
}

/// A day.
const DAY: Seconds = Seconds::new(86_400.0);

fn capacity(given: Option<f64>, table: &str) -> Result<PerSecond, LawError> {
    let missing = || {
        LawError::new(
            format!("law.{table}.capacity_per_s"),
            "is missing: the requests a second that one server takes",
        )
    };
    given.map(PerSecond::new).ok_or_else(missing)
}

pub(super) fn scheduled(config: &LawConfig, _: &LawContext) -> Built {
    let table = &config.scheduled;
    let slot = Seconds::new(table.slot_s);
    let schedule = match (&table.slots, &table.curve_per_s) {
        (Some(slots), None) => Schedule::new(slot, slots.clone()),
        (None, Some(curve)) => {
            let curve: Vec<PerSecond> = curve.iter().copied().map(PerSecond::new).collect();
            let capacity = capacity(table.capacity_per_s, "scheduled")?;
            Schedule::of_curve(&curve, Seconds::new(table.curve_step_s), slot, capacity)
        }
        _ => {
            let why = "needs exactly one of slots and curve_per_s";
            return Err(LawError::new("law.scheduled", why));
        }
    };
    let offset = Seconds::new(table.utc_offset_s);
    if !(-DAY..=DAY).contains(&offset) {
        let why = format!("is {}: it must be between -86400 and 86400", table.utc_offset_s);
        return Err(LawError::new("law.scheduled.utc_offset_s", why));
    }
    let law = Scheduled::new(
        schedule.map_err(LawError::of("scheduled"))?,
        Seconds::new(table.lead_s),
    );
    Ok(Box::new(
        law.map_err(LawError::of("scheduled"))?.with_offset(offset),
    ))
}

pub(super) fn fixed(config: &LawConfig, _: &LawContext) -> Built {
    let capacity = capacity(config.fixed_capacity.capacity_per_s, "static")?;
    let law = Stepwise::fixed(capacity, config.resize);
    Ok(Box::new(law.map_err(LawError::of("static"))?))
}

pub(super) fn online(config: &LawConfig, _: &LawContext) -> Built {
    Ok(Box::new(
        Stepwise::online(config.resize).map_err(LawError::of("resize"))?,
    ))
}

pub(super) fn elastic(config: &LawConfig, context: &LawContext) -> Built {
    let mut tuning = config.elastic.clone();
    let kinds = kinds(&context.machines);
    tuning
        .servers
        .resize(tuning.servers.len().max(kinds.len()), ServerTraits::default());
    for ((server, machine), kind) in tuning.servers.iter_mut().zip(&context.machines).zip(kinds) {
        (server.full, server.kind) = (Some(machine.full()), kind);
    }
    let law = Elastic::new(context.slo, tuning);
    Ok(Box::new(law.map_err(LawError::of("elastic"))?))
}

impl LawConfig {
    /// A law of servers: it needs no machine, and is given none.
    ///
    /// # Errors
    /// What it needs is missing or outside its range.
    pub fn build_servers(&self, name: LawName) -> Result<Box<dyn Law>, LawError> {
        let (percentile, target) = (Ratio::new(0.95), Seconds::new(1.0));
        let slo = Slo::new(percentile, target).map_err(|error| LawError::new("slo", error))?;
        self.build_named(
            name,
            &LawContext {
                slo,
                plant: Plant::of_servers(1),
                service_rate: PerSecond::new(1.0),
                machines: Vec::new(),
            },
        )
    }
}
