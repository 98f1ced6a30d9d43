//! Between the mean latency, its coefficient of variation and a percentile: the generalised-exponential distribution.
//!
//! Source: the tail-SLO mode of the public implementation of AppleS \[F\]; REEF Section 3.5 unifies all SLOs to a mean latency this way. The
//! distribution is F(x) = (1 - e^(-x/b))^a with shape a and scale b:
//!
//! - mean E = b [psi(a + 1) - psi(1)],
//! - variance V = b^2 [psi'(1) - psi'(a + 1)],
//! - tail(p) = -b ln(1 - p^(1/(k a))) for a fan-out k: a query that waits for the slowest of k parts.
//!
//! E and V are both proportional to a power of b, so cv = sqrt(V) / E fixes a alone, and every percentile is a multiple of
//! the mean. The loop of UTSLO is a design of ours \[D\]: see [`Disengagement`].

use super::gamma::{digamma, trigamma};
use headroom_units::{PerSecond, Ratio, Seconds};

/// The least shape that is searched; below it the coefficient of variation exceeds 900.
const MIN_SHAPE: f64 = 1e-6;
/// The largest shape that is searched. The coefficient of variation falls only with the logarithm of the shape, so more
/// would gain nothing.
const MAX_SHAPE: f64 = 1e12;
/// Halvings of a search interval: enough for the last bit of a double.
const HALVINGS: usize = 200;
/// Panels of Simpson's rule over one segment of a disengagement table.
const PANELS: usize = 256;
/// Where fewer queries than this are slower, nothing of the distribution is left that an integral would need.
const NEGLIGIBLE: f64 = 1e-12;

/// A request for which there is no answer.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum TailError {
    /// No generalised exponential has this coefficient of variation.
    #[error(
        "a coefficient of variation of {cv} is outside {least:.4} to {most:.0}, what a generalised exponential can have"
    )]
    Unreachable {
        /// What was asked.
        cv: f64,
        /// The least that can be.
        least: f64,
        /// The most that can be.
        most: f64,
    },
    /// A percentile is not between 0 and 1, or a target or fan-out is not positive.
    #[error("{what} is {value}: it must be {range}")]
    OutOfRange {
        /// Which number.
        what: &'static str,
        /// Its value.
        value: f64,
        /// What it may be.
        range: &'static str,
    },
    /// Even a latency of 0 disengages more users than the target allows.
    #[error("a disengagement ratio of {target} cannot be kept: the table has {least} at the lowest latency")]
    NeverKept {
        /// The target ratio.
        target: f64,
        /// The ratio of the table at a latency of 0.
        least: f64,
    },
}

/// The shape a of a generalised exponential.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shape(f64);

impl Shape {
    /// The shape of an exponential distribution, whose coefficient of variation is 1.
    pub const EXPONENTIAL: Self = Self(1.0);

    /// The shape with this coefficient of variation (standard deviation / mean), by bisection: cv falls as a grows.
    ///
    /// # Errors
    /// [`TailError::Unreachable`] where no shape has it.
    pub fn of_cv(cv: Ratio) -> Result<Self, TailError> {
        let (least, most) = (Self(MAX_SHAPE).cv().get(), Self(MIN_SHAPE).cv().get());
        if !(least..=most).contains(&cv.get()) {
            return Err(TailError::Unreachable {
                cv: cv.get(),
                least,
                most,
            });
        }
        let found = bisect(MIN_SHAPE, MAX_SHAPE, |shape| Self(shape).cv().get() > cv.get());
        Ok(Self(found))
    }

    /// The same, with what is out of reach moved to the nearest that is in reach. The second says whether it was moved:
    /// whoever reports the answer must say so. What is no number counts as 1, an exponential.
    pub fn of_cv_clamped(cv: Ratio) -> (Self, bool) {
        match Self::of_cv(cv) {
            Ok(shape) => (shape, false),
            Err(_) if cv.get().is_nan() => (Self::EXPONENTIAL, true),
            Err(_) if cv.get() < 1.0 => (Self(MAX_SHAPE), true),
            Err(_) => (Self(MIN_SHAPE), true),
        }
    }

    /// The shape itself, a.
    pub const fn get(self) -> f64 {
        self.0
    }

    /// E / b.
    fn mean_per_scale(self) -> f64 {
        digamma(self.0 + 1.0) - digamma(1.0)
    }

    /// The coefficient of variation, sqrt(V) / E.
    pub fn cv(self) -> Ratio {
        let variance = trigamma(1.0) - trigamma(self.0 + 1.0);
        Ratio::new(variance.sqrt() / self.mean_per_scale())
    }

    /// tail(p) / E: how many times the mean the percentile p is, of queries of which each waits for `fanout` parts.
    ///
    /// # Errors
    /// [`TailError::OutOfRange`] for a percentile that is not within 0 and 1, both excluded, or a fan-out of 0.
    pub fn tail_per_mean(self, percentile: Ratio, fanout: u32) -> Result<f64, TailError> {
        let p = percentile.get();
        if !(p > 0.0 && p < 1.0) {
            let range = "greater than 0 and below 1";
            return Err(TailError::OutOfRange {
                what: "the percentile",
                value: p,
                range,
            });
        }
        if fanout == 0 {
            let range = "1 or more";
            return Err(TailError::OutOfRange {
                what: "the fan-out",
                value: 0.0,
                range,
            });
        }
        // p^(1/(k a)) is near 1 for a large shape and near 0 for a small one: each side has the form that keeps its digits.
        let exponent = p.ln() / (f64::from(fanout) * self.0);
        let tail = match exponent > -1.0 {
            true => -(-exponent.exp_m1()).ln(),
            false => -(-exponent.exp()).ln_1p(),
        };
        Ok(tail / self.mean_per_scale())
    }

    /// The percentile of queries with this mean latency, in seconds.
    ///
    /// # Errors
    /// As [`tail_per_mean`](Self::tail_per_mean).
    pub fn tail(self, mean: Seconds, percentile: Ratio, fanout: u32) -> Result<Seconds, TailError> {
        Ok(mean * self.tail_per_mean(percentile, fanout)?)
    }

    /// The share of queries slower than `latency`, where their mean is `mean`.
    pub fn slower(self, mean: Seconds, latency: Seconds) -> f64 {
        let scale = mean.get() / self.mean_per_scale();
        let below = -(-latency.get().max(0.0) / scale).exp();
        -(self.0 * below.ln_1p()).exp_m1()
    }
}

/// One percentile SLO: this share of queries is answered within the target.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TailSlo {
    /// Which percentile, such as 0.99.
    pub percentile: Ratio,
    /// The longest latency that it may have, in seconds.
    pub target: Seconds,
}

/// The mean latency budget m of a connection: the largest mean with which all its percentiles keep their targets, the
/// minimum over them. `None` where it has no SLO.
///
/// # Errors
/// [`TailError::OutOfRange`] for an SLO or a fan-out that cannot be.
pub fn mean_budget(slos: &[TailSlo], shape: Shape, fanout: u32) -> Result<Option<Seconds>, TailError> {
    let mut least: Option<Seconds> = None;
    for slo in slos {
        let value = slo.target.get();
        if !(value > 0.0 && value.is_finite()) {
            let range = "greater than 0";
            return Err(TailError::OutOfRange {
                what: "the target",
                value,
                range,
            });
        }
        let budget = Seconds::new(value / shape.tail_per_mean(slo.percentile, fanout)?);
        least = Some(least.map_or(budget, |least| least.min(budget)));
    }
    Ok(least)
}

/// The throughput target of one thread with this mean latency budget, 1 / m by Little's law with one query in flight, in
/// queries per second.
pub fn throughput_target(mean: Seconds) -> PerSecond {
    PerSecond::new(1.0 / mean.get())
}

/// How likely a user is to give up at a latency: d(latency), a table of points joined by straight lines and constant
/// outside of it. The user disengagement ratio (UDR) of a connection is the mean of d over its queries.
///
/// The loop is a design of ours \[D\]: which d UTSLO uses is not public to us, so it is configured.
#[derive(Clone, Debug, PartialEq)]
pub struct Disengagement(Vec<(Seconds, Ratio)>);

impl Disengagement {
    /// A table of (latency, share of users who give up).
    ///
    /// # Errors
    /// [`TailError::OutOfRange`] where it is empty, latencies do not rise, or shares fall or leave 0 to 1.
    pub fn new(points: Vec<(Seconds, Ratio)>) -> Result<Self, TailError> {
        let refuse = |what, value, range| Err(TailError::OutOfRange { what, value, range });
        if points.is_empty() {
            return refuse(
                "the number of points of the disengagement table",
                0.0,
                "1 or more",
            );
        }
        let mut before: Option<(Seconds, Ratio)> = None;
        for &(latency, share) in &points {
            let (x, d) = (latency.get(), share.get());
            let rises = before.is_none_or(|(latency, _)| x > latency.get());
            if !(x >= 0.0 && x.is_finite() && rises) {
                return refuse(
                    "a latency of the disengagement table",
                    x,
                    "0 or more, finite and above the one before",
                );
            }
            let falls = before.is_some_and(|(_, share)| d < share.get());
            if !(0.0..=1.0).contains(&d) || falls {
                return refuse(
                    "a share of the disengagement table",
                    d,
                    "within 0 and 1 and not below the one before",
                );
            }
            before = Some((latency, share));
        }
        Ok(Self(points))
    }

    /// d(latency).
    pub fn at(&self, latency: Seconds) -> Ratio {
        let above = self.0.partition_point(|(x, _)| *x <= latency);
        let Some(&(high, most)) = self.0.get(above) else {
            return self.0[self.0.len() - 1].1;
        };
        let Some(&(low, least)) = above.checked_sub(1).and_then(|below| self.0.get(below)) else {
            return most;
        };
        let along = (latency - low).get() / (high - low).get();
        Ratio::new(least.get() + along * (most.get() - least.get()))
    }

    /// The UDR of measured latencies; `None` where there are none.
    pub fn measured(&self, latencies: &[Seconds]) -> Option<Ratio> {
        let sum: f64 = latencies.iter().map(|latency| self.at(*latency).get()).sum();
        (!latencies.is_empty()).then(|| Ratio::new(sum / latencies.len() as f64))
    }

    /// The expected UDR of queries with this mean and shape: d(0) and, over each segment, its slope times the integral of
    /// the share of queries that are slower (the mean of a rising function, integrated by parts), by Simpson's rule.
    pub fn expected(&self, mean: Seconds, shape: Shape) -> Ratio {
        let nearly_all = Ratio::new(1.0 - NEGLIGIBLE);
        let last = shape
            .tail(mean, nearly_all, 1)
            .map_or(f64::INFINITY, Seconds::get);
        let rising: f64 = self
            .0
            .windows(2)
            .map(|ends| {
                let ((low, least), (high, most)) = (ends[0], ends[1]);
                let slope = (most.get() - least.get()) / (high - low).get();
                let end = high.get().min(last);
                if slope <= 0.0 || end <= low.get() {
                    return 0.0;
                }
                slope * simpson(low.get(), end, |x| shape.slower(mean, Seconds::new(x)))
            })
            .sum();
        Ratio::new((self.0[0].1.get() + rising).min(1.0))
    }

    /// The largest mean latency whose expected UDR keeps `target` at this shape; `None` where the table never exceeds it.
    ///
    /// # Errors
    /// [`TailError::NeverKept`] where even a latency of 0 exceeds it.
    pub fn mean_budget(&self, target: Ratio, shape: Shape) -> Result<Option<Seconds>, TailError> {
        let (least, most) = (self.0[0].1, self.0[self.0.len() - 1]);
        if target < least || target.get().is_nan() {
            return Err(TailError::NeverKept {
                target: target.get(),
                least: least.get(),
            });
        }
        if most.1 <= target {
            return Ok(None);
        }
        let keeps = |mean: f64| self.expected(Seconds::new(mean), shape) <= target;
        let (mut low, mut high) = (most.0.get() * 1e-9, most.0.get());
        if !keeps(low) {
            return Err(TailError::NeverKept {
                target: target.get(),
                least: least.get(),
            });
        }
        // Queries far slower than the end of the table all disengage the most, which exceeds the target: this ends.
        while keeps(high) && high < f64::MAX / 2.0 {
            low = high;
            high *= 2.0;
        }
        Ok(Some(Seconds::new(bisect(low, high, keeps))))
    }
}

/// Where `left_of` turns from true to false between two positive numbers, halved by their logarithms.
fn bisect(mut low: f64, mut high: f64, left_of: impl Fn(f64) -> bool) -> f64 {
    for _ in 0..HALVINGS {
        let middle = low.sqrt() * high.sqrt();
        if middle <= low || middle >= high {
            break;
        }
        match left_of(middle) {
            true => low = middle,
            false => high = middle,
        }
    }
    low
}

/// The integral of a function by Simpson's rule.
fn simpson(from: f64, to: f64, function: impl Fn(f64) -> f64) -> f64 {
    let step = (to - from) / PANELS as f64;
    let inner: f64 = (1..PANELS)
        .map(|panel| {
            let weight = if panel % 2 == 1 { 4.0 } else { 2.0 };
            weight * function(from + step * panel as f64)
        })
        .sum();
    step / 3.0 * (function(from) + inner + function(to))
}

#[cfg(test)]
#[path = "tail_tests.rs"]
mod tests;
