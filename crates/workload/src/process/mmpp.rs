//! The Markov-modulated Poisson process.

use crate::random::Draw;

/// Competing exponentials: in each state the next event is an arrival or a transition.
#[derive(Clone, Debug)]
pub(super) struct Mmpp {
    rates_per_s: Vec<f64>,
    transitions_per_s: Vec<Vec<f64>>,
    state: usize,
}

impl Mmpp {
    pub(super) fn new(rates_per_s: Vec<f64>, mut transitions_per_s: Vec<Vec<f64>>) -> Self {
        for (state, row) in transitions_per_s.iter_mut().enumerate() {
            row[state] = 0.0;
        }
        Self {
            rates_per_s,
            transitions_per_s,
            state: 0,
        }
    }

    /// When the next request arrives, after `now_s`, both in seconds.
    pub(super) fn next_s(&mut self, mut now_s: f64, rng: &mut impl Draw) -> f64 {
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

/// The stationary distribution of a Markov chain, by elimination without subtractions (W. Grassmann, M. Taksar, D. Heyman,
/// 1985), which loses no precision; not finite where the chain is reducible.
pub(super) fn stationary(rates: &[Vec<f64>]) -> Vec<f64> {
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
