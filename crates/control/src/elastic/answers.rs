//! What was answered of late, and how sure that is.

use std::collections::VecDeque;

/// So many seconds are of late,
pub(super) const LATE_S: f64 = 10.0;
/// and so many are the last of them, in which a load that has just risen is met. In fewer nothing is known of servers that have just changed.
const LAST_S: f64 = 3.0;

/// The answers of the last periods, and how long each was.
#[derive(Clone, Debug, Default)]
pub(super) struct Answers(VecDeque<(f64, f64)>);

impl Answers {
    /// Takes what was answered in a period, and forgets what is no longer of late.
    pub(super) fn observe(&mut self, answers: f64, length_s: f64) {
        self.0.push_back((answers, length_s));
        while self.0.iter().map(|(_, length_s)| length_s).sum::<f64>() > LATE_S.max(1.5 * length_s) {
            self.0.pop_front();
        }
    }

    /// Other servers take requests from now on: what was answered before is not what these answer.
    pub(super) fn forget(&mut self) {
        self.0.clear();
    }

    /// What was answered a second, of late, and the error of that: of a load that has just risen what was answered since, which is what servers
    /// in difficulty answer. `None` where that is known of too short a time.
    pub(super) fn rate(&self) -> Option<(f64, f64)> {
        let (mut last, mut all) = ((0.0, 0.0), (0.0, 0.0));
        for (answers, length_s) in self.0.iter().rev() {
            if last.1 < LAST_S {
                last = (last.0 + answers, last.1 + length_s);
            }
            all = (all.0 + answers, all.1 + length_s);
        }
        let rate = |(answers, seconds): (f64, f64)| (answers / seconds, answers.max(0.0).sqrt() / seconds);
        let [all, last] = [all, last].map(|sums| (sums.1 >= LAST_S).then(|| rate(sums)));
        let (all, last) = all.zip(last)?;
        Some(if last.0 > all.0 { last } else { all })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_answered_in_difficulty_is_not_what_was_answered_before_the_load_rose() {
        let mut answers = Answers::default();
        let mut see = |seconds: u32, rate: f64| {
            (0..seconds).for_each(|_| answers.observe(rate, 1.0));
            answers.rate().map(|(rate, _)| rate)
        };
        assert_eq!(see(20, 5.0), Some(5.0));
        assert_eq!(see(3, 155.0), Some(155.0));
        // One second in which few were answered is no limit.
        see(9, 155.0);
        let rate = see(1, 20.0).unwrap();
        assert!((rate - 141.5).abs() < 1.0, "{rate}");
        // Of servers that have just changed nothing is known yet, and then what these answered.
        answers.forget();
        assert_eq!(answers.rate(), None);
        (0..2).for_each(|_| answers.observe(60.0, 1.0));
        assert_eq!(answers.rate(), None);
        answers.observe(60.0, 1.0);
        assert_eq!(answers.rate().map(|(rate, _)| rate), Some(60.0));
    }
}
