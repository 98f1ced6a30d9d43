//! The exact model beside the published one: processor sharing on many cores.
//!
//! Rates are per second; an offered load is a = λ/μ, in cores ("Erlangs"); k and c are cores. Erlang's formulas are those
//! of the textbooks (Kleinrock, *Queueing Systems* I); the mean under fractional cores is derived here.

use headroom_units::{Cores, PerSecond, Seconds};

/// Erlang B: the share of requests that find all `servers` busy where nobody waits, at an offered load of `a` cores. By
/// the recursion B(0) = 1, B(k) = aB(k−1) / (k + aB(k−1)), which neither overflows nor loses digits.
fn erlang_b(servers: u32, a: f64) -> f64 {
    let step = |blocked: f64, k: u32| a * blocked / (f64::from(k) + a * blocked);
    (1..=servers).fold(1.0, step)
}

/// E\[R\] of M/G/k processor sharing: `cores` shared evenly by the requests present, none of which can use more than
/// one core. Infinite where λ ≥ cμ, or is no number.
///
/// For whole cores it is 1/μ + C / (kμ − λ), with C = B / (1 − ρ(1 − B)) of Erlang; insensitive to the distribution of
/// service times, so exact for all of them. For c = m + f cores under a CPU quota the station works at speed min(n, c)
/// with n requests, which is insensitive too: p(n) is aⁿ/n! up to m and falls by r = a/c from there, so that with
/// p(m) = B / (1 + B r/(1 − r)), B = B(m, a), the mean number present is a + p(m) r/(1 − r) (1/(1 − r) − f).
pub fn sharing_mean_latency(cores: Cores, arrival_rate: PerSecond, service_rate: PerSecond) -> Seconds {
    let (c, mu) = (cores.get(), service_rate.get());
    // Unlike `max`, this leaves what is no number what it is.
    let lambda = arrival_rate.get().clamp(0.0, f64::INFINITY);
    let a = lambda / mu;
    let r = a / c;
    if r.is_nan() || r >= 1.0 {
        return Seconds::new(f64::INFINITY);
    }
    if lambda == 0.0 {
        return Seconds::new(1.0 / (mu * c.min(1.0)));
    }
    let whole = c.floor();
    let fraction = c - whole;
    let blocked = erlang_b(whole as u32, a);
    let geometric = r / (1.0 - r);
    let at_whole = blocked / (1.0 + blocked * geometric);
    let present = a + at_whole * geometric * (1.0 / (1.0 - r) - fraction);
    Seconds::new(present / lambda)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn per_second(rate: f64) -> PerSecond {
        PerSecond::new(rate)
    }

    /// In service times, at k cores and load rho.
    fn mean(cores: f64, rho: f64) -> f64 {
        sharing_mean_latency(Cores::new(cores), per_second(cores * rho), per_second(1.0)).get()
    }

    #[test]
    fn erlang_b_agrees_with_published_tables() {
        // The usual traffic tables: 1 % blocking at 10 servers carries 4.461 Erlangs, at 100 servers 84.064.
        for (servers, load, blocked) in [(10, 4.461, 0.01), (100, 84.064, 0.01), (5, 4.0, 0.199_067)] {
            let got = erlang_b(servers, load);
            assert!((got / blocked - 1.0).abs() < 1e-3, "B({servers}, {load}) = {got}");
        }
    }

    #[test]
    fn no_load_and_too_much_load_are_the_ends() {
        for rate in [2.0, f64::NAN, f64::INFINITY] {
            let latency = sharing_mean_latency(Cores::new(2.0), per_second(rate), per_second(1.0));
            assert_eq!(latency.get(), f64::INFINITY, "{rate}");
        }
        let idle = |cores| sharing_mean_latency(Cores::new(cores), PerSecond::ZERO, per_second(4.0)).get();
        assert_eq!((idle(3.0), idle(0.5)), (0.25, 0.5));
    }

    #[test]
    fn the_mean_of_processor_sharing_agrees_with_event_simulation() {
        // Means of an independent event simulation, +-1 %, in service times.
        for (cores, rho, simulated) in [
            (1.0, 0.5, 2.00),
            (1.0, 0.8, 5.00),
            (1.0, 0.9, 10.0),
            (4.0, 0.8, 1.74),
            (8.0, 0.9, 1.88),
            (16.0, 0.9, 1.370),
            (48.0, 0.9, 1.076),
        ] {
            let got = mean(cores, rho);
            assert!(
                (got / simulated - 1.0).abs() < 0.01,
                "{cores} cores at {rho}: {got}"
            );
        }
    }

    #[test]
    fn the_mean_on_fractional_cores_agrees_with_the_chain_itself() {
        for (cores, rho) in [(0.5, 0.6), (1.5, 0.8), (2.3, 0.9), (7.9, 0.95)] {
            let a = cores * rho;
            let (mut weight, mut total, mut present) = (1.0, 1.0, 0.0);
            for n in 1..5_000 {
                weight *= a / f64::min(f64::from(n), cores);
                total += weight;
                present += f64::from(n) * weight;
            }
            let chain = present / total / a;
            assert!((mean(cores, rho) / chain - 1.0).abs() < 1e-9, "{cores} cores");
        }
    }

    #[test]
    fn the_published_equation_overestimates_many_cores_seven_times() {
        let published = super::super::mean_latency(Cores::new(16.0), per_second(14.4), per_second(1.0)).get();
        assert!(published / mean(16.0, 0.9) > 7.0);
    }

    proptest! {
        #[test]
        fn the_mean_falls_with_every_bit_of_a_core(
            cores in 0.1..64.0f64, more in 0.001..1.0f64, rho in 0.0..0.999f64,
        ) {
            let (lambda, mu) = (per_second(rho * cores * 9.0), per_second(9.0));
            let few = sharing_mean_latency(Cores::new(cores), lambda, mu);
            let many = sharing_mean_latency(Cores::new(cores + more), lambda, mu);
            prop_assert!(many <= few * (1.0 + 1e-9));
            prop_assert!(few.get() >= 1.0 / 9.0 * (1.0 - 1e-9));
        }
    }
}
