//! Where this process's figures come from, and what is the same load.

use headroom_record::{Provenance, fingerprint, fingerprint_of_numbers};
use headroom_units::PerSecond;
use headroom_workload::ArrivalProcess;
use headroom_workload::Trace;

/// Of this process: its command line, its version and commit, this machine and now.
pub fn provenance() -> Provenance {
    Provenance::of_this_process(env!("CARGO_PKG_VERSION"))
}

/// The fingerprint of what a trace offers under a seed.
pub fn of_trace(trace: &Trace, seed: u64) -> String {
    let rates = trace.rates().iter().copied().map(PerSecond::get);
    // A seed above 2^53 shares its number with its neighbours: its bits are two numbers.
    let seed = [(seed >> 32) as f64, f64::from(seed as u32)];
    fingerprint_of_numbers([trace.step().get()].into_iter().chain(rates).chain(seed))
}

/// The fingerprint of what some simulated worlds are offered under some seeds.
pub fn of_arrivals<'a>(worlds: impl IntoIterator<Item = &'a ArrivalProcess>, seeds: &[u64]) -> String {
    // The text of a number in it is exact: it reads back as the same number.
    let mut parts: Vec<Vec<u8>> = worlds
        .into_iter()
        .map(|arrivals| format!("{arrivals:?}").into_bytes())
        .collect();
    parts.extend(seeds.iter().map(|seed| seed.to_le_bytes().to_vec()));
    fingerprint(parts.iter().map(Vec::as_slice))
}

#[cfg(test)]
mod tests {
    use super::*;
    use headroom_units::Seconds;

    #[test]
    fn another_rate_another_seed_or_another_step_is_another_load() {
        let trace = |step: f64, rates: &[f64]| {
            let rates = rates.iter().copied().map(PerSecond::new).collect();
            Trace::new("t", Seconds::new(step), rates).unwrap()
        };
        let one = of_trace(&trace(1.0, &[1.0, 2.0]), 1);
        assert_eq!(one, of_trace(&trace(1.0, &[1.0, 2.0]).named("another name"), 1));
        for other in [
            of_trace(&trace(1.0, &[1.0, 2.1]), 1),
            of_trace(&trace(2.0, &[1.0, 2.0]), 1),
            of_trace(&trace(1.0, &[1.0, 2.0]), 2),
            of_trace(&trace(1.0, &[1.0, 2.0]), 1 << 32),
        ] {
            assert_ne!(one, other);
        }
    }

    #[test]
    fn simulated_arrivals_are_known_by_their_contents_and_seeds() {
        let times = |at: f64| ArrivalProcess::Times { at_s: vec![at] };
        let one = of_arrivals([&times(0.1)], &[1, 2]);
        assert_eq!(one, of_arrivals([&times(0.1)], &[1, 2]));
        assert_ne!(one, of_arrivals([&times(0.100_000_000_001)], &[1, 2]));
        assert_ne!(one, of_arrivals([&times(0.1)], &[1, 3]));
    }
}
