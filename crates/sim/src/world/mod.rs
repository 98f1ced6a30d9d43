//! The world at work: events in the order of their times, one law, one seed.

mod change;
mod control;
mod fleet;
mod reflex;

use crate::balancer::Balancer;
use crate::error::RunError;
use crate::heap::Winners;
use crate::histogram::LatencyHistogram;
use crate::node::Node;
use crate::requests::Requests;
use crate::scenario::Scenario;
use crate::server::Job;
use crate::totals::{End, Sums, Totals};
use change::{Agenda, Change};
pub use control::{Bare, Controller, Outcome};
use control::{Pending, Period};
use headroom_control::resize::Fleet;
use headroom_control::{Plant, Slo, Spread};
use headroom_units::{Cores, Seconds};
use headroom_workload::random::{Purpose, Rng};
use reflex::Armed;
use std::collections::VecDeque;

/// How far two ways of keeping one account may differ, relative to the account: roundings of some 1e9 events.
const TOLERANCE: f64 = 1e-6;

/// Runs a scenario under a law; what the run comes to. `sink` is given each period; the world keeps none of them, so its
/// memory does not grow with the length of the run.
///
/// The same scenario, law and seed give the same run, to the bit, on machines whose mathematics library is the same.
///
/// # Errors
/// [`RunError::Scenario`] and [`RunError::Plant`] where the scenario is no world, [`RunError::TooManyEvents`] and
/// [`RunError::TooManyInFlight`] where the run would not end, [`RunError::Account`] where Little's law, the conservation
/// of work or that of energy does not hold in the run, which would be an error of the simulator.
pub fn run(
    scenario: &Scenario,
    law: &mut dyn Controller,
    seed: u64,
    sink: &mut dyn FnMut(&Outcome<'_>),
) -> Result<Totals, RunError> {
    World::new(scenario, seed)?.run(law, sink)
}

/// Runs jobs on so many threads; their results in the order of the jobs, whatever order they end in.
///
/// Each job is given to `work` with its index. A thread takes the next job when it has finished one.
pub fn run_many<J: Sync, R: Send>(
    jobs: &[J],
    threads: usize,
    work: impl Fn(usize, &J) -> R + Sync,
) -> Vec<R> {
    use std::sync::atomic::{AtomicUsize, Ordering};
    let next = AtomicUsize::new(0);
    let threads = threads.clamp(1, jobs.len().max(1));
    let mut done: Vec<(usize, R)> = std::thread::scope(|scope| {
        let take_turns = || {
            let mut mine = Vec::new();
            loop {
                let index = next.fetch_add(1, Ordering::Relaxed);
                let Some(job) = jobs.get(index) else {
                    return mine;
                };
                mine.push((index, work(index, job)));
            }
        };
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(take_turns)).collect();
        let finished = workers.into_iter().map(|worker| worker.join());
        let mut all = Vec::new();
        for result in finished {
            match result {
                Ok(mine) => all.extend(mine),
                // A panic is the job's own: it goes on in the caller as it would have on one thread.
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        all
    });
    done.sort_by_key(|(index, _)| *index);
    done.into_iter().map(|(_, result)| result).collect()
}

struct World<'a> {
    scenario: &'a Scenario,
    slo: Slo,
    plant: Plant,
    spread: Spread,
    fleet: Option<Fleet>,
    now_s: f64,
    periods: u64,
    nodes: Vec<Node>,
    completions: Winners,
    balancer: Balancer,
    requests: Requests,
    next_arrival_s: f64,
    agenda: Agenda,
    noise: Rng,
    period: Period,
    pending: VecDeque<Pending>,
    spare: Vec<LatencyHistogram>,
    sums: Sums,
    accounts: Accounts,
    armed: Armed,
}

/// What Little's law and the conservation of work are checked with.
#[derive(Clone, Copy, Debug, Default)]
struct Accounts {
    events: u64,
    in_flight: u64,
    /// Requests that a node took.
    taken: u64,
    /// Sizes of all of them.
    taken_s: f64,
    /// Times in the system of those that failed there.
    failed_sojourn_s: f64,
    /// Work that was left to do for them.
    failed_remaining_s: f64,
}

impl<'a> World<'a> {
    fn new(scenario: &'a Scenario, seed: u64) -> Result<Self, RunError> {
        scenario.check()?;
        let plant = scenario.plant()?;
        let nodes: Vec<Node> = scenario
            .each_node()
            .map(|group| Node::new(group, scenario.service.frequency_insensitive_share))
            .collect();
        let mut requests = Requests::new(
            &scenario.arrivals,
            &scenario.service.size,
            scenario.mean_service().get(),
            seed,
        );
        let mut agenda = Agenda::default();
        // Of what happens at once the first that was added comes first: a fault that ends when another begins on the same
        // node must not take that one away, in whatever order the two are listed.
        for (index, fault) in scenario.faults.iter().enumerate() {
            if let (_, Some(until_s)) = fault.times_s() {
                agenda.add(until_s, Change::FaultEnds(index));
            }
        }
        for (index, fault) in scenario.faults.iter().enumerate() {
            agenda.add(fault.times_s().0, Change::FaultBegins(index));
        }
        agenda.add(scenario.service.period_s, Change::PeriodEnds);
        Ok(Self {
            slo: scenario.slo()?,
            plant,
            fleet: fleet::of(scenario)?,
            spread: Spread::new(Cores::new(scenario.core_step))?,
            now_s: 0.0,
            periods: scenario.periods(),
            completions: Winners::new(nodes.len()),
            balancer: Balancer::new(scenario.balancer.rule.clone(), nodes.len()),
            next_arrival_s: requests.next_s(),
            requests,
            agenda,
            noise: Rng::new(seed, Purpose::Telemetry),
            period: Period::default(),
            pending: VecDeque::new(),
            spare: Vec::new(),
            sums: Sums::default(),
            accounts: Accounts::default(),
            armed: Armed::default(),
            nodes,
            scenario,
        })
    }

    fn run(
        mut self,
        law: &mut dyn Controller,
        sink: &mut dyn FnMut(&Outcome<'_>),
    ) -> Result<Totals, RunError> {
        while self.sums.periods + (self.pending.len() as u64) < self.periods {
            if self.accounts.events >= self.scenario.limits.events {
                return Err(RunError::TooManyEvents {
                    limit: self.scenario.limits.events,
                    at_s: self.now_s,
                    length_s: self.scenario.duration().get(),
                });
            }
            self.accounts.events += 1;
            let (node, done_s) = self.completions.first();
            let change_s = self.agenda.next_s();
            // At the same time: what is done is done before the period ends, and what comes belongs to the next.
            if done_s <= change_s && done_s <= self.next_arrival_s {
                self.now_s = done_s;
                self.complete(node);
            } else if change_s <= self.next_arrival_s {
                self.now_s = change_s;
                self.change(law, sink);
            } else {
                self.now_s = self.next_arrival_s;
                self.arrive()?;
            }
        }
        while !self.pending.is_empty() {
            self.decide(law, sink);
        }
        self.finish()
    }

    #[inline]
    fn complete(&mut self, node: usize) {
        let Some((job, next_s)) = self.nodes[node].complete(self.now_s) else {
            return;
        };
        self.completions.set(node, next_s);
        self.accounts.in_flight -= 1;
        self.period.completions += 1;
        self.period
            .latencies
            .record(Seconds::new(self.now_s - job.arrived));
        self.answered(job.user);
        if next_s == f64::INFINITY {
            self.drained(node);
        }
    }

    #[inline]
    fn arrive(&mut self) -> Result<(), RunError> {
        let (size_s, user) = self.requests.take();
        self.next_arrival_s = self.requests.next_s();
        self.period.arrivals += 1;
        let nodes = &self.nodes;
        let chosen = self.balancer.choose(size_s, |node| nodes[node].server.jobs());
        let Some(node) = chosen.filter(|node| nodes[*node].state.serves()) else {
            // Nobody to send it to, or a node that is gone and still listed: refused at once.
            self.period.failures += 1;
            self.answered(user);
            return Ok(());
        };
        let job = Job {
            arrived: self.now_s,
            user,
        };
        let (next_s, size_s) = self.nodes[node].arrive(self.now_s, size_s, job);
        self.completions.set(node, next_s);
        let accounts = &mut self.accounts;
        accounts.in_flight += 1;
        accounts.taken += 1;
        accounts.taken_s += size_s;
        if accounts.in_flight > self.scenario.limits.in_flight {
            return Err(RunError::TooManyInFlight {
                limit: self.scenario.limits.in_flight,
                at_s: self.now_s,
                cores: self.nodes.iter().map(|node| node.server.cores()).sum(),
            });
        }
        self.check_in_flight();
        Ok(())
    }

    #[inline]
    fn answered(&mut self, user: u32) {
        if self.requests.answered(self.now_s, user) {
            self.next_arrival_s = self.requests.next_s();
        }
    }

    /// Checks the accounts, and adds up.
    fn finish(mut self) -> Result<Totals, RunError> {
        let equal = |what: &'static str, left: f64, right: f64| {
            if (left - right).abs() <= TOLERANCE * left.abs().max(right.abs()).max(1.0) {
                Ok(())
            } else {
                Err(RunError::Account { what, left, right })
            }
        };
        for node in &mut self.nodes {
            node.settle(self.now_s);
        }
        let sum = |of: fn(&Node) -> f64| -> f64 { self.nodes.iter().map(of).sum() };
        let accounts = &self.accounts;
        // Little's law without its limit: ∫ L dt is the sum of all times in the system, so L = λ W exactly.
        let job_s = sum(|node| node.server.job_s());
        let ages_s: f64 = self
            .nodes
            .iter()
            .flat_map(|node| node.server.each_job())
            .map(|job| self.now_s - job.arrived)
            .sum();
        let sojourn_s = self.sums.latencies.sum_s() + ages_s + accounts.failed_sojourn_s;
        equal(
            "requests in the system (Little's law, request-seconds)",
            job_s,
            sojourn_s,
        )?;
        let remaining_s = sum(|node| node.server.remaining_s()) + accounts.failed_remaining_s;
        let done_s = sum(|node| node.server.work_s());
        equal("work done (core-seconds)", done_s, accounts.taken_s - remaining_s)?;
        let energies: Vec<(f64, f64)> = self.nodes.iter().map(Node::energy_both_ways_j).collect();
        let metered: f64 = energies.iter().map(|both| both.0).sum();
        let states: f64 = energies.iter().map(|both| both.1).sum();
        equal("energy (joules)", metered, states)?;
        equal(
            "energy (joules, by periods)",
            self.sums.energy.total().get(),
            metered,
        )?;
        let end = End {
            slo_percentile: self.slo.percentile(),
            slo_target: self.slo.target(),
            events: accounts.events,
            in_flight: accounts.in_flight,
            job_s,
            taken: accounts.taken,
        };
        // The decision on the last period may have switched off a server that still had requests.
        self.sums.failed += self.period.failures;
        let requests = self.sums.completed + self.sums.failed + end.in_flight;
        equal("requests", self.sums.offered as f64, requests as f64)?;
        Ok(self.sums.totals(&end))
    }
}
