//! Latencies of a period or a run: the buckets of an HDR histogram with three significant digits, in microseconds.
//!
//! The live loop keeps the same histogram. Here a period may hold one request or a million, so recording, reading and
//! clearing cost what was recorded, not what could have been: only the range of buckets in use is walked.

use headroom_control::{Distribution, Latency, Slo, missed_latency};
use headroom_units::{Ratio, Seconds, quantile_of_answered, rank_of};

/// Each power of two is cut into this many buckets, so that a bucket is less than 0.1 % wide.
const HALF: u64 = 1 << 10;
const BITS: u32 = 10;
/// Buckets that are added up at once where none is looked for.
const BLOCK: usize = 64;
/// The longest latency that is distinguished, microseconds; longer ones count as this long. As in the flight recorder.
pub const LATENCY_MAX_US: u64 = 3_600_000_000;

/// A histogram of latencies. Percentiles are exact to 0.1 %, or to a microsecond; the mean is exact.
#[derive(Clone, Debug, PartialEq)]
pub struct LatencyHistogram {
    counts: Vec<u64>,
    count: u64,
    sum_s: f64,
    /// First and last bucket in use.
    first: usize,
    last: usize,
}

impl Default for LatencyHistogram {
    fn default() -> Self {
        Self::new()
    }
}

#[inline]
fn bucket(us: u64) -> usize {
    if us < 2 * HALF {
        return us as usize;
    }
    let exponent = (63 - us.leading_zeros()) - BITS;
    (u64::from(exponent) * HALF + (us >> exponent)) as usize
}

/// The highest value that falls into a bucket.
fn highest(bucket: usize) -> u64 {
    let bucket = bucket as u64;
    if bucket < 2 * HALF {
        return bucket;
    }
    let exponent = bucket / HALF - 1;
    (((bucket - exponent * HALF) + 1) << exponent) - 1
}

impl LatencyHistogram {
    /// An empty one.
    pub fn new() -> Self {
        Self {
            counts: vec![0; bucket(LATENCY_MAX_US) + 1],
            count: 0,
            sum_s: 0.0,
            first: usize::MAX,
            last: 0,
        }
    }

    /// Records one latency.
    #[inline]
    pub fn record(&mut self, latency: Seconds) {
        let seconds = latency.get();
        // Rounded, as a live gateway's clock of microseconds would on average; `as` makes negatives 0 and saturates.
        let us = ((seconds * 1e6 + 0.5) as u64).min(LATENCY_MAX_US);
        let at = bucket(us);
        self.counts[at] += 1;
        self.count += 1;
        self.sum_s += seconds;
        self.first = self.first.min(at);
        self.last = self.last.max(at);
    }

    /// How many were recorded.
    pub const fn count(&self) -> u64 {
        self.count
    }

    /// The sum of all latencies, seconds.
    pub const fn sum_s(&self) -> f64 {
        self.sum_s
    }

    /// The mean; `None` of nothing.
    pub fn mean(&self) -> Option<Seconds> {
        (self.count > 0).then(|| Seconds::new(self.sum_s / self.count as f64))
    }

    /// The non-empty buckets, ascending: highest value in microseconds, count.
    pub fn buckets(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let used = if self.count > 0 {
            self.first..self.last + 1
        } else {
            0..0
        };
        used.map(|at| (highest(at), self.counts[at]))
            .filter(|(_, count)| *count > 0)
    }

    /// The latencies at these shares, which ascend: for each the smallest value that at least that share of the recorded
    /// ones does not exceed. Zero of nothing.
    pub fn at<const N: usize>(&self, shares: [f64; N]) -> [Seconds; N] {
        let mut values = [Seconds::ZERO; N];
        if self.count == 0 {
            return values;
        }
        let ranks = shares.map(|share| rank_of(share, self.count));
        let (mut next, mut below) = (0, 0);
        for (block, counts) in self.counts[self.first..=self.last].chunks(BLOCK).enumerate() {
            // Most blocks hold none of the ranks, and adding up is all that they cost.
            let within: u64 = counts.iter().sum();
            if next == N || below + within < ranks[next] {
                below += within;
                continue;
            }
            for (at, count) in counts.iter().enumerate() {
                below += count;
                while next < N && below >= ranks[next] {
                    values[next] = Seconds::from_micros(highest(self.first + block * BLOCK + at) as f64);
                    next += 1;
                }
            }
        }
        values
    }

    /// The latency at one share (0.95 for P95); `None` of nothing.
    pub fn percentile(&self, share: Ratio) -> Option<Seconds> {
        (self.count > 0).then(|| self.at([share.get()])[0])
    }

    /// What a law is given of a period in which so many requests failed, which are the slowest of all: `None` where
    /// none ended.
    pub fn latency(&self, slo: Slo, failed: u64) -> Option<Latency> {
        let percentile = slo.percentile();
        let Some(mean) = self.mean() else {
            return (failed > 0).then(|| Latency {
                at_slo: missed_latency(slo.target(), None),
                missed: true,
                distribution: None,
            });
        };
        let [p50, p95, p99, p999] = self.at([0.5, 0.95, 0.99, 0.999]);
        let quantile = quantile_of_answered(percentile, self.count, failed);
        let at_slo = match quantile {
            Some(0.95) => p95,
            Some(quantile) => self.percentile(Ratio::new(quantile))?,
            None => missed_latency(slo.target(), self.percentile(Ratio::new(1.0))),
        };
        Some(Latency {
            at_slo,
            missed: quantile.is_none(),
            distribution: Some(Distribution {
                mean,
                p50,
                p95,
                p99,
                p999,
            }),
        })
    }

    /// Adds another's latencies to these.
    pub fn add(&mut self, other: &Self) {
        if other.count == 0 {
            return;
        }
        let used = other.first..=other.last;
        for (sum, count) in self.counts[used.clone()].iter_mut().zip(&other.counts[used]) {
            *sum += count;
        }
        self.count += other.count;
        self.sum_s += other.sum_s;
        self.first = self.first.min(other.first);
        self.last = self.last.max(other.last);
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        if self.count > 0 {
            self.counts[self.first..=self.last].fill(0);
        }
        self.count = 0;
        self.sum_s = 0.0;
        self.first = usize::MAX;
        self.last = 0;
    }

    /// Adds these latencies to an HDR histogram of microseconds; what is beyond its range counts as its largest.
    pub fn add_to(&self, histogram: &mut hdrhistogram::Histogram<u64>) {
        for (value, count) in self.buckets() {
            histogram.saturating_record_n(value, count);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// The same as the histogram that the live loop keeps.
        #[test]
        fn it_answers_as_an_hdr_histogram_does(latencies in proptest::collection::vec(0u64..10_000_000_000, 1..200)) {
            let mut ours = LatencyHistogram::new();
            let mut theirs = hdrhistogram::Histogram::<u64>::new_with_bounds(1, LATENCY_MAX_US, 3).unwrap();
            for us in &latencies {
                ours.record(Seconds::from_micros(*us as f64));
                theirs.saturating_record((*us).min(LATENCY_MAX_US));
            }
            for share in [0.01, 0.5, 0.95, 0.99, 0.999, 1.0] {
                let (a, b) = (ours.at([share])[0].get() * 1e6, theirs.value_at_quantile(share) as f64);
                prop_assert!((a - b).abs() <= 0.001 * b + 1.0, "{share}: {a} {b}");
            }
            let mut copied = hdrhistogram::Histogram::<u64>::new_with_bounds(1, LATENCY_MAX_US, 3).unwrap();
            ours.add_to(&mut copied);
            prop_assert_eq!(copied.len(), theirs.len());
        }

        #[test]
        fn every_value_falls_into_a_bucket_that_is_narrow(us in 0..LATENCY_MAX_US) {
            let top = highest(bucket(us));
            prop_assert!(top >= us && (top - us) as f64 <= us as f64 / 1000.0, "{us} {top}");
        }
    }

    #[test]
    fn adding_and_clearing_leave_what_recording_would() {
        let (mut one, mut two) = (LatencyHistogram::new(), LatencyHistogram::new());
        one.record(Seconds::from_millis(1.0));
        two.record(Seconds::from_millis(3.0));
        one.add(&two);
        assert_eq!((one.count(), one.mean()), (2, Some(Seconds::from_millis(2.0))));
        one.clear();
        assert_eq!(one, LatencyHistogram::new());
        let slo = Slo::new(Ratio::new(0.95), Seconds::new(0.25)).unwrap();
        assert_eq!(
            (one.percentile(Ratio::new(0.95)), one.latency(slo, 0)),
            (None, None)
        );
    }

    #[test]
    fn failed_requests_are_the_slowest_of_a_period() {
        let slo = Slo::new(Ratio::new(0.95), Seconds::new(0.25)).unwrap();
        let mut answered = LatencyHistogram::new();
        (0..96).for_each(|_| answered.record(Seconds::from_millis(1.0)));
        assert_eq!(answered.latency(slo, 4), answered.latency(slo, 0));
        let missed = answered.latency(slo, 6).unwrap();
        assert!(missed.missed && missed.at_slo > slo.target());
        assert!(LatencyHistogram::new().latency(slo, 1).unwrap().missed);
    }
}
