//! The processes at work.

use super::browsing::Readers;
use super::{ArrivalProcess, Spacing};
use crate::distribution::{Sampler, Shape};
use crate::heap::Heap;
use crate::random::{Purpose, Rng};

/// The arrivals of a run: the next one is asked for, taken, and so on.
#[derive(Clone, Debug)]
pub(crate) enum Arrivals {
    Open(Open),
    Closed(Closed),
    Readers(Box<Readers>),
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
            ArrivalProcess::Browsing(browsing) => {
                Self::Readers(Box::new(Readers::new(browsing, size.scaled(size_s), seed)))
            }
            open => Self::Open(Open {
                process: match open {
                    ArrivalProcess::Series {
                        rates_per_s,
                        hold_s,
                        spacing,
                    } => Process::Series(Series::new(rates_per_s.clone(), *hold_s, *spacing)),
                    ArrivalProcess::Times { at_s } => Process::Times(at_s.clone().into_iter()),
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
                    ArrivalProcess::Sessions { .. } | ArrivalProcess::Browsing(_) => {
                        unreachable!("matched above")
                    }
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
            Self::Readers(readers) => readers.next_s(),
        }
    }

    /// The request that arrives now: its size, and its user.
    #[inline]
    pub(crate) fn take(&mut self) -> (f64, u32) {
        match self {
            Self::Open(open) => (open.size.sample(&mut open.sizes), 0),
            Self::Closed(closed) => closed.take(),
            Self::Readers(readers) => readers.take(),
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
            Self::Readers(readers) => {
                readers.answered(now_s, user);
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
    Times(std::vec::IntoIter<f64>),
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
            Process::Times(times) => self.now_s = times.next().unwrap_or(f64::INFINITY),
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
