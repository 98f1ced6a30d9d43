//! A percentile of the response time of M/G/k processor sharing.
//!
//! The mean is insensitive to the service times' distribution and exact; a percentile is neither, and has no closed form.
//! What is done here:
//!
//! - Requests present: the exact stationary distribution, p(n + 1) = p(n) a / min(n + 1, k). An arrival sees it
//!   (PASTA), so at its start it is stretched by s(n) = max(1, (n + 1)/k).
//! - A request of size x that is short beside the time in which the queue forgets is stretched by that s(n) all the
//!   way; a long one sees the mean stretch E\[R\]/E\[S\]. In between the deviation from the mean shrinks by w, where
//!   w² = 2 (u − 1 + e^{−u}) / u² and u = (1 − ρ) x: the variance of the average of a process that forgets at the rate
//!   1 − ρ on the scale of work received. For M/M/1 this *is* the exact Var\[R | x\] = x² Var\[s\] w² (Yashkov,
//!   *Mathematische Operationsforschung und Statistik* 14(4), 1983; Ott, *J. Appl. Prob.* 21(2), 1984); for k > 1, and
//!   for the shape of the distribution, it is an approximation, held against event-simulated tables in the tests
//!   (P95 within 3 %).
//! - P(R > t) is the mixture over sizes and states, inverted by bisection.

use headroom_units::{Cores, Ratio};

/// Boundaries of the classes that a distribution of sizes is cut into: finer towards the tail, which decides, and so
/// that the usual percentiles (50, 90, 95, 99, 99.9) lie in the middle of theirs.
const BOUNDARIES: [f64; 37] = [
    0.0, 0.08, 0.16, 0.24, 0.32, 0.40, 0.47, 0.53, 0.59, 0.64, 0.69, 0.73, 0.77, 0.80, 0.83, 0.86, 0.88,
    0.895, 0.905, 0.917, 0.929, 0.938, 0.946, 0.954, 0.961, 0.968, 0.975, 0.981, 0.9855, 0.989, 0.991,
    0.9935, 0.996, 0.998, 0.9987, 0.9993, 1.0,
];
/// States rarer than this beside the most frequent one are left out.
const NEGLIGIBLE: f64 = 1e-9;
/// The most states looked at above the most frequent one; what lies beyond counts as the last.
const MAX_STATES: usize = 20_000;
/// Halvings of the interval in which a percentile is sought: to a part in 10⁵.
const HALVINGS: usize = 17;

/// A distribution of service times with mean 1, as classes of equal size within each.
#[derive(Clone, Debug, PartialEq)]
pub struct ServiceSizes {
    /// Size and probability.
    classes: Vec<(f64, f64)>,
}

impl ServiceSizes {
    /// All alike.
    pub fn deterministic() -> Self {
        Self {
            classes: vec![(1.0, 1.0)],
        }
    }

    /// Exponential: squared coefficient of variation 1.
    pub fn exponential() -> Self {
        Self::from_quantiles(|u| -(1.0 - u).ln())
    }

    /// Lognormal with this squared coefficient of variation (not negative; 0 is [`Self::deterministic`]).
    pub fn lognormal(scv: f64) -> Self {
        if scv.is_nan() || scv <= 0.0 {
            return Self::deterministic();
        }
        let sigma = scv.ln_1p().sqrt();
        Self::from_quantiles(|u| (sigma * normal_quantile(u)).exp())
    }

    /// A class is represented by its median, and all are scaled to a mean of 1.
    fn from_quantiles(quantile: impl Fn(f64) -> f64) -> Self {
        let mut classes: Vec<(f64, f64)> = BOUNDARIES
            .windows(2)
            .map(|edge| (quantile(f64::midpoint(edge[0], edge[1])), edge[1] - edge[0]))
            .collect();
        let mean: f64 = classes.iter().map(|(size, share)| size * share).sum();
        for (size, _) in &mut classes {
            *size /= mean;
        }
        Self { classes }
    }
}

/// The requests present at a station that works at speed min(n, `cores`), fractional cores included, under an offered
/// load of `load` of its capacity.
struct Present {
    /// The number that the first probability belongs to.
    first: usize,
    /// P(N ≥ first + i).
    at_least: Vec<f64>,
    mean: f64,
}

impl Present {
    fn new(cores: f64, load: f64) -> Self {
        let offered = cores * load;
        let mode = offered.floor() as usize;
        let mut below = Vec::new();
        let mut weight = 1.0;
        for n in (1..=mode).rev() {
            weight *= (n as f64).min(cores) / offered;
            if weight < NEGLIGIBLE {
                break;
            }
            below.push(weight);
        }
        let first = mode - below.len();
        let mut weights: Vec<f64> = below.into_iter().rev().collect();
        weights.push(1.0);
        weight = 1.0;
        for n in (mode + 1..).take(MAX_STATES) {
            weight *= offered / (n as f64).min(cores);
            if weight < NEGLIGIBLE {
                break;
            }
            weights.push(weight);
        }
        let total: f64 = weights.iter().sum();
        let moment: f64 = weights
            .iter()
            .enumerate()
            .map(|(i, w)| (first + i) as f64 * w)
            .sum();
        let mut at_least = weights;
        let mut tail = 0.0;
        for weight in at_least.iter_mut().rev() {
            tail += *weight / total;
            *weight = tail;
        }
        Self {
            first,
            at_least,
            mean: moment / total,
        }
    }

    /// P(N ≥ n).
    fn at_least(&self, n: f64) -> f64 {
        if n <= self.first as f64 {
            return 1.0;
        }
        self.at_least
            .get((n - self.first as f64).ceil() as usize)
            .copied()
            .unwrap_or(0.0)
    }

    /// The mean of s(n) = max(1, (n + 1)/k) over what an arrival sees.
    fn mean_stretch(&self, cores: f64) -> f64 {
        // E[s] = 1 + sum over n of P(N >= n)(s(n) - s(n - 1)), and s(n) - s(n - 1) is 1/k from n = k on.
        let from = self.first as f64;
        let stretch = |n: f64| ((n + 1.0) / cores).max(1.0);
        let rest: f64 = self
            .at_least
            .iter()
            .enumerate()
            .skip(1)
            .map(|(i, tail)| tail * (stretch(from + i as f64) - stretch(from + i as f64 - 1.0)))
            .sum();
        stretch(from) + rest
    }
}

/// The `percentile` (0.95) of the response time of M/G/k processor sharing with `cores` (fractions as under a CPU
/// quota) at a utilisation of `load`, in mean service times of one core; see the module's head for how exact it is.
/// Infinite where the load is 1 or more, or no number.
pub fn sharing_percentile(cores: Cores, load: Ratio, sizes: &ServiceSizes, percentile: Ratio) -> f64 {
    let (k, rho) = (cores.get(), load.get());
    if rho.is_nan() || rho >= 1.0 || !k.is_finite() || k <= 0.0 {
        return f64::INFINITY;
    }
    let alone = (1.0 / k).max(1.0);
    let (present, mean_of_all, mean_seen) = if rho < 1e-6 {
        (None, alone, alone)
    } else {
        let present = Present::new(k, rho);
        let mean_of_all = (present.mean / (k * rho)).max(alone);
        let mean_seen = present.mean_stretch(k);
        (Some(present), mean_of_all, mean_seen)
    };
    // What a request of each class sees at its start and what is left of it does not depend on the time sought.
    let classes: Vec<(f64, f64, f64)> = sizes
        .classes
        .iter()
        .map(|&(size, share)| (size, share, 1.0 / remembered((1.0 - rho) * size)))
        .collect();
    let late = |t: f64| -> f64 {
        classes
            .iter()
            .map(|&(size, share, more)| {
                let stretch = t / size;
                if stretch < alone {
                    return share;
                }
                let Some(present) = &present else {
                    return 0.0;
                };
                // Late are those that saw a stretch above this one: (n + 1)/k > seen.
                let seen = mean_seen + (stretch - mean_of_all) * more;
                if seen < alone {
                    return share;
                }
                share * present.at_least((seen * k).floor())
            })
            .sum()
    };
    let allowed = 1.0 - percentile.get();
    let (mut low, mut high) = (0.0, alone);
    while late(high) > allowed && high < 1e9 {
        low = high;
        high *= 2.0;
    }
    for _ in 0..HALVINGS {
        let middle = f64::midpoint(low, high);
        if late(middle) > allowed {
            low = middle;
        } else {
            high = middle;
        }
    }
    high
}

/// Probabilities of the slices in which [`sharing_congestion`] gives the stretch: the calm ones first.
pub(crate) const SLICES: [f64; 7] = [0.6, 0.25, 0.1, 0.035, 0.01, 0.004, 0.001];

/// How unevenly requests are stretched by the others present at M/G/k processor sharing.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Congestion {
    /// E\[R\]/E\[S\].
    pub mean: f64,
    /// The mean of each of [`SLICES`] of the stretch that an arrival sees, off the mean over all, in shares of
    /// [`Self::mean`].
    pub slices: [f64; 7],
}

/// The congestion with `cores` at a utilisation of `load` (bounded to 0..0.999).
pub(crate) fn sharing_congestion(cores: f64, load: f64) -> Congestion {
    let load = load.clamp(0.0, 0.999);
    let alone = (1.0 / cores).max(1.0);
    if load < 1e-6 || !cores.is_finite() || cores <= 0.0 {
        return Congestion {
            mean: alone,
            slices: [0.0; 7],
        };
    }
    let present = Present::new(cores, load);
    let mean = (present.mean / (cores * load)).max(alone);
    let seen = present.mean_stretch(cores);
    let mut slices = [0.0; 7];
    // From the most congested state down, filling the last slice first.
    let (mut slice, mut room) = (SLICES.len() - 1, SLICES[SLICES.len() - 1]);
    let mut above = 0.0;
    for (i, at_least) in present.at_least.iter().enumerate().rev() {
        let stretch = (((present.first + i) as f64 + 1.0) / cores).max(1.0);
        let mut left = at_least - above;
        above = *at_least;
        while left > 0.0 {
            let part = left.min(room);
            slices[slice] += part * stretch;
            left -= part;
            room -= part;
            if room > 0.0 || slice == 0 {
                break;
            }
            slice -= 1;
            room = SLICES[slice];
        }
    }
    for (slice, share) in slices.iter_mut().zip(SLICES) {
        *slice = (*slice / share - seen) / mean;
    }
    Congestion { mean, slices }
}

/// How much of the congestion that an arrival sees is left in the average over a period of `length` mean service times.
pub(crate) fn congestion_left(load: f64, mean_stretch: f64, length: f64) -> f64 {
    remembered((1.0 - load.clamp(0.0, 1.0)) * length / mean_stretch)
}

/// w: how much of the deviation seen at its start is left in a request's average, u being the work it needs times the
/// rate at which the station forgets.
fn remembered(u: f64) -> f64 {
    if u < 1e-3 {
        return 1.0 - u / 6.0;
    }
    (2.0 * (u + (-u).exp_m1())).sqrt() / u
}

/// Φ⁻¹(u), the standard normal quantile, by Acklam's rational approximation (relative error below 1.2·10⁻⁹ of the
/// argument's probability); bounded to ±8.
pub(crate) fn normal_quantile(u: f64) -> f64 {
    const A: [f64; 6] = [
        -3.969_683_028_665_376e1,
        2.209_460_984_245_205e2,
        -2.759_285_104_469_687e2,
        1.383_577_518_672_69e2,
        -3.066_479_806_614_716e1,
        2.506_628_277_459_239,
    ];
    const B: [f64; 5] = [
        -5.447_609_879_822_406e1,
        1.615_858_368_580_409e2,
        -1.556_989_798_598_866e2,
        6.680_131_188_771_972e1,
        -1.328_068_155_288_572e1,
    ];
    const C: [f64; 6] = [
        -7.784_894_002_430_293e-3,
        -3.223_964_580_411_365e-1,
        -2.400_758_277_161_838,
        -2.549_732_539_343_734,
        4.374_664_141_464_968,
        2.938_163_982_698_783,
    ];
    const D: [f64; 4] = [
        7.784_695_709_041_462e-3,
        3.224_671_290_700_398e-1,
        2.445_134_137_142_996,
        3.754_408_661_907_416,
    ];
    let polynomial = |coefficients: &[f64], x: f64| coefficients.iter().fold(0.0, |sum, c| sum * x + c);
    let tail = |p: f64| {
        let q = (-2.0 * p.max(1e-15).ln()).sqrt();
        polynomial(&C, q) / (polynomial(&D, q) * q + 1.0)
    };
    let value = if u < 0.024_25 {
        tail(u)
    } else if u > 1.0 - 0.024_25 {
        -tail(1.0 - u)
    } else {
        let q = u - 0.5;
        let r = q * q;
        polynomial(&A, r) * q / (polynomial(&B, r) * r + 1.0)
    };
    value.clamp(-8.0, 8.0)
}

/// P(Z > z) of the standard normal distribution, to a relative error below 1.2·10⁻⁷ (Chebyshev fit of erfc, Press et
/// al., *Numerical Recipes*, 6.2).
pub(crate) fn normal_exceeds(z: f64) -> f64 {
    if z.is_nan() {
        return 1.0;
    }
    let x = z.abs() / std::f64::consts::SQRT_2;
    let t = 1.0 / (1.0 + 0.5 * x);
    let fit = [
        0.170_872_77,
        -0.822_152_23,
        1.488_515_87,
        -1.135_203_98,
        0.278_868_07,
        -0.186_288_06,
        0.096_784_18,
        0.374_091_96,
        1.000_023_68,
        -1.265_512_23,
    ];
    let erfc = t * (-x * x + fit.iter().fold(0.0, |sum, c| sum * t + c)).exp();
    if z >= 0.0 { erfc / 2.0 } else { 1.0 - erfc / 2.0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at(cores: f64, load: f64, sizes: &ServiceSizes, percentile: f64) -> f64 {
        sharing_percentile(Cores::new(cores), Ratio::new(load), sizes, Ratio::new(percentile))
    }

    /// Event-simulated by others than this module, to about 1 % (3 % at P99 of heavy tails).
    #[test]
    #[expect(
        clippy::approx_constant,
        reason = "6.28 was measured, and is no turn of a circle"
    )]
    fn the_percentiles_are_those_that_simulation_gives() {
        let (m, d, l) = (
            ServiceSizes::exponential(),
            ServiceSizes::deterministic(),
            ServiceSizes::lognormal(4.0),
        );
        let table = [
            (1.0, 0.5, &m, 6.86, 12.4),
            (1.0, 0.8, &m, 18.8, 37.0),
            (1.0, 0.9, &m, 38.7, 78.5),
            (1.0, 0.8, &d, 13.6, 20.8),
            (1.0, 0.8, &l, 19.7, 53.0),
            (4.0, 0.8, &m, 5.78, 10.6),
            (8.0, 0.9, &m, 6.28, 11.7),
            (8.0, 0.9, &d, 4.14, 6.08),
            (16.0, 0.9, &m, 4.31, 7.33),
            (48.0, 0.9, &m, 3.25, 5.05),
        ];
        for (k, rho, sizes, p95, p99) in table {
            let (got95, got99) = (at(k, rho, sizes, 0.95), at(k, rho, sizes, 0.99));
            println!("k {k} rho {rho}: P95 {got95:.3} for {p95}, P99 {got99:.3} for {p99}");
            assert!(
                (got95 / p95 - 1.0).abs() < 0.03,
                "k {k} rho {rho}: P95 {got95} for {p95}"
            );
            assert!(
                (got99 / p99 - 1.0).abs() < 0.06,
                "k {k} rho {rho}: P99 {got99} for {p99}"
            );
        }
    }

    #[test]
    fn without_load_it_is_the_percentile_of_the_service_time() {
        assert!((at(4.0, 0.0, &ServiceSizes::exponential(), 0.95) / 20f64.ln() - 1.0).abs() < 0.03);
        assert!((at(4.0, 0.0, &ServiceSizes::deterministic(), 0.95) - 1.0).abs() < 1e-6);
        // Half a core serves at half speed.
        assert!((at(0.5, 0.0, &ServiceSizes::deterministic(), 0.95) - 2.0).abs() < 1e-6);
    }

    #[test]
    fn no_capacity_has_no_percentile() {
        let sizes = ServiceSizes::exponential();
        for (cores, load) in [(4.0, 1.0), (4.0, f64::NAN), (0.0, 0.5), (f64::NAN, 0.5)] {
            assert_eq!(at(cores, load, &sizes, 0.95), f64::INFINITY);
        }
    }

    #[test]
    fn the_slices_of_congestion_are_those_of_the_geometric_distribution() {
        // M/M/1: an arrival sees n others with probability (1 - rho) rho^n and is stretched by n + 1.
        let congestion = sharing_congestion(1.0, 0.8);
        assert!((congestion.mean - 5.0).abs() < 1e-5);
        let mean: f64 = congestion
            .slices
            .iter()
            .zip(SLICES)
            .map(|(slice, share)| slice * share)
            .sum();
        assert!(mean.abs() < 1e-6, "{mean}");
        // Above its quantile of 99.9 %, at n + 1 = ln 0.001 / ln 0.8 = 30.96, the mean of n + 1 is 1/(1 - rho) more.
        let last = congestion.slices[6] * 5.0 + 5.0;
        assert!((last - 35.5).abs() < 0.7, "{last}");
        assert!(
            sharing_congestion(48.0, 0.3)
                .slices
                .iter()
                .all(|slice| slice.abs() < 1e-6)
        );
        assert!(congestion_left(0.8, 5.0, 1e6) < 0.01 && congestion_left(0.8, 5.0, 0.01) > 0.99);
    }

    #[test]
    fn the_normal_quantile_inverts_the_normal_tail() {
        for z in [-3.5, -2.0, -0.3, 0.0, 1.0, 1.644_853_627, 2.575_829_304, 4.0] {
            let back = normal_quantile(1.0 - normal_exceeds(z));
            assert!((back - z).abs() < 1e-3, "{z} came back as {back}");
        }
        assert!((normal_exceeds(1.644_853_627) - 0.05).abs() < 1e-7);
    }

    proptest! {
        #[test]
        fn more_load_and_fewer_cores_never_make_it_faster(
            cores in 0.3..60.0f64, load in 0.0..0.95f64, more in 0.0..0.04f64, scv in 0.0..6.0f64,
        ) {
            let sizes = ServiceSizes::lognormal(scv);
            let one = at(cores, load, &sizes, 0.95);
            prop_assert!(one.is_finite() && one > 0.0);
            prop_assert!(at(cores, load + more, &sizes, 0.95) >= one * 0.985);
            // The same offered load on 5 % more cores.
            prop_assert!(at(cores * 1.05, load / 1.05, &sizes, 0.95) <= one * 1.015);
        }
    }
}
