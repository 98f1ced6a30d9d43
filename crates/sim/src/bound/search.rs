//! The achieved side: a beam search over one allocation a period, replayed through the simulator.

use super::envelope::Envelope;
use super::period::{State, Step, World};
use super::replay::Replay;
use super::{Bound, check_sound, least, requests};
use crate::error::{RunError, ScenarioError};
use crate::scenario::{Scenario, Telemetry};
use crate::world::{Bare, run};
use headroom_control::Allocation;
use headroom_units::{Ratio, Setting};

/// How many steps of cores above and below the last choice are tried.
const REACH: usize = 8;
/// How many frequencies above the lowest that keeps the SLO are kept as choices: a faster one leaves less behind.
const FASTER: usize = 2;

struct Search<'a> {
    scenario: &'a Scenario,
    world: World<'a>,
    envelope: Envelope,
    /// Of the requests answered in a period so many may be late.
    late_share: f64,
}

/// Finds a schedule that keeps the SLO with little energy, knowing everything that will arrive; see the
/// [module](super). `width` states are kept from period to period, at least one: 4 states come within 0.05 % of 16 on the
/// SLO-Power traces, and the time grows with their number.
///
/// # Errors
/// As [`run`]; and [`RunError::Scenario`] where the scenario has faults, is a closed loop, or delays decisions by a period or
/// more.
pub fn clairvoyant(scenario: &Scenario, seed: u64, width: usize, late: Ratio) -> Result<Bound, RunError> {
    if scenario.power_states.is_some() {
        return super::fleet::clairvoyant(scenario, seed, late);
    }
    check_sound(scenario)?;
    check_delays(scenario)?;
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
        least: least(scenario, seed, late)?,
        totals: run(&unbound, &mut Bare(&mut law), seed, &mut |_| {})?,
        schedule,
    })
}

/// Refuses delays that carry a decision into a later period: the search looks at one decision a period.
fn check_delays(scenario: &Scenario) -> Result<(), ScenarioError> {
    let period_s = scenario.service.period_s;
    let delays = [
        ("delays.cores_s", scenario.delays.cores_s),
        ("delays.frequency_s", scenario.delays.frequency_s),
    ];
    match delays.into_iter().find(|(_, delay_s)| *delay_s >= period_s) {
        None => Ok(()),
        Some((key, delay_s)) => {
            let why = format!(
                "is {delay_s}: the best schedule is sought period by period, so it must be less than service.period_s, \
                 {period_s}"
            );
            Err(ScenarioError::new(key, why))
        }
    }
}

impl<'a> Search<'a> {
    fn new(scenario: &'a Scenario) -> Result<Self, RunError> {
        Ok(Self {
            scenario,
            world: World::new(scenario)?,
            envelope: Envelope::new(scenario),
            late_share: 1.0 - scenario.service.percentile / 100.0,
        })
    }

    /// The schedule, and its energy in joules.
    fn schedule(&self, seed: u64, width: usize) -> (Vec<Setting>, f64) {
        let length_s = self.scenario.service.period_s;
        let mut coming = requests(self.scenario, seed).peekable();
        let full = (
            self.world.choices.cores.len() - 1,
            self.world.choices.frequencies.len() - 1,
        );
        let mut states = vec![self.world.start(full)];
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
                    next.push(self.world.step(state, full, &arriving, from_s, to_s));
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
            let leads_on =
                |step: &Step| self.keeps(&self.world.step(&step.state, full, &following, to_s, after_s));
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
        let energy_j = states.first().map_or(0.0, State::energy_j);
        let schedule = choices.into_iter().map(|choice| self.allocation(choice).into());
        (schedule.collect(), energy_j)
    }

    fn allocation(&self, choice: (usize, usize)) -> Allocation {
        Allocation {
            frequency: self.world.choices.frequencies[choice.1],
            ..self.world.choices.cores[choice.0].0
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
        let left_s: f64 = step
            .state
            .nodes
            .iter()
            .map(|node| node.server.remaining_s())
            .sum();
        // More than a whole run can draw.
        let broken_j = 1e12 * f64::from(step.state.broken);
        broken_j + step.state.energy_j() + left_s * price
    }

    /// The next states worth keeping.
    fn steps(&self, state: &State, arriving: &[(f64, f64)], from_s: f64, to_s: f64) -> Vec<Step> {
        let all_cores = self.world.choices.cores.len();
        let top = self.world.choices.frequencies.len() - 1;
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
                    tried[frequency] =
                        Some(self.world.step(state, (cores, frequency), arriving, from_s, to_s));
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

    /// No allocation in reach keeps the SLO: one further away, or everything.
    fn least_bad(&self, state: &State, arriving: &[(f64, f64)], from_s: f64, to_s: f64) -> Step {
        let (all_cores, top) = (
            self.world.choices.cores.len(),
            self.world.choices.frequencies.len() - 1,
        );
        for cores in (state.choice.0 + REACH + 1..all_cores).step_by(2) {
            let step = self.world.step(state, (cores, top), arriving, from_s, to_s);
            if self.keeps(&step) {
                return step;
            }
        }
        let mut step = self
            .world
            .step(state, (all_cores - 1, top), arriving, from_s, to_s);
        step.state.broken += u32::from(!self.keeps(&step));
        step
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::balancer::Rule;
    use crate::power::{Machine, PowerFigures};
    use crate::scenario::NodeGroup;
    use headroom_units::Seconds;
    use headroom_workload::Spacing;

    /// The energy that the search counts is what the simulator's meter says in the replay: one world, not two.
    #[test]
    fn the_search_and_the_simulator_agree() {
        let rates = vec![80.0, 200.0, 120.0];
        let alike = Scenario::paper().with_trace(rates, Seconds::new(10.0), Spacing::Poisson);
        let mut unlike = alike.clone();
        unlike.nodes.push(NodeGroup {
            count: 1,
            cores: 8.0,
            speed: 1.6,
            machine: Machine::Line(PowerFigures {
                base_w: 80.0,
                dynamic_per_core_w: 5.0,
                highest_ghz: 3.0,
                ..PowerFigures::default()
            }),
            ..NodeGroup::paper()
        });
        unlike.balancer.rule = Rule::LeastConnections {};
        unlike.service.frequency_insensitive_share = 0.2;
        for scenario in [alike, unlike] {
            let search = Search::new(&scenario).unwrap();
            let (schedule, counted_j) = search.schedule(5, 2);
            let bound = clairvoyant(&scenario, 5, 2, Ratio::new(0.005)).unwrap();
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
