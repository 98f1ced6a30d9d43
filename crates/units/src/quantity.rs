//! The quantities: each a number with one unit, kept in that unit.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::iter::Sum;
use std::ops::{Add, AddAssign, Div, Mul, Neg, Sub, SubAssign};
use std::str::FromStr;
use std::time::Duration;

macro_rules! quantity {
    ($(#[$doc:meta])* $name:ident, $unit:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(f64);

        impl $name {
            /// Nothing of it.
            pub const ZERO: Self = Self(0.0);

            #[doc = concat!("A value in ", $unit, ".")]
            pub const fn new(value: f64) -> Self {
                Self(value)
            }

            #[doc = concat!("The number, in ", $unit, ".")]
            pub const fn get(self) -> f64 {
                self.0
            }

            /// The smaller of the two.
            pub const fn min(self, other: Self) -> Self {
                Self(self.0.min(other.0))
            }

            /// The larger of the two.
            pub const fn max(self, other: Self) -> Self {
                Self(self.0.max(other.0))
            }

            /// Bounded to `[low, high]`; where the bounds cross, `low` wins.
            pub const fn clamp(self, low: Self, high: Self) -> Self {
                Self(self.0.min(high.0).max(low.0))
            }

            /// Neither infinite nor NaN.
            pub const fn is_finite(self) -> bool {
                self.0.is_finite()
            }
        }

        impl Add for $name {
            type Output = Self;
            fn add(self, other: Self) -> Self {
                Self(self.0 + other.0)
            }
        }
        impl Sub for $name {
            type Output = Self;
            fn sub(self, other: Self) -> Self {
                Self(self.0 - other.0)
            }
        }
        impl AddAssign for $name {
            fn add_assign(&mut self, other: Self) {
                self.0 += other.0;
            }
        }
        impl SubAssign for $name {
            fn sub_assign(&mut self, other: Self) {
                self.0 -= other.0;
            }
        }
        impl Neg for $name {
            type Output = Self;
            fn neg(self) -> Self {
                Self(-self.0)
            }
        }
        impl Mul<f64> for $name {
            type Output = Self;
            fn mul(self, factor: f64) -> Self {
                Self(self.0 * factor)
            }
        }
        impl Div<f64> for $name {
            type Output = Self;
            fn div(self, divisor: f64) -> Self {
                Self(self.0 / divisor)
            }
        }
        /// The share that one is of the other.
        impl Div for $name {
            type Output = f64;
            fn div(self, other: Self) -> f64 {
                self.0 / other.0
            }
        }
        impl Sum for $name {
            fn sum<I: Iterator<Item = Self>>(values: I) -> Self {
                Self(values.map(|v| v.0).sum())
            }
        }
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match f.precision() {
                    Some(digits) => write!(f, "{:.*} {}", digits, self.0, $unit),
                    None => write!(f, "{} {}", self.0, $unit),
                }
            }
        }
    };
}

quantity!(
    /// Power, in watts.
    Watts,
    "W"
);
quantity!(
    /// Energy, in joules.
    Joules,
    "J"
);
quantity!(
    /// Processor cores, possibly a fraction: what a CPU quota divided by its period gives.
    Cores,
    "cores"
);
quantity!(
    /// Frequency, in hertz.
    Hertz,
    "Hz"
);
quantity!(
    /// A rate of events: arrivals, completions or services, each second.
    PerSecond,
    "/s"
);
quantity!(
    /// A share; 1.0 is the whole. Utilisation, a percentile divided by 100, a duty cycle.
    Ratio,
    "of 1"
);
quantity!(
    /// A length of time, in seconds.
    Seconds,
    "s"
);

impl Seconds {
    /// A length of time given in milliseconds.
    pub const fn from_millis(milliseconds: f64) -> Self {
        Self(milliseconds / 1e3)
    }

    /// A length of time given in microseconds.
    pub const fn from_micros(microseconds: f64) -> Self {
        Self(microseconds / 1e6)
    }

    /// The number, in milliseconds.
    pub const fn as_millis(self) -> f64 {
        self.0 * 1e3
    }

    /// As the standard library's type; a negative or NaN length becomes zero, a length beyond its range its
    /// maximum.
    pub fn to_duration(self) -> Duration {
        Duration::try_from_secs_f64(self.0.max(0.0)).unwrap_or(Duration::MAX)
    }
}

impl FromStr for Seconds {
    type Err = String;

    /// A number with `ms`, `s`, `m`, `h` or `d`, or without for seconds; none below zero or above a hundred years.
    fn from_str(text: &str) -> Result<Self, String> {
        let most_s = 36_525.0 * 86_400.0;
        let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
        let unit_s = match &text[digits.len()..] {
            "ms" => 1e-3,
            "" | "s" => 1.0,
            "m" | "min" => 60.0,
            "h" => 3600.0,
            "d" => 86_400.0,
            _ => f64::NAN,
        };
        let seconds = digits.trim().parse().ok().map(|number: f64| number * unit_s);
        let seconds = seconds.filter(|seconds| (0.0..=most_s).contains(seconds));
        seconds.map(Self::new).ok_or_else(|| {
            format!("`{text}` is no length of time: give a number with ms, s, m, h or d, as 90s or 10m; without it is seconds")
        })
    }
}

impl From<Duration> for Seconds {
    fn from(length: Duration) -> Self {
        Self(length.as_secs_f64())
    }
}

impl Ratio {
    /// A share given in percent.
    pub const fn from_percent(percent: f64) -> Self {
        Self(percent / 100.0)
    }

    /// The number, in percent.
    pub const fn as_percent(self) -> f64 {
        self.0 * 100.0
    }
}

/// Power held for a time is energy.
impl Mul<Seconds> for Watts {
    type Output = Joules;
    fn mul(self, time: Seconds) -> Joules {
        Joules(self.0 * time.0)
    }
}

/// Energy over a time is the mean power.
impl Div<Seconds> for Joules {
    type Output = Watts;
    fn div(self, time: Seconds) -> Watts {
        Watts(self.0 / time.0)
    }
}

/// A rate held for a time is a number of events.
impl Mul<Seconds> for PerSecond {
    type Output = f64;
    fn mul(self, time: Seconds) -> f64 {
        self.0 * time.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_length_of_time_is_in_seconds_or_has_its_unit() {
        for (text, seconds) in [
            ("10", 10.0),
            ("1.5s", 1.5),
            ("500ms", 0.5),
            ("1.5m", 90.0),
            ("2h", 7200.0),
            ("1d", 86_400.0),
            ("0s", 0.0),
        ] {
            assert_eq!(text.parse(), Ok(Seconds::new(seconds)), "{text}");
        }
        for text in [
            "", "s", "10 x", "5y", "nan", "NaN", "inf", "-1", "-1s", "1e300h", "999999d", "5 5s",
        ] {
            assert!(text.parse::<Seconds>().is_err(), "{text}");
        }
    }

    #[test]
    fn power_times_time_is_energy_and_back() {
        let energy = Watts::new(92.0) * Seconds::new(10.0);
        assert_eq!(energy, Joules::new(920.0));
        assert_eq!(energy / Seconds::new(10.0), Watts::new(92.0));
    }

    #[test]
    fn a_quantity_is_written_with_its_unit() {
        assert_eq!(format!("{:.1}", Watts::new(92.04)), "92.0 W");
        assert_eq!(Cores::new(0.5).to_string(), "0.5 cores");
    }

    #[test]
    fn a_quantity_is_a_bare_number_in_json() {
        assert_eq!(serde_json::to_string(&Cores::new(1.5)).unwrap(), "1.5");
        assert_eq!(serde_json::from_str::<Watts>("46.52").unwrap(), Watts::new(46.52));
    }

    #[test]
    fn a_length_that_is_no_length_becomes_zero() {
        assert_eq!(Seconds::new(-1.0).to_duration(), Duration::ZERO);
        assert_eq!(Seconds::new(f64::NAN).to_duration(), Duration::ZERO);
        assert_eq!(Seconds::new(f64::INFINITY).to_duration(), Duration::MAX);
    }

    proptest! {
        #[test]
        fn clamp_stays_inside(value in -1e9..1e9f64, low in -1e6..1e6f64, width in 0.0..1e6f64) {
            let clamped = Watts::new(value).clamp(Watts::new(low), Watts::new(low + width));
            prop_assert!(clamped.get() >= low && clamped.get() <= low + width);
        }

        #[test]
        fn milliseconds_survive_the_way_there_and_back(ms in 0.0..1e9f64) {
            let back = Seconds::from_millis(ms).as_millis();
            prop_assert!((back - ms).abs() <= 1e-9 * ms.max(1.0));
        }
    }
}
