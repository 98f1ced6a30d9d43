//! Which servers answer and fail most of what they are sent while others do not: fast failures look like room for more. Where all fail, as behind
//! a database that is down, none is told apart.

use super::Servers;
use crate::live::BackendTick;
use headroom_console::say;
use headroom_units::Seconds;

/// What is said of one.
pub(super) const FAILING: &str = "fails most of what it is sent, and others do not: it counts as no capacity, and is the first to be switched off";

/// The time over which requests are counted, the old ones forgotten.
const OVER_S: f64 = 30.0;
/// The fewest requests that tell, and the fewest of a server that is well again: of one that is passed over few are known.
const FEWEST: f64 = 10.0;
const FEWEST_WELL: f64 = 3.0;
/// The share that one fails, and the share from which on it is well again, or others fail too.
const FAILS: f64 = 0.5;
const WELL: f64 = 0.25;

/// The requests of one server.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Failing {
    sent: f64,
    failed: f64,
    is_so: bool,
}

impl Failing {
    /// Takes what was sent to it in a period, and failed.
    fn take(&mut self, length: Seconds, (sent, failed): (u64, u64)) {
        let kept = (-length.get() / OVER_S).exp();
        self.sent = self.sent * kept + sent as f64;
        self.failed = self.failed * kept + failed as f64;
    }

    /// Judges it, where of the others so many were sent and failed; whether it is so, where that is news.
    fn judge(&mut self, (sent, failed): (f64, f64)) -> Option<bool> {
        let is_known = sent >= FEWEST;
        let others_are_well = is_known && failed < WELL * sent;
        let is_so = match self.is_so {
            true => {
                (others_are_well || !is_known) && (self.sent < FEWEST_WELL || self.failed >= WELL * self.sent)
            }
            false => others_are_well && self.sent >= FEWEST && self.failed > FAILS * self.sent,
        };
        (std::mem::replace(&mut self.is_so, is_so) != is_so).then_some(is_so)
    }

    /// Whether it is so.
    pub(super) const fn is_so(self) -> bool {
        self.is_so
    }
}

/// Takes a period of all servers, of which those of `None` take no requests, or are not told of; which are told apart since, or no longer.
fn observe(all: &mut [Failing], length: Seconds, counted: &[Option<(u64, u64)>]) -> Vec<(usize, bool)> {
    for (one, counted) in all.iter_mut().zip(counted) {
        match counted {
            Some(counted) => one.take(length, *counted),
            None => *one = Failing::default(),
        }
    }
    let whole = all
        .iter()
        .fold((0.0, 0.0), |sum, one| (sum.0 + one.sent, sum.1 + one.failed));
    let judged = all.iter_mut().enumerate().filter_map(|(at, one)| {
        let others = (whole.0 - one.sent, whole.1 - one.failed);
        Some((at, one.judge(others)?))
    });
    judged.collect()
}

impl Servers {
    /// Takes what each server was sent in this time, and failed.
    pub(super) fn take_failures(&mut self, backends: &[BackendTick], length: Seconds) {
        let states = self.power_states();
        let counted = |at: usize| {
            let told = self
                .requests(at, backends)
                .filter(|_| states[at].takes_requests());
            // A period in which nothing is told is none in which it is well.
            told.or_else(|| states[at].takes_requests().then_some((0, 0)))
        };
        let counted: Vec<_> = (0..states.len()).map(counted).collect();
        for (at, is_so) in observe(&mut self.failing, length, &counted) {
            let name = &self.parts.servers[at].name;
            match is_so {
                true => say::note!("warning: {name}: {FAILING}"),
                false if states[at].takes_requests() => {
                    say::note!("{name}: fails no more of what it is sent than others do");
                }
                false => {}
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
    fn after(all: &mut [Failing], seconds: u32, each: &[Option<(u64, u64)>]) -> Vec<bool> {
        for _ in 0..seconds {
            observe(all, Seconds::new(1.0), each);
        }
        all.iter().map(|one| one.is_so()).collect()
    }

    #[test]
    fn one_that_fails_most_is_told_apart_until_it_is_well_or_the_others_fail_too() {
        let mut all = [Failing::default(); 3];
        let well = Some((20, 0));
        assert_eq!(after(&mut all, 60, &[well, well, Some((20, 1))]), [false; 3]);
        assert_eq!(
            after(&mut all, 60, &[well, well, Some((20, 20))]),
            [false, false, true]
        );
        // It is passed over, and asked once in a while, or not at all.
        assert_eq!(
            after(&mut all, 200, &[well, well, Some((1, 1))]),
            [false, false, true]
        );
        assert_eq!(
            after(&mut all, 600, &[well, well, Some((0, 0))]),
            [false, false, true]
        );
        let mut others_fail = all;
        assert_eq!(
            after(
                &mut others_fail,
                60,
                &[Some((20, 20)), Some((20, 20)), Some((20, 20))]
            ),
            [false; 3]
        );
        assert_eq!(after(&mut all, 60, &[well, well, Some((1, 0))]), [false; 3]);
        // It is off, and is another when it comes back.
        after(&mut all, 60, &[well, well, Some((20, 20))]);
        assert_eq!(after(&mut all, 1, &[well, well, None]), [false; 3]);
        assert_eq!(after(&mut all, 1, &[well, well, Some((3, 3))]), [false; 3]);
    }

    #[test]
    fn a_law_is_told_that_it_has_no_such_server_and_its_users_why() {
        let listeners = [0, 1].map(|_| TcpListener::bind("127.0.0.1:0").unwrap());
        let wanted = Arc::new(Mutex::new(vec![told(Admission::Ready); 2]));
        let mut servers = found(parts(&listeners, &wanted, &TakenOut::default()));
        after(&mut servers.failing, 60, &[Some((20, 0)), Some((20, 20))]);
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
        let fails = Some((20, 20));
        assert_eq!(
            after(&mut [Failing::default(); 2], 60, &[fails, fails]),
            [false; 2]
        );
        assert_eq!(after(&mut [Failing::default(); 1], 60, &[fails]), [false]);
        assert_eq!(
            after(&mut [Failing::default(); 2], 60, &[fails, None]),
            [false; 2]
        );
    }
}
