//! What can be said of laws before any machine is looked at: a mistake of the file is to be known whatever the machine lacks.

use super::laws::constant_value;
use super::{LawConfig, LawContext, LawError, LawName};
use crate::batching::{Batching, Seek};
use crate::joint::MAX_HORIZON_PERIODS;
use crate::parameter::Parameters;
use crate::placement::Placement;
use crate::plant::Slo;
use crate::queueing::cores_needed;
use crate::stack;
use headroom_physics::MachineFigures;
use headroom_units::{Lever, LeverRange, PerSecond, Seconds, Spread};

/// What a configuration says by itself of what laws are built for.
#[derive(Clone, Debug)]
pub struct Foreseen {
    /// The SLO.
    pub slo: Slo,
    /// μ, where it is given.
    pub service_rate: Option<PerSecond>,
    /// The levers that are the cluster's and no machine's, such as those of its gateways, each with the values that it takes.
    pub of_cluster: Vec<(Lever, LeverRange)>,
    /// Levers of the cluster of which it cannot be said what they take, or whether they are there.
    pub unknown: Vec<Lever>,
}

impl Foreseen {
    /// What a lever of the cluster takes, if it is there; `None` where that is unknown.
    fn range(&self, lever: Lever) -> Option<Option<LeverRange>> {
        let mut levers = self.of_cluster.iter();
        let there = levers.find(|(one, _)| *one == lever).map(|(_, range)| *range);
        (!self.unknown.contains(&lever)).then_some(there)
    }
}

/// What a law could not be built with, by what is known already.
pub(super) type Objections = Vec<LawError>;

/// The same of one thing.
type Judged = Result<(), LawError>;

fn reaches(time: Seconds, service_rate: PerSecond) -> Judged {
    cores_needed(PerSecond::ZERO, service_rate, time)
        .map(drop)
        .map_err(|error| LawError::new("slo.target_ms", error))
}

fn missing(name: LawName, lever: Lever) -> LawError {
    LawError::new("law.name", stack::missing(name.as_str(), lever))
}

pub(super) fn servers(_: &LawConfig, name: LawName, known: &Foreseen) -> Objections {
    match known.range(Lever::Servers) {
        Some(None) => vec![missing(name, Lever::Servers)],
        _ => Vec::new(),
    }
}

pub(super) fn batching(config: &LawConfig, name: LawName, known: &Foreseen) -> Objections {
    let interval = known.range(Lever::BatchInterval);
    interval.map_or_else(Vec::new, |interval| {
        Batching::objections(name.as_str(), known.slo, interval, &config.batching)
    })
}

pub(super) fn seek(config: &LawConfig, _: LawName, known: &Foreseen) -> Objections {
    let interval = known.range(Lever::BatchInterval);
    interval.map_or_else(Vec::new, |interval| {
        Seek::objections(known.slo, interval, &config.seek)
    })
}

pub(super) fn placement(config: &LawConfig, name: LawName, known: &Foreseen) -> Objections {
    let lacks = matches!(known.range(Lever::Placement), Some(None));
    let lacks = lacks.then(|| missing(name, Lever::Placement));
    Placement::objections(&config.placement)
        .into_iter()
        .chain(lacks)
        .collect()
}

/// It seeks the interval only where there is one.
pub(super) fn joint(config: &LawConfig, name: LawName, known: &Foreseen) -> Objections {
    match known.range(Lever::BatchInterval) {
        Some(Some(_)) => seek(config, name, known),
        _ => Vec::new(),
    }
}

pub(super) fn slo_power(config: &LawConfig, _: LawName, known: &Foreseen) -> Objections {
    let (target, tuning) = (known.slo.target(), &config.slo_power);
    let is_right = tuning.check().is_ok();
    let Some(rate) = known.service_rate.filter(|_| is_right) else {
        return Vec::new();
    };
    let judged = reaches(target, rate).and_then(|()| reaches(target * tuning.guard, rate));
    judged.err().into_iter().collect()
}

pub(super) fn constant(config: &LawConfig, name: LawName, known: &Foreseen) -> Objections {
    let setting = config.constant.setting;
    let of_cluster = setting
        .iter()
        .filter(|(lever, _)| lever.info().spread == Spread::Cluster);
    let judge = |(lever, value)| match known.range(lever) {
        Some(Some(range)) => within(lever, value, (range.min, range.max)).err(),
        Some(None) => Some(missing(name, lever)),
        None => None,
    };
    of_cluster.filter_map(judge).collect()
}

/// Whether a lever takes a value that is to stay.
pub(super) fn within(lever: Lever, value: f64, (min, max): (f64, f64)) -> Judged {
    if (min..=max).contains(&value) {
        return Ok(());
    }
    let unit = lever.info().unit;
    let why = format!("is {value} {unit}: {min} to {max} {unit} here");
    Err(constant_value(lever, why))
}

impl LawConfig {
    /// What the laws that are named could not be built with on any machine. Of a key of which [`LawConfig::mistakes`] says something no more is
    /// said.
    pub fn foreseen(&self, known: &Foreseen) -> Vec<LawError> {
        let said = self.mistakes();
        let mut found: Vec<LawError> = Vec::new();
        for name in self.names.iter() {
            let reach = match known.service_rate.filter(|_| name.0.needs_reachable_target) {
                Some(rate) => reaches(known.slo.target(), rate),
                None => Ok(()),
            };
            let objections = (name.0.foreseen)(self, name, known);
            for error in reach.err().into_iter().chain(objections) {
                if said.iter().all(|one| one.key != error.key) && !found.contains(&error) {
                    found.push(error);
                }
            }
        }
        found
    }

    /// Whether the law can reach its target at all, where it can only be harmed by one that it cannot: one request alone
    /// takes 1/μ, however many cores there are. The other laws that know of the target object when they are built. Where μ is
    /// measured, a busy minute must not end a service: then this is not asked.
    ///
    /// # Errors
    /// A target out of reach.
    pub fn reachable(&self, context: &LawContext) -> Result<(), LawError> {
        match self.names.iter().any(|name| name.0.needs_reachable_target) {
            true => reaches(context.slo.target(), context.service_rate),
            false => Ok(()),
        }
    }

    /// Whether the laws that switch servers by a forecast can foresee a whole boot of each of these machines in periods of
    /// this length.
    ///
    /// # Errors
    /// Where the boot is longer than the forecast reaches, with both numbers.
    pub fn foresees(&self, machines: &[MachineFigures], period: Seconds) -> Result<(), LawError> {
        if !self.names.iter().any(LawName::may_resize) {
            return Ok(());
        }
        let boots = machines.iter().map(|machine| machine.server.boot.get());
        let (boot_s, warm_s) = (boots.fold(0.0, f64::max), self.joint.warm_s);
        let periods = ((boot_s + warm_s) / period.get()).ceil();
        if periods <= MAX_HORIZON_PERIODS as f64 {
            return Ok(());
        }
        let why = format!(
            "is {} ms: a server boots in {boot_s} s and warms up for {warm_s} s, which is {periods} periods, and the forecast \
             reaches {MAX_HORIZON_PERIODS}: give at least {:.0} ms, or leave its power to another law",
            period.as_millis(),
            ((boot_s + warm_s) * 1e3 / MAX_HORIZON_PERIODS as f64).ceil()
        );
        Err(LawError::new("control.period_ms", why))
    }
}
