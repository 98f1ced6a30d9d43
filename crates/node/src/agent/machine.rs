//! What an agent serves: a machine that can be read, limited and put back. [`super::LocalMachine`] is this one; a test
//! gives another.

use crate::work::MachineWork;
use headroom_units::{Cores, Hertz, Ratio, Reading, Setting, Source};
use headroom_wire::message::{
    Device, Meter, Node, OnCallSample, OnCallServer, PowerEnvelope, Ranges, RefusedReadings,
};
use std::time::Duration;

/// A machine with one service on it. It is used by one thread.
pub trait Machine: Send {
    /// What it is and has.
    fn about(&mut self) -> About;

    /// What can be asked of it now; the processors and the limits above the service may change.
    fn ranges(&mut self) -> Ranges;

    /// Puts a setting in force, within its ranges. A lever that it has no value for is left, or put back, as it was found.
    /// What was found is noted before the first write, where it survives this process.
    ///
    /// # Errors
    /// [`MachineError`]: the machine refused. What is in force then is [`Machine::in_force`].
    fn apply(&mut self, setting: Setting) -> Result<Vec<String>, MachineError>;

    /// Puts everything back to what was found. Nothing where nothing was changed.
    fn put_back(&mut self) -> PutBack;

    /// What is in force now by this agent's doing.
    fn in_force(&self) -> Setting;

    /// Reads every counter once. What cannot be read is missing, and said in [`Counters::troubles`].
    fn read(&mut self) -> Counters;

    /// Within what time it is to be read again, whoever asks: something of what is in force is renewed by that. `None` where nothing is.
    fn read_within(&self) -> Option<Duration> {
        None
    }
}

/// A machine that did not do what it was commanded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{why}")]
pub struct MachineError {
    /// What, where and why, in words.
    pub why: String,
}

impl MachineError {
    /// From whatever says why.
    pub fn new(why: impl ToString) -> Self {
        Self { why: why.to_string() }
    }
}

/// What a machine is and has.
#[derive(Clone, Debug, PartialEq)]
pub struct About {
    /// Who it is.
    pub node: Node,
    /// The service on it, in words.
    pub service: String,
    /// What sets its levers.
    pub devices: Vec<Device>,
    /// Its meters.
    pub meters: Vec<Meter>,
    /// What it draws at least and at most.
    pub envelope: Option<PowerEnvelope>,
    /// What its figures are.
    pub source: Source,
    /// The server on call, there or not.
    pub oncall: Option<OnCallServer>,
}

/// How putting everything back went.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PutBack {
    /// What was done, a line each.
    pub notes: Vec<String>,
    /// What could not be put back, a line each.
    pub failed: Vec<String>,
}

/// Every counter of a machine at one moment. Each group has its own clock, since each is read at its own moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Counters {
    /// The service's processor time.
    pub cpu: Option<CpuCounters>,
    /// The whole machine's.
    pub machine: Option<BusyCounters>,
    /// Energy.
    pub energy: Option<EnergyCounters>,
    /// The mean frequency of the processors, now.
    pub frequency: Option<Reading<Hertz>>,
    /// What the service can use now: the quota, which a software cap may hold under the allocation; nothing where
    /// nothing is limited.
    pub usable: Option<Cores>,
    /// The meter's readings that were not believed.
    pub refused: Option<RefusedReadings>,
    /// The server on call; what waited the least is of the time since the reading before.
    pub oncall: Option<OnCallSample>,
    /// What the whole machine did, and how long ago that was read.
    pub work: Option<(Duration, MachineWork)>,
    /// What went wrong since the reading before, a line each.
    pub troubles: Vec<String>,
}

/// The service's processor time since the agent began to look. Nothing here ever falls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuCounters {
    /// When it was read.
    pub clock: Duration,
    /// Processor time.
    pub used: Duration,
    /// Time that it was throttled, over all processors.
    pub throttled: Duration,
    /// Quota periods.
    pub periods: u64,
    /// Quota periods in which it was throttled.
    pub throttled_periods: u64,
}

impl CpuCounters {
    /// The share of the quota's periods since an earlier reading in which it was throttled; `None` where none passed.
    pub fn throttled_since(&self, before: &Self) -> Option<Ratio> {
        let periods = self.periods.saturating_sub(before.periods);
        let throttled = self.throttled_periods.saturating_sub(before.throttled_periods);
        (periods > 0).then(|| Ratio::new((throttled as f64 / periods as f64).min(1.0)))
    }
}

/// The machine's processor time. Nothing here ever falls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BusyCounters {
    /// Time spent on something, in ticks.
    pub busy_ticks: u64,
    /// All time, in ticks.
    pub all_ticks: u64,
}

impl BusyCounters {
    /// The busy share of the time since an earlier reading; `None` where no time has passed.
    pub fn share_since(&self, before: &Self) -> Option<Ratio> {
        let all = self
            .all_ticks
            .checked_sub(before.all_ticks)
            .filter(|all| *all > 0)?;
        let busy = self.busy_ticks.saturating_sub(before.busy_ticks);
        Some(Ratio::new((busy as f64 / all as f64).min(1.0)))
    }
}

/// The machine's energy since the agent began to count. Nothing here ever falls.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EnergyCounters {
    /// When it was read.
    pub clock: Duration,
    /// Over the counted zones.
    pub total: EnergyCounter,
    /// Each zone.
    pub zones: Vec<ZoneCounter>,
}

/// One energy counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EnergyCounter {
    /// Microjoules.
    pub uj: u64,
    /// How often a difference was discarded: over such a time no power is known.
    pub gaps: u64,
    /// Where it comes from.
    pub source: Source,
}

/// One zone's energy counter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ZoneCounter {
    /// Its name.
    pub name: String,
    /// Whether it is part of the total.
    pub counted: bool,
    /// Its counter.
    pub energy: EnergyCounter,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_needs_time_to_pass() {
        let before = BusyCounters {
            busy_ticks: 10,
            all_ticks: 100,
        };
        let after = BusyCounters {
            busy_ticks: 35,
            all_ticks: 200,
        };
        assert_eq!(after.share_since(&before), Some(Ratio::new(0.25)));
        assert_eq!(before.share_since(&before), None);
        assert_eq!(before.share_since(&after), None);
    }
}
