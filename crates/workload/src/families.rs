//! Families of seeded traces for trying a law on what it has never seen: other lengths, other scales, other rhythms, flash
//! crowds, and loads without any rhythm.
//!
//! The [`generate`](crate::generate) traces are shaped after two published ones, and laws were looked at on those; here each
//! family departs from them in one way. Levels are shares of what the plant serves at most, so that a family is as hard on
//! a large plant as on a small one. The same family, capacity and seed give the same values.
//!
//! ```
//! use headroom_units::PerSecond;
//! use headroom_workload::families::Family;
//!
//! let crowds = Family::FlashCrowds.trace(PerSecond::new(1_000.0), 1)?;
//! assert_eq!(crowds.duration().get(), 3_600.0);
//! # Ok::<(), headroom_workload::TraceError>(())
//! ```

use crate::generate::{Diurnal, PUBLISHED_STEP, diurnal};
use crate::random::Draw;
use crate::trace::{Trace, TraceError};
use headroom_units::{PerSecond, Seconds};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// The mean load of the families with an everyday level, as a share of the plant's capacity: that of the published
/// Wikipedia trace (139.5 requests/s) on the cluster it was run on (48 cores of 24 requests/s).
const EVERYDAY: f64 = 139.5 / 1152.0;
/// Values that change from one second to the next are held for one.
const SECOND: Seconds = Seconds::new(1.0);
/// Length of the families with a value a second, seconds.
const HOUR: usize = 3600;

/// What a flash crowd multiplies the load by, from one second to the next.
pub const CROWD: f64 = 10.0;
/// The load between crowds, as a share of the capacity: a crowd reaches half of it.
const CALM: f64 = 0.05;
/// Seconds between the end of a crowd and the next: at least, and on average beyond that.
const CROWD_GAP_S: (f64, f64) = (180.0, 240.0);
/// Seconds for which a crowd stays at its height, and in which it falls to a third of it afterwards.
const CROWD_STAYS_S: (f64, f64) = (10.0, 60.0);
const CROWD_FADES_S: f64 = 20.0;

/// Load of Saturdays and Sundays over that of the other days.
pub const WEEKEND: f64 = 0.35;

/// The lowest and the highest level of ramps, steps and walks, as shares of the capacity.
const LEVELS: (f64, f64) = (0.02, 0.6);

/// A family of traces.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Family {
    /// A quarter of an hour: less than a law that learns the day needs to learn it.
    Short,
    /// Seven hours: a hundred and five days of 24 values.
    Long,
    /// A tenth of the everyday load on the same plant.
    Tenth,
    /// Ten times the everyday load on ten times the plant.
    Tenfold,
    /// Weeks whose Saturdays and Sundays have 0.35 of the other days' load.
    Weekly,
    /// A rhythm of 37 values, which is no divisor or multiple of a day's 24.
    OtherRhythm,
    /// Crowds of ten times the load, there from one second to the next.
    FlashCrowds,
    /// Straight climbs and descents between random levels.
    Ramps,
    /// Jumps between random levels, each kept for a random time.
    Steps,
    /// A walk without any rhythm or level of its own.
    RandomWalk,
    /// Bursts: a Markov chain of three levels that may change every second.
    Bursts,
    /// Some thousandth of the capacity: seconds with a request or none.
    NearIdle,
    /// Days whose peak reaches nine tenths of the capacity.
    NearFull,
    /// Stretches in which nothing comes at all, and full days between them.
    Silences,
}

impl Family {
    /// Each family with its name in reports and on the command line, and what it is in one line; in their order.
    const TABLE: [(Self, &'static str, &'static str); 14] = [
        (Self::Short, "short", "a quarter of an hour of an ordinary day"),
        (Self::Long, "long", "seven hours: 105 days of 24 values"),
        (Self::Tenth, "tenth", "a tenth of the load on the same plant"),
        (
            Self::Tenfold,
            "tenfold",
            "ten times the load on ten times the plant",
        ),
        (
            Self::Weekly,
            "weekly",
            "four weeks whose weekends have 0.35 of the load",
        ),
        (
            Self::OtherRhythm,
            "other-rhythm",
            "a rhythm of 37 values instead of 24",
        ),
        (
            Self::FlashCrowds,
            "flash-crowds",
            "ten times the load from one second to the next",
        ),
        (
            Self::Ramps,
            "ramps",
            "straight climbs and descents between random levels",
        ),
        (Self::Steps, "steps", "jumps between random levels"),
        (Self::RandomWalk, "random-walk", "a walk without rhythm or level"),
        (
            Self::Bursts,
            "bursts",
            "three levels that may change every second (MMPP)",
        ),
        (Self::NearIdle, "near-idle", "a thousandth of the capacity"),
        (
            Self::NearFull,
            "near-full",
            "days whose peak reaches nine tenths of the capacity",
        ),
        (
            Self::Silences,
            "silences",
            "stretches without any request between full days",
        ),
    ];

    /// All of them.
    pub fn all() -> impl Iterator<Item = Self> {
        Self::TABLE.into_iter().map(|(family, ..)| family)
    }

    /// Its name in reports and on the command line.
    pub const fn name(self) -> &'static str {
        Self::TABLE[self as usize].1
    }

    /// What it is, in one line.
    pub const fn what(self) -> &'static str {
        Self::TABLE[self as usize].2
    }

    /// How many times the plant it is meant for.
    pub const fn plants(self) -> u32 {
        match self {
            Self::Tenfold => 10,
            _ => 1,
        }
    }

    /// One of its traces, for a plant that serves so many requests per second at most (the whole of it, after
    /// [`Family::plants`]).
    ///
    /// # Errors
    /// [`TraceError`] where the capacity is not a positive rate.
    pub fn trace(self, capacity: PerSecond, seed: u64) -> Result<Trace, TraceError> {
        // Each family has a stream of its own, so that two of them never share their luck.
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        rng.set_stream(1 + self as u64);
        let days = |days: usize, mean: f64, rng: &mut ChaCha8Rng| {
            diurnal(&Diurnal {
                days,
                mean: capacity * mean,
                seed: rng.random(),
                ..Diurnal::default()
            })
        };
        let made = match self {
            Self::Short => days(4, EVERYDAY, &mut rng)?.slice(Seconds::ZERO, PUBLISHED_STEP * 90.0)?,
            Self::Long => days(105, EVERYDAY, &mut rng)?,
            Self::Tenth => days(20, EVERYDAY / 10.0, &mut rng)?,
            // As much a node as elsewhere: the capacity is that of ten times the plant.
            Self::Tenfold => days(10, EVERYDAY, &mut rng)?,
            Self::Weekly => weekly(&days(28, EVERYDAY, &mut rng)?)?,
            Self::OtherRhythm => of_shares(capacity, PUBLISHED_STEP, other_rhythm(&mut rng))?,
            Self::FlashCrowds => of_shares(capacity, SECOND, flash_crowds(&mut rng))?,
            Self::Ramps => of_shares(capacity, SECOND, ramps(&mut rng))?,
            Self::Steps => of_shares(capacity, SECOND, steps(&mut rng))?,
            Self::RandomWalk => of_shares(capacity, PUBLISHED_STEP, random_walk(&mut rng))?,
            Self::Bursts => of_shares(capacity, SECOND, bursts(&mut rng))?,
            Self::NearIdle => of_shares(capacity, PUBLISHED_STEP, near_idle(&mut rng))?,
            Self::NearFull => days(20, EVERYDAY, &mut rng)?.scaled_to_peak(capacity * 0.9)?,
            Self::Silences => silences(&days(20, EVERYDAY, &mut rng)?)?,
        };
        Ok(made.named(self.name()))
    }
}

impl std::fmt::Display for Family {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

impl std::str::FromStr for Family {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        Self::all().find(|family| family.name() == name).ok_or_else(|| {
            let all = Self::TABLE.map(|(_, name, _)| name).join(", ");
            format!("there is no family of that name; there are {all}")
        })
    }
}

fn of_shares(capacity: PerSecond, step: Seconds, shares: Vec<f64>) -> Result<Trace, TraceError> {
    Trace::new(
        "shares",
        step,
        shares.into_iter().map(|share| capacity * share).collect(),
    )
}

/// Saturdays and Sundays lowered; the first day is a Monday.
fn weekly(days: &Trace) -> Result<Trace, TraceError> {
    let rates = days.rates().iter().enumerate();
    let rates = rates.map(|(at, rate)| {
        let weekend = at / 24 % 7 >= 5;
        *rate * if weekend { WEEKEND } else { 1.0 }
    });
    Trace::new("weekly", days.step(), rates.collect())
}

/// Every third day from its tenth to its sixteenth value nothing comes.
fn silences(days: &Trace) -> Result<Trace, TraceError> {
    let rates = days.rates().iter().enumerate();
    let rates = rates.map(|(at, rate)| {
        let silent = at / 24 % 3 == 2 && (9..16).contains(&(at % 24));
        if silent { PerSecond::ZERO } else { *rate }
    });
    Trace::new("silences", days.step(), rates.collect())
}

fn other_rhythm(rng: &mut ChaCha8Rng) -> Vec<f64> {
    let begins = rng.random::<f64>();
    (0..480)
        .map(|at| {
            let turn = std::f64::consts::TAU * (f64::from(at) / 37.0 + begins);
            let shape = 1.0 + 0.5 * turn.sin() + 0.2 * (2.0 * turn).cos();
            EVERYDAY * (shape * (1.0 + 0.05 * rng.normal())).max(0.05)
        })
        .collect()
}

fn flash_crowds(rng: &mut ChaCha8Rng) -> Vec<f64> {
    let mut shares = Vec::with_capacity(HOUR);
    let gap = |rng: &mut ChaCha8Rng| CROWD_GAP_S.0 + CROWD_GAP_S.1 * rng.exponential();
    let mut next_s = gap(rng);
    // What is left of the crowd, as a multiple of the calm beyond it.
    let (mut stays_s, mut crowd) = (0.0, 0.0);
    for second in 0..HOUR {
        if second as f64 >= next_s {
            stays_s = rng.random_range(CROWD_STAYS_S.0..CROWD_STAYS_S.1);
            crowd = CROWD - 1.0;
            next_s = second as f64 + stays_s + 5.0 * CROWD_FADES_S + gap(rng);
        }
        shares.push(CALM * (1.0 + crowd));
        if stays_s > 1.0 {
            stays_s -= 1.0;
        } else {
            // After some seven times that, under a hundredth of the calm: gone.
            crowd *= (-1.0 / CROWD_FADES_S).exp();
            if crowd < 0.01 {
                crowd = 0.0;
            }
        }
    }
    shares
}

/// A level between [`LEVELS`], as likely in each factor of two.
fn level(rng: &mut ChaCha8Rng) -> f64 {
    let (low, high) = LEVELS;
    low * (high / low).powf(rng.random::<f64>())
}

fn ramps(rng: &mut ChaCha8Rng) -> Vec<f64> {
    let mut shares = vec![level(rng)];
    while shares.len() < HOUR {
        let from = shares.last().copied().unwrap_or(LEVELS.0);
        let to = level(rng);
        let seconds = rng.random_range(30..300);
        shares.extend((1..=seconds).map(|at| from + (to - from) * f64::from(at) / f64::from(seconds)));
    }
    shares.truncate(HOUR);
    shares
}

fn steps(rng: &mut ChaCha8Rng) -> Vec<f64> {
    let mut shares = Vec::with_capacity(HOUR);
    while shares.len() < HOUR {
        let (to, seconds) = (level(rng), rng.random_range(30..300));
        shares.extend(std::iter::repeat_n(to, seconds));
    }
    shares.truncate(HOUR);
    shares
}

/// A walk in the logarithm, turned back at the levels.
fn random_walk(rng: &mut ChaCha8Rng) -> Vec<f64> {
    let (low, high) = (LEVELS.0.ln(), LEVELS.1.ln());
    let mut at = EVERYDAY.ln();
    (0..480)
        .map(|_| {
            let share = at.exp();
            at += 0.12 * rng.normal();
            if at > high {
                at = 2.0 * high - at;
            } else if at < low {
                at = 2.0 * low - at;
            }
            share
        })
        .collect()
}

/// Shares of the capacity in calm, in busy and in burst, and the chance a second to leave each.
const BURSTS: [(f64, f64); 3] = [(0.05, 1.0 / 60.0), (0.15, 1.0 / 30.0), (0.45, 1.0 / 8.0)];

fn bursts(rng: &mut ChaCha8Rng) -> Vec<f64> {
    let mut state = 0;
    (0..HOUR)
        .map(|_| {
            if rng.random::<f64>() < BURSTS[state].1 {
                // To either of the others, as likely.
                state = (state + 1 + usize::from(rng.random::<bool>())) % BURSTS.len();
            }
            BURSTS[state].0
        })
        .collect()
}

fn near_idle(rng: &mut ChaCha8Rng) -> Vec<f64> {
    (0..240).map(|_| 0.001 * (0.5 + rng.random::<f64>())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const CAPACITY: PerSecond = PerSecond::new(1000.0);

    fn shares(family: Family, seed: u64) -> Vec<f64> {
        let trace = family.trace(CAPACITY, seed).unwrap();
        trace.rates().iter().map(|rate| rate.get() / 1000.0).collect()
    }

    fn mean(values: impl IntoIterator<Item = f64>) -> f64 {
        let (sum, count) = values
            .into_iter()
            .fold((0.0, 0.0), |(sum, count), value| (sum + value, count + 1.0));
        sum / count
    }

    #[test]
    fn a_seed_decides_every_value_and_the_capacity_only_their_size() {
        for (at, family) in Family::all().enumerate() {
            assert_eq!(family as usize, at, "{family}");
            let one = family.trace(CAPACITY, 3).unwrap();
            assert_eq!(one, family.trace(CAPACITY, 3).unwrap(), "{family}");
            assert_ne!(
                one.rates(),
                family.trace(CAPACITY, 4).unwrap().rates(),
                "{family}"
            );
            let large = family.trace(CAPACITY * 7.0, 3).unwrap();
            for (small, large) in one.rates().iter().zip(large.rates()) {
                assert!((small.get() * 7.0 - large.get()).abs() < 1e-6, "{family}");
            }
            assert!(one.peak() <= CAPACITY * 0.9 + PerSecond::new(1e-9), "{family}");
            assert!(one.mean() > PerSecond::ZERO);
            assert_eq!(one.name(), family.name());
            assert_eq!(family.name().parse::<Family>(), Ok(family));
        }
        assert!("flash".parse::<Family>().unwrap_err().contains("flash-crowds"));
        assert!(Family::Steps.trace(PerSecond::new(-1.0), 1).is_err());
    }

    #[test]
    fn lengths_and_scales_are_what_they_say() {
        let seconds = |family: Family| family.trace(CAPACITY, 1).unwrap().duration().get();
        assert_eq!(seconds(Family::Short), 900.0);
        assert_eq!(seconds(Family::Long), 25_200.0);
        assert_eq!(seconds(Family::Weekly), 28.0 * 240.0);
        for family in [Family::FlashCrowds, Family::Ramps, Family::Steps, Family::Bursts] {
            assert_eq!(seconds(family), 3600.0);
        }
        let level = |family: Family| mean((1..=20).map(|seed| mean(shares(family, seed))));
        let everyday = level(Family::Long);
        assert!((everyday / EVERYDAY - 1.0).abs() < 0.03, "{everyday}");
        assert!((level(Family::Tenth) / everyday - 0.1).abs() < 0.01);
        assert!((level(Family::Tenfold) / everyday - 1.0).abs() < 0.05);
        assert_eq!(Family::all().map(Family::plants).sum::<u32>(), 13 + 10);
        assert!(shares(Family::NearIdle, 1).iter().all(|share| *share <= 0.0015));
        let full = shares(Family::NearFull, 1).into_iter().fold(0.0, f64::max);
        assert!((full - 0.9).abs() < 1e-9, "{full}");
    }

    #[test]
    fn a_crowd_is_ten_times_the_load_one_second_later_and_goes_by() {
        for seed in 1..=20 {
            let shares = shares(Family::FlashCrowds, seed);
            let jumps: Vec<f64> = shares.windows(2).map(|pair| pair[1] / pair[0]).collect();
            let crowds: Vec<usize> = (0..jumps.len()).filter(|at| jumps[*at] > 1.0 + 1e-9).collect();
            assert!((3..=15).contains(&crowds.len()), "{} crowds", crowds.len());
            for at in crowds {
                assert!((jumps[at] - CROWD).abs() < 1e-9, "seed {seed}: {}", jumps[at]);
                assert!((shares[at] - CALM).abs() < 1e-12, "it begins in the calm");
            }
            let calm = shares
                .iter()
                .filter(|share| (**share - CALM).abs() < 1e-12)
                .count();
            assert!(calm > HOUR / 3, "{calm} calm seconds");
        }
    }

    #[test]
    fn weekends_are_lower_by_their_factor() {
        let of_days = |weekend: bool| {
            mean((1..=20).map(|seed| {
                let shares = shares(Family::Weekly, seed);
                let of_day = shares.chunks(24).enumerate();
                mean(
                    of_day
                        .filter(|(day, _)| (day % 7 >= 5) == weekend)
                        .map(|(_, day)| mean(day.iter().copied())),
                )
            }))
        };
        let ratio = of_days(true) / of_days(false);
        // The ordinary days that are lowered have weaker weekends already.
        assert!((0.8 * WEEKEND..WEEKEND).contains(&ratio), "{ratio}");
    }

    #[test]
    fn the_other_rhythm_is_37_values_and_not_24() {
        let shares = shares(Family::OtherRhythm, 2);
        let level = mean(shares.iter().copied());
        let together = |lag: usize| {
            mean(
                shares
                    .windows(lag + 1)
                    .map(|pair| (pair[0] - level) * (pair[lag] - level)),
            )
        };
        assert!(together(37) > 0.8 * together(0), "{}", together(37) / together(0));
        assert!(together(24) < 0.0);
    }

    #[test]
    fn ramps_have_no_jumps_steps_have_and_walks_stay_between_their_levels() {
        let largest = |family| {
            let shares = shares(family, 5);
            let (low, high) = LEVELS;
            assert!(
                shares
                    .iter()
                    .all(|share| (low - 1e-9..=high + 1e-9).contains(share))
            );
            shares
                .windows(2)
                .map(|pair| (pair[1] - pair[0]).abs())
                .fold(0.0, f64::max)
        };
        let (ramps, steps) = (largest(Family::Ramps), largest(Family::Steps));
        assert!(ramps < 0.02 && steps > 0.1, "{ramps} {steps}");
        assert!(largest(Family::RandomWalk) < 0.4);
    }

    #[test]
    fn bursts_keep_their_stationary_shares_and_silences_are_silent() {
        let all: Vec<f64> = (1..=40).flat_map(|seed| shares(Family::Bursts, seed)).collect();
        // To either of the others with the same chance: time in a state goes by how long it lasts.
        let lasts: Vec<f64> = BURSTS.iter().map(|(_, leaves)| 1.0 / leaves).collect();
        for ((share, _), lasts_s) in BURSTS.iter().zip(&lasts) {
            let seen =
                all.iter().filter(|value| (**value - share).abs() < 1e-12).count() as f64 / all.len() as f64;
            let expected = lasts_s / lasts.iter().sum::<f64>();
            assert!((seen - expected).abs() < 0.05, "{share}: {seen} for {expected}");
        }
        let silences = shares(Family::Silences, 1);
        assert_eq!(silences.iter().filter(|share| **share == 0.0).count(), 6 * 7);
    }
}
