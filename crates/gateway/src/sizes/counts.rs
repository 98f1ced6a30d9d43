//! What is counted of the requests of each class of sizes.

use hdrhistogram::Histogram;

use crate::stats::{Counts, add_histogram, backend_histogram};

/// Buckets of a [`CoarseHistogram`].
pub const COARSE_BUCKETS: usize = OCTAVES * PER_OCTAVE;
/// Below 2^6 microseconds all is one.
const FIRST_OCTAVE: u32 = 6;
/// To 2^27 microseconds, 134 s.
const OCTAVES: usize = 21;
const PER_OCTAVE: usize = 8;

/// A latency histogram in 700 bytes: eight buckets an octave from 64 microseconds to 134 s, so that what is read of it is off by 6 % at
/// most; what lies outside counts in the first or last bucket. Counts end at 2^32 - 1.
#[derive(Clone, PartialEq, Eq)]
pub struct CoarseHistogram(Box<[u32; COARSE_BUCKETS]>);

impl Default for CoarseHistogram {
    fn default() -> Self {
        Self(Box::new([0; COARSE_BUCKETS]))
    }
}

impl std::fmt::Debug for CoarseHistogram {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_map().entries(self.buckets()).finish()
    }
}

impl CoarseHistogram {
    /// Counts a latency, in microseconds.
    pub fn record(&mut self, latency_us: u64) {
        let most = (1 << (FIRST_OCTAVE + OCTAVES as u32)) - 1;
        let value = latency_us.clamp(1 << FIRST_OCTAVE, most);
        let octave = value.ilog2();
        let within = (value >> (octave - 3)) as usize & (PER_OCTAVE - 1);
        self.add((octave - FIRST_OCTAVE) as usize * PER_OCTAVE + within, 1);
    }

    /// Counts so many more in a bucket; whether there is such a bucket.
    pub fn add(&mut self, bucket: usize, count: u32) -> bool {
        let Some(counted) = self.0.get_mut(bucket) else {
            return false;
        };
        *counted = counted.saturating_add(count);
        true
    }

    /// The buckets that are not empty, with their counts.
    pub fn buckets(&self) -> impl Iterator<Item = (usize, u32)> {
        let counts = self.0.iter().copied().enumerate();
        counts.filter(|(_, count)| *count > 0)
    }

    /// How many were counted.
    pub fn count(&self) -> u64 {
        self.0.iter().map(|count| u64::from(*count)).sum()
    }

    /// Adds what another counted.
    pub fn merge(&mut self, other: &Self) {
        for (sum, count) in self.0.iter_mut().zip(other.0.iter()) {
            *sum = sum.saturating_add(*count);
        }
    }

    /// The latency in microseconds that so large a share (0 to 1) of those counted do not exceed: the middle of its bucket; `None` where
    /// none was counted.
    pub fn quantile_us(&self, share: f64) -> Option<f64> {
        let wanted = (share.clamp(0.0, 1.0) * self.count() as f64).ceil().max(1.0);
        let mut counted = 0.0;
        let (bucket, _) = self.buckets().find(|(_, count)| {
            counted += f64::from(*count);
            counted >= wanted
        })?;
        let octave = f64::from(1_u32 << (FIRST_OCTAVE as usize + bucket / PER_OCTAVE));
        Some(octave * (1.0 + ((bucket % PER_OCTAVE) as f64 + 0.5) / PER_OCTAVE as f64))
    }
}

/// What one backend did of one class.
///
/// `arrivals = completions + failures + (in flight at the end - in flight at the start)`, and over all classes the sums are the backend's
/// own, where its `failures` and `refused` are one here.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClassOnBackend {
    /// Requests sent to it, a retry counting again.
    pub arrivals: u64,
    /// Answers handed over whole, with a status that is not a failed one.
    pub completions: u64,
    /// Those that ended otherwise.
    pub failures: u64,
    /// In flight at the end of the period (a gauge).
    pub in_flight: u64,
    /// The latencies of the completions together, from when they were sent to this backend, microseconds.
    pub latency_us: u64,
    /// The same, as a histogram.
    pub histogram: CoarseHistogram,
}

impl ClassOnBackend {
    /// Adds every counter of `other`, and its gauge.
    pub fn add(&mut self, other: &Self) {
        self.arrivals += other.arrivals;
        self.completions += other.completions;
        self.failures += other.failures;
        self.in_flight += other.in_flight;
        self.latency_us += other.latency_us;
        self.histogram.merge(&other.histogram);
    }
}

/// The requests of one class of sizes, by what was known of their routes when they came. The law of [`crate::PeriodStats`] holds of each
/// class, and over all classes the sums are the service's.
#[derive(Clone, Debug)]
pub struct ClassCounts {
    /// As those of the service.
    pub counts: Counts,
    /// Latency of completions in microseconds, two significant digits.
    pub histogram: Histogram<u64>,
    /// What each backend did of it, in the order of the configuration.
    pub backends: Vec<ClassOnBackend>,
}

impl ClassCounts {
    /// Nothing counted yet, of a class at so many backends.
    pub fn empty(backends: usize) -> Self {
        Self {
            counts: Counts::default(),
            histogram: backend_histogram(),
            backends: vec![ClassOnBackend::default(); backends],
        }
    }

    /// Adds every counter of `other`, and its gauges.
    pub fn add(&mut self, other: &Self) {
        self.counts.add(&other.counts);
        add_histogram(&mut self.histogram, &other.histogram);
        for (sum, part) in self.backends.iter_mut().zip(&other.backends) {
            sum.add(part);
        }
    }

    /// Adds what was counted before; the gauges stay.
    pub(crate) fn add_earlier(&mut self, earlier: &Self) {
        let counted = self.clone();
        self.add(earlier);
        self.take_gauges(&counted);
    }

    /// Back to zero, keeping the memory.
    pub(crate) fn clear(&mut self) {
        self.counts = Counts::default();
        self.histogram.reset();
        for part in &mut self.backends {
            (part.arrivals, part.completions, part.failures) = (0, 0, 0);
            (part.in_flight, part.latency_us) = (0, 0);
            part.histogram.0.fill(0);
        }
    }

    /// The requests in flight are those of `other`.
    pub(crate) fn take_gauges(&mut self, other: &Self) {
        self.counts.in_flight = other.counts.in_flight;
        for (part, other) in self.backends.iter_mut().zip(&other.backends) {
            part.in_flight = other.in_flight;
        }
    }

    /// Its requests in flight, then those at each backend.
    pub fn gauges(&mut self) -> impl Iterator<Item = &mut u64> {
        let parts = self.backends.iter_mut().map(|part| &mut part.in_flight);
        std::iter::once(&mut self.counts.in_flight).chain(parts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_quantile_is_within_its_bucket_and_what_is_outside_is_counted() {
        let mut histogram = CoarseHistogram::default();
        assert_eq!(histogram.quantile_us(0.5), None);
        for latency_us in [0, 1000, 1000, 1000, u64::MAX] {
            histogram.record(latency_us);
        }
        assert_eq!(histogram.count(), 5);
        let median = histogram.quantile_us(0.5).unwrap();
        assert!((median - 1000.0).abs() < 65.0, "{median}");
        assert!(histogram.quantile_us(0.0).unwrap() < 80.0);
        assert!(histogram.quantile_us(1.0).unwrap() > 120e6);
        assert!(!histogram.add(COARSE_BUCKETS, 1));
    }

    proptest! {
        #[test]
        fn what_is_read_is_off_by_few_percent(latencies in prop::collection::vec(64_u64..100_000_000, 1..200), share in 0.0..1.0_f64) {
            let mut histogram = CoarseHistogram::default();
            latencies.iter().for_each(|latency| histogram.record(*latency));
            let mut sorted = latencies.clone();
            sorted.sort_unstable();
            let rank = ((share * sorted.len() as f64).ceil() as usize).clamp(1, sorted.len());
            let exact = sorted[rank - 1] as f64;
            let read = histogram.quantile_us(share).unwrap();
            prop_assert!((read / exact - 1.0).abs() < 0.07, "{} {}", read, exact);
            let mut copy = CoarseHistogram::default();
            for (bucket, count) in histogram.buckets() {
                prop_assert!(copy.add(bucket, count));
            }
            prop_assert_eq!(&copy, &histogram);
            copy.merge(&histogram);
            prop_assert_eq!(copy.count(), 2 * latencies.len() as u64);
        }
    }
}
