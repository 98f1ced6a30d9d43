//! Whether requests come to a server over connections that stay open: its accept queue counts each once, however many it carries, and a
//! demand of connections would have servers switched off under a load of requests.

use headroom_units::{PerSecond, Seconds};

/// What is said of it.
pub(super) const REUSED: &str = "requests come to it over connections that stay open, which its accept_queue counts once: what comes is taken \
     from the balancer, and how many requests it can take is not known; let the balancer open a connection for each (headroom gateway: \
     --backend-idle 0; HAProxy: option httpclose)";

/// The time over which both are counted, the old ones forgotten,
const COUNTED_S: f64 = 20.0;
/// and the fewest requests that tell.
const MIN_REQUESTS: f64 = 20.0;
/// Requests for each connection from which it is so,
const REUSES: f64 = 2.0;
/// and below which it is not.
const SINGLE: f64 = 1.25;

/// The requests and the attempts to connect of one server.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Reused {
    requests: f64,
    attempts: f64,
    is_so: bool,
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
        if self.requests >= MIN_REQUESTS && self.requests >= REUSES * self.attempts {
            self.is_so = true;
        } else if self.requests < SINGLE * self.attempts {
            self.is_so = false;
        }
        (self.is_so != was_so).then_some(self.is_so)
    }

    /// Whether it is so.
    pub(super) const fn is_so(self) -> bool {
        self.is_so
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_so_where_a_connection_carries_several_requests_and_no_longer_where_it_carries_one() {
        let mut reused = Reused::default();
        let mut see = |seconds: u32, requests: f64, attempts: f64| {
            let mut news = Vec::new();
            for _ in 0..seconds {
                let of = |rate| PerSecond::new(rate);
                news.extend(reused.observe(Seconds::new(1.0), of(requests), of(attempts)));
            }
            (news, reused.is_so())
        };
        // A connection for each, a check now and then, and retries.
        assert_eq!(see(60, 50.0, 50.0), (vec![], false));
        assert_eq!(see(60, 50.0, 80.0), (vec![], false));
        // A few are carried by one that is open, as where clients retry.
        assert_eq!(see(60, 50.0, 40.0), (vec![], false));
        assert_eq!(see(60, 50.0, 0.5), (vec![true], true));
        assert_eq!(see(60, 0.0, 0.0), (vec![], true));
        assert_eq!(see(120, 50.0, 50.0), (vec![false], false));
        // Too few to tell.
        let mut reused = Reused::default();
        for _ in 0..60 {
            assert_eq!(
                reused.observe(Seconds::new(1.0), PerSecond::new(0.5), PerSecond::ZERO),
                None
            );
        }
    }
}
