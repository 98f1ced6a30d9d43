//! The machine under the tiers: its frequency and what it draws, core by core.

use super::scenario::TiersScenario;
use crate::drawn::Drawn;
use crate::energy::EnergyByCause;
use headroom_physics::{CoreTracker, MachineFigures, Placement};
use headroom_units::{Hertz, Joules, Seconds, Watts};

/// One frequency.
#[derive(Clone, Copy, Debug)]
pub(super) struct Level {
    pub(super) frequency: Hertz,
    voltage: f64,
    busy: Watts,
    /// Work done over that done at the highest.
    pub(super) speed: f64,
}

/// The machine.
#[derive(Clone, Debug)]
pub(super) struct Machine {
    figures: MachineFigures,
    cores: CoreTracker,
    levels: Vec<Level>,
    level: usize,
    energy: EnergyByCause,
    /// The energy as estimated by the frequency alone.
    by_frequency: Joules,
    /// Time with each frequency, and of busy cores at it: what the energy is checked against.
    level_s: Vec<f64>,
    busy_core_s: Vec<f64>,
    settled_s: f64,
    mark: Drawn,
}

impl Machine {
    pub(super) fn new(scenario: &TiersScenario) -> Self {
        let figures = scenario.machine.clone();
        let frequency = figures.processor.frequency;
        let share = scenario.insensitive_share;
        let levels: Vec<Level> = scenario
            .frequencies_ghz
            .iter()
            .map(|ghz| {
                let hertz = Hertz::new(ghz * 1e9);
                Level {
                    frequency: hertz,
                    voltage: frequency.voltage(hertz),
                    busy: frequency.busy(hertz),
                    speed: 1.0 / (share + (1.0 - share) * (frequency.highest / hertz)),
                }
            })
            .collect();
        let level = levels.len() - 1;
        let mut cores = CoreTracker::new(&figures, Placement::default(), 0.0);
        cores.set_voltage(0.0, levels[level].voltage);
        Self {
            cores,
            level_s: vec![0.0; levels.len()],
            busy_core_s: vec![0.0; levels.len()],
            levels,
            level,
            energy: EnergyByCause::default(),
            by_frequency: Joules::ZERO,
            settled_s: 0.0,
            mark: Drawn::default(),
            figures,
        }
    }

    pub(super) fn level(&self) -> Level {
        self.levels[self.level]
    }

    /// A limit as it reads back; `None` where it limits nothing.
    pub(super) fn limit(&self) -> Option<Hertz> {
        (self.level + 1 < self.levels.len()).then(|| self.level().frequency)
    }

    /// From now on so many cores are busy; the work for which the slowest of those woken waits, seconds at the highest frequency.
    #[inline]
    pub(super) fn run(&mut self, now_s: f64, cores: usize) -> f64 {
        if cores == self.cores.running() {
            return 0.0;
        }
        self.cores.run(now_s, cores).get() * self.level().speed
    }

    /// The highest frequency of the list within a limit from now on, the lowest where none is.
    pub(super) fn set_limit(&mut self, now_s: f64, limit: Option<Hertz>) {
        self.settle(now_s);
        let within = |limit: Hertz| {
            // A hair below a frequency belongs to it.
            let fits = |level: &Level| level.frequency.get() <= limit.get() + 1.0;
            self.levels.iter().rposition(fits).unwrap_or(0)
        };
        self.level = limit.map_or(self.levels.len() - 1, within);
        self.cores.set_voltage(now_s, self.level().voltage);
    }

    fn settle(&mut self, now_s: f64) {
        let drawn = Drawn::since(&mut self.cores, now_s, &mut self.mark);
        let (level, processor) = (self.level(), &self.figures.processor);
        let length = Seconds::new(now_s - self.settled_s);
        self.settled_s = now_s;
        self.energy.work += level.busy * drawn.running;
        self.energy.idle_cores += drawn.idle;
        self.energy.packages += drawn.packages;
        self.energy.platform += self.figures.platform * length;
        self.by_frequency += level.busy * processor.cores as f64 * length;
        self.level_s[self.level] += length.get();
        self.busy_core_s[self.level] += drawn.running.get();
    }

    /// All energy so far, by its cause, and as estimated by the frequency alone.
    pub(super) fn read(&mut self, now_s: f64) -> (EnergyByCause, Joules) {
        self.settle(now_s);
        (self.energy, self.by_frequency)
    }

    /// Time of busy cores so far, seconds.
    pub(super) fn running_s(&self) -> f64 {
        self.busy_core_s.iter().sum()
    }

    /// All energy, and the same from the time at each frequency, the busy cores at it and the tracker's own totals.
    pub(super) fn both_ways_j(&self) -> (f64, f64) {
        let totals = self.cores.totals();
        let work: f64 = self
            .levels
            .iter()
            .zip(&self.busy_core_s)
            .map(|(level, core_s)| level.busy.get() * core_s)
            .sum();
        let length_s: f64 = self.level_s.iter().sum();
        let standing = (totals.idle + totals.transitions + totals.uncore).get();
        let other = work + standing + self.figures.platform.get() * length_s;
        (self.energy.total().get(), other)
    }
}
