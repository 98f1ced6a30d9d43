//! The scheduled controller: so many servers at this time of day, whatever happens (Section 7.5).

use super::{MAX_SERVERS, Resize};
use crate::decision::{Decision, Reason};
use crate::law::Law;
use crate::observation::Observation;
use crate::parameter::{Bound, OutOfRange};
use headroom_units::{Lever, PerSecond, Seconds};

/// The most slots of a schedule: a week of minutes.
pub const MAX_SLOTS: usize = 10_080;

fn too_many(slots: usize) -> OutOfRange {
    let range = format!("a list of 1 to {MAX_SLOTS} slots");
    OutOfRange::new("slots", slots as f64, range)
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
    /// No slots or too many, a slot without length, a number of servers that cannot be.
    pub fn new(slot: Seconds, servers: Vec<usize>) -> Result<Self, OutOfRange> {
        let slot_s = slot.get();
        Bound::Positive.check("slot_s", slot_s)?;
        if !(1..=MAX_SLOTS).contains(&servers.len()) {
            return Err(too_many(servers.len()));
        }
        let possible = |count: &usize| (1..=MAX_SERVERS).contains(count);
        if let Some(slot) = servers.iter().position(|count| !possible(count)) {
            let range = format!("between 1 and {MAX_SERVERS} in slot {slot} as in all others");
            return Err(OutOfRange::new("slots", servers[slot] as f64, range));
        }
        Ok(Self { slot_s, servers })
    }

    /// The schedule that an average daily load curve gives: in each slot, as many servers as its highest rate needs.
    /// `sample` is the time between two rates of the curve.
    ///
    /// # Errors
    /// As [`Schedule::new`]; a curve without rates or with one that is none, a capacity or a time between two that is none.
    pub fn of_curve(
        curve: &[PerSecond],
        sample: Seconds,
        slot: Seconds,
        capacity: PerSecond,
    ) -> Result<Self, OutOfRange> {
        Bound::Positive.check("curve_step_s", sample.get())?;
        Bound::Positive.check("slot_s", slot.get())?;
        Bound::Positive.check("capacity_per_s", capacity.get())?;
        if curve.is_empty() {
            return Err(OutOfRange::new("curve_per_s", 0.0, "one rate long or more"));
        }
        for rate in curve {
            Bound::NotNegative.check("curve_per_s", rate.get())?;
        }
        // A rounding is no slot of its own.
        let day_s = curve.len() as f64 * sample.get();
        let slots = (day_s / slot.get() - 1e-9).ceil().max(1.0);
        if slots > MAX_SLOTS as f64 {
            return Err(too_many(slots as usize));
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
    pub fn new(schedule: Schedule, lead: Seconds) -> Result<Self, OutOfRange> {
        Bound::NotNegative.check("lead_s", lead.get())?;
        Ok(Self {
            schedule,
            lead,
            offset: Seconds::ZERO,
        })
    }

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
            answered: None,
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
        let said = |result: Result<Schedule, OutOfRange>| result.unwrap_err().to_string();
        assert!(said(Schedule::new(Seconds::ZERO, vec![1])).starts_with("slot_s is 0"));
        assert!(said(Schedule::new(Seconds::new(1.0), vec![])).starts_with("slots is 0"));
        assert!(
            said(Schedule::new(Seconds::new(1.0), vec![1, 0]))
                .starts_with("slots is 0: it must be between 1 and 4096 in slot 1")
        );
        let of = |curve: &[f64], slot_s, capacity| {
            let (sample, slot) = (Seconds::new(1.0), Seconds::new(slot_s));
            let capacity = PerSecond::new(capacity);
            said(Schedule::of_curve(&per_s(curve), sample, slot, capacity))
        };
        assert!(of(&[1.0, -1.0], 1.0, 1.0).contains("curve_per_s is -1"));
        assert!(of(&[], 1.0, 1.0).contains("curve_per_s is 0: it must be one rate long"));
        assert!(of(&[1.0], 1.0, 0.0).starts_with("capacity_per_s is 0"));
        assert!(of(&[1.0], 1e-6, 1.0).starts_with("slots is 1000000: it must be a list of"));
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
