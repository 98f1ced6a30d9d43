//! The queueing model of the SLO-Power paper, as published.
//!
//! Equation 1 is E\[R\] = c / (cμ − λ). It is not the M/G/k processor-sharing queue that the paper names: it is c
//! independent M/G/1-PS cores under a random split, and overestimates the mean at many cores (10 against 1.37
//! service times at 16 cores and 90 % load). It stands here because the paper's law is a baseline that must stay
//! runnable. [`percentile`] has a percentile of the model that the paper names.

pub mod percentile;
pub(crate) mod transient;

use headroom_units::{Cores, PerSecond, Seconds};

/// No number of cores can bring the mean latency of Equation 1 down to the target: with ever more cores it falls
/// to 1/μ, and no further.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[error(
    "no number of cores can meet a target of {target_ms:.3} ms at a service rate of {service_rate_per_s:.3} \
     requests/s per core: one request alone takes {alone_ms:.3} ms (mu T = {product:.3}, must be above 1). Raise \
     the target, or correct the service rate"
)]
pub struct TargetOutOfReach {
    /// The target (guarded where the guard applies), in milliseconds.
    pub target_ms: f64,
    /// μ, in requests per second and core.
    pub service_rate_per_s: f64,
    /// 1/μ, in milliseconds.
    pub alone_ms: f64,
    /// μT.
    pub product: f64,
}

/// c of Equation 2: Tλ / (Tμ − 1); of Equation 3 where `target` is αT and `arrival_rate` the one forecast.
///
/// # Errors
/// [`TargetOutOfReach`] where μT ≤ 1.
pub fn cores_needed(
    arrival_rate: PerSecond,
    service_rate: PerSecond,
    target: Seconds,
) -> Result<Cores, TargetOutOfReach> {
    let product = service_rate.get() * target.get();
    if product > 1.0 {
        Ok(Cores::new(target.get() * arrival_rate.get() / (product - 1.0)))
    } else {
        Err(TargetOutOfReach {
            target_ms: target.as_millis(),
            service_rate_per_s: service_rate.get(),
            alone_ms: 1e3 / service_rate.get(),
            product,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_authors_check_value_is_11_cores() {
        let cores = cores_needed(PerSecond::new(41.0), PerSecond::new(9.0), Seconds::new(0.2)).unwrap();
        assert_eq!(cores.get().ceil(), 11.0);
    }

    #[test]
    fn a_target_below_one_service_time_is_refused_with_both_numbers() {
        let error = cores_needed(PerSecond::new(1.0), PerSecond::new(9.0), Seconds::new(0.1)).unwrap_err();
        let text = error.to_string();
        assert!(
            text.contains("100.000 ms") && text.contains("9.000 requests/s"),
            "{text}"
        );
    }

    proptest! {
        #[test]
        fn equation_2_inverts_equation_1(
            lambda in 0.1..1e4f64, mu in 1.0..1e3f64, target_over_alone in 1.01..100.0f64,
        ) {
            let target = Seconds::new(target_over_alone / mu);
            let cores = cores_needed(PerSecond::new(lambda), PerSecond::new(mu), target).unwrap();
            let latency_s = cores.get() / (cores.get() * mu - lambda);
            prop_assert!((latency_s / target.get() - 1.0).abs() < 1e-6);
        }
    }
}
