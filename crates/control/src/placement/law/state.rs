//! What the law knows of the service: rates and sizes of the classes, smoothed, and how slow each backend is.

use super::gathered::{Enough, Gathered, Seen};
use super::path::{self, Path};
use super::silence::Silence;
use super::slow_link::SlowLink;
use super::speed::{self, Slowness, Told};
use super::tuning::{KindFigures, PlacementTuning};
use crate::placement::SizesObservation;
use headroom_units::Seconds;

/// Classes that come in less often than this do not come in.
const LEAST_RATE: f64 = 1e-3;

/// Requests of a class in a period that say something of its percentile.
const MIN_COMPLETIONS: u64 = 40;
/// What a period over the guard makes of a class's tail, and one that is well under it.
const TAIL_UP: f64 = 1.1;
const TAIL_DOWN: f64 = 0.99;
/// What is well under the guard, as a share of it.
const EASY: f64 = 0.7;
/// No class's percentile counts as more than so much longer than the model's.
const MAX_TAIL: f64 = 4.0;

/// A class, as it came in of late.
#[derive(Clone, Copy, Debug)]
pub(super) struct ClassState {
    /// Arrivals a second, smoothed; at least those of the last period.
    pub(super) rate: f64,
    smooth_rate: f64,
    /// The mean content, bytes; `None` before the first answer.
    pub(super) mean_bytes: Option<f64>,
    /// By how much its percentile is longer than the model's for its mean size: requests of one class are not all alike.
    pub(super) tail: f64,
}

impl Default for ClassState {
    fn default() -> Self {
        Self {
            rate: 0.0,
            smooth_rate: 0.0,
            mean_bytes: None,
            tail: 1.0,
        }
    }
}

/// A backend.
#[derive(Clone, Debug)]
pub(super) struct BackendState {
    pub(super) url: String,
    pub(super) kind: String,
    pub(super) figures: KindFigures,
    pub(super) in_service: bool,
    /// How much slower it is than its figures.
    pub(super) slow: Slowness,
    links: SlowLink,
    /// What was seen of it since that was learned last.
    gathered: Gathered,
    silence: Silence,
    /// It has answered nothing for too long, though others have.
    pub(super) silent: bool,
}

impl BackendState {
    /// Whether it is reckoned with.
    pub(super) fn is_relied_on(&self) -> bool {
        self.in_service && !self.silent
    }
}

/// What is known.
#[derive(Clone, Debug, Default)]
pub(super) struct State {
    pub(super) backends: Vec<BackendState>,
    /// The classes whose size is known.
    pub(super) classes: Vec<ClassState>,
    /// Requests of unknown size, a second, spread by the balancer.
    pub(super) unknown: ClassState,
    /// What the network and the gateway take.
    pub(super) path: Path,
    /// Periods observed with these backends and classes.
    pub(super) periods: u32,
}

impl State {
    /// Takes a period in; the URL of a backend without figures where there is one.
    pub(super) fn observe(
        &mut self,
        sizes: &SizesObservation,
        length: Seconds,
        allowed: Seconds,
        tuning: &PlacementTuning,
    ) -> Result<(), String> {
        let known = sizes.classes.iter().filter(|class| class.known).count();
        let same = self.backends.len() == sizes.backends.len()
            && self
                .backends
                .iter()
                .zip(&sizes.backends)
                .all(|(one, two)| one.url == two.url);
        if !same {
            let before = std::mem::take(&mut self.backends);
            for backend in &sizes.backends {
                let found = tuning
                    .machines
                    .get(&backend.url)
                    .and_then(|kind| Some((kind, *tuning.kinds.get(kind)?)));
                let Some((kind, figures)) = found else {
                    self.backends.clear();
                    return Err(backend.url.clone());
                };
                let known = before.iter().find(|one| one.url == backend.url);
                self.backends.push(BackendState {
                    url: backend.url.clone(),
                    kind: kind.clone(),
                    figures,
                    in_service: backend.in_service,
                    slow: known.map_or_else(Slowness::default, |one| one.slow),
                    links: known.map_or_else(SlowLink::default, |one| one.links),
                    gathered: Gathered::default(),
                    silence: known.map_or_else(Silence::default, |one| one.silence),
                    silent: known.is_some_and(|one| one.silent),
                });
            }
            self.periods = 0;
        }
        if self.classes.len() != known {
            self.classes = vec![ClassState::default(); known];
            self.periods = 0;
        }
        self.listen(sizes, length, allowed);
        let keeps = 1.0 - 1.0 / f64::from(tuning.smoothing_periods);
        let first = self.periods == 0;
        for (index, class) in sizes.classes.iter().enumerate() {
            let state = match self.classes.get_mut(index).filter(|_| class.known) {
                Some(state) => state,
                None => &mut self.unknown,
            };
            let rate = class.arrivals as f64 / length.get();
            state.smooth_rate = if first {
                rate
            } else {
                state.smooth_rate * keeps + rate * (1.0 - keeps)
            };
            // More is believed sooner than less, beyond what chance alone makes of a count.
            let by_chance = 2.0 * (state.smooth_rate / length.get()).sqrt();
            state.rate = state.smooth_rate.max(rate - by_chance);
            if state.rate < LEAST_RATE {
                state.rate = 0.0;
            }
            if let Some(bytes) = class.mean_bytes() {
                let before = state.mean_bytes.unwrap_or(bytes);
                state.mean_bytes = Some(before * keeps + bytes * (1.0 - keeps));
            }
        }
        self.periods = self.periods.saturating_add(1);
        self.learn(sizes, length, allowed, tuning);
        Ok(())
    }

    /// Learns of each class how much its percentile is longer than its mean size makes it, while it goes where the law says: it is where it is
    /// late though the model says that these routes keep it, and is not where it is in time though the model says that they do not.
    pub(super) fn learn_tails(&mut self, sizes: &SizesObservation, allowed: Seconds, kept_by_model: bool) {
        let known = sizes.classes.iter().filter(|class| class.known);
        for (state, class) in self.classes.iter_mut().zip(known) {
            let Some(latency) = class.latency.filter(|_| class.completions >= MIN_COMPLETIONS) else {
                continue;
            };
            let factor = match latency.at_slo / allowed {
                over if over > 1.0 && kept_by_model => TAIL_UP,
                over if over < EASY || over <= 1.0 && !kept_by_model => TAIL_DOWN,
                _ => 1.0,
            };
            state.tail = (state.tail * factor).clamp(1.0, MAX_TAIL);
        }
    }

    /// Forgets some of it while they go elsewhere.
    pub(super) fn forget_tails(&mut self) {
        for state in &mut self.classes {
            state.tail = (state.tail * TAIL_DOWN).max(1.0);
        }
    }

    /// Takes in which backends are in service, and which of them answer. Where none does, none is less relied on than another.
    fn listen(&mut self, sizes: &SizesObservation, length: Seconds, allowed: Seconds) {
        for (at, (state, backend)) in self.backends.iter_mut().zip(&sizes.backends).enumerate() {
            // Whoever lets it take requests again knows that it answers.
            if !backend.in_service || !state.in_service {
                state.silence = Silence::default();
            }
            state.in_service = backend.in_service;
            let parts = sizes.classes.iter().filter_map(|class| class.backends.get(at));
            let completions = parts.map(|part| part.completions).sum();
            state.silence.observe(backend.in_flight, completions, length);
            state.silent = state.silence.is_silent(allowed);
        }
        if !self.backends.iter().any(BackendState::is_relied_on) {
            self.backends.iter_mut().for_each(|one| one.silent = false);
        }
    }

    fn learn(
        &mut self,
        sizes: &SizesObservation,
        length: Seconds,
        allowed: Seconds,
        tuning: &PlacementTuning,
    ) {
        // A class of which nothing was answered in this period has the size that it had; one of which nothing ever was, none.
        let states = self.classes.iter().chain([&self.unknown]);
        let sizes_bytes: Vec<f64> = states.map(|class| class.mean_bytes.unwrap_or(0.0)).collect();
        let period_of = |(index, backend): (usize, &BackendState)| {
            let service = backend.figures.service();
            let seen = sizes.classes.iter().zip(&sizes_bytes).map(|(class, bytes)| {
                let at = class.backends.get(index).copied().unwrap_or_default();
                Seen {
                    cost: service.of(class.mean_bytes().unwrap_or(*bytes)),
                    arrivals: at.arrivals,
                    completions: at.completions,
                    mean: at.mean,
                }
            });
            Enough {
                seen: seen.collect(),
                length,
                settled: true,
            }
        };
        let periods: Vec<Enough> = self.backends.iter().enumerate().map(period_of).collect();
        let excesses = self
            .backends
            .iter()
            .zip(&periods)
            .filter_map(|(backend, period)| {
                let machine = backend.figures.machine(&backend.kind);
                path::excess(&Told::of(&machine, period, Seconds::ZERO)?)
            });
        let least = excesses.min_by(f64::total_cmp);
        self.path.learn(least);
        let path = self.path.get(Seconds::from_millis(tuning.path_ms), allowed);
        let observed = periods.into_iter().zip(&sizes.backends);
        for (backend, (period, of)) in self.backends.iter_mut().zip(observed) {
            backend.gathered.add(period.seen, length, of.in_flight);
            let machine = backend.figures.machine(&backend.kind);
            backend.slow = match backend.gathered.take() {
                Some(enough) => speed::learned(backend.slow, &mut backend.links, &machine, &enough, path),
                // Of few requests nothing is learned, and what is not seen any more fades.
                None => backend.slow.forgotten(),
            };
        }
    }
}
