//! When requests are meant to be sent: an arrival process over a trace.
//!
//! Time is rescaled: with the rate `r(t)` of the trace, a process of rate 1 on the axis `M(t) = integral of r`
//! becomes one of rate `r(t)` on the clock. For exponential gaps on that axis the result is exactly the
//! inhomogeneous Poisson process of the trace (no thinning, so no draw is wasted); for gaps of exactly 1 it is
//! the even spacing.
//!
//! ```
//! use headroom_units::{PerSecond, Seconds};
//! use headroom_workload::{Arrivals, Spacing, Trace};
//!
//! let trace = Trace::constant(PerSecond::new(2.0), Seconds::new(2.0))?;
//! let even: Vec<f64> = Arrivals::new(trace.clone(), Spacing::Even, 0).map(Seconds::get).collect();
//! assert_eq!(even, [0.25, 0.75, 1.25, 1.75]);
//! let poisson = |seed| Arrivals::new(trace.clone(), Spacing::Poisson, seed).collect::<Vec<_>>();
//! assert_eq!(poisson(1), poisson(1));
//! assert_ne!(poisson(1), poisson(2));
//! # Ok::<(), headroom_workload::TraceError>(())
//! ```

use crate::random::Draw;
use crate::trace::Trace;
use headroom_units::Seconds;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// How arrivals are spaced on the rescaled axis.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Spacing {
    /// Independent exponential gaps: a Poisson process, inhomogeneous where the rate changes.
    #[default]
    Poisson,
    /// Equal gaps; the first arrival comes after half a gap, so that `n` expected requests are `n` arrivals.
    Even,
}

/// A place on the trace: a value's index and the time, seconds from the start (`index` is that time's step).
#[derive(Clone, Copy, Debug, PartialEq)]
struct Cursor {
    index: usize,
    time: f64,
}

/// The intended send times over a trace, an iterator in memory that does not grow.
///
/// Times are from the trace's start and never decrease; the iterator ends with the trace. `R` is the random stream that
/// gaps are drawn from.
#[derive(Clone, Debug)]
pub struct Arrivals<R = ChaCha8Rng> {
    trace: Arc<Trace>,
    /// When they end, seconds from the start.
    end: f64,
    spacing: Spacing,
    rng: R,
    /// Where the last arrival was.
    base: Cursor,
    /// Expected requests from `base` to the next arrival.
    gap: f64,
    /// Where the next arrival is; computed when first asked for.
    next: Option<Option<Cursor>>,
}

impl Arrivals {
    /// The arrivals over a trace. The same seed gives the same times.
    pub fn new(trace: impl Into<Arc<Trace>>, spacing: Spacing, seed: u64) -> Self {
        Self::drawn_from(trace, spacing, ChaCha8Rng::seed_from_u64(seed))
    }
}

impl<R: Draw> Arrivals<R> {
    /// The arrivals over a trace, their gaps drawn from a random stream.
    pub fn drawn_from(trace: impl Into<Arc<Trace>>, spacing: Spacing, rng: R) -> Self {
        let trace = trace.into();
        let mut arrivals = Self {
            end: trace.duration().get(),
            trace,
            spacing,
            rng,
            base: Cursor { index: 0, time: 0.0 },
            gap: 0.5,
            next: None,
        };
        if spacing == Spacing::Poisson {
            arrivals.gap = arrivals.rng.exponential();
        }
        arrivals
    }

    /// The trace.
    pub fn trace(&self) -> &Arc<Trace> {
        &self.trace
    }

    /// The same arrivals, but for those at or after a time from the trace's start: it need be no whole step of the trace.
    #[must_use]
    pub fn ending_at(mut self, end: Seconds) -> Self {
        self.end = self.end.min(end.get());
        self.next = None;
        self
    }

    /// How long they go on: the trace's length, or less where they end before.
    pub fn duration(&self) -> Seconds {
        Seconds::new(self.end)
    }

    /// How many are to be expected from the trace's start to their end.
    pub fn expected(&self) -> f64 {
        let step = self.trace.step().get();
        let held = |at: usize| (self.end - at as f64 * step).clamp(0.0, step);
        let rates = self.trace.rates().iter().enumerate();
        rates.map(|(at, rate)| rate.get() * held(at)).sum()
    }

    /// When the next arrival is, without taking it; none once they have ended.
    pub fn peek(&mut self) -> Option<Seconds> {
        self.next_cursor().map(|cursor| Seconds::new(cursor.time))
    }

    fn rate(&self, index: usize) -> f64 {
        self.trace.rates()[index].get()
    }

    fn next_cursor(&mut self) -> Option<Cursor> {
        if self.next.is_none() {
            self.next = Some(self.find_next());
        }
        self.next.flatten()
    }

    /// Walks the trace from `base` until the gap is spent.
    fn find_next(&self) -> Option<Cursor> {
        let Cursor { mut index, mut time } = self.base;
        let mut gap = self.gap;
        let step = self.trace.step().get();
        while index < self.trace.rates().len() {
            let end = (index + 1) as f64 * step;
            let rate = self.rate(index);
            let room = rate * (end - time).max(0.0);
            if gap < room {
                // Rounding may put the quotient on the step's end; the arrival belongs to this step.
                let cursor = Cursor {
                    index,
                    time: (time + gap / rate).min(end),
                };
                // At the trace's own end rounding may put the last one on it.
                let is_whole = self.end >= self.trace.duration().get();
                return (is_whole || cursor.time < self.end).then_some(cursor);
            }
            gap -= room;
            time = end;
            index += 1;
        }
        None
    }
}

impl<R: Draw> Iterator for Arrivals<R> {
    type Item = Seconds;

    fn next(&mut self) -> Option<Seconds> {
        let cursor = self.next_cursor()?;
        self.base = cursor;
        self.gap = match self.spacing {
            Spacing::Poisson => self.rng.exponential(),
            Spacing::Even => 1.0,
        };
        self.next = None;
        Some(Seconds::new(cursor.time))
    }
}

#[cfg(test)]
mod tests;
