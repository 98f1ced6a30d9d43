//! What is in front of the servers, and which of them get requests, as it is commanded.

use crate::live::TrafficPeriod;
use headroom_units::PerSecond;
use std::time::Duration;

/// What a server gets from the balancer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// Requests.
    Ready,
    /// No new requests; it finishes those that it has.
    Drain,
    /// Nothing: it is off, or of no use.
    Out,
}

impl Admission {
    /// In a word.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ready => "ready",
            Self::Drain => "drain",
            Self::Out => "out",
        }
    }
}

/// What is wanted of one server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// What it gets; `None` leaves it with what it has.
    pub admission: Option<Admission>,
    /// Whether it warms up: where the balancer can, it gets fewer requests than the others then.
    pub warming: bool,
    /// How many requests it is to have in hand at most, of all that are on their way there or worked on; `None` for as many as the
    /// balancer's own configuration lets. A balancer without such a bound takes no notice.
    pub most_in_flight: Option<u32>,
}

/// A server as the balancer has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member {
    /// What it gets, as read back.
    pub admission: Admission,
    /// Requests that it is serving; `None` where that is not known of the time since its admission changed.
    pub in_flight: Option<u64>,
    /// Whether the balancer checks its servers and finds this one well; `None` where it has no check.
    pub well: Option<bool>,
    /// What it counted there since the look before; `None` where that is not known whole, or is the run's telemetry already.
    pub counted: Option<AtServer>,
}

/// What a balancer counted at one server in a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AtServer {
    /// Requests that it sent there.
    pub requests: u64,
    /// Requests that ended without an answer, or with a 5xx.
    pub failures: u64,
    /// Answers that are among no requests that ended well: the 5xx, and those that have begun.
    pub answers: u64,
    /// Requests that it has and whose answers have begun.
    pub under_way: u64,
}

/// What a balancer shows.
#[derive(Clone, Debug)]
pub struct Look {
    /// The servers, in the controller's order.
    pub members: Vec<Member>,
    /// What came since the look before; `None` where that is not known whole, or is the run's telemetry already.
    pub traffic: Option<Traffic>,
}

/// Requests in a time.
#[derive(Clone, Debug)]
pub struct Traffic {
    /// How long it was.
    pub length: Duration,
    /// What came, and what became of it.
    pub requests: TrafficPeriod,
}

impl Traffic {
    /// The arrival rate; `None` where it is of less than half a period, as just after a balancer was connected: of so short a
    /// time even many requests a second may show none.
    pub fn rate(&self, period: Duration) -> Option<PerSecond> {
        let length_s = self.length.as_secs_f64();
        (length_s >= period.as_secs_f64() / 2.0 && length_s > 0.0)
            .then(|| PerSecond::new(self.requests.arrivals as f64 / length_s))
    }
}

/// A balancer.
pub trait Balancer: Send {
    /// In words, for the start of a run.
    fn name(&self) -> String;

    /// The URL of a server, where the telemetry counts requests by it.
    fn url(&self, _server: usize) -> Option<&str> {
        None
    }

    /// How it is told to open a connection for each request.
    fn no_reuse(&self) -> &'static str;

    /// What it shows, within the time given.
    ///
    /// # Errors
    /// Why it cannot be relied on now, in words.
    fn look(&mut self, patience: Duration) -> Result<Look, String>;

    /// Tells it what each server is to get, where that is not what it has; within the time given. What came of it shows in
    /// the next look.
    ///
    /// # Errors
    /// Why it could not be commanded, in words.
    fn want(&mut self, wanted: &[Wanted], patience: Duration) -> Result<(), String>;

    /// Which servers have answered since this was asked last, as far as any part of it tells that can be asked, whatever became of its others;
    /// in the controller's order, and empty where it has no parts.
    fn answered(&mut self) -> Vec<bool> {
        Vec::new()
    }

    /// What a user should know of it: servers without checks, for instance. After the first successful look.
    fn notes(&self) -> Vec<String>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_is_no_rate() {
        let traffic = |length_ms, arrivals| Traffic {
            length: Duration::from_millis(length_ms),
            requests: TrafficPeriod {
                arrivals,
                ..TrafficPeriod::default()
            },
        };
        let period = Duration::from_millis(200);
        assert_eq!(traffic(200, 10).rate(period), Some(PerSecond::new(50.0)));
        assert_eq!(traffic(100, 0).rate(period), Some(PerSecond::ZERO));
        assert_eq!(traffic(20, 0).rate(period), None);
        assert_eq!(traffic(0, 3).rate(Duration::ZERO), None);
    }
}
