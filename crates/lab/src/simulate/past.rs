//! A trace as the load that was recorded before a run.

use headroom_control::LoadHistory;
use headroom_units::{PerSecond, Seconds};
use headroom_workload::{Arrivals, Spacing, Trace};
use std::sync::Arc;

/// What a record has of a trace: the requests of each period, as they were counted.
pub fn recorded_load(trace: &Arc<Trace>, spacing: Spacing, seed: u64, period: Seconds) -> LoadHistory {
    let mut history = LoadHistory::new(period);
    let periods = (trace.duration() / period).floor() as usize;
    let mut counts = vec![0_u64; periods];
    for at in Arrivals::new(Arc::clone(trace), spacing, seed) {
        if let Some(count) = counts.get_mut((at / period) as usize) {
            *count += 1;
        }
    }
    for count in counts {
        history.push(Some(PerSecond::new(count as f64 / period.get())));
    }
    history
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_period_has_the_requests_that_came_in_it() {
        let rates = [10.0, 40.0].map(PerSecond::new).to_vec();
        let trace = Arc::new(Trace::new("t", Seconds::new(3.0), rates).unwrap());
        let even = recorded_load(&trace, Spacing::Even, 1, Seconds::new(1.5));
        let rates: Vec<f64> = even.rates().map(|rate| rate.unwrap().get().round()).collect();
        assert_eq!(rates, [10.0, 10.0, 40.0, 40.0]);
        let noisy = recorded_load(&trace, Spacing::Poisson, 1, Seconds::new(1.5));
        assert_ne!(noisy, even);
        assert_eq!(noisy.known(), trace.duration());
    }
}
