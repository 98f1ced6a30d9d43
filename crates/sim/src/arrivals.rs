//! When requests arrive.
//!
//! Open loop: whatever the service does, requests come as the process says (rate series, Poisson, even, MMPP). Closed
//! loop: each of a fixed number of users sends a request, waits for the answer, thinks, and sends the next.

use crate::distribution::{Sampler, Shape};
use crate::error::ScenarioError;
use crate::heap::Heap;
use crate::random::{Purpose, Rng};
use serde::{Deserialize, Serialize};

/// The most values of a rate series: years of seconds.
pub const MOST_VALUES: usize = 100_000_000;
/// The most users of closed-loop sessions.
pub const MOST_USERS: u32 = 1_000_000;
/// The most states of an MMPP.
pub const MOST_STATES: usize = 64;

/// How the arrivals of a rate are spaced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Spacing {
    /// Independent exponential gaps: a Poisson process, inhomogeneous where the rate changes.
    #[default]
    Poisson,
    /// Equal gaps on the axis of expected requests.
    Even,
}

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
}

impl ArrivalProcess {
    /// The mean rate of an open loop over the whole of it, requests per second; `None` of a closed loop, whose rate the
    /// service decides. The process must have been checked.
    pub fn mean_rate_per_s(&self) -> Option<f64> {
        match self {
            Self::Series { rates_per_s, .. } => {
                Some(rates_per_s.iter().sum::<f64>() / rates_per_s.len() as f64)
            }
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
            Self::Sessions { .. } => None,
        }
    }

    /// How long it lasts by itself, seconds; `None` where it goes on.
    pub fn length_s(&self) -> Option<f64> {
        match self {
            Self::Series {
                rates_per_s, hold_s, ..
            } => Some(rates_per_s.len() as f64 * hold_s),
            _ => None,
        }
    }

    /// Checks the process; `key` is where it stands.
    ///
    /// # Errors
    /// [`ScenarioError`] with the key.
    pub fn check(&self, key: &str) -> Result<(), ScenarioError> {
        let bad = |field: &str, value: String, rule: &str| {
            Err(ScenarioError::new(
                format!("{key}.{field}"),
                format!("is {value}: it must be {rule}"),
            ))
        };
        let is_rate = |rate: f64| (0.0..=1e9).contains(&rate);
        match self {
            Self::Series {
                rates_per_s, hold_s, ..
            } => {
                if rates_per_s.is_empty() || rates_per_s.len() > MOST_VALUES {
                    return bad(
                        "rates_per_s",
                        format!("{} values", rates_per_s.len()),
                        "1 to 100000000 values",
                    );
                }
                if let Some(at) = rates_per_s.iter().position(|rate| !is_rate(*rate)) {
                    let value = format!("{} at value {}", rates_per_s[at], at + 1);
                    return bad("rates_per_s", value, "0 to 1e9 requests per second");
                }
                if !(*hold_s > 0.0 && *hold_s <= 1e6) {
                    return bad(
                        "hold_s",
                        hold_s.to_string(),
                        "above 0 and at most 1000000 seconds",
                    );
                }
                Ok(())
            }
            Self::Poisson { rate_per_s } | Self::Even { rate_per_s } => {
                if !(is_rate(*rate_per_s) && *rate_per_s > 0.0) {
                    return bad(
                        "rate_per_s",
                        rate_per_s.to_string(),
                        "above 0 and at most 1e9 requests per second",
                    );
                }
                Ok(())
            }
            Self::Mmpp {
                rates_per_s,
                transitions_per_s,
            } => {
                let states = rates_per_s.len();
                if !(2..=MOST_STATES).contains(&states) {
                    return bad(
                        "rates_per_s",
                        format!("{states} states"),
                        "2 to 64 states (one is kind = \"poisson\")",
                    );
                }
                if let Some(rate) = rates_per_s.iter().find(|rate| !is_rate(**rate)) {
                    return bad("rates_per_s", rate.to_string(), "0 to 1e9 requests per second");
                }
                if transitions_per_s.len() != states
                    || transitions_per_s.iter().any(|row| row.len() != states)
                {
                    let shape = format!("not {states} rows of {states}");
                    return bad(
                        "transitions_per_s",
                        shape,
                        "a row for each state, with a value for each state",
                    );
                }
                if let Some(rate) = transitions_per_s
                    .iter()
                    .flatten()
                    .find(|rate| !(0.0..=1e9).contains(*rate))
                {
                    return bad("transitions_per_s", rate.to_string(), "0 to 1e9 per second");
                }
                let leaves =
                    |state: usize| (0..states).any(|to| to != state && transitions_per_s[state][to] > 0.0);
                if let Some(state) = (0..states).find(|state| !leaves(*state)) {
                    let value = format!("all 0 in row {}", state + 1);
                    return bad(
                        "transitions_per_s",
                        value,
                        "such that every state is left some time",
                    );
                }
                if !stationary(transitions_per_s)
                    .iter()
                    .all(|share| share.is_finite())
                {
                    return bad(
                        "transitions_per_s",
                        "a chain that falls apart".into(),
                        "such that every state is reached",
                    );
                }
                Ok(())
            }
            Self::Sessions {
                users,
                think_s,
                think,
            } => {
                if !(1..=MOST_USERS).contains(users) {
                    return bad("users", users.to_string(), "1 to 1000000");
                }
                if !(*think_s > 0.0 && *think_s <= 1e6) {
                    return bad(
                        "think_s",
                        think_s.to_string(),
                        "above 0 and at most 1000000 seconds",
                    );
                }
                think.check(&format!("{key}.think"))
            }
        }
    }
}

/// The stationary distribution of a Markov chain, by elimination without subtractions (W. Grassmann, M. Taksar, D. Heyman,
/// 1985), which loses no precision; not finite where the chain is reducible.
fn stationary(rates: &[Vec<f64>]) -> Vec<f64> {
    let states = rates.len();
    let mut rates = rates.to_vec();
    for last in (1..states).rev() {
        let leaving: f64 = rates[last][..last].iter().sum();
        for from in 0..last {
            rates[from][last] /= leaving;
            for to in 0..last {
                if to != from {
                    rates[from][to] += rates[from][last] * rates[last][to];
                }
            }
        }
    }
    let mut shares = vec![1.0; states];
    for state in 1..states {
        shares[state] = (0..state).map(|from| shares[from] * rates[from][state]).sum();
    }
    let sum: f64 = shares.iter().sum();
    shares.iter().map(|share| share / sum).collect()
}

/// The arrivals of a run: the next one is asked for, taken, and so on.
#[derive(Clone, Debug)]
pub(crate) enum Arrivals {
    Open(Open),
    Closed(Closed),
}

impl Arrivals {
    pub(crate) fn new(process: &ArrivalProcess, size: &Shape, size_s: f64, seed: u64) -> Self {
        match process {
            ArrivalProcess::Sessions {
                users,
                think_s,
                think,
            } => Self::Closed(Closed::new(
                *users,
                think.scaled(*think_s),
                size.scaled(size_s),
                seed,
            )),
            open => Self::Open(Open {
                process: match open {
                    ArrivalProcess::Series {
                        rates_per_s,
                        hold_s,
                        spacing,
                    } => Process::Series(Series::new(rates_per_s.clone(), *hold_s, *spacing)),
                    ArrivalProcess::Mmpp {
                        rates_per_s,
                        transitions_per_s,
                    } => Process::Mmpp(Mmpp::new(rates_per_s.clone(), transitions_per_s.clone())),
                    ArrivalProcess::Even { rate_per_s } => Process::Even {
                        gap_s: 1.0 / rate_per_s,
                    },
                    ArrivalProcess::Poisson { rate_per_s } => Process::Poisson {
                        mean_s: 1.0 / rate_per_s,
                    },
                    ArrivalProcess::Sessions { .. } => unreachable!("matched above"),
                },
                now_s: 0.0,
                times: Rng::new(seed, Purpose::Arrivals),
                sizes: Rng::new(seed, Purpose::Sizes),
                size: size.scaled(size_s),
            }),
        }
    }

    /// When the next request arrives, by an absolute clock; infinity where none does any more. To be called once for
    /// each arrival of an open loop, in turn with [`Arrivals::take`].
    #[inline]
    pub(crate) fn next_s(&mut self) -> f64 {
        match self {
            Self::Open(open) => open.next_s(),
            Self::Closed(closed) => closed.thinking.first_key().unwrap_or(f64::INFINITY),
        }
    }

    /// The request that arrives now: its size, and its user.
    #[inline]
    pub(crate) fn take(&mut self) -> (f64, u32) {
        match self {
            Self::Open(open) => (open.size.sample(&mut open.sizes), 0),
            Self::Closed(closed) => closed.take(),
        }
    }

    /// A user's request has been answered, or has failed; whether that makes another arrival due.
    #[inline]
    pub(crate) fn answered(&mut self, now_s: f64, user: u32) -> bool {
        match self {
            Self::Open(_) => false,
            Self::Closed(closed) => {
                closed.think(now_s, user);
                true
            }
        }
    }
}

/// An open loop.
#[derive(Clone, Debug)]
pub(crate) struct Open {
    process: Process,
    now_s: f64,
    times: Rng,
    sizes: Rng,
    size: Sampler,
}

#[derive(Clone, Debug)]
enum Process {
    Poisson { mean_s: f64 },
    Even { gap_s: f64 },
    Series(Series),
    Mmpp(Mmpp),
}

impl Open {
    #[inline]
    fn next_s(&mut self) -> f64 {
        match &mut self.process {
            Process::Poisson { mean_s } => self.now_s += *mean_s * self.times.exponential(),
            Process::Even { gap_s } => {
                // The first after half a gap, so that n expected requests are n arrivals.
                self.now_s += if self.now_s == 0.0 { *gap_s / 2.0 } else { *gap_s };
            }
            Process::Series(series) => self.now_s = series.next_s(self.now_s, &mut self.times),
            Process::Mmpp(mmpp) => self.now_s = mmpp.next_s(self.now_s, &mut self.times),
        }
        self.now_s
    }
}

/// Time is rescaled: on the axis of expected requests the process has rate 1, so that exponential gaps there are exactly
/// the inhomogeneous Poisson process of the series on the clock, and gaps of 1 the even spacing.
#[derive(Clone, Debug)]
struct Series {
    rates_per_s: Vec<f64>,
    hold_s: f64,
    spacing: Spacing,
    index: usize,
    begun: bool,
}

impl Series {
    fn new(rates_per_s: Vec<f64>, hold_s: f64, spacing: Spacing) -> Self {
        Self {
            rates_per_s,
            hold_s,
            spacing,
            index: 0,
            begun: false,
        }
    }

    fn next_s(&mut self, mut now_s: f64, rng: &mut Rng) -> f64 {
        let mut gap = match self.spacing {
            Spacing::Poisson => rng.exponential(),
            Spacing::Even if self.begun => 1.0,
            Spacing::Even => 0.5,
        };
        self.begun = true;
        while let Some(rate) = self.rates_per_s.get(self.index) {
            let end_s = (self.index + 1) as f64 * self.hold_s;
            let expected = rate * (end_s - now_s);
            if gap < expected {
                return now_s + gap / rate;
            }
            gap -= expected;
            now_s = end_s;
            self.index += 1;
        }
        f64::INFINITY
    }
}

/// Competing exponentials: in each state the next event is an arrival or a transition.
#[derive(Clone, Debug)]
struct Mmpp {
    rates_per_s: Vec<f64>,
    transitions_per_s: Vec<Vec<f64>>,
    state: usize,
}

impl Mmpp {
    fn new(rates_per_s: Vec<f64>, mut transitions_per_s: Vec<Vec<f64>>) -> Self {
        for (state, row) in transitions_per_s.iter_mut().enumerate() {
            row[state] = 0.0;
        }
        Self {
            rates_per_s,
            transitions_per_s,
            state: 0,
        }
    }

    fn next_s(&mut self, mut now_s: f64, rng: &mut Rng) -> f64 {
        loop {
            let rate = self.rates_per_s[self.state];
            let row = &self.transitions_per_s[self.state];
            let total = rate + row.iter().sum::<f64>();
            now_s += rng.exponential() / total;
            let mut chosen = rng.uniform() * total - rate;
            if chosen < 0.0 {
                return now_s;
            }
            for (to, rate) in row.iter().enumerate() {
                chosen -= rate;
                if *rate > 0.0 {
                    self.state = to;
                    if chosen < 0.0 {
                        break;
                    }
                }
            }
        }
    }
}

/// A closed loop: users who think, each with a random stream of their own, so that what one draws never depends on the
/// order in which others were answered.
#[derive(Clone, Debug)]
pub(crate) struct Closed {
    thinking: Heap<u32>,
    users: Vec<Rng>,
    think: Sampler,
    size: Sampler,
}

impl Closed {
    fn new(users: u32, think: Sampler, size: Sampler, seed: u64) -> Self {
        let mut closed = Self {
            thinking: Heap::new(),
            users: (0..users).map(|user| Rng::of_user(seed, user)).collect(),
            think,
            size,
        };
        for user in 0..users {
            closed.think(0.0, user);
        }
        closed
    }

    fn think(&mut self, now_s: f64, user: u32) {
        let length_s = self.think.sample(&mut self.users[user as usize]);
        self.thinking.push(now_s + length_s, user);
    }

    fn take(&mut self) -> (f64, u32) {
        // Called only when somebody's thinking ends, so there is somebody.
        let (_, user) = self.thinking.pop().unwrap_or((0.0, 0));
        (self.size.sample(&mut self.users[user as usize]), user)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(process: &ArrivalProcess, until_s: f64) -> Vec<f64> {
        process.check("arrivals").unwrap();
        let mut arrivals = Arrivals::new(process, &Shape::Exponential {}, 1.0, 5);
        std::iter::from_fn(|| Some(arrivals.next_s()))
            .take_while(|at| *at < until_s)
            .collect()
    }

    #[test]
    fn a_series_has_its_rates_and_ends() {
        let process = ArrivalProcess::Series {
            rates_per_s: vec![100.0, 0.0, 1000.0],
            hold_s: 100.0,
            spacing: Spacing::Poisson,
        };
        let all = times(&process, f64::INFINITY);
        let within = |from: f64, to: f64| all.iter().filter(|at| (from..to).contains(*at)).count();
        assert!((9_600..10_400).contains(&within(0.0, 100.0)));
        assert_eq!(within(100.0, 200.0), 0);
        assert!((98_700..101_300).contains(&within(200.0, 300.0)));
        let even = ArrivalProcess::Series {
            rates_per_s: vec![2.0, 4.0],
            hold_s: 1.0,
            spacing: Spacing::Even,
        };
        assert_eq!(
            times(&even, f64::INFINITY),
            [0.25, 0.75, 1.125, 1.375, 1.625, 1.875]
        );
        assert_eq!(
            times(&ArrivalProcess::Even { rate_per_s: 2.0 }, 2.0),
            [0.25, 0.75, 1.25, 1.75]
        );
    }

    #[test]
    fn an_mmpp_has_its_mean_rate_and_is_burstier_than_poisson() {
        let process = ArrivalProcess::Mmpp {
            rates_per_s: vec![10.0, 100.0, 0.0],
            transitions_per_s: vec![vec![0.0, 0.1, 0.1], vec![1.0, 0.0, 0.0], vec![0.5, 0.5, 9.0]],
        };
        let mean = process.mean_rate_per_s().unwrap();
        // Balance by hand: 0.2 a = b + 0.5 c, b = 0.1 a + 0.5 c, c = 0.1 a.
        let (a, b, c) = (1.0, 0.15, 0.1);
        assert!(
            (mean - (10.0 * a + 100.0 * b) / (a + b + c)).abs() < 1e-9,
            "{mean}"
        );
        let length_s = 200_000.0;
        let all = times(&process, length_s);
        assert!((all.len() as f64 / length_s / mean - 1.0).abs() < 0.02);
        let mut counts = vec![0.0; length_s as usize];
        for at in &all {
            counts[*at as usize] += 1.0;
        }
        let mean_count = all.len() as f64 / length_s;
        let variance = counts
            .iter()
            .map(|count: &f64| (count - mean_count).powi(2))
            .sum::<f64>()
            / length_s;
        assert!(
            variance / mean_count > 5.0,
            "index of dispersion {}",
            variance / mean_count
        );
    }

    #[test]
    fn processes_that_are_none_are_named() {
        let cases = [
            (
                ArrivalProcess::Poisson { rate_per_s: -1.0 },
                "arrivals.rate_per_s: is -1",
            ),
            (
                ArrivalProcess::Series {
                    rates_per_s: vec![1.0, f64::NAN],
                    hold_s: 1.0,
                    spacing: Spacing::Even,
                },
                "arrivals.rates_per_s: is NaN at value 2",
            ),
            (
                ArrivalProcess::Series {
                    rates_per_s: vec![1.0],
                    hold_s: -10.0,
                    spacing: Spacing::Even,
                },
                "arrivals.hold_s: is -10",
            ),
            (
                ArrivalProcess::Mmpp {
                    rates_per_s: vec![1.0, 2.0],
                    transitions_per_s: vec![vec![0.0, 1.0]],
                },
                "arrivals.transitions_per_s: is not 2 rows of 2",
            ),
            (
                ArrivalProcess::Mmpp {
                    rates_per_s: vec![1.0, 2.0],
                    transitions_per_s: vec![vec![0.0, 1.0], vec![0.0, 5.0]],
                },
                "arrivals.transitions_per_s: is all 0 in row 2",
            ),
            (
                ArrivalProcess::Sessions {
                    users: 0,
                    think_s: 1.0,
                    think: Shape::Exponential {},
                },
                "arrivals.users: is 0",
            ),
        ];
        for (process, expected) in cases {
            let error = process.check("arrivals").unwrap_err().to_string();
            assert!(error.starts_with(expected), "{error}");
        }
    }
}
