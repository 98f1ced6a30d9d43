//! What is run for each figure of the SLO-Power paper, and on which traces.

use crate::simulate::{Setting, named_trace};
use headroom_console::Document;
use headroom_console::Failure;
use headroom_control::LawName;
use headroom_sim::scenario::ArrivalMeter;
use headroom_workload::Spacing;
use headroom_workload::Trace;
use headroom_workload::generate::PUBLISHED_STEP;
use std::path::Path;

/// The calibrated plant, with its reasons.
pub const CALIBRATION: &str = include_str!("../../../slo-power-paper.scenario.toml");
/// Where the hold band of SLO-Power begins, milliseconds: see the calibration.
const HOLD_FROM_MS: f64 = 100.0;

/// The guards and the thresholds of Figure 7, and the targets of Figure 8 in milliseconds.
pub const GUARDS: [f64; 3] = [0.7, 0.8, 0.9];
/// As [`GUARDS`].
pub const THRESHOLDS: [f64; 5] = [0.45, 0.55, 0.65, 0.75, 0.85];
/// As [`GUARDS`].
pub const TARGETS_MS: [f64; 3] = [150.0, 200.0, 250.0];
/// The laws of Figure 8.
pub const BASELINES: [LawName; 4] = [
    LawName::SLO_POWER,
    LawName::PEGASUS_AS_RUN,
    LawName::K8S_AS_RUN,
    LawName::POWER_MANAGER,
];

/// Which trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Load {
    /// Wikipedia's, on the cluster.
    Wikipedia,
    /// Azure's, on the cluster.
    Azure,
    /// A third of Wikipedia's, on one node.
    WikipediaNode,
    /// A third of Azure's, on one node.
    AzureNode,
}

impl Load {
    const ALL: [Self; 4] = [Self::Wikipedia, Self::Azure, Self::WikipediaNode, Self::AzureNode];

    const fn file(self) -> &'static str {
        match self {
            Self::Wikipedia => "wikipedia-cluster.txt",
            Self::Azure => "azure-cluster.txt",
            Self::WikipediaNode => "wikipedia-node.txt",
            Self::AzureNode => "azure-node.txt",
        }
    }

    const fn is_one_node(self) -> bool {
        matches!(self, Self::WikipediaNode | Self::AzureNode)
    }
}

/// The traces: the authors' own, the same for each seed, or generated ones, another for each.
pub struct Traces {
    /// For each load of [`Load::ALL`], one or one a seed.
    all: Vec<Vec<Trace>>,
    published: bool,
}

impl Traces {
    /// Reads the published traces, or generates those of so many seeds.
    ///
    /// # Errors
    /// A file that is missing or holds something other than rates.
    pub fn read(folder: Option<&Path>, seeds: u64) -> Result<Self, Failure> {
        let published = |load: Load, folder: &Path| {
            let trace = Trace::from_file(folder.join(load.file()), PUBLISHED_STEP);
            trace.map(|trace| vec![trace]).map_err(Failure::usage)
        };
        let generated = |load: Load| {
            let one = |seed| {
                let name = if matches!(load, Load::Wikipedia | Load::WikipediaNode) {
                    "wikipedia"
                } else {
                    "azure"
                };
                let trace = named_trace(name, PUBLISHED_STEP, seed)?;
                match load.is_one_node() {
                    true => trace.scaled(1.0 / 3.0).map_err(Failure::usage),
                    false => Ok(trace),
                }
            };
            (1..=seeds).map(one).collect::<Result<Vec<_>, _>>()
        };
        let all = Load::ALL.into_iter().map(|load| match folder {
            Some(folder) => published(load, folder),
            None => generated(load),
        });
        Ok(Self {
            all: all.collect::<Result<Vec<_>, _>>()?,
            published: folder.is_some(),
        })
    }

    /// The trace of a load under a seed.
    pub fn of(&self, load: Load, seed: u64) -> &Trace {
        let of_load = &self.all[load as usize];
        &of_load[(seed as usize - 1) % of_load.len()]
    }

    /// Which traces they are, in a sentence.
    pub const fn said(&self) -> &'static str {
        if self.published {
            "the authors' published traces"
        } else {
            "generated traces like the published ones, another with each seed (--traces DIR takes the authors' own)"
        }
    }

    /// Whether they are the authors' own.
    pub const fn are_published(&self) -> bool {
        self.published
    }
}

/// Something that is run with every seed.
pub struct Case {
    world: Setting,
    /// The law.
    pub law: LawName,
    load: Load,
}

impl Case {
    /// Its world with its trace, and the trace's name.
    pub fn setting(&self, traces: &Traces, seed: u64) -> (Setting, String) {
        let trace = traces.of(self.load, seed);
        let mut setting = self.world.clone();
        let duration_s = setting.scenario.duration_s;
        let rates = trace.rates().iter().map(|rate| rate.get()).collect();
        setting.scenario = setting.scenario.with_trace(rates, trace.step(), Spacing::Poisson);
        setting.scenario.duration_s = duration_s;
        (setting, trace.name().to_owned())
    }
}

/// A case of a [`Plan`].
pub type CaseId = usize;

/// Every case, by figure.
pub struct Plan {
    base: Setting,
    cases: Vec<Case>,
    /// Figure 1: elastic scaling and powersave, on Wikipedia's and on Azure's trace.
    pub elastic_one: [CaseId; 2],
    /// As `elastic_one`.
    pub powersave_one: [CaseId; 2],
    /// Figure 6(a) to (d).
    pub power_only: CaseId,
    /// As `power_only`.
    pub elastic_only: CaseId,
    /// As `power_only`.
    pub joint: CaseId,
    /// As `power_only`.
    pub joint_azure: CaseId,
    /// (a) with the hold band and the floor under the cap that the authors' code has.
    pub power_only_code: CaseId,
    /// (b) with Equation 3 as the authors' code applies it in the cluster.
    pub elastic_code: CaseId,
    /// (c) and (d) with requests counted.
    pub joint_counted: [CaseId; 2],
    /// Figure 7, by guard and threshold.
    pub grid: Vec<Vec<CaseId>>,
    /// Figure 8, by target and law.
    pub targets: Vec<Vec<CaseId>>,
    /// SLO-Power at each target of Figure 8 with the band of 100 ms under the guard, as in the authors' code.
    pub absolute_band: Vec<CaseId>,
}

struct Builder {
    base: Setting,
    cases: Vec<Case>,
}

impl Builder {
    fn add(&mut self, law: LawName, load: Load, change: impl FnOnce(&mut Setting)) -> CaseId {
        let mut world = self.base.clone();
        if load.is_one_node() {
            for group in &mut world.scenario.nodes {
                group.count = 1;
            }
            world.law.k8s_as_run.nodes = 1;
        }
        change(&mut world);
        self.cases.push(Case { world, law, load });
        self.cases.len() - 1
    }
}

/// The hold band begins at the same latency for every target and guard.
fn keep_band(setting: &mut Setting) {
    let guarded_ms = setting.scenario.service.target_ms * setting.law.slo_power.guard;
    setting.law.slo_power.hold_band_ms = (guarded_ms - HOLD_FROM_MS).max(0.0);
}

/// The power component as the paper's text has it: it lowers the cap whenever latency is under the guard. The hold band, and
/// the floor that keeps the cap above the consumption, are the authors' code's; so is that each step of 3/5 W is rounded up
/// to a whole watt of each node.
fn as_the_text(setting: &mut Setting) {
    let nodes: u32 = setting.scenario.nodes.iter().map(|group| group.count).sum();
    let tuning = &mut setting.law.slo_power;
    tuning.hold_band_ms = 0.0;
    tuning.cap_floor_over_consumed = 0.0;
    // The law takes eta over D off the whole cap: with D = 1, eta.
    tuning.power_step_w_per_core = Some(f64::from(nodes));
    tuning.sustained_periods = 1;
}

/// The rate to be told so that Equation 3 comes to what the authors' code computes for its cluster: with μ = 24, the whole
/// arrival rate, and the result times the number n of nodes. From n λT'/(μT' - 1) = λT'/(μ'T' - 1): μ' = 1/T' + (μ - 1/T')/n.
fn assumed_as_in_the_cluster(setting: &Setting) -> f64 {
    const CLUSTER_RATE: f64 = 24.0;
    let guarded_s = setting.scenario.service.target_ms / 1e3 * setting.law.slo_power.guard;
    let nodes: u32 = setting.scenario.nodes.iter().map(|group| group.count).sum();
    1.0 / guarded_s + (CLUSTER_RATE - 1.0 / guarded_s) / f64::from(nodes.max(1))
}

impl Plan {
    /// The plan; runs are cut to `duration_s` where it is given.
    ///
    /// # Errors
    /// Never, as long as the calibration that ships with the program is a scenario.
    pub fn new(duration_s: Option<f64>) -> Result<Self, Failure> {
        let document = Document::shipped("slo-power-paper.scenario.toml", CALIBRATION);
        let mut base = Setting::from_document(document)?;
        base.scenario.duration_s = duration_s;
        let mut plan = Builder {
            base: base.clone(),
            cases: Vec::new(),
        };
        let as_is = |_: &mut Setting| {};
        let one = |plan: &mut Builder, law| {
            [Load::WikipediaNode, Load::AzureNode].map(|load| plan.add(law, load, as_is))
        };
        let elastic_one = one(&mut plan, LawName::ELASTIC_ONLY);
        let powersave_one = one(&mut plan, LawName::POWERSAVE);
        let power_only = plan.add(LawName::POWER_ONLY, Load::Wikipedia, as_the_text);
        let elastic_only = plan.add(LawName::ELASTIC_ONLY, Load::Wikipedia, as_is);
        let joint = plan.add(LawName::SLO_POWER, Load::Wikipedia, as_is);
        let joint_azure = plan.add(LawName::SLO_POWER, Load::Azure, as_is);
        let power_only_code = plan.add(LawName::POWER_ONLY, Load::Wikipedia, as_is);
        let elastic_code = plan.add(LawName::ELASTIC_ONLY, Load::Wikipedia, |setting| {
            setting.control.assumed_rate_per_core_s = Some(assumed_as_in_the_cluster(setting));
        });
        let joint_counted = [Load::Wikipedia, Load::Azure].map(|load| {
            plan.add(LawName::SLO_POWER, load, |setting| {
                setting.scenario.telemetry.arrivals = ArrivalMeter::Requests;
            })
        });
        let grid = GUARDS.map(|guard| {
            let row = THRESHOLDS.map(|threshold| {
                plan.add(LawName::SLO_POWER, Load::Wikipedia, |setting| {
                    setting.law.slo_power.guard = guard;
                    setting.law.slo_power.utilisation_threshold = threshold;
                    keep_band(setting);
                })
            });
            row.to_vec()
        });
        let targets = TARGETS_MS.map(|target_ms| {
            let row = BASELINES.map(|law| {
                plan.add(law, Load::Wikipedia, |setting| {
                    setting.scenario.service.target_ms = target_ms;
                    keep_band(setting);
                })
            });
            row.to_vec()
        });
        let absolute_band = TARGETS_MS.map(|target_ms| {
            plan.add(LawName::SLO_POWER, Load::Wikipedia, |setting| {
                setting.scenario.service.target_ms = target_ms;
            })
        });
        Ok(Self {
            base,
            cases: plan.cases,
            elastic_one,
            powersave_one,
            power_only,
            elastic_only,
            joint,
            joint_azure,
            power_only_code,
            elastic_code,
            joint_counted,
            grid: grid.to_vec(),
            targets: targets.to_vec(),
            absolute_band: absolute_band.to_vec(),
        })
    }

    /// The calibrated world.
    pub const fn base(&self) -> &Setting {
        &self.base
    }

    /// All cases.
    pub fn cases(&self) -> &[Case] {
        &self.cases
    }

    /// What is plotted as in Figure 6: the case, its heading, the name of its run.
    pub const fn plotted(&self) -> [(CaseId, &'static str, &'static str); 4] {
        [
            (
                self.power_only,
                "(a) Power component alone, Wikipedia",
                "slo-power-fig6a",
            ),
            (
                self.elastic_only,
                "(b) Elastic component alone, Wikipedia",
                "slo-power-fig6b",
            ),
            (self.joint, "(c) SLO-Power, Wikipedia", "slo-power-fig6c"),
            (self.joint_azure, "(d) SLO-Power, Azure", "slo-power-fig6d"),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cluster_s_equation_3_is_three_times_that_of_the_whole_rate() {
        let document = Document::shipped("slo-power-paper.scenario.toml", CALIBRATION);
        let setting = Setting::from_document(document).unwrap();
        let assumed = assumed_as_in_the_cluster(&setting);
        assert!((assumed - 34.0 / 3.0).abs() < 1e-9, "{assumed}");
        let cores = |rate: f64, assumed: f64| rate * 0.2 / (assumed * 0.2 - 1.0);
        for rate in [60.0, 139.5, 240.0] {
            assert!((cores(rate, assumed) - 3.0 * cores(rate, 24.0)).abs() < 1e-9);
        }
    }
}
