//! Whether requests come to a server over connections that stay open: its accept queue counts each once, however many it carries. A demand of
//! connections would have servers switched off under a load of requests, one that has all its workers on such connections accepts nobody and
//! lives, and what it takes is known of what the balancer counted alone.

use headroom_control::capacity::Capacity;
use headroom_units::{PerSecond, Seconds};

/// What is said of it: the remedy first, for a view has little room.
pub(super) const REUSED: &str = "set --backend-idle 0 at headroom gateway, or option httpclose at HAProxy: connections to it stay open, which \
     its accept_queue counts once, so what comes is taken from the balancer, and it is only known what it has served";

/// The time over which both are counted, the old ones forgotten: requests that take ten seconds and more are few.
const COUNTED_S: f64 = 120.0;
/// The fewest requests that tell.
const MIN_REQUESTS: f64 = 10.0;
/// Requests for each connection from which it is so,
const REUSES: f64 = 1.25;
/// and below which it is not.
const SINGLE: f64 = 1.1;
/// The time over which what was served is a bound, and by how many standard errors of a count less.
const SERVED_S: f64 = 30.0;
const ERRORS: f64 = 3.0;
/// For so long a server lives that has answered, and that share of the requests of a period shows that it does: what a balancer counts and has
/// in flight is not read at one instant.
const ALIVE_S: f64 = 3.0;
const MIN_ANSWERED: f64 = 0.25;
/// Of so few connections nothing tells whether they are kept open: the balancer's count is taken where it is more.
const FEW: f64 = 20.0;

/// What the balancer counted at one server in a period.
#[derive(Clone, Copy, Debug)]
pub(super) struct Period {
    pub length: Seconds,
    /// Requests that were sent to it, and those of them that it did not fail and whose clients did not leave.
    pub sent: f64,
    pub kept: f64,
    /// Those in flight at its end.
    pub in_flight: Option<f64>,
}

/// The requests and the attempts to connect of one server.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Reused {
    requests: f64,
    attempts: f64,
    is_so: bool,
    /// What came in the last period, a second, where the balancer tells that.
    came: Option<PerSecond>,
    /// Answers, and the time they are of.
    served: f64,
    served_s: f64,
    /// For how long it has not answered, where it ever did.
    silent_s: Option<f64>,
    in_flight: Option<f64>,
}

impl Reused {
    /// Takes what was counted in this time; whether it is so, where that is news.
    pub(super) fn observe(
        &mut self,
        length: Seconds,
        requests: PerSecond,
        attempts: PerSecond,
    ) -> Option<bool> {
        let kept = (-length.get() / COUNTED_S).exp();
        self.requests = self.requests * kept + requests * length;
        self.attempts = self.attempts * kept + attempts * length;
        let was_so = self.is_so;
        if self.requests >= self.attempts * REUSES + MIN_REQUESTS {
            self.is_so = true;
        } else if self.requests < SINGLE * self.attempts {
            self.is_so = false;
        }
        self.came = match self.is_so {
            true => Some(requests),
            false => (self.attempts < FEW).then(|| requests.max(attempts)),
        };
        (self.is_so != was_so).then_some(self.is_so)
    }

    /// One of both was not counted in this period.
    pub(super) const fn unseen(&mut self) {
        self.came = None;
    }

    /// Takes what the balancer counted; nothing where it did not tell.
    pub(super) fn take(&mut self, period: Option<Period>) {
        let Some(period) = period else {
            (self.in_flight, self.silent_s) = (None, None);
            return;
        };
        let before = std::mem::replace(&mut self.in_flight, period.in_flight);
        let (Some(before), Some(now)) = (before, period.in_flight) else {
            return;
        };
        let answers = (period.kept - (now - before)).max(0.0);
        self.silent_s = match answers >= (MIN_ANSWERED * period.sent).max(1.0) {
            true => Some(0.0),
            false => self.silent_s.map(|silent_s| silent_s + period.length.get()),
        };
        let kept = (-period.length.get() / SERVED_S).exp();
        self.served = self.served * kept + answers;
        self.served_s = self.served_s * kept + period.length.get();
    }

    /// Whether it is so.
    pub(super) const fn is_so(self) -> bool {
        self.is_so
    }

    /// What comes to it, where the balancer tells that.
    pub(super) const fn came(self) -> Option<PerSecond> {
        self.came
    }

    /// Whether it answers what the balancer sends to it.
    pub(super) fn is_alive(self) -> bool {
        self.silent_s.is_some_and(|silent_s| silent_s < ALIVE_S)
    }

    /// What is known of its capacity, in requests; `None` where it is not so.
    pub(super) fn capacity(self) -> Option<Capacity> {
        let served = (self.served - ERRORS * self.served.sqrt()) / self.served_s.max(SERVED_S);
        self.is_so.then_some(match served > 0.0 {
            true => Capacity::LowerBound(PerSecond::new(served)),
            false => Capacity::Unknown,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
                reused.take(Some(Period {
                    length: SECOND,
                    sent,
                    kept,
                    in_flight: Some(in_flight),
                }));
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
        // A few that are read as answered are none, where many are sent.
        assert!(!take(10, 60.0, 60.0, 57.0));
        // One request a second, or each two.
        assert!(take(20, 1.0, 1.0, 0.0));
        for _ in 0..10 {
            assert!(take(1, 1.0, 1.0, 0.0));
            assert!(take(1, 0.0, 0.0, 0.0));
        }
        // It is at rest: its check tells.
        assert!(!take(10, 0.0, 0.0, 0.0));
        // All its workers have what takes four seconds, and it is not known yet that connections stay open.
        let mut new = Reused::default();
        for (second, kept) in [2.0; 8].into_iter().enumerate() {
            let in_flight = (2.0 * second as f64 + 2.0).min(8.0);
            new.take(Some(Period {
                length: SECOND,
                sent: 2.0,
                kept,
                in_flight: Some(in_flight),
            }));
        }
        assert!(new.is_alive() && !new.is_so());
    }

    #[test]
    fn what_it_served_is_what_it_takes_at_least() {
        let mut reused = Reused::default();
        assert_eq!(reused.capacity(), None);
        see(&mut reused, 60, 60.0, 0.0);
        assert_eq!(reused.capacity(), Some(Capacity::Unknown));
        for _ in 0..120 {
            reused.take(Some(Period {
                length: SECOND,
                sent: 60.0,
                kept: 60.0,
                in_flight: Some(6.0),
            }));
        }
        let Some(Capacity::LowerBound(bound)) = reused.capacity() else {
            panic!("{reused:?}");
        };
        assert!((50.0..60.0).contains(&bound.get()), "{bound:?}");
    }
}
