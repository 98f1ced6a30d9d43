//! The provable side: the convex envelope of power over work.

use super::prompt::Blocks;
use super::{check, requests};
use crate::error::ScenarioError;
use crate::power::{Draw, NodeModel, Pace};
use crate::scenario::{NodeGroup, Scenario};
use headroom_physics::MachineFigures;
use headroom_physics::cores::state_power_w;
use headroom_physics::machine::ProcessorFigures;
use headroom_units::{Joules, Ratio};

/// The convex envelope of the least power over the rate of work, piecewise linear: power at no work, then segments by
/// rising price.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Envelope {
    idle_w: f64,
    /// Length in work per second, price in joules per second of full-speed work.
    segments: Vec<(f64, f64)>,
}

impl Envelope {
    pub(super) fn new(scenario: &Scenario) -> Self {
        let insensitive = scenario.service.frequency_insensitive_share;
        let mut idle_w = 0.0;
        let mut segments = Vec::new();
        for node in scenario.each_node() {
            let (node_w, of_node) = of_node(node, insensitive, scenario.power_states.is_some());
            idle_w += node_w;
            segments.extend(of_node);
        }
        // The cheapest work first: the least sum of convex functions of parts of one total.
        segments.sort_by(|a, b| a.1.total_cmp(&b.1));
        Self { idle_w, segments }
    }

    /// Least power at a rate of work; infinite beyond what the nodes can do.
    pub(super) fn watts(&self, work: f64) -> f64 {
        let (mut left, mut watts) = (work, self.idle_w);
        for (length, price) in &self.segments {
            let taken = left.min(*length);
            watts += taken * price;
            left -= taken;
        }
        if left > 1e-9 * work { f64::INFINITY } else { watts }
    }

    /// The price of a little more work at a rate, joules per second of full-speed work.
    pub(super) fn price(&self, work: f64) -> f64 {
        let mut below = 0.0;
        for (length, price) in &self.segments {
            below += length;
            if work < below {
                return *price;
            }
        }
        self.segments.last().map_or(0.0, |segment| segment.1)
    }
}

/// The least power of one node at no work, and the segments above it: the lower hull of what it draws at each rate of work
/// at any moment.
///
/// On the line the least power is linear in work from nothing to the fewest cores busy and from there to all cores busy,
/// so the hull has corners only there. A machine draws the least with all cores in their deepest state and its packages
/// asleep; while cores are busy a package is up, and the others are at best in their deepest state.
///
/// Where servers can be switched, one with no work is off; what a boot costs, and that one server must stay, is left out.
fn of_node(node: &NodeGroup, insensitive: f64, switched: bool) -> (f64, Vec<(f64, f64)>) {
    let model = NodeModel::new(node, insensitive);
    let (idle_w, off_w) = match &model.draw {
        Draw::Line(line) => (
            line.base_w + line.static_per_core_w * node.fewest_cores,
            line.off_w,
        ),
        Draw::Machine(machine) => (asleep_w(machine), machine.server.off.get()),
    };
    let least_w = if switched { off_w.min(idle_w) } else { idle_w };
    let mut corners = vec![(0.0, 0.0)];
    for pace in model.paces() {
        match &model.draw {
            Draw::Line(line) => {
                for cores in [node.fewest_cores, node.cores] {
                    let standing_w = line.static_per_core_w * (cores - node.fewest_cores);
                    corners.push((
                        cores * pace.speed * node.speed,
                        standing_w + cores * pace.busy.get(),
                    ));
                }
            }
            Draw::Machine(machine) => {
                let processor = &machine.processor;
                let deepest_w = least_state_w(processor);
                let each = processor.cores as f64 / processor.packages as f64;
                let up_w = (processor.uncore - processor.uncore_asleep).get();
                for packages in 1..=processor.packages {
                    let cores = packages as f64 * each;
                    let busy_w = cores * (pace.busy.get() - deepest_w);
                    corners.push((cores * pace.speed * node.speed, packages as f64 * up_w + busy_w));
                }
            }
        }
    }
    for corner in &mut corners[1..] {
        corner.1 += idle_w - least_w;
    }
    (least_w, hull(corners))
}

/// The segments of the lower hull of points of work and watts, the first of which is the origin.
fn hull(mut corners: Vec<(f64, f64)>) -> Vec<(f64, f64)> {
    corners.sort_by(|a, b| a.0.total_cmp(&b.0).then(b.1.total_cmp(&a.1)));
    let mut hull: Vec<(f64, f64)> = Vec::new();
    for corner in corners {
        while hull.last().is_some_and(|last| corner.1 <= last.1) && hull.len() > 1 {
            hull.pop();
        }
        while hull.len() > 1 {
            let (a, b) = (hull[hull.len() - 2], hull[hull.len() - 1]);
            let above = (b.1 - a.1) * (corner.0 - a.0) >= (corner.1 - a.1) * (b.0 - a.0);
            if !above {
                break;
            }
            hull.pop();
        }
        if hull.last().is_none_or(|last| corner.0 > last.0) {
            hull.push(corner);
        }
    }
    let segments = hull.windows(2).map(|pair| {
        (
            pair[1].0 - pair[0].0,
            (pair[1].1 - pair[0].1) / (pair[1].0 - pair[0].0),
        )
    });
    segments.collect()
}

/// The least power of the work of a machine's cores beyond being asleep, without what their packages draw beside them.
fn of_cores(group: &NodeGroup, model: &NodeModel, machine: &MachineFigures) -> Vec<(f64, f64)> {
    let processor = &machine.processor;
    let (cores, deepest_w) = (processor.cores as f64, least_state_w(processor));
    let corner = |pace: &Pace| {
        let watts = cores * (pace.busy.get() - deepest_w);
        (cores * pace.speed * group.speed, watts)
    };
    let corners = model.paces().iter().map(corner);
    hull(std::iter::once((0.0, 0.0)).chain(corners).collect())
}

/// The least that an idle core draws: in the state that draws the least, at the lowest voltage.
fn least_state_w(processor: &ProcessorFigures) -> f64 {
    let lowest = processor.frequency.voltage(processor.frequency.lowest);
    let states = 0..processor.idle_states.len();
    states
        .map(|state| state_power_w(processor, state, lowest))
        .fold(f64::INFINITY, f64::min)
}

/// The least that a machine which is on draws: all cores in that state, all packages asleep.
fn asleep_w(machine: &MachineFigures) -> f64 {
    let processor = &machine.processor;
    (machine.platform + processor.uncore_asleep * processor.packages as f64).get()
        + least_state_w(processor) * processor.cores as f64
}

/// One node as bounds know it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Node {
    /// On, with everything in it asleep, and off: watts.
    pub(super) asleep_w: f64,
    pub(super) off_w: f64,
    /// What a boot and a shutdown draw beyond what an off server does, joules.
    pub(super) boot_j: f64,
    pub(super) shutdown_j: f64,
    /// The least power of work beyond being asleep: length in work per second, joules per second of full-speed work.
    pub(super) segments: Vec<(f64, f64)>,
    /// The same of the cores alone, and what a package draws beyond that while a core of it is up, watts.
    pub(super) of_cores: Vec<(f64, f64)>,
    pub(super) up_w: f64,
    /// Its fastest core, over the one that sizes are given for.
    pub(super) speed: f64,
}

impl Node {
    /// A pause between two services that is shorter than this saves nothing by being off, seconds.
    pub(super) fn break_even_s(&self) -> f64 {
        let saved_w = self.asleep_w + self.up_w - self.off_w;
        match saved_w > 0.0 {
            true => (self.boot_j + self.shutdown_j) / saved_w,
            false => f64::INFINITY,
        }
    }
}

/// Every node of a scenario.
pub(super) fn nodes(scenario: &Scenario) -> impl Iterator<Item = Node> {
    let insensitive = scenario.service.frequency_insensitive_share;
    scenario.each_node().map(move |group| {
        let (asleep_w, segments) = of_node(group, insensitive, false);
        let model = NodeModel::new(group, insensitive);
        let speed = model.paces().iter().map(|pace| pace.speed).fold(0.0, f64::max) * group.speed;
        let (server, of_cores, up_w) = match &model.draw {
            Draw::Line(_) => (group.machine.figures(group.cores).server, segments.clone(), 0.0),
            Draw::Machine(machine) => (
                machine.server,
                of_cores(group, &model, machine),
                (machine.processor.uncore - machine.processor.uncore_asleep).get(),
            ),
        };
        Node {
            speed,
            of_cores,
            up_w,
            asleep_w,
            // What draws as much off as asleep is never switched.
            off_w: server.off.get().min(asleep_w),
            boot_j: ((server.booting - server.off) * server.boot).get(),
            shutdown_j: ((server.shutting_down - server.off) * server.shutdown).get(),
            segments,
        }
    })
}

/// What schedules need at least; see the [module](super).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Least {
    /// Any schedule that answers what is due, however late.
    pub any: Joules,
    /// Any schedule that leaves no work waiting for longer than four targets of the SLO, and has no more periods late than allowed.
    pub prompt: Joules,
    /// Any schedule, of no work at all: all servers asleep, and where they can be switched all but one off. No lever moves it.
    pub standing: Joules,
}

/// The least energy of schedules, however clever, of which [`Least::prompt`] has at most a share `late` of the periods late: see the
/// [module](super).
///
/// # Errors
/// [`ScenarioError`] where the scenario is no world, is a closed loop, or has faults that do anything but slow nodes.
pub fn least(scenario: &Scenario, seed: u64, late: Ratio) -> Result<Least, ScenarioError> {
    check(scenario)?;
    let length_s = scenario.duration().get();
    let due_s = length_s - scenario.service.target_ms / 1e3;
    let mut blocks = Blocks::new(scenario);
    let mut work_s = 0.0;
    for (at_s, size_s) in requests(scenario, seed) {
        if at_s <= due_s {
            work_s += size_s;
        }
        if let Some(blocks) = &mut blocks {
            blocks.add(at_s, size_s);
        }
    }
    // Beyond what everything at full speed can do nothing is owed: the bound is then that of everything busy.
    let envelope = Envelope::new(scenario);
    let most = envelope.segments.iter().map(|segment| segment.0).sum::<f64>();
    let any_j = length_s * envelope.watts((work_s / length_s).min(most));
    let prompt_j = blocks.and_then(|blocks| blocks.least_j(scenario, late));
    let one_w = nodes(scenario).map(|node| node.asleep_w - node.off_w);
    let one_w = match scenario.power_states {
        Some(_) => one_w.fold(f64::INFINITY, f64::min),
        None => 0.0,
    };
    Ok(Least {
        any: Joules::new(any_j),
        prompt: Joules::new(prompt_j.unwrap_or(any_j).max(any_j)),
        standing: Joules::new(length_s * (envelope.idle_w + one_w)).min(Joules::new(any_j)),
    })
}

/// The least energy of any schedule, [`Least::any`].
///
/// # Errors
/// As [`least`].
pub fn lower_bound(scenario: &Scenario, seed: u64) -> Result<Joules, ScenarioError> {
    // Whatever may be late: the energy of any schedule does not go by it.
    Ok(least(scenario, seed, Ratio::ZERO)?.any)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The least power by trying everything, on a grid of cores.
    fn tried(node: &NodeGroup, work: f64) -> f64 {
        let (model, line) = (NodeModel::new(node, 0.0), node.machine.line().unwrap());
        let mut least = f64::INFINITY;
        for step in 0..=140 {
            let cores = node.fewest_cores + (node.cores - node.fewest_cores) * f64::from(step) / 140.0;
            for pace in model.paces() {
                let busy = work / (pace.speed * node.speed);
                if busy <= cores + 1e-12 {
                    let watts = line.base_w + line.static_per_core_w * cores + busy * pace.busy.get();
                    least = least.min(watts);
                }
            }
        }
        least
    }

    proptest! {
        /// Never above what can be had, and convex.
        #[test]
        fn the_envelope_is_below_everything_and_convex(work in 0.0..16.0f64, other in 0.0..16.0f64) {
            let node = NodeGroup { count: 1, ..NodeGroup::paper() };
            let scenario = Scenario { nodes: vec![node.clone()], ..Scenario::paper() };
            let envelope = Envelope::new(&scenario);
            prop_assert!(envelope.watts(work) <= tried(&node, work) + 1e-9);
            let middle = envelope.watts((work + other) / 2.0);
            prop_assert!(middle <= (envelope.watts(work) + envelope.watts(other)) / 2.0 + 1e-9);
        }
    }

    #[test]
    fn nothing_to_do_costs_the_fewest_cores_at_rest_and_everything_costs_everything() {
        let envelope = Envelope::new(&Scenario::paper());
        assert!((envelope.watts(0.0) - 3.0 * (46.52 + 2.0 * 0.86)).abs() < 1e-9);
        assert!((envelope.watts(48.0) - 276.84).abs() < 1e-6);
        assert_eq!(envelope.watts(48.1), f64::INFINITY);
        assert!(envelope.price(0.5) < envelope.price(10.0));
    }
}
