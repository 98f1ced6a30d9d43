//! Time in nanoseconds of the monotonic clock, and a timer that keeps it.

use rustix::time::{ClockId, Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec};
use std::io;
use std::os::fd::OwnedFd;
use tokio::io::unix::AsyncFd;

/// Nanoseconds in a second.
const SECOND: u64 = 1_000_000_000;

/// A moment: nanoseconds of `CLOCK_MONOTONIC`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Moment(u64);

impl Moment {
    /// Later than any moment.
    pub(crate) const NEVER: Self = Self(u64::MAX);

    /// The clock's beginning: lengths are counted from it.
    pub(crate) const ORIGIN: Self = Self(0);

    /// This moment.
    pub(crate) fn now() -> Self {
        Self(nanoseconds(rustix::time::clock_gettime(ClockId::Monotonic)))
    }

    /// So many seconds later.
    pub(crate) fn after(self, seconds: f64) -> Self {
        // A cast from f64 saturates, and a negative length is none.
        Self(self.0.saturating_add((seconds * SECOND as f64) as u64))
    }

    /// Seconds since an earlier moment; zero if that is later.
    pub(crate) fn since(self, earlier: Self) -> f64 {
        self.0.saturating_sub(earlier.0) as f64 / SECOND as f64
    }

    /// So many nanoseconds later.
    pub(crate) fn plus_nanos(self, nanos: u64) -> Self {
        Self(self.0.saturating_add(nanos))
    }

    /// Nanoseconds since an earlier moment; zero if that is later.
    pub(crate) fn nanos_since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }

    /// Whole microseconds since an earlier moment; zero if that is later.
    pub(crate) fn micros_since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0) / 1000
    }
}

/// CPU time that the calling thread has used, seconds.
pub(crate) fn thread_cpu() -> f64 {
    nanoseconds(rustix::time::clock_gettime(ClockId::ThreadCPUTime)) as f64 / SECOND as f64
}

fn nanoseconds(time: Timespec) -> u64 {
    // Neither clock is ever negative.
    time.tv_sec.unsigned_abs() * SECOND + time.tv_nsec.unsigned_abs()
}

/// A timer of the kernel's high resolution, which is set with [`set_timer`] and is readable once its moment has come.
pub(crate) fn timer() -> io::Result<OwnedFd> {
    let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
    Ok(rustix::time::timerfd_create(TimerfdClockId::Monotonic, flags)?)
}

/// Sets a timer to a moment. This takes back an expiry that nobody read, so the timer need not be read.
pub(crate) fn set_timer(timer: &OwnedFd, moment: Moment) -> io::Result<()> {
    let once = Itimerspec {
        it_interval: Timespec::default(),
        it_value: Timespec {
            tv_sec: i64::try_from(moment.0 / SECOND).unwrap_or(i64::MAX),
            tv_nsec: (moment.0 % SECOND) as _,
        },
    };
    rustix::time::timerfd_settime(timer, TimerfdTimerFlags::ABSTIME, &once)?;
    Ok(())
}

/// A timer of the kernel's high resolution, in place of tokio's, which rounds up to a millisecond.
pub(crate) struct PreciseTimer(AsyncFd<OwnedFd>);

impl PreciseTimer {
    /// A timer on the current tokio runtime.
    pub(crate) fn new() -> io::Result<Self> {
        let timer = timer()?;
        // SAFETY: an `OwnedFd` is a valid, open file descriptor, always the same one, until it is dropped, and the
        // `AsyncFd` that owns it gives it to nobody.
        #[allow(unsafe_code)]
        let registered = unsafe { AsyncFd::register_with_interest(timer, tokio::io::Interest::READABLE) };
        Ok(Self(registered?))
    }

    /// Waits until a moment. It may return early when an earlier wait was abandoned: look at the clock.
    pub(crate) async fn wait_until(&self, moment: Moment) -> io::Result<()> {
        if moment <= Moment::now() {
            return Ok(());
        }
        set_timer(self.0.get_ref(), moment)?;
        self.0.readable().await?.clear_ready();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_add_and_subtract() {
        let start = Moment(5_000);
        assert_eq!(start.after(1.5), Moment(1_500_005_000));
        assert_eq!(start.after(-1.0), start);
        assert_eq!(start.after(f64::INFINITY), Moment::NEVER);
        assert_eq!(start.after(0.001).micros_since(start), 1000);
        assert_eq!(start.micros_since(start.after(1.0)), 0);
        assert_eq!(start.after(2.0).since(start), 2.0);
    }

    #[test]
    fn the_timer_never_ends_a_fresh_wait_early_and_mostly_ends_it_sharply() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let mut late: Vec<f64> = runtime.block_on(async {
            let timer = PreciseTimer::new().unwrap();
            let mut late = Vec::new();
            for _ in 0..200 {
                let until = Moment::now().after(300e-6);
                timer.wait_until(until).await.unwrap();
                assert!(Moment::now() >= until);
                late.push(Moment::now().since(until));
            }
            late
        });
        late.sort_by(f64::total_cmp);
        // tokio's own timer would be 700 us late or more on every wait of 300 us.
        assert!(
            late[50] < 600e-6,
            "a quarter of the waits were at most {:.0} us late",
            late[50] * 1e6
        );
    }

    #[test]
    fn an_abandoned_wait_does_not_block_the_next() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            let timer = PreciseTimer::new().unwrap();
            let far = Moment::now().after(3600.0);
            let abandoned =
                tokio::time::timeout(std::time::Duration::from_millis(5), timer.wait_until(far)).await;
            assert!(abandoned.is_err());
            timer.wait_until(Moment::now().after(0.001)).await.unwrap();
        });
    }
}
