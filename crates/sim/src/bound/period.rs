//! What the search knows of the plant, and one period of it as the simulator would run it.

use crate::balancer::Balancer;
use crate::power::{Level, PowerModel};
use crate::quota::Quota;
use crate::scenario::Scenario;
use crate::server::{Job, Server};
use headroom_control::{Allocation, NodeCapacity, PlantError, Spread};
use headroom_units::{Cores, Hertz};

/// A bucket of the histogram that judges a period is up to 0.1 % wide: what is to be within the target there must be a
/// little further within here.
const WITHIN: f64 = 0.998;

/// What can be chosen.
pub(super) struct Choices {
    /// By number of steps: cores in all with a cap that they all fit into, and the cores of each node.
    pub(super) cores: Vec<(Allocation, Vec<f64>)>,
    /// By step: a limit (none for the highest), and each node's level under it.
    pub(super) frequencies: Vec<(Option<Hertz>, Vec<Level>)>,
}

/// A node that does not change.
struct Fixed {
    model: PowerModel,
    own_speed: f64,
    quota: Option<Quota>,
}

/// A world between two periods.
#[derive(Clone)]
pub(super) struct State {
    pub(super) servers: Vec<Server>,
    levels: Vec<Level>,
    balancer: Balancer,
    pub(super) choice: (usize, usize),
    pub(super) energy_j: f64,
    /// Periods that were not kept.
    pub(super) broken: u32,
    /// The entry in the trail of choices that led here.
    pub(super) trail: usize,
}

/// A state one period later, and how the period was.
pub(super) struct Step {
    pub(super) state: State,
    pub(super) answered: u64,
    pub(super) late: u64,
}

/// The plant without telemetry, caps or faults: what a period comes to depends on its choice alone.
pub(super) struct World<'a> {
    scenario: &'a Scenario,
    nodes: Vec<Fixed>,
    pub(super) choices: Choices,
    target_s: f64,
}

impl<'a> World<'a> {
    pub(super) fn new(scenario: &'a Scenario) -> Result<Self, PlantError> {
        let insensitive = scenario.service.frequency_insensitive_share;
        let nodes: Vec<Fixed> = scenario
            .each_node()
            .map(|group| Fixed {
                model: PowerModel::new(group.power, insensitive),
                own_speed: group.speed,
                quota: group.quota,
            })
            .collect();
        let capacities: Vec<NodeCapacity> = scenario.each_node().map(|group| group.capacity()).collect();
        let spread = Spread::new(Cores::new(scenario.core_step))?;
        let (fewest, most) = spread.range(&capacities);
        let steps = ((most - fewest) / spread.step()).round() as usize;
        let cores = (0..=steps)
            .map(|step| {
                let all = fewest + spread.step() * step as f64;
                let each = spread.cores(all, &capacities);
                let limits = capacities
                    .iter()
                    .zip(&each)
                    .map(|(node, cores)| node.power.limit(*cores));
                let allocation = Allocation::new(each.iter().copied().sum(), limits.sum());
                (allocation, each.iter().map(|cores| cores.get()).collect())
            })
            .collect();
        let mut ghz: Vec<f64> = nodes
            .iter()
            .flat_map(|node| &node.model.paces()[node.model.lowest_unthrottled().0..])
            .map(|pace| pace.ghz)
            .collect();
        ghz.sort_by(f64::total_cmp);
        ghz.dedup_by(|a, b| (*a - *b).abs() < 1e-6);
        let highest = ghz.len() - 1;
        let frequencies = ghz
            .iter()
            .enumerate()
            .map(|(at, ghz)| {
                let limit = (at < highest).then(|| Hertz::new((ghz * 1e9).round()));
                (limit, nodes.iter().map(|node| node.model.at_most(*ghz)).collect())
            })
            .collect();
        Ok(Self {
            scenario,
            nodes,
            choices: Choices { cores, frequencies },
            target_s: scenario.service.target_ms / 1e3 * WITHIN,
        })
    }

    pub(super) fn start(&self, full: (usize, usize)) -> State {
        let levels = self.choices.frequencies[full.1].1.clone();
        let cores = &self.choices.cores[full.0].1;
        let servers = self
            .nodes
            .iter()
            .zip(cores)
            .map(|(node, cores)| Server::new(*cores, node.own_speed).held_by(node.quota))
            .collect();
        State {
            servers,
            levels,
            balancer: Balancer::new(self.scenario.balancer.rule.clone(), self.nodes.len()),
            choice: full,
            energy_j: 0.0,
            broken: 0,
            trail: usize::MAX,
        }
    }

    /// One period under one choice, as the simulator would run it.
    pub(super) fn step(
        &self,
        before: &State,
        choice: (usize, usize),
        arriving: &[(f64, f64)],
        from_s: f64,
        to_s: f64,
    ) -> Step {
        let mut state = before.clone();
        let delays = self.scenario.delays;
        let levels = &self.choices.frequencies[choice.1].1;
        let cores = &self.choices.cores[choice.0].1;
        // What changes when, the sooner first.
        let mut changes = [
            (from_s + delays.frequency_s, true),
            (from_s + delays.cores_s, false),
        ];
        if changes[1].0 < changes[0].0 {
            changes.swap(0, 1);
        }
        let mut changes = changes.into_iter().filter(|change| change.0 < to_s).peekable();
        let mut meters = Meters::new(self, &state, from_s);
        let mut due_s: Vec<f64> = state.servers.iter_mut().map(Server::due_s).collect();
        let mut arriving = arriving.iter().peekable();
        let (mut answered, mut late) = (0, 0);
        loop {
            let (mut node, mut done_s) = (0, f64::INFINITY);
            for (at, due) in due_s.iter().enumerate() {
                if *due < done_s {
                    (node, done_s) = (at, *due);
                }
            }
            let change_s = changes.peek().map_or(f64::INFINITY, |change| change.0);
            let next_s = arriving.peek().map_or(f64::INFINITY, |request| request.0);
            if done_s <= change_s && done_s <= next_s && done_s <= to_s {
                let Some((job, next)) = state.servers[node].complete(done_s) else {
                    break;
                };
                due_s[node] = next;
                answered += 1;
                late += u64::from(done_s - job.arrived > self.target_s);
            } else if change_s <= next_s && change_s <= to_s {
                let frequency = changes.next().is_some_and(|change| change.1);
                for at in 0..state.servers.len() {
                    meters.settle(self, &mut state, at, change_s);
                    if frequency {
                        state.levels[at] = levels[at];
                    }
                    let cores = if frequency {
                        state.servers[at].cores()
                    } else {
                        cores[at]
                    };
                    let speed = self.nodes[at].own_speed * self.nodes[at].model.at(state.levels[at]).speed;
                    due_s[at] = state.servers[at].set(change_s, cores, speed);
                }
            } else if let Some((at_s, size_s)) = arriving.next() {
                let servers = &state.servers;
                let chosen = state.balancer.choose(*size_s, |node| servers[node].jobs());
                if let Some(node) = chosen {
                    let job = Job {
                        arrived: *at_s,
                        user: 0,
                    };
                    due_s[node] = state.servers[node].arrive(*at_s, *size_s, job);
                }
            } else {
                break;
            }
        }
        for at in 0..state.servers.len() {
            meters.settle(self, &mut state, at, to_s);
        }
        state.energy_j += meters.energy_j;
        state.choice = choice;
        Step {
            state,
            answered,
            late,
        }
    }
}

/// The energy of a period.
struct Meters {
    energy_j: f64,
    marks: Vec<(f64, f64)>,
}

impl Meters {
    fn new(world: &World<'_>, state: &State, from_s: f64) -> Self {
        let marks = (0..world.nodes.len())
            .map(|at| (from_s, state.servers[at].busy_core_s()))
            .collect();
        Self { energy_j: 0.0, marks }
    }

    fn settle(&mut self, world: &World<'_>, state: &mut State, at: usize, now_s: f64) {
        let server = &mut state.servers[at];
        server.advance(now_s);
        let (since_s, busy_before) = self.marks[at];
        self.marks[at] = (now_s, server.busy_core_s());
        let model = &world.nodes[at].model;
        let dt_s = now_s - since_s;
        let dynamic_w = model.at(state.levels[at]).dynamic_w;
        self.energy_j += model.watts(server.cores(), 0.0, state.levels[at]) * dt_s
            + dynamic_w * (server.busy_core_s() - busy_before);
    }
}
