//! What the servers draw, by the physics of each, corrected by what is measured.

use crate::headroom::kalman::Kalman;
use headroom_physics::expected::{Load, server_power};
use headroom_physics::{Frequencies, MachineFigures};
use headroom_units::{Cores, Hertz, PerSecond};

/// How far the figures may be off: an offset, as a share of what all draw, and a factor.
const OFFSET_DEVIATION: f64 = 0.1;
const FACTOR_DEVIATION: f64 = 0.2;
/// Drift of both from one period to the next, as a share of that.
const DRIFT: f64 = 0.01;
/// Relative noise of a reading.
const NOISE: f64 = 0.02;

/// The power of a cluster.
#[derive(Clone, Debug)]
pub(super) struct Draw {
    machines: Vec<(MachineFigures, Frequencies)>,
    /// The share of their cores that the service may have.
    usable: f64,
    /// Offset and factor.
    correction: Kalman<2>,
}

impl Draw {
    /// For a service that may have so many cores of them.
    pub(super) fn new(machines: &[MachineFigures], most: Cores) -> Self {
        let cores: usize = machines.iter().map(|machine| machine.processor.cores).sum();
        let all: f64 = machines.iter().map(|machine| machine.full().get()).sum();
        let deviation = [OFFSET_DEVIATION * all, FACTOR_DEVIATION];
        Self {
            machines: machines
                .iter()
                .map(|machine| (machine.clone(), machine.frequencies(0.0)))
                .collect(),
            usable: (most.get() / cores.max(1) as f64).min(1.0),
            correction: Kalman::new([0.0, 1.0], deviation, deviation.map(|one| one * DRIFT)),
        }
    }

    pub(super) fn servers(&self) -> usize {
        self.machines.len()
    }

    /// Cores of the first so many.
    pub(super) fn cores(&self, servers: usize) -> f64 {
        let first = self.machines.iter().take(servers);
        let cores: f64 = first.map(|(machine, _)| machine.processor.cores as f64).sum();
        cores * self.usable
    }

    /// What a server must be away for, so that it is worth its boot, seconds; infinite where it never is.
    pub(super) fn break_even_s(&self, server: usize) -> f64 {
        let Some((machine, levels)) = self.machines.get(server) else {
            return f64::INFINITY;
        };
        let at_rest = Load {
            busy: Cores::ZERO,
            wakeups: PerSecond::ZERO,
            on: machine.processor.cores,
        };
        machine
            .server
            .break_even(server_power(machine, at_rest, &levels.at(levels.top())))
            .map_or(f64::INFINITY, |time| time.get())
    }

    /// From a command to a server that takes requests, the longest of all, seconds.
    pub(super) fn longest_boot_s(&self) -> f64 {
        let boots = self.machines.iter().map(|(machine, _)| machine.server.boot.get());
        boots.fold(0.0, f64::max)
    }

    /// By the figures: the first `serving` servers share `rate` requests a second, each of which takes `cost` seconds of a
    /// core under a limit of the frequency; the others are off. Of what the service may have of their cores this share is on,
    /// and the rest is parked.
    pub(super) fn by_figures(
        &self,
        serving: usize,
        on: f64,
        rate: f64,
        cost: f64,
        limit: Option<Hertz>,
    ) -> f64 {
        let share = rate / serving.max(1) as f64;
        let each = self.machines.iter().enumerate().map(|(at, (machine, levels))| {
            if at >= serving {
                return machine.server.off.get();
            }
            let level = limit.map_or(levels.top(), |limit| levels.at_most(limit));
            let cores = machine.processor.cores;
            let on = match on < 1.0 {
                true => ((cores as f64 * self.usable * on).ceil() as usize).clamp(1, cores),
                false => cores,
            };
            let load = Load {
                busy: Cores::new((share * cost).min(on as f64)),
                wakeups: PerSecond::new(share),
                on,
            };
            server_power(machine, load, &levels.at(level)).get()
        });
        each.sum()
    }

    /// What is expected, watts.
    pub(super) fn watts(&self, serving: usize, on: f64, rate: f64, cost: f64, limit: Option<Hertz>) -> f64 {
        let figures = self.by_figures(serving, on, rate, cost, limit);
        self.correction.expected(&[1.0, figures])
    }

    /// What those beyond the first so many draw, which are off, watts.
    pub(super) fn off(&self, serving: usize) -> f64 {
        let off = self.machines.iter().skip(serving);
        off.map(|(machine, _)| machine.server.off.get()).sum()
    }

    /// Takes a reading of a period in which no server was on its way, with the [figures](Self::by_figures) for it.
    pub(super) fn observe(&mut self, watts: f64, figures: f64) {
        if watts > 0.0 && watts.is_finite() && figures.is_finite() {
            let noise = (NOISE * watts.max(figures)).powi(2);
            self.correction.observe(&[1.0, figures], watts, noise);
            let [offset, factor] = self.correction.state();
            // A factor below this would say that work is done for nothing.
            self.correction.set_state([offset, factor.max(0.2)]);
        }
    }
}
