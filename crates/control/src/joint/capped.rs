//! The cap as a lever of the frequency, on machines whose frequency has none of its own: the firmware keeps its P-states to
//! itself, but a power limit is obeyed.
//!
//! A cap that is what the load is expected to draw at a frequency holds about that frequency. How far it does is learned
//! from the frequency that the processors report: where it was lower than meant the next cap is higher, at once; where it
//! was higher, lower, slowly. Where nothing reports a frequency the physics' word is taken.

use crate::plant::Plant;
use headroom_physics::MachineFigures;
use headroom_units::{Hertz, Lever, Watts};

/// What of a pace too low is added to the cap, as a share of it, and what of one too high is taken off.
const RAISE: f64 = 0.5;
const LOWER: f64 = 0.02;
/// How far the cap may be from what the physics says.
const LEAST: f64 = 0.85;
const MOST: f64 = 1.3;

/// The frequencies that caps stand for, and what was learned of them.
#[derive(Clone, Debug)]
pub(super) struct Capped {
    highest: Hertz,
    lowest: Hertz,
    step: Hertz,
    /// What the physics' watts are multiplied with.
    factor: f64,
    /// The pace that the cap in force stands for.
    asked: f64,
}

impl Capped {
    /// For a plant without a lever for the frequency whose hardware holds caps.
    pub(super) fn new(plant: &Plant, machines: &[MachineFigures]) -> Option<Self> {
        if plant.frequency().is_some() || !plant.has_hardware_cap() || plant.bounds(Lever::Cap).is_none() {
            return None;
        }
        let figures = machines.iter().map(|machine| &machine.processor.frequency);
        Some(Self {
            highest: figures.clone().map(|each| each.highest).reduce(Hertz::max)?,
            lowest: figures.clone().map(|each| each.lowest).reduce(Hertz::max)?,
            step: figures.map(|each| each.step).reduce(Hertz::max)?,
            factor: 1.0,
            asked: 1.0,
        })
    }

    /// The limits that caps may stand for, with their paces, the highest first.
    pub(super) fn paces(&self) -> Vec<(Option<Hertz>, f64)> {
        let steps = ((self.highest - self.lowest) / self.step + 1e-9).floor() as usize;
        let limits = (1..=steps).map(|below| self.highest - self.step * below as f64);
        let paces = limits.map(|limit| (Some(limit), limit / self.highest));
        std::iter::once((None, 1.0)).chain(paces).collect()
    }

    /// The frequency of a period as a limit, by what was reported, else by what the cap stood for.
    pub(super) fn in_force(&self, reported: Option<Hertz>) -> (Option<Hertz>, f64) {
        let reported = reported.map(|frequency| frequency / self.highest);
        let pace = reported.unwrap_or(self.asked).clamp(0.05, 1.0);
        if pace > 1.0 - 1e-3 {
            return (None, 1.0);
        }
        (Some(self.highest * pace), pace)
    }

    /// Takes what the processors reported of a period under the cap asked for.
    pub(super) fn observe(&mut self, reported: Option<Hertz>) {
        let Some(reported) = reported.filter(|_| self.asked < 1.0) else {
            return;
        };
        let slower = self.asked - (reported / self.highest).min(1.0);
        let change = slower * if slower > 0.0 { RAISE } else { LOWER };
        self.factor = (self.factor * (1.0 + change)).clamp(LEAST, MOST);
    }

    /// The cap for a pace at which this is expected to be drawn; `None` at the highest, where nothing is limited.
    pub(super) fn cap(&mut self, pace: f64, expected: Watts) -> Option<Watts> {
        self.asked = pace;
        (pace < 1.0).then(|| expected * self.factor)
    }

    /// Whether the cap in force stands for less than the highest frequency.
    pub(super) fn limits(&self) -> bool {
        self.asked < 1.0
    }

    /// Nothing is limited.
    pub(super) const fn lift(&mut self) {
        self.asked = 1.0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plant::{CoreRange, FrequencyRange, PowerEnvelope};
    use headroom_units::Cores;

    fn plant() -> Plant {
        let cores = CoreRange::new(Cores::new(1.0), Cores::new(8.0), Cores::new(1.0)).unwrap();
        let power = PowerEnvelope {
            base: Watts::new(20.0),
            per_core: Watts::new(5.0),
            lowest_cap: Watts::new(20.0),
        };
        Plant::new(cores, power).unwrap().with_hardware_cap()
    }

    #[test]
    fn a_cap_stands_for_a_frequency_only_where_that_has_no_lever() {
        let machines = [MachineFigures::skylake(8)];
        let capped = Capped::new(&plant(), &machines).unwrap();
        let paces = capped.paces();
        assert_eq!(paces[0], (None, 1.0));
        assert!(
            paces.len() > 5 && paces.windows(2).all(|two| two[1].1 < two[0].1),
            "{paces:?}"
        );
        assert_eq!(capped.in_force(None), (None, 1.0));
        let ghz = |ghz: f64| Hertz::new(ghz * 1e9);
        let range = FrequencyRange::new(ghz(0.8), ghz(2.2), ghz(0.1)).unwrap();
        assert!(Capped::new(&plant().with_frequency(range), &machines).is_none());
        assert!(Capped::new(&Plant::of_servers(3), &machines).is_none());
        let held_by_quota = Plant::new(plant().cores(), plant().power()).unwrap();
        assert!(Capped::new(&held_by_quota, &machines).is_none());
    }

    #[test]
    fn what_the_processors_report_raises_a_cap_that_is_too_low_at_once() {
        let machines = [MachineFigures::skylake(8)];
        let mut capped = Capped::new(&plant(), &machines).unwrap();
        let highest = machines[0].processor.frequency.highest;
        let watts = Watts::new(40.0);
        assert_eq!(capped.cap(0.8, watts), Some(watts));
        capped.observe(Some(highest * 0.6));
        assert_eq!(capped.in_force(Some(highest * 0.6)).1, 0.6);
        let raised = capped.cap(0.8, watts).unwrap();
        assert!((raised.get() - 44.0).abs() < 1e-9, "{raised:?}");
        for _ in 0..1000 {
            capped.observe(Some(highest));
        }
        assert_eq!(capped.factor, LEAST);
        // Of a period without a cap nothing is learned.
        assert_eq!(capped.cap(1.0, watts), None);
        capped.observe(Some(highest * 0.5));
        assert_eq!(capped.factor, LEAST);
    }
}
