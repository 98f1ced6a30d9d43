//! How far HAProxy's clock is from this machine's, and how late its lines come beyond that.
//!
//! What is seen of a line is its lag: when it came, by the clock here, less when its request ended, by the clock there. That is the
//! difference of the clocks and the delay of the line, and the delay is never negative. So the least lag bounds the difference from
//! above, and what lags more is late, until it is seen to be constant: then the difference of the clocks has changed. A lag that
//! grows, however slowly beyond what a clock drifts, or that is irregular is a late log.

/// A lag that is no further above the difference of the clocks is that of a line: dates may be of whole seconds.
const WITHIN_S: f64 = 1.5;

/// The difference of two clocks grows by no more than this in a second: twice what NTP lets a clock be slewed by.
const DRIFT_MAX: f64 = 1e-3;

/// Lines come in the order in which requests end, so their lag cannot grow by more than the time that passes, but where a clock was
/// set. Threads of a proxy may be out of order by this much.
const DISORDER_S: f64 = 2.0;

/// After a clock was seen to be set, and at the start, the lag must be constant for this long, in seconds, and in this many periods:
/// lines that are replayed have old dates too, and come faster than their requests ended.
const SET_FOR: (f64, u32) = (2.0, 3);

/// A lag that may have grown as a late log's does must be constant for this long, in seconds, and in this many periods.
const CONSTANT_FOR: (f64, u32) = (120.0, 3);

/// The difference of the clocks is said where it is at least this much, and again where it has changed as much, in seconds.
const SAID_S: f64 = 2.0;

/// A quarter of an hour: all time zones are whole numbers of it from UTC.
const ZONE_STEP_S: f64 = 900.0;

/// A lag above the difference of the clocks that may turn out to be constant.
#[derive(Clone, Copy, Debug)]
struct Candidate {
    since_s: f64,
    least_s: f64,
    most_s: f64,
    periods: u32,
    /// The clock was set, or it is the first lag of all.
    is_set: bool,
}

/// The difference of two clocks, followed.
#[derive(Clone, Debug, Default)]
pub(super) struct ClockDifference {
    /// How far the clock there is behind, seconds; negative where it is ahead.
    behind_s: Option<f64>,
    /// When the last lag was seen, and what it was.
    last: Option<(f64, f64)>,
    candidate: Option<Candidate>,
    said_s: f64,
    /// A difference that is not said yet, and for how many periods it has been.
    unsaid: (f64, u32),
}

impl ClockDifference {
    /// How far the clock there is behind, in seconds; negative where it is ahead. `None` before the first line.
    pub fn behind_s(&self) -> Option<f64> {
        self.behind_s
    }

    /// Whether it is not known yet if the lag is constant, at the start and after a clock was set: what is late now is then late by
    /// a clock or by the log.
    pub fn is_settling(&self) -> bool {
        self.candidate.is_some_and(|candidate| candidate.is_set)
    }

    /// Takes the least lag of a period at a time, both in seconds: how late the lines are.
    pub fn late_s(&mut self, at_s: f64, lag_s: f64) -> f64 {
        let passed_s = self.last.map(|(before_s, _)| (at_s - before_s).max(0.0));
        let is_set = self
            .last
            .zip(passed_s)
            .is_none_or(|((_, before_s), passed_s)| lag_s - before_s > passed_s + DISORDER_S);
        self.last = Some((at_s, lag_s));
        let behind_s = self.behind_s.unwrap_or(0.0) + DRIFT_MAX * passed_s.unwrap_or(0.0);
        let mut behind_s = behind_s.min(lag_s);
        if lag_s - behind_s <= WITHIN_S {
            self.candidate = None;
        } else {
            let new = Candidate {
                since_s: at_s,
                least_s: lag_s,
                most_s: lag_s,
                periods: 0,
                is_set,
            };
            let mut candidate = self.candidate.filter(|_| !is_set).unwrap_or(new);
            candidate.least_s = candidate.least_s.min(lag_s);
            candidate.most_s = candidate.most_s.max(lag_s);
            if candidate.most_s - candidate.least_s > WITHIN_S {
                candidate = Candidate { is_set: false, ..new };
            }
            candidate.periods += 1;
            let (for_s, periods) = if candidate.is_set { SET_FOR } else { CONSTANT_FOR };
            let is_constant = at_s - candidate.since_s >= for_s && candidate.periods >= periods;
            self.candidate = Some(candidate).filter(|_| !is_constant);
            if is_constant {
                behind_s = candidate.least_s;
            }
        }
        self.behind_s = Some(behind_s);
        lag_s - behind_s
    }

    /// The difference in words, where it is not said yet and has been the same for some periods; `in_zone` where the dates
    /// name their time zone.
    pub fn news(&mut self, in_zone: bool) -> Option<String> {
        let behind_s = self.behind_s?;
        if (behind_s - self.said_s).abs() < SAID_S {
            self.unsaid = (behind_s, 0);
            return None;
        }
        let is_same = (behind_s - self.unsaid.0).abs() <= WITHIN_S;
        self.unsaid = (behind_s, if is_same { self.unsaid.1 + 1 } else { 1 });
        if self.unsaid.1 < SET_FOR.1 {
            return None;
        }
        self.said_s = behind_s;
        if behind_s.abs() < SAID_S {
            return Some("HAProxy's clock and that of this machine agree again".to_owned());
        }
        let (by_s, which) = (behind_s.abs(), if behind_s > 0.0 { "behind" } else { "ahead of" });
        let zones = (by_s / ZONE_STEP_S).round();
        let is_zone = !in_zone && zones > 0.0 && (by_s - zones * ZONE_STEP_S).abs() < 5.0;
        let why = match (is_zone, behind_s > 0.0) {
            (true, _) => {
                "its dates are of another time zone, which they do not name: set TZ for HAProxy, or log %trg"
            }
            (false, true) => {
                "synchronise the clocks; if they agree, a relay holds each line back for so long"
            }
            (false, false) => "synchronise the clocks",
        };
        Some(format!(
            "HAProxy's clock is {by_s:.0} s {which} that of this machine, which is allowed for: {why}"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lags of a period a second: how late each is, and what is said.
    fn follow(clock: &mut ClockDifference, from_s: usize, lags: &[f64]) -> (Vec<f64>, Vec<String>) {
        let mut said = Vec::new();
        let late = lags.iter().enumerate().map(|(second, lag_s)| {
            let late_s = clock.late_s((from_s + second) as f64, *lag_s);
            said.extend(clock.news(false));
            late_s
        });
        (late.collect(), said)
    }

    /// A delay of a line, seconds: never the same and never negative.
    fn delay(second: usize) -> f64 {
        (second * 7 % 11) as f64 * 0.003
    }

    fn constant(lag_s: f64, seconds: usize) -> Vec<f64> {
        (0..seconds).map(|second| lag_s + delay(second)).collect()
    }

    fn periods_late(late: &[f64]) -> usize {
        late.iter().filter(|late_s| **late_s > 10.0).count()
    }

    #[test]
    fn a_constant_difference_is_said_once_and_costs_two_periods_at_most() {
        for (lag_s, lost, words) in [
            (60.0, 2, "60 s behind"),
            (-60.0, 0, "60 s ahead"),
            (449.0, 2, "449 s behind"),
            (3600.0, 2, "3600 s behind"),
            (-3600.0, 0, "time zone"),
            (19_800.0, 2, "time zone"),
        ] {
            let mut clock = ClockDifference::default();
            let (late, said) = follow(&mut clock, 0, &constant(lag_s, 300));
            assert_eq!(periods_late(&late), lost, "{lag_s}");
            assert!(late[3..].iter().all(|late_s| *late_s < WITHIN_S), "{lag_s}");
            assert_eq!(said.len(), 1, "{said:?}");
            assert!(said[0].contains(words), "{said:?}");
            let off_s = clock.behind_s().unwrap() - lag_s;
            assert!((0.0..0.05).contains(&off_s), "{off_s}");
        }
    }

    #[test]
    fn clocks_that_agree_are_not_spoken_of() {
        let (late, said) = follow(&mut ClockDifference::default(), 0, &constant(0.0, 300));
        assert!(late.iter().all(|late_s| *late_s < 0.1));
        assert_eq!(said, [""; 0]);
    }

    #[test]
    fn a_clock_that_is_set_in_mid_run_costs_two_periods_and_is_said_each_time() {
        let mut clock = ClockDifference::default();
        follow(&mut clock, 0, &constant(0.0, 60));
        for (at, lag_s, lost, words) in [
            (60, 60.0, 2, "60 s behind"),
            (120, -60.0, 0, "60 s ahead"),
            (180, 3540.0, 2, "3540 s behind"),
            (240, 0.0, 0, "agree again"),
        ] {
            let (late, said) = follow(&mut clock, at, &constant(lag_s, 60));
            assert_eq!(periods_late(&late), lost, "{lag_s}");
            assert_eq!(said.len(), 1, "{said:?}");
            assert!(said[0].contains(words), "{said:?}");
        }
    }

    #[test]
    fn a_clock_that_drifts_is_followed() {
        for per_s in [-5e-4, 5e-4] {
            let mut clock = ClockDifference::default();
            let lags: Vec<f64> = (0..20_000)
                .map(|second| per_s * second as f64 + delay(second))
                .collect();
            let (late, said) = follow(&mut clock, 0, &lags);
            assert!(late.iter().all(|late_s| *late_s < 0.1), "{per_s}");
            // Ten seconds in all, two at a time.
            assert!((3..=5).contains(&said.len()), "{said:?}");
        }
    }

    #[test]
    fn a_log_that_falls_behind_is_late_whatever_the_clocks() {
        for lag_s in [0.0, 60.0, -3600.0] {
            let mut clock = ClockDifference::default();
            follow(&mut clock, 0, &constant(lag_s, 60));
            // A relay that passes nine lines of ten on.
            let growing: Vec<f64> = (0..600).map(|second| lag_s + 0.1 * second as f64).collect();
            let (late, said) = follow(&mut clock, 60, &growing);
            assert_eq!(periods_late(&late[..95]), 0, "{lag_s}");
            assert_eq!(periods_late(&late[110..]), 490, "{lag_s}");
            assert_eq!(said, [""; 0]);
            // It catches up.
            let (late, said) = follow(&mut clock, 660, &constant(lag_s, 60));
            assert_eq!(periods_late(&late), 0);
            assert_eq!(said, [""; 0]);
        }
    }

    #[test]
    fn a_log_that_stood_still_is_late_until_it_has_caught_up() {
        let mut clock = ClockDifference::default();
        follow(&mut clock, 0, &constant(60.0, 60));
        // For 30 s nothing came; then the log comes at twice its pace.
        let mut late = Vec::new();
        for second in 0..30 {
            late.push(clock.late_s(f64::from(90 + second), 90.0 - f64::from(second)));
        }
        assert_eq!(periods_late(&late), 20, "{late:?}");
        assert!((clock.behind_s().unwrap() - 60.0).abs() < 0.2);
    }

    #[test]
    fn an_irregular_lag_is_late() {
        let mut clock = ClockDifference::default();
        follow(&mut clock, 0, &constant(0.0, 10));
        let lags: Vec<f64> = (0..600)
            .map(|second| [20.0, 23.0, 18.0][second / 3 % 3])
            .collect();
        let (late, said) = follow(&mut clock, 30, &lags);
        assert_eq!(periods_late(&late), 600);
        assert_eq!(said, [""; 0]);
    }

    #[test]
    fn whether_a_lag_is_constant_is_not_known_at_first_and_is_then() {
        let settling = |lags: &[f64]| {
            let mut clock = ClockDifference::default();
            let each = lags.iter().enumerate().map(|(second, lag_s)| {
                let late_s = clock.late_s(second as f64, *lag_s);
                (late_s > 10.0).then(|| clock.is_settling())
            });
            each.collect::<Vec<_>>()
        };
        assert_eq!(
            settling(&constant(60.0, 5)),
            [Some(true), Some(true), None, None, None]
        );
        // One that changes is seen not to be.
        assert_eq!(
            settling(&[60.0, 63.0, 65.0]),
            [Some(true), Some(false), Some(false)]
        );
        assert_eq!(settling(&constant(0.0, 3)), [None; 3]);
    }

    #[test]
    fn lines_that_are_replayed_are_late() {
        let mut clock = ClockDifference::default();
        follow(&mut clock, 0, &constant(0.0, 10));
        // A log of yesterday, at ten times its pace.
        let lags: Vec<f64> = (0..60).map(|second| 86_400.0 - 9.0 * second as f64).collect();
        let (late, _) = follow(&mut clock, 10, &lags);
        assert_eq!(periods_late(&late), 60);
    }

    #[test]
    fn a_lag_that_came_slowly_and_stays_is_the_clocks_difference_after_two_minutes() {
        let mut clock = ClockDifference::default();
        follow(&mut clock, 0, &constant(0.0, 10));
        // Nobody asked for five minutes, in which the clock was set back by 60 s.
        let (late, said) = follow(&mut clock, 310, &constant(60.0, 300));
        assert_eq!(periods_late(&late), 120);
        assert_eq!(said.len(), 1, "{said:?}");
    }
}
