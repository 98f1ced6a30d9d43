//! The sessions that are bound to each server: who leaves with few of them cuts few.

/// The weight of a period: bursts of requests are no sessions.
const WEIGHT: f64 = 1.0 / 30.0;
/// Servers are told apart whose sessions differ by so many times: what differs by less is chance, and all are to wear alike.
const STEP: f64 = 4.0;

/// The mean over the last periods, of those of which it is known.
#[derive(Clone, Debug, Default)]
pub(super) struct Bound(Vec<Option<f64>>);

impl Bound {
    /// Takes what each server has, in their order.
    pub(super) fn observe(&mut self, sessions: &[Option<u64>]) {
        self.0.resize(sessions.len(), None);
        for (mean, now) in self.0.iter_mut().zip(sessions) {
            *mean = now.map(|now| {
                let before = mean.unwrap_or(now as f64);
                before + WEIGHT * (now as f64 - before)
            });
        }
    }

    /// How many a server has, in steps; those of which nothing is known have none.
    pub(super) fn steps(&self, server: usize) -> i64 {
        let mean = self.0.get(server).copied().flatten().unwrap_or(0.0);
        ((1.0 + mean).ln() / STEP.ln()).round() as i64
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
        assert_eq!(steps[0], steps[1]);
        assert!(steps[2] > steps[0] && steps[0] > 0, "{steps:?}");
        assert_eq!(steps[3..], [0, 0]);
        // Of one that was away nothing is known.
        bound.observe(&[None, Some(12), Some(200), None]);
        assert_eq!(bound.steps(0), 0);
    }
}
