//! The sessions that are bound to each server: who leaves with few of them cuts few.

/// The weight of a period: bursts of requests are no sessions.
const WEIGHT: f64 = 1.0 / 30.0;
/// Servers are told apart whose sessions differ by so many times: what differs by less is chance, and all are to wear alike.
const STEP: f64 = 4.0;

/// The mean over the last periods, of those of which it is known.
#[derive(Clone, Debug, Default)]
pub(super) struct Bound {
    means: Vec<Option<f64>>,
    steps: Vec<i64>,
}

impl Bound {
    /// Takes what each server has, in their order.
    pub(super) fn observe(&mut self, sessions: &[Option<u64>]) {
        self.means.resize(sessions.len(), None);
        for (mean, now) in self.means.iter_mut().zip(sessions) {
            *mean = now.map(|now| {
                let before = mean.unwrap_or(now as f64);
                before + WEIGHT * (now as f64 - before)
            });
        }
        // Those of a step have at most that many times what the first of it has: where steps begin is told by the servers, so that equal
        // ones are of one.
        let mut order: Vec<(usize, f64)> = (0..self.means.len())
            .filter_map(|at| Some((at, 1.0 + self.means[at]?)))
            .collect();
        order.sort_by(|(_, one), (_, other)| one.total_cmp(other));
        self.steps = vec![0; self.means.len()];
        let (mut step, mut first) = (0, order.first().map_or(1.0, |(_, sessions)| *sessions));
        for (at, sessions) in order {
            if sessions > STEP * first {
                (step, first) = (step + 1, sessions);
            }
            self.steps[at] = step;
        }
    }

    /// How many a server has, in steps; those of which nothing is known are of the lowest.
    pub(super) fn steps(&self, server: usize) -> i64 {
        self.steps.get(server).copied().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chance_tells_nobody_apart_and_sessions_do() {
        let mut bound = Bound::default();
        for period in 0..600 {
            let noise = period % 3;
            bound.observe(&[Some(10 + noise), Some(14 - noise), Some(200 + noise), None]);
        }
        let steps: Vec<i64> = (0..5).map(|at| bound.steps(at)).collect();
        assert_eq!(steps, [0, 0, 1, 0, 0]);
        // Wherever they are, equal ones are told apart by nothing.
        for mean in 0..100_u64 {
            let mut equal = Bound::default();
            equal.observe(&[Some(mean), Some(mean + 1), Some(5 * mean + 8)]);
            let steps: Vec<i64> = (0..3).map(|at| equal.steps(at)).collect();
            assert_eq!(steps, [0, 0, 1], "{mean}");
        }
        // Of one that was away nothing is known.
        bound.observe(&[None, Some(12), Some(200), None]);
        assert_eq!(bound.steps(0), 0);
    }
}
