//! The requests of a recorded run, for the simulator.

use headroom_record::PeriodRecord;
use headroom_workload::random::{Draw, Purpose, Rng};

/// When the requests of a run arrived: as many in each period as were counted in it, at instants drawn evenly over it.
/// That is how those of a Poisson process lie, given their number. Seconds from the start of the run, ascending.
pub fn recorded_arrivals(periods: &[PeriodRecord], seed: u64) -> Vec<f64> {
    let mut rng = Rng::new(seed, Purpose::Arrivals);
    let mut all = Vec::new();
    for period in periods {
        let first = all.len();
        let (at_s, length_s) = (period.at.get(), period.duration.get());
        all.extend((0..period.arrivals).map(|_| at_s + length_s * rng.uniform()));
        all[first..].sort_by(f64::total_cmp);
    }
    // Periods follow each other; roundings of their starts must not bring them out of order.
    for at in 1..all.len() {
        all[at] = f64::max(all[at], all[at - 1]);
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use headroom_units::{Cores, Seconds};

    #[test]
    fn each_period_has_its_requests_somewhere_in_it() {
        let period = |index: u64, at: f64, length: f64, arrivals: u64| PeriodRecord {
            arrivals,
            ..PeriodRecord::new(index, Seconds::new(at), Seconds::new(length), Cores::new(2.0))
        };
        let periods = [
            period(0, 0.0, 0.5, 40),
            period(1, 0.5, 0.52, 0),
            period(2, 1.02, 0.48, 300),
        ];
        let all = recorded_arrivals(&periods, 1);
        assert!(all.is_sorted());
        let within = |from: f64, to: f64| all.iter().filter(|at| (from..to).contains(*at)).count();
        assert_eq!(
            [within(0.0, 0.5), within(0.5, 1.02), within(1.02, 1.5)],
            [40, 0, 300]
        );
        // Evenly: each third of the last period has about a third of them.
        for third in 0..3 {
            let from = 1.02 + 0.16 * f64::from(third);
            assert!((70..130).contains(&within(from, from + 0.16)));
        }
        assert_eq!(recorded_arrivals(&periods, 1), all);
        assert_ne!(recorded_arrivals(&periods, 2), all);
    }
}
