//! The paper's numbers beside ours, and where they differ, why: each reason with what was measured for it.

mod components;
mod settings;

use super::cases::{BASELINES, CaseId, GUARDS, Plan, TARGETS_MS, THRESHOLDS, Traces};
use crate::simulate::Figures;
use components::{figure_1, figure_5, figure_6};
use headroom_record::report::Grid;
use headroom_record::statistics::Estimate;
use serde::Serialize;
use settings::{figure_7, figure_8};

/// A number of the paper, ours, and why they differ.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// The figure.
    pub figure: &'static str,
    /// What it is.
    pub what: String,
    /// The paper's number, as it has it.
    pub paper: &'static str,
    /// Ours.
    pub ours: Option<Estimate>,
    /// Decimals that say something.
    #[serde(skip)]
    pub decimals: usize,
    /// Why they differ; empty where they do not.
    pub why: String,
}

impl Row {
    /// Ours as text.
    pub fn written(&self) -> String {
        self.ours
            .map_or("-".to_owned(), |ours| ours.written(self.decimals))
    }
}

/// The rows of some figures as a table.
pub fn compared(rows: &[Row], figures: &[&str]) -> Grid {
    Grid {
        header: ["figure", "what", "paper", "ours", "why they differ"]
            .map(str::to_owned)
            .to_vec(),
        rows: rows
            .iter()
            .filter(|row| figures.contains(&row.figure))
            .map(|row| {
                vec![
                    row.figure.to_owned(),
                    row.what.clone(),
                    row.paper.to_owned(),
                    row.written(),
                    row.why.clone(),
                ]
            })
            .collect(),
        words: vec![0, 1, 4],
        caption: String::new(),
    }
}

/// A point of Figure 7.
#[derive(Clone, Debug, Serialize)]
pub struct GridPoint {
    /// α.
    pub guard: f64,
    /// β.
    pub threshold: f64,
    /// Mean over the periods of each period's P95.
    pub p95_ms: Estimate,
    /// Mean cores.
    pub cores: Estimate,
    /// Mean power.
    pub power_w: Estimate,
}

/// A law at a target of Figure 8.
#[derive(Clone, Debug, Serialize)]
pub struct TargetPoint {
    /// The target, milliseconds.
    pub target_ms: f64,
    /// The law.
    pub law: String,
    /// Mean over the periods of each period's P95.
    pub p95_ms: Estimate,
    /// Periods over the target, percent.
    pub over_percent: Estimate,
    /// Mean power.
    pub power_w: Estimate,
    /// Consumed over allocated.
    pub power_ratio: Estimate,
    /// Mean cores.
    pub cores: Estimate,
    /// Energy over what no schedule can go under, percent.
    pub energy_over_bound_percent: Estimate,
}

/// All of it.
pub struct Evaluation {
    /// Row by row.
    pub rows: Vec<Row>,
    /// Figure 7.
    pub grid: Vec<GridPoint>,
    /// Figure 8.
    pub targets: Vec<TargetPoint>,
}

/// A run, and what no schedule could have gone under in its place, joules.
#[derive(Clone, Copy, Debug)]
pub struct Done {
    /// Its figures.
    pub figures: Figures,
    /// The bound; NaN where there is none.
    pub bound_j: f64,
}

struct Results<'a>(&'a [Vec<Done>]);

/// Of no run.
const NOTHING: Estimate = Estimate {
    mean: f64::NAN,
    half_width: None,
    count: 0,
};

impl Results<'_> {
    fn each(&self, case: CaseId, pick: impl Fn(&Figures) -> f64) -> Vec<f64> {
        self.0[case].iter().map(|done| pick(&done.figures)).collect()
    }

    fn of(&self, case: CaseId, pick: impl Fn(&Figures) -> f64) -> Estimate {
        // Every case is run with two seeds or more.
        Estimate::of(&self.each(case, pick)).unwrap_or(NOTHING)
    }

    fn mean(&self, case: CaseId, pick: impl Fn(&Figures) -> f64) -> f64 {
        self.of(case, pick).mean
    }

    /// Energy over the bound, less one, percent.
    fn over_bound(&self, case: CaseId) -> Estimate {
        let each: Vec<f64> = self.0[case]
            .iter()
            .map(|done| (done.figures.energy_j / done.bound_j - 1.0) * 100.0)
            .collect();
        Estimate::of(&each).unwrap_or(NOTHING)
    }

    /// A figure of one case over that of another, seed by seed.
    fn over(&self, case: CaseId, from: CaseId, pick: impl Fn(&Figures) -> f64) -> Option<Estimate> {
        let (these, those) = (self.each(case, &pick), self.each(from, &pick));
        let ratios: Vec<f64> = these.iter().zip(&those).map(|(this, that)| this / that).collect();
        Estimate::of(&ratios)
    }
}

const fn p95(run: &Figures) -> f64 {
    run.latency_period_ms
}
const fn watts(run: &Figures) -> f64 {
    run.power_w
}
const fn cores(run: &Figures) -> f64 {
    run.cores
}
const fn ratio(run: &Figures) -> f64 {
    run.power_ratio
}
fn over(run: &Figures) -> f64 {
    run.periods_over * 100.0
}
fn nrmse(run: &Figures) -> f64 {
    run.forecast_nrmse.map_or(f64::NAN, |error| error.0)
}

impl Evaluation {
    /// Of the results of a plan, case by case, seed by seed.
    pub fn of(plan: &Plan, results: &[Vec<Done>], traces: &Traces) -> Self {
        let results = Results(results);
        let mut rows = figure_1(plan, &results);
        rows.extend(figure_5(traces, results.0.first().map_or(0, Vec::len) as u64));
        rows.extend(figure_6(plan, &results, traces));
        let grid = GUARDS.iter().zip(&plan.grid).flat_map(|(guard, row)| {
            let results = &results;
            THRESHOLDS
                .iter()
                .zip(row)
                .map(move |(threshold, case)| GridPoint {
                    guard: *guard,
                    threshold: *threshold,
                    p95_ms: results.of(*case, p95),
                    cores: results.of(*case, cores),
                    power_w: results.of(*case, watts),
                })
        });
        let grid: Vec<GridPoint> = grid.collect();
        let targets = TARGETS_MS.iter().zip(&plan.targets).flat_map(|(target_ms, row)| {
            let results = &results;
            BASELINES.iter().zip(row).map(move |(law, case)| TargetPoint {
                target_ms: *target_ms,
                law: law.to_string(),
                p95_ms: results.of(*case, p95),
                over_percent: results.of(*case, over),
                power_w: results.of(*case, watts),
                power_ratio: results.of(*case, ratio),
                cores: results.of(*case, cores),
                energy_over_bound_percent: results.over_bound(*case),
            })
        });
        let targets: Vec<TargetPoint> = targets.collect();
        rows.extend(figure_7(plan, &results));
        rows.extend(figure_8(plan, &results));
        Self { rows, grid, targets }
    }
}
