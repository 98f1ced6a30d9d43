//! Density: a closed loop that sends for a share of each window and sleeps for the rest.

use crate::clock::Moment;
use crate::error::{LoadError, in_range};
use headroom_units::{Ratio, Seconds};

/// The longest load, seconds.
pub(crate) const MAX_DURATION_S: f64 = 1e9;

/// A closed loop of so many connections, each of which sends for `density` of each window and sleeps for the rest, as
/// the paper on power by request size has it (Section 3.2: windows of 5 s, densities of 100, 75, 50 and 25 %).
///
/// **Windows of each connection's own** (`grid: false`, the paper's): a connection sends, one request after the other,
/// until `density × window` after its window began, waits for its outstanding answer, sleeps
/// `(1 − density) × window`, and begins its next window. So a window is longer than `window` by what the last answer
/// took beyond its time to send, and the share of time under load is *higher than the density*: little with answers of
/// a millisecond, much where 100 connections wait for answers of 1 MB each from a full network.
/// [`LoadPeriod::busy_connections`](crate::LoadPeriod::busy_connections) says what it was.
///
/// **Windows on a grid** (`grid: true`): window `k` begins at `k × window` after the load's start for all connections. A
/// request is begun in the first `density × window` of a window only, but its answer may come in the rest, and in the
/// next window if it takes so long. Windows stay as long as asked, so intervals over windows are over equal times.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bursts {
    /// How many connections.
    pub connections: usize,
    /// How long a window is; 0.01 s to an hour.
    pub window: Seconds,
    /// The share of each window in which requests are sent, above 0 and at most 1; with 1 nobody ever sleeps.
    pub density: Ratio,
    /// For how long altogether.
    pub duration: Seconds,
    /// Whether windows begin on a fixed grid.
    pub grid: bool,
}

impl Bursts {
    /// Connections that never sleep.
    pub fn closed(connections: usize, duration: Seconds) -> Self {
        Self {
            connections,
            window: Seconds::new(5.0),
            density: Ratio::new(1.0),
            duration,
            grid: false,
        }
    }

    /// Checks window, density and duration; connections are checked with the rest of the load.
    pub(crate) fn check(&self) -> Result<(), LoadError> {
        let remedy = "give a positive number of seconds";
        in_range(
            "duration",
            self.duration.get(),
            f64::MIN_POSITIVE,
            MAX_DURATION_S,
            remedy,
        )?;
        let remedy = "give from 0.01 to 3,600 seconds";
        in_range("window", self.window.get(), 0.01, 3600.0, remedy)?;
        let remedy = "give a share above 0 and at most 1, as 0.75";
        in_range("density", self.density.get(), f64::MIN_POSITIVE, 1.0, remedy)
    }

    /// The windows of a load that begins at `origin`.
    pub(crate) fn windows(&self, origin: Moment) -> Windows {
        let seconds = self.window.get();
        let window = Moment::ORIGIN.after(seconds).nanos_since(Moment::ORIGIN);
        let sending = Moment::ORIGIN.after(seconds * self.density.get());
        Windows {
            origin,
            window,
            sending: match self.density.get() < 1.0 {
                true => sending.nanos_since(Moment::ORIGIN),
                false => window,
            },
            grid: self.grid,
        }
    }
}

/// When connections send and when they sleep. In whole nanoseconds, so that a connection which wakes when a window
/// begins is in that window.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Windows {
    origin: Moment,
    window: u64,
    sending: u64,
    grid: bool,
}

impl Windows {
    /// Until when a connection that would send now sleeps instead; none where it sends. `began` is when the connection's
    /// window began; where it sleeps that becomes its next window's beginning.
    pub(crate) fn sleep_until(&self, began: &mut Moment, now: Moment) -> Option<Moment> {
        if self.sending >= self.window {
            return None;
        }
        if self.grid {
            let passed = now.nanos_since(self.origin);
            let into = passed % self.window;
            *began = self.origin.plus_nanos(passed - into);
        }
        if now.nanos_since(*began) < self.sending {
            return None;
        }
        *began = match self.grid {
            true => began.plus_nanos(self.window),
            false => now.plus_nanos(self.window - self.sending),
        };
        Some(*began)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bursts(density: f64, grid: bool) -> Bursts {
        Bursts {
            window: Seconds::new(5.0),
            density: Ratio::new(density),
            grid,
            ..Bursts::closed(1, Seconds::new(60.0))
        }
    }

    #[test]
    fn a_window_of_its_own_is_longer_by_what_the_last_answer_took() {
        let origin = Moment::now();
        let windows = bursts(0.75, false).windows(origin);
        let mut began = origin;
        assert_eq!(windows.sleep_until(&mut began, origin.after(3.7)), None);
        let wakes = windows.sleep_until(&mut began, origin.after(4.25));
        assert_eq!(wakes, Some(origin.after(5.5)), "4.25 s and a sleep of 1.25 s");
        assert_eq!(windows.sleep_until(&mut began, origin.after(5.5)), None);
        assert_eq!(windows.sleep_until(&mut began, origin.after(9.2)), None);
        assert!(windows.sleep_until(&mut began, origin.after(9.25)).is_some());
    }

    #[test]
    fn windows_on_a_grid_begin_on_it_whatever_answers_take() {
        let origin = Moment::now();
        let windows = bursts(0.5, true).windows(origin);
        let mut began = origin;
        assert_eq!(windows.sleep_until(&mut began, origin.after(2.4)), None);
        assert_eq!(
            windows.sleep_until(&mut began, origin.after(4.0)),
            Some(origin.after(5.0))
        );
        assert_eq!(windows.sleep_until(&mut began, origin.after(5.0)), None);
        assert_eq!(
            windows.sleep_until(&mut began, origin.after(11.0)),
            None,
            "an answer that came in a later window's time to send"
        );
        assert_eq!(
            windows.sleep_until(&mut began, origin.after(14.0)),
            Some(origin.after(15.0))
        );
    }

    #[test]
    fn full_density_never_sleeps() {
        let origin = Moment::now();
        for grid in [false, true] {
            let windows = bursts(1.0, grid).windows(origin);
            for seconds in [0.0, 4.9999, 5.0, 1e6] {
                assert_eq!(
                    windows.sleep_until(&mut origin.clone(), origin.after(seconds)),
                    None
                );
            }
        }
    }

    #[test]
    fn bad_bursts_are_named() {
        for (change, named) in [
            (
                Bursts {
                    density: Ratio::new(0.0),
                    ..bursts(1.0, false)
                },
                "density = 0",
            ),
            (bursts(1.1, false), "density = 1.1"),
            (bursts(f64::NAN, false), "density = NaN"),
            (
                Bursts {
                    window: Seconds::ZERO,
                    ..bursts(1.0, false)
                },
                "window = 0",
            ),
            (Bursts::closed(1, Seconds::ZERO), "duration = 0"),
        ] {
            let message = change.check().unwrap_err().to_string();
            assert!(message.contains(named), "{message}");
        }
    }
}
