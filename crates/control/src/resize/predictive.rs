//! A predictive controller as the literature has it: the day is learned, and servers are started as long before they are needed as they take
//! to boot. A reference.
//!
//! Of each slot of the day the load of the days before is kept, faded; the number of servers is what the highest of the slots
//! up to the end of a boot needs, or what comes now, if that is more (as the combination of a predictive and a reactive controller in Gandhi et
//! al., "Hybrid resource provisioning for minimizing data center SLA violations and power consumption", 2012).

use super::{PowerState, Resize};
use crate::decision::{Decision, Reason};
use crate::law::Law;
use crate::observation::Observation;
use headroom_units::{Lever, PerSecond, Seconds};

/// Slots of a day.
const SLOTS: usize = 288;
/// What a day leaves of the one before.
const FADES: f64 = 0.5;
/// What comes now is the mean of so many seconds.
const NOW_S: f64 = 60.0;
/// The share of the capacity that is kept free.
const MARGIN: f64 = 0.1;

/// The law.
#[derive(Clone, Debug)]
pub struct Predictive {
    capacity: PerSecond,
    day_s: f64,
    lead_s: f64,
    /// The mean load of each slot.
    slots: Vec<Option<f64>>,
    /// The slot that is being observed, its requests and seconds so far.
    current: Option<(usize, f64, f64)>,
    now: Option<f64>,
}

impl Predictive {
    /// For servers that take so much and boot in `lead`, and days of this length.
    pub fn new(capacity: PerSecond, day: Seconds, lead: Seconds) -> Self {
        Self {
            capacity,
            day_s: day.get(),
            lead_s: lead.get(),
            slots: vec![None; SLOTS],
            current: None,
            now: None,
        }
    }

    fn slot(&self, at_s: f64) -> usize {
        ((at_s.rem_euclid(self.day_s) / self.day_s * SLOTS as f64) as usize).min(SLOTS - 1)
    }
}

impl Law for Predictive {
    fn name(&self) -> &'static str {
        "predictive"
    }

    fn levers(&self) -> &'static [Lever] {
        &[Lever::Servers]
    }

    fn is_informed(&self, observation: &Observation) -> bool {
        observation.demand().is_some()
    }

    fn decide(&mut self, observation: &Observation) -> Decision {
        let at_s = observation.clock.get();
        let slot = self.slot(at_s);
        if let Some(rate) = observation.demand().map(PerSecond::get) {
            let weight = (observation.length.get() / NOW_S).min(1.0);
            let now = self.now.get_or_insert(rate);
            *now += weight * (rate - *now);
            let length_s = observation.length.get();
            match &mut self.current {
                Some((current, requests, seconds)) if *current == slot => {
                    (*requests, *seconds) = (*requests + rate * length_s, *seconds + length_s);
                }
                current => {
                    let ended = current.replace((slot, rate * length_s, length_s));
                    if let Some((before, requests, seconds)) = ended.filter(|(.., seconds)| *seconds > 0.0) {
                        let mean = requests / seconds;
                        let kept =
                            self.slots[before].map_or(mean, |kept| kept + (1.0 - FADES) * (mean - kept));
                        self.slots[before] = Some(kept);
                    }
                }
            }
        }
        let slot_s = self.day_s / SLOTS as f64;
        let ahead = (self.lead_s / slot_s).ceil() as usize + 1;
        let foreseen = (0..=ahead)
            .filter_map(|slots| self.slots[(slot + slots) % SLOTS])
            .reduce(f64::max);
        let now = self.now.unwrap_or_default();
        let needed = foreseen.unwrap_or(0.0).max(now) / ((1.0 - MARGIN) * self.capacity.get());
        // A day that is not known yet is no reason to switch off.
        let on = |state: PowerState| state.is_capacity() || state == PowerState::Booting;
        let least = match foreseen {
            Some(_) => 1,
            None => observation.nodes.iter().filter(|node| on(node.state)).count(),
        };
        let servers = (needed.ceil() as usize).clamp(least.max(1), observation.nodes.len().max(1));
        let numbers = [("now_per_s", now), ("foreseen_per_s", foreseen.unwrap_or(0.0))];
        let text = format!("{now:.1}/s come and {:.1} are foreseen", foreseen.unwrap_or(0.0));
        let reason = Reason::new("predictive", text, &numbers);
        Resize { servers, reason }.into()
    }

    fn forget(&mut self) {
        (self.current, self.now) = (None, None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capacity::Capacity;
    use crate::observation::NodeObservation;

    #[test]
    fn a_rise_that_was_there_yesterday_is_provided_for_before_it_comes() {
        let mut law = Predictive::new(PerSecond::new(100.0), Seconds::new(2_880.0), Seconds::new(60.0));
        let mut on = 1;
        let mut wanted = Vec::new();
        for second in 0..5_760 {
            let rate = if second % 2_880 < 1_440 { 50.0 } else { 500.0 };
            let node = |at: usize| NodeObservation {
                state: if at < on {
                    PowerState::Serving
                } else {
                    PowerState::Off
                },
                capacity: Capacity::Unknown,
                answered: None,
            };
            let observation = Observation {
                at: Seconds::new(f64::from(second)),
                clock: Seconds::new(f64::from(second)),
                length: Seconds::new(1.0),
                demand: Some(PerSecond::new(rate)),
                nodes: (0..8).map(node).collect(),
                ..Observation::default()
            };
            on = law.decide(&observation).setting.servers().unwrap();
            wanted.push(on);
        }
        assert!(
            wanted[1_439] < 2 && wanted[1_500] >= 4,
            "{:?}",
            &wanted[1_430..1_510]
        );
        // The next day it is there before.
        assert!(wanted[2_880 + 1_380] >= 5, "{}", wanted[2_880 + 1_380]);
        assert_eq!(wanted[2_880 + 1_300], 1);
    }
}
