//! Whether requests come to a server over connections that stay open: its accept queue counts each once, however many it carries. A demand of
//! connections would have servers switched off under a load of requests, one that has all its workers on such connections accepts nobody and
//! lives, and what it takes is known of what the balancer counted alone.

use super::Servers;
use crate::live::{BackendTick, shows_answers};
use crate::resize::balancer::Look;
use headroom_console::say;
use headroom_control::capacity::Capacity;
use headroom_control::resize::{Counts, PowerState};
use headroom_units::{PerSecond, Seconds};

/// What is said of it, with how its balancer is told otherwise: the remedy first, for a view has little room.
pub(super) fn reused(no_reuse: &str) -> String {
    format!(
        "set {no_reuse}: connections to it stay open, which its accept_queue counts once, so what comes is taken from the balancer, and it is \
         only known what it has served"
    )
}

/// The time over which both are counted, the old ones forgotten: requests that take ten seconds and more are few.
const COUNTED_S: f64 = 120.0;
/// The same for what is so of late: a gateway that keeps them no longer is known in half a minute.
const LATELY_S: f64 = 10.0;
/// The fewest requests that tell.
const MIN_REQUESTS: f64 = 10.0;
/// Requests for each connection from which it is so,
const REUSES: f64 = 1.25;
/// and below which it is not.
const SINGLE: f64 = 1.1;
/// The time over which what was served is a bound, no more than over the last of it, and by how many standard errors of a count less.
const SERVED_S: f64 = 30.0;
const LATE_S: f64 = 5.0;
/// Of fewer answers than that in the last of it only a remainder of those before is left.
const REMAINDER: f64 = 0.5;
const ERRORS: f64 = 3.0;
/// For so long a server lives that has answered.
const ALIVE_S: f64 = 3.0;
/// For so long it is supposed that one lives whose connections stay open, that is not asked or of which the balancer does not tell, and whose
/// check is not answered: longer than a gateway keeps connections that nobody uses, by which its workers may be held.
const UNKNOWN_S: f64 = 60.0;
/// Of so few connections nothing tells whether they are kept open: the balancer's count is taken where it is more.
const FEW: f64 = 20.0;

/// What the balancer counted at one server in a period.
#[derive(Clone, Copy, Debug)]
pub(super) struct Period {
    /// Requests that were sent to it, those of them that it did not fail and whose clients did not leave, and of those that it failed those that
    /// it answered.
    pub sent: f64,
    pub kept: f64,
    pub failed_answers: f64,
    /// Those in flight at its end.
    pub in_flight: Option<f64>,
    /// Of these those that are being answered, as far as the balancer tells.
    pub under_way: f64,
}

/// Requests and attempts to connect over a time.
#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    requests: f64,
    attempts: f64,
}

impl Sums {
    fn are_single(self) -> bool {
        self.requests < SINGLE * self.attempts
    }
}

/// The requests and the attempts to connect of one server.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Reused {
    counted: Sums,
    lately: Sums,
    is_so: bool,
    /// Both were counted in the period before: the first counts after a pause are not of one time.
    is_counted: bool,
    /// What came in the last period, a second, where the balancer tells that.
    came: Option<PerSecond>,
    /// Answers, and the time they are of.
    served: f64,
    served_s: f64,
    /// Whether it has answered since there was nobody to tell; the time since then, or since the start, and how much of it it was asked in vain.
    has_answered: bool,
    since_s: f64,
    in_vain_s: f64,
    /// Answers of the last seconds, and the time they are of.
    late: f64,
    late_s: f64,
    in_flight: Option<f64>,
    /// What it answered in the last period, a second, where the balancer tells that.
    answered: Option<PerSecond>,
}

impl Reused {
    /// Takes what was counted in this time; whether it is so, where that is news.
    pub(super) fn observe(
        &mut self,
        length: Seconds,
        requests: PerSecond,
        attempts: PerSecond,
    ) -> Option<bool> {
        let was_so = self.is_so;
        let mut few = attempts * length;
        if std::mem::replace(&mut self.is_counted, true) {
            let add = |sums: Sums, over_s: f64| {
                let kept = (-length.get() / over_s).exp();
                Sums {
                    requests: sums.requests * kept + requests * length,
                    attempts: sums.attempts * kept + attempts * length,
                }
            };
            (self.counted, self.lately) = (add(self.counted, COUNTED_S), add(self.lately, LATELY_S));
            if self.lately.attempts >= FEW && self.lately.are_single() {
                // What was before is over, as where somebody did what is said of it.
                (self.is_so, self.counted) = (false, self.lately);
            } else if self.counted.requests >= self.counted.attempts * REUSES + MIN_REQUESTS {
                self.is_so = true;
            } else if self.counted.are_single() {
                self.is_so = false;
            }
            few = self.counted.attempts;
        }
        self.came = match self.is_so {
            true => Some(requests),
            false => (few < FEW).then(|| requests.max(attempts)),
        };
        (self.is_so != was_so).then_some(self.is_so)
    }

    /// One of both was not counted in this period.
    pub(super) const fn unseen(&mut self) {
        self.came = None;
        self.is_counted = false;
    }

    /// Takes what the balancer counted in a period of this length; nothing where it did not tell, but whether a part of it told that the server
    /// `answered`.
    pub(super) fn take(&mut self, length: Seconds, period: Option<Period>, answered: bool) {
        let in_flight = period.and_then(|period| period.in_flight);
        let before = std::mem::replace(&mut self.in_flight, in_flight);
        self.answered = None;
        let (Some(period), Some(before), Some(now)) = (period, before, in_flight) else {
            match answered {
                true => self.answers(),
                false => self.unknown(length),
            }
            return;
        };
        let answers = (period.kept - (now - before)).max(0.0);
        self.answered = Some(PerSecond::new(answers / length.get().max(1e-3)));
        if shows_answers(period.sent, period.kept + period.failed_answers - (now - before)) {
            self.answers();
        } else if period.sent <= 0.0 && before <= period.under_way && now <= period.under_way {
            // It is asked nothing but what it answers already, for long. Of what it takes this says nothing either.
            self.unknown(length);
            return;
        } else {
            self.since_s += length.get();
            self.in_vain_s += length.get();
        }
        let add = |(sum, of_s): (f64, f64), over_s: f64| {
            let kept = (-length.get() / over_s).exp();
            (sum * kept + answers, of_s * kept + length.get())
        };
        (self.served, self.served_s) = add((self.served, self.served_s), SERVED_S);
        (self.late, self.late_s) = add((self.late, self.late_s), LATE_S);
    }

    /// It takes no requests: who serves there later is another process, of which nothing is known, behind the same balancer.
    pub(super) const fn is_away(&mut self) {
        (self.has_answered, self.since_s, self.in_vain_s) = (false, 0.0, 0.0);
    }

    /// Its check was answered: it is not held, and what it was asked in vain before is over.
    pub(super) const fn is_checked(&mut self) {
        (self.since_s, self.in_vain_s) = (0.0, 0.0);
    }

    const fn answers(&mut self) {
        (self.has_answered, self.since_s, self.in_vain_s) = (true, 0.0, 0.0);
    }

    /// Nothing is known of so long. Where connections do not stay open its accept queue tells.
    fn unknown(&mut self, length: Seconds) {
        self.since_s += length.get();
        self.has_answered &= self.is_so;
    }

    /// Whether it is so.
    pub(super) const fn is_so(self) -> bool {
        self.is_so
    }

    /// What it answered a second, where the balancer tells that.
    pub(super) const fn answered(self) -> Option<PerSecond> {
        self.answered
    }

    /// What comes to it, where the balancer tells that.
    pub(super) const fn came(self) -> Option<PerSecond> {
        self.came
    }

    /// Whether it has answered of late: what the balancer sent to it, or after that its check.
    pub(super) fn is_alive(self) -> bool {
        self.has_answered && self.since_s < ALIVE_S
    }

    /// Whether connections that stay open may be why its check is not answered: so many that were answered are open, where that is known; it
    /// was not asked in vain, or [others](super::held) were lost so just before, and they are not old.
    pub(super) fn may_be_held(self, kept: Option<f64>, is_patient: bool) -> bool {
        self.has_open(kept) && (is_patient || self.in_vain_s < ALIVE_S) && self.since_s < UNKNOWN_S
    }

    /// Whether connections to it that were answered are open: so many, where that is known.
    pub(super) fn has_open(self, kept: Option<f64>) -> bool {
        kept.map_or(self.is_so, |kept| kept > 0.0)
    }

    /// What is known of its capacity, in requests; `None` where it is not so.
    pub(super) fn capacity(self) -> Option<Capacity> {
        let served = (self.served - ERRORS * self.served.sqrt()) / self.served_s.max(SERVED_S);
        // It may have become slower.
        let served = served.min(self.late / self.late_s.max(LATE_S));
        self.is_so
            .then_some(match served > 0.0 && self.late >= REMAINDER {
                true => Capacity::LowerBound(PerSecond::new(served)),
                false => Capacity::Unknown,
            })
    }
}

impl Servers {
    /// What the balancer says that each server answered.
    pub(super) fn take_answers(
        &mut self,
        look: &Result<Look, String>,
        backends: &[BackendTick],
        length: Seconds,
    ) {
        let answered = self.parts.balancer.answered();
        for at in 0..self.reused.len() {
            let period = self.requests(at, backends).map(|(requests, _)| Period {
                sent: requests as f64,
                kept: self.sent(at, backends).0,
                failed_answers: self.failed_answers(at, backends),
                under_way: self.at_balancer[at].map_or(0.0, |counted| counted.under_way as f64),
                in_flight: look
                    .as_ref()
                    .ok()
                    .and_then(|look| look.members[at].in_flight)
                    .map(|count| count as f64),
            });
            self.reused[at].take(length, period, answered.get(at).copied().unwrap_or(false));
        }
    }

    /// Gives each server to which requests come over connections that stay open what the balancer counted there.
    pub(super) fn count_reused(
        &mut self,
        counts: &mut [(PowerState, Counts)],
        requests: &[Option<PerSecond>],
        length: Seconds,
    ) {
        for (at, (state, counts)) in counts.iter_mut().enumerate() {
            let (true, Counts::Attempts(attempts), Some(requests)) =
                (state.takes_requests(), &counts, requests[at])
            else {
                self.reused[at].unseen();
                // A rate of connections says nothing of requests.
                if self.reused[at].is_so() && state.takes_requests() && matches!(counts, Counts::Attempts(_))
                {
                    *counts = Counts::Unknown;
                }
                continue;
            };
            let name = &self.parts.servers[at].name;
            match self.reused[at].observe(length, requests, *attempts) {
                Some(true) => say::note!("warning: {name}: {}", reused(self.parts.balancer.no_reuse())),
                Some(false) => say::note!("{name}: each request comes over a connection of its own again"),
                None => {}
            }
            if let Some(came) = self.reused[at].came() {
                *counts = Counts::Attempts(came);
                self.before[at] = came;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resize::balancer::Admission;
    use crate::resize::servers::TakenOut;
    use crate::resize::testing::{found, parts, told};
    use std::net::TcpListener;
    use std::sync::{Arc, Mutex};

    const SECOND: Seconds = Seconds::new(1.0);

    /// So many seconds of these rates; what was news, and whether it is so then.
    fn see(reused: &mut Reused, seconds: u32, requests: f64, attempts: f64) -> (Vec<bool>, bool) {
        let of = PerSecond::new;
        let news = (0..seconds).filter_map(|_| reused.observe(SECOND, of(requests), of(attempts)));
        (news.collect(), reused.is_so())
    }

    #[test]
    fn it_is_so_where_a_connection_carries_several_requests_and_no_longer_where_it_carries_one() {
        let mut reused = Reused::default();
        // A connection for each, a check now and then, and retries.
        assert_eq!(see(&mut reused, 60, 50.0, 50.0), (vec![], false));
        assert_eq!(see(&mut reused, 60, 50.0, 80.0), (vec![], false));
        assert_eq!(see(&mut reused, 300, 50.0, 45.0), (vec![], false));
        assert_eq!(see(&mut reused, 60, 50.0, 0.5), (vec![true], true));
        assert_eq!(see(&mut reused, 60, 0.0, 0.0), (vec![], true));
        assert_eq!(see(&mut reused, 600, 50.0, 50.0), (vec![false], false));
        // Of two gateways one keeps them open.
        assert_eq!(see(&mut reused, 600, 130.0, 70.0), (vec![true], true));
        assert_eq!(reused.came(), Some(PerSecond::new(130.0)));
        // Requests that take four seconds each.
        assert_eq!(see(&mut Reused::default(), 60, 0.5, 0.0), (vec![true], true));
        // A few at the start tell nothing.
        let mut few = Reused::default();
        assert_eq!(see(&mut few, 5, 1.0, 0.0), (vec![], false));
        // What comes is what the balancer says all the same.
        assert_eq!(few.came(), Some(PerSecond::new(1.0)));
        let mut single = Reused::default();
        see(&mut single, 60, 50.0, 50.0);
        assert_eq!(single.came(), None);
        // Attempts to connect again are no demand.
        assert_eq!(see(&mut reused, 1, 130.0, 400.0), (vec![], true));
        assert_eq!(reused.came(), Some(PerSecond::new(130.0)));
    }

    #[test]
    fn it_lives_while_it_answers_and_not_while_requests_are_only_sent_to_it() {
        let mut reused = Reused::default();
        see(&mut reused, 60, 60.0, 0.0);
        let mut take = |seconds: u32, sent: f64, kept: f64, grows: f64| {
            let mut in_flight = reused.in_flight.unwrap_or(8.0);
            for _ in 0..seconds {
                in_flight += grows;
                let period = Period {
                    sent,
                    kept,
                    failed_answers: 0.0,
                    under_way: 0.0,
                    in_flight: Some(in_flight),
                };
                reused.take(SECOND, Some(period), false);
            }
            reused.is_alive()
        };
        assert!(take(10, 60.0, 60.0, 0.0));
        // It hangs, and has no limit, or has one, or what it has fails later.
        assert!(!take(4, 60.0, 60.0, 60.0));
        assert!(take(1, 60.0, 60.0, 0.0));
        assert!(!take(4, 0.0, 0.0, 0.0));
        assert!(take(1, 60.0, 60.0, 0.0));
        assert!(!take(4, 60.0, 0.0, 0.0));
        // A few that are read as answered are none, where many are sent; and in a surge of ten few of those that are sent are answered.
        assert!(!take(10, 60.0, 60.0, 58.0));
        assert!(take(20, 800.0, 800.0, 720.0));
        assert!(take(1, 60.0, 60.0, -7_000.0));
        // One request a second, or each two.
        assert!(take(20, 1.0, 1.0, 0.0));
        for _ in 0..10 {
            assert!(take(1, 1.0, 1.0, 0.0));
            assert!(take(1, 0.0, 0.0, 0.0));
        }
        // It hangs, and is asked nothing more.
        assert!(!take(4, 60.0, 60.0, 60.0));
        assert!(!take(100, 0.0, 0.0, 0.0));
        // All its workers have what takes four seconds, and it is not known yet that connections stay open.
        let mut new = Reused::default();
        for (second, kept) in [2.0; 8].into_iter().enumerate() {
            let in_flight = (2.0 * second as f64 + 2.0).min(8.0);
            let period = Period {
                sent: 2.0,
                kept,
                failed_answers: 0.0,
                under_way: 0.0,
                in_flight: Some(in_flight),
            };
            new.take(SECOND, Some(period), false);
        }
        assert!(new.is_alive() && !new.is_so());
    }

    #[test]
    fn a_failed_status_is_an_answer_and_no_service() {
        let mut reused = of_sixty(true);
        for _ in 0..60 {
            let period = Period {
                sent: 60.0,
                kept: 0.0,
                failed_answers: 60.0,
                under_way: 0.0,
                in_flight: Some(6.0),
            };
            reused.take(SECOND, Some(period), false);
        }
        assert!(reused.is_alive(), "{reused:?}");
        assert_eq!(reused.capacity(), Some(Capacity::Unknown));
    }

    #[test]
    fn one_part_of_the_balancer_that_tells_of_an_answer_is_enough() {
        for stays_open in [true, false] {
            let mut reused = of_sixty(stays_open);
            (0..100).for_each(|_| reused.take(SECOND, None, true));
            assert!(reused.is_alive(), "{reused:?}");
            (0..5).for_each(|_| reused.take(SECOND, None, false));
            assert!(
                !reused.is_alive() && reused.may_be_held(None, false) == stays_open,
                "{reused:?}"
            );
        }
    }

    #[test]
    fn the_first_counts_after_a_pause_are_not_compared() {
        let mut reused = Reused::default();
        let of = PerSecond::new;
        for _ in 0..50 {
            assert_eq!(reused.observe(SECOND, of(50.0), of(25.0)), None);
            assert_eq!(reused.observe(SECOND, of(50.0), of(50.0)), None);
            reused.unseen();
        }
        assert!(!reused.is_so());
    }

    #[test]
    fn who_is_told_to_keep_none_open_is_seen_to_in_half_a_minute() {
        let mut reused = Reused::default();
        see(&mut reused, 600, 50.0, 0.5);
        let (news, is_so) = see(&mut reused, 30, 50.0, 50.0);
        assert_eq!((news, is_so), (vec![false], false));
        assert_eq!(see(&mut reused, 600, 50.0, 50.0), (vec![], false));
        // One of two gateways is none.
        see(&mut reused, 600, 130.0, 70.0);
        assert_eq!(see(&mut reused, 60, 130.0, 70.0), (vec![], true));
    }

    #[test]
    fn of_few_connections_the_first_count_is_the_balancers_too() {
        let mut reused = Reused::default();
        let of = PerSecond::new;
        reused.observe(SECOND, of(100.0), of(1.0));
        assert_eq!(reused.came(), Some(of(100.0)));
        let mut single = Reused::default();
        single.observe(SECOND, of(100.0), of(98.0));
        assert_eq!(single.came(), None);
    }

    #[test]
    fn answers_that_last_are_nothing_that_it_was_asked_in_vain() {
        let streams = |under_way: f64| {
            let mut reused = of_sixty(true);
            for _ in 0..20 {
                let period = Period {
                    sent: 0.0,
                    kept: 0.0,
                    failed_answers: 0.0,
                    in_flight: Some(8.0),
                    under_way,
                };
                reused.take(SECOND, Some(period), false);
            }
            reused
        };
        assert!(streams(8.0).may_be_held(Some(8.0), false));
        assert!(!streams(7.0).may_be_held(Some(8.0), false));
        // What it was asked in vain is over once its check is answered, or another process is to serve.
        for over in [Reused::is_checked, Reused::is_away] {
            let mut back = streams(0.0);
            over(&mut back);
            assert!(back.may_be_held(Some(8.0), false) && back.is_so(), "{back:?}");
        }
    }

    #[test]
    fn a_check_is_excused_by_connections_that_are_open_alone() {
        // A controller that was just started, and one that serves each over its own.
        for reused in [Reused::default(), of_sixty(false), of_sixty(true)] {
            let mut idle = reused;
            (0..10).for_each(|_| idle.take(SECOND, None, false));
            assert!(idle.may_be_held(Some(8.0), false), "{idle:?}");
            assert!(!idle.may_be_held(Some(0.0), false), "{idle:?}");
            (0..60).for_each(|_| idle.take(SECOND, None, false));
            assert!(!idle.may_be_held(Some(8.0), false), "{idle:?}");
            // One that was asked in vain is not excused, whatever is asked of it later.
            let mut hangs = reused;
            for at in 1..=5 {
                let period = Period {
                    sent: 6.0,
                    kept: 6.0,
                    failed_answers: 0.0,
                    under_way: 0.0,
                    in_flight: Some(6.0 * f64::from(at)),
                };
                hangs.take(SECOND, Some(period), false);
            }
            (0..2).for_each(|_| hangs.take(SECOND, None, false));
            assert!(!hangs.may_be_held(Some(8.0), false), "{hangs:?}");
            hangs.take(SECOND, None, true);
            assert!(hangs.may_be_held(Some(8.0), false), "{hangs:?}");
            // Asked once in a while, it is in vain all the same.
            for at in 1..=6 {
                let period = Period {
                    sent: f64::from(at % 2),
                    kept: f64::from(at % 2),
                    failed_answers: 0.0,
                    under_way: 0.0,
                    in_flight: Some(6.0 + f64::from(at)),
                };
                hangs.take(SECOND, Some(period), false);
            }
            assert!(!hangs.may_be_held(Some(8.0), false), "{hangs:?}");
        }
    }

    #[test]
    fn a_pause_in_what_comes_makes_it_no_smaller() {
        let mut reused = of_sixty(true);
        takes(&mut reused, 1, 6.0, Some(0.0));
        let before = reused.capacity();
        takes(&mut reused, 600, 0.0, Some(0.0));
        assert_eq!(reused.capacity(), before);
    }

    /// One that answers 60 a second, over connections that stay open or not.
    fn of_sixty(stay_open: bool) -> Reused {
        let mut reused = Reused::default();
        see(&mut reused, 60, 60.0, if stay_open { 0.0 } else { 60.0 });
        takes(&mut reused, 60, 60.0, Some(6.0));
        assert!(reused.is_alive() && reused.is_so() == stay_open);
        reused
    }

    /// So many seconds in which as many are answered as are sent.
    fn takes(reused: &mut Reused, seconds: u32, rate: f64, in_flight: Option<f64>) {
        for _ in 0..seconds {
            let period = Period {
                sent: rate,
                kept: rate,
                failed_answers: 0.0,
                under_way: 0.0,
                in_flight,
            };
            reused.take(SECOND, Some(period), false);
        }
    }

    #[test]
    fn what_is_not_known_is_no_sign_of_death_for_a_while_and_none_of_life_for_ever() {
        for unknown in [
            |reused: &mut Reused| reused.take(SECOND, None, false),
            |reused: &mut Reused| takes(reused, 1, 60.0, None),
            |reused: &mut Reused| takes(reused, 1, 0.0, Some(0.0)),
        ] {
            let mut reused = of_sixty(true);
            // What was in flight is answered first.
            takes(&mut reused, 1, 6.0, Some(0.0));
            (0..50).for_each(|_| unknown(&mut reused));
            assert!(
                !reused.is_alive() && reused.may_be_held(None, false),
                "{reused:?}"
            );
            (0..20).for_each(|_| unknown(&mut reused));
            assert!(!reused.may_be_held(None, false), "{reused:?}");
            // Its accept queue tells of one whose connections do not stay open.
            let mut single = of_sixty(false);
            takes(&mut single, 1, 6.0, Some(0.0));
            unknown(&mut single);
            assert!(!single.is_alive() && !single.may_be_held(None, false));
        }
        // It accepts, and answers nobody; then nobody asks it any more.
        let mut hangs = of_sixty(true);
        for at in 1..=10 {
            let period = Period {
                sent: 6.0,
                kept: 6.0,
                failed_answers: 0.0,
                under_way: 0.0,
                in_flight: Some(6.0 + 6.0 * f64::from(at)),
            };
            hangs.take(SECOND, Some(period), false);
        }
        assert!(!hangs.may_be_held(None, false));
        takes(&mut hangs, 100, 0.0, Some(66.0));
        assert!(!hangs.is_alive() && !hangs.may_be_held(None, false), "{hangs:?}");
    }

    #[test]
    fn what_it_served_is_what_it_takes_at_least() {
        let mut reused = Reused::default();
        assert_eq!(reused.capacity(), None);
        see(&mut reused, 60, 60.0, 0.0);
        assert_eq!(reused.capacity(), Some(Capacity::Unknown));
        let bound = |reused: &Reused| match reused.capacity() {
            Some(Capacity::LowerBound(bound)) => bound.get(),
            other => panic!("{other:?} of {reused:?}"),
        };
        takes(&mut reused, 120, 60.0, Some(6.0));
        assert!((50.0..60.0).contains(&bound(&reused)), "{reused:?}");
        // It becomes three times slower.
        takes(&mut reused, 15, 20.0, Some(8.0));
        assert!(bound(&reused) <= 23.0, "{reused:?}");
    }

    #[test]
    fn the_demand_at_each_server_is_what_the_gateways_count_where_connections_stay_open() {
        let listeners = [0, 1].map(|_| TcpListener::bind("127.0.0.1:0").unwrap());
        let wanted = Arc::new(Mutex::new(vec![told(Admission::Ready); 2]));
        let mut servers = found(parts(&listeners, &wanted, &TakenOut::default()));
        let of = |rate| Counts::Attempts(PerSecond::new(rate));
        let requests = [Some(PerSecond::new(60.0)); 2];
        let serving = PowerState::Serving;
        let mut last = Vec::new();
        for _ in 0..60 {
            last = vec![(serving, of(0.5)), (serving, of(60.0))];
            servers.count_reused(&mut last, &requests, SECOND);
        }
        assert_eq!(last, [(serving, of(60.0)), (serving, of(60.0))]);
        assert_eq!(
            servers.reused.iter().map(|one| one.is_so()).collect::<Vec<_>>(),
            [true, false]
        );
        // What it dies with, should nobody listen there any more.
        assert_eq!(servers.before[0], PerSecond::new(60.0));
        // Where the gateways do not tell, nothing is known of what comes there: connections are no requests.
        let mut untold = vec![(serving, of(0.5)), (serving, of(60.0))];
        servers.count_reused(&mut untold, &[None; 2], SECOND);
        assert_eq!(untold, [(serving, Counts::Unknown), (serving, of(60.0))]);
        // One that takes none keeps nothing of it.
        let mut off = vec![(PowerState::Off, of(0.5)), (serving, Counts::Unknown)];
        servers.count_reused(&mut off, &requests, SECOND);
        assert_eq!(off, [(PowerState::Off, of(0.5)), (serving, Counts::Unknown)]);
        assert!(servers.reused.iter().all(|one| one.came().is_none()));
    }
}
