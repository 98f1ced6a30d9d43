//! The scheduled controller: so many servers at this time of day, whatever happens (Section 7.5).

use super::{MAX_SERVERS, Resize};
use crate::decision::{Decision, Reason};
use crate::law::Law;
use crate::observation::Observation;
use headroom_units::{Lever, PerSecond, Seconds};

/// The most slots of a schedule: a week of minutes.
pub const MAX_SLOTS: usize = 10_080;

/// Why a schedule cannot be.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ScheduleError {
    /// No slots, or too many.
    #[error("a schedule of {slots} slots: it must have between 1 and {MAX_SLOTS}")]
    Slots {
        /// How many.
        slots: usize,
    },
    /// A slot or a sample without length.
    #[error("{what} is {seconds} s: it must be greater than 0")]
    Length {
        /// The slot or the sample.
        what: &'static str,
        /// Its length.
        seconds: f64,
    },
    /// A number of servers that cannot be.
    #[error("slot {slot} has {servers} servers: it must have between 1 and {MAX_SERVERS}")]
    Servers {
        /// Which slot, from 0.
        slot: usize,
        /// Its number of servers.
        servers: usize,
    },
    /// The curve has no samples, or one that is no rate.
    #[error("the daily curve must have at least one rate, none negative; its sample {sample} is {per_s} /s")]
    Curve {
        /// Which sample, from 0.
        sample: usize,
        /// Its value.
        per_s: f64,
    },
    /// The capacity of one server is none.
    #[error("a capacity of {per_s} /s a server: it must be greater than 0")]
    Capacity {
        /// Its value.
        per_s: f64,
    },
}

/// Numbers of servers for slots of equal length, repeated for ever.
#[derive(Clone, Debug, PartialEq)]
pub struct Schedule {
    slot_s: f64,
    servers: Vec<usize>,
}

impl Schedule {
    /// So many servers in each slot.
    ///
    /// # Errors
    /// [`ScheduleError`]
    pub fn new(slot: Seconds, servers: Vec<usize>) -> Result<Self, ScheduleError> {
        let slot_s = slot.get();
        if !(slot_s > 0.0 && slot_s.is_finite()) {
            return Err(ScheduleError::Length {
                what: "a slot",
                seconds: slot_s,
            });
        }
        if !(1..=MAX_SLOTS).contains(&servers.len()) {
            return Err(ScheduleError::Slots { slots: servers.len() });
        }
        let wrong = servers
            .iter()
            .position(|count| !(1..=MAX_SERVERS).contains(count));
        if let Some(slot) = wrong {
            return Err(ScheduleError::Servers {
                slot,
                servers: servers[slot],
            });
        }
        Ok(Self { slot_s, servers })
    }

    /// The schedule that an average daily load curve gives: in each slot, as many servers as its highest rate needs.
    /// `sample` is the time between two rates of the curve.
    ///
    /// # Errors
    /// [`ScheduleError`]
    pub fn of_curve(
        curve: &[PerSecond],
        sample: Seconds,
        slot: Seconds,
        capacity: PerSecond,
    ) -> Result<Self, ScheduleError> {
        if !(sample.get() > 0.0 && sample.is_finite()) {
            return Err(ScheduleError::Length {
                what: "a sample of the curve",
                seconds: sample.get(),
            });
        }
        if !(slot.get() > 0.0 && slot.is_finite()) {
            return Err(ScheduleError::Length {
                what: "a slot",
                seconds: slot.get(),
            });
        }
        if !(capacity.get() > 0.0 && capacity.is_finite()) {
            return Err(ScheduleError::Capacity {
                per_s: capacity.get(),
            });
        }
        let wrong = curve
            .iter()
            .position(|rate| !(rate.get() >= 0.0 && rate.is_finite()));
        if wrong.is_some() || curve.is_empty() {
            let sample = wrong.unwrap_or(0);
            let per_s = curve.get(sample).map_or(f64::NAN, |rate| rate.get());
            return Err(ScheduleError::Curve { sample, per_s });
        }
        // A rounding is no slot of its own.
        let day_s = curve.len() as f64 * sample.get();
        let slots = (day_s / slot.get() - 1e-9).ceil().max(1.0);
        if slots > MAX_SLOTS as f64 {
            return Err(ScheduleError::Slots {
                slots: slots as usize,
            });
        }
        let slots = slots as usize;
        let mut servers = vec![1; slots];
        for (at, rate) in curve.iter().enumerate() {
            // A sample that lies across slots counts in each of them.
            let begin = at as f64 * sample.get() / slot.get();
            let end = (at + 1) as f64 * sample.get() / slot.get();
            let needed = (rate.get() / capacity.get() - 1e-9).ceil().max(1.0) as usize;
            let last = ((end - 1e-9).floor() as usize).min(slots - 1);
            for one in &mut servers[((begin + 1e-9).floor() as usize).min(last)..=last] {
                *one = needed.max(*one);
            }
        }
        Self::new(slot, servers)
    }

    /// How many servers at a time since the schedule began.
    pub fn servers_at(&self, time: Seconds) -> usize {
        let slot = (time.get().max(0.0) / self.slot_s).floor() % self.servers.len() as f64;
        // A time that is no number stands at the schedule's beginning.
        self.servers[slot as usize]
    }

    /// The number of servers of each slot.
    pub fn slots(&self) -> &[usize] {
        &self.servers
    }
}

/// The scheduled controller.
#[derive(Clone, Debug)]
pub struct Scheduled {
    schedule: Schedule,
    lead: Seconds,
    /// By how much the schedule's clock is ahead of the observations'.
    offset: Seconds,
}

impl Scheduled {
    /// A controller that turns servers on this long before their slot begins: the time that they take to start. The paper
    /// says nothing of it; zero turns them on when the slot begins.
    ///
    /// # Errors
    /// Where the lead is negative or no number.
    pub fn new(schedule: Schedule, lead: Seconds) -> Result<Self, ScheduleError> {
        if lead.get() >= 0.0 && lead.is_finite() {
            Ok(Self {
                schedule,
                lead,
                offset: Seconds::ZERO,
            })
        } else {
            Err(ScheduleError::Length {
                what: "the lead",
                seconds: lead.get(),
            })
        }
    }
}

impl Scheduled {
    /// The same by a clock that is ahead of the observations' by so much: local time where theirs is UTC.
    #[must_use]
    pub fn with_offset(self, offset: Seconds) -> Self {
        Self { offset, ..self }
    }
}

impl Law for Scheduled {
    fn name(&self) -> &'static str {
        "scheduled"
    }

    fn levers(&self) -> &'static [Lever] {
        &[Lever::Servers]
    }

    fn is_informed(&self, _: &Observation) -> bool {
        true
    }

    fn decide(&mut self, observation: &Observation) -> Decision {
        let clock = observation.clock + self.offset;
        let now = self.schedule.servers_at(clock);
        let soon = self.schedule.servers_at(clock + self.lead);
        let (rule, wanted) = if soon > now {
            ("lead", soon)
        } else {
            ("schedule", now)
        };
        let servers = wanted.min(observation.nodes.len());
        let text = format!(
            "{now} servers by the schedule, {soon} in {:.0} s",
            self.lead.get()
        );
        let numbers = [
            ("servers", servers as f64),
            ("scheduled", now as f64),
            ("scheduled_soon", soon as f64),
        ];
        let reason = Reason::new(rule, text, &numbers);
        Resize { servers, reason }.into()
    }

    fn forget(&mut self) {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capacity::Capacity;
    use crate::observation::NodeObservation;
    use crate::resize::{AlwaysOn, PowerState};
    use proptest::prelude::*;

    fn per_s(rates: &[f64]) -> Vec<PerSecond> {
        rates.iter().copied().map(PerSecond::new).collect()
    }

    #[test]
    fn each_slot_has_what_its_peak_needs() {
        let curve = per_s(&[100.0, 500.0, 600.0, 1_190.0, 1_191.0, 0.0]);
        let of = |slot_s| {
            let capacity = PerSecond::new(595.0);
            Schedule::of_curve(&curve, Seconds::new(1_800.0), Seconds::new(slot_s), capacity).unwrap()
        };
        assert_eq!(of(1_800.0).slots(), [1, 1, 2, 2, 3, 1]);
        // Coarser slots hold more servers on: 31 % saved becomes 25 % in the paper.
        assert_eq!(of(7_200.0).slots(), [2, 3]);
        // A day that is no multiple of the slot: the last one is shorter.
        assert_eq!(of(8_000.0).slots(), [3, 3]);
    }

    #[test]
    fn the_day_comes_again_and_servers_come_before_they_are_needed() {
        let schedule = Schedule::new(Seconds::new(100.0), vec![1, 4, 2]).unwrap();
        let nodes = [NodeObservation {
            state: PowerState::Off,
            capacity: Capacity::Unknown,
        }; 3]
            .to_vec();
        let mut resizer = Scheduled::new(schedule, Seconds::new(60.0)).unwrap();
        let mut at = |now_s: f64| {
            let decision = resizer.decide(&Observation {
                clock: Seconds::new(now_s),
                nodes: nodes.clone(),
                ..Observation::default()
            });
            let rule = decision.reasons[0].rule.clone().into_owned();
            (decision.setting.servers().unwrap(), rule)
        };
        assert_eq!(at(0.0), (1, "schedule".to_owned()));
        // Four of three are three.
        assert_eq!(at(40.0), (3, "lead".to_owned()));
        assert_eq!(at(199.0), (3, "schedule".to_owned()));
        assert_eq!(at(240.0), (2, "schedule".to_owned()));
        assert_eq!(at(300.0), (1, "schedule".to_owned()));
        let decision = AlwaysOn.decide(&Observation {
            nodes: nodes.clone(),
            ..Observation::default()
        });
        assert_eq!(decision.setting.servers(), Some(3));
    }

    #[test]
    fn what_is_no_schedule_is_named() {
        let said = |result: Result<Schedule, ScheduleError>| result.unwrap_err().to_string();
        assert!(said(Schedule::new(Seconds::ZERO, vec![1])).starts_with("a slot is 0 s"));
        assert!(said(Schedule::new(Seconds::new(1.0), vec![])).starts_with("a schedule of 0 slots"));
        assert!(said(Schedule::new(Seconds::new(1.0), vec![1, 0])).starts_with("slot 1 has 0 servers"));
        let of = |curve: &[f64], slot_s, capacity| {
            let (sample, slot) = (Seconds::new(1.0), Seconds::new(slot_s));
            said(Schedule::of_curve(
                &per_s(curve),
                sample,
                slot,
                PerSecond::new(capacity),
            ))
        };
        assert!(of(&[1.0, -1.0], 1.0, 1.0).contains("sample 1 is -1"));
        assert!(of(&[], 1.0, 1.0).contains("at least one rate"));
        assert!(of(&[1.0], 1.0, 0.0).starts_with("a capacity of 0"));
        assert!(of(&[1.0], 1e-6, 1.0).starts_with("a schedule of 1000000 slots"));
        let schedule = Schedule::new(Seconds::new(1.0), vec![1]).unwrap();
        assert!(Scheduled::new(schedule, Seconds::new(f64::NAN)).is_err());
    }

    proptest! {
        /// A schedule made of a curve is never short of that curve.
        #[test]
        fn a_schedule_covers_its_curve(
            rates in proptest::collection::vec(0.0..3_000.0f64, 1..100),
            sample_s in 1.0..2_000.0f64, slot_s in 60.0..9_000.0f64,
        ) {
            let capacity = PerSecond::new(595.0);
            let (sample, slot) = (Seconds::new(sample_s), Seconds::new(slot_s));
            let schedule = Schedule::of_curve(&per_s(&rates), sample, slot, capacity).unwrap();
            for (at, rate) in rates.iter().enumerate() {
                for within in [0.01, 0.5, 0.99] {
                    let servers = schedule.servers_at(Seconds::new((at as f64 + within) * sample_s));
                    prop_assert!(servers as f64 * 595.0 >= rate * (1.0 - 1e-6));
                }
            }
        }
    }
}
