//! What REEF measures efficiency by: Table 2 and Equation 2 of the paper, as functions of what a run came to.
//!
//! Power is that of processors, memory and storage (Section 3.1), without the platform. Nothing is said of a run
//! without the figures that a measure needs: no power, no query, no time.
//!
//! ```
//! use headroom_physics::efficiency::{tail_efficiency, throughput_per_power};
//! use headroom_units::{PerSecond, Seconds, Watts};
//!
//! let (throughput, power) = (PerSecond::new(12_000.0), Watts::new(60.0));
//! assert_eq!(throughput_per_power(throughput, power), Some(200.0));
//! // A P99 of four times the mean.
//! let (mean, p99) = (Seconds::from_millis(10.0), Seconds::from_millis(40.0));
//! assert_eq!(tail_efficiency(throughput, power, mean, p99), Some(50.0));
//! ```

use headroom_units::{Cores, PerSecond, Ratio, Seconds, Watts};

fn finite(value: f64) -> Option<f64> {
    value.is_finite().then_some(value)
}

/// EE(TPP), queries per second and watt, which is queries per joule (Table 2). `None` without power.
pub fn throughput_per_power(throughput: PerSecond, power: Watts) -> Option<f64> {
    (power > Watts::ZERO)
        .then(|| throughput.get() / power.get())
        .and_then(finite)
}

/// EE(Px), queries per second and watt: EE(TPP) over the ratio of the tail to the mean, `TPP / (Px_tail / mean_latency)`
/// (Table 2). EE(P99) with the 99th percentile of the latency as `tail`, EE(P99.9) with the 99.9th. `None` without power or
/// without a latency.
pub fn tail_efficiency(throughput: PerSecond, power: Watts, mean: Seconds, tail: Seconds) -> Option<f64> {
    let per_power = throughput_per_power(throughput, power)?;
    (mean > Seconds::ZERO && tail > Seconds::ZERO)
        .then(|| per_power * (mean / tail))
        .and_then(finite)
}

/// The time of some cores, core-seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CoreTime {
    /// In idle periods longer than the threshold T.
    pub long_idle: Seconds,
    /// Idle, in periods of any length.
    pub idle: Seconds,
    /// Not idle: T_proc.
    pub busy: Seconds,
}

/// C6 opportunity as Equation 2 prints it: core-seconds in idle periods longer than T, over
/// `T_total = sum of all idle periods + T_proc / M`. `None` of no time.
///
/// It adds a sum over the cores to a mean of one, so that it exceeds [`long_idle_share`] on more than one busy core.
pub fn c6_opportunity(time: CoreTime, cores: Cores) -> Option<Ratio> {
    let total = time.idle + time.busy / cores.get();
    (total > Seconds::ZERO && cores > Cores::ZERO).then(|| Ratio::new(time.long_idle / total))
}

/// The share of the cores' time in idle periods longer than T: what deep idle states can have at most. `None` of no time.
pub fn long_idle_share(time: CoreTime) -> Option<Ratio> {
    let all = time.idle + time.busy;
    (all > Seconds::ZERO).then(|| Ratio::new(time.long_idle / all))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn time(long_idle: f64, idle: f64, busy: f64) -> CoreTime {
        CoreTime {
            long_idle: Seconds::new(long_idle),
            idle: Seconds::new(idle),
            busy: Seconds::new(busy),
        }
    }

    #[test]
    fn equation_2_adds_a_mean_to_a_sum() {
        // Four cores for one second, half idle, three quarters of that in long periods.
        let half = time(1.5, 2.0, 2.0);
        assert_eq!(c6_opportunity(half, Cores::new(4.0)), Some(Ratio::new(1.5 / 2.5)));
        assert_eq!(long_idle_share(half), Some(Ratio::new(0.375)));
        // With one core both are the same.
        let one = time(0.25, 0.5, 0.5);
        assert_eq!(c6_opportunity(one, Cores::new(1.0)), long_idle_share(one));
    }

    #[test]
    fn nothing_is_said_of_nothing() {
        let rate = PerSecond::new(100.0);
        assert_eq!(throughput_per_power(rate, Watts::ZERO), None);
        let (ms, watt) = (Seconds::from_millis(1.0), Watts::new(1.0));
        assert_eq!(tail_efficiency(rate, watt, ms, Seconds::ZERO), None);
        assert_eq!(tail_efficiency(rate, watt, Seconds::new(f64::NAN), ms), None);
        assert_eq!(c6_opportunity(time(0.0, 0.0, 0.0), Cores::new(2.0)), None);
        assert_eq!(c6_opportunity(time(0.0, 0.0, 1.0), Cores::ZERO), None);
        assert_eq!(long_idle_share(time(0.0, 0.0, 0.0)), None);
    }

    proptest! {
        #[test]
        fn a_share_is_at_most_the_opportunity_and_both_are_at_most_one(
            cores in 1_u32..256, idle in 0.0_f64..1.0, long in 0.0_f64..1.0, seconds in 0.1_f64..100.0,
        ) {
            let all = f64::from(cores) * seconds;
            let time = time(all * idle * long, all * idle, all * (1.0 - idle));
            let share = long_idle_share(time).unwrap().get();
            let opportunity = c6_opportunity(time, Cores::new(f64::from(cores))).unwrap().get();
            prop_assert!(share <= opportunity * (1.0 + 1e-9));
            prop_assert!((0.0..=1.0 + 1e-9).contains(&opportunity));
        }

        #[test]
        fn a_longer_tail_is_less_efficient_and_a_tail_of_the_mean_is_as_efficient_as_throughput(
            rate in 1.0_f64..1e6, watts in 1.0_f64..1e3, mean in 1e-6_f64..1.0, factor in 1.0_f64..1e3,
        ) {
            let (rate, watts) = (PerSecond::new(rate), Watts::new(watts));
            let of = |tail| tail_efficiency(rate, watts, Seconds::new(mean), Seconds::new(tail)).unwrap();
            let plain = throughput_per_power(rate, watts).unwrap();
            prop_assert!((of(mean) / plain - 1.0).abs() < 1e-9);
            prop_assert!((of(mean * factor) * factor / plain - 1.0).abs() < 1e-9);
        }
    }
}
