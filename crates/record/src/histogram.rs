//! The latency histogram of a whole run, and its compact form in the file.
//!
//! Percentiles of periods cannot be averaged into a percentile of the run, so the histograms themselves are merged.
//! In the file a histogram is a sequence of (value, count) pairs of its non-empty buckets, ascending: each value as
//! the difference to the one before, each number as a LEB128 varint.

use hdrhistogram::Histogram;
use hdrhistogram::errors::CreationError;
use std::time::Duration;

/// The longest latency that is told apart; longer ones count as this long.
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

/// The buckets as bytes.
pub(crate) fn encode(histogram: &Histogram<u64>) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut previous = 0;
    for (value, count) in buckets(histogram) {
        push_varint(&mut bytes, value - previous);
        push_varint(&mut bytes, count);
        previous = value;
    }
    bytes
}

/// The buckets of such bytes; an error says what is wrong with them.
pub(crate) fn decode(mut bytes: &[u8]) -> Result<Buckets, String> {
    let mut pairs: Buckets = Vec::new();
    let mut previous = 0_u64;
    while !bytes.is_empty() {
        let step = take_varint(&mut bytes)?;
        let count = take_varint(&mut bytes)?;
        if step == 0 && !pairs.is_empty() {
            return Err("its values do not ascend".to_owned());
        }
        previous = previous.checked_add(step).ok_or("a value exceeds 64 bits")?;
        pairs.push((previous, count));
    }
    Ok(pairs)
}

fn push_varint(bytes: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        bytes.push((number & 0x7f) as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

fn take_varint(bytes: &mut &[u8]) -> Result<u64, String> {
    let mut number = 0_u64;
    for shift in (0..64).step_by(7) {
        let (&byte, rest) = bytes.split_first().ok_or("it ends inside a number")?;
        *bytes = rest;
        let part = u64::from(byte & 0x7f);
        if shift == 63 && part > 1 {
            return Err("a number exceeds 64 bits".to_owned());
        }
        number |= part << shift;
        if byte & 0x80 == 0 {
            return Ok(number);
        }
    }
    Err("a number exceeds 64 bits".to_owned())
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

    #[test]
    fn damaged_bytes_are_refused() {
        assert!(decode(&[0x80]).unwrap_err().contains("inside a number"));
        assert!(decode(&[5]).unwrap_err().contains("inside a number"));
        assert!(decode(&[5, 1, 0, 1]).unwrap_err().contains("ascend"));
        assert!(decode(&[0xff; 11]).unwrap_err().contains("64 bits"));
    }

    proptest! {
        #[test]
        fn a_histogram_survives_the_way_there_and_back(values in prop::collection::vec(0..10_000_000_u64, 0..300)) {
            let mut histogram = empty().unwrap();
            for value in values {
                histogram.saturating_record(value);
            }
            let mut back = empty().unwrap();
            add(&mut back, &decode(&encode(&histogram)).unwrap());
            prop_assert_eq!(buckets(&histogram), buckets(&back));
        }

        #[test]
        fn any_bytes_are_decoded_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            if let Ok(pairs) = decode(&bytes) {
                prop_assert!(pairs.windows(2).all(|two| two[0].0 < two[1].0));
            }
        }

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
