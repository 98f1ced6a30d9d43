//! What one gateway reported, and what is wanted of it: what its task and the control loop share.

use super::levers::LeverState;
use super::membership::{Contact, Member, Standing};
use super::report::traffic;
use crate::live::{SizesPeriod, TrafficPeriod};
use hdrhistogram::Histogram;
use headroom_gateway::service_histogram;
use headroom_wire::client::{CallError, GatewayClient};
use headroom_wire::message::{Backend, BackendState, GatewayPeriod};
use std::collections::BTreeMap;
use std::time::Duration;

/// What one gateway told since it was last asked.
#[derive(Debug)]
pub(super) struct GatewayState {
    /// Its backends; `None` while it is not connected.
    pub backends: Option<Vec<Backend>>,
    /// The requests that each is serving; `None` where that is not known of the time since its state was set.
    pub in_flight: Vec<Option<u64>>,
    /// Which of them have answered since that was asked last.
    pub answered: Vec<bool>,
    /// Requests that it was serving or that waited there, when it reported last.
    pub going_on: u64,
    /// The upper bounds of its classes of sizes; empty where it looks at none.
    pub size_bounds: Vec<u64>,
    /// The states that its backends are to have, by their URL.
    pub wanted: BTreeMap<String, BackendState>,
    /// How many requests each is to have at most, by its URL; `None` for as configured.
    pub bounds: BTreeMap<String, Option<u32>>,
    pub levers: LeverState,
    /// Periods added up here, and how long they were together.
    pub periods: u64,
    pub length: Duration,
    pub sum: TrafficPeriod,
    pub histogram: Histogram<u64>,
    /// The sum is not whole: threads of the gateway did not answer, or the connection was lost.
    pub broken: bool,
    pub trouble: Option<String>,
    /// What is kept of it from period to period, and what it was to the last.
    pub member: Member,
    pub standing: Standing,
    /// How the last try to connect ended, where one has since the last period.
    contact: Contact,
    /// It has answered before.
    is_known: bool,
}

impl Default for GatewayState {
    fn default() -> Self {
        Self {
            backends: None,
            in_flight: Vec::new(),
            answered: Vec::new(),
            going_on: 0,
            size_bounds: Vec::new(),
            wanted: BTreeMap::new(),
            bounds: BTreeMap::new(),
            levers: LeverState::default(),
            periods: 0,
            length: Duration::ZERO,
            sum: TrafficPeriod::default(),
            histogram: service_histogram(),
            broken: true,
            trouble: None,
            member: Member::at_start(),
            standing: Standing::default(),
            contact: Contact::NoNews,
            is_known: false,
        }
    }
}

impl GatewayState {
    /// One that comes to a run that goes on, and is to be as another one is.
    pub fn like(other: &Self) -> Self {
        Self {
            wanted: other.wanted.clone(),
            bounds: other.bounds.clone(),
            levers: other.levers.wanted(),
            member: Member::joining(),
            standing: Standing::Joining,
            ..Self::default()
        }
    }

    /// A connection stands, over which nothing was reported yet.
    pub fn connected(&mut self, backends: Vec<Backend>, client: &GatewayClient) {
        *self = Self {
            backends: Some(backends),
            size_bounds: client.gateway().size_bounds.clone(),
            // What was counted while nobody was connected is in no period.
            broken: true,
            wanted: std::mem::take(&mut self.wanted),
            bounds: std::mem::take(&mut self.bounds),
            levers: std::mem::take(&mut self.levers).connected(client.gateway().levers.clone()),
            member: self.member,
            standing: self.standing,
            is_known: true,
            ..Self::default()
        };
    }

    /// A connection was lost, or not made; whether there was one.
    pub fn lost(&mut self, error: &CallError) -> bool {
        let was_connected = self.backends.take().is_some();
        self.broken = true;
        self.in_flight.clear();
        self.contact = Contact::of_failed(error, self.is_known);
        self.trouble = Some(error.to_string());
        was_connected
    }

    /// What a gateway does to servers that are off which left and could not be told.
    pub const fn left_untold(&self) -> &'static str {
        match self.is_known {
            true => {
                "the gateway left and was not reached: a server that was off when it was reached last gets no requests from it until it is \
                 started again"
            }
            false => {
                "the gateway left, and this run never reached it: it was told nothing, and what a run before told it stands until it is \
                 started again"
            }
        }
    }

    /// What this period shows of the connection.
    pub fn contact(&mut self) -> Contact {
        let last = std::mem::replace(&mut self.contact, Contact::NoNews);
        match self.backends {
            Some(_) => Contact::Connected,
            None => last,
        }
    }

    /// Whether it is to be there, and is not connected.
    pub fn is_missed(&self) -> bool {
        self.backends.is_none() && self.standing == Standing::Counted
    }

    pub fn add(&mut self, mut period: GatewayPeriod) {
        self.levers.reported(std::mem::take(&mut period.levers));
        self.periods += 1;
        self.going_on = period.in_flight;
        self.length += period.length;
        self.broken |= period.cores_missing > 0;
        for (value, count) in &period.latencies {
            self.histogram.saturating_record_n(*value, *count);
        }
        let whole = period.cores_missing == 0;
        let in_flight = period.backends.iter().map(|backend| backend.in_flight);
        let in_flight = in_flight.map(|count| count.filter(|_| whole)).collect();
        let before = std::mem::replace(&mut self.in_flight, in_flight);
        let backends = self.backends.as_deref().unwrap_or_default();
        let healthy: Vec<bool> = period.backends.iter().map(|backend| backend.healthy).collect();
        let (sizes, routes) = (
            std::mem::take(&mut period.sizes),
            std::mem::take(&mut period.routes),
        );
        if let Some(next) = SizesPeriod::of_report(&self.size_bounds, backends, &healthy, sizes, routes) {
            match &mut self.sum.sizes {
                Some(sizes) => sizes.follow(next),
                none => *none = Some(next),
            }
        }
        // Of what is going on, the newest is the period's.
        self.sum.end_going_on();
        let added = traffic(period, backends);
        self.answered.resize(added.backends.len(), false);
        let both = before.iter().zip(&self.in_flight);
        for ((backend, (before, now)), answered) in added.backends.iter().zip(both).zip(&mut self.answered) {
            *answered |= before
                .zip(*now)
                .is_some_and(|(before, now)| backend.has_answered(before, now));
        }
        self.sum.add(&added);
    }

    /// Ends the period; whether it was whole. What was added up stays until it is taken.
    pub fn end(&mut self) -> bool {
        let whole = self.periods > 0 && !self.broken && self.backends.is_some();
        self.periods = 0;
        self.length = Duration::ZERO;
        self.broken = self.backends.is_none();
        whole
    }

    /// Begins with what was added up: the first part of a period, which comes with the next one.
    pub fn begin(&mut self) {
        self.periods = 0;
        self.broken = self.backends.is_none();
    }

    /// What was added up, which begins anew.
    pub fn take(&mut self) -> (TrafficPeriod, Histogram<u64>) {
        let histogram = std::mem::replace(&mut self.histogram, service_histogram());
        (std::mem::take(&mut self.sum), histogram)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_told_which_backends_answered_until_that_is_asked() {
        let backend = |port: u16| Backend {
            url: format!("http://127.0.0.1:{port}"),
            healthy: true,
            state: BackendState::Up,
            weight: 1,
            most_in_flight: None,
        };
        let mut state = GatewayState {
            backends: Some(vec![backend(1), backend(2), backend(3)]),
            ..GatewayState::default()
        };
        // The second hangs, and the third answers with a failed status.
        let of = |requests, failures, failed_answers, in_flight| headroom_wire::message::BackendPeriod {
            requests,
            failures,
            healthy: true,
            in_flight: Some(in_flight),
            connects: None,
            left_by_clients: None,
            answered_to_nobody: None,
            failed_answers: Some(failed_answers),
            checks: None,
        };
        let mut add = |at: u64| {
            let period = GatewayPeriod {
                backends: vec![of(9, 0, 0, 2), of(9, 0, 0, 9 * at), of(9, 9, 9, 2)],
                ..GatewayPeriod::default()
            };
            state.add(period);
            state.answered.clone()
        };
        assert_eq!(add(1), [false; 3], "what was in flight before is not known");
        assert_eq!(add(2), [true, false, true]);
        assert_eq!(add(3), [true, false, true]);
    }

    #[test]
    fn of_a_gateway_that_never_was_reached_it_is_not_said_that_it_was() {
        let mut state = GatewayState::like(&GatewayState::default());
        assert!(state.left_untold().contains("never reached it"));
        state.is_known = true;
        assert!(state.left_untold().contains("when it was reached last"));
    }
}
