//! By how much blocks of periods differ while nothing is tried: a comparison is believed only where it differs from that, and its blocks
//! are as long as that asks for.
//!
//! A comparison of few pairs cannot tell by itself how far they are off: under a load that cycles all of its pairs may be off by as much
//! and agree by chance. While one interval stays in force every pair of blocks that lie side by side as a comparison's do shows what the
//! load alone does to a pair, at every phase of it.

use super::block::{Outcome, Period, difference};
use super::pace::Pace;
use super::tuning::MIN_PAIRS;
use std::collections::VecDeque;

/// How many times as long blocks can be as they must be for what is in flight.
const SCALES: [u32; 4] = [1, 2, 4, LONGEST_SCALE];
pub(super) const LONGEST_SCALE: u32 = 8;
/// Patient blocks are so long at least.
const PATIENT_TIMES: u32 = 4;
/// The average goes over this many pairs of blocks, one after the other.
const MEMORY: f64 = 8.0;
/// Once it is known, a difference counts as so many times it at the most, or as the second: a load that steps once is no noise, and one that
/// does so over and over is soon believed.
const OUTLIER: f64 = 3.0;
const LEAST: f64 = 0.1;
/// A gain, as a logarithm, that a comparison should be long enough to find, one that is large, and the standard errors by which it should.
const GAIN: f64 = 0.1;
pub(super) const LARGE_GAIN: f64 = 0.3;
const ERRORS: f64 = 3.0;

/// Sums from the beginning of a run of periods.
#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    answers: f64,
    total: f64,
    energy: f64,
    /// Periods without an energy.
    unmetered: u32,
}

impl Sums {
    fn with(self, period: &Period) -> Self {
        Self {
            answers: self.answers + period.answers,
            total: self.total + period.answers * period.response,
            energy: self.energy + period.energy.unwrap_or(0.0),
            unmetered: self.unmetered + u32::from(period.energy.is_none()),
        }
    }

    /// What the periods since were like; `None` where nothing was answered in them.
    fn since(&self, before: &Self) -> Option<Outcome> {
        let answers = self.answers - before.answers;
        let energy = (self.energy - before.energy) / answers;
        (answers > 0.5).then(|| Outcome {
            response: (self.total - before.total) / answers,
            energy: (self.unmetered == before.unmetered).then_some(energy),
        })
    }
}

/// The mean square of the differences of pairs of blocks of one length.
#[derive(Clone, Copy, Debug, Default)]
struct Spread {
    squares: f64,
    places: f64,
}

/// The noise of a load.
#[derive(Clone, Debug, Default)]
pub(super) struct Noise {
    /// Of the present run of periods with one interval in force, the latest ones.
    run: VecDeque<Sums>,
    spreads: [Spread; SCALES.len()],
}

impl Noise {
    /// Takes a period with the present interval in force, and settled; the pace is that of the shortest blocks.
    pub(super) fn push(&mut self, period: &Period, pace: &Pace, energy_weight: f64) {
        if self.run.is_empty() {
            self.run.push_back(Sums::default());
        }
        let now = self.run[self.run.len() - 1].with(period);
        self.run.push_back(now);
        let last = self.run.len() - 1;
        let back = |periods: u32| last.checked_sub(periods as usize).map(|at| self.run[at]);
        for (spread, scale) in self.spreads.iter_mut().zip(SCALES) {
            let measured = pace.measured.saturating_mul(scale);
            let block = measured.saturating_add(pace.settle);
            let Some(begin) = back(block.saturating_add(measured)) else {
                break;
            };
            let ends = back(block).zip(back(measured));
            let first = ends.and_then(|(end, _)| end.since(&begin));
            let second = ends.and_then(|(_, begin)| now.since(&begin));
            if let Some((first, second)) = first.zip(second) {
                let square = difference(&second, &first, energy_weight).powi(2);
                let is_known = spread.places >= f64::from(measured);
                let most = match is_known {
                    true => (OUTLIER * OUTLIER * spread.squares).max(LEAST * LEAST),
                    false => f64::INFINITY,
                };
                spread.places += 1.0;
                let memory = spread.places.min(MEMORY * f64::from(block));
                spread.squares += (square.min(most) - spread.squares) / memory;
            }
        }
        let longest = LONGEST_SCALE.saturating_mul(pace.measured);
        let needed = longest.saturating_mul(2).saturating_add(pace.settle) as usize;
        while self.run.len() > needed + 1 {
            self.run.pop_front();
        }
    }

    /// Another interval is in force: blocks do not lie side by side over that.
    pub(super) fn interrupt(&mut self) {
        self.run.clear();
    }

    /// The root of the mean square, once pairs were seen that begin at as many places as a block has periods.
    fn spread(&self, at: usize, pace: &Pace) -> Option<f64> {
        let (spread, scale) = self.spreads.get(at).zip(SCALES.get(at))?;
        let needed = f64::from(pace.measured) * f64::from(*scale);
        (spread.places >= needed).then(|| spread.squares.sqrt())
    }

    /// How many times as long as they must be blocks should be for a comparison to end soonest, and by how much pairs of them differ; the
    /// pace is that of the shortest. `None` while that is not known.
    pub(super) fn scale(&self, pace: &Pace, max_pairs: u32) -> Option<Scale> {
        let mut best: Option<(f64, Scale)> = None;
        for (at, times) in SCALES.into_iter().enumerate() {
            let block = pace.scaled(times).block();
            let soonest = f64::from(MIN_PAIRS) * block;
            if best.as_ref().is_some_and(|(periods, _)| *periods <= soonest) {
                break;
            }
            let spread = self.spread(at, pace)?;
            let pairs = self.pairs(spread, GAIN);
            // Where none has an end in time, the longest comes nearest to it.
            let ends = pairs <= f64::from(max_pairs);
            if !ends || best.as_ref().is_none_or(|(periods, _)| pairs * block < *periods) {
                let one = self.scale_at(at, spread, pace)?;
                best = Some((if ends { pairs * block } else { f64::INFINITY }, one));
            }
        }
        best.map(|(_, scale)| scale)
    }

    /// The shortest blocks of which not too many find a large gain, where they are shorter than those that find any gain or it is not known
    /// yet how long these must be.
    pub(super) fn large(&self, pace: &Pace, max_pairs: u32) -> Option<Scale> {
        let whole = self.scale(pace, max_pairs);
        for (at, times) in SCALES.into_iter().enumerate() {
            if whole.is_some_and(|whole| times >= whole.times) {
                break;
            }
            let spread = self.spread(at, pace)?;
            if self.pairs(spread, LARGE_GAIN) <= f64::from(max_pairs) {
                return Some(Scale {
                    seeks_large: true,
                    ..self.scale_at(at, spread, pace)?
                });
            }
        }
        None
    }

    /// Pairs of blocks that find a gain where such pairs differ so much by themselves.
    fn pairs(&self, spread: f64, gain: f64) -> f64 {
        (ERRORS * spread / gain).powi(2).max(f64::from(MIN_PAIRS))
    }

    fn scale_at(&self, at: usize, spread: f64, pace: &Pace) -> Option<Scale> {
        let longer = self.spread(at + 1, pace).unwrap_or(0.0);
        Some(Scale {
            times: SCALES[at],
            is_patient: false,
            seeks_large: false,
            spread,
            longer: spread.max(longer),
            shortest: self.spread(0, pace)?,
        })
    }

    /// The same for patient blocks, which are longer at least as that asks for.
    pub(super) fn patient(&self, pace: &Pace, max_pairs: u32) -> Option<Scale> {
        let scale = self.scale(pace, max_pairs)?;
        let at = SCALES
            .iter()
            .position(|times| *times == scale.times.max(PATIENT_TIMES))?;
        let spread = self.spread(at, pace)?;
        Some(Scale {
            times: SCALES[at],
            is_patient: true,
            spread,
            longer: spread.max(self.spread(at + 1, pace).unwrap_or(0.0)),
            ..scale
        })
    }
}

/// How long blocks are, and by how much pairs of them differ where nothing is tried, as a logarithm.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Scale {
    /// So many times as long as they must be.
    pub(super) times: u32,
    /// Whether they settle for longer than what is in flight needs.
    pub(super) is_patient: bool,
    /// Whether they are to find a large gain only.
    pub(super) seeks_large: bool,
    /// Root of the mean square.
    pub(super) spread: f64,
    /// The same of longer blocks, where that is more.
    pub(super) longer: f64,
    /// The same of the shortest blocks.
    pub(super) shortest: f64,
}

impl Scale {
    /// A pace with blocks of this length.
    pub(super) fn of(&self, pace: &Pace) -> Pace {
        let scaled = pace.scaled(self.times);
        if self.is_patient { scaled.patient() } else { scaled }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batching::seek::SeekTuning;

    fn period(response: f64) -> Period {
        Period {
            interval: Some(0.0),
            response,
            answers: 10.0,
            at_slo: 1.0,
            length: 1.0,
            energy: None,
            batched: None,
        }
    }

    fn after(periods: u32, response: impl Fn(u32) -> f64) -> (Noise, Pace) {
        let pace = Pace::of(0.5, &SeekTuning::default());
        let mut noise = Noise::default();
        for number in 0..periods {
            noise.push(&period(response(number)), &pace, 0.1);
        }
        (noise, pace)
    }

    #[test]
    fn a_quiet_load_asks_for_the_shortest_blocks_once_all_places_of_a_block_were_seen() {
        // Two blocks of four with one between them, and three periods more.
        assert_eq!(after(11, |_| 1.0).0.scale(&after(11, |_| 1.0).1, 24), None);
        let (noise, pace) = after(12, |_| 1.0);
        let quiet = Scale {
            times: 1,
            is_patient: false,
            seeks_large: false,
            spread: 0.0,
            longer: 0.0,
            shortest: 0.0,
        };
        assert_eq!(noise.scale(&pace, 24), Some(quiet));
    }

    #[test]
    fn a_load_that_cycles_in_two_blocks_is_seen_and_asks_for_longer_ones() {
        let square = |number: u32| if number % 10 < 5 { 1.3 } else { 0.7 };
        // What the shortest blocks say is known, and not enough.
        let (noise, pace) = after(16, square);
        assert!(noise.spread(0, &pace).unwrap() > 0.3);
        assert_eq!(noise.scale(&pace, 24), None);
        let (noise, pace) = after(300, square);
        // With the phase at which all of a block is in one half of the cycle they differ by ln(1.3 / 0.7), and by less at the others.
        let spread = noise.spread(0, &pace).unwrap();
        assert!((0.35..0.62).contains(&spread), "{spread}");
        let scale = noise.scale(&pace, 24).unwrap();
        assert!(scale.times > 1 && scale.spread < 0.3 * spread, "{scale:?}");
        assert_eq!(scale.shortest, spread);
    }

    #[test]
    fn a_large_gain_is_sought_in_shorter_blocks_where_the_load_is_uneven_and_not_where_it_is_quiet() {
        let (noise, pace) = after(300, |_| 1.0);
        assert_eq!(noise.large(&pace, 24), None);
        // A load that goes up and down at random, for some ten periods each.
        let mut random = crate::batching::tests::Noise::new(3);
        let walk: Vec<f64> = (0..600)
            .scan(0.0, |state, _| {
                *state = 0.8 * *state + 0.15 * random.normal();
                Some(f64::exp(*state))
            })
            .collect();
        let (noise, pace) = after(30, |number| walk[number as usize]);
        let (early, whole) = (noise.large(&pace, 24), noise.scale(&pace, 24));
        assert!(
            early.is_some_and(|large| large.seeks_large) && whole.is_none(),
            "{early:?}"
        );
        let (noise, pace) = after(600, |number| walk[number as usize]);
        let (large, whole) = (noise.large(&pace, 24).unwrap(), noise.scale(&pace, 24).unwrap());
        assert!(
            large.times < whole.times && !whole.seeks_large,
            "{large:?} {whole:?}"
        );
    }

    #[test]
    fn a_run_that_is_interrupted_begins_anew_and_what_was_seen_is_kept() {
        let (mut noise, pace) = after(12, |number| 1.0 + 0.1 * f64::from(number % 2));
        let spread = noise.spread(0, &pace);
        assert!(spread.is_some());
        noise.interrupt();
        for _ in 0..8 {
            noise.push(&period(9.0), &pace, 0.1);
        }
        assert_eq!(noise.spread(0, &pace), spread, "no two blocks side by side yet");
        noise.push(&period(90.0), &pace, 0.1);
        assert!(noise.spread(0, &pace) > spread);
    }
}
