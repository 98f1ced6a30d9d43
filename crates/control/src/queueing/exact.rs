//! The exact models beside the published one: processor sharing on many cores, first come first served on many
//! cores, and the two approximations that practice leans on.
//!
//! | function | model | exact for |
//! |---|---|---|
//! | [`erlang_b`], [`erlang_c`] | M/M/k | all k |
//! | [`sharing_mean_latency`] | M/G/k processor sharing, each request at speed min(1, c/n) | every service time distribution |
//! | [`queue_wait_exceeds`], [`queue_wait_percentile`] | M/M/k, first come first served | exponential service times |
//! | [`allen_cunneen_mean_wait`] | G/G/k, first come first served | M/M/k; an approximation otherwise |
//! | [`square_root_staffing`], [`halfin_whitt_delay`] | M/M/k as k grows | k to infinity |
//!
//! Rates are per second; an offered load is a = λ/μ, in cores ("Erlangs"); k and c are cores. The formulas are those
//! of the textbooks (Kleinrock, *Queueing Systems* I and II; Halfin and Whitt, *Operations Research* 29(3), 1981;
//! Allen, *Probability, Statistics, and Queueing Theory*, 1990). The mean under fractional cores is derived here.

use crate::plant::CoreRange;
use headroom_units::{Cores, PerSecond, Ratio, Seconds};

/// Erlang B: the share of requests that find all `servers` busy where nobody waits, at an offered load of `offered`
/// cores. By the recursion B(0) = 1, B(k) = aB(k−1) / (k + aB(k−1)), which neither overflows nor loses digits.
/// No load gives 0 (but 1 at no server); an infinite one, or one that is no number, gives 1.
pub fn erlang_b(servers: u32, offered: Cores) -> Ratio {
    if !offered.is_finite() {
        return Ratio::new(1.0);
    }
    let a = offered.get().max(0.0);
    let step = |blocked: f64, k: u32| a * blocked / (f64::from(k) + a * blocked);
    Ratio::new((1..=servers).fold(1.0, step))
}

/// Erlang C: the share of requests that have to wait in M/M/k with this many `servers` at an offered load of
/// `offered` cores: C = B / (1 − ρ(1 − B)), B being [`erlang_b`]. 1 where the load is not below the servers.
pub fn erlang_c(servers: u32, offered: Cores) -> Ratio {
    let rho = offered.get() / f64::from(servers);
    if rho.is_nan() || rho >= 1.0 {
        return Ratio::new(1.0);
    }
    let blocked = erlang_b(servers, offered).get();
    Ratio::new(blocked / (1.0 - rho.max(0.0) * (1.0 - blocked)))
}

/// E\[R\] of M/G/k processor sharing: `cores` shared evenly by the requests present, none of which can use more than
/// one core. Infinite where λ ≥ cμ.
///
/// For whole cores it is 1/μ + C(k, a) / (kμ − λ), with C of Erlang; insensitive to the distribution of service
/// times, so exact for all of them. For c = m + f cores under a CPU quota the station works at speed min(n, c) with
/// n requests, which is insensitive too: p(n) is aⁿ/n! up to m and falls by r = a/c from there, so that with
/// p(m) = B / (1 + B r/(1 − r)), B = B(m, a), the mean number present is a + p(m) r/(1 − r) (1/(1 − r) − f).
pub fn sharing_mean_latency(cores: Cores, arrival_rate: PerSecond, service_rate: PerSecond) -> Seconds {
    let (c, lambda, mu) = (cores.get(), arrival_rate.get().max(0.0), service_rate.get());
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
    let blocked = erlang_b(whole as u32, Cores::new(a)).get();
    let geometric = r / (1.0 - r);
    let at_whole = blocked / (1.0 + blocked * geometric);
    let present = a + at_whole * geometric * (1.0 / (1.0 - r) - fraction);
    Seconds::new(present / lambda)
}

/// The fewest cores of a range at which [`sharing_mean_latency`] is at most `target`; `None` where it is not even
/// with all of them. What Equation 2 of the SLO-Power paper is to its Equation 1.
pub fn sharing_cores_needed(
    range: CoreRange,
    arrival_rate: PerSecond,
    service_rate: PerSecond,
    target: Seconds,
) -> Option<Cores> {
    let fits = |cores| sharing_mean_latency(cores, arrival_rate, service_rate) <= target;
    if !fits(range.max()) {
        return None;
    }
    // The mean falls with every core, so the steps are halved: `low` does not fit, `high` does.
    let at = |steps: u64| range.round_up(range.step() * steps as f64);
    let (mut low, mut high) = (0, (range.max() / range.step()).ceil() as u64);
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        if fits(at(middle)) {
            high = middle;
        } else {
            low = middle;
        }
    }
    Some(at(high))
}

/// P(W > t) of M/M/k, first come first served: C(k, a) e^{−(kμ − λ)t}; 1 where λ ≥ kμ.
pub fn queue_wait_exceeds(
    servers: u32,
    arrival_rate: PerSecond,
    service_rate: PerSecond,
    wait: Seconds,
) -> Ratio {
    let Some(spare) = spare_rate(servers, arrival_rate, service_rate) else {
        return Ratio::new(1.0);
    };
    let waits = erlang_c(servers, offered(arrival_rate, service_rate)).get();
    Ratio::new(waits * (-spare * wait.get().max(0.0)).exp())
}

/// The wait that this share (0.95) of the requests of M/M/k, first come first served, stay within: the inverse of
/// [`queue_wait_exceeds`]; 0 where fewer than the others wait at all, infinite where λ ≥ kμ.
pub fn queue_wait_percentile(
    servers: u32,
    arrival_rate: PerSecond,
    service_rate: PerSecond,
    percentile: Ratio,
) -> Seconds {
    let Some(spare) = spare_rate(servers, arrival_rate, service_rate) else {
        return Seconds::new(f64::INFINITY);
    };
    let waits = erlang_c(servers, offered(arrival_rate, service_rate)).get();
    Seconds::new(((waits / (1.0 - percentile.get())).ln() / spare).max(0.0))
}

/// The Allen-Cunneen approximation of the mean wait of G/G/k, first come first served:
/// C(k, a) / (kμ − λ) · (c_a² + c_s²)/2, where the two are the squared coefficients of variation of the times between
/// arrivals and of the service times. Exact for M/M/k (1 and 1) and for M/G/1; infinite where λ ≥ kμ.
pub fn allen_cunneen_mean_wait(
    servers: u32,
    arrival_rate: PerSecond,
    service_rate: PerSecond,
    arrivals_scv: f64,
    service_scv: f64,
) -> Seconds {
    let Some(spare) = spare_rate(servers, arrival_rate, service_rate) else {
        return Seconds::new(f64::INFINITY);
    };
    let waits = erlang_c(servers, offered(arrival_rate, service_rate)).get();
    Seconds::new(waits / spare * f64::midpoint(arrivals_scv, service_scv))
}

/// Square-root staffing: a + β√a cores for an offered load of a; [`halfin_whitt_delay`] tells what a β gives.
pub fn square_root_staffing(offered: Cores, beta: f64) -> Cores {
    let a = offered.get().max(0.0);
    Cores::new(a + beta * a.sqrt())
}

/// The share of requests that wait under [`square_root_staffing`] as the load grows (Halfin and Whitt):
/// 1 / (1 + βΦ(β)/φ(β)), Φ and φ being the standard normal distribution and its density; 1 where β is not above 0.
pub fn halfin_whitt_delay(beta: f64) -> Ratio {
    if beta.is_nan() || beta <= 0.0 {
        return Ratio::new(1.0);
    }
    let density = (-beta * beta / 2.0).exp() / std::f64::consts::TAU.sqrt();
    Ratio::new(density / (density + beta * normal_distribution(beta)))
}

/// Φ(x) for x ≥ 0, by its power series 1/2 + φ(x)(x + x³/3 + x⁵/15 + …), whose terms are all positive.
fn normal_distribution(x: f64) -> f64 {
    // Beyond this 1 − Φ(x) is below the resolution of a double.
    if x > 8.3 {
        return 1.0;
    }
    let (mut term, mut sum, mut n) = (x, x, 1.0);
    while term > sum * f64::EPSILON {
        n += 2.0;
        term *= x * x / n;
        sum += term;
    }
    0.5 + sum * (-x * x / 2.0).exp() / std::f64::consts::TAU.sqrt()
}

fn offered(arrival_rate: PerSecond, service_rate: PerSecond) -> Cores {
    Cores::new(arrival_rate.get().max(0.0) / service_rate.get())
}

/// kμ − λ, where the load is below the servers.
fn spare_rate(servers: u32, arrival_rate: PerSecond, service_rate: PerSecond) -> Option<f64> {
    let spare = f64::from(servers) * service_rate.get() - arrival_rate.get().max(0.0);
    (spare > 0.0).then_some(spare)
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
    fn erlang_b_and_c_agree_with_published_tables() {
        // The usual traffic tables: 1 % blocking at 10 servers carries 4.461 Erlangs, at 100 servers 84.064.
        for (servers, load, blocked) in [(10, 4.461, 0.01), (100, 84.064, 0.01), (5, 4.0, 0.199_067)] {
            let got = erlang_b(servers, Cores::new(load)).get();
            assert!((got / blocked - 1.0).abs() < 1e-3, "B({servers}, {load}) = {got}");
        }
        // By hand: C(2, 1) = 1/3; C(1, a) = a.
        assert!((erlang_c(2, Cores::new(1.0)).get() - 1.0 / 3.0).abs() < 1e-12);
        assert!((erlang_c(1, Cores::new(0.7)).get() - 0.7).abs() < 1e-12);
    }

    #[test]
    fn no_load_and_too_much_load_are_the_ends() {
        assert_eq!(erlang_c(4, Cores::ZERO).get(), 0.0);
        assert_eq!(erlang_c(4, Cores::new(4.0)).get(), 1.0);
        assert_eq!(erlang_c(0, Cores::ZERO).get(), 1.0);
        assert_eq!(erlang_b(3, Cores::new(f64::INFINITY)).get(), 1.0);
        assert_eq!(erlang_b(3, Cores::new(f64::NAN)).get(), 1.0);
        assert_eq!(erlang_c(3, Cores::new(f64::NAN)).get(), 1.0);
        assert_eq!(
            sharing_mean_latency(Cores::new(2.0), per_second(2.0), per_second(1.0)).get(),
            f64::INFINITY
        );
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

    #[test]
    fn the_wait_of_one_server_is_the_textbooks() {
        // M/M/1 at 0.8: P(W > t) = 0.8 e^{-0.2 t}; mean wait 4, and P95 = ln(16)/0.2.
        let (lambda, mu) = (per_second(0.8), per_second(1.0));
        let exceeds = queue_wait_exceeds(1, lambda, mu, Seconds::new(10.0)).get();
        assert!((exceeds - 0.8 * (-2.0_f64).exp()).abs() < 1e-12);
        let p95 = queue_wait_percentile(1, lambda, mu, Ratio::new(0.95)).get();
        assert!((p95 - 16.0_f64.ln() / 0.2).abs() < 1e-9);
        assert_eq!(
            queue_wait_percentile(1, per_second(0.04), mu, Ratio::new(0.95)),
            Seconds::ZERO
        );
        assert!((allen_cunneen_mean_wait(1, lambda, mu, 1.0, 1.0).get() - 4.0).abs() < 1e-9);
        // Pollaczek-Khinchine: constant service times halve it.
        assert!((allen_cunneen_mean_wait(1, lambda, mu, 1.0, 0.0).get() - 2.0).abs() < 1e-9);
        assert_eq!(
            queue_wait_exceeds(1, per_second(1.0), mu, Seconds::new(9.0)).get(),
            1.0
        );
        assert!(
            allen_cunneen_mean_wait(1, per_second(1.0), mu, 1.0, 1.0)
                .get()
                .is_infinite()
        );
    }

    #[test]
    fn square_root_staffing_makes_the_promised_share_wait() {
        // Halfin and Whitt: beta 0.5 lets half wait (0.5046), beta 1 about 22.3 %.
        assert!((halfin_whitt_delay(1.0).get() - 0.2234).abs() < 1e-3);
        for beta in [0.2, 0.5, 1.0, 2.0] {
            let a = Cores::new(40_000.0);
            let servers = square_root_staffing(a, beta).get().round() as u32;
            let exact = erlang_c(servers, a).get();
            let limit = halfin_whitt_delay(beta).get();
            assert!(
                (exact / limit - 1.0).abs() < 0.02,
                "beta {beta}: {exact} against {limit}"
            );
        }
        assert_eq!(halfin_whitt_delay(0.0).get(), 1.0);
        assert!(halfin_whitt_delay(30.0).get() < 1e-100);
    }

    proptest! {
        #[test]
        fn erlang_c_is_a_share_that_rises_with_load_and_falls_with_servers(
            servers in 1u32..400, rho in 0.0..1.2f64, more in 0.0..0.2f64,
        ) {
            let a = rho * f64::from(servers);
            let waits = erlang_c(servers, Cores::new(a)).get();
            prop_assert!((0.0..=1.0).contains(&waits));
            prop_assert!(erlang_c(servers, Cores::new(a + more)).get() >= waits - 1e-12);
            prop_assert!(erlang_c(servers + 1, Cores::new(a)).get() <= waits + 1e-12);
        }

        #[test]
        fn the_fewest_cores_meet_the_target_and_one_step_fewer_do_not(
            lambda in 0.0..4_000.0f64, mu in 1.0..500.0f64, target_over_alone in 1.0..20.0f64,
            step in prop::sample::select(vec![0.1, 0.25, 1.0]),
        ) {
            let range = CoreRange::new(Cores::new(step), Cores::new(16.0), Cores::new(step)).unwrap();
            let (lambda, mu) = (per_second(lambda), per_second(mu));
            let target = Seconds::new(target_over_alone / mu.get());
            match sharing_cores_needed(range, lambda, mu, target) {
                None => prop_assert!(sharing_mean_latency(range.max(), lambda, mu) > target),
                Some(cores) => {
                    prop_assert!(sharing_mean_latency(cores, lambda, mu) <= target);
                    let fewer = range.round_up(cores - range.step());
                    prop_assert!(fewer == cores || sharing_mean_latency(fewer, lambda, mu) > target);
                }
            }
        }

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

        #[test]
        fn the_percentile_of_the_wait_inverts_its_tail(
            servers in 1u32..64, rho in 0.5..0.99f64, percentile in 0.5..0.999f64,
        ) {
            let (lambda, mu) = (per_second(rho * f64::from(servers)), per_second(1.0));
            let wait = queue_wait_percentile(servers, lambda, mu, Ratio::new(percentile));
            let tail = queue_wait_exceeds(servers, lambda, mu, wait).get();
            prop_assert!(tail <= (1.0 - percentile) * (1.0 + 1e-9));
            prop_assert!(wait == Seconds::ZERO || (tail / (1.0 - percentile) - 1.0).abs() < 1e-9);
        }
    }
}
