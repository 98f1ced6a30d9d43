//! The latency histogram of a whole run, and its compact form in the file.
//!
//! Percentiles of periods cannot be averaged into a percentile of the run, so the histograms themselves are merged.
//! In the file a histogram is the JSON of the (value, count) pairs of its non-empty buckets.

use hdrhistogram::Histogram;
use hdrhistogram::errors::CreationError;
use std::time::Duration;

/// The longest latency that is distinguished; longer ones count as this long.
pub(crate) const MAX_LATENCY: Duration = Duration::from_secs(3600);

/// Three significant digits: a percentile is exact to 0.1 %.
const SIGNIFICANT_DIGITS: u8 = 3;

/// A histogram as its non-empty buckets: the bucket's highest value in microseconds, and its count.
pub(crate) type Buckets = Vec<(u64, u64)>;

/// The non-empty buckets of a histogram of microseconds.
pub(crate) fn buckets(histogram: &Histogram<u64>) -> Buckets {
    // An empty histogram would be walked through to its last bucket.
    if histogram.is_empty() {
        return Vec::new();
    }
    histogram
        .iter_recorded()
        .map(|step| (step.value_iterated_to(), step.count_at_value()))
        .collect()
}

/// An empty histogram of microseconds up to [`MAX_LATENCY`].
pub(crate) fn empty() -> Result<Histogram<u64>, CreationError> {
    Histogram::new_with_bounds(1, MAX_LATENCY.as_micros() as u64, SIGNIFICANT_DIGITS)
}

/// Adds buckets to a histogram; a value beyond the histogram's range counts as its largest.
pub(crate) fn add(histogram: &mut Histogram<u64>, buckets: &[(u64, u64)]) {
    for &(value, count) in buckets {
        histogram.saturating_record_n(value, count);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_value_beyond_an_hour_counts_as_the_largest() {
        let mut histogram = empty().unwrap();
        add(&mut histogram, &[(u64::MAX, 2), (1_000, 1)]);
        assert_eq!(histogram.len(), 3);
        assert!(histogram.max() >= MAX_LATENCY.as_micros() as u64);
    }

    proptest! {
        #[test]
        fn merged_parts_have_the_percentiles_of_the_whole(
            values in prop::collection::vec(1..5_000_000_u64, 1..300), cut in 0..300_usize, p in 0.1..99.9_f64,
        ) {
            let fill = |values: &[u64]| {
                let mut histogram = empty().unwrap();
                values.iter().for_each(|&value| histogram.saturating_record(value));
                histogram
            };
            let cut = cut.min(values.len());
            let mut merged = empty().unwrap();
            add(&mut merged, &buckets(&fill(&values[..cut])));
            add(&mut merged, &buckets(&fill(&values[cut..])));
            prop_assert_eq!(merged.value_at_percentile(p), fill(&values).value_at_percentile(p));
        }
    }
}
