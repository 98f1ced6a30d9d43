//! The parameters of a law that need the least energy in a world.
//!
//! ```
//! use headroom_control::LawName;
//! use headroom_lab::simulate::Setting;
//! use headroom_lab::tuning::Search;
//!
//! let mut file = Setting::default();
//! file.scenario.duration_s = Some(60.0);
//! let outcome = Search {
//!     file: &file,
//!     law: LawName::SLO_POWER,
//!     world: &|_seed| Ok((file.clone(), "default".to_owned())),
//!     budget: 4,
//!     seeds: 2,
//!     seed: 1,
//!     max_over_percent: None,
//!     threads: 2,
//! }
//! .run()?;
//! assert_eq!(outcome.tried, 4);
//! assert!(outcome.toml.starts_with("[law.slo-power]"));
//! # Ok::<(), headroom_console::Failure>(())
//! ```

use crate::simulate::{Figures, Progress, Setting, figures};
use anyhow::anyhow;
use headroom_console::Failure;
use headroom_control::{LawConfig, LawName, Parameter};
use headroom_record::statistics::Estimate;
use headroom_sim::bound::least;
use headroom_sim::run_many;
use headroom_sim::search::{Axis, minimise};
use serde::Serialize;
use std::collections::BTreeMap;

/// Periods over the target that are put up with where the defaults do not decide, as a share.
const MIN_ALLOWED: f64 = 0.01;
/// Above every energy: sets that break the SLO are distinguished by how often alone.
const BROKEN: f64 = 1e30;

/// What came of it. Differences are the tuned parameters' less the defaults', under the same arrivals and sizes, on seeds
/// that the search never saw.
#[derive(Debug, Serialize)]
pub struct Outcome {
    /// The law.
    pub law: String,
    /// The trace.
    pub trace: String,
    /// Sets of parameters that were tried.
    pub tried: usize,
    /// Seeds of the search; as many others judged.
    pub seeds: u64,
    /// Periods over the target that were put up with, percent.
    pub allowed_over_percent: f64,
    /// The parameters found, `TABLE.KEY`.
    pub parameters: BTreeMap<String, f64>,
    /// The same as a configuration file has them.
    pub toml: String,
    /// Energy, percent.
    pub energy_percent: Estimate,
    /// Periods over the target, percentage points.
    pub periods_over_percent: Estimate,
    /// Periods over the target with the defaults, percent.
    pub default_over_percent: Estimate,
    /// The same with the parameters found.
    pub tuned_over_percent: Estimate,
    /// Energy with the defaults, joules.
    pub default_j: Estimate,
    /// The same with the parameters found.
    pub tuned_j: Estimate,
    /// Energy over what no schedule can go under, percent; `None` where there is no such bound, or requests were left unanswered.
    pub default_over_bound_percent: Option<Estimate>,
    /// The same with the parameters found.
    pub tuned_over_bound_percent: Option<Estimate>,
    /// Whether the parameters are worth it: less energy, not by chance, and the SLO kept as often as allowed.
    pub recommended: bool,
}

/// What is searched.
#[derive(Clone, Copy)]
pub struct Search<'a> {
    /// The scenario: its tables of the law are where the search begins.
    pub file: &'a Setting,
    /// The law whose parameters are searched.
    pub law: LawName,
    /// The world of a seed, with the name of its trace.
    pub world: &'a (dyn Fn(u64) -> Result<(Setting, String), Failure> + Sync),
    /// Sets of parameters that are tried.
    pub budget: u64,
    /// Seeds that each set is tried on; as many others judge the winner.
    pub seeds: u64,
    /// Seed of the search.
    pub seed: u64,
    /// Periods that may be over the target, percent; `None`: what the defaults reach, and at least 1.
    pub max_over_percent: Option<f64>,
    /// Runs at once.
    pub threads: usize,
}

impl Search<'_> {
    /// Searches, and judges the winner on fresh seeds.
    ///
    /// # Errors
    /// A law without parameters, a share that is none, a run that does not end.
    pub fn run(&self) -> Result<Outcome, Failure> {
        // A law that this world does not bear is refused with its line, before its parameters are looked at.
        self.file.guarded(self.law)?;
        let parameters = self.file.search_space(self.law)?;
        if parameters.is_empty() {
            return Err(Failure::usage(anyhow!(
                "--law {}: it has no parameters to search. Choose another, or compare it as it is: headroom compare",
                self.law
            )));
        }
        if let Some(over) = self.max_over_percent
            && !(0.0..=100.0).contains(&over)
        {
            return Err(Failure::usage(anyhow!(
                "--max-over is {over}: it must be 0 to 100 percent"
            )));
        }
        let worlds = |from: u64| {
            (from..from + self.seeds)
                .map(self.world)
                .collect::<Result<Vec<_>, _>>()
        };
        // The search sees the first seeds, the verdict is on the next.
        let (train, judge) = (worlds(1)?, worlds(1 + self.seeds)?);
        let trace = train.first().map_or_else(String::new, |(_, name)| name.clone());
        let threads = self.threads;

        let all = self.budget * self.seeds + 2 * self.seeds;
        let progress = Progress::new(format!("tuning {}", self.law), all);
        let runs = |points: &[LawConfig], worlds: &[(Setting, String)], first: u64| {
            let plan: Vec<(usize, usize)> = (0..points.len())
                .flat_map(|point| (0..worlds.len()).map(move |seed| (point, seed)))
                .collect();
            let done = run_many(&plan, threads, |_, (point, seed)| {
                let mut setting = worlds[*seed].0.clone();
                setting.law = points[*point].clone();
                let result = figures(&setting, self.law, first + *seed as u64);
                progress.add(1);
                result
            });
            let mut done = done.into_iter();
            points
                .iter()
                .map(|_| done.by_ref().take(worlds.len()).collect::<Vec<_>>())
                .collect::<Vec<_>>()
        };
        let whole =
            |results: Vec<Result<Figures, Failure>>| results.into_iter().collect::<Result<Vec<_>, _>>();
        let mean = |figures: &[Figures], pick: fn(&Figures) -> f64| {
            figures.iter().map(pick).sum::<f64>() / figures.len().max(1) as f64
        };

        let start: Vec<f64> = parameters
            .iter()
            .map(|parameter| parameter.get(&self.file.law))
            .collect();
        let config = |point: &[f64]| {
            let mut law = self.file.law.clone();
            for (parameter, value) in parameters.iter().zip(point) {
                parameter.set(&mut law, *value);
            }
            law
        };
        let mut allowed = self.max_over_percent.map(|percent| percent / 100.0);
        let mut failed = None;
        let axis = |parameter: &Parameter| Axis {
            low: parameter.low,
            high: parameter.high,
            whole: parameter.whole,
        };
        let axes: Vec<Axis> = parameters.iter().map(axis).collect();
        let found = minimise(&axes, &start, self.budget as usize, self.seed, |points| {
            let configs: Vec<LawConfig> = points.iter().map(|point| config(point)).collect();
            let each = runs(&configs, &train, 1)
                .into_iter()
                .map(|results| match whole(results) {
                    Ok(figures) => {
                        let over = mean(&figures, |run| run.periods_over);
                        // The first point is the defaults: what they reach is put up with.
                        let allowed = *allowed.get_or_insert(over.max(MIN_ALLOWED));
                        if over > allowed {
                            BROKEN * (1.0 + over)
                        } else {
                            mean(&figures, |run| run.energy_j)
                        }
                    }
                    // A set that the law refuses, or under which the backlog grows without end, is no candidate; that the
                    // defaults are refused is an error.
                    Err(error) => {
                        failed.get_or_insert(error);
                        f64::NAN
                    }
                });
            each.collect()
        });
        if !found.value.is_finite() {
            return Err(failed.unwrap_or_else(|| Failure::Run(anyhow!("no set of parameters could be run"))));
        }
        let verdict = runs(
            &[self.file.law.clone(), config(&found.point)],
            &judge,
            1 + self.seeds,
        );
        drop(progress);
        let mut verdict = verdict.into_iter().map(whole);
        let (Some(default), Some(tuned)) = (verdict.next().transpose()?, verdict.next().transpose()?) else {
            return Err(Failure::Run(anyhow!("nothing was judged")));
        };
        let allowed = allowed.unwrap_or(MIN_ALLOWED);
        let bounds: Option<Vec<f64>> = judge
            .iter()
            .zip(1 + self.seeds..)
            .map(|((setting, _), seed)| {
                Some(least(&setting.scenario, seed, setting.asked()).ok()?.prompt.get())
            })
            .collect();
        outcome(
            self,
            &trace,
            &parameters,
            &found.point,
            found.tried,
            allowed,
            &default,
            &tuned,
            bounds.as_deref(),
        )
        .ok_or_else(|| Failure::Run(anyhow!("nothing was judged")))
    }
}

#[expect(clippy::too_many_arguments, reason = "what a search comes to, each part once")]
fn outcome(
    search: &Search<'_>,
    trace: &str,
    parameters: &[Parameter],
    point: &[f64],
    tried: usize,
    allowed: f64,
    default: &[Figures],
    tuned: &[Figures],
    bounds: Option<&[f64]>,
) -> Option<Outcome> {
    let each =
        |figures: &[Figures], pick: fn(&Figures) -> f64| figures.iter().map(pick).collect::<Vec<f64>>();
    let (from, to) = (each(default, |run| run.energy_j), each(tuned, |run| run.energy_j));
    let percent: Vec<f64> = to
        .iter()
        .zip(&from)
        .map(|(to, from)| (to / from - 1.0) * 100.0)
        .collect();
    let over = |figures: &[Figures]| each(figures, |run| run.periods_over * 100.0);
    let over_bound = |joules: &[f64]| {
        let pairs = joules.iter().zip(bounds?);
        let over: Vec<f64> = pairs
            .map(|(joules, bound)| (joules / bound - 1.0) * 100.0)
            .collect();
        // Who is under the bound left requests unanswered.
        Estimate::of(&over).filter(|_| over.iter().all(|percent| *percent >= 0.0))
    };
    let energy_percent = Estimate::of(&percent)?;
    let tuned_over_percent = Estimate::of(&over(tuned))?;
    let mut toml = String::new();
    let mut last = "";
    for (parameter, value) in parameters.iter().zip(point) {
        if parameter.table != last {
            toml.push_str(&format!("[law.{}]\n", parameter.table));
            last = parameter.table;
        }
        match parameter.whole {
            true => toml.push_str(&format!("{} = {value:.0}\n", parameter.key)),
            false => toml.push_str(&format!("{} = {value:?}\n", parameter.key)),
        }
    }
    let named = parameters.iter().zip(point);
    Some(Outcome {
        law: search.law.to_string(),
        trace: trace.to_owned(),
        tried,
        seeds: search.seeds,
        allowed_over_percent: allowed * 100.0,
        parameters: named
            .map(|(parameter, value)| (format!("{}.{}", parameter.table, parameter.key), *value))
            .collect(),
        toml,
        recommended: energy_percent.mean < 0.0
            && energy_percent.is_not_zero()
            && tuned_over_percent.mean <= allowed * 100.0,
        energy_percent,
        periods_over_percent: Estimate::of_differences(&over(tuned), &over(default))?,
        default_over_percent: Estimate::of(&over(default))?,
        tuned_over_percent,
        default_over_bound_percent: over_bound(&from),
        tuned_over_bound_percent: over_bound(&to),
        default_j: Estimate::of(&from)?,
        tuned_j: Estimate::of(&to)?,
    })
}
