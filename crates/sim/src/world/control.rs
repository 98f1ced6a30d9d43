//! The control loop: at the end of a period what was seen goes to the law, and what it decides to the nodes.

use super::World;
use super::change::Change;
use crate::energy::EnergyByCause;
use crate::histogram::LatencyHistogram;
use crate::node::{Metered, NodeOutcome, NodeState};
use crate::scenario::ArrivalMeter;
use crate::totals::PeriodTruth;
use headroom_control::resize::Work;
use headroom_control::{
    Allocation, Decision, Distribution, Guardian, Latency, Law, NodeCapacity, Observation, Stack, Traffic,
};
use headroom_units::{
    Cores, Hertz, Joules, Lever, PerSecond, Ratio, Reading, Seconds, Setting, Simulated, Watts,
};
use headroom_workload::random::Draw;

/// Whoever decides: a law in its [`Guardian`], a [`Stack`] as it runs live, or a [`Bare`] one.
pub trait Controller {
    /// Takes one period's observation and decides.
    fn decide(&mut self, observation: &Observation) -> Decision;
}

impl Controller for Guardian {
    fn decide(&mut self, observation: &Observation) -> Decision {
        Self::decide(self, observation)
    }
}

impl Controller for Stack {
    fn decide(&mut self, observation: &Observation) -> Decision {
        Self::decide(self, observation)
    }
}

/// A law without a guardian.
pub struct Bare<'a>(pub &'a mut dyn Law);

impl Controller for Bare<'_> {
    fn decide(&mut self, observation: &Observation) -> Decision {
        self.0.decide(observation)
    }
}

/// One period, for whoever watches: what the law saw and decided, and how it really was.
#[derive(Clone, Debug)]
pub struct Outcome<'a> {
    /// The end of the period, from the start of the run.
    pub at: Seconds,
    /// What the law was given.
    pub observation: &'a Observation,
    /// What it answered.
    pub decision: &'a Decision,
    /// What was in force at the end of the period, as it reads back. Where telemetry is late, what the law was given says
    /// what was in force when it decided.
    pub allocated: Allocation,
    /// The requests as they really were, without noise or loss.
    pub traffic: &'a Traffic,
    /// Their latencies.
    pub latencies: &'a LatencyHistogram,
    /// Energy of all nodes in the period.
    pub energy: Reading<Joules>,
    /// The same by its cause.
    pub energy_by: EnergyByCause,
    /// Mean power.
    pub power: Reading<Watts>,
    /// Mean cores in force.
    pub cores: Cores,
    /// Busy share of the cores in force; `None` where there were none.
    pub utilisation: Option<Ratio>,
    /// Mean frequency of the nodes that served; `None` where none did.
    pub frequency: Option<Hertz>,
    /// Share of the serving nodes' time in which cores were stopped to hold a cap.
    pub throttled: Ratio,
    /// Each node at the end of the period.
    pub nodes: &'a [NodeOutcome],
}

/// What is counted while a period lasts.
#[derive(Clone, Debug, Default)]
pub(super) struct Period {
    index: u64,
    pub(super) arrivals: u64,
    pub(super) completions: u64,
    pub(super) failures: u64,
    pub(super) reflexes: u32,
    pub(super) latencies: LatencyHistogram,
    /// Faults that hide the requests just now.
    pub(super) blind: u32,
}

/// A period that has ended, on which a decision is due.
#[derive(Clone, Debug)]
pub(super) struct Pending {
    index: u64,
    at_s: f64,
    allocated: Allocation,
    traffic: Traffic,
    latencies: LatencyHistogram,
    lost: bool,
    reflexes: u32,
    metered: Metered,
    nodes: Vec<NodeOutcome>,
    work: Vec<Work>,
}

impl World<'_> {
    /// The period ends: everything is read, and the decision is due now or after the telemetry's delay.
    pub(super) fn end_period(&mut self, law: &mut dyn Controller, sink: &mut dyn FnMut(&Outcome<'_>)) {
        let (now_s, length_s) = (self.now_s, self.scenario.service.period_s);
        let mut all = Metered::default();
        let mut nodes = Vec::with_capacity(self.nodes.len());
        for node in &mut self.nodes {
            let read = node.read(now_s);
            all.energy += read.energy;
            all.busy_core_s += read.busy_core_s;
            all.allocated_core_s += read.allocated_core_s;
            all.hertz_s += read.hertz_s;
            all.serving_s += read.serving_s;
            all.throttled_s += read.throttled_s;
            let hertz = if read.serving_s > 0.0 {
                read.hertz_s / read.serving_s
            } else {
                0.0
            };
            let cores = if node.state.serves() {
                node.server.cores()
            } else {
                0.0
            };
            nodes.push(NodeOutcome {
                state: node.state,
                cores: Cores::new(cores),
                cap: node.told.cap,
                in_flight: node.server.jobs() as u64,
                power: Watts::new(read.energy.total().get() / length_s),
                frequency: Hertz::new(hertz),
            });
        }
        let oldest = self
            .nodes
            .iter()
            .filter_map(|node| node.server.oldest_s())
            .min_by(f64::total_cmp);
        // A fixed number of draws each period, so that what is lost never depends on what happened.
        let drawn = self.noise.uniform();
        let allocated = self.allocated();
        let work = self.work();
        let period = &mut self.period;
        let latencies = std::mem::replace(&mut period.latencies, self.spare.pop().unwrap_or_default());
        let failures = std::mem::take(&mut period.failures);
        let pending = Pending {
            index: period.index,
            at_s: now_s,
            allocated,
            traffic: Traffic {
                arrivals: std::mem::take(&mut period.arrivals),
                completions: std::mem::take(&mut period.completions),
                failures,
                failed_by_client: 0,
                in_flight: Some(self.accounts.in_flight),
                oldest_in_flight: oldest.map(|arrived| Seconds::new(now_s - arrived)),
                latency: latencies.latency(self.slo, failures),
            },
            latencies,
            lost: period.blind > 0 || drawn < self.scenario.telemetry.loss,
            reflexes: std::mem::take(&mut period.reflexes),
            metered: all,
            nodes,
            work,
        };
        period.index += 1;
        // Not now + length, whose roundings would add up.
        self.agenda
            .add((period.index + 1) as f64 * length_s, Change::PeriodEnds);
        self.pending.push_back(pending);
        let delay_s = self.scenario.telemetry.delay_s;
        if delay_s > 0.0 {
            self.agenda.add(now_s + delay_s, Change::Decide);
        } else {
            self.decide(law, sink);
        }
    }

    /// Gives the oldest period that waits to the law, and carries out what it answers.
    pub(super) fn decide(&mut self, law: &mut dyn Controller, sink: &mut dyn FnMut(&Outcome<'_>)) {
        let Some(mut pending) = self.pending.pop_front() else {
            return;
        };
        let length_s = self.scenario.service.period_s;
        let metered = pending.metered;
        let energy = metered.energy.total();
        let power = Watts::new(energy.get() / length_s);
        let utilisation = (metered.allocated_core_s > 0.0)
            .then(|| Ratio::new(metered.busy_core_s / metered.allocated_core_s));
        let frequency = (metered.serving_s > 0.0).then(|| Hertz::new(metered.hertz_s / metered.serving_s));
        if let Some(fleet) = self.fleet.as_mut().filter(|_| !pending.lost) {
            let work: Vec<Option<Work>> = pending.work.iter().copied().map(Some).collect();
            fleet.observe(&work);
        }
        let observation = self.observation(&pending, power, utilisation, frequency);
        let decision = law.decide(&observation);
        sink(&Outcome {
            at: Seconds::new(pending.at_s),
            observation: &observation,
            decision: &decision,
            allocated: pending.allocated,
            traffic: &pending.traffic,
            latencies: &pending.latencies,
            energy: Simulated(energy).into(),
            energy_by: metered.energy,
            power: Simulated(power).into(),
            cores: Cores::new(metered.allocated_core_s / length_s),
            utilisation,
            frequency,
            throttled: Ratio::new(if metered.serving_s > 0.0 {
                metered.throttled_s / metered.serving_s
            } else {
                0.0
            }),
            nodes: &pending.nodes,
        });
        let traffic = &pending.traffic;
        let truth = PeriodTruth {
            length_s,
            arrivals: traffic.arrivals,
            completions: traffic.completions,
            failures: traffic.failures,
            // Of a period in which no request ended, the age of the oldest tells.
            latency_to_judge: traffic
                .latency
                .map(|latency| latency.at_slo)
                .or(traffic.oldest_in_flight),
            energy: metered.energy,
            serving_s: metered.serving_s,
            cap_w: pending.allocated.cap.get(),
            busy_core_s: metered.busy_core_s,
            allocated_core_s: metered.allocated_core_s,
            telemetry_lost: pending.lost,
        };
        self.sums.add(&truth, self.slo.target(), &pending.latencies);
        self.sums.count_rules(&decision.reasons);
        pending.latencies.clear();
        self.spare.push(pending.latencies);
        self.switch(&decision.setting);
        let wanted = self.plant.allocation(&decision.setting);
        self.carry_out(wanted);
        self.arm(&decision);
    }

    fn observation(
        &mut self,
        pending: &Pending,
        power: Watts,
        utilisation: Option<Ratio>,
        frequency: Option<Hertz>,
    ) -> Observation {
        let telemetry = self.scenario.telemetry;
        let noise = &mut self.noise;
        // Drawn even where it is not used, so that the stream does not depend on what happened.
        let mut factor = |deviation: f64| (1.0 + deviation * noise.normal()).max(0.0);
        let late = factor(telemetry.latency_noise);
        let hot = factor(telemetry.power_noise);
        let busy = factor(telemetry.utilisation_noise);
        let length_s = self.scenario.service.period_s;
        let arrivals = match telemetry.arrivals {
            ArrivalMeter::Requests => None,
            ArrivalMeter::Users => self
                .scenario
                .arrivals
                .expected(pending.at_s - length_s, pending.at_s),
        };
        let traffic = (!pending.lost).then(|| Traffic {
            arrivals: arrivals.map_or(pending.traffic.arrivals, |expected| expected.round() as u64),
            latency: pending.traffic.latency.map(|latency| scaled(latency, late)),
            ..pending.traffic.clone()
        });
        let mut in_force: Setting = self.allocated().into();
        if let Some(fleet) = &self.fleet {
            in_force = in_force.with(Lever::Servers, fleet.in_force().get(Lever::Servers));
        }
        Observation {
            period: pending.index,
            length: Seconds::new(self.scenario.service.period_s),
            at: Seconds::new(pending.at_s),
            clock: Seconds::new(pending.at_s),
            in_force,
            reflexes: pending.reflexes,
            traffic,
            nodes: self.servers(),
            utilisation: utilisation.map(|share| Ratio::new((share.get() * busy).min(1.0))),
            power: Some(Simulated(power * hot).into()),
            frequency: frequency.map(|mean| Simulated(mean).into()),
            ..Observation::default()
        }
    }

    /// What the nodes that are on were told, together, as it reads back.
    pub(super) fn allocated(&self) -> Allocation {
        let mut all = Allocation::new(Cores::ZERO, Watts::ZERO);
        let mut limit = Some(Hertz::ZERO);
        for node in self.nodes.iter().filter(|node| node.state == NodeState::On) {
            all.cores += node.told.cores;
            all.cap += node.told.cap;
            limit = limit.zip(node.told.frequency).map(|(most, this)| most.max(this));
        }
        all.frequency = limit.filter(|limit| *limit > Hertz::ZERO);
        all
    }

    /// Spreads an allocation over the nodes that are on, as the live cluster does, each part to take effect after its
    /// delay. What a node already has is not sent again.
    pub(super) fn carry_out(&mut self, allocation: Allocation) {
        let on: Vec<usize> = (0..self.nodes.len())
            .filter(|node| self.nodes[*node].state == NodeState::On)
            .collect();
        let capacities: Vec<NodeCapacity> = on.iter().map(|node| self.nodes[*node].capacity).collect();
        let shares = self.spread.shares(allocation.cores, allocation.cap, &capacities);
        let (now_s, delays) = (self.now_s, self.scenario.delays);
        for (index, share) in on.into_iter().zip(shares) {
            let node = &mut self.nodes[index];
            let change = node.change;
            let wanted = Allocation {
                frequency: node.frequency_read_back(allocation.frequency),
                ..Allocation::new(share.cores, share.cap)
            };
            let told = std::mem::replace(&mut node.told, wanted);
            if told.cap != wanted.cap {
                let cap_w = wanted.cap.get();
                self.agenda.add(
                    now_s + delays.cap_s,
                    Change::Cap {
                        node: index,
                        change,
                        cap_w,
                    },
                );
            }
            if told.cores != wanted.cores {
                let cores = wanted.cores.get();
                self.agenda.add(
                    now_s + delays.cores_s,
                    Change::Cores {
                        node: index,
                        change,
                        cores,
                    },
                );
            }
            if told.frequency != wanted.frequency {
                let limit = wanted.frequency;
                self.agenda.add(
                    now_s + delays.frequency_s,
                    Change::Frequency {
                        node: index,
                        change,
                        limit,
                    },
                );
            }
        }
    }
}

fn scaled(latency: Latency, factor: f64) -> Latency {
    Latency {
        // A missed percentile is not measured, so that no noise is on it.
        at_slo: latency.at_slo * if latency.missed { 1.0 } else { factor },
        missed: latency.missed,
        distribution: latency.distribution.map(|all| Distribution {
            mean: all.mean * factor,
            p50: all.p50 * factor,
            p95: all.p95 * factor,
            p99: all.p99 * factor,
            p999: all.p999 * factor,
        }),
    }
}

impl Outcome<'_> {
    /// λ of the period.
    pub fn arrival_rate(&self) -> PerSecond {
        PerSecond::new(self.traffic.arrivals as f64 / self.observation.length.get())
    }
}
