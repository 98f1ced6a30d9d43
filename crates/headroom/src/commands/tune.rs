//! `headroom tune`: the parameters of a law that need the least energy for a service and a trace.

use crate::cli::TuneArgs;
use crate::simulate::{Figures, Progress, Setting, figures, jobs};
use anyhow::anyhow;
use headroom_console::Failure;
use headroom_console::say;
use headroom_control::{LawConfig, Parameter};
use headroom_record::statistics::Estimate;
use headroom_sim::bound::lower_bound;
use headroom_sim::run_many;
use headroom_sim::search::{Axis, minimise};
use serde::Serialize;
use std::collections::BTreeMap;
use std::time::Instant;

/// Periods over the target that are put up with where the defaults do not decide, as a share.
const MIN_ALLOWED: f64 = 0.01;
/// Above every energy: sets that break the promise are told apart by how often alone.
const BROKEN: f64 = 1e30;

/// What came of it. Differences are the tuned parameters' less the defaults', under the same arrivals and sizes, on seeds
/// that the search never saw.
#[derive(Debug, Serialize)]
struct Outcome {
    law: String,
    trace: String,
    tried: usize,
    seeds: u64,
    allowed_over_percent: f64,
    parameters: BTreeMap<String, f64>,
    toml: String,
    energy_percent: Estimate,
    periods_over_percent: Estimate,
    default_over_percent: Estimate,
    tuned_over_percent: Estimate,
    default_j: Estimate,
    tuned_j: Estimate,
    /// Energy over what no schedule can go under, percent; `None` where there is no such bound, or requests were left unanswered.
    default_over_bound_percent: Option<Estimate>,
    tuned_over_bound_percent: Option<Estimate>,
    recommended: bool,
}

/// Searches, judges the winner on fresh seeds, and prints both.
///
/// # Errors
/// A law without parameters, a scenario or a trace that is wrong, a run that does not end.
pub fn run(args: &TuneArgs) -> Result<(), Failure> {
    let file = Setting::read(args.world.scenario.as_deref())?;
    // A law that this world does not bear is refused with its line, before its parameters are looked at.
    file.guarded(args.law)?;
    let parameters = file.search_space(args.law)?;
    if parameters.is_empty() {
        return Err(Failure::usage(anyhow!(
            "--law {}: it has no parameters to search. Choose another, or compare it as it is: headroom compare",
            args.law
        )));
    }
    if let Some(over) = args.max_over
        && !(0.0..=100.0).contains(&over)
    {
        return Err(Failure::usage(anyhow!(
            "--max-over is {over}: it must be 0 to 100 percent"
        )));
    }
    let world = |seed: u64| file.with_trace(args.trace.as_deref(), &args.world, seed);
    let worlds = |from: u64| {
        (from..from + args.seeds)
            .map(world)
            .collect::<Result<Vec<_>, _>>()
    };
    // The search sees the first seeds, the verdict is on the next.
    let (train, judge) = (worlds(1)?, worlds(1 + args.seeds)?);
    let trace = train.first().map_or_else(String::new, |(_, name)| name.clone());
    let threads = jobs(args.jobs);
    let started = Instant::now();

    let all = args.budget * args.seeds + 2 * args.seeds;
    let progress = Progress::new(format!("tuning {}", args.law), all);
    let runs = |points: &[LawConfig], worlds: &[(Setting, String)], first: u64| {
        let plan: Vec<(usize, usize)> = (0..points.len())
            .flat_map(|point| (0..worlds.len()).map(move |seed| (point, seed)))
            .collect();
        let done = run_many(&plan, threads, |_, (point, seed)| {
            let mut setting = worlds[*seed].0.clone();
            setting.law = points[*point].clone();
            let result = figures(&setting, args.law, first + *seed as u64);
            progress.add(1);
            result
        });
        let mut done = done.into_iter();
        points
            .iter()
            .map(|_| done.by_ref().take(worlds.len()).collect::<Vec<_>>())
            .collect::<Vec<_>>()
    };
    let whole = |results: Vec<Result<Figures, Failure>>| results.into_iter().collect::<Result<Vec<_>, _>>();
    let mean = |figures: &[Figures], pick: fn(&Figures) -> f64| {
        figures.iter().map(pick).sum::<f64>() / figures.len().max(1) as f64
    };

    let start: Vec<f64> = parameters
        .iter()
        .map(|parameter| parameter.get(&file.law))
        .collect();
    let config = |point: &[f64]| {
        let mut law = file.law.clone();
        for (parameter, value) in parameters.iter().zip(point) {
            parameter.set(&mut law, *value);
        }
        law
    };
    let mut allowed = args.max_over.map(|percent| percent / 100.0);
    let mut failed = None;
    let axis = |parameter: &Parameter| Axis {
        low: parameter.low,
        high: parameter.high,
        whole: parameter.whole,
    };
    let axes: Vec<Axis> = parameters.iter().map(axis).collect();
    let found = minimise(&axes, &start, args.budget as usize, args.seed, |points| {
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
    let verdict = runs(&[file.law.clone(), config(&found.point)], &judge, 1 + args.seeds);
    drop(progress);
    let mut verdict = verdict.into_iter().map(whole);
    let (Some(default), Some(tuned)) = (verdict.next().transpose()?, verdict.next().transpose()?) else {
        return Err(Failure::Run(anyhow!("nothing was judged")));
    };
    let allowed = allowed.unwrap_or(MIN_ALLOWED);
    let bounds: Option<Vec<f64>> = judge
        .iter()
        .zip(1 + args.seeds..)
        .map(|((setting, _), seed)| Some(lower_bound(&setting.scenario, seed).ok()?.get()))
        .collect();
    let outcome = outcome(
        args,
        &trace,
        &parameters,
        &found.point,
        found.tried,
        allowed,
        &default,
        &tuned,
        bounds.as_deref(),
    )
    .ok_or_else(|| Failure::Run(anyhow!("nothing was judged")))?;
    say::note!(
        "{} sets of parameters in {:.1} s",
        found.tried,
        started.elapsed().as_secs_f64()
    );
    if args.json {
        return say::result(serde_json::to_string(&outcome)?);
    }
    say::result(text(&outcome))
}

#[expect(clippy::too_many_arguments, reason = "what a search comes to, each part once")]
fn outcome(
    args: &TuneArgs,
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
        law: args.law.to_string(),
        trace: trace.to_owned(),
        tried,
        seeds: args.seeds,
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

fn text(outcome: &Outcome) -> String {
    let written = |over: Option<Estimate>| over.map_or("-".to_owned(), |over| over.written(2));
    let verdict = match outcome.recommended {
        true => {
            "They are worth it: the saving is none of chance's, and the promise is kept as often as was asked."
        }
        false => {
            "Keep the defaults: on seeds that the search never saw, the saving could be chance's, or the promise is broken \
             more often than was asked. A larger --budget or more --seeds may find more."
        }
    };
    format!(
        "{}\n# {} sets of parameters on {}, {} seeds; judged on {} other seeds, with 95 % confidence:\n\
         #   energy            {} % against the defaults ({} J, {} J)\n\
         #   over the bound    {} %, the defaults {} %\n\
         #   periods over      {} %, the defaults {} %, at most {:.2} % asked\n# {verdict}",
        outcome.toml,
        outcome.tried,
        outcome.trace,
        outcome.seeds,
        outcome.seeds,
        outcome.energy_percent.written(2),
        outcome.tuned_j.written(0),
        outcome.default_j.written(0),
        written(outcome.tuned_over_bound_percent),
        written(outcome.default_over_bound_percent),
        outcome.tuned_over_percent.written(2),
        outcome.default_over_percent.written(2),
        outcome.allowed_over_percent,
    )
}
