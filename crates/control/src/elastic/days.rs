//! What comes at this time of the day: learned from the days before, and believed as long as what it foresaw came.
//!
//! A load that jumps tells nothing of it a boot before; that it jumped at the same time yesterday does. Of each slot of the day yesterday's
//! mean load is kept. Of a day that is quieter, which an hour shows beyond the noise of its slots, so much less is foreseen of its level, and
//! as high a rise as ever: that the night is quiet says nothing of the morning's jump, which is taken for less once less of it came. Where a slot was foreseen to bring
//! clearly more than the one before it did, it is held against what came: a rise that did not come is not waited for any longer, and where
//! most of those of late did not, none is believed. So a day that was like no other costs a slot, and a rise that comes every day is
//! foreseen from its second time on.

use crate::history::LoadHistory;
use std::collections::VecDeque;

/// A slot is no shorter than this, seconds, and no longer than one of so many of a day.
const SLOT_S: f64 = 300.0;
/// The fewest slots of a day.
pub const FEWEST_SLOTS: usize = 288;
const MOST_SLOTS: usize = 4_096;
/// A slot is known by so much of it at least.
const SEEN: f64 = 0.5;
/// More than so many times what the slot before brought is a rise that is foreseen; so much of it at least has come if it came.
const RISE: f64 = 1.25;
const CAME: f64 = 0.75;
/// What a rise leaves of those before it, in how far they are believed.
const RISES: f64 = 0.8;
/// The share of the rises that came which is believed.
const BELIEVED: f64 = 0.5;
/// What today is of yesterday is told by one of so many parts of a day, and by so many deviations of its slots' mean.
const HOURS: usize = 24;
const DEVIATIONS: f64 = 2.0;
/// Slots that brought nothing are as many requests a second.
const SILENCE_PER_S: f64 = 0.1;
/// So many times the level is all rise.
const ALL_RISE: f64 = 2.0;
/// So many rises stand for those that were not seen yet.
const PRIOR: f64 = 2.0;

/// A slot of the day, while it is observed.
#[derive(Clone, Copy, Debug)]
struct Current {
    slot: usize,
    requests: f64,
    seconds: f64,
}

/// The days so far.
#[derive(Clone, Debug)]
pub(super) struct Days {
    day_s: f64,
    slots: Vec<Option<f64>>,
    current: Option<Current>,
    /// The slot before, and its mean.
    before: Option<(usize, f64)>,
    /// The slots of the last hour: the logarithm of what each brought today of what it brought yesterday, and that.
    hour: VecDeque<(f64, f64)>,
    /// Of the rises that were foreseen, how many came and how many did not.
    came: f64,
    missed: f64,
    /// Whether the rise that was foreseen of the slot before did not come.
    is_missing: bool,
}

impl Days {
    /// For days of this length, seconds; 0 learns none.
    pub(super) fn new(day_s: f64) -> Self {
        let slots = match day_s > 0.0 {
            true => ((day_s / SLOT_S) as usize).clamp(FEWEST_SLOTS, MOST_SLOTS),
            false => 0,
        };
        Self {
            day_s,
            slots: vec![None; slots],
            current: None,
            before: None,
            hour: VecDeque::new(),
            came: PRIOR,
            missed: 0.0,
            is_missing: false,
        }
    }

    fn slot_s(&self) -> f64 {
        self.day_s / self.slots.len().max(1) as f64
    }

    fn slot(&self, clock_s: f64) -> usize {
        let at = (clock_s.rem_euclid(self.day_s) / self.slot_s()) as usize;
        at.min(self.slots.len().saturating_sub(1))
    }

    /// Takes a rate that was observed for so long, up to this time of the clock.
    pub(super) fn observe(&mut self, clock_s: f64, rate: f64, length_s: f64) {
        if self.slots.is_empty() || !clock_s.is_finite() {
            return;
        }
        let slot = self.slot(clock_s);
        match &mut self.current {
            Some(current) if current.slot == slot => {
                current.requests += rate * length_s;
                current.seconds += length_s;
            }
            current => {
                let ended = current.replace(Current {
                    slot,
                    requests: rate * length_s,
                    seconds: length_s,
                });
                self.end(ended);
            }
        }
    }

    fn end(&mut self, ended: Option<Current>) {
        let Some(ended) = ended.filter(|ended| ended.seconds >= SEEN * self.slot_s()) else {
            (self.before, self.is_missing) = (None, false);
            self.hour.clear();
            return;
        };
        let mean = ended.requests / ended.seconds;
        let yesterday = self.slots[ended.slot].replace(mean);
        // A rise is judged by the whole of it, and is one by its own day, beyond the noise of the slots: of what was only that most would
        // not come.
        let noise = (DEVIATIONS * self.of_yesterday().1).exp();
        let level = self.level().unwrap_or(0.0) * noise;
        let follows = |slot: usize| (slot + 1) % self.slots.len() == ended.slot;
        let before = self.before.filter(|(slot, _)| follows(*slot));
        let was_missing = std::mem::take(&mut self.is_missing);
        if let (Some(yesterday), Some((_, before))) = (yesterday, before)
            && yesterday > RISE * before
            && (was_missing || yesterday > RISE * level)
        {
            let has_come = mean >= CAME * yesterday;
            self.is_missing = !has_come;
            // One that is missing for long is one.
            if has_come || !was_missing {
                self.came = RISES * self.came + f64::from(has_come);
                self.missed = RISES * self.missed + f64::from(!has_come);
            }
        }
        self.before = Some((ended.slot, mean));
        match yesterday {
            // A rise that is missing says nothing of the level.
            Some(_) if self.is_missing => {}
            Some(yesterday) => {
                let share = (mean + SILENCE_PER_S) / (yesterday + SILENCE_PER_S);
                self.hour.push_back((share.ln(), yesterday));
                if self.hour.len() > self.slots.len() / HOURS {
                    self.hour.pop_front();
                }
            }
            None => self.hour.clear(),
        }
    }

    /// What yesterday brought at this time, but for what rose since.
    fn level(&self) -> Option<f64> {
        let (_, last) = *self.hour.back()?;
        let mean = self.hour.iter().map(|(_, yesterday)| yesterday).sum::<f64>() / self.hour.len() as f64;
        Some(mean.max(last))
    }

    /// The mean of what each slot of the last hour was of yesterday's, and its deviation, both of the logarithm.
    fn of_yesterday(&self) -> (f64, f64) {
        let count = self.hour.len() as f64;
        let mean = self.hour.iter().map(|(share, _)| share).sum::<f64>() / count.max(1.0);
        let squares = self.hour.iter().map(|(share, _)| (share - mean).powi(2));
        (mean, (squares.sum::<f64>() / (count - 1.0).max(1.0)).sqrt())
    }

    /// What the last hour was of yesterday's, at most; 1 where it was not less beyond the noise of its slots.
    fn share(&self) -> f64 {
        if self.hour.len() < self.slots.len() / HOURS {
            return 1.0;
        }
        let (mean, deviation) = self.of_yesterday();
        let error = deviation / (self.hour.len() as f64).sqrt();
        (mean + DEVIATIONS * error).min(0.0).exp()
    }

    /// Takes what was recorded up to this time of the clock.
    pub(super) fn recall(&mut self, clock_s: f64, recorded: &LoadHistory) {
        let period_s = recorded.period().get();
        let count = recorded.rates().len();
        for (at, rate) in recorded.rates().enumerate() {
            let ended_s = clock_s - period_s * (count - at) as f64;
            match rate {
                Some(rate) => self.observe(ended_s, rate.get(), period_s),
                None => self.lose(),
            }
        }
    }

    /// What was known of a slot is not that of the next one seen.
    pub(super) fn lose(&mut self) {
        (self.current, self.before) = (None, None);
        self.is_missing = false;
        self.hour.clear();
    }

    /// The highest load of the days before within so many seconds from this time of the clock on; `None` where none is known, or what was
    /// foreseen did not come.
    pub(super) fn foreseen(&self, clock_s: f64, within_s: f64) -> Option<f64> {
        let count = self.slots.len();
        let is_believed = !self.is_missing && self.came >= BELIEVED * (self.came + self.missed);
        if count == 0 || !clock_s.is_finite() || !is_believed {
            return None;
        }
        let slot = self.slot(clock_s);
        let ahead = ((within_s / self.slot_s()).ceil().max(0.0) as usize + 1).min(count - 1);
        let known = (0..=ahead).filter_map(|slots| self.slots[(slot + slots) % count]);
        let (share, level) = (self.share(), self.level().unwrap_or(0.0));
        known.reduce(f64::max).map(|yesterday| {
            let of_level = (ALL_RISE * level - yesterday).max(0.0).min(yesterday);
            yesterday - (1.0 - share) * of_level
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headroom_units::{PerSecond, Seconds};

    const DAY_S: f64 = 86_400.0;

    /// What is foreseen within two minutes at each minute of so many days.
    fn foreseen(days: &mut Days, count: u32, rate: impl Fn(u32, u32) -> f64) -> Vec<f64> {
        let mut said = Vec::new();
        for day in 0..count {
            for minute in 0..1_440_u32 {
                let clock_s = f64::from(day) * DAY_S + f64::from(minute) * 60.0;
                days.observe(clock_s, rate(day, minute), 60.0);
                said.push(days.foreseen(clock_s, 120.0).unwrap_or(0.0));
            }
        }
        said
    }

    #[test]
    fn a_jump_that_comes_every_day_is_foreseen_from_its_second_time_on() {
        let mut days = Days::new(DAY_S);
        let jump = |_: u32, minute: u32| if (600..660).contains(&minute) { 500.0 } else { 50.0 };
        let said = foreseen(&mut days, 3, jump);
        assert_eq!(said[598], 0.0, "nothing is known on the first day");
        for day in [1, 2] {
            let at = |minute: usize| said[day * 1_440 + minute];
            assert_eq!(
                (at(580), at(598), at(640), at(700)),
                (50.0, 500.0, 500.0, 50.0),
                "{day}"
            );
        }
    }

    #[test]
    fn a_day_like_no_other_is_believed_for_a_slot() {
        let mut days = Days::new(DAY_S);
        let said = foreseen(&mut days, 4, |day, minute| match (day, minute) {
            (1, 600..660) => 500.0,
            _ => 50.0,
        });
        let after = &said[2 * 1_440..];
        assert_eq!(after[598], 500.0);
        assert!((605..660).all(|minute| after[minute] == 0.0), "it did not come");
        assert_eq!(after[700], 50.0);
        // Two days, in the first of which it is waited for until the slot has ended.
        let minutes = after.iter().filter(|rate| **rate > 60.0).count();
        assert!(minutes <= 15, "{minutes}");
    }

    #[test]
    fn what_comes_every_day_is_believed_again_after_it_was_not() {
        let mut days = Days::new(DAY_S);
        // Weekends are quiet: two of seven days.
        let said = foreseen(&mut days, 28, |day, minute| match (day % 7, minute) {
            (0..5, 480..1_080) => 300.0,
            _ => 30.0,
        });
        let at_nine = |day: usize| said[day * 1_440 + 478];
        for day in (0..28).filter(|day| (1..5).contains(&(day % 7))) {
            assert_eq!(at_nine(day), 300.0, "{day}");
        }
    }

    #[test]
    fn of_a_day_that_is_quieter_than_the_one_before_no_more_is_foreseen() {
        for quieter in [0.85, 0.79, 0.755, 0.6] {
            let mut days = Days::new(DAY_S);
            let said = foreseen(&mut days, 4, |day, _| 1_000.0 * f64::powi(quieter, day as i32));
            for day in 1..4 {
                let comes = 1_000.0 * f64::powi(quieter, day);
                // An hour shows it.
                let at_most = said[day as usize * 1_440 + 65..(day as usize + 1) * 1_440].iter();
                let most = at_most.copied().fold(0.0, f64::max);
                assert!(most <= 1.05 * comes, "{quieter}, day {day}: {most} of {comes}");
            }
        }
    }

    /// Deviates of a normal distribution.
    fn normal(state: &mut u64) -> f64 {
        let mut uniform = || {
            *state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (*state >> 11) as f64 / (1_u64 << 53) as f64
        };
        (0..12).map(|_| uniform()).sum::<f64>() - 6.0
    }

    /// What is foreseen of a jump to 500/s at ten, two minutes before it, from the second of so many days on.
    fn of_the_jump(count: u32, base: impl Fn(u32, u32) -> f64) -> Vec<f64> {
        let mut days = Days::new(DAY_S);
        let said = foreseen(&mut days, count, |day, minute| match minute {
            600..660 => 500.0,
            _ => base(day, minute),
        });
        (1..count as usize)
            .map(|day| said[day * 1_440 + 598] / 500.0)
            .collect()
    }

    #[test]
    fn a_jump_that_comes_every_day_is_foreseen_whatever_came_before_it() {
        // Half as much before it on every second day, and a quarter of an hour in which little comes.
        for base in [50.0, 120.0, 200.0] {
            let halved = of_the_jump(30, |day, _| base / f64::from(1 + day % 2));
            assert!(halved.iter().all(|share| *share >= 0.9), "{base}: {halved:?}");
        }
        let lull = of_the_jump(10, |day, minute| match (day % 3, minute) {
            (2, 585..600) => 20.0,
            _ => 120.0,
        });
        assert!(lull.iter().all(|share| *share >= 0.99), "{lull:?}");
        // Noise of the slots, of these coefficients of variation.
        for (variation, at_most) in [(0.15, 0), (0.3, 3)] {
            let of_slots: Vec<f64> = {
                let mut state = 7;
                (0..60 * 288)
                    .map(|_| (variation * normal(&mut state)).exp())
                    .collect()
            };
            let noisy = of_the_jump(60, |day, minute| {
                50.0 * of_slots[(day * 288 + minute / 5) as usize]
            });
            let too_low = noisy.iter().filter(|share| **share < 0.9).count();
            assert!(too_low <= at_most, "{variation}: {too_low} of {}", noisy.len());
        }
    }

    #[test]
    fn on_a_weekend_a_rise_that_comes_smaller_is_taken_for_what_it_is() {
        let mut days = Days::new(DAY_S);
        // Two of seven days are half the others.
        let of_week = |day: u32| if day % 7 < 5 { 1.0 } else { 0.5 };
        let said = foreseen(&mut days, 28, |day, minute| {
            of_week(day)
                * if (480..1_080).contains(&minute) {
                    300.0
                } else {
                    60.0
                }
        });
        for day in (7..28).filter(|day| day % 7 == 5) {
            let at = |minute: usize| said[day * 1_440 + minute];
            // The night tells of its like, and of the morning nothing until it was there.
            assert!((65..470).all(|minute| at(minute) <= 33.0), "{day}");
            assert!((486..1_070).all(|minute| at(minute) <= 160.0), "{day}");
            assert!((1_150..1_440).all(|minute| at(minute) <= 33.0), "{day}");
        }
    }

    #[test]
    fn a_day_that_was_recorded_is_known_at_once() {
        let mut recorded = LoadHistory::new(Seconds::new(10.0));
        for at in 0..8_640 {
            let rate = if (3_600..3_960).contains(&at) { 500.0 } else { 50.0 };
            recorded.push((at % 100 != 7).then(|| PerSecond::new(rate)));
        }
        let mut days = Days::new(DAY_S);
        days.recall(20_001.0 * DAY_S, &recorded);
        assert_eq!(
            days.foreseen(20_001.0 * DAY_S + 36_000.0 - 100.0, 120.0),
            Some(500.0)
        );
        assert_eq!(days.foreseen(20_001.0 * DAY_S + 60_000.0, 120.0), Some(50.0));
    }

    #[test]
    fn a_clock_that_jumps_or_a_day_that_is_not_wanted_break_nothing() {
        let mut days = Days::new(DAY_S);
        for clock_s in [0.0, 1e12, -5.0, f64::NAN, 86_399.999_999_9, 3.0] {
            days.observe(clock_s, 10.0, 1.0);
            assert_eq!(days.foreseen(clock_s, 1e9), None);
        }
        days.lose();
        let mut none = Days::new(0.0);
        none.observe(5.0, 10.0, 400.0);
        none.observe(405.0, 10.0, 400.0);
        assert_eq!(none.foreseen(405.0, 60.0), None);
    }
}
