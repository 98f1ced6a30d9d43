//! How late the control loop is, for the log: where a machine has no time for it, it is so in each period.

use std::time::{Duration, Instant};

/// How long nothing more is said of it after it was.
const EVERY: Duration = Duration::from_secs(10);

/// What is to be said of it.
#[derive(Debug, Default)]
pub(super) struct Lateness {
    said: Option<Instant>,
    since: Late,
}

/// Since it was said last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Late {
    /// How often it was late.
    pub times: u64,
    /// How late at most.
    pub most: Duration,
}

impl Lateness {
    /// It is late now by so much: what to say, where that is due.
    pub fn note(&mut self, now: Instant, late: Duration) -> Option<Late> {
        self.since.times += 1;
        self.since.most = self.since.most.max(late);
        if self.said.is_some_and(|said| now - said < EVERY) {
            return None;
        }
        self.said = Some(now);
        Some(std::mem::take(&mut self.since))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_said_is_counted_until_it_is() {
        let mut lateness = Lateness::default();
        let begin = Instant::now();
        let mut note = |at_s: u64, late_ms: u64| {
            let said = lateness.note(begin + Duration::from_secs(at_s), Duration::from_millis(late_ms));
            said.map(|late| (late.times, late.most.as_millis()))
        };
        assert_eq!(note(0, 200), Some((1, 200)));
        assert_eq!((note(1, 900), note(9, 300)), (None, None));
        assert_eq!(note(10, 400), Some((3, 900)));
        assert_eq!(note(60, 100), Some((1, 100)));
    }
}
