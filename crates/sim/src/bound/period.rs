//! What the search knows of the plant, and one period of it as the simulator would run it.

use crate::balancer::Balancer;
use crate::node::Node;
use crate::scenario::Scenario;
use crate::server::Job;
use headroom_control::{Allocation, NodeCapacity, PlantError, Spread};
use headroom_units::{Cores, Hertz};

/// A bucket of the histogram that judges a period is up to 0.1 % wide: what is to be within the target there must be a
/// little further within here.
const WITHIN: f64 = 0.998;

/// What can be chosen.
pub(super) struct Choices {
    /// By number of steps: cores in all with a cap that they all fit into, and the cores of each node.
    pub(super) cores: Vec<(Allocation, Vec<f64>)>,
    /// By step: a limit, none for the highest.
    pub(super) frequencies: Vec<Option<Hertz>>,
}

/// A world between two periods.
#[derive(Clone)]
pub(super) struct State {
    pub(super) nodes: Vec<Node>,
    balancer: Balancer,
    pub(super) choice: (usize, usize),
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
    pub(super) choices: Choices,
    target_s: f64,
}

impl<'a> World<'a> {
    pub(super) fn new(scenario: &'a Scenario) -> Result<Self, PlantError> {
        let insensitive = scenario.service.frequency_insensitive_share;
        let nodes = scenario.each_node().map(|group| Node::new(group, insensitive));
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
        let mut hertz: Vec<Hertz> = nodes
            .flat_map(|node| {
                let unthrottled = node.model.lowest_unthrottled().0;
                node.model.paces()[unthrottled..].to_vec()
            })
            .map(|pace| pace.frequency)
            .collect();
        hertz.sort_by(|a, b| a.get().total_cmp(&b.get()));
        hertz.dedup();
        let highest = hertz.pop();
        let limits = hertz.into_iter().map(Some);
        let frequencies = limits.chain(highest.map(|_| None)).collect();
        Ok(Self {
            scenario,
            choices: Choices { cores, frequencies },
            target_s: scenario.service.target_ms / 1e3 * WITHIN,
        })
    }

    pub(super) fn start(&self, full: (usize, usize)) -> State {
        let insensitive = self.scenario.service.frequency_insensitive_share;
        let groups = self.scenario.each_node();
        let mut nodes: Vec<Node> = groups.map(|group| Node::new(group, insensitive)).collect();
        for (node, cores) in nodes.iter_mut().zip(&self.choices.cores[full.0].1) {
            node.set_cores(0.0, *cores);
        }
        State {
            balancer: Balancer::new(self.scenario.balancer.rule.clone(), nodes.len()),
            nodes,
            choice: full,
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
        let limit = self.choices.frequencies[choice.1];
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
        let mut due_s: Vec<f64> = state.nodes.iter_mut().map(|node| node.server.due_s()).collect();
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
                let Some((job, next)) = state.nodes[node].complete(done_s) else {
                    break;
                };
                due_s[node] = next;
                answered += 1;
                late += u64::from(done_s - job.arrived > self.target_s);
            } else if change_s <= next_s && change_s <= to_s {
                let frequency = changes.next().is_some_and(|change| change.1);
                for ((node, due_s), cores) in state.nodes.iter_mut().zip(&mut due_s).zip(cores) {
                    *due_s = match frequency {
                        true => node.set_frequency(change_s, limit),
                        false => node.set_cores(change_s, *cores),
                    };
                }
            } else if let Some((at_s, size_s)) = arriving.next() {
                let nodes = &state.nodes;
                let chosen = state.balancer.choose(*size_s, |node| nodes[node].server.jobs());
                if let Some(node) = chosen {
                    let job = Job {
                        arrived: *at_s,
                        user: 0,
                    };
                    (due_s[node], _) = state.nodes[node].arrive(*at_s, *size_s, job);
                }
            } else {
                break;
            }
        }
        for node in &mut state.nodes {
            node.settle(to_s);
        }
        state.choice = choice;
        Step {
            state,
            answered,
            late,
        }
    }
}

impl State {
    /// What was drawn so far, joules.
    pub(super) fn energy_j(&self) -> f64 {
        self.nodes.iter().map(Node::energy_j).sum()
    }
}
