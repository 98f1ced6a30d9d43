//! The latencies of a connection that a policy is given.

use headroom_control::oncall::tail::Disengagement;
use headroom_units::{Ratio, Seconds};

/// The last latencies that are kept of a connection: as many as the live runtime and AppleS keep.
pub(super) const KEPT: usize = 128;
/// Fewer have no coefficient of variation.
const MIN_FOR_CV: usize = 16;

/// The last latencies of a connection, and sums over a period's.
#[derive(Clone, Debug, Default)]
pub(super) struct Recent {
    kept_s: Vec<f32>,
    next: usize,
    queries: u64,
    sum_s: f64,
}

impl Recent {
    pub(super) fn record(&mut self, latency_s: f64) {
        self.queries += 1;
        self.sum_s += latency_s;
        match self.kept_s.len() < KEPT {
            true => self.kept_s.push(latency_s as f32),
            false => self.kept_s[self.next] = latency_s as f32,
        }
        self.next = (self.next + 1) % KEPT;
    }

    /// Queries of the period and their mean; forgets them, but not the last latencies.
    pub(super) fn take(&mut self) -> (u64, Option<Seconds>) {
        let (queries, sum_s) = (std::mem::take(&mut self.queries), std::mem::take(&mut self.sum_s));
        let mean = (queries > 0).then(|| Seconds::new(sum_s / queries as f64));
        (queries, mean)
    }

    /// The last latencies, seconds, in no order.
    pub(super) fn kept_s(&self) -> &[f32] {
        &self.kept_s
    }

    /// Their standard deviation over their mean, where they are enough.
    pub(super) fn cv(&self) -> Option<Ratio> {
        let count = self.kept_s.len() as f64;
        if self.kept_s.len() < MIN_FOR_CV {
            return None;
        }
        let values = || self.kept_s.iter().map(|value| f64::from(*value));
        let mean = values().sum::<f64>() / count;
        let variance = values().map(|value| (value - mean).powi(2)).sum::<f64>() / count;
        (mean > 0.0).then(|| Ratio::new(variance.sqrt() / mean))
    }

    /// The share of them above a target; zero of none.
    pub(super) fn above(&self, target_s: f64) -> Ratio {
        let above = self
            .kept_s
            .iter()
            .filter(|value| f64::from(**value) > target_s)
            .count();
        Ratio::new(above as f64 / self.kept_s.len().max(1) as f64)
    }

    /// The mean of a disengagement function of them; zero of none.
    pub(super) fn disengaged(&self, of: &Disengagement) -> Ratio {
        let sum: f64 = self
            .kept_s
            .iter()
            .map(|value| of.at(Seconds::new(f64::from(*value))).get())
            .sum();
        Ratio::new(sum / self.kept_s.len().max(1) as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_are_kept_and_a_period_is_forgotten() {
        let mut recent = Recent::default();
        assert_eq!((recent.take(), recent.cv()), ((0, None), None));
        (0..KEPT + 64).for_each(|number| recent.record(if number < 128 { 1.0 } else { 3.0 }));
        assert_eq!(recent.kept_s().len(), KEPT);
        assert_eq!(recent.above(2.0).get(), 0.5);
        assert!((recent.cv().unwrap().get() - 0.5).abs() < 1e-9);
        assert_eq!(recent.take().0, 192);
        assert_eq!((recent.take().0, recent.above(2.0).get()), (0, 0.5));
        let steps = [(1.0, 0.0), (3.0, 0.1)].map(|(at, share)| (Seconds::new(at), Ratio::new(share)));
        let disengagement = Disengagement::new(steps.to_vec()).unwrap();
        assert!((recent.disengaged(&disengagement).get() - 0.05).abs() < 1e-9);
    }
}
