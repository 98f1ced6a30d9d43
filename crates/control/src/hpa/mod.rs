//! The Horizontal Pod Autoscaler of Kubernetes, in full, and as the SLO-Power authors ran it.
//!
//! | part | here |
//! |---|---|
//! | the proposal: ratio, tolerance, missing and unready pods | [`replicas`] |
//! | stabilisation windows, rate policies, fewest and most | [`behaviour`] |
//! | the state machine over the periods | [`Hpa`] |
//! | "K8S" of the SLO-Power paper's Figure 8 | [`K8sAsRun`] |
//!
//! A pod is a number of cores ([`HpaTuning::cores_per_pod`]): a core, a node, or a fraction under quotas. The pods of
//! one service are seen together, so each reports the mean; [`replicas`] can take them one by one.
//!
//! It knows of neither latency nor power. The cap stands at the limit of all cores, always: the authors' baseline
//! writes none, and the paper's power ratio of scaling without capping (193 W of 276 W) counts the whole machine's
//! limit as allocated.

mod as_run;
pub mod behaviour;
mod nodes;
pub mod replicas;
mod tuning;

pub use as_run::{K8sAsRun, K8sAsRunTuning};
pub use nodes::{HpaNodes, HpaNodesTuning};
pub use tuning::{HpaTuning, Metric};

use crate::decision::{Allocation, Decision, Reason};
use crate::law::Law;
use crate::observation::Observation;
use crate::parameter::{OutOfRange, Parameters};
use crate::plant::Plant;
use behaviour::{Behaviour, Bounded, Normalised};
use headroom_units::{Cores, Lever, PerSecond};
use replicas::{Because, Pod, Proposal, Target};
use std::collections::VecDeque;

/// The autoscaler as a law.
#[derive(Clone, Debug)]
pub struct Hpa {
    plant: Plant,
    tuning: HpaTuning,
    cores_per_pod: f64,
    requests_per_pod_s: f64,
    range: (u32, u32),
    behaviour: Behaviour,
    /// Seconds since the law began to see.
    clock_s: f64,
    next_sync_s: f64,
    last_period: Option<u64>,
    window: Window,
    /// When how many pods were given that may not be ready yet.
    starting: VecDeque<(f64, u32)>,
}

/// What was seen since the last decision.
#[derive(Clone, Copy, Debug, Default)]
struct Window {
    busy_core_s: f64,
    core_s: f64,
    arrivals: f64,
    seconds: f64,
}

impl Window {
    fn add(&mut self, observation: &Observation, cores: Cores) {
        let seconds = observation.length.get();
        if let Some(utilisation) = observation.utilisation {
            let core_s = cores.get() * seconds;
            self.core_s += core_s;
            self.busy_core_s += utilisation.get() * core_s;
        }
        if let Some(traffic) = &observation.traffic {
            self.arrivals += traffic.arrivals as f64;
            self.seconds += seconds;
        }
    }

    fn utilisation(&self) -> Option<f64> {
        (self.core_s > 0.0).then(|| self.busy_core_s / self.core_s)
    }

    fn requests_per_s(&self) -> Option<f64> {
        (self.seconds > 0.0).then(|| self.arrivals / self.seconds)
    }
}

impl Hpa {
    /// The law for a machine whose cores serve μ requests per second each.
    ///
    /// # Errors
    /// A parameter outside its range, or pods that do not fit this machine's cores.
    pub fn new(plant: Plant, service_rate: PerSecond, tuning: HpaTuning) -> Result<Self, OutOfRange> {
        tuning.check()?;
        let cores = plant.cores();
        let cores_per_pod = tuning.cores_per_pod.unwrap_or(cores.step().get());
        let steps = cores_per_pod / cores.step().get();
        if (steps - steps.round()).abs() > 1e-6 || cores_per_pod > cores.max().get() {
            let range = format!(
                "a multiple of {}, the smallest change of cores, and at most {}",
                cores.step().get(),
                cores.max().get()
            );
            return Err(OutOfRange::new("cores_per_pod", cores_per_pod, range));
        }
        let fewest = (cores.min().get() / cores_per_pod - 1e-9).ceil().max(1.0) as u32;
        let most = (cores.max().get() / cores_per_pod + 1e-9).floor() as u32;
        if fewest > most {
            let range = format!(
                "such that a whole number of pods makes {} to {} cores",
                cores.min().get(),
                cores.max().get()
            );
            return Err(OutOfRange::new("cores_per_pod", cores_per_pod, range));
        }
        let range = (tuning.min_pods.unwrap_or(fewest), tuning.max_pods.unwrap_or(most));
        for (key, pods) in [("min_pods", range.0), ("max_pods", range.1)] {
            if !(fewest..=most).contains(&pods) {
                let words = format!("between {fewest} and {most}, which this machine's cores allow");
                return Err(OutOfRange::new(key, f64::from(pods), words));
            }
        }
        if range.0 > range.1 {
            let words = format!("at most max_pods, {}", range.1);
            return Err(OutOfRange::new("min_pods", f64::from(range.0), words));
        }
        let served = service_rate.get() * cores_per_pod * tuning.target_utilisation;
        Ok(Self {
            plant,
            cores_per_pod,
            requests_per_pod_s: tuning.target_requests_per_pod_s.unwrap_or(served),
            range,
            behaviour: Behaviour::new(&tuning.up, &tuning.down),
            clock_s: 0.0,
            next_sync_s: tuning.sync_s,
            last_period: None,
            window: Window::default(),
            starting: VecDeque::new(),
            tuning,
        })
    }

    /// The most pods in force that the cores make up.
    fn pods_of(&self, cores: Cores) -> u32 {
        (cores.get() / self.cores_per_pod - 1e-9).ceil().max(1.0) as u32
    }

    fn allocation(&self, pods: u32) -> Allocation {
        Allocation {
            cores: self
                .plant
                .cores()
                .round_up(Cores::new(f64::from(pods) * self.cores_per_pod)),
            ..self.plant.full_allocation()
        }
    }

    /// Moves the clock, also over periods that the law was not shown; whether it is time to decide.
    fn tick(&mut self, observation: &Observation) -> bool {
        let periods = self
            .last_period
            .map_or(1, |last| observation.period.saturating_sub(last).max(1));
        self.last_period = Some(observation.period);
        let length = observation.length.get().max(0.0);
        self.clock_s += length * periods as f64;
        // At the period's end that is nearest, so that a period of 1.001 s does not make it one second late.
        self.clock_s >= self.next_sync_s - length / 2.0
    }

    fn target(&self, metric: Metric) -> Target {
        let (value, of_request) = match metric {
            Metric::Utilisation => (self.tuning.target_utilisation, true),
            Metric::Requests => (self.requests_per_pod_s, false),
        };
        Target {
            value,
            tolerance: self.tuning.tolerance,
            of_request,
        }
    }

    fn unready(&mut self, now_s: f64, current: u32) -> u32 {
        let start_s = self.tuning.pod_start_s;
        self.starting.retain(|(at, _)| *at > now_s - start_s);
        self.starting
            .iter()
            .map(|(_, pods)| *pods)
            .sum::<u32>()
            .min(current)
    }

    /// The proposal that counts, of all metrics: the one with the most pods. Where a metric is not to be had, nothing
    /// is taken away because of the others.
    fn propose(&mut self, now_s: f64, current: u32) -> Option<(Metric, Proposal)> {
        let unready = self.unready(now_s, current);
        let pods = |total: f64| {
            // What unready pods cannot serve, the ready ones do.
            let each = total / f64::from(current.saturating_sub(unready).max(1));
            let pod = move |index: u32| Pod {
                ready: index >= unready,
                metric: Some(each),
            };
            (0..current).map(pod).collect::<Vec<_>>()
        };
        let mut best: Option<(Metric, Proposal)> = None;
        let mut unseen = false;
        for metric in self.tuning.metrics.clone() {
            let total = match metric {
                Metric::Utilisation => self.window.utilisation().map(|u| u * f64::from(current)),
                Metric::Requests => self.window.requests_per_s(),
            };
            match total.and_then(|total| self.target(metric).propose(current, &pods(total))) {
                Some(proposal) if best.is_none_or(|(_, b)| proposal.replicas > b.replicas) => {
                    best = Some((metric, proposal));
                }
                Some(_) => {}
                None => unseen = true,
            }
        }
        best.filter(|(_, proposal)| !(unseen && proposal.replicas < current))
    }

    fn sync(&mut self, observation: &Observation) -> (Allocation, Vec<Reason>) {
        let sync_s = self.tuning.sync_s;
        let now_s = (self.clock_s / sync_s).round().max(1.0) * sync_s;
        self.next_sync_s = now_s + sync_s;
        let current = self.pods_of(self.plant.allocation(&observation.in_force).cores);
        let proposal = self.propose(now_s, current);
        self.window = Window::default();
        if !(self.range.0..=self.range.1).contains(&current) {
            let pods = current.clamp(self.range.0, self.range.1);
            let text = format!(
                "{current} pods in force, where {} to {} are allowed: {pods} given",
                self.range.0, self.range.1
            );
            let numbers = [("pods_before", f64::from(current)), ("pods", f64::from(pods))];
            return (
                self.allocation(pods),
                vec![Reason::new("outside-range", text, &numbers)],
            );
        }
        let Some((metric, proposal)) = proposal else {
            let text =
                "a metric could not be had, and no other asks for more pods: nothing changes".to_owned();
            let reason = Reason::new("hold-unobserved", text, &[("pods", f64::from(current))]);
            return (self.allocation(current), vec![reason]);
        };
        let normalised = self
            .behaviour
            .normalise(now_s, current, proposal.replicas, self.range);
        if normalised.replicas > current && self.tuning.pod_start_s > 0.0 {
            self.starting.push_back((now_s, normalised.replicas - current));
        }
        let reasons = reasons(metric, proposal, current, normalised);
        (self.allocation(normalised.replicas), reasons)
    }
}

/// The proposal's reason, and that of the step that bounded it.
fn reasons(metric: Metric, proposal: Proposal, current: u32, normalised: Normalised) -> Vec<Reason> {
    let wanted = proposal.replicas;
    let name = metric.name();
    let percent = proposal.ratio * 100.0;
    let (rule, text) = match proposal.because {
        Because::WithinTolerance => (
            "within-tolerance",
            format!("{name} at {percent:.0} % of its target: near enough, {current} pods stay"),
        ),
        Because::DirectionUnsure => (
            "direction-unsure",
            format!(
                "{name} at {percent:.0} % of its target, but pods not ready could turn that around: {current} stay"
            ),
        ),
        Because::Ratio if wanted > current => (
            "scale-up",
            format!("{name} at {percent:.0} % of its target: {wanted} pods wanted, {current} in force"),
        ),
        Because::Ratio if wanted < current => (
            "scale-down",
            format!("{name} at {percent:.0} % of its target: {wanted} pods would do, {current} in force"),
        ),
        Because::Ratio => (
            "hold",
            format!("{name} at {percent:.0} % of its target, which takes the {current} pods in force"),
        ),
    };
    let numbers = [
        ("ratio", proposal.ratio),
        ("pods_before", f64::from(current)),
        ("pods_wanted", f64::from(wanted)),
        ("pods", f64::from(normalised.replicas)),
    ];
    let mut reasons = vec![Reason::new(rule, text, &numbers)];
    let given = normalised.replicas;
    let bounded = match normalised.bounded {
        Bounded::No => None,
        Bounded::Window => Some((
            "stabilised",
            format!("the proposals of the stabilisation window make it {given}"),
        )),
        Bounded::Rate => Some((
            "rate-limited",
            format!("the policies allow no faster change: {given} now"),
        )),
        Bounded::Range => Some((
            "at-bound",
            format!("{given} is as far as the number of pods may go"),
        )),
    };
    if let Some((rule, text)) = bounded {
        let stabilised = [("pods_stabilised", f64::from(normalised.stabilised)), numbers[3]];
        reasons.push(Reason::new(rule, text, &stabilised));
    }
    reasons
}

impl Law for Hpa {
    fn name(&self) -> &'static str {
        "hpa"
    }

    fn levers(&self) -> &'static [Lever] {
        &[Lever::Cores]
    }

    fn decide(&mut self, observation: &Observation) -> Decision {
        let cores = self.plant.allocation(&observation.in_force).cores;
        self.window.add(observation, cores);
        let (allocation, reasons) = if self.tick(observation) {
            self.sync(observation)
        } else {
            let left_s = (self.next_sync_s - self.clock_s).max(0.0);
            let text = format!("the next look is in {left_s:.0} s");
            let numbers = [("next_sync_s", left_s)];
            let allocation = Allocation {
                cores,
                ..self.plant.full_allocation()
            };
            (allocation, vec![Reason::new("between-syncs", text, &numbers)])
        };
        Decision {
            setting: allocation.into(),
            expected_rate: None,
            reflex: None,
            reasons,
            ..Decision::default()
        }
    }

    fn forget(&mut self) {
        self.window = Window::default();
        self.behaviour.forget();
        self.starting.clear();
        // As a controller that starts again: what is in force then is the first proposal of its windows.
        self.clock_s = 0.0;
        self.next_sync_s = self.tuning.sync_s;
        self.last_period = None;
    }
}
