//! What an agent serves: a machine that can be read, limited and put back. [`super::LocalMachine`] is this one; a test
//! gives another.

use headroom_units::{Cores, Hertz, Ratio, Reading, Source};
use headroom_wire::Refusal;
use headroom_wire::message::{Allocation, Lever, Meter, Node, PowerEnvelope, Range, RefusedReadings};
use std::time::Duration;

/// A machine with one service on it. It is used by one thread.
pub trait Machine: Send {
    /// What it is and has.
    fn about(&mut self) -> About;

    /// What can be asked of it now; the processors and the limits above the service may change.
    fn ranges(&mut self) -> Ranges;

    /// Puts an allocation in force, within its ranges. `None` for a part of it leaves that, or puts it back, as it was
    /// found. What was found is noted before the first write, where it survives this process.
    ///
    /// # Errors
    /// [`MachineError`]: the machine refused. What is in force then is [`Machine::in_force`].
    fn apply(&mut self, allocation: Allocation) -> Result<Vec<String>, MachineError>;

    /// Puts everything back to what was found. Nothing where nothing was changed.
    fn put_back(&mut self) -> PutBack;

    /// What is in force now by this agent's doing.
    fn in_force(&self) -> Allocation;

    /// Reads every counter once. What cannot be read is missing, and said in [`Counters::troubles`].
    fn read(&mut self) -> Counters;
}

/// A machine that did not do what it was told.
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
    /// Its levers.
    pub levers: Vec<Lever>,
    /// Its meters.
    pub meters: Vec<Meter>,
    /// What it draws at least and at most.
    pub envelope: Option<PowerEnvelope>,
    /// What its figures are.
    pub source: Source,
}

/// A lever that is not there, or not now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoLever {
    /// Why not.
    pub reason: String,
    /// What would help; empty where nothing does.
    pub remedy: String,
}

/// What can be asked of a machine.
#[derive(Clone, Debug, PartialEq)]
pub struct Ranges {
    /// Cores.
    pub cores: Result<Range, NoLever>,
    /// The power cap, in watts.
    pub cap: Result<Range, NoLever>,
    /// The limit on the frequency, in hertz.
    pub frequency: Result<Range, NoLever>,
}

impl Ranges {
    /// Whether an allocation lies in them.
    ///
    /// # Errors
    /// [`Refusal::OutOfRange`] with the value and the range, [`Refusal::NoLever`].
    pub fn check(&self, allocation: &Allocation) -> Result<(), Refusal> {
        let asked = [
            (
                "cores",
                "cores",
                allocation.cores.map(|cores| cores.get()),
                &self.cores,
            ),
            ("cap_w", "W", allocation.cap.map(|cap| cap.get()), &self.cap),
            (
                "frequency_hz",
                "Hz",
                allocation.frequency.map(|limit| limit.get()),
                &self.frequency,
            ),
        ];
        for (field, unit, value, range) in asked {
            let Some(value) = value else { continue };
            match range {
                Ok(range) => Refusal::check_range(field, value, *range, unit)?,
                Err(NoLever { reason, remedy }) => {
                    let (field, reason, remedy) = (field.into(), reason.clone(), remedy.clone());
                    return Err(Refusal::NoLever {
                        field,
                        reason,
                        remedy,
                    });
                }
            }
        }
        Ok(())
    }
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
    use headroom_units::Watts;

    #[test]
    fn what_the_machine_has_not_is_refused_with_the_value_and_the_range() {
        let none = NoLever {
            reason: "no meter".into(),
            remedy: "load the driver".into(),
        };
        let ranges = Ranges {
            cores: Ok(Range::new(0.1, 2.0)),
            cap: Err(none),
            frequency: Ok(Range::new(0.8e9, 2.1e9)),
        };
        let ask = |cores: Option<f64>, cap: Option<f64>| {
            let allocation = Allocation {
                cores: cores.map(Cores::new),
                cap: cap.map(Watts::new),
                frequency: None,
            };
            ranges.check(&allocation).map_err(|refusal| refusal.to_string())
        };
        assert_eq!(ask(Some(2.0), None), Ok(()));
        assert_eq!(ask(None, None), Ok(()));
        assert_eq!(
            ask(Some(2.5), None),
            Err("cores is 2.5 cores, outside 0.1 to 2 cores".into())
        );
        assert_eq!(
            ask(Some(1.0), Some(50.0)),
            Err("this node cannot limit cap_w: no meter; load the driver".into())
        );
        let slow = Allocation {
            frequency: Some(Hertz::new(0.5e9)),
            ..Allocation::AS_FOUND
        };
        assert_eq!(
            ranges.check(&slow).unwrap_err().to_string(),
            "frequency_hz is 500000000 Hz, outside 800000000 to 2100000000 Hz"
        );
    }

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
