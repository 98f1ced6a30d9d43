//! Fisher's exact test of two shares, one-sided.

use std::f64::consts::TAU;

/// Terms smaller than this part of their sum are left out; each is smaller than the one before, by far.
const NEGLIGIBLE: f64 = 1e-9;

/// Below it factorials are multiplied out, from it on Stirling's series is exact to 1e-12.
const FEW: u64 = 20;

/// ln n!
fn ln_factorial(n: u64) -> f64 {
    let x = n as f64;
    match n < FEW {
        true => (2..=n).map(|factor| factor as f64).product::<f64>().ln(),
        // Stirling's series, whose next term is 1/(1260 x^5).
        false => x * x.ln() - x + 0.5 * (TAU * x).ln() + 1.0 / (12.0 * x) - 1.0 / (360.0 * x.powi(3)),
    }
}

/// ln of the number of ways to choose `some` of `all`.
fn ln_choose(all: u64, some: u64) -> f64 {
    ln_factorial(all) - ln_factorial(some) - ln_factorial(all - some)
}

/// How likely it is that of `failed + other_failed` failures that fall on `all + others` exchanges by chance, each as likely to be one,
/// at least `failed` fall on those `all`: the upper tail of the hypergeometric distribution. `failed` of `all` must be at least its share.
pub(super) fn chance_of(all: u64, failed: u64, others: u64, other_failed: u64) -> f64 {
    let failures = failed + other_failed;
    let first = ln_choose(all, failed) + ln_choose(others, other_failed) - ln_choose(all + others, failures);
    let mut term = first.exp();
    let mut sum = term;
    for more in failed..all.min(failures) {
        // From C(all, x) C(others, failures - x) to the same of x + 1.
        let grows = (all - more) as f64 * (failures - more) as f64;
        let shrinks = (more + 1) as f64 * (others + more + 1 - failures) as f64;
        term *= grows / shrinks;
        sum += term;
        if term < sum * NEGLIGIBLE {
            break;
        }
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The same, by adding up products of ratios.
    fn by_hand(all: u64, failed: u64, others: u64, other_failed: u64) -> f64 {
        let choose = |all: u64, some: u64| -> f64 {
            (0..some)
                .map(|index| (all - index) as f64 / (some - index) as f64)
                .product()
        };
        let failures = failed + other_failed;
        let ways = |on_own: u64| choose(all, on_own) * choose(others, failures - on_own);
        let ends = (failed..=all.min(failures)).map(ways).sum::<f64>();
        ends / choose(all + others, failures)
    }

    #[test]
    fn the_chances_are_those_of_the_hypergeometric_distribution() {
        // 5 of 5 beside 0 of 5: one way of C(10, 5). Fisher's tea: 3 of 4 and more are 17 of 70.
        for (table, chance) in [
            ((5, 5, 5, 0), 1.0 / 252.0),
            ((4, 3, 4, 1), 17.0 / 70.0),
            ((4, 4, 4, 0), 1.0 / 70.0),
            ((7, 7, 0, 0), 1.0),
        ] {
            let (all, failed, others, other_failed) = table;
            let found = chance_of(all, failed, others, other_failed);
            assert!((found / chance - 1.0).abs() < 1e-9, "{table:?}: {found}");
        }
    }

    proptest::proptest! {
        #[test]
        fn they_are_those_that_are_added_up_by_hand(
            all in 1_u64..200,
            others in 0_u64..200,
            share in 0.0_f64..=1.0,
            other_share in 0.0_f64..=1.0,
        ) {
            let of = |all: u64, share: f64| (all as f64 * share) as u64;
            let (failed, other_failed) = (of(all, share), of(others, other_share));
            // What the test is asked of: a share above the others'.
            proptest::prop_assume!(failed * others >= other_failed * all);
            let found = chance_of(all, failed, others, other_failed);
            let right = by_hand(all, failed, others, other_failed);
            proptest::prop_assert!((found / right - 1.0).abs() < 1e-6, "{found} and not {right}");
        }
    }
}
