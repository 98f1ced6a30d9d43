//! The achieved side: a beam search over one allocation a period, replayed through the simulator.

use super::envelope::Envelope;
use super::{Bound, check, lower_bound, requests};
use crate::balancer::Balancer;
use crate::error::RunError;
use crate::power::{Level, PowerModel};
use crate::scenario::{Scenario, Telemetry};
use crate::server::{Job, Server};
use crate::world::{Bare, run};
use headroom_control::{Allocation, Decision, Law, NodeCapacity, Plant, Reason, Seen, Spread};
use headroom_units::{Cores, Hertz};

/// A bucket of the histogram that judges a period is up to 0.1 % wide: what is to be within the target there must be a
/// little further within here.
const WITHIN: f64 = 0.998;
/// How many steps of cores above and below the last choice are tried.
const REACH: usize = 8;
/// How many frequencies above the lowest that keeps the promise are kept as choices: a faster one leaves less behind.
const FASTER: usize = 2;

/// The law that does what a schedule says: its n-th allocation after the n-th period.
#[derive(Clone, Debug)]
pub struct Replay {
    plant: Plant,
    schedule: Vec<Allocation>,
}

impl Replay {
    /// Replays a schedule; after its end, everything.
    pub const fn new(plant: Plant, schedule: Vec<Allocation>) -> Self {
        Self { plant, schedule }
    }
}

impl Law for Replay {
    fn name(&self) -> &'static str {
        "clairvoyant"
    }

    fn rules(&self) -> &'static [&'static str] {
        &["replay"]
    }

    fn decide(&mut self, seen: &Seen) -> Decision {
        let planned = self.schedule.get(seen.period as usize).copied();
        let allocation = planned.unwrap_or_else(|| self.plant.full());
        Decision {
            allocation,
            expected_rate: None,
            reasons: vec![Reason::new(
                "replay",
                format!("what the schedule says for period {}", seen.period + 1),
                &[("cores", allocation.cores.get())],
            )],
        }
    }

    fn forget(&mut self) {}
}

/// What can be chosen.
struct Choices {
    /// By number of steps: cores in all with a cap that they all fit into, and the cores of each node.
    cores: Vec<(Allocation, Vec<f64>)>,
    /// By step: a limit (none for the highest), and each node's level under it.
    frequencies: Vec<(Option<Hertz>, Vec<Level>)>,
}

/// A node that does not change.
struct Fixed {
    model: PowerModel,
    own_speed: f64,
}

/// A world between two periods.
#[derive(Clone)]
struct State {
    servers: Vec<Server>,
    levels: Vec<Level>,
    balancer: Balancer,
    choice: (usize, usize),
    energy_j: f64,
    /// Periods that were not kept.
    broken: u32,
    /// The entry in the trail of choices that led here.
    trail: usize,
}

/// A state one period later, and how the period was.
struct Step {
    state: State,
    answered: u64,
    late: u64,
}

struct Search<'a> {
    scenario: &'a Scenario,
    nodes: Vec<Fixed>,
    choices: Choices,
    envelope: Envelope,
    target_s: f64,
    /// Of the requests answered in a period so many may be late.
    late_share: f64,
}

/// Finds a schedule that keeps the promise with little energy, knowing everything that will arrive; see the
/// [module](super). `width` states are kept from period to period, at least one: 4 states come within 0.05 % of 16 on the
/// SLO-Power traces, and the time grows with their number.
///
/// # Errors
/// As [`run`]; and [`RunError::Scenario`] where the scenario has faults or is a closed loop.
pub fn clairvoyant(scenario: &Scenario, seed: u64, width: usize) -> Result<Bound, RunError> {
    check(scenario)?;
    let plant = scenario.plant()?;
    let search = Search::new(scenario)?;
    let (schedule, _) = search.schedule(seed, width.max(1));
    let mut law = Replay::new(plant, schedule.clone());
    // The schedule limits nothing by caps: each follows the cores, and must not bind while more cores are still there.
    let mut unbound = scenario.clone();
    unbound.delays.cap_s = scenario.delays.cores_s;
    // Nor does it look at anything: it has nothing to wait for.
    unbound.telemetry = Telemetry::default();
    Ok(Bound {
        lower: lower_bound(scenario, seed)?,
        totals: run(&unbound, &mut Bare(&mut law), seed, &mut |_| {})?,
        schedule,
    })
}

impl<'a> Search<'a> {
    fn new(scenario: &'a Scenario) -> Result<Self, RunError> {
        let insensitive = scenario.service.frequency_insensitive_share;
        let nodes: Vec<Fixed> = scenario
            .each_node()
            .map(|group| Fixed {
                model: PowerModel::new(group.power, insensitive),
                own_speed: group.speed,
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
            envelope: Envelope::new(scenario),
            target_s: scenario.service.target_ms / 1e3 * WITHIN,
            late_share: 1.0 - scenario.service.percentile / 100.0,
        })
    }

    /// The schedule, and its energy in joules.
    fn schedule(&self, seed: u64, width: usize) -> (Vec<Allocation>, f64) {
        let length_s = self.scenario.service.period_s;
        let mut coming = requests(self.scenario, seed).peekable();
        let full = (self.choices.cores.len() - 1, self.choices.frequencies.len() - 1);
        let mut states = vec![self.start(full)];
        // (parent, choice): the whole tree of what was kept.
        let mut trail: Vec<(usize, (usize, usize))> = Vec::new();
        let mut next_period = |to_s: f64| -> Vec<(f64, f64)> {
            std::iter::from_fn(|| coming.next_if(|request| request.0 < to_s)).collect()
        };
        let mut following = next_period(length_s);
        for period in 0..self.scenario.periods() {
            let (from_s, to_s) = (period as f64 * length_s, (period + 1) as f64 * length_s);
            let after_s = (period + 2) as f64 * length_s;
            let arriving = std::mem::replace(&mut following, next_period(after_s));
            let mut next: Vec<Step> = Vec::new();
            for state in &states {
                if period == 0 {
                    next.push(self.step(state, full, &arriving, from_s, to_s));
                } else {
                    next.extend(self.steps(state, &arriving, from_s, to_s));
                }
            }
            let price = self.price(&arriving, length_s);
            next.sort_by(|a, b| self.rank(a, price).total_cmp(&self.rank(b, price)));
            // States of the same choice differ little: one of each.
            let mut taken: Vec<(usize, usize)> = Vec::new();
            next.retain(|step| {
                !taken.contains(&step.state.choice) && {
                    taken.push(step.state.choice);
                    true
                }
            });
            // A state from which even everything on breaks the next period leads nowhere.
            let leads_on = |step: &Step| self.keeps(&self.step(&step.state, full, &following, to_s, after_s));
            let best = next.first().map(|step| step.state.clone());
            let mut viable = 0;
            next.retain(|step| {
                let keep = viable < width && leads_on(step);
                viable += usize::from(keep);
                keep
            });
            states = match viable {
                0 => best.into_iter().collect(),
                _ => next.into_iter().map(|step| step.state).collect(),
            };
            for state in &mut states {
                trail.push((state.trail, state.choice));
                state.trail = trail.len() - 1;
            }
        }
        let mut at = states.first().map_or(usize::MAX, |best| best.trail);
        let mut choices = Vec::new();
        while let Some((parent, choice)) = trail.get(at) {
            choices.push(*choice);
            at = *parent;
        }
        // The first period is before the first decision.
        choices.pop();
        choices.reverse();
        let energy_j = states.first().map_or(0.0, |best| best.energy_j);
        let schedule = choices.into_iter().map(|choice| self.allocation(choice));
        (schedule.collect(), energy_j)
    }

    fn allocation(&self, choice: (usize, usize)) -> Allocation {
        Allocation {
            frequency: self.choices.frequencies[choice.1].0,
            ..self.choices.cores[choice.0].0
        }
    }

    fn start(&self, full: (usize, usize)) -> State {
        let levels = self.choices.frequencies[full.1].1.clone();
        let cores = &self.choices.cores[full.0].1;
        let servers = self
            .nodes
            .iter()
            .zip(cores)
            .map(|(node, cores)| Server::new(*cores, node.own_speed))
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

    /// The price of work that is left for later.
    fn price(&self, arriving: &[(f64, f64)], length_s: f64) -> f64 {
        let work: f64 = arriving.iter().map(|request| request.1).sum();
        self.envelope.price(work / length_s)
    }

    fn keeps(&self, step: &Step) -> bool {
        step.late as f64 <= self.late_share * step.answered as f64 + 1e-9
    }

    /// Broken periods first, then energy with what is left over.
    fn rank(&self, step: &Step, price: f64) -> f64 {
        let left_s: f64 = step.state.servers.iter().map(Server::remaining_s).sum();
        // More than a whole run can draw.
        let broken_j = 1e12 * f64::from(step.state.broken);
        broken_j + step.state.energy_j + left_s * price
    }

    /// The next states worth keeping.
    fn steps(&self, state: &State, arriving: &[(f64, f64)], from_s: f64, to_s: f64) -> Vec<Step> {
        let all_cores = self.choices.cores.len();
        let top = self.choices.frequencies.len() - 1;
        let mut kept = Vec::new();
        let (low, high) = (
            state.choice.0.saturating_sub(REACH),
            (state.choice.0 + REACH).min(all_cores - 1),
        );
        // The more cores, the lower the frequency that will do: begin where the last number of cores ended.
        let mut frequency = state.choice.1;
        for cores in low..=high {
            let mut tried: Vec<Option<Step>> = (0..=top).map(|_| None).collect();
            let mut try_at = |frequency: usize| -> bool {
                if tried[frequency].is_none() {
                    tried[frequency] = Some(self.step(state, (cores, frequency), arriving, from_s, to_s));
                }
                tried[frequency].as_ref().is_some_and(|step| self.keeps(step))
            };
            if try_at(frequency) {
                while frequency > 0 && try_at(frequency - 1) {
                    frequency -= 1;
                }
            } else {
                while frequency < top && !try_at(frequency) {
                    frequency += 1;
                }
                if !try_at(frequency) {
                    continue;
                }
            }
            for faster in frequency..=(frequency + FASTER).min(top) {
                try_at(faster);
            }
            let few = tried.into_iter().skip(frequency).take(FASTER + 1).flatten();
            kept.extend(few.filter(|step| self.keeps(step)));
        }
        if kept.is_empty() {
            kept.push(self.least_bad(state, arriving, from_s, to_s));
        }
        kept
    }

    /// No allocation in reach keeps the promise: one further away, or everything.
    fn least_bad(&self, state: &State, arriving: &[(f64, f64)], from_s: f64, to_s: f64) -> Step {
        let (all_cores, top) = (self.choices.cores.len(), self.choices.frequencies.len() - 1);
        for cores in (state.choice.0 + REACH + 1..all_cores).step_by(2) {
            let step = self.step(state, (cores, top), arriving, from_s, to_s);
            if self.keeps(&step) {
                return step;
            }
        }
        let mut step = self.step(state, (all_cores - 1, top), arriving, from_s, to_s);
        step.state.broken += u32::from(!self.keeps(&step));
        step
    }

    /// One period under one choice, as the simulator would run it.
    fn step(
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
    fn new(search: &Search<'_>, state: &State, from_s: f64) -> Self {
        let marks = (0..search.nodes.len())
            .map(|at| (from_s, state.servers[at].busy_core_s()))
            .collect();
        Self { energy_j: 0.0, marks }
    }

    fn settle(&mut self, search: &Search<'_>, state: &mut State, at: usize, now_s: f64) {
        let server = &mut state.servers[at];
        server.advance(now_s);
        let (since_s, busy_before) = self.marks[at];
        self.marks[at] = (now_s, server.busy_core_s());
        let model = &search.nodes[at].model;
        let dt_s = now_s - since_s;
        let dynamic_w = model.at(state.levels[at]).dynamic_w;
        self.energy_j += model.watts(server.cores(), 0.0, state.levels[at]) * dt_s
            + dynamic_w * (server.busy_core_s() - busy_before);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arrivals::Spacing;
    use crate::balancer::Rule;
    use crate::power::PowerFigures;
    use crate::scenario::NodeGroup;
    use headroom_units::Seconds;

    /// The energy that the search counts is what the simulator's meter says in the replay: one world, not two.
    #[test]
    fn the_search_and_the_simulator_agree() {
        let rates = vec![80.0, 200.0, 120.0];
        let alike = Scenario::default().with_trace(rates, Seconds::new(10.0), Spacing::Poisson);
        let mut unlike = alike.clone();
        unlike.nodes.push(NodeGroup {
            count: 1,
            cores: 8.0,
            speed: 1.6,
            power: PowerFigures {
                base_w: 80.0,
                dynamic_per_core_w: 5.0,
                highest_ghz: 3.0,
                ..PowerFigures::default()
            },
            ..NodeGroup::default()
        });
        unlike.balancer.rule = Rule::LeastConnections {};
        unlike.service.frequency_insensitive_share = 0.2;
        for scenario in [alike, unlike] {
            let search = Search::new(&scenario).unwrap();
            let (schedule, counted_j) = search.schedule(5, 2);
            let bound = clairvoyant(&scenario, 5, 2).unwrap();
            assert_eq!(bound.schedule, schedule);
            let metered_j = bound.totals.energy.get();
            assert!(
                (counted_j / metered_j - 1.0).abs() < 1e-9,
                "{counted_j} {metered_j}"
            );
            assert!((0.0..0.1).contains(&bound.gap().get()), "{}", bound.gap());
        }
    }
}
