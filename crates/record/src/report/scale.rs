//! Axes: from values to places, and where the ticks stand.

use super::html::figure;

/// How values become heights.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Scale {
    Linear {
        low: f64,
        high: f64,
    },
    /// Equal ratios are equal distances; bounds above zero.
    Log {
        low: f64,
        high: f64,
    },
}

impl Scale {
    /// A linear axis from 0 that holds a value, up to a round number.
    pub(crate) fn from_zero(largest: f64) -> Self {
        let largest = if largest.is_finite() && largest > 0.0 {
            largest * 1.04
        } else {
            1.0
        };
        let step = round_step(largest / 3.0);
        Self::Linear {
            low: 0.0,
            high: (largest / step).ceil() * step,
        }
    }

    /// The axis for latencies: linear where they lie close together, logarithmic where the largest dwarfs both the
    /// target, where there is one, and the usual value. A target that is not above 0 is none: a logarithmic axis has no place for it.
    pub(crate) fn for_latency(values: &mut Vec<f64>, target: Option<f64>) -> Self {
        let target = target.filter(|target| target.is_finite() && *target > 0.0);
        values.retain(|value| value.is_finite() && *value > 0.0);
        values.sort_by(f64::total_cmp);
        let (Some(&smallest), Some(&largest)) = (values.first(), values.last()) else {
            return Self::from_zero(target.unwrap_or_default());
        };
        let (lowest, highest) = target.map_or((smallest, largest), |target| {
            (smallest.min(target), largest.max(target))
        });
        let usual = values[values.len() / 2].max(target.unwrap_or_default());
        if largest > 5.0 * usual || highest > 12.0 * largest {
            let decade = |value: f64, outward: fn(f64) -> f64| {
                let exponent = 10_f64.powf(value.log10().floor());
                outward(value / exponent) * exponent
            };
            return Self::Log {
                low: decade(lowest, f64::floor),
                high: decade(highest * 1.1, f64::ceil),
            };
        }
        Self::from_zero(highest)
    }

    /// A logarithmic axis of whole decades that holds the values above 0; others stand at its foot.
    pub(crate) fn decades(values: impl Iterator<Item = f64>) -> Self {
        let (low, high) = values
            .filter(|value| *value > 0.0)
            .fold((f64::INFINITY, 0.0_f64), |(low, high), value| {
                (low.min(value), high.max(value))
            });
        if high == 0.0 {
            return Self::Log { low: 1.0, high: 10.0 };
        }
        let low = 10_f64.powf(low.log10().floor());
        let high = 10_f64.powf((high * 1.001).log10().ceil());
        Self::Log {
            low,
            high: high.max(low * 10.0),
        }
    }

    /// A value's place: 0 at the low end, 1 at the high end; values outside stand at the ends.
    pub(crate) fn place(self, value: f64) -> f64 {
        let share = match self {
            Self::Linear { low, high } => (value - low) / (high - low),
            Self::Log { low, high } => (value.max(low) / low).ln() / (high / low).ln(),
        };
        share.clamp(0.0, 1.0)
    }

    /// Where ticks stand: round numbers, three to about six of them.
    pub(crate) fn ticks(self) -> Vec<f64> {
        match self {
            Self::Linear { low, high } => {
                let step = round_step((high - low) / 3.0);
                let first = (low / step).ceil() as i64;
                let last = (high / step + 1e-9).floor() as i64;
                (first..=last).map(|number| number as f64 * step).collect()
            }
            Self::Log { low, high } => {
                let decades = (high / low).log10();
                let digits: &[f64] = if decades > 3.0 {
                    &[1.0]
                } else if decades > 1.5 {
                    &[1.0, 3.0]
                } else {
                    &[1.0, 2.0, 5.0]
                };
                let exponents = low.log10().floor() as i32..=high.log10().ceil() as i32;
                exponents
                    .flat_map(|exponent| digits.iter().map(move |digit| digit * 10_f64.powi(exponent)))
                    .filter(|tick| *tick >= low * 0.999 && *tick <= high * 1.001)
                    .collect()
            }
        }
    }
}

/// The round number (1, 2 or 5 times a power of ten) next to a step.
fn round_step(step: f64) -> f64 {
    let power = 10_f64.powf(step.log10().floor());
    let digit = match step / power {
        digit if digit < 1.5 => 1.0,
        digit if digit < 3.5 => 2.0,
        digit if digit < 7.5 => 5.0,
        _ => 10.0,
    };
    digit * power
}

/// What stands below a plot.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Axis {
    /// Seconds since the start, written as a clock's time.
    Time,
    /// A quantity with its unit.
    Quantity(String),
}

impl Axis {
    /// What it is.
    pub(crate) fn said(&self) -> &str {
        match self {
            Self::Time => "time",
            Self::Quantity(what) => what,
        }
    }

    /// Its ticks between two values, with their labels.
    pub(crate) fn ticks(&self, from: f64, to: f64) -> Vec<(f64, String)> {
        match self {
            Self::Time => time_ticks(from, to),
            Self::Quantity(_) if !(to - from).is_finite() || to <= from => Vec::new(),
            Self::Quantity(_) => {
                let step = round_step((to - from) / 6.0);
                let first = (from / step - 1e-9).ceil() as i64;
                let last = (to / step + 1e-9).floor() as i64;
                (first..=last)
                    .map(|number| (number as f64 * step, figure(number as f64 * step)))
                    .collect()
            }
        }
    }
}

/// Ticks of a time axis from `from` to `to`, in seconds, with their labels; as many as stand beside each other.
pub(crate) fn time_ticks(from: f64, to: f64) -> Vec<(f64, String)> {
    const STEPS: [f64; 19] = [
        1.0, 2.0, 5.0, 10.0, 15.0, 30.0, 60.0, 120.0, 300.0, 600.0, 900.0, 1800.0, 3600.0, 7200.0, 10_800.0,
        21_600.0, 43_200.0, 86_400.0, 172_800.0,
    ];
    let length = to - from;
    if !length.is_finite() || length <= 0.0 {
        return Vec::new();
    }
    let step = STEPS
        .into_iter()
        .find(|step| length / step <= 8.0)
        .unwrap_or_else(|| round_step(length / 6.0));
    let first = (from / step).ceil() as i64;
    let last = (to / step + 1e-9).floor() as i64;
    (first..=last)
        .map(|number| {
            let at = number as f64 * step;
            (at, clock(at))
        })
        .collect()
}

/// A time since the start of a run: `45 s`, `2:05` (minutes), `1:02:05` (hours), `2 d 3:00:00`.
pub(crate) fn clock(seconds: f64) -> String {
    let whole = seconds.max(0.0).round() as u64;
    let (days, hours, minutes, rest) = (whole / 86_400, whole / 3600 % 24, whole / 60 % 60, whole % 60);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{rest} s"),
        (0, 0, _) => format!("{minutes}:{rest:02} min"),
        (0, ..) => format!("{hours}:{minutes:02}:{rest:02} h"),
        _ => format!("{days} d {hours}:{minutes:02} h"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn an_axis_ends_at_a_round_number() {
        assert_eq!(
            Scale::from_zero(92.3),
            Scale::Linear {
                low: 0.0,
                high: 100.0
            }
        );
        assert_eq!(
            Scale::from_zero(92.3).ticks(),
            [0.0, 20.0, 40.0, 60.0, 80.0, 100.0]
        );
        assert_eq!(Scale::from_zero(16.0).ticks(), [0.0, 5.0, 10.0, 15.0, 20.0]);
        assert_eq!(Scale::from_zero(f64::NAN), Scale::from_zero(0.0));
    }

    #[test]
    fn latencies_choose_their_axis() {
        let mut close = vec![100.0, 120.0, 300.0];
        assert!(matches!(
            Scale::for_latency(&mut close, Some(250.0)),
            Scale::Linear { low: 0.0, .. }
        ));
        let mut wide = vec![10.0, 12.0, 30_000.0];
        let Scale::Log { low, high } = Scale::for_latency(&mut wide, Some(250.0)) else {
            panic!("a linear axis")
        };
        assert!(low <= 10.0 && high >= 30_000.0);
        assert!(matches!(
            Scale::for_latency(&mut vec![f64::NAN], Some(250.0)),
            Scale::Linear { .. }
        ));
    }

    #[test]
    fn latencies_without_a_target_have_an_axis_of_their_own() {
        for target in [None, Some(0.0), Some(f64::NAN)] {
            let scale = Scale::for_latency(&mut vec![3.0, 3.0, 3.5, 90.0], target);
            assert_eq!(
                scale,
                Scale::Log {
                    low: 3.0,
                    high: 100.0
                }
            );
            assert_eq!((scale.place(3.0), scale.place(100.0)), (0.0, 1.0));
            assert_eq!(
                Scale::for_latency(&mut vec![3.0, 4.0], target),
                Scale::from_zero(4.0)
            );
            assert_eq!(Scale::for_latency(&mut Vec::new(), target), Scale::from_zero(0.0));
        }
    }

    #[test]
    fn times_are_written_as_people_read_them() {
        assert_eq!(clock(45.2), "45 s");
        assert_eq!(clock(125.0), "2:05 min");
        assert_eq!(clock(3725.0), "1:02:05 h");
        assert_eq!(clock(183_600.0), "2 d 3:00 h");
        assert!(time_ticks(5.0, 5.0).is_empty());
    }

    #[test]
    fn quantities_are_written_as_figures() {
        let rates = Axis::Quantity("requests/s".to_owned());
        let labels: Vec<String> = rates
            .ticks(0.0, 600.0)
            .into_iter()
            .map(|(_, label)| label)
            .collect();
        assert_eq!(labels, ["0", "100", "200", "300", "400", "500", "600"]);
        assert!(rates.ticks(5.0, 5.0).is_empty() && rates.ticks(0.0, f64::NAN).is_empty());
    }

    proptest! {
        #[test]
        fn every_axis_has_a_few_ticks_inside_it(largest in 1e-6..1e12_f64) {
            let scale = Scale::from_zero(largest);
            let ticks = scale.ticks();
            prop_assert!((2..=8).contains(&ticks.len()), "{ticks:?}");
            prop_assert!(scale.place(largest) < 1.0);
            let places: Vec<f64> = ticks.iter().map(|tick| scale.place(*tick)).collect();
            prop_assert!(places.windows(2).all(|two| two[0] < two[1]));
        }

        #[test]
        fn a_latency_axis_holds_its_values(
            mut values in prop::collection::vec(1e-3..1e6_f64, 1..50), target in 1.0..1e4_f64,
        ) {
            let scale = Scale::for_latency(&mut values, Some(target));
            let (Scale::Linear { low, high } | Scale::Log { low, high }) = scale;
            prop_assert!(values.iter().chain([&target]).all(|value| *value >= low * 0.999 && *value <= high * 1.001));
            prop_assert!(scale.ticks().len() >= 2, "{scale:?}");
        }

        #[test]
        fn a_time_axis_has_two_to_eleven_ticks(from in 0.0..1e6_f64, length in 2.0..1e7_f64) {
            let ticks = time_ticks(from, from + length);
            prop_assert!((2..=11).contains(&ticks.len()), "{}", ticks.len());
        }
    }
}
