//! Time for meters: two clocks, because the monotonic one stands still while the machine is suspended.

use headroom_units::Seconds;
use rustix::time::{ClockId, clock_gettime};
use std::time::Duration;

/// What both clocks show at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Moment {
    /// `CLOCK_MONOTONIC`: without the time in suspend.
    pub(crate) monotonic: Duration,
    /// `CLOCK_BOOTTIME`: with it.
    pub(crate) boot: Duration,
}

/// The time between two moments.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Elapsed {
    /// Awake.
    pub(crate) awake: Seconds,
    /// In suspend.
    pub(crate) asleep: Seconds,
}

/// The two clocks are read one after the other: less than this between them is no suspend.
const MIN_SUSPEND_S: f64 = 0.1;

impl Elapsed {
    /// Awake all the time.
    #[cfg(test)]
    pub(crate) fn awake(seconds: f64) -> Self {
        Self {
            awake: Seconds::new(seconds),
            asleep: Seconds::ZERO,
        }
    }

    /// Whether the machine was suspended meanwhile.
    pub(crate) fn suspended(self) -> bool {
        self.asleep.get() >= MIN_SUSPEND_S
    }
}

impl Moment {
    /// The time since an earlier moment.
    pub(crate) fn since(self, earlier: Self) -> Elapsed {
        let awake = self.monotonic.saturating_sub(earlier.monotonic);
        let all = self.boot.saturating_sub(earlier.boot);
        Elapsed {
            awake: awake.into(),
            asleep: all.saturating_sub(awake).into(),
        }
    }
}

/// Whatever tells the time.
pub(crate) trait Clock: std::fmt::Debug + Send {
    /// Now.
    fn now(&self) -> Moment;
}

/// The kernel's clocks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KernelClock;

impl Clock for KernelClock {
    fn now(&self) -> Moment {
        let read = |id| {
            let time = clock_gettime(id);
            Duration::new(
                u64::try_from(time.tv_sec).unwrap_or(0),
                u32::try_from(time.tv_nsec).unwrap_or(0),
            )
        };
        Moment {
            monotonic: read(ClockId::Monotonic),
            boot: read(ClockId::Boottime),
        }
    }
}

#[cfg(test)]
pub(crate) mod fake {
    use super::*;
    use std::sync::{Arc, Mutex};

    /// A clock that moves when it is told to.
    #[derive(Clone, Debug, Default)]
    pub(crate) struct FakeClock(Arc<Mutex<Moment>>);

    impl FakeClock {
        pub(crate) fn pass(&self, awake: Duration, asleep: Duration) {
            let mut now = self.0.lock().unwrap();
            now.monotonic += awake;
            now.boot += awake + asleep;
        }
    }

    impl Clock for FakeClock {
        fn now(&self) -> Moment {
            *self.0.lock().unwrap()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_suspend_is_what_one_clock_saw_and_the_other_did_not() {
        let start = Moment::default();
        let end = Moment {
            monotonic: Duration::from_secs(2),
            boot: Duration::from_secs(62),
        };
        let elapsed = end.since(start);
        assert_eq!((elapsed.awake.get(), elapsed.asleep.get()), (2.0, 60.0));
        assert!(elapsed.suspended());
        assert!(!Elapsed::awake(5.0).suspended());
        assert_eq!(start.since(end).awake, Seconds::ZERO);
    }

    #[test]
    fn the_kernels_clocks_go_forward() {
        let before = KernelClock.now();
        std::thread::sleep(Duration::from_millis(2));
        let elapsed = KernelClock.now().since(before);
        assert!(elapsed.awake.get() >= 0.002);
    }
}
