//! Many agents as one machine.

use super::capacity::{capacity, cores_in_force, envelope, everything, of_each, own, together, usable};
use super::counts::{Counts, MeterAtStart, meter, sum};
use super::node::{NodeOptions, NodeState, NodeTask, Wish};
use super::oncall::{ClusterQueries, Counted, Served, together as served_together};
use super::{Network, Shared};
use crate::live::{Device, DevicePeriod, Missing, Refused};
use anyhow::{Context, bail};
use headroom_control::resize::PowerState;
use headroom_control::{CoreRange, Decision, NodeCapacity, OncallObservation, Plant, Spread};
use headroom_units::{
    Cores, Hertz, Joules, Lever, Part, Ratio, Reading, Role, Seconds, Sensor, Setting, Source, Watts,
};
use headroom_wire::Address;
use headroom_wire::client::ClientOptions;
use headroom_wire::message::{Description, Holder, Ranges, Sample};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// How long it is waited for the answers to one decision; what comes later counts from the next period on.
const MAX_ANSWER: Duration = Duration::from_millis(400);

/// How the nodes are reached and commanded.
#[derive(Clone, Debug)]
pub struct ClusterOptions {
    /// Each node's name and address.
    pub nodes: Vec<(String, Address)>,
    /// How they are reached.
    pub client: ClientOptions,
    /// In whose name.
    pub holder: Holder,
    /// How long a lease lives.
    pub lease: Duration,
    /// The control period.
    pub period: Duration,
    /// The smallest change of cores.
    pub step: Cores,
}

/// A node, as the controller has it.
#[derive(Debug)]
struct Node {
    name: String,
    state: Arc<Shared<NodeState>>,
    wish: watch::Sender<Wish>,
    /// As it was asked last.
    counts: Counts,
    meter: MeterAtStart,
    /// What its server on call had counted then.
    served: Option<Counted>,
}

/// What was found at the start.
#[derive(Clone, Debug)]
pub struct Described {
    /// What can be allocated.
    pub plant: Plant,
    /// Where the watts come from; `None` where the nodes' sources differ.
    pub source: Option<Source>,
    /// What the user should know, a line each.
    pub notes: Vec<String>,
    /// The processors of each node that answered, by its name.
    pub processors: BTreeMap<String, u32>,
    /// What each of these said of itself.
    pub descriptions: BTreeMap<String, Description>,
}

/// Every node is held by another controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    /// Who holds which, and for how long.
    pub why: String,
    /// All of them by one of our own name: most likely this one's predecessor, whose leases are about to end.
    pub by_our_name: bool,
}

/// Many agents as one machine: what is decided for all is spread over those that are there.
///
/// Only live nodes are commanded: to the law, one that is lost has no capacity and nothing in force. It puts itself back
/// when its lease ends, and is described anew when it returns. The run keeps it meanwhile: in the accounts it has
/// everything on, and the energy of the run is not known.
#[derive(Debug)]
pub struct ClusterMachine {
    /// In whose name nodes are held.
    name: String,
    nodes: Vec<Node>,
    spread: Spread,
    period: Duration,
    plant: Option<Plant>,
    /// The most cores that may be used, where that is less than all.
    most: Option<Cores>,
    /// Nodes of which the plant is made: those that were live once.
    measured: BTreeSet<String>,
    /// Not all cores of the nodes may be used, so that full is less than everything.
    bounded: bool,
    mixed: bool,
    // Last: dropping it ends the tasks, which release their nodes.
    _network: Network,
}

/// No node could be reached when something was to be set.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("no node is there")]
pub struct NoNode;

impl ClusterMachine {
    /// Starts to connect to every node.
    ///
    /// # Errors
    /// A step that is none, a thread that cannot be started.
    pub fn start(options: ClusterOptions) -> anyhow::Result<Self> {
        let spread = Spread::new(options.step)?;
        let (stop, stopping) = watch::channel(false);
        let (mut nodes, mut tasks) = (Vec::new(), Vec::new());
        for (name, address) in options.nodes {
            let state = Arc::new(Shared::new(NodeState::default()));
            let (wish, wishes) = watch::channel(Wish::default());
            let task = NodeTask {
                options: NodeOptions {
                    name: name.clone(),
                    address,
                    client: options.client.clone(),
                    holder: options.holder.clone(),
                    lease: options.lease,
                    stuck: options.lease.max(options.period * 5),
                    period: options.period,
                },
                state: Arc::clone(&state),
                wish: wishes,
                stop: stopping.clone(),
                sequence: 0,
            };
            tasks.push(task.run());
            nodes.push(Node {
                name,
                state,
                wish,
                counts: Counts::default(),
                meter: MeterAtStart::default(),
                served: None,
            });
        }
        Ok(Self {
            name: options.holder.name().to_owned(),
            nodes,
            spread,
            period: options.period,
            plant: None,
            most: None,
            measured: BTreeSet::new(),
            bounded: false,
            mixed: false,
            _network: Network::start("cluster-nodes", tasks, stop)?,
        })
    }

    /// Waits until every node was described, or until the time is over and at least one was; then nodes that are not
    /// there yet may come later: then the plant [grows](Device::grown).
    ///
    /// # Errors
    /// No node can be reached, each is held by another controller, or none can be commanded: why, for each.
    pub fn describe(&mut self, patience: Duration, most: Option<Cores>) -> anyhow::Result<Described> {
        let deadline = Instant::now() + patience;
        for node in &self.nodes {
            node.state.wait(deadline, |state| state.description.is_some());
        }
        let mut notes = Vec::new();
        let mut found = Vec::new();
        let (mut processors, mut descriptions) = (BTreeMap::new(), BTreeMap::new());
        for node in &self.nodes {
            let state = node.state.lock();
            let usable = match (&state.description, &state.held_by) {
                (None, _) => Err(state
                    .trouble
                    .clone()
                    .unwrap_or_else(|| "it does not answer".to_owned())),
                (_, Some(holder)) => Err(format!(
                    "it is held by {holder:?}: stop that controller, or wait until its lease ends"
                )),
                (Some(description), None) => capacity(description).map(|_| description.clone()),
            };
            match usable {
                Ok(description) => {
                    self.measured.insert(node.name.clone());
                    processors.insert(node.name.clone(), description.node.cores_online);
                    descriptions.insert(node.name.clone(), description.clone());
                    found.push(description);
                }
                Err(why) => notes.push(format!("node {}: {why}", node.name)),
            }
        }
        if found.is_empty() {
            bail!("no node can be commanded: {}", notes.join("; "));
        }
        self.most = most;
        let plant = self.measure(&found)?;
        let sources: Vec<Source> = found.iter().map(|description| description.source).collect();
        let one = sources.iter().all(|source| *source == sources[0]);
        if !one {
            notes.push(
                "the nodes' watts come from different sources and are not added: the cluster's power is unknown"
                    .to_owned(),
            );
        }
        Ok(Described {
            plant,
            source: one.then(|| sources[0]),
            notes,
            processors,
            descriptions,
        })
    }

    /// Makes the plant of these nodes the one that is commanded.
    fn measure(&mut self, found: &[Description]) -> anyhow::Result<Plant> {
        let capacities: Vec<NodeCapacity> = found.iter().filter_map(|node| capacity(node).ok()).collect();
        let (fewest, all) = self.spread.range(&capacities);
        let most = self.most.map_or(all, |most| most.min(all));
        let range = CoreRange::new(fewest, most, self.spread.step())
            .with_context(|| format!("{} nodes", found.len()))?;
        let mut plant = Plant::new(range, envelope(&capacities, most))?;
        for lever in of_each() {
            if let Some(range) = together(found.iter().map(|node| node.ranges.get(lever))) {
                plant = plant.with_range(lever, range)?;
            }
        }
        self.plant = Some(plant);
        self.bounded = most < all;
        Ok(plant)
    }

    /// The queries of the nodes' servers on call, as telemetry.
    pub fn queries(&self) -> ClusterQueries {
        let nodes = self.nodes.iter();
        let states = nodes.map(|node| (node.name.clone(), Arc::clone(&node.state)));
        ClusterQueries::new(states, self.period)
    }

    /// Why no node obeys, where each that is there is another controller's.
    pub fn all_held(&self) -> Option<Held> {
        let (mut held, mut by_our_name) = (Vec::new(), true);
        for node in &self.nodes {
            let state = node.state.lock();
            if state.is_live() {
                return None;
            }
            if let Some(holder) = &state.held_by {
                by_our_name &= *holder == self.name;
                let why = state.trouble.as_deref().unwrap_or_default();
                held.push(format!("node {}: {why}", node.name));
            }
        }
        (!held.is_empty()).then(|| Held {
            why: held.join("; "),
            by_our_name,
        })
    }

    fn live(&self) -> impl Iterator<Item = (&Node, Description, Option<Sample>, Setting)> {
        self.nodes.iter().filter_map(|node| {
            let state = node.state.lock();
            let live = state.is_live().then(|| state.description.clone()).flatten()?;
            Some((node, live, state.sample.clone(), state.in_force))
        })
    }
}

impl Device for ClusterMachine {
    fn begin(&mut self) -> Option<String> {
        // Each node answers once in a period.
        let deadline = Instant::now() + self.period * 2;
        let of_nodes = self.nodes.iter_mut().map(|node| {
            let mut found = None;
            node.state.wait(deadline, |state| {
                found = state.sample.as_ref().and_then(meter);
                found.is_some() || !state.is_live()
            });
            let name = found.as_deref().unwrap_or("unknown");
            let of_node = format!("{}: {name}", node.name);
            node.meter.begin(found);
            of_node
        });
        let mut of_nodes: Vec<String> = of_nodes.collect();
        of_nodes.sort_unstable();
        Some(of_nodes.join("; "))
    }

    /// With a node that is live for the first time. One that goes stays part of the plant: it comes back.
    fn grown(&mut self) -> Option<Plant> {
        let came: Vec<String> = self
            .live()
            .filter(|(node, description, ..)| {
                !self.measured.contains(&node.name) && capacity(description).is_ok()
            })
            .map(|(node, ..)| node.name.clone())
            .collect();
        if came.is_empty() || self.plant.is_none() {
            return None;
        }
        self.measured.extend(came);
        let measured = self
            .nodes
            .iter()
            .filter(|node| self.measured.contains(&node.name));
        let found: Vec<Description> = measured
            .filter_map(|node| {
                let state = node.state.lock();
                state.description.clone().or_else(|| state.last.clone())
            })
            .collect();
        match self.measure(&found) {
            Ok(plant) => Some(plant),
            Err(error) => {
                tracing::error!("what can be set stays as it was at the start: {error:#}");
                None
            }
        }
    }

    fn observe(&mut self, period: &mut DevicePeriod) {
        for node in &self.nodes {
            let is_switched = period.switched.contains_key(&node.name);
            {
                let mut state = node.state.lock();
                if is_switched {
                    state.switched = Some(Instant::now());
                }
                if let Some(why) = state.lost.take().filter(|_| !state.is_switched()) {
                    tracing::warn!(
                        node = node.name,
                        "the node is lost and puts everything back by itself when its lease ends: {why}"
                    );
                }
            }
            period.add(node.part(&period.switched));
        }
        let oncall = self.served(period);
        let seen: Vec<_> = self
            .live()
            .map(|(node, description, sample, in_force)| {
                let cores = cores_in_force(&description, &in_force);
                (node.name.clone(), usable(cores, sample.as_ref()), sample)
            })
            .collect();
        let samples: Option<Vec<&Sample>> = seen.iter().map(|(.., sample)| sample.as_ref()).collect();
        let samples = samples.filter(|samples| !samples.is_empty());
        let usable: Cores = seen.iter().map(|(_, usable, _)| *usable).sum();
        let busy = samples.as_ref().and_then(|samples| {
            samples
                .iter()
                .map(|sample| sample.cpu.map(|cpu| cpu.busy))
                .sum::<Option<Cores>>()
        });
        let throttled = samples.as_ref().and_then(|samples| {
            let shares: Option<Vec<f64>> = samples
                .iter()
                .map(|sample| Some(sample.cpu?.throttled_share.get()))
                .collect();
            let shares = shares?;
            Some(Ratio::new(shares.iter().sum::<f64>() / shares.len() as f64))
        });
        let frequency = samples.as_ref().and_then(|samples| {
            let all: Option<Vec<(&str, Reading<Hertz>)>> = seen
                .iter()
                .zip(samples)
                .map(|((name, ..), sample)| Some((name.as_str(), sample.frequency?)))
                .collect();
            let all = all?;
            // That sources differ is said of the power.
            let sum = sum(&all, &mut true)?;
            Some(sum.map(|hertz| hertz / all.len() as f64))
        });
        let power: Option<Vec<(&str, Reading<Watts>)>> = seen
            .iter()
            .map(|(name, _, sample)| Some((name.as_str(), sample.as_ref()?.energy?.power?)))
            .collect();
        // What a machine draws that boots or shuts down is read by nobody.
        let power = power
            .filter(|_| self.all_metered(&period.switched))
            .and_then(|power| sum(&power, &mut self.mixed));
        let missing = self.missing(&period.switched);
        let zone = format!("{} of {} nodes", seen.len(), self.nodes.len());
        let (energy, cpu_time, refused) = self.counts(&period.switched);
        *period = DevicePeriod {
            cpu_time,
            utilisation: busy
                .filter(|_| usable > Cores::ZERO)
                .map(|busy| Ratio::new(busy / usable).min(Ratio::new(1.0))),
            power,
            // Of a period in which a node's meter stood still, the others' energy is not the cluster's.
            energy: energy.filter(|_| power.is_some()),
            throttled,
            frequency,
            zone,
            refused,
            levers_lost: self.nodes.iter().any(|node| node.state.lock().refused),
            missing,
            oncall,
            ..std::mem::take(period)
        };
    }

    fn in_force(&self) -> Setting {
        let (mut cores, mut cap) = (Cores::ZERO, Watts::ZERO);
        // As fast as the fastest: where one node is not limited, the cluster is not.
        let mut most: Option<Setting> = None;
        for (_, description, _, in_force) in self.live() {
            most = Some(most.map_or(in_force, |most| most.most(in_force)));
            let given = cores_in_force(&description, &in_force);
            cores += given;
            cap += match (in_force.cap(), capacity(&description)) {
                (Some(cap), _) => cap,
                (None, Ok(capacity)) => capacity.power.limit(given),
                (None, Err(_)) => Watts::ZERO,
            };
        }
        most.unwrap_or_default()
            .with(Lever::Cores, Some(cores.get()))
            .with(Lever::Cap, Some(cap.get()))
    }

    fn apply(&mut self, decision: &mut Decision) -> anyhow::Result<()> {
        let Some(plant) = self.plant else {
            bail!("the nodes were not described yet");
        };
        let setting = decision.setting;
        let allocation = plant.allocation(&setting);
        let live: Vec<(usize, NodeCapacity, Ranges)> = self
            .nodes
            .iter()
            .enumerate()
            .filter_map(|(index, node)| {
                let state = node.state.lock();
                let description = state.description.as_ref()?;
                let capacity = capacity(description).ok()?;
                Some((index, capacity, description.ranges.clone()))
            })
            .collect();
        if live.is_empty() {
            bail!(NoNode);
        }
        // One that another holds is asked all the same, so that it is ours when that lease ends; it counts for nothing
        // until then.
        let ours: Vec<bool> = live
            .iter()
            .map(|(index, ..)| self.nodes[*index].state.lock().held_by.is_none())
            .collect();
        let mine: Vec<NodeCapacity> = live
            .iter()
            .zip(&ours)
            .filter(|(_, ours)| **ours)
            .map(|((_, capacity, ..), _)| *capacity)
            .collect();
        // A node that came later than the plant was measured by is part of everything, too.
        let full = !self.bounded && allocation.cores >= plant.cores().max();
        let cores = if full {
            Cores::new(f64::INFINITY)
        } else {
            allocation.cores
        };
        let limits_nothing = allocation.cap >= plant.power().limit(allocation.cores);
        let cap = if limits_nothing {
            Watts::new(f64::MAX)
        } else {
            allocation.cap
        };
        let mut shares = self.spread.shares(cores, cap, &mine).into_iter();
        let mut asked = Vec::new();
        for ((index, capacity, ranges), ours) in live.iter().zip(&ours) {
            let share = if *ours {
                shares.next()
            } else {
                self.spread.shares(cores, cap, &[*capacity]).pop()
            };
            let Some(share) = share else { continue };
            let node = &self.nodes[*index];
            // What holds the cap may have a narrower range than what the cores can need.
            let caps = ranges.get(Lever::Cap);
            let cap = caps.map(|caps| share.cap.get().clamp(caps.min, caps.max));
            let wanted = own(&setting, ranges)
                .with(Lever::Cores, Some(share.cores.min(capacity.most).get()))
                .with(Lever::Cap, cap);
            let number = node.wish(wanted);
            if *ours {
                asked.push((node, number));
            }
        }
        let deadline = Instant::now() + MAX_ANSWER;
        let (mut refused, count) = (Vec::new(), asked.len());
        for (node, number) in asked {
            let answered = |state: &NodeState| state.answered >= number || !state.is_live();
            if !node.state.wait(deadline, answered) {
                tracing::warn!(node = node.name, "the node has not answered yet");
            }
            let state = node.state.lock();
            if state.refused && state.held_by.is_none() {
                refused.push(format!(
                    "node {}: {}",
                    node.name,
                    state.trouble.as_deref().unwrap_or_default()
                ));
            }
        }
        // One that refuses among others is in trouble, as one that is not there is; its part says why.
        if refused.is_empty() || refused.len() < count {
            Ok(())
        } else {
            bail!("{}", refused.join("; "))
        }
    }
}

impl Node {
    /// What it is in, what is in force and what it uses, as it was reported last.
    fn part(&self, switched: &BTreeMap<String, PowerState>) -> Part {
        let state = self.state.lock();
        let word = match (&state.description, &state.held_by) {
            (Some(_), None) if state.refused => "refusing",
            (Some(_), None) => "held",
            (Some(_), Some(_)) => "held by another",
            (None, _) => switched.get(&self.name).map_or_else(
                || match state.is_switched() {
                    true => PowerState::Booting.name(),
                    false => "unreachable",
                },
                |state| state.name(),
            ),
        };
        let part = Part::new(&self.name, Role::Node)
            .in_state(word)
            .fact("agent", word);
        let Some(description) = &state.description else {
            let trouble = state
                .trouble
                .clone()
                .filter(|_| !switched.contains_key(&self.name) && !state.is_switched());
            return Part {
                trouble: trouble.into_iter().collect(),
                ..part
            };
        };
        let cores = cores_in_force(description, &state.in_force);
        let usable = usable(cores, state.sample.as_ref());
        let sample = state.sample.as_ref();
        let busy = sample.and_then(|sample| sample.cpu).map(|cpu| cpu.busy);
        let power = sample
            .and_then(|sample| sample.energy)
            .and_then(|energy| energy.power);
        let frequency = sample.and_then(|sample| sample.frequency);
        let throttled = sample
            .and_then(|sample| sample.cpu)
            .map(|cpu| cpu.throttled_share);
        let part = part
            .set_to(&state.in_force)
            .with(Lever::Cores, Some(cores.get()))
            .with(Sensor::Power, power.map(|power| power.value.get()))
            .with(Sensor::BusyCores, busy.map(Cores::get))
            .with(
                Sensor::FrequencyMean,
                frequency.map(|frequency| frequency.value.get()),
            )
            .with(Sensor::Throttled, throttled.map(Ratio::get))
            .with(
                Sensor::Utilisation,
                busy.filter(|_| usable > Cores::ZERO)
                    .map(|busy| (busy / usable).min(1.0)),
            );
        Part {
            source: power.map(|power| power.source),
            trouble: state.trouble.clone().into_iter().collect(),
            ..part
        }
    }

    /// Wishes, or says that the last wish stands; its number.
    fn wish(&self, setting: Setting) -> u64 {
        let now = Instant::now();
        let connected_anew = {
            let state = self.state.lock();
            state.in_force.is_empty() || state.refused
        };
        let mut number = 0;
        self.wish.send_if_modified(|wish| {
            let changed = wish.setting != setting || wish.number == 0 || connected_anew;
            wish.at = Some(now);
            if changed {
                wish.number += 1;
                wish.setting = setting;
            }
            number = wish.number;
            changed
        });
        number
    }
}

impl ClusterMachine {
    /// What the servers on call did since the last call: of each into its node's part, and of all together. A node that is lost, and not
    /// switched off, may serve as before: then nothing is known of all.
    fn served(&mut self, period: &mut DevicePeriod) -> Option<OncallObservation> {
        let mut all = Vec::new();
        for node in &mut self.nodes {
            let mut state = node.state.lock();
            let known = state.description.as_ref().or(state.last.as_ref());
            if known.is_none_or(|known| known.oncall.is_none()) {
                continue;
            }
            let least = state.waiting_least.take();
            let sample = state.sample.as_ref().filter(|_| state.is_live());
            let served = Served::of(sample, least, self.period, &mut node.served);
            let of_server = sample.and_then(|sample| sample.oncall.as_ref());
            if let Some(oncall) = of_server {
                let mut part = Part::new(&node.name, Role::Node);
                part.trouble.extend(
                    oncall
                        .now
                        .as_ref()
                        .err()
                        .map(|why| format!("{}: {why}", oncall.server)),
                );
                period.add(match &served {
                    Some(served) => served.on(part),
                    None => part,
                });
            }
            if !state.is_switched() {
                all.push(served);
            }
        }
        served_together(&all)
    }

    /// Whether each node is there to say what it draws, or off.
    fn all_metered(&self, switched: &BTreeMap<String, PowerState>) -> bool {
        self.nodes
            .iter()
            .all(|node| switched.get(&node.name) == Some(&PowerState::Off) || node.state.lock().is_live())
    }

    /// The nodes that are not there although nobody switched them of late, or another controller's: each has everything on, for all
    /// that is known here. One that never described itself counts as the largest of those that did.
    fn missing(&self, switched: &BTreeMap<String, PowerState>) -> Missing {
        let (mut missing, mut unknown) = (Missing::default(), 0_u32);
        let mut largest = (Cores::ZERO, Watts::ZERO);
        for node in &self.nodes {
            let state = node.state.lock();
            let known = state.description.as_ref().or(state.last.as_ref());
            let full = known.map(everything);
            if let Some((cores, cap)) = full {
                largest = (largest.0.max(cores), largest.1.max(cap));
            }
            if state.is_live() || state.is_switched() || switched.contains_key(&node.name) {
                continue;
            }
            missing.nodes += 1;
            match full {
                Some((cores, cap)) => {
                    missing.cores += cores;
                    missing.cap += cap;
                }
                None => unknown += 1,
            }
        }
        missing.cores += largest.0 * f64::from(unknown);
        missing.cap += largest.1 * f64::from(unknown);
        missing
    }

    /// What all nodes counted since the last call: energy and processor time, `None` where one of them cannot tell, and the
    /// readings that their meters refused. One that is off draws nothing. Where a node is missing, boots or shuts down the
    /// energy is not known: neither then nor later, since a period with the joules of several would have the requests of one.
    /// The processor time is that of the live nodes.
    fn counts(
        &mut self,
        switched: &BTreeMap<String, PowerState>,
    ) -> (Option<Reading<Joules>>, Option<Seconds>, Vec<Refused>) {
        let (mut energies, mut cpus) = (Some(Vec::new()), Some(Seconds::ZERO));
        let mut refused = Vec::new();
        let mut any = false;
        let all_metered = self.all_metered(switched);
        for node in &mut self.nodes {
            let state = node.state.lock();
            let Some(sample) = state.sample.as_ref().filter(|_| state.is_live()) else {
                if state.is_live() {
                    (energies, cpus) = (None, None);
                }
                (node.counts.energy, node.counts.cpu) = (None, None);
                continue;
            };
            any = true;
            let now = Counts::of(sample);
            drop(state);
            let (energy, cpu) = now.since(&node.counts);
            let energy = energy.filter(|_| all_metered && node.meter.is_that_of(&node.name, &now));
            refused.extend(now.refused_since(&node.counts).map(|since| Refused {
                node: node.name.clone(),
                meter: since.meter,
                count: since.count,
            }));
            node.counts = now;
            match (&mut energies, energy) {
                (Some(energies), Some(energy)) => energies.push((node.name.as_str(), energy)),
                _ => energies = None,
            }
            cpus = cpus.zip(cpu).map(|(sum, cpu)| sum + cpu);
        }
        if !any {
            return (None, None, refused);
        }
        (
            energies.and_then(|energies| sum(&energies, &mut self.mixed)),
            cpus,
            refused,
        )
    }
}

#[cfg(test)]
#[path = "machine_tests.rs"]
mod tests;
