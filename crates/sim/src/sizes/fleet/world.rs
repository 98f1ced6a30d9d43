//! The fleet at work.

use super::super::machine::{Busy, Served, SizesEnergy, energy, equal};
use super::observe::Counts;
use super::router::{Router, Routing};
use super::scenario::{FleetScenario, Lost};
use super::totals::{FleetStep, FleetTotals, GroupTotals, MachineTotals};
use crate::RunError;
use crate::heap::{Heap, Winners};
use crate::histogram::LatencyHistogram;
use crate::requests::Requests;
use crate::server::Job;
use crate::world::Controller;
use headroom_control::capacity::Capacity;
use headroom_control::placement::BackendObservation;
use headroom_control::resize::{Command, Fleet, Health, PowerState};
use headroom_control::{NodeObservation, Observation};
use headroom_units::{Joules, Lever, PerSecond, Reading, Seconds, Source};
use headroom_workload::Distribution;
use headroom_workload::random::{Draw, Purpose, Rng};

/// Runs a fleet under a law; `sink` is given each period.
///
/// The law decides how many machines are on ([`Lever::Servers`]; without a value all), and, where the routing is
/// [`Routing::ByLaw`], where each class of sizes goes ([`Decision::routes`], while [`Lever::Placement`] is not 0). The same scenario, law
/// and seed give the same run, and the same requests come whatever the law decides.
///
/// # Errors
/// [`RunError::Scenario`] where the scenario is no fleet, [`RunError::TooManyEvents`] and [`RunError::TooManyInFlight`] where the run would
/// not end, [`RunError::Account`] where requests, work or energy do not add up, which would be an error of the simulator.
pub fn run(
    scenario: &FleetScenario,
    law: &mut dyn Controller,
    seed: u64,
    sink: &mut dyn FnMut(&FleetStep<'_>),
) -> Result<FleetTotals, RunError> {
    scenario.check()?;
    World::new(scenario, seed)?.run(law, sink)
}

/// The hardware of a machine: what its commands do to it. What is commanded, and a boot or shutdown that ends, takes effect at the end of a
/// period.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Power {
    Off,
    Booting { ready_s: f64 },
    On,
    ShuttingDown { off_s: f64 },
}

/// A request on its way.
#[derive(Clone, Copy, Debug)]
struct Request {
    group: usize,
    /// Which of all routes.
    route: usize,
    class: usize,
    machine: usize,
    bytes: f64,
    link_s: f64,
}

/// How long a machine was in each state, seconds: off, booting, on, shutting down.
type InState = [f64; 4];

struct World<'a> {
    scenario: &'a FleetScenario,
    groups: Vec<Requests>,
    /// When the next request of each group comes.
    arrivals: Heap<usize>,
    /// The number of each group's first route.
    first_route: Vec<usize>,
    cpu: Distribution,
    draws: Rng,
    machines: Vec<Served>,
    due: Winners,
    power: Vec<Power>,
    takes: Vec<bool>,
    fleet: Fleet,
    router: Router,
    requests: Vec<Request>,
    free: Vec<u32>,
    counts: Counts,
    /// What each machine's resources had been busy at the beginning of the period.
    marks: Vec<Busy>,
    states: Vec<InState>,
    totals: FleetTotals,
}

impl<'a> World<'a> {
    fn new(scenario: &'a FleetScenario, seed: u64) -> Result<Self, RunError> {
        let count = scenario.machines.len();
        let serving = match &scenario.plan {
            Some(plan) => plan.on[0].clone(),
            None => (0..count).map(|at| at < scenario.serving).collect(),
        };
        let names: Vec<&str> = scenario
            .machines
            .iter()
            .map(|one| one.machine.name.as_str())
            .collect();
        let kind = |name: &&str| names.iter().position(|other| other == name).unwrap_or(0);
        let bad =
            |error: headroom_control::OutOfRange| crate::ScenarioError::new("machines", error.to_string());
        let fleet = Fleet::new(scenario.power_states, &serving, Seconds::ZERO)
            .map_err(bad)?
            .of_kinds(names.iter().map(kind).collect());
        let mut first_route = Vec::new();
        let mut routes = 0;
        for group in &scenario.groups {
            first_route.push(routes);
            routes += group.routes as usize;
        }
        // A seed of its own for each group: what comes of one does not depend on the others. Odd multiplier of the golden ratio.
        let seed_of = |at: usize| seed ^ (at as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let mut groups: Vec<Requests> = scenario
            .groups
            .iter()
            .enumerate()
            .map(|(at, group)| Requests::new(&group.arrivals, &group.bytes, group.mean_bytes, seed_of(at)))
            .collect();
        let mut arrivals = Heap::new();
        for (at, group) in groups.iter_mut().enumerate() {
            arrivals.push(group.next_s(), at);
        }
        let group_totals = scenario.groups.iter().map(|group| GroupTotals {
            name: group.name.clone(),
            completed: 0,
            bytes: 0.0,
            latency: LatencyHistogram::new(),
            machines: vec![0; count],
        });
        let machine_totals = names.iter().map(|name| MachineTotals {
            name: (*name).to_owned(),
            energy: SizesEnergy::default(),
            completed: 0,
            on: Seconds::ZERO,
        });
        Ok(Self {
            groups,
            arrivals,
            first_route,
            cpu: scenario.cpu.scaled(1.0),
            // A purpose that nothing else here has: the sizes of the first group are those of its own seed.
            draws: Rng::new(seed, Purpose::Telemetry),
            machines: scenario
                .machines
                .iter()
                .map(|one| Served::new(one.machine.cores))
                .collect(),
            due: Winners::new(count),
            power: serving
                .iter()
                .map(|on| if *on { Power::On } else { Power::Off })
                .collect(),
            takes: serving,
            fleet,
            router: Router::new(scenario.routing, &scenario.bounds_bytes, count, routes),
            requests: Vec::new(),
            free: Vec::new(),
            counts: Counts::new(&scenario.bounds_bytes, count),
            marks: vec![Busy::default(); count],
            states: vec![InState::default(); count],
            totals: FleetTotals {
                periods: 0,
                requests: 0,
                completed: 0,
                refused: 0,
                lost: 0,
                in_flight: 0,
                latency: LatencyHistogram::new(),
                groups: group_totals.collect(),
                machines: machine_totals.collect(),
                periods_missed: 0,
            },
            scenario,
        })
    }

    fn run(
        mut self,
        law: &mut dyn Controller,
        sink: &mut dyn FnMut(&FleetStep<'_>),
    ) -> Result<FleetTotals, RunError> {
        let (limits, length_s) = (self.scenario.limits, self.scenario.duration_s);
        let mut period_s = self.scenario.period_s;
        let mut events = 0;
        let mut ended_s = 0.0;
        while period_s <= length_s * (1.0 + 1e-12) {
            let (machine, machine_s) = self.due.first();
            let arrival_s = self.arrivals.first_key().unwrap_or(f64::INFINITY);
            let now_s = machine_s.min(arrival_s).min(period_s);
            events += 1;
            if events > limits.events {
                return Err(RunError::TooManyEvents {
                    limit: limits.events,
                    at_s: now_s,
                    length_s,
                });
            }
            // Of what happens at once, the end of requests comes first.
            if machine_s <= now_s {
                self.serve(now_s, machine);
            } else if arrival_s <= now_s {
                self.arrive(now_s);
                let in_flight = (self.requests.len() - self.free.len()) as u64;
                if in_flight > limits.in_flight {
                    return Err(RunError::TooManyInFlight {
                        limit: limits.in_flight,
                        at_s: now_s,
                        cores: self
                            .scenario
                            .machines
                            .iter()
                            .map(|one| one.machine.cores as f64)
                            .sum(),
                    });
                }
            } else {
                self.period(now_s, law, sink);
                ended_s = now_s;
                period_s = (self.totals.periods + 1) as f64 * self.scenario.period_s;
            }
        }
        self.close(ended_s)
    }

    fn arrive(&mut self, now_s: f64) {
        let Some((_, group)) = self.arrivals.pop() else {
            return;
        };
        let (drawn, _) = self.groups[group].take();
        let grown = self.scenario.groups[group].grow;
        let bytes = drawn * grown.powf(now_s / self.scenario.duration_s);
        self.arrivals.push(self.groups[group].next_s(), group);
        // Drawn whether or not there is a machine: the same requests come whatever is decided.
        let share = self.cpu.sample(&mut self.draws);
        let routes = self.scenario.groups[group].routes;
        let route = self.first_route[group] + ((self.draws.uniform() * f64::from(routes)) as usize);
        self.totals.requests += 1;
        let class = self.router.class(route);
        let machines = &self.machines;
        let chosen = self
            .router
            .choose(class, &self.takes, |at| machines[at].requests());
        self.counts.arrived(class, chosen);
        let Some(machine) = chosen else {
            self.totals.refused += 1;
            return;
        };
        let on = &self.scenario.machines[machine];
        let cost = on.cost.of(bytes);
        let request = Request {
            group,
            route,
            class,
            machine,
            bytes,
            link_s: cost.bytes / on.machine.link_bytes_per_s,
        };
        let number = match self.free.pop() {
            Some(number) => {
                self.requests[number as usize] = request;
                number
            }
            None => {
                self.requests.push(request);
                (self.requests.len() - 1) as u32
            }
        };
        self.machines[machine].arrive(now_s, cost.cpu.get() * share, number);
        self.due.set(machine, self.machines[machine].due_s());
    }

    fn serve(&mut self, now_s: f64, at: usize) {
        let requests = &self.requests;
        let done = self.machines[at].happen(now_s, |number| requests[number as usize].link_s);
        self.due.set(at, self.machines[at].due_s());
        let Some(job) = done else {
            return;
        };
        let request = self.requests[job.user as usize];
        self.free.push(job.user);
        let latency = Seconds::new(now_s - job.arrived);
        self.router.learn(request.route, request.bytes);
        self.counts
            .answered(request.class, request.machine, latency, request.bytes);
        self.totals.completed += 1;
        self.totals.latency.record(latency);
        self.totals.machines[at].completed += 1;
        let group = &mut self.totals.groups[request.group];
        group.completed += 1;
        group.bytes += request.bytes;
        group.latency.record(latency);
        group.machines[at] += 1;
    }

    /// The end of a period: what was seen, what is decided, what is done.
    fn period(&mut self, now_s: f64, law: &mut dyn Controller, sink: &mut dyn FnMut(&FleetStep<'_>)) {
        let (scenario, now) = (self.scenario, Seconds::new(now_s));
        let length = Seconds::new(scenario.period_s);
        self.totals.periods += 1;
        let energies: Vec<SizesEnergy> = (0..self.machines.len()).map(|at| self.meter(now_s, at)).collect();
        let drawn = energies.iter().fold(Joules::ZERO, |sum, one| sum + one.total());
        // What a machine drew until now is what it drew while it was on.
        self.lose_machines(now_s);
        let health: Vec<Health> = (0..self.machines.len())
            .map(|at| self.health(now_s, at))
            .collect();
        let states: Vec<PowerState> = self.fleet.servers().iter().map(|one| one.state()).collect();
        let backends = states.iter().enumerate().map(|(at, state)| BackendObservation {
            url: format!("{}-{at}", scenario.machines[at].machine.name),
            in_service: self.takes[at] && state.takes_requests(),
            in_flight: self.machines[at].requests() as u64,
        });
        let in_flight = self.machines.iter().map(Served::requests).sum::<usize>() as u64;
        let traffic = self.counts.traffic(scenario.slo, in_flight);
        let missed =
            |latency: headroom_control::Latency| latency.missed || latency.at_slo > scenario.slo.target();
        self.totals.periods_missed += u64::from(traffic.latency.is_some_and(missed));
        let placement = f64::from(u8::from(self.router.places()));
        let observation = Observation {
            period: self.totals.periods - 1,
            at: now,
            clock: now,
            length,
            in_force: self.fleet.in_force().with(Lever::Placement, Some(placement)),
            power: Some(Reading::new(drawn / length, Source::Simulated)),
            demand: Some(PerSecond::new(traffic.arrivals as f64 / length.get())),
            traffic: Some(traffic),
            sizes: Some(self.counts.sizes(scenario.slo, backends.collect())),
            nodes: states
                .iter()
                .map(|state| NodeObservation {
                    state: *state,
                    capacity: Capacity::Unknown,
                    answered: None,
                })
                .collect(),
            ..Observation::default()
        };
        self.counts.clear();
        let decision = law.decide(&observation);
        let placed = decision.setting.get(Lever::Placement) != Some(0.0);
        let routes = decision.routes.clone().filter(|_| placed);
        if scenario.routing == Routing::ByLaw {
            self.router.put_in_force(routes);
        }
        let orders = match &scenario.plan {
            Some(plan) => self.fleet.steer_to(now, &plan.wanted(now_s), &health),
            None => {
                let servers = decision.setting.servers().unwrap_or(self.machines.len());
                self.fleet.steer(now, servers, &health)
            }
        };
        for order in orders {
            self.carry_out(now_s, order.server, order.command);
        }
        sink(&FleetStep {
            observation: &observation,
            decision: &decision,
            energy: &energies,
        });
    }

    /// What a machine drew in the period that ends.
    fn meter(&mut self, now_s: f64, at: usize) -> SizesEnergy {
        let length_s = self.scenario.period_s;
        let now = self.machines[at].busy(now_s);
        let busy = now.since(std::mem::replace(&mut self.marks[at], now));
        let machine = &self.scenario.machines[at].machine;
        let joules = |watts: headroom_units::Watts| watts * Seconds::new(length_s);
        let (state, drawn) = match self.power[at] {
            Power::Off => (
                0,
                SizesEnergy {
                    off: joules(machine.server.off),
                    ..SizesEnergy::default()
                },
            ),
            Power::Booting { .. } => (
                1,
                SizesEnergy {
                    switching: joules(machine.server.booting),
                    ..SizesEnergy::default()
                },
            ),
            Power::On => (2, energy(machine, busy, length_s)),
            Power::ShuttingDown { .. } => (
                3,
                SizesEnergy {
                    switching: joules(machine.server.shutting_down),
                    ..SizesEnergy::default()
                },
            ),
        };
        self.states[at][state] += length_s;
        self.totals.machines[at].energy += drawn;
        drawn
    }

    fn health(&mut self, now_s: f64, at: usize) -> Health {
        // A period's end that is a rounding before a boot's is the same moment.
        let reached = |time_s: f64| now_s >= time_s - 1e-9;
        match self.power[at] {
            Power::Booting { ready_s } if reached(ready_s) => self.power[at] = Power::On,
            Power::ShuttingDown { off_s } if reached(off_s) => self.power[at] = Power::Off,
            _ => {}
        }
        Health {
            answering: self.power[at] == Power::On,
            powered: Some(self.power[at] != Power::Off),
            connections: Some(self.machines[at].requests() as u64),
            command_failed: false,
            in_doubt: false,
            failing: false,
        }
    }

    /// Machines that are lost in the period that ends.
    fn lose_machines(&mut self, now_s: f64) {
        let scenario = self.scenario;
        let begun_s = now_s - scenario.period_s;
        let falls = |lost: &&Lost| lost.from_s >= begun_s && lost.from_s < now_s;
        for lost in scenario.lost.iter().filter(falls) {
            self.power[lost.machine] = Power::Off;
            self.takes[lost.machine] = false;
            self.lose_requests(now_s, lost.machine);
        }
    }

    fn lose_requests(&mut self, now_s: f64, at: usize) {
        let lost: Vec<Job> = self.machines[at].lose(now_s);
        self.due.set(at, f64::INFINITY);
        self.totals.lost += lost.len() as u64;
        for job in lost {
            self.counts.failed(self.requests[job.user as usize].class);
            self.free.push(job.user);
        }
    }

    fn carry_out(&mut self, now_s: f64, at: usize, command: Command) {
        let server = &self.scenario.machines[at].machine.server;
        match command {
            Command::PowerOn => {
                let lost = |lost: &&Lost| lost.machine == at && lost.from_s <= now_s;
                let repaired_s = self.scenario.lost.iter().filter(lost).map(|lost| lost.until_s);
                self.power[at] = Power::Booting {
                    ready_s: repaired_s.fold(now_s, f64::max) + server.boot.get(),
                };
            }
            Command::PowerOff => {
                self.power[at] = Power::ShuttingDown {
                    off_s: now_s + server.shutdown.get(),
                };
                self.lose_requests(now_s, at);
            }
            Command::Enable => self.takes[at] = true,
            Command::Disable => self.takes[at] = false,
        }
    }

    /// What came must have gone somewhere, and what was drawn is what the states and the busy resources draw.
    fn close(mut self, now_s: f64) -> Result<FleetTotals, RunError> {
        let mut held = 0;
        for (at, machine) in self.machines.iter_mut().enumerate() {
            machine.check(now_s)?;
            held += machine.requests();
            let busy = machine.busy(now_s);
            let figures = &self.scenario.machines[at].machine;
            let [off_s, booting_s, on_s, down_s] = self.states[at];
            let by_states = figures.server.off.get() * off_s
                + figures.server.booting.get() * booting_s
                + figures.server.shutting_down.get() * down_s
                + energy(figures, busy, on_s).total().get();
            let totals = &mut self.totals.machines[at];
            equal("energy (joules)", totals.energy.total().get(), by_states)?;
            totals.on = Seconds::new(on_s);
        }
        self.totals.in_flight = held as u64;
        let totals = self.totals;
        let gone = totals.completed + totals.refused + totals.lost + totals.in_flight;
        equal("requests", totals.requests as f64, gone as f64)?;
        let by_group: u64 = totals.groups.iter().map(|group| group.completed).sum();
        equal(
            "requests answered, by group",
            totals.completed as f64,
            by_group as f64,
        )?;
        Ok(totals)
    }
}
