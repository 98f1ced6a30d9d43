//! The processes by which requests arrive, as a configuration file states them.
//!
//! Open loop: whatever the service does, requests come as the process says (rate series, Poisson, even, MMPP). Closed
//! loop: each of a fixed number of users sends a request, waits for the answer, thinks, and sends the next; or a number of
//! users that changes over the day reads pages.
//!
//! ```
//! use headroom_workload::process::{ArrivalProcess, Loop};
//! use headroom_workload::random::{Purpose, Rng};
//!
//! let process = ArrivalProcess::Mmpp {
//!     rates_per_s: vec![10.0, 100.0],
//!     transitions_per_s: vec![vec![0.0, 0.1], vec![1.0, 0.0]],
//! };
//! process.check("arrivals")?;
//! match process.start(Rng::new(1, Purpose::Arrivals)) {
//!     Loop::Open(mut instants) => assert!(instants.next() < instants.next()),
//!     Loop::Closed(population) => println!("at most {:?} users", population.users.iter().max()),
//! }
//! # Ok::<(), headroom_workload::FigureError>(())
//! ```

mod mmpp;

use crate::arrivals::{Arrivals, Spacing};
use crate::distribution::Shape;
use crate::error::{Fields, FigureError};
use crate::random::Draw;
use crate::trace::Trace;
use crate::users::{Browsing, MAX_USERS, Model};
use headroom_units::{PerSecond, Seconds};
use mmpp::{Mmpp, stationary};
use serde::{Deserialize, Serialize};
use std::fmt;

/// The most values of a rate series: years of seconds.
pub const MAX_VALUES: usize = 100_000_000;
/// The most states of an MMPP.
pub const MAX_STATES: usize = 64;

/// The process by which requests arrive.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum ArrivalProcess {
    /// A trace: rates, each held for a time. A flash crowd is a series of which some values are high. With its end,
    /// arrivals end.
    Series {
        /// Rates, requests per second.
        rates_per_s: Vec<f64>,
        /// How long each is held, seconds.
        hold_s: f64,
        /// How they are spaced.
        #[serde(default)]
        spacing: Spacing,
    },
    /// Instants, as they were recorded somewhere. With the last, arrivals end.
    Times {
        /// Each request's, seconds from the start, never falling.
        at_s: Vec<f64>,
    },
    /// A constant rate, exponential gaps.
    Poisson {
        /// Requests per second.
        rate_per_s: f64,
    },
    /// A constant rate, equal gaps.
    Even {
        /// Requests per second.
        rate_per_s: f64,
    },
    /// A Markov-modulated Poisson process: in each state of a Markov chain a rate of its own. It begins in the first
    /// state.
    Mmpp {
        /// Requests per second in each state.
        rates_per_s: Vec<f64>,
        /// From each state to each: transitions per second. The diagonal counts for nothing.
        transitions_per_s: Vec<Vec<f64>>,
    },
    /// Closed loop. A user thinks first, so that not all send at once.
    Sessions {
        /// How many users.
        users: u32,
        /// Mean time between an answer and the next request, seconds.
        think_s: f64,
        /// How think times are distributed.
        think: Shape,
    },
    /// Closed loop of people who read pages, whose number follows a curve.
    Browsing(Browsing),
}

impl ArrivalProcess {
    /// The mean rate of an open loop over the whole of it, requests per second; `None` of a closed loop, whose rate the
    /// service decides. The process must have been checked.
    pub fn mean_rate_per_s(&self) -> Option<f64> {
        match self {
            Self::Series { rates_per_s, .. } => {
                Some(rates_per_s.iter().sum::<f64>() / rates_per_s.len() as f64)
            }
            Self::Times { at_s } => Some(at_s.len() as f64 / at_s.last().copied().unwrap_or(1.0).max(1.0)),
            Self::Poisson { rate_per_s } | Self::Even { rate_per_s } => Some(*rate_per_s),
            Self::Mmpp {
                rates_per_s,
                transitions_per_s,
            } => {
                let shares = stationary(transitions_per_s);
                Some(
                    rates_per_s
                        .iter()
                        .zip(&shares)
                        .map(|(rate, share)| rate * share)
                        .sum(),
                )
            }
            Self::Sessions { .. } | Self::Browsing(_) => None,
        }
    }

    /// How many requests it brings on average between two moments; `None` of a closed loop. Of recorded instants those that come, of an
    /// MMPP the mean over all states, whichever it is in. The process must have been checked.
    pub fn expected(&self, from_s: f64, to_s: f64) -> Option<f64> {
        if let Self::Times { at_s } = self {
            let before = |end_s: f64| at_s.partition_point(|at| *at < end_s);
            return Some(before(to_s).saturating_sub(before(from_s)) as f64);
        }
        let Self::Series {
            rates_per_s, hold_s, ..
        } = self
        else {
            return self.mean_rate_per_s().map(|rate| rate * (to_s - from_s));
        };
        let first = (from_s / hold_s).floor().max(0.0) as usize;
        let held = rates_per_s.iter().enumerate().skip(first);
        let within = held.map(|(at, rate)| {
            let (begins_s, ends_s) = (at as f64 * hold_s, (at + 1) as f64 * hold_s);
            (ends_s.min(to_s) - begins_s.max(from_s), rate)
        });
        // The first value may end a hair before the beginning.
        let length = |(length_s, rate): (f64, &f64)| length_s.max(0.0) * rate;
        Some(
            within
                .take_while(|(length_s, _)| *length_s > -1e-9)
                .map(length)
                .sum(),
        )
    }

    /// How long it lasts by itself, seconds; `None` where it goes on.
    pub fn length_s(&self) -> Option<f64> {
        match self {
            Self::Series {
                rates_per_s, hold_s, ..
            } => Some(rates_per_s.len() as f64 * hold_s),
            Self::Browsing(browsing) => Some(browsing.users.len() as f64 * browsing.hold_s),
            Self::Times { at_s } => at_s.last().map(|last| last.max(1.0)),
            _ => None,
        }
    }

    /// The process at work; an open loop draws its arrivals from a random stream. The process must have been checked.
    pub fn start<R: Draw>(&self, rng: R) -> Loop<R> {
        let over = |rates: &[f64], hold_s: f64, spacing, rng| {
            let rates = rates.iter().copied().map(PerSecond::new).collect();
            let trace = Trace::of_checked(Seconds::new(hold_s), rates);
            Source::Series(Arrivals::drawn_from(trace, spacing, rng))
        };
        let source = match self {
            Self::Series {
                rates_per_s,
                hold_s,
                spacing,
            } => over(rates_per_s, *hold_s, *spacing, rng),
            Self::Even { rate_per_s } => over(&[*rate_per_s], f64::INFINITY, Spacing::Even, rng),
            Self::Times { at_s } => Source::Times(at_s.clone().into_iter()),
            Self::Mmpp {
                rates_per_s,
                transitions_per_s,
            } => {
                let chain = Mmpp::new(rates_per_s.clone(), transitions_per_s.clone());
                Source::Mmpp {
                    chain,
                    now_s: 0.0,
                    rng,
                }
            }
            Self::Poisson { rate_per_s } => Source::Poisson {
                mean_s: 1.0 / rate_per_s,
                now_s: 0.0,
                rng,
            },
            Self::Sessions {
                users,
                think_s,
                think,
            } => {
                return Loop::Closed(Population {
                    users: vec![*users],
                    hold_s: f64::MAX,
                    model: Model::sessions(think.scaled(*think_s)),
                });
            }
            Self::Browsing(browsing) => {
                return Loop::Closed(Population {
                    users: browsing.users.clone(),
                    hold_s: browsing.hold_s,
                    model: browsing.model(),
                });
            }
        };
        Loop::Open(OpenLoop(source))
    }

    /// Checks the process; `key` is where it stands.
    ///
    /// # Errors
    /// [`FigureError`] with the key.
    pub fn check(&self, key: &str) -> Result<(), FigureError> {
        let fields = Fields(key);
        let is_rate = |rate: &f64| (0.0..=1e9).contains(rate);
        let any_rate = "0 to 1e9 requests per second";
        match self {
            Self::Series {
                rates_per_s, hold_s, ..
            } => {
                let count = rates_per_s.len();
                let holds = (1..=MAX_VALUES).contains(&count);
                let given = format_args!("{count} values");
                fields.require(holds, "rates_per_s", given, "1 to 100000000 values")?;
                for (at, rate) in (1..).zip(rates_per_s) {
                    let given = format_args!("{rate} at value {at}");
                    fields.require(is_rate(rate), "rates_per_s", given, any_rate)?;
                }
                let holds = *hold_s > 0.0 && *hold_s <= 1e6;
                fields.require(holds, "hold_s", hold_s, "above 0 and at most 1000000 seconds")
            }
            Self::Times { at_s } => {
                let given = format_args!("{} values", at_s.len());
                fields.require(
                    at_s.len() <= MAX_VALUES,
                    "at_s",
                    given,
                    "at most 100000000 values",
                )?;
                let before = std::iter::once(&0.0).chain(at_s);
                for (index, (at, before)) in (1..).zip(at_s.iter().zip(before)) {
                    let given = format_args!("{at} at value {index}");
                    let rule = "0 or more, and not before the one that precedes it";
                    fields.require(at >= before && at.is_finite(), "at_s", given, rule)?;
                }
                Ok(())
            }
            Self::Poisson { rate_per_s } | Self::Even { rate_per_s } => {
                let rule = "above 0 and at most 1e9 requests per second";
                let holds = is_rate(rate_per_s) && *rate_per_s > 0.0;
                fields.require(holds, "rate_per_s", rate_per_s, rule)
            }
            Self::Mmpp {
                rates_per_s,
                transitions_per_s,
            } => {
                let states = rates_per_s.len();
                let rule = "2 to 64 states (one is kind = \"poisson\")";
                let given = format_args!("{states} states");
                fields.require((2..=MAX_STATES).contains(&states), "rates_per_s", given, rule)?;
                for rate in rates_per_s {
                    fields.require(is_rate(rate), "rates_per_s", rate, any_rate)?;
                }
                let require = |holds, given: fmt::Arguments<'_>, rule| {
                    fields.require(holds, "transitions_per_s", given, rule)
                };
                let square = transitions_per_s.len() == states
                    && transitions_per_s.iter().all(|row| row.len() == states);
                require(
                    square,
                    format_args!("not {states} rows of {states}"),
                    "a row for each state, with a value for each state",
                )?;
                for rate in transitions_per_s.iter().flatten() {
                    require(is_rate(rate), format_args!("{rate}"), "0 to 1e9 per second")?;
                }
                for (state, row) in transitions_per_s.iter().enumerate() {
                    let leaves = (0..states).any(|to| to != state && row[to] > 0.0);
                    let given = format_args!("all 0 in row {}", state + 1);
                    require(leaves, given, "such that every state is left some time")?;
                }
                let shares = stationary(transitions_per_s);
                let given = format_args!("a chain that falls apart");
                let connected = shares.iter().all(|share| share.is_finite());
                require(connected, given, "such that every state is reached")
            }
            Self::Sessions {
                users,
                think_s,
                think,
            } => {
                let holds = (1.0..=MAX_USERS).contains(&f64::from(*users));
                fields.require(holds, "users", users, "1 to 1000000")?;
                let holds = *think_s > 0.0 && *think_s <= 1e6;
                fields.require(holds, "think_s", think_s, "above 0 and at most 1000000 seconds")?;
                think.check(&format!("{key}.think"))
            }
            Self::Browsing(browsing) => browsing.check(key),
        }
    }
}

/// A process at work.
#[derive(Clone, Debug)]
pub enum Loop<R> {
    /// Arrivals come whatever the service does.
    Open(OpenLoop<R>),
    /// Users wait for their answers.
    Closed(Population),
}

/// The users of a closed loop.
#[derive(Clone, Debug)]
pub struct Population {
    /// How many there are, each number held for `hold_s`. User `n` is there while the number is above `n`.
    pub users: Vec<u32>,
    /// How long each number is held, seconds.
    pub hold_s: f64,
    /// How they behave.
    pub model: Model,
}

/// The arrivals of an open loop, an iterator over instants that never fall.
#[derive(Clone, Debug)]
pub struct OpenLoop<R>(Source<R>);

#[derive(Clone, Debug)]
enum Source<R> {
    Poisson { mean_s: f64, now_s: f64, rng: R },
    Series(Arrivals<R>),
    Times(std::vec::IntoIter<f64>),
    Mmpp { chain: Mmpp, now_s: f64, rng: R },
}

impl<R: Draw> Iterator for OpenLoop<R> {
    type Item = Seconds;

    #[inline]
    fn next(&mut self) -> Option<Seconds> {
        match &mut self.0 {
            Source::Poisson { mean_s, now_s, rng } => {
                *now_s += *mean_s * rng.exponential();
                Some(Seconds::new(*now_s))
            }
            Source::Series(arrivals) => arrivals.next(),
            Source::Times(times) => times.next().map(Seconds::new),
            Source::Mmpp { chain, now_s, rng } => {
                *now_s = chain.next_s(*now_s, rng);
                Some(Seconds::new(*now_s))
            }
        }
    }
}

#[cfg(test)]
mod tests;
