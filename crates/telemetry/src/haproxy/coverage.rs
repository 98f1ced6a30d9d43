//! Whether the log accounts for the requests that the statistics count: for all of them, and for no others.

use super::counters::Counted;
use crate::period::Lost;
use std::collections::VecDeque;

/// The share of the requests counted that the log must account for.
const COVERAGE_MIN: f64 = 0.9;

/// Over so many periods it is judged, and over ten times as long as the lines are late, so that those that are still to come are
/// at most a tenth.
const PERIODS_MIN: usize = 10;
const LATENESSES: f64 = 10.0;

/// Periods that are kept, at most.
const PERIODS_MAX: usize = 200;

/// So many periods, and so many requests, are needed to judge.
const JUDGED_PERIODS: usize = 5;
const JUDGED_REQUESTS: u64 = 100;

/// The coverage of fewer requests is not said.
const SAID_REQUESTS: u64 = 20;

/// So many lines more than requests, and such a share of them, may be of a moment between two readings.
const SURPLUS_MIN: u64 = 20;
const SURPLUS_SHARE: f64 = 0.1;

/// Lines that did not come or could not be used, of one period.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Gaps {
    /// By HAProxy, which could not send them.
    pub by_proxy: u64,
    /// By the kernel here.
    pub by_kernel: u64,
    pub malformed: u64,
}

/// Of one period.
#[derive(Clone, Copy, Debug)]
struct Balance {
    counted: Counted,
    logged: u64,
    gaps: Gaps,
    length_s: f64,
}

/// The last periods with statistics, the oldest first.
#[derive(Clone, Debug, Default)]
pub(super) struct Coverage {
    periods: VecDeque<Balance>,
}

/// Sums over some periods.
#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    arrived: u64,
    ended: u64,
    logged: u64,
    gaps: Gaps,
}

impl Coverage {
    /// Takes a period: its lines against what was counted. Where nothing was counted, or only since a reload, earlier periods
    /// do not count any more: what was logged meanwhile was not counted.
    pub fn add(&mut self, counted: Option<Counted>, logged: u64, gaps: Gaps, length_s: f64) {
        match counted {
            Some(counted) if !counted.reloaded => {
                if self.periods.len() == PERIODS_MAX {
                    self.periods.pop_front();
                }
                self.periods.push_back(Balance {
                    counted,
                    logged,
                    gaps,
                    length_s,
                });
            }
            _ => self.periods.clear(),
        }
    }

    /// How many of the last periods are judged where lines come so late.
    fn judged(&self, late_s: f64) -> usize {
        let mut length_s = 0.0;
        let whole = self.periods.iter().rev().take_while(|period| {
            let is_short = length_s < late_s * LATENESSES;
            length_s += period.length_s;
            is_short
        });
        whole.count().max(PERIODS_MIN).min(self.periods.len())
    }

    fn sums(&self, periods: impl Iterator<Item = usize>) -> Sums {
        let mut sums = Sums::default();
        for period in periods.filter_map(|at| self.periods.get(at)) {
            sums.arrived += period.counted.arrivals;
            sums.ended += period.counted.ended;
            sums.logged += period.logged;
            sums.gaps.by_proxy += period.gaps.by_proxy;
            sums.gaps.by_kernel += period.gaps.by_kernel;
            sums.gaps.malformed += period.gaps.malformed;
        }
        sums
    }

    fn sums_of_lengths(&self) -> f64 {
        self.periods.iter().map(|period| period.length_s).sum()
    }

    /// The share of the requests counted in the last periods that have a line, 0 to 1; `None` where they are too few to say.
    pub fn share(&self, late_s: f64) -> Option<f64> {
        let len = self.periods.len();
        let sums = self.sums(len - self.judged(late_s)..len);
        (sums.ended >= SAID_REQUESTS).then(|| (sums.logged as f64 / sums.ended as f64).min(1.0))
    }

    /// Why log and statistics do not go together.
    pub fn loss(&self, late_s: f64) -> Option<Lost> {
        let len = self.periods.len();
        let judged = self.judged(late_s);
        let first = *self.periods.get(len - judged)?;
        let sums = self.sums(len - judged..len);
        // Whether the lateness is a whole number of periods or not: a load that changes must not look like lines that lack or
        // are too many.
        let mean_s = self.sums_of_lengths() / len as f64;
        let shift = (late_s / mean_s).max(0.0) as usize;
        // Those that had ended just before, and whose lines were still to come.
        let before = self.sums((len - judged).saturating_sub(shift + 1)..len - judged);
        let to_come = first.counted.open_before + before.ended;
        let surplus = SURPLUS_MIN.max((sums.arrived as f64 * SURPLUS_SHARE) as u64);
        if sums.logged > sums.arrived + to_come + surplus {
            return Some(Lost::MoreThanArrived {
                logged: sums.logged,
                arrived: sums.arrived,
                in_flight: to_come,
            });
        }
        let counted = [shift, shift + 1].map(|shift| {
            let shift = shift.min(len - judged);
            self.sums(len - judged - shift..len - shift).ended
        });
        let counted = counted.into_iter().min().unwrap_or(0);
        if judged < JUDGED_PERIODS || counted < JUDGED_REQUESTS {
            return None;
        }
        let is_low = (sums.logged as f64) < COVERAGE_MIN * counted as f64;
        is_low.then_some(Lost::LowCoverage {
            logged: sums.logged,
            counted,
            by_proxy: sums.gaps.by_proxy,
            by_kernel: sums.gaps.by_kernel,
            malformed: sums.gaps.malformed,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A period of a second in which so many requests arrived, ended and were logged.
    fn add(coverage: &mut Coverage, (arrivals, ended, logged): (u64, u64, u64)) -> Option<Lost> {
        let counted = Counted {
            arrivals,
            ended,
            open_before: 10,
            reloaded: false,
        };
        coverage.add(Some(counted), logged, Gaps::default(), 1.0);
        coverage.loss(0.0)
    }

    #[test]
    fn a_log_that_leaves_out_a_part_is_lost_after_some_periods() {
        for (logged, is_lost) in [(54, true), (88, true), (92, false), (100, false)] {
            let mut coverage = Coverage::default();
            let lost: Vec<bool> = (0..20)
                .map(|_| add(&mut coverage, (100, 100, logged)).is_some())
                .collect();
            assert_eq!(lost[..4], [false; 4], "{logged}");
            assert_eq!(lost[4..], [is_lost; 16], "{logged}");
            assert!((coverage.share(0.0).unwrap() - logged as f64 / 100.0).abs() < 1e-9);
        }
        // Ten requests and two of them without a line are nothing to judge.
        let mut coverage = Coverage::default();
        assert!((0..10).all(|_| add(&mut coverage, (1, 1, 0)).is_none()));
        assert_eq!(coverage.share(0.0), None);
    }

    #[test]
    fn it_is_well_again_when_all_is_logged() {
        let mut coverage = Coverage::default();
        for _ in 0..10 {
            add(&mut coverage, (100, 100, 50));
        }
        let lost = (0..12).map(|_| add(&mut coverage, (100, 100, 100)).is_some());
        assert_eq!(lost.last(), Some(false));
    }

    #[test]
    fn the_lost_lines_are_told_by_cause() {
        let mut coverage = Coverage::default();
        let counted = Counted {
            arrivals: 100,
            ended: 100,
            ..Counted::default()
        };
        let gaps = Gaps {
            by_proxy: 30,
            by_kernel: 4,
            malformed: 2,
        };
        for _ in 0..5 {
            coverage.add(Some(counted), 64, gaps, 1.0);
        }
        let text = coverage.loss(0.0).unwrap().to_string();
        for word in ["64 %", "150", "20", "10", "dontlog-normal"] {
            assert!(text.contains(word), "{word}: {text}");
        }
    }

    #[test]
    fn lines_of_requests_that_did_not_arrive_are_refused() {
        // Two lines a request, such as from two `log` lines or of another proxy.
        let mut coverage = Coverage::default();
        assert!((0..3).any(|_| add(&mut coverage, (100, 100, 200)).is_some()));
        let Some(Lost::MoreThanArrived { logged, arrived, .. }) = coverage.loss(0.0) else {
            panic!("{:?}", coverage.loss(0.0));
        };
        assert_eq!(logged, 2 * arrived);
    }

    #[test]
    fn what_was_in_flight_or_late_may_end_at_once() {
        // A service that stood still: those that waited end in one period.
        let mut coverage = Coverage::default();
        for _ in 0..10 {
            assert_eq!(add(&mut coverage, (100, 0, 0)), None);
        }
        assert_eq!(add(&mut coverage, (0, 1000, 1000)), None);
        // A log that is three seconds late, while the load rises tenfold and falls again.
        let loads: Vec<u64> = [100, 1000, 100, 0].iter().flat_map(|load| [*load; 60]).collect();
        let mut coverage = Coverage::default();
        for (at, load) in loads.iter().enumerate() {
            let logged = at.checked_sub(3).map_or(0, |before| loads[before]);
            let counted = Counted {
                arrivals: *load,
                ended: *load,
                open_before: 5,
                reloaded: false,
            };
            coverage.add(Some(counted), logged, Gaps::default(), 1.0);
            if at > 35 {
                assert_eq!(coverage.loss(3.0), None, "{at}");
            }
        }
    }

    #[test]
    fn a_gap_in_the_statistics_begins_anew() {
        let mut coverage = Coverage::default();
        for _ in 0..10 {
            add(&mut coverage, (100, 100, 50));
        }
        coverage.add(None, 500, Gaps::default(), 1.0);
        assert_eq!((coverage.loss(0.0), coverage.share(0.0)), (None, None));
        assert_eq!(add(&mut coverage, (100, 100, 100)), None);
    }
}
