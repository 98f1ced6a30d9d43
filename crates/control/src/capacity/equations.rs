//! Equations 1 to 5 of the capacity paper, alone: numbers in, numbers out.
//!
//! Rates are per second, queue lengths in connections. Where the paper leaves a case open, the doc comment says what is
//! done here.

use headroom_units::{PerSecond, Ratio, Seconds};

/// t_f of Equation 1: the time in which arrivals at the peak rate fill an empty queue of `limit` places (K) that is
/// emptied at the capacity; `None` where the peak does not exceed it, for then it never fills.
pub fn fill_time(limit: f64, peak: PerSecond, capacity: PerSecond) -> Option<Seconds> {
    let excess = peak - capacity;
    (excess > PerSecond::ZERO).then(|| Seconds::new(limit / excess.get()))
}

/// l_th of Equation 2: the least average queue length with which the queue can overflow within a step of length T.
///
/// Where t_f is undefined it is K, the limit of the second case as the peak falls to the capacity: nothing but a full
/// queue is then near overflowing.
pub fn threshold(limit: f64, peak: PerSecond, capacity: PerSecond, step: Seconds) -> f64 {
    match fill_time(limit, peak, capacity) {
        None => limit,
        Some(fill) if fill <= step => {
            let at_peak = peak * fill;
            limit / 2.0 * at_peak / (capacity * (step - fill) + at_peak)
        }
        Some(_) => ((limit - (peak - capacity) * step) + limit) / 2.0,
    }
}

/// The predicted average queue length of Equation 3: that of now, grown at `growth_per_s` for the forecast time T_c. Not
/// below 0, for no queue is.
pub fn predicted(mean: f64, growth_per_s: f64, forecast: Seconds) -> f64 {
    (mean + growth_per_s * forecast.get()).max(0.0)
}

/// What the indicator I of Equation 4 finds wrong with an estimate; Equation 4 itself has 1 for the first two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Indicator {
    /// Both queue lengths reach the threshold, and the estimate exceeds the service rate.
    Optimistic,
    /// Both queue lengths are below the threshold, and the service rate exceeds the estimate.
    Pessimistic,
    /// Neither (I = 0).
    Fits,
}

/// I of Equation 4, for the average and the predicted queue length.
pub fn indicator(
    mean: f64,
    predicted: f64,
    threshold: f64,
    capacity: PerSecond,
    service_rate: PerSecond,
) -> Indicator {
    if mean.min(predicted) >= threshold && capacity > service_rate {
        Indicator::Optimistic
    } else if mean.max(predicted) < threshold && capacity < service_rate {
        Indicator::Pessimistic
    } else {
        Indicator::Fits
    }
}

/// c' of Equation 5: the service rate where the drop ratio reaches its threshold; else, where the indicator is set, the
/// estimate moved towards the service rate, keeping the share α of itself; else the estimate.
pub fn adapted(
    capacity: PerSecond,
    service_rate: PerSecond,
    violated: bool,
    indicator: Indicator,
    keep: Ratio,
) -> PerSecond {
    match (violated, indicator) {
        (true, _) => service_rate,
        (false, Indicator::Fits) => capacity,
        (false, Indicator::Optimistic | Indicator::Pessimistic) => {
            capacity * keep.get() + service_rate * (1.0 - keep.get())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const fn rate(value: f64) -> PerSecond {
        PerSecond::new(value)
    }

    fn near(left: f64, right: f64) -> bool {
        (left - right).abs() <= 1e-9 * right.abs().max(1.0)
    }

    #[test]
    fn equation_1_by_hand() {
        // 128 places, 640 above capacity: a fifth of a second.
        assert_eq!(
            fill_time(128.0, rate(1_235.0), rate(595.0)),
            Some(Seconds::new(0.2))
        );
        assert_eq!(fill_time(128.0, rate(595.0), rate(595.0)), None);
        assert_eq!(fill_time(128.0, rate(100.0), rate(595.0)), None);
    }

    #[test]
    fn equation_2_by_hand() {
        // t_f = 0.2 s <= T = 1 s: 64 * 247 / (595 * 0.8 + 247) = 15808 / 723.
        let short = threshold(128.0, rate(1_235.0), rate(595.0), Seconds::new(1.0));
        assert!(near(short, 15_808.0 / 723.0), "{short}");
        // 100 above capacity fills in 1.28 s > T: from 28 to 128 in the step, 78 on average.
        assert!(near(
            threshold(128.0, rate(695.0), rate(595.0), Seconds::new(1.0)),
            78.0
        ));
        // Never fills: only a full queue is near overflowing.
        assert_eq!(
            threshold(128.0, rate(500.0), rate(595.0), Seconds::new(1.0)),
            128.0
        );
    }

    #[test]
    fn equation_3_by_hand() {
        assert_eq!(predicted(10.0, 0.5, Seconds::new(60.0)), 40.0);
        assert_eq!(predicted(10.0, -0.5, Seconds::new(60.0)), 0.0);
    }

    #[test]
    fn equation_4_wants_both_lengths_on_one_side_and_the_estimate_on_the_other() {
        let at = |mean, predicted, capacity, service| {
            indicator(mean, predicted, 20.0, rate(capacity), rate(service))
        };
        assert_eq!(at(20.0, 25.0, 600.0, 590.0), Indicator::Optimistic);
        assert_eq!(at(19.9, 25.0, 600.0, 590.0), Indicator::Fits);
        assert_eq!(at(25.0, 25.0, 590.0, 590.0), Indicator::Fits);
        assert_eq!(at(19.0, 19.9, 590.0, 600.0), Indicator::Pessimistic);
        assert_eq!(at(19.0, 20.0, 590.0, 600.0), Indicator::Fits);
        assert_eq!(at(25.0, 25.0, 590.0, 600.0), Indicator::Fits);
    }

    #[test]
    fn equation_5_by_hand() {
        let keep = Ratio::new(0.9);
        let to = |violated, indicator| adapted(rate(700.0), rate(600.0), violated, indicator, keep).get();
        assert_eq!(to(true, Indicator::Pessimistic), 600.0);
        assert!(near(to(false, Indicator::Optimistic), 690.0));
        assert_eq!(to(false, Indicator::Fits), 700.0);
    }

    proptest! {
        /// The threshold lies between nothing and a full queue, and its two cases meet at t_f = T.
        #[test]
        fn the_threshold_is_a_queue_length(
            limit in 1.0..65_535.0f64, peak in 0.0..1e5f64, capacity in 0.0..1e5f64, step in 0.01..60.0f64,
        ) {
            let found = threshold(limit, rate(peak), rate(capacity), Seconds::new(step));
            prop_assert!(found > 0.0 && found <= limit * (1.0 + 1e-12), "{found} of {limit}");
            let meeting = rate(capacity + limit / step);
            let (below, above) = (meeting * (1.0 - 1e-9), meeting * (1.0 + 1e-9));
            let jump = threshold(limit, below, rate(capacity), Seconds::new(step))
                - threshold(limit, above, rate(capacity), Seconds::new(step));
            prop_assert!(jump.abs() <= 1e-3 * limit, "{jump} of {limit}");
        }

        /// A higher peak never makes overflow harder.
        #[test]
        fn the_threshold_falls_as_the_peak_rises(
            limit in 1.0..4_096.0f64, peak in 0.0..1e4f64, more in 0.0..1e4f64, capacity in 1.0..1e4f64,
        ) {
            let at = |peak| threshold(limit, rate(peak), rate(capacity), Seconds::new(1.0));
            prop_assert!(at(peak + more) <= at(peak) * (1.0 + 1e-9));
        }

        /// Equation 5 ends between the estimate and the service rate.
        #[test]
        fn an_adapted_estimate_is_no_further_than_the_service_rate(
            capacity in 0.0..1e5f64, service in 0.0..1e5f64, keep in 0.0..1.0f64, violated: bool, which in 0..3usize,
        ) {
            let which = [Indicator::Optimistic, Indicator::Pessimistic, Indicator::Fits][which];
            let found = adapted(rate(capacity), rate(service), violated, which, Ratio::new(keep)).get();
            let (low, high) = (capacity.min(service), capacity.max(service));
            prop_assert!(found >= low - 1e-6 && found <= high + 1e-6);
        }
    }
}
