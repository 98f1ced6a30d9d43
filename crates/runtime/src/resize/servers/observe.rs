//! What is known of the servers in one period.

use super::reused::reused;
use super::seen::Seen;
use super::{Demand, Servers};
use crate::live::{BackendTick, Device, DevicePeriod};
use crate::resize::UNRELIABLE;
use crate::resize::balancer::{Admission, AtServer, Look};
use crate::resize::queues::{Queue, Shown};
use headroom_console::say;
use headroom_control::NodeObservation;
use headroom_control::capacity::{Capacity, QueueKind};
use headroom_control::resize::{
    Cause, Counts, Fleet, Found, PowerState, Sent, ServerLoad, Work, demand, fill_in,
};
use headroom_units::{CapacityKind, Estimated, Lever, Part, PerSecond, Role, Seconds, Sensor, Source};
use std::time::Instant;

/// What is said of a slow server.
const SLOW: &str = "its requests take longer than those of its equals: it is the first to be switched off, and the last to be switched on";

/// What is said of a server that waits to be taken out.
const WAITS: &str = "serves on until the others take the load, then goes out";

/// Of a server that fails more of its requests than this it is not asked how long they take.
const FEW_FAILURES: f64 = 0.02;

/// What some servers take together, and what kind of number that is: of the least sure among them, and at least that where nothing is known
/// of one.
fn sum(capacities: &[Capacity]) -> Option<(f64, CapacityKind)> {
    let known = capacities.iter().filter_map(|capacity| capacity.value());
    let per_s = known.map(PerSecond::get).reduce(|sum, one| sum + one)?;
    let kinds = capacities
        .iter()
        .map(|capacity| CapacityKind::named(capacity.name()));
    let kind = kinds.map(|kind| kind.unwrap_or(CapacityKind::AtLeast)).max();
    Some((per_s, kind?))
}

/// What the balancer itself counted at each of so many servers.
fn at_balancer(look: &Result<Look, String>, servers: usize) -> Vec<Option<AtServer>> {
    match look {
        Ok(look) => look.members.iter().map(|member| member.counted).collect(),
        Err(_) => vec![None; servers],
    }
}

/// A step shorter than this part of a period is counted with the one before.
const SHORT: f64 = 0.8;

impl Servers {
    pub(super) fn look(&mut self, period: &mut DevicePeriod) {
        let at = Instant::now();
        let length = Seconds::from(at.duration_since(std::mem::replace(&mut self.last, at)));
        let now = Seconds::from(at.duration_since(self.started));
        let shown = self.sample_queues();
        let look = self.parts.balancer.look(self.parts.period / 2);
        let out = self.parts.maintenance();
        self.at_balancer = at_balancer(&look, self.parts.servers.len());
        // What is counted may be of several periods, of which one alone was not whole, and of a balancer that was read late.
        let of_balancer = look.as_ref().ok().and_then(|look| look.traffic.as_ref());
        let counted_over = match of_balancer {
            Some(traffic) => Seconds::from(traffic.length),
            None => period.counted_over.unwrap_or(length),
        };
        self.take_answers(&look, &period.backends, counted_over);
        self.take_failures(&period.backends, counted_over);
        let requests = self.request_rates(&period.backends, counted_over);
        let seen = self.check(&shown, &look, &out);
        if self.dry {
            self.find_again(now, &look);
        }
        self.fleet.take_out(&out);
        let states = self.power_states();
        // By whatever the demand is known: of what a server served those that are checks are no requests.
        let counts = self.counts(&shown, &look, &period.backends);
        let arrival_rate = match self.parts.demand {
            Demand::AcceptQueue => {
                let mut counts: Vec<_> = states.iter().copied().zip(counts).collect();
                let uncounted = self.uncounted();
                self.count_reused(&mut counts, &requests, counted_over);
                fill_in(&mut counts, &requests, &mut self.attempts_a_request, &uncounted);
                let told = period
                    .queue
                    .map(|queue| (queue.full + queue.expired + queue.left, queue.waiting));
                let held_back = self.held_back.observe(length.get(), told);
                let at_balancer = self.rate_at_balancer(&look);
                let of_balancer = || at_balancer.filter(|_| uncounted.contains(&true));
                // Other telemetry than the balancer's own may be late, and need not tell of all requests.
                let came = at_balancer.or_else(|| period.arrival_rate());
                let is_reused = |at: usize| {
                    !states[at].takes_requests()
                        || self.reused[at].came().is_some() && self.reused[at].is_so()
                };
                let is_all = (0..states.len()).all(is_reused);
                let sent = came.map(|came| Sent::of(came, held_back, self.attempts_a_request, is_all));
                demand(counts, sent)
                    .or_else(of_balancer)
                    .map(|counted| PerSecond::new((counted.get() + held_back).max(0.0)))
            }
            Demand::Balancer => self.rate_at_balancer(&look),
        };
        period.demand = arrival_rate;
        let work = self.work(&look, &period.backends);
        self.observe_work(&work);
        self.fleet.bind(&self.sessions(&look));
        self.met.observe(&self.estimates());
        self.bound_in_flight(&shown, &look, &states, &period.backends, length);
        period.nodes = self.nodes(&look);
        let names = self.parts.servers.iter().map(|server| &server.name);
        let switched = names.zip(&states).filter(|(_, state)| state.is_switched());
        period
            .switched
            .extend(switched.map(|(name, state)| (name.clone(), *state)));
        for (at, seen) in seen.iter().enumerate() {
            period.add(self.part(at, seen, &look, now, requests[at]));
        }
        period.add(self.whole(&states, arrival_rate));
        self.draw(length, &states, &seen, arrival_rate, period);
        self.trouble = look.as_ref().err().cloned().or_else(|| self.unreported.clone());
        if let Some(why) = &self.trouble {
            let balancer = Part::new(self.parts.balancer.name(), Role::Gateway).in_state(UNRELIABLE);
            period.add(Part {
                trouble: vec![why.clone()],
                ..balancer
            });
        }
        period.traffic = look
            .ok()
            .and_then(|look| look.traffic)
            .map(|traffic| traffic.requests);
        self.orders.clear();
    }

    /// What the balancer itself says of the demand.
    fn rate_at_balancer(&self, look: &Result<Look, String>) -> Option<PerSecond> {
        look.as_ref().ok()?.traffic.as_ref()?.rate(self.parts.period)
    }

    /// The requests that were counted of each server, a second.
    fn request_rates(&self, backends: &[BackendTick], length: Seconds) -> Vec<Option<PerSecond>> {
        let of = |at: usize| {
            let (requests, _) = self.requests(at, backends).filter(|_| length > Seconds::ZERO)?;
            Some(PerSecond::new(requests as f64 / length.get()))
        };
        (0..self.parts.servers.len()).map(of).collect()
    }

    /// Whether what comes to a server is not counted at its accept queue, for nobody listens there.
    fn is_uncounted(&self, at: usize) -> bool {
        self.unheard[at].is_uncounted(self.before[at] == PerSecond::ZERO)
    }

    fn uncounted(&self) -> Vec<bool> {
        (0..self.unheard.len()).map(|at| self.is_uncounted(at)).collect()
    }

    /// What each accept queue says of the demand.
    fn counts(
        &mut self,
        shown: &[Option<Shown>],
        look: &Result<Look, String>,
        backends: &[BackendTick],
    ) -> Vec<Counts> {
        let of_balancer: Vec<(Option<u64>, Option<f64>)> = (0..shown.len())
            .map(|at| self.checks_of_balancer(at, look, backends))
            .collect();
        let each = shown.iter().enumerate().map(|(at, shown)| match shown {
            Some(Shown::Counted(counted)) => {
                let mut first = self.first[at].observe(counted.length_s, counted.arrivals, counted.drops);
                let mut arrivals = counted.arrival_rate();
                if counted.length_s > 0.0 {
                    let mut others = first;
                    if self.parts.servers[at].is_checked_there {
                        others = self.own_checks[at].leave(others, self.parts.checks.begun(at));
                    }
                    let (made, sent) = of_balancer[at];
                    let checks = &mut self.balancer_checks[at];
                    others = checks.leave(others, counted.length_s, made, sent);
                    checks.count(first - others, counted.length_s);
                    arrivals = (arrivals - (first - others) / counted.length_s).max(0.0);
                    first = others;
                }
                let (first, length_s) = self.over_a_period(at, first, counted.length_s);
                let queue = self.parts.servers[at].queue.as_ref();
                self.before[at] = match queue.is_some_and(|queue| queue.kind() == QueueKind::BusyTime) {
                    true if length_s > 0.0 => PerSecond::new(first / length_s),
                    _ => PerSecond::new(arrivals),
                };
                Counts::Attempts(self.before[at])
            }
            Some(Shown::Nobody) => {
                self.first[at].forget();
                // What comes to one that serves elsewhere is not counted here.
                match self.is_uncounted(at) {
                    true => Counts::Unknown,
                    false => Counts::Nobody(self.before[at]),
                }
            }
            Some(Shown::Unknown(_)) | None => {
                self.first[at].forget();
                Counts::Unknown
            }
        });
        each.collect()
    }

    /// How many checks the balancer itself made of a server in the period; where an HAProxy that checks it does not say so what it sent there.
    fn checks_of_balancer(
        &self,
        at: usize,
        look: &Result<Look, String>,
        backends: &[BackendTick],
    ) -> (Option<u64>, Option<f64>) {
        let made = self.of_server(at, backends).filter_map(|tick| tick.checks);
        let is_checked = look.as_ref().is_ok_and(|look| look.members[at].well.is_some());
        let sent = self.at_balancer[at].filter(|_| is_checked);
        (
            made.reduce(|sum, one| sum + one),
            sent.map(|counted| counted.requests as f64),
        )
    }

    /// Takes what each server did, and says which are slow since, or no longer.
    fn observe_work(&mut self, work: &[Option<Work>]) {
        let slow =
            |fleet: &Fleet| -> Vec<bool> { (0..work.len()).map(|at| fleet.slow(at).is_some()).collect() };
        let before = slow(&self.fleet);
        self.fleet.observe(work);
        for (at, (was, is)) in before.into_iter().zip(slow(&self.fleet)).enumerate() {
            let name = &self.parts.servers[at].name;
            match (was, is) {
                (false, true) => say::note!("warning: {name}: {SLOW}"),
                (true, false) => {
                    say::note!("{name}: its requests take no longer than those of its equals any more")
                }
                _ => {}
            }
        }
    }

    /// What came in a step, and how long it was; with the step before where it is much shorter than a period, as behind a sample that came
    /// late: as a rate of so short a time a few connections would be a surge.
    fn over_a_period(&mut self, at: usize, came: f64, length_s: f64) -> (f64, f64) {
        let before = std::mem::replace(&mut self.step_before[at], (came, length_s));
        match length_s < SHORT * self.parts.period.as_secs_f64() {
            true => (came + before.0, length_s + before.1),
            false => (came, length_s),
        }
    }

    fn sample_queues(&mut self) -> Vec<Option<Shown>> {
        let states = self.power_states();
        self.parts
            .servers
            .iter_mut()
            .zip(states)
            .map(|(server, state)| Some(server.queue.as_mut()?.step(state.takes_requests())))
            .collect()
    }

    /// In a dry run nothing that was decided has happened: the servers are found anew.
    fn find_again(&mut self, now: Seconds, look: &Result<Look, String>) {
        let admission = |at: usize| look.as_ref().ok().map(|look| look.members[at].admission);
        let health = self.health.iter().enumerate();
        let found: Vec<Found> = health
            .map(|(at, health)| self.parts.found(at, health, admission(at), None))
            .collect();
        // The same parameters and as many servers as at the start, so it cannot fail where that did not.
        if let Ok(fleet) = Fleet::found(self.parts.tuning, &found, now) {
            self.fleet.find_again(fleet);
        }
    }

    /// What the law is given. A server that was enabled at the balancer and is not given requests yet is on its way.
    fn nodes(&self, look: &Result<Look, String>) -> Vec<NodeObservation> {
        let admission = |at: usize| look.as_ref().ok().map(|look| look.members[at].admission);
        let states = self.fleet.states_for_laws();
        states
            .iter()
            .enumerate()
            .map(|(at, state)| {
                let waits =
                    state.is_capacity() && admission(at).is_some_and(|reported| reported != Admission::Ready);
                // The law is to find others for what it fails.
                let fails = state.is_capacity() && self.failing[at].is_so();
                NodeObservation {
                    state: match *state {
                        _ if fails => PowerState::Failed(Cause::Lost),
                        _ if waits => PowerState::Booting,
                        state => state,
                    },
                    capacity: self.own_capacity(at),
                    answered: self.reused[at].answered(),
                }
            })
            .collect()
    }

    /// The sessions that the balancer has with each server.
    fn sessions(&self, look: &Result<Look, String>) -> Vec<Option<u64>> {
        let of = |at: usize| look.as_ref().ok()?.members.get(at)?.in_flight;
        (0..self.parts.servers.len()).map(of).collect()
    }

    /// What the telemetry counted of a server, at each gateway.
    fn of_server<'a>(&self, at: usize, backends: &'a [BackendTick]) -> impl Iterator<Item = &'a BackendTick> {
        let url = self
            .parts
            .balancer
            .url(at)
            .map(|url| url.trim_end_matches('/').to_owned());
        backends
            .iter()
            .filter(move |backend| url.as_deref() == Some(backend.name.trim_end_matches('/')))
    }

    /// The requests that were counted of a server, and how many of them it failed: by the balancer itself, or by the telemetry at all gateways
    /// together.
    pub(super) fn requests(&self, at: usize, backends: &[BackendTick]) -> Option<(u64, u64)> {
        if let Some(counted) = self.at_balancer[at] {
            return Some((counted.requests, counted.failures));
        }
        self.of_server(at, backends)
            .map(|backend| (backend.requests, backend.failures))
            .reduce(|sum, one| (sum.0 + one.0, sum.1 + one.1))
    }

    /// Requests that were sent to a server, less those whose clients left and those that failed or came to no connection; those whose
    /// clients left, and those whose clients were found to have left when they were answered.
    pub(super) fn sent(&self, at: usize, backends: &[BackendTick]) -> (f64, f64, f64) {
        if let Some(counted) = self.at_balancer[at] {
            return (counted.requests as f64 - counted.failures as f64, 0.0, 0.0);
        }
        let of_one = |tick: &BackendTick| {
            let (left, gone) = (tick.left_by_clients, tick.answered_to_nobody);
            (tick.kept(), left.unwrap_or(0) as f64, gone.unwrap_or(0) as f64)
        };
        let each = self.of_server(at, backends).map(of_one);
        each.fold((0.0, 0.0, 0.0), |sum, one| {
            (sum.0 + one.0, sum.1 + one.1, sum.2 + one.2)
        })
    }

    /// Of the requests that a server failed those that it answered.
    pub(super) fn failed_answers(&self, at: usize, backends: &[BackendTick]) -> f64 {
        match self.at_balancer[at] {
            Some(counted) => counted.answers as f64,
            None => {
                let each = self.of_server(at, backends);
                each.map(|tick| tick.failed_answers.unwrap_or(0) as f64).sum()
            }
        }
    }

    /// What each server did, by the telemetry and the balancer. Nothing is known of one that fails requests: it may do so
    /// faster than others answer, and make them seem slow.
    fn work(&self, look: &Result<Look, String>, backends: &[BackendTick]) -> Vec<Option<Work>> {
        let in_flight = |at: usize| look.as_ref().ok()?.members.get(at)?.in_flight;
        let work = |at: usize| {
            let (requests, failures) = self.requests(at, backends)?;
            // What is being answered for long, as a WebSocket is, is not what requests wait for.
            let answered = self.at_balancer[at].map_or(0, |counted| counted.under_way);
            let in_flight = in_flight(at)?.saturating_sub(answered);
            (failures as f64 <= FEW_FAILURES * requests as f64).then_some(Work { requests, in_flight })
        };
        (0..self.parts.servers.len()).map(work).collect()
    }

    /// A server, for whoever records and shows it; with its requests where its accept queue does not count what arrives.
    fn part(
        &self,
        at: usize,
        seen: &Seen,
        look: &Result<Look, String>,
        now: Seconds,
        requests: Option<PerSecond>,
    ) -> Part {
        let (server, power, health) = (
            &self.parts.servers[at],
            &self.fleet.servers()[at],
            &self.health[at],
        );
        let takes = power.state().takes_requests();
        let capacity = self.capacity(at);
        let rates = seen.counted.filter(|counted| counted.length_s > 0.0);
        let attempts = seen.counted.filter(|counted| counted.arrivals > 0.0);
        let estimated = server
            .queue
            .as_ref()
            .and_then(Queue::estimate)
            .map(|one| &one.reason);
        // Of a server that does not take requests any more its estimator says what it said last.
        let queue_mean = estimated
            .filter(|_| seen.counted.is_some() && takes)
            .and_then(|reason| Some(reason.numbers.iter().find(|(name, _)| name == "queue_mean")?.1));
        let orders = server.switch_worker.outcomes();
        let member = look.as_ref().ok().map(|look| look.members[at]);
        let mut part = Part::new(&server.name, Role::Node)
            .in_state(power.state().words())
            .with(
                Sensor::ArrivalRate,
                self.reused[at]
                    .came()
                    .map(PerSecond::get)
                    .or(rates.map(|counted| counted.arrival_rate()))
                    .or(requests.map(PerSecond::get)),
            )
            .with(Sensor::Capacity, capacity.value().map(PerSecond::get))
            .with(Sensor::QueueMean, queue_mean)
            .with(
                Sensor::DropRatio,
                attempts.map(|counted| counted.drops / counted.arrivals),
            )
            .with(
                Sensor::InFlight,
                member
                    .and_then(|member| member.in_flight)
                    .map(|count| count as f64),
            )
            .fact("in_state_s", (now - power.since()).get().max(0.0))
            .fact(
                "capacity",
                if self.parts.fixed.is_some() {
                    "given"
                } else {
                    capacity.name()
                },
            )
            .fact("answering", health.answering)
            .fact("orders_done", orders.done)
            .fact("orders_failed", orders.failed);
        if let Some(most) = self.most_in_flight[at].filter(|_| takes) {
            part = part.fact("most_in_flight", f64::from(most));
        }
        if let Some(times) = self.fleet.slow(at) {
            part = part.fact("slow_times", times);
        }
        if let Some(counted) = &seen.counted {
            part = part
                .fact("arrivals", counted.arrivals)
                .fact("accepts", counted.accepts)
                .fact("drops", counted.drops);
        }
        if self.cut[at] > 0 {
            part = part.fact("sessions_cut", self.cut[at]);
        }
        if let Some(how) = power.maintenance() {
            part = part
                .fact("maintenance_power_off", how.power_off)
                .fact("maintenance_at_once", how.at_once);
        }
        if let Some((_, rest)) = power.waits(now) {
            part = part.fact("tried_again_in_s", rest.get());
        }
        if let Some(powered) = health.powered {
            part = part.fact("powered", powered);
        }
        if let Some(member) = member {
            part = part.fact("admission", member.admission.name());
        }
        if self.reused[at].is_so() {
            part = part.fact("estimate", reused(self.parts.balancer.no_reuse()));
        } else if let Some(reason) = self.presumption(at).as_ref().or(estimated) {
            part = part.fact("estimate", reason.text.as_str());
        }
        if let Some(order) = self.orders.iter().find(|order| order.server == at) {
            part = part.fact("command", order.command.name());
        }
        // Without the figure, which changes each period: a trouble is told when it changes.
        let slow = self.fleet.slow(at).map(|_| SLOW.to_owned());
        let waits = (power.state() == PowerState::Leaving).then(|| WAITS.to_owned());
        let off = power
            .waits(now)
            .map(|(cause, _)| format!("not started for a while: {}", cause.words()));
        let said = seen.trouble.iter().cloned();
        Part {
            trouble: said.chain(slow).chain(waits).chain(off).collect(),
            ..part
        }
    }

    /// The cluster as a whole.
    fn whole(&self, states: &[PowerState], arrival_rate: Option<PerSecond>) -> Part {
        let taking = (0..states.len()).filter(|at| states[*at].takes_requests());
        let capacities: Vec<Capacity> = taking.map(|at| self.capacity(at)).collect();
        let sum = sum(&capacities);
        let part = Part::new(DevicePeriod::CLUSTER, Role::Cluster)
            .with(Lever::Servers, self.in_force().get(Lever::Servers))
            .with(Sensor::ArrivalRate, arrival_rate.map(PerSecond::get))
            .with(Sensor::Capacity, sum.map(|(per_s, _)| per_s));
        match sum {
            Some(_) if self.parts.fixed.is_some() => part.fact("capacity", CapacityKind::Given.name()),
            Some((_, kind)) => part.fact("capacity", kind.name()),
            None => part,
        }
    }

    /// What the servers drew by the model, where there is one; it counts where no meter of a device says it.
    fn draw(
        &mut self,
        length: Seconds,
        states: &[PowerState],
        seen: &[Seen],
        arrival_rate: Option<PerSecond>,
        period: &mut DevicePeriod,
    ) {
        let taking = states
            .iter()
            .filter(|state| state.takes_requests())
            .count()
            .max(1) as f64;
        let share = arrival_rate.map(|rate| rate.get() / taking);
        let loads: Vec<ServerLoad> = states
            .iter()
            .enumerate()
            .map(|(at, state)| {
                let counted = seen[at].counted.map(|counted| counted.arrival_rate());
                let came = self.reused[at].came().map(PerSecond::get);
                let rate = came.or(counted).or(share);
                let capacity = self
                    .capacity(at)
                    .value()
                    .map(PerSecond::get)
                    .filter(|rate| *rate > 0.0);
                ServerLoad {
                    state: *state,
                    powered: self.health[at].powered,
                    used: rate.zip(capacity).map(|(rate, capacity)| rate / capacity),
                }
            })
            .collect();
        let Some(energy) = &mut self.parts.energy else {
            return;
        };
        let before = energy.sum;
        energy.add(length, &loads);
        let Some((power, always_on)) = energy.sum.power_since(&before, length) else {
            return;
        };
        period.add(Part {
            source: Some(Source::Estimated),
            ..Part::new(DevicePeriod::CLUSTER, Role::Cluster)
                .with(Sensor::Power, Some(power.get()))
                .with(Sensor::PowerAlwaysOn, Some(always_on.get()))
        });
        period.power = Some(Estimated(power).into());
        period.energy = Some(Estimated(power * length).into());
        "the model of [energy]".clone_into(&mut period.zone);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sum_is_as_sure_as_the_least_sure_in_it() {
        use Capacity::{About, Exact, LowerBound, Presumed, Unknown};
        let (ten, five) = (PerSecond::new(10.0), PerSecond::new(5.0));
        for (capacities, wanted) in [
            (vec![], None),
            (vec![Unknown], None),
            (vec![Exact(ten), Exact(five)], Some((15.0, CapacityKind::Exact))),
            (vec![About(ten), Exact(five)], Some((15.0, CapacityKind::About))),
            (
                vec![About(ten), Presumed(five)],
                Some((15.0, CapacityKind::Presumed)),
            ),
            (
                vec![LowerBound(ten), Presumed(five)],
                Some((15.0, CapacityKind::AtLeast)),
            ),
            (vec![Exact(ten), Unknown], Some((10.0, CapacityKind::AtLeast))),
        ] {
            assert_eq!(sum(&capacities), wanted, "{capacities:?}");
        }
    }
}
