//! The day that both clusters serve: a trace between two shares of what all servers can do.

use headroom_units::{PerSecond, Seconds};
use headroom_workload::{Trace, TraceError};

/// The lowest and the highest load, as shares of what all servers can serve.
pub const RANGE: (f64, f64) = (0.10, 0.60);
/// Steps of one value of the trace: between two values the load goes along a line, for no day moves by steps of an hour.
const PARTS: usize = 16;

/// The trace's own shape between two shares of `most`, in this time; another trace on the scale of `day`, so that it may go beyond
/// them. Where the values of that are all the same, the load lies between.
///
/// # Errors
/// A time or a rate that cannot be.
pub fn between(
    trace: &Trace,
    day: &Trace,
    (low, high): (f64, f64),
    most: PerSecond,
    length: Seconds,
) -> Result<Trace, TraceError> {
    let (trough, swing) = (day.trough().get(), (day.peak() - day.trough()).get());
    let share = |rate: PerSecond| match swing > 0.0 {
        true => (low + (high - low) * (rate.get() - trough) / swing).max(0.0),
        false => (low + high) / 2.0,
    };
    let rates = trace.rates();
    let mut finer = Vec::with_capacity(rates.len() * PARTS);
    for (at, rate) in rates.iter().enumerate() {
        let (from, to) = (share(*rate), share(*rates.get(at + 1).unwrap_or(rate)));
        let along = (0..PARTS).map(|part| from + (to - from) * part as f64 / PARTS as f64);
        finer.extend(along.map(|share| most * share));
    }
    let name = format!("{} at {:.0} to {:.0} %", trace.name(), low * 100.0, high * 100.0);
    Trace::new(name, length / finer.len() as f64, finer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shape_stays_and_its_ends_are_the_shares() {
        let rates = [30.0, 10.0, 20.0].map(PerSecond::new).to_vec();
        let trace = Trace::new("t", Seconds::new(3600.0), rates).unwrap();
        let day = between(&trace, &trace, RANGE, PerSecond::new(100.0), Seconds::new(48.0)).unwrap();
        assert_eq!(day.rates().len(), 3 * PARTS);
        assert!((day.duration().get() - 48.0).abs() < 1e-9);
        let at = |seconds: f64| day.rate_at(Seconds::new(seconds)).get();
        for (seconds, rate) in [(0.0, 60.0), (8.0, 35.0), (16.0, 10.0), (24.0, 22.5), (40.0, 35.0)] {
            assert!((at(seconds) - rate).abs() < 1e-9, "{seconds}: {}", at(seconds));
        }
        // A day before it is on the same scale.
        let calm = Trace::new(
            "t",
            Seconds::new(3600.0),
            [20.0, 10.0, 15.0].map(PerSecond::new).to_vec(),
        )
        .unwrap();
        let before = between(&calm, &trace, RANGE, PerSecond::new(100.0), Seconds::new(48.0)).unwrap();
        assert!((before.peak().get() - 35.0).abs() < 1e-9, "{}", before.peak());
        let flat = Trace::constant(PerSecond::new(5.0), Seconds::new(10.0)).unwrap();
        let day = between(&flat, &flat, RANGE, PerSecond::new(100.0), Seconds::new(48.0)).unwrap();
        assert!((day.mean().get() - 35.0).abs() < 1e-9 && day.peak() == day.trough());
    }
}
