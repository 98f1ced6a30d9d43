//! Whether what is counted of a whole machine is this port's.
//!
//! The kernel's exported counters, the tools and SNMP know nothing of ports: on a machine that serves on others too, they
//! would make an estimate of all together. Where the program in the kernel counts the port's own, the two are compared.

use headroom_units::{PerSecond, Seconds};
use std::collections::VecDeque;

/// The shortest time over which counts are compared, and the longest that is remembered.
const MIN_S: f64 = 3.0;
const MAX_S: f64 = 30.0;
/// Samples remembered of each.
const MAX_SAMPLES: usize = 4_096;
/// Counts that are not taken at one instant may differ by so much and by this share.
const SLACK: f64 = 10.0;
const SLACK_SHARE: f64 = 0.1;

/// A count over time.
#[derive(Clone, Debug, Default)]
pub struct Count(VecDeque<(f64, u64)>);

/// How much of a machine's count is not a port's.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Beyond {
    /// What is not the port's, and how much there was.
    pub others: f64,
    /// See `others`.
    pub all: f64,
    /// Whether that is more than chance.
    pub are_many: bool,
}

impl Count {
    /// Takes the newest; one that went back, or a pause, begins anew.
    pub fn push(&mut self, at: Seconds, count: u64) {
        let at_s = at.get();
        let follows = |last: &(f64, u64)| last.1 <= count && last.0 <= at_s && at_s - last.0 <= MAX_S;
        if !self.0.back().is_some_and(follows) {
            self.0.clear();
        }
        self.0.push_back((at_s, count));
        while self.0.len() > MAX_SAMPLES || self.0.front().is_some_and(|first| at_s - first.0 > MAX_S) {
            self.0.pop_front();
        }
    }

    /// The count at a time between two samples, in proportion.
    fn at(&self, at_s: f64) -> Option<f64> {
        let after = self.0.iter().position(|sample| sample.0 >= at_s)?;
        let (later_s, later) = self.0[after];
        let Some((earlier_s, earlier)) = after.checked_sub(1).map(|before| self.0[before]) else {
            return (later_s == at_s).then_some(later as f64);
        };
        let share = (at_s - earlier_s) / (later_s - earlier_s).max(f64::MIN_POSITIVE);
        Some(earlier as f64 + (later - earlier) as f64 * share)
    }

    /// How many a second there were over this latest time; `None` where it was not counted for as long.
    pub fn rate(&self, over: Seconds) -> Option<PerSecond> {
        let last = self.0.back()?;
        let before = self.at(last.0 - over.get())?;
        (over > Seconds::ZERO).then(|| PerSecond::new((last.1 as f64 - before) / over.get()))
    }

    /// How many of this count, the machine's, over its latest seconds were not the port's, and whether those are more than the
    /// two counts can differ by chance. What this count shows may be older than its reading by `lag`: then the port's over the longer
    /// time are what it can hold. `None` where they were not counted over the same time for long enough.
    pub fn beyond(&self, port: &Self, lag: Seconds) -> Option<Beyond> {
        let (first, last) = (port.0.front()?.0 + lag.get(), port.0.back()?.0);
        // Both must have been counted over the same time.
        let inside = || {
            self.0
                .iter()
                .filter(|sample| sample.0 >= first && sample.0 <= last)
        };
        let (from, to) = (inside().next()?, inside().next_back()?);
        if to.0 - from.0 < MIN_S {
            return None;
        }
        let all = (to.1 - from.1) as f64;
        let own = port.at(to.0)? - port.at(from.0 - lag.get())?;
        let others = all - own;
        Some(Beyond {
            others,
            all,
            are_many: others > SLACK + SLACK_SHARE * own,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(samples: &[(f64, u64)]) -> Count {
        let mut count = Count::default();
        for (at_s, value) in samples {
            count.push(Seconds::new(*at_s), *value);
        }
        count
    }

    /// The others and all, where they are many.
    fn many(machine: &Count, port: &Count, lag: Seconds) -> Option<(f64, f64)> {
        let beyond = machine.beyond(port, lag).filter(|beyond| beyond.are_many);
        beyond.map(|beyond| (beyond.others, beyond.all))
    }

    #[test]
    fn connections_to_other_ports_are_found() {
        let port = count(&[
            (0.0, 0),
            (1.0, 100),
            (2.0, 200),
            (3.0, 300),
            (4.0, 400),
            (5.0, 500),
        ]);
        let same = count(&[
            (0.5, 1_050),
            (1.5, 1_152),
            (2.5, 1_250),
            (3.5, 1_349),
            (4.5, 1_450),
        ]);
        assert!(!same.beyond(&port, Seconds::ZERO).unwrap().are_many);
        let more = count(&[
            (0.5, 1_050),
            (1.5, 1_200),
            (2.5, 1_350),
            (3.5, 1_500),
            (4.5, 1_650),
        ]);
        assert_eq!(many(&more, &port, Seconds::ZERO), Some((200.0, 600.0)));
    }

    #[test]
    fn a_count_that_lags_behind_is_compared_with_what_it_can_hold() {
        // 100 a second for 20 s, then 10: an agent that reads every fifth second shows the old rate for longer.
        let (mut port, mut agent) = (Count::default(), Count::default());
        let so_far = |at: u32| u64::from(at.min(20) * 100 + at.saturating_sub(20) * 10);
        let (mut hasty, mut patient) = (0, 0);
        for at in 0..60u32 {
            port.push(Seconds::new(f64::from(at)), so_far(at));
            agent.push(Seconds::new(f64::from(at)), so_far(at / 5 * 5));
            hasty += u32::from(many(&agent, &port, Seconds::ZERO).is_some());
            patient += u32::from(many(&agent, &port, Seconds::new(6.0)).is_some());
        }
        assert!(hasty > 0 && patient == 0, "{hasty} {patient}");
    }

    #[test]
    fn too_short_a_time_and_a_count_that_began_anew_say_nothing() {
        let port = count(&[(0.0, 0), (1.0, 1), (2.0, 2), (3.0, 3)]);
        assert_eq!(
            count(&[(0.5, 0), (2.5, 900)]).beyond(&port, Seconds::ZERO),
            None,
            "2 s"
        );
        assert_eq!(
            count(&[(0.5, 500), (1.5, 3), (2.5, 900)]).beyond(&port, Seconds::ZERO),
            None
        );
        assert_eq!(Count::default().beyond(&port, Seconds::ZERO), None);
        assert_eq!(port.beyond(&Count::default(), Seconds::ZERO), None);
        let mut long = Count::default();
        for second in 0..100u32 {
            long.push(Seconds::new(f64::from(second)), u64::from(second));
        }
        assert!(long.0.len() <= 32, "{}", long.0.len());
    }
}
