//! How many requests are present at a machine: M/M/k, whose numbers are those of M/G/k processor sharing too (insensitivity).

/// The share of arrivals that find all of k servers busy at this utilisation: Erlang's C, from Erlang's B by its recursion.
fn all_busy(cores: usize, busy: f64) -> f64 {
    let offered = cores as f64 * busy;
    let blocked = (1..=cores).fold(1.0, |blocked, k| {
        offered * blocked / (k as f64 + offered * blocked)
    });
    blocked / (1.0 - busy * (1.0 - blocked))
}

/// The mean number present: a + C(k, a) ρ / (1 - ρ); infinite where it is full.
pub(crate) fn present(cores: usize, busy: f64) -> f64 {
    if busy >= 1.0 {
        return f64::INFINITY;
    }
    cores as f64 * busy + all_busy(cores, busy) * busy / (1.0 - busy)
}

/// The least number, as many as the servers at least, of which no more than so large a share of the time more are present:
/// P(N > k + j) = C(k, a) ρ^(j + 1). `busy` is below 1.
pub(crate) fn most_present(cores: usize, busy: f64, beyond: f64) -> f64 {
    let cores_f = cores as f64;
    let full = all_busy(cores, busy);
    if busy <= 0.0 || full <= beyond {
        return cores_f;
    }
    cores_f + ((full / beyond).ln() / -busy.ln() - 1.0).ceil().max(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn one_server_has_the_numbers_of_m_m_1() {
        assert!((present(1, 0.5) - 1.0).abs() < 1e-12);
        // P(N > n) = ρ^(n + 1): 2^-10 < 0.001 <= 2^-9.
        assert_eq!(most_present(1, 0.5, 0.001), 9.0);
        assert_eq!(most_present(4, 0.0, 0.05), 4.0);
        assert_eq!(present(2, 1.0), f64::INFINITY);
    }

    proptest! {
        /// The distribution summed up from its balance equations says the same.
        #[test]
        fn it_is_the_quantile_of_the_distribution(cores in 1_usize..20, busy in 0.02..0.97f64, beyond in 1e-4..0.2f64) {
            let offered = cores as f64 * busy;
            let (mut weight, mut weights) = (1.0, vec![1.0]);
            for n in 1..4_000 {
                weight *= offered / n.min(cores) as f64;
                weights.push(weight);
            }
            let sum: f64 = weights.iter().sum();
            let mean: f64 = weights.iter().enumerate().map(|(n, weight)| n as f64 * weight).sum::<f64>() / sum;
            prop_assert!((present(cores, busy) - mean).abs() < 1e-6 * mean);
            let above = |most: f64| weights[most as usize + 1..].iter().sum::<f64>() / sum;
            let most = most_present(cores, busy, beyond);
            prop_assert!(above(most) <= beyond * (1.0 + 1e-9), "{most}");
            prop_assert!(most == cores as f64 || above(most - 1.0) > beyond * (1.0 - 1e-9), "{most}");
        }
    }
}
