//! The cluster at work.

use super::scenario::{AcceptFault, AcceptScenario};
use super::server::{AcceptServer, Counted, Request};
use crate::error::RunError;
use crate::heap::{Heap, Winners};
use crate::histogram::LatencyHistogram;
use crate::requests::Requests;
use crate::server::Job;
use crate::world::Controller;
use headroom_control::capacity::{Busy, Capacity, Monitor, QueueKind, Step};
use headroom_control::resize::{
    BALANCER_LOST, Command, Counts, Energy, EnergyTotals, FirstAttempts, Fleet, Health, PowerState, Resize,
    ServerLoad, demand, exact_mean, hold,
};
use headroom_control::{Decision, NodeObservation, Observation, Traffic};
use headroom_units::{Joules, PerSecond, Ratio, Seconds};
use headroom_workload::Distribution;
use headroom_workload::random::Rng;

/// What one server did in a sampling step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ServerStep {
    /// Its power state at the end.
    pub state: PowerState,
    /// Its accept queue.
    pub queue: Step,
    /// Busy share of its CPUs.
    pub utilisation: Ratio,
    /// Its capacity as queue monitoring estimates it, where it takes requests.
    pub capacity: Capacity,
    /// What it drew.
    pub energy: Joules,
}

/// What the cluster did in a sampling step.
#[derive(Clone, Debug, PartialEq)]
pub struct AcceptStep<'a> {
    /// Simulated time at its end.
    pub at: Seconds,
    /// Attempts at the whole cluster.
    pub arrival_rate: PerSecond,
    /// Each server.
    pub servers: &'a [ServerStep],
    /// What was decided at its end.
    pub decision: &'a Decision,
}

/// What a run comes to.
#[derive(Clone, Debug)]
pub struct AcceptTotals {
    /// Sampling steps.
    pub steps: u64,
    /// Requests that came, each however often it was tried.
    pub requests: u64,
    /// Those that were answered.
    pub completed: u64,
    /// Those whose clients gave up.
    pub abandoned: u64,
    /// Those that were lost with the power of their server.
    pub lost: u64,
    /// Those that are still on their way at the end.
    pub in_flight: u64,
    /// Attempts.
    pub attempts: u64,
    /// Attempts that were dropped.
    pub drops: u64,
    /// Energy of all servers, as simulated.
    pub energy: Joules,
    /// The same by the model of the live loop, from the servers' states, arrival rates and capacities as it knows them.
    pub modelled: EnergyTotals,
    /// Server-seconds in which requests were taken.
    pub serving_server_s: f64,
    /// From the first attempt to the answer.
    pub latency: LatencyHistogram,
}

/// The hardware of a server: what its commands do to it.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Machine {
    Off,
    Booting {
        ready_s: f64,
    },
    On,
    /// Powered, and dead until it was switched off.
    Crashed,
    ShuttingDown {
        off_s: f64,
    },
}

/// Runs a cluster under a law of its size; `sink` is given each sampling step.
///
/// Each server that takes requests has a [`Monitor`] of the scenario's kind; the published one of a server that joins others starts with what they know. The same
/// scenario, law and seed give the same run.
///
/// # Errors
/// [`RunError::Scenario`] where the scenario is no world, [`RunError::TooManyEvents`] and [`RunError::TooManyInFlight`]
/// where the run would not end, [`RunError::Account`] where requests or attempts do not add up, which would be an error of
/// the simulator.
pub fn run(
    scenario: &AcceptScenario,
    law: &mut dyn Controller,
    seed: u64,
    sink: &mut dyn FnMut(&AcceptStep<'_>),
) -> Result<AcceptTotals, RunError> {
    scenario.check()?;
    World::new(scenario, seed)?.run(law, sink)
}

/// An attempt to come.
#[derive(Clone, Copy, Debug)]
struct Retry {
    request: Request,
    /// How often it was dropped.
    dropped: usize,
    server: usize,
}

struct World<'a> {
    scenario: &'a AcceptScenario,
    requests: Requests,
    next_arrival_s: f64,
    wait: Distribution,
    waits: Rng,
    retries: Heap<Retry>,
    servers: Vec<AcceptServer>,
    due: Winners,
    machines: Vec<Machine>,
    enabled: Vec<bool>,
    monitors: Vec<Option<Monitor>>,
    /// Who comes there for the first time.
    first: Vec<FirstAttempts>,
    /// The demand at each while it was counted last.
    before: Vec<PerSecond>,
    /// What they said last.
    capacities: Vec<Capacity>,
    fleet: Fleet,
    energy: Energy,
    turn: usize,
    /// Servers that were powered on.
    boots: u64,
    /// Requests and answers up to the last sample.
    counted: (u64, u64),
    /// Attempts since the last sample, those included that found no server.
    attempts: u64,
    totals: AcceptTotals,
}

impl<'a> World<'a> {
    fn new(scenario: &'a AcceptScenario, seed: u64) -> Result<Self, RunError> {
        let count = scenario.servers;
        let serving: Vec<bool> = (0..count).map(|at| at < scenario.serving).collect();
        let bad = |error: headroom_control::OutOfRange| crate::ScenarioError::new("queue", error.to_string());
        let fleet = Fleet::new(scenario.power_states, &serving, Seconds::ZERO).map_err(bad)?;
        let monitor = |on: &bool| on.then(|| Monitor::new(scenario.queue)).transpose().map_err(bad);
        let server = AcceptServer::new(
            scenario.backlog as usize,
            scenario.workers as usize,
            scenario.cores,
        );
        let mut requests = Requests::new(&scenario.arrivals, &scenario.cpu, scenario.cpu_s, seed);
        Ok(Self {
            scenario,
            next_arrival_s: requests.next_s(),
            requests,
            wait: scenario.wait.scaled(scenario.wait_s),
            // A stream that no user of closed-loop sessions has: there are never so many.
            waits: Rng::of_user(seed, u32::MAX),
            retries: Heap::new(),
            servers: vec![server; count],
            due: Winners::new(count),
            machines: serving
                .iter()
                .map(|on| if *on { Machine::On } else { Machine::Off })
                .collect(),
            monitors: serving.iter().map(monitor).collect::<Result<_, _>>()?,
            enabled: serving,
            first: vec![FirstAttempts::default(); count],
            before: vec![PerSecond::ZERO; count],
            capacities: vec![Capacity::Unknown; count],
            fleet,
            energy: Energy::new(scenario.power),
            turn: 0,
            boots: 0,
            counted: (0, 0),
            attempts: 0,
            totals: AcceptTotals {
                steps: 0,
                requests: 0,
                completed: 0,
                abandoned: 0,
                lost: 0,
                in_flight: 0,
                attempts: 0,
                drops: 0,
                energy: Joules::ZERO,
                modelled: EnergyTotals::default(),
                serving_server_s: 0.0,
                latency: LatencyHistogram::new(),
            },
        })
    }

    fn run(
        mut self,
        law: &mut dyn Controller,
        sink: &mut dyn FnMut(&AcceptStep<'_>),
    ) -> Result<AcceptTotals, RunError> {
        let (limits, length_s) = (self.scenario.limits, self.scenario.duration_s);
        let mut sample_s = self.scenario.step_s;
        let mut events = 0;
        while sample_s <= length_s * (1.0 + 1e-12) {
            let (server, server_s) = self.due.first();
            let retry_s = self.retries.first_key().unwrap_or(f64::INFINITY);
            let now_s = self.next_arrival_s.min(server_s).min(retry_s).min(sample_s);
            events += 1;
            if events > limits.events {
                return Err(RunError::TooManyEvents {
                    limit: limits.events,
                    at_s: now_s,
                    length_s,
                });
            }
            // Of what happens at once, the end of requests comes first: it makes room.
            if server_s <= now_s {
                self.serve(now_s, server);
            } else if retry_s <= now_s {
                if let Some((_, retry)) = self.retries.pop() {
                    let again = Some(retry.server).filter(|at| self.enabled[*at]);
                    self.attempt(now_s, retry.request, retry.dropped, again);
                }
            } else if self.next_arrival_s <= now_s {
                let (cpu_s, user) = self.requests.take();
                self.totals.requests += 1;
                let job = Job { arrived: now_s, user };
                self.next_arrival_s = self.requests.next_s();
                self.attempt(now_s, Request { job, cpu_s }, 0, None);
                if self.retries.len() as u64 > limits.in_flight {
                    return Err(RunError::TooManyInFlight {
                        limit: limits.in_flight,
                        at_s: now_s,
                        cores: self.scenario.cores * self.scenario.servers as f64,
                    });
                }
            } else {
                self.sample(now_s, law, sink);
                sample_s = (self.totals.steps + 1) as f64 * self.scenario.step_s;
            }
        }
        self.close()
    }

    fn serve(&mut self, now_s: f64, at: usize) {
        let wait = &self.wait;
        let has_wait = self.scenario.wait_s > 0.0;
        let wait_s = |rng: &mut Rng| if has_wait { wait.sample(rng) } else { 0.0 };
        let done = self.servers[at].happen(now_s, wait_s, &mut self.waits);
        self.due.set(at, self.servers[at].due_s());
        if let Some(job) = done {
            self.totals.completed += 1;
            self.totals.latency.record(Seconds::new(now_s - job.arrived));
            self.answered(now_s, job);
        }
    }

    fn answered(&mut self, now_s: f64, job: Job) {
        if self.requests.answered(now_s, job.user) {
            self.next_arrival_s = self.requests.next_s();
        }
    }

    /// An attempt, at this server or at the next in turn.
    fn attempt(&mut self, now_s: f64, request: Request, dropped: usize, server: Option<usize>) {
        self.attempts += 1;
        let server = server.or_else(|| self.next_in_turn());
        if let Some(at) = server
            && self.machines[at] != Machine::Crashed
            && self.servers[at].offer(now_s, request)
        {
            self.due.set(at, self.servers[at].due_s());
            return;
        }
        self.totals.drops += 1;
        // The balancer goes on to the next where one is dead.
        let server = server.filter(|at| self.machines[*at] != Machine::Crashed);
        match self.scenario.retries.waits_s().get(dropped) {
            Some(wait_s) => {
                let retry = Retry {
                    request,
                    dropped: dropped + 1,
                    // With no server on there is none to come back to: the first is as good as any.
                    server: server.unwrap_or(0),
                };
                self.retries.push(now_s + wait_s, retry);
            }
            None => {
                self.totals.abandoned += 1;
                self.answered(now_s, request.job);
            }
        }
    }

    fn next_in_turn(&mut self) -> Option<usize> {
        let count = self.servers.len();
        let at = (0..count)
            .map(|step| (self.turn + step) % count)
            .find(|at| self.enabled[*at] && self.machines[*at] != Machine::Crashed)
            .or_else(|| (0..count).find(|at| self.enabled[*at]))?;
        self.turn = at + 1;
        Some(at)
    }

    /// The end of a sampling step: what was seen, what is decided, what is done.
    fn sample(&mut self, now_s: f64, law: &mut dyn Controller, sink: &mut dyn FnMut(&AcceptStep<'_>)) {
        let step_s = self.scenario.step_s;
        self.crash(now_s);
        self.take_out(now_s);
        self.totals.steps += 1;
        let attempts = std::mem::take(&mut self.attempts);
        self.totals.attempts += attempts;
        let steps: Vec<ServerStep> = (0..self.servers.len())
            .map(|at| self.sample_server(now_s, at))
            .collect();
        let health: Vec<Health> = (0..self.servers.len()).map(|at| self.health(now_s, at)).collect();
        let states = self.fleet.states_for_laws();
        let nodes: Vec<NodeObservation> = steps
            .iter()
            .zip(&states)
            .map(|(one, state)| NodeObservation {
                state: *state,
                capacity: one.capacity,
                answered: None,
            })
            .collect();
        let counts: Vec<(PowerState, Counts)> = steps
            .iter()
            .enumerate()
            .map(|(at, one)| (one.state, self.count(now_s, at, &one.queue)))
            .collect();
        let now = Seconds::new(now_s);
        // Its balancer passes connections and counts none.
        let demand = demand(counts, None);
        let observation = Observation {
            period: self.totals.steps - 1,
            at: now,
            clock: now,
            length: Seconds::new(step_s),
            traffic: demand.map(|_| self.traffic()),
            demand,
            in_force: self.fleet.in_force(),
            nodes,
            ..Observation::default()
        };
        let loads: Vec<ServerLoad> = steps
            .iter()
            .zip(&health)
            .map(|(one, health)| {
                let capacity = one.capacity.value().filter(|capacity| capacity.get() > 0.0);
                ServerLoad {
                    state: one.state,
                    powered: health.powered,
                    used: capacity.map(|capacity| one.queue.arrival_rate() / capacity),
                }
            })
            .collect();
        self.energy.add(observation.length, &loads);
        let mut decision = law.decide(&observation);
        let is_lost = |fault: &AcceptFault| matches!(fault, AcceptFault::BalancerLost { .. });
        let balancer_lost = self.faults_at(now_s).any(is_lost);
        self.fleet.lose_balancer(balancer_lost);
        if balancer_lost {
            let decided = Resize::of(&decision, self.servers.len());
            decision = hold(
                BALANCER_LOST,
                decided,
                "the balancer cannot be asked",
                &states,
                &health,
            )
            .into();
        }
        let servers = decision.setting.servers().unwrap_or(self.servers.len());
        let sessions: Vec<Option<u64>> = health.iter().map(|health| health.connections).collect();
        self.fleet.bind(&sessions);
        self.fleet.rank(&decision.server_ranks);
        self.fleet.let_go(&decision.leave);
        for order in self.fleet.steer(now, servers, &health) {
            self.carry_out(now_s, order.server, order.command, &observation.nodes);
        }
        sink(&AcceptStep {
            at: now,
            arrival_rate: PerSecond::new(attempts as f64 / step_s),
            servers: &steps,
            decision: &decision,
        });
    }

    /// What a balancer's own counters show.
    fn traffic(&mut self) -> Traffic {
        let now = (self.totals.requests, self.totals.completed);
        let before = std::mem::replace(&mut self.counted, now);
        Traffic {
            arrivals: now.0 - before.0,
            completions: now.1 - before.1,
            in_flight: Some(self.servers.iter().map(|server| server.requests() as u64).sum()),
            ..Traffic::default()
        }
    }

    /// What a server's accept queue says of the demand: ours tells who comes again, the published estimate counts attempts.
    fn count(&mut self, now_s: f64, at: usize, queue: &Step) -> Counts {
        let length_s = queue.length.get();
        let first = self.first[at].observe(length_s, queue.arrivals, queue.drops) / length_s;
        if !self.is_read(now_s, at) {
            return Counts::Unknown;
        }
        if self.machines[at] == Machine::Crashed {
            return Counts::Nobody(self.before[at]);
        }
        self.before[at] = match self.scenario.queue.kind {
            QueueKind::Published => queue.arrival_rate(),
            QueueKind::BusyTime => PerSecond::new(first),
        };
        Counts::Attempts(self.before[at])
    }

    fn faults_at(&self, now_s: f64) -> impl Iterator<Item = &AcceptFault> {
        self.scenario
            .faults
            .iter()
            .filter(move |fault| fault.is_at(now_s))
    }

    fn take_out(&mut self, now_s: f64) {
        let mut maintenance = vec![None; self.servers.len()];
        for fault in self.faults_at(now_s) {
            if let AcceptFault::TakenOut { server, how, .. } = *fault
                && let Some(of_server) = maintenance.get_mut(server)
            {
                *of_server = Some(how);
            }
        }
        self.fleet.take_out(&maintenance);
    }

    /// Whether a server's accept queue can be read.
    fn is_read(&self, now_s: f64, at: usize) -> bool {
        let of_it =
            |fault: &AcceptFault| matches!(fault, AcceptFault::QueueUnread { server, .. } if *server == at);
        !self.faults_at(now_s).any(of_it)
    }

    fn sample_server(&mut self, now_s: f64, at: usize) -> ServerStep {
        let step_s = self.scenario.step_s;
        let server = &mut self.servers[at];
        let Counted {
            arrivals,
            accepts,
            drops,
            lengths_seen,
            waited,
            waiting_s,
        } = server.read_counted(now_s);
        let queue = Step {
            length: Seconds::new(step_s),
            limit: f64::from(self.scenario.backlog),
            queue_mean: (arrivals > 0).then(|| lengths_seen as f64 / arrivals as f64),
            arrivals: arrivals as f64,
            accepts: accepts as f64,
            drops: drops as f64,
            unasked: None,
            busy: Some(Busy {
                time: Seconds::new(waiting_s.min(step_s)),
                accepts: waited as f64,
                // Whole spells with their ends are no biased choice (Wald's identity).
                spells: 0.0,
            }),
        };
        let utilisation = (server.read_busy_s(now_s) / (self.scenario.cores * step_s)).min(1.0);
        let power = &self.scenario.power;
        let watts = match self.machines[at] {
            Machine::Off => power.off_w,
            Machine::Booting { .. } => power.booting_w,
            Machine::On => power.on_w(utilisation),
            Machine::Crashed => power.idle_w,
            Machine::ShuttingDown { .. } => power.shutting_down_w,
        };
        let energy = Joules::new(watts * step_s);
        self.totals.energy += energy;
        if self.enabled[at] {
            self.totals.serving_server_s += step_s;
        }
        let is_read = self.is_read(now_s, at);
        self.capacities[at] = match &mut self.monitors[at] {
            Some(monitor) if is_read => monitor.step(&queue).capacity,
            Some(_) => self.capacities[at],
            None => Capacity::Unknown,
        };
        ServerStep {
            state: self.fleet.servers()[at].state(),
            queue,
            utilisation: Ratio::new(utilisation),
            capacity: self.capacities[at],
            energy,
        }
    }

    /// What a machine has become by now, and what can be seen of it.
    fn health(&mut self, now_s: f64, at: usize) -> Health {
        // A sampling step's end that is a rounding before a boot's is the same moment.
        let reached = |time_s: f64| now_s >= time_s - 1e-9;
        match self.machines[at] {
            Machine::Booting { ready_s } if reached(ready_s) => self.machines[at] = Machine::On,
            Machine::ShuttingDown { off_s } if reached(off_s) => self.machines[at] = Machine::Off,
            _ => {}
        }
        Health {
            answering: self.machines[at] == Machine::On,
            powered: Some(self.machines[at] != Machine::Off),
            connections: Some(self.servers[at].requests() as u64),
            command_failed: false,
            in_doubt: false,
            failing: false,
        }
    }

    fn carry_out(&mut self, now_s: f64, at: usize, command: Command, nodes: &[NodeObservation]) {
        match command {
            Command::PowerOn => {
                self.boots += 1;
                let hangs = |fault: &AcceptFault| match fault {
                    AcceptFault::BootsHang { every, .. } => self.boots.is_multiple_of(u64::from(*every)),
                    _ => false,
                };
                let ready_s = match self.faults_at(now_s).any(hangs) {
                    true => f64::INFINITY,
                    false => now_s + self.scenario.boot_s,
                };
                self.machines[at] = Machine::Booting { ready_s };
            }
            Command::PowerOff => {
                self.machines[at] = Machine::ShuttingDown {
                    off_s: now_s + self.scenario.shutdown_s,
                };
                self.monitors[at] = None;
                self.lose(now_s, at);
            }
            Command::Enable => {
                self.enabled[at] = true;
                if self.monitors[at].is_none() {
                    self.monitors[at] = self.newcomer(nodes);
                }
            }
            Command::Disable => self.enabled[at] = false,
        }
    }

    /// What a server holds is lost.
    fn lose(&mut self, now_s: f64, at: usize) {
        let lost = self.servers[at].lose(now_s);
        self.due.set(at, f64::INFINITY);
        self.totals.lost += lost.len() as u64;
        for job in lost {
            self.answered(now_s, job);
        }
    }

    /// Servers die.
    fn crash(&mut self, now_s: f64) {
        let lost = |at: usize| {
            let of_it = |fault: &AcceptFault| matches!(fault, AcceptFault::ServersLost { first, count, .. } if (*first..first + count).contains(&at));
            self.faults_at(now_s).any(of_it)
        };
        let dead: Vec<usize> = (0..self.servers.len())
            .filter(|at| self.machines[*at] == Machine::On && lost(*at))
            .collect();
        for at in dead {
            self.machines[at] = Machine::Crashed;
            self.lose(now_s, at);
        }
    }

    /// The estimator of a server that joins: the published one starts with the mean of what the others know exactly.
    fn newcomer(&self, nodes: &[NodeObservation]) -> Option<Monitor> {
        Monitor::joining(self.scenario.queue, exact_mean(nodes)).ok()
    }

    /// What came must have gone somewhere.
    fn close(mut self) -> Result<AcceptTotals, RunError> {
        self.totals.attempts += self.attempts;
        let held: usize = self.servers.iter().map(AcceptServer::requests).sum();
        self.totals.in_flight = (held + self.retries.len()) as u64;
        let totals = AcceptTotals {
            modelled: self.energy.sum,
            ..self.totals
        };
        let gone = totals.completed + totals.abandoned + totals.lost + totals.in_flight;
        // Every drop leads to another attempt, a client that gives up, or one that is still waiting.
        let tried = totals.requests + totals.drops - totals.abandoned - self.retries.len() as u64;
        for (what, left, right) in [
            ("requests", totals.requests, gone),
            ("attempts", totals.attempts, tried),
        ] {
            if left != right {
                let (left, right) = (left as f64, right as f64);
                return Err(RunError::Account { what, left, right });
            }
        }
        Ok(totals)
    }
}
