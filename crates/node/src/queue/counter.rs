//! Raw counters, which wrap, jump and start anew, made into ones that only grow.

use headroom_units::Ratio;
use std::time::Instant;

/// More events a second than any machine has: a counter that grew faster did not count, it leapt.
const MAX_PER_SECOND: f64 = 1e7;

/// One counter.
#[derive(Clone, Copy, Debug)]
struct Counter {
    /// As it was read last.
    raw: Option<u64>,
    /// What it grew by since the first reading.
    total: u64,
}

/// Counters that are read together.
#[derive(Clone, Debug)]
pub(super) struct Ledger<const N: usize> {
    counters: [Counter; N],
    /// Of each, how wide it is: it wraps to 0 after 2^bits - 1.
    bits: [u32; N],
    at: Option<Instant>,
}

impl<const N: usize> Ledger<N> {
    pub(super) fn new(bits: [u32; N]) -> Self {
        Self {
            counters: [Counter { raw: None, total: 0 }; N],
            bits,
            at: None,
        }
    }

    /// Whether there was a reading.
    pub(super) fn has_begun(&self) -> bool {
        self.at.is_some()
    }

    /// Takes a reading, and yields the totals and whether nothing leapt. A counter that leapt or went back counts from
    /// where it is now; what happened meanwhile is not guessed.
    pub(super) fn advance(&mut self, at: Instant, raw: [Option<u64>; N]) -> ([Option<u64>; N], bool) {
        let elapsed_s = self
            .at
            .map_or(0.0, |last| at.saturating_duration_since(last).as_secs_f64());
        self.at = Some(at);
        let mut steady = true;
        let totals = std::array::from_fn(|i| {
            let counter = &mut self.counters[i];
            let now = raw[i]?;
            if let Some(last) = counter.raw {
                match step(last, now, self.bits[i], elapsed_s) {
                    Some(step) => counter.total += step,
                    None => steady = false,
                }
            }
            counter.raw = Some(now);
            Some(counter.total)
        });
        (totals, steady)
    }
}

/// By how much a counter of so many bits grew within a time, or nothing where it cannot have.
pub(super) fn step(last: u64, now: u64, bits: u32, elapsed_s: f64) -> Option<u64> {
    let mask = u64::MAX >> (64 - bits.clamp(1, 64));
    let grown = now.wrapping_sub(last) & mask;
    // At least a second's worth, as clocks of two readings are not those of two counts; and never half the range, where
    // going forwards and going back look the same.
    let most = ((elapsed_s.max(1.0) * MAX_PER_SECOND) as u64).min(mask / 2);
    (grown <= most && now <= mask).then_some(grown)
}

/// The share of CPU time used between two readings of a pair of counters.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Busy {
    last: Option<(u64, u64)>,
}

impl Busy {
    /// Takes the used and the whole time, in any one unit; nothing at the first reading, and where no time passed or
    /// a counter went back.
    pub(super) fn advance(&mut self, busy: u64, whole: u64) -> Option<Ratio> {
        let (last_busy, last_whole) = self.last.replace((busy, whole))?;
        let whole = whole.checked_sub(last_whole).filter(|&whole| whole > 0)?;
        let busy = busy.checked_sub(last_busy)?;
        Some(Ratio::new((busy as f64 / whole as f64).min(1.0)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::time::Duration;

    #[test]
    fn a_wrap_goes_on_and_a_restart_or_a_leap_does_not() {
        let start = Instant::now();
        let at = |s| start + Duration::from_secs(s);
        let mut ledger = Ledger::new([32, 64]);
        assert_eq!(
            ledger.advance(at(0), [Some(u64::from(u32::MAX) - 4), Some(7)]),
            ([Some(0), Some(0)], true)
        );
        assert_eq!(
            ledger.advance(at(1), [Some(5), Some(9)]),
            ([Some(10), Some(2)], true)
        );
        assert_eq!(
            ledger.advance(at(2), [Some(2), Some(9)]),
            ([Some(10), Some(2)], false),
            "went back"
        );
        assert_eq!(
            ledger.advance(at(3), [Some(4), Some(9)]),
            ([Some(12), Some(2)], true)
        );
        assert_eq!(
            ledger.advance(at(4), [None, Some(u64::MAX / 3)]),
            ([None, Some(2)], false),
            "leapt"
        );
        assert_eq!(
            ledger.advance(at(5), [Some(6), Some(u64::MAX / 3 + 1)]),
            ([Some(14), Some(3)], true)
        );
    }

    #[test]
    fn cpu_time_is_a_share_of_what_passed_and_nothing_is_made_of_none() {
        let mut busy = Busy::default();
        assert_eq!(busy.advance(100, 1000), None);
        assert_eq!(busy.advance(150, 1100), Some(Ratio::new(0.5)));
        assert_eq!(busy.advance(150, 1100), None, "no time passed");
        assert_eq!(busy.advance(10, 1200), None, "went back");
        assert_eq!(busy.advance(110, 1300), Some(Ratio::new(1.0)));
    }

    proptest! {
        #[test]
        fn totals_never_decrease_and_count_what_happened_across_wraps(
            first in any::<u32>(),
            steps in prop::collection::vec(0u32..1_000_000, 1..40),
        ) {
            let start = Instant::now();
            let mut ledger = Ledger::new([32]);
            let mut raw = first;
            ledger.advance(start, [Some(u64::from(raw))]);
            let mut sum = 0u64;
            for (i, step) in steps.iter().enumerate() {
                raw = raw.wrapping_add(*step);
                sum += u64::from(*step);
                let (totals, steady) = ledger.advance(start + Duration::from_secs(i as u64 + 1), [Some(u64::from(raw))]);
                prop_assert!(steady);
                prop_assert_eq!(totals, [Some(sum)]);
            }
        }

        #[test]
        fn any_readings_make_totals_that_never_decrease(raw in prop::collection::vec(any::<Option<u64>>(), 0..40), bits in 1u32..=64) {
            let start = Instant::now();
            let mut ledger = Ledger::new([bits]);
            let mut last = 0;
            for (i, raw) in raw.into_iter().enumerate() {
                if let ([Some(total)], _) = ledger.advance(start + Duration::from_millis(i as u64), [raw]) {
                    prop_assert!(total >= last);
                    last = total;
                }
            }
        }
    }
}
