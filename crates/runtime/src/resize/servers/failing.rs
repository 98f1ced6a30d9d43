//! Which servers answer and fail most of what they are sent while others do not: fast failures look like room for more. Where all fail, as behind
//! a database that is down, none is told apart.

use super::Servers;
use crate::live::BackendTick;
use headroom_console::say;
use headroom_units::Seconds;

/// What is said of one.
pub(super) const FAILING: &str = "fails most of what it is sent, and another does not: it counts as no capacity, and goes first; have its check \
                                   fail then, or the balancer pass it over";

/// The time over which requests are counted, the old ones forgotten.
const OVER_S: f64 = 30.0;
/// The fewest requests that tell. One that is passed over after its first failures is sent few: so many in a row tell too, over this time.
const FEWEST: f64 = 10.0;
const ROW_S: f64 = 5.0;
/// The share that one fails, and the share below which one is well.
const FAILS: f64 = 0.5;
const WELL: f64 = 0.25;

/// What is news of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum News {
    /// It fails most of what it is sent.
    Fails,
    /// It does no longer.
    Well,
    /// So do all others.
    AllFail,
}

/// The requests of one server.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Failing {
    sent: f64,
    failed: f64,
    /// Failures since a period in which not all failed, and for how long; and what did not fail since a period in which some did.
    failed_in_a_row: f64,
    failing_s: f64,
    well_in_a_row: f64,
    is_so: bool,
}

impl Failing {
    /// Takes what was sent to it in a period, and what of that it answered so that it failed: who is only overloaded does not answer in time.
    fn take(&mut self, length: Seconds, (sent, failed): (f64, f64)) {
        let kept = (-length.get() / OVER_S).exp();
        self.sent = self.sent * kept + sent;
        self.failed = self.failed * kept + failed;
        if sent > failed {
            (self.failed_in_a_row, self.failing_s) = (0.0, 0.0);
        } else if self.failed_in_a_row + failed > 0.0 {
            self.failed_in_a_row += failed;
            self.failing_s += length.get();
        }
        self.well_in_a_row = if failed > 0.0 {
            0.0
        } else {
            self.well_in_a_row + sent
        };
    }

    /// Whether it is known to be well.
    fn is_well(self) -> bool {
        self.sent >= FEWEST && self.failed < WELL * self.sent && self.failed_in_a_row < FEWEST
    }

    fn fails(self) -> bool {
        let mostly = self.sent >= FEWEST && self.failed > FAILS * self.sent;
        mostly || self.failed_in_a_row >= FEWEST && self.failing_s >= ROW_S
    }

    /// Judges it, where of another one is known that it is well, or that none is; whether it is so, where that is news.
    fn judge(&mut self, another: Option<bool>) -> Option<News> {
        if !self.is_so {
            self.is_so = another == Some(true) && self.fails();
            return self.is_so.then_some(News::Fails);
        }
        if self.is_well() || self.well_in_a_row >= FEWEST {
            // What it failed before is over.
            *self = Self {
                sent: self.well_in_a_row,
                well_in_a_row: self.well_in_a_row,
                ..Self::default()
            };
            return Some(News::Well);
        }
        self.is_so = another != Some(false);
        (!self.is_so).then_some(News::AllFail)
    }

    /// Whether it is so.
    pub(super) const fn is_so(self) -> bool {
        self.is_so
    }
}

/// Takes a period of all servers, of which those of `None` take no requests; which are told apart since, or no longer.
fn observe(all: &mut [Failing], length: Seconds, counted: &[Option<(f64, f64)>]) -> Vec<(usize, News)> {
    for (one, counted) in all.iter_mut().zip(counted) {
        match counted {
            Some(counted) => one.take(length, *counted),
            None => *one = Failing::default(),
        }
    }
    let seen = all.to_vec();
    let judged = all.iter_mut().enumerate().filter_map(|(at, one)| {
        let others = || {
            seen.iter()
                .enumerate()
                .filter(|(other, _)| *other != at)
                .map(|(_, other)| other)
        };
        // Where others are told apart too it takes one that is well to tell any.
        let is_known = others().any(|other| other.sent >= FEWEST);
        let another = is_known.then(|| others().any(|other| other.is_well()));
        Some((at, one.judge(another)?))
    });
    judged.collect()
}

impl Servers {
    /// Takes what each server was sent in this time, and failed.
    pub(super) fn take_failures(&mut self, backends: &[BackendTick], length: Seconds) {
        let states = self.power_states();
        let counted = |at: usize| {
            // A period in which nothing is told is none in which it is well.
            let (sent, failures) = self.requests(at, backends).unwrap_or_default();
            let failed = (failures as f64).min(self.failed_answers(at, backends));
            states[at].takes_requests().then_some((sent as f64, failed))
        };
        let counted: Vec<_> = (0..states.len()).map(counted).collect();
        for (at, news) in observe(&mut self.failing, length, &counted) {
            let name = &self.parts.servers[at].name;
            match news {
                News::Fails => say::note!("warning: {name}: {FAILING}"),
                News::Well => say::note!("{name}: answers again what it is sent"),
                News::AllFail => say::note!(
                    "warning: {name}: fails most of what it is sent, as all others do now: it is no longer told apart"
                ),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::live::{Device, DevicePeriod};
    use crate::resize::balancer::Admission;
    use crate::resize::servers::TakenOut;
    use crate::resize::testing::{found, parts, told};
    use headroom_control::resize::{Cause, PowerState};
    use std::net::TcpListener;
    use std::sync::{Arc, Mutex};

    /// So many seconds in which each server is sent so much and fails so much; which are told apart then.
    fn after(all: &mut [Failing], seconds: u32, each: &[Option<(f64, f64)>]) -> Vec<bool> {
        for _ in 0..seconds {
            observe(all, Seconds::new(1.0), each);
        }
        all.iter().map(|one| one.is_so()).collect()
    }

    const WELL_ONE: Option<(f64, f64)> = Some((20.0, 0.0));
    const FAILING_ONE: Option<(f64, f64)> = Some((20.0, 20.0));

    #[test]
    fn one_that_fails_most_is_told_apart_until_it_is_well_or_the_others_fail_too() {
        let well = WELL_ONE;
        let mut all = [Failing::default(); 3];
        assert_eq!(after(&mut all, 60, &[well, well, Some((20.0, 1.0))]), [false; 3]);
        assert_eq!(after(&mut all, 60, &[well, well, Some((20.0, 8.0))]), [false; 3]);
        assert_eq!(
            after(&mut all, 60, &[well, well, FAILING_ONE]),
            [false, false, true]
        );
        // It is passed over, and asked once in a while, or not at all.
        assert_eq!(
            after(&mut all, 200, &[well, well, Some((1.0, 1.0))]),
            [false, false, true]
        );
        assert_eq!(
            after(&mut all, 600, &[well, well, Some((0.0, 0.0))]),
            [false, false, true]
        );
        let mut others_fail = all;
        assert_eq!(after(&mut others_fail, 60, &[FAILING_ONE; 3]), [false; 3]);
        assert_eq!(after(&mut all, 60, &[well, well, Some((1.0, 0.0))]), [false; 3]);
        // It is off, and is another when it comes back.
        after(&mut all, 60, &[well, well, FAILING_ONE]);
        assert_eq!(after(&mut all, 1, &[well, well, None]), [false; 3]);
        assert_eq!(after(&mut all, 1, &[well, well, Some((3.0, 3.0))]), [false; 3]);
    }

    #[test]
    fn one_that_a_gateway_passes_over_after_its_first_failures_is_told_apart_too() {
        let well = WELL_ONE;
        let mut all = [Failing::default(); 3];
        after(&mut all, 120, &[well, well, well]);
        // As a gateway asked one that answers 500 from now on: 40 times, then once in ten seconds.
        after(&mut all, 3, &[well, well, Some((14.0, 14.0))]);
        assert_eq!(all.map(Failing::is_so), [false; 3], "a pause of three seconds");
        assert_eq!(
            after(&mut all, 3, &[well, well, Some((0.0, 0.0))]),
            [false, false, true]
        );
        for _ in 0..20 {
            after(&mut all, 9, &[well, well, Some((0.0, 0.0))]);
            assert_eq!(
                after(&mut all, 1, &[well, well, Some((1.0, 1.0))]),
                [false, false, true]
            );
        }
        // It is well, and is given its share again.
        assert_eq!(after(&mut all, 1, &[well, well, well]), [false; 3]);
    }

    #[test]
    fn two_that_kept_their_share_and_are_well_again_are_told_so_once() {
        let mut all = [Failing::default(); 3];
        let mut news = Vec::new();
        for second in 0..180 {
            let of = if (60..120).contains(&second) {
                Some((4.0, 4.0))
            } else {
                Some((4.0, 0.0))
            };
            news.extend(observe(&mut all, Seconds::new(1.0), &[of, Some((4.0, 0.0)), of]));
        }
        assert_eq!(
            news,
            [
                (0, News::Fails),
                (2, News::Fails),
                (0, News::Well),
                (2, News::Well)
            ]
        );
    }

    #[test]
    fn of_three_two_may_fail_and_one_that_is_well_tells_them_apart() {
        let mut all = [Failing::default(); 3];
        assert_eq!(
            after(&mut all, 60, &[WELL_ONE, FAILING_ONE, FAILING_ONE]),
            [false, true, true]
        );
        assert_eq!(after(&mut all, 60, &[WELL_ONE; 3]), [false; 3]);
    }

    #[test]
    fn a_law_is_told_that_it_has_no_such_server_and_its_users_why() {
        let listeners = [0, 1].map(|_| TcpListener::bind("127.0.0.1:0").unwrap());
        let wanted = Arc::new(Mutex::new(vec![told(Admission::Ready); 2]));
        let mut servers = found(parts(&listeners, &wanted, &TakenOut::default()));
        after(&mut servers.failing, 60, &[WELL_ONE, FAILING_ONE]);
        let mut period = DevicePeriod::default();
        servers.observe(&mut period);
        let states: Vec<PowerState> = period.nodes.iter().map(|node| node.state).collect();
        assert_eq!(states, [PowerState::Serving, PowerState::Failed(Cause::Lost)]);
        // It gets requests all the same, so that it is seen when it is well.
        assert_eq!(servers.power_states(), [PowerState::Serving; 2]);
        let troubled = period
            .parts
            .iter()
            .filter(|part| part.trouble.contains(&FAILING.to_owned()));
        let troubled: Vec<&str> = troubled.map(|part| part.name.as_str()).collect();
        assert_eq!(troubled, ["web2"]);
    }

    #[test]
    fn where_all_fail_or_none_is_there_to_compare_with_none_is_told_apart() {
        assert_eq!(
            after(&mut [Failing::default(); 2], 60, &[FAILING_ONE; 2]),
            [false; 2]
        );
        assert_eq!(after(&mut [Failing::default(); 1], 60, &[FAILING_ONE]), [false]);
        assert_eq!(
            after(&mut [Failing::default(); 2], 60, &[FAILING_ONE, None]),
            [false; 2]
        );
    }
}
