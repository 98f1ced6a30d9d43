//! Laws x traces x seeds, under common random numbers.
//!
//! ```
//! use headroom_control::LawName;
//! use headroom_lab::comparison::Field;
//! use headroom_lab::simulate::Setting;
//!
//! // Two minutes of the default scenario under two seeds.
//! let mut world = Setting::default();
//! world.scenario.duration_s = Some(120.0);
//! let laws = [LawName::FIXED, LawName::POWERSAVE].map(Into::into);
//! let field = Field::new(world.clone(), &laws, false, vec![1, 2], 2)?;
//! let (rows, _) = field.rows(&["default".to_owned()], &[vec![world.clone(), world]])?;
//! assert_eq!(rows[1].law, "powersave");
//! assert!(rows[1].latency_p95_ms.mean > rows[0].latency_p95_ms.mean);
//! # Ok::<(), headroom_console::Failure>(())
//! ```

use crate::simulate::{Figures, Progress, Setting, figures};
use anyhow::anyhow;
use headroom_console::Failure;
use headroom_control::LawNames;
use headroom_record::statistics::Estimate;
use headroom_sim::bound::{Least, WAIT_TARGETS, clairvoyant, least};
use headroom_sim::{SavedByCause, ScenarioError, run_many};
use headroom_units::Joules;
use serde::Serialize;

/// States that the search for a schedule keeps from period to period.
const WIDTH: usize = 4;
/// The name under which that schedule is listed.
pub const CLAIRVOYANT: &str = "clairvoyant";

/// A law on a trace, over all seeds.
#[derive(Debug, Serialize)]
pub struct Row {
    /// The law, or `clairvoyant`.
    pub law: String,
    /// The trace.
    pub trace: String,
    /// Energy of a run, joules.
    pub energy_j: Estimate,
    /// Energy over the first law's under the same seed, less one, percent.
    pub energy_over_first_percent: Estimate,
    /// Energy over what a schedule that serves promptly needs at least, less one, percent; `None` where there is no bound, or where
    /// the law let work wait, was late more often than `law.joint.late` allows, or left work undone, and so needed
    /// less.
    pub energy_over_bound_percent: Option<Estimate>,
    /// The same of what levers can move: without the energy of no work at all.
    pub controllable_over_bound_percent: Option<Estimate>,
    /// Of the energy that the first law used beyond the bound, all that any lever could move, the part that was saved,
    /// percent; `None` where there is no bound.
    pub saved_of_movable_percent: Option<Estimate>,
    /// What was saved against the first law under the same seed by each cause, percent of that law's energy: fewer joules
    /// for the work, deeper sleep, servers off, switching.
    pub saved_percent_by: [Estimate; 4],
    /// Mean number of servers that served.
    pub servers: Estimate,
    /// Energy over requests that arrived, joules.
    pub joules_per_request: Estimate,
    /// P95 of all requests, milliseconds.
    pub latency_p95_ms: Estimate,
    /// Judged periods over the target, percent.
    pub periods_over_percent: Estimate,
    /// Those less the first law's under the same seed, percentage points.
    pub periods_over_first_percent: Estimate,
    /// Mean cores.
    pub cores: Estimate,
    /// Busy share of the cores, percent.
    pub utilisation_percent: Estimate,
    /// Mean power, watts.
    pub power_w: Estimate,
    /// Mean power allocated, watts.
    pub allocated_w: Estimate,
    /// Consumed over allocated.
    pub power_ratio: Estimate,
    /// The runs, seed by seed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub runs: Vec<Figures>,
}

/// What is run: a law, or the search for the best schedule.
#[derive(Clone, Debug)]
pub enum Runner {
    /// A law, or several together.
    Law(LawNames),
    /// A schedule that knows every arrival beforehand.
    Clairvoyant,
}

impl Runner {
    /// The name under which it is listed.
    pub fn name(&self) -> String {
        match self {
            Self::Law(law) => law.to_string(),
            Self::Clairvoyant => CLAIRVOYANT.to_owned(),
        }
    }

    fn run(&self, setting: &Setting, seed: u64) -> Result<Figures, Failure> {
        match self {
            Self::Law(laws) => figures(setting, laws.clone(), seed),
            Self::Clairvoyant => clairvoyant(&setting.scenario, seed, WIDTH, setting.asked())
                .map(|bound| Figures::of(&bound.totals))
                .map_err(|error| setting.run_error(error)),
        }
    }
}

/// A runner in a world, seed by seed.
pub type Runs = Vec<Result<Figures, Failure>>;

/// What is compared: the runners, the first being what differences are from, and the seeds.
#[derive(Debug)]
pub struct Field {
    /// The scenario.
    pub file: Setting,
    /// The laws and what else runs; the first is what differences are from.
    pub runners: Vec<Runner>,
    /// The seeds: every runner meets the same arrivals and sizes under the same seed.
    pub seeds: Vec<u64>,
    /// Runs at once.
    pub threads: usize,
}

impl Field {
    /// These laws in this scenario, and where asked for the schedule that knows every arrival beforehand.
    ///
    /// # Errors
    /// A law that is named twice or cannot be built.
    pub fn new(
        file: Setting,
        laws: &[LawNames],
        clairvoyant: bool,
        seeds: Vec<u64>,
        threads: usize,
    ) -> Result<Self, Failure> {
        for (at, law) in laws.iter().enumerate() {
            if laws[..at].contains(law) {
                return Err(Failure::usage(anyhow!(
                    "--laws names {law} twice: name each once"
                )));
            }
        }
        // Each law is built once, so that a mistake is said before anything runs.
        for law in laws {
            file.guarded(law.clone())?;
        }
        let mut runners: Vec<Runner> = laws.iter().cloned().map(Runner::Law).collect();
        if clairvoyant {
            runners.push(Runner::Clairvoyant);
        }
        Ok(Self {
            file,
            runners,
            seeds,
            threads,
        })
    }

    /// The name of what the others' differences are from.
    pub fn first(&self) -> String {
        self.runners
            .first()
            .map_or_else(String::new, |first| first.name())
    }

    /// Runs every runner in every world under every seed; the results by world, runner and seed, and the number of runs.
    /// `worlds` has one setting for each seed.
    pub fn run(&self, worlds: &[Vec<Setting>]) -> (Vec<Vec<Runs>>, usize) {
        let (runners, seeds) = (self.runners.len(), self.seeds.len());
        let mut plan = Vec::new();
        // The longest jobs first, so that no thread is left with one at the end.
        for runner in (0..runners).rev() {
            for world in 0..worlds.len() {
                plan.extend((0..seeds).map(|seed| (runner, world, seed)));
            }
        }
        let progress = Progress::new("comparing", plan.len() as u64);
        let done = run_many(&plan, self.threads, |_, (runner, world, seed)| {
            let result = self.runners[*runner].run(&worlds[*world][*seed], self.seeds[*seed]);
            progress.add(1);
            result
        });
        drop(progress);
        let mut by_world: Vec<Vec<Vec<_>>> = worlds
            .iter()
            .map(|_| (0..runners).map(|_| Vec::with_capacity(seeds)).collect())
            .collect();
        for ((runner, world, _), result) in plan.iter().zip(done) {
            by_world[*world][*runner].push(result);
        }
        (by_world, plan.len())
    }

    /// What schedules need at least, for each world and seed.
    pub fn bounds(&self, worlds: &[Vec<Setting>]) -> Vec<Result<Vec<Least>, ScenarioError>> {
        let plan: Vec<(usize, usize)> = (0..worlds.len())
            .flat_map(|world| (0..self.seeds.len()).map(move |seed| (world, seed)))
            .collect();
        let mut done = run_many(&plan, self.threads, |_, (world, seed)| {
            let setting = &worlds[*world][*seed];
            least(&setting.scenario, self.seeds[*seed], setting.asked())
        })
        .into_iter();
        worlds
            .iter()
            .map(|_| {
                // All of a world are taken, also where the first has none.
                let of_world: Vec<_> = done.by_ref().take(self.seeds.len()).collect();
                of_world.into_iter().collect()
            })
            .collect()
    }

    /// Runs everything and gives a row for each law on each trace, and why a trace has no bound where it has none. `worlds` has
    /// for each trace a setting for each seed.
    ///
    /// # Errors
    /// A run that does not end.
    pub fn rows(
        &self,
        traces: &[String],
        worlds: &[Vec<Setting>],
    ) -> Result<(Vec<Row>, Vec<String>), Failure> {
        let (done, _) = self.run(worlds);
        let (mut rows, mut remarks) = (Vec::new(), Vec::new());
        let each = done.into_iter().zip(self.bounds(worlds));
        for ((results, bounds), (trace, settings)) in each.zip(traces.iter().zip(worlds)) {
            let bounds = bounds
                .map_err(|error| remarks.push(format!("no bound: {error}")))
                .ok();
            let results = results
                .into_iter()
                .map(|runs| runs.into_iter().collect::<Result<Vec<_>, _>>())
                .collect::<Result<Vec<_>, _>>()?;
            let first = results.first().map_or(&[][..], Vec::as_slice);
            for (runner, runs) in self.runners.iter().zip(&results) {
                let name = runner.name();
                let of_seed = settings.iter().zip(bounds.iter().flatten()).zip(&self.seeds);
                let each = runs.iter().zip(of_seed);
                let each = each.map(|(run, ((setting, bound), seed))| (*seed, run, setting, *bound));
                check_bound(&name, trace, each)?;
                rows.extend(row(runner.name(), trace, runs, first, bounds.as_deref()));
            }
        }
        Ok((rows, remarks))
    }
}

/// Of the requests that came, those that may be without an answer at the end in a run that answered what was due.
const FEW_UNANSWERED: f64 = 0.002;

/// How far below the bound for those that keep the SLO promptly a single run may be by chance: that bound is of the mean over how
/// requests meet at servers. (Of worlds made for it, two servers and requests of four seconds, one of 200 runs was 3.4 % below.)
const MAX_BY_CHANCE: f64 = 0.1;

/// Refuses the runs of a law, seed by seed, that used less than a bound although they did what those do that the bound is for: then
/// it is none. The bound for any schedule holds for each run; that for those that keep the SLO promptly for their mean.
///
/// # Errors
/// Such runs.
pub fn check_bound<'a>(
    law: &str,
    trace: &str,
    runs: impl IntoIterator<Item = (u64, &'a Figures, &'a Setting, Least)>,
) -> Result<(), Failure> {
    let mut over = Vec::new();
    for (seed, run, setting, least) in runs {
        let error = |bound: Joules, whose: &str| {
            Failure::Run(anyhow!(
                "{law} on {trace}, seed {seed}, used {:.1} J, less than the {:.1} J that {whose} can go under, was late in {:.2} % of the \
                 periods, and left {} of {} requests unanswered: that is an error of the bound. Please report it, with the scenario",
                run.energy_j,
                bound.get(),
                run.periods_over * 100.0,
                run.unanswered,
                run.requests
            ))
        };
        let answered = run.unanswered as f64 <= FEW_UNANSWERED * run.requests as f64;
        if answered && run.energy_j < least.any.get() * (1.0 - 1e-9) {
            return Err(error(least.any, "no schedule"));
        }
        // No work waited for longer than the slowest request took, or the oldest that was left.
        let waited_ms = run.latency_max_ms.max(run.oldest_at_end_ms);
        let prompt = run.failed == 0
            && !run.oldest_at_end_ms.is_nan()
            && waited_ms <= WAIT_TARGETS * setting.scenario.service.target_ms
            && run.periods_over <= setting.asked().get();
        if prompt {
            over.push(run.energy_j / least.prompt.get() - 1.0);
            if run.energy_j < least.prompt.get() * (1.0 - MAX_BY_CHANCE) {
                return Err(error(least.prompt, "none that keeps the SLO promptly"));
            }
        }
    }
    let mean = Estimate::of(&over);
    match mean.and_then(|mean| Some((mean.mean, mean.half_width?))) {
        Some((mean, half)) if mean + half < -1e-9 => Err(Failure::Run(anyhow!(
            "{law} on {trace} used {:.2} ± {:.2} % less than the least of those that keep the SLO promptly, on the mean over {} runs that do: \
             that is an error of the bound. Please report it, with the scenario",
            -mean * 100.0,
            half * 100.0,
            over.len()
        ))),
        _ => Ok(()),
    }
}

/// A law on a trace from its runs, those of the first law and the bounds, each seed by seed; `None` of fewer than two seeds.
pub fn row(
    law: String,
    trace: &str,
    runs: &[Figures],
    first: &[Figures],
    bounds: Option<&[Least]>,
) -> Option<Row> {
    let of_least = |pick: fn(&Least) -> Joules| -> Option<Vec<f64>> {
        Some(bounds?.iter().map(|least| pick(least).get()).collect())
    };
    let (prompt, standing) = (of_least(|least| least.prompt), of_least(|least| least.standing));
    let bounds = prompt.as_deref();
    let each = |pick: fn(&Figures) -> f64| runs.iter().map(pick).collect::<Vec<f64>>();
    let firsts = |pick: fn(&Figures) -> f64| first.iter().map(pick).collect::<Vec<f64>>();
    let estimate = |pick: fn(&Figures) -> f64| Estimate::of(&each(pick));
    let joules = each(|run| run.energy_j);
    let over = |from: &[f64]| {
        let percent: Vec<f64> = joules
            .iter()
            .zip(from)
            .map(|(these, those)| (these / those - 1.0) * 100.0)
            .collect();
        Estimate::of(&percent)
    };
    let saved: Vec<(SavedByCause, f64)> = runs
        .iter()
        .zip(first)
        .map(|(run, first)| {
            let [run, against] = [run, first].map(|run| (run.energy_by, run.on_server_s));
            (SavedByCause::of(run, against), first.energy_j)
        })
        .collect();
    let by = |pick: fn(&SavedByCause) -> Joules| {
        let percent = saved
            .iter()
            .map(|(saved, first_j)| pick(saved).get() / first_j * 100.0);
        Estimate::of(&percent.collect::<Vec<f64>>())
    };
    let of_movable = |bounds: &[f64]| {
        let percent = saved
            .iter()
            .zip(bounds)
            .map(|((saved, first_j), bound_j)| saved.total().get() / (first_j - bound_j) * 100.0);
        Estimate::of(&percent.collect::<Vec<f64>>())
    };
    // The bound is one for schedules that serve promptly and are late no more often than `law.joint.late`: who is under it
    // let work wait, was late more often, or left requests unanswered.
    let is_above = |bounds: &&[f64]| joules.iter().zip(*bounds).all(|(joules, bound)| joules >= bound);
    let movable = |bounds: &&[f64]| saved.iter().zip(*bounds).all(|((_, first), bound)| first > bound);
    let controllable = |(bounds, standing): (&[f64], Vec<f64>)| {
        let each = joules.iter().zip(bounds).zip(&standing);
        let percent =
            each.map(|((joules, bound), standing)| ((joules - standing) / (bound - standing) - 1.0) * 100.0);
        Estimate::of(&percent.collect::<Vec<f64>>())
    };
    Some(Row {
        saved_of_movable_percent: bounds.filter(is_above).filter(movable).and_then(of_movable),
        saved_percent_by: [
            by(|s| s.work)?,
            by(|s| s.sleep)?,
            by(|s| s.off)?,
            by(|s| s.switching)?,
        ],
        servers: estimate(|run| run.on_server_s / run.duration_s)?,
        energy_j: estimate(|run| run.energy_j)?,
        energy_over_first_percent: over(&firsts(|run| run.energy_j))?,
        energy_over_bound_percent: bounds.filter(is_above).and_then(over),
        controllable_over_bound_percent: bounds.filter(is_above).zip(standing).and_then(controllable),
        joules_per_request: estimate(|run| run.energy_j / run.requests.max(1) as f64)?,
        latency_p95_ms: estimate(|run| run.latency_p95_ms)?,
        periods_over_percent: estimate(|run| run.periods_over * 100.0)?,
        periods_over_first_percent: Estimate::of_differences(
            &each(|run| run.periods_over * 100.0),
            &firsts(|run| run.periods_over * 100.0),
        )?,
        cores: estimate(|run| run.cores)?,
        utilisation_percent: estimate(|run| run.utilisation * 100.0)?,
        power_w: estimate(|run| run.power_w)?,
        allocated_w: estimate(|run| run.allocated_w)?,
        power_ratio: estimate(|run| run.power_ratio)?,
        law,
        trace: trace.to_owned(),
        runs: runs.to_vec(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use headroom_control::LawName;

    /// A minute with everything on, and a bound that is above what it used for the schedules that keep the SLO promptly alone.
    fn minute() -> (Setting, Figures, Least) {
        let mut setting = Setting::default();
        setting.scenario.duration_s = Some(60.0);
        let run = figures(&setting, LawName::FIXED, 1).unwrap();
        assert_eq!((run.failed, run.periods_over), (0, 0.0), "{run:?}");
        let bound = least(&setting.scenario, 1, setting.asked()).unwrap();
        let broken = Least {
            prompt: Joules::new(run.energy_j * 1.2),
            ..bound
        };
        (setting, run, broken)
    }

    #[test]
    fn a_run_under_a_bound_is_refused_where_it_did_what_the_bound_is_for() {
        let (setting, run, broken) = minute();
        let refused = |run: &Figures, setting: &Setting, least: Least| {
            check_bound("fixed", "a minute", [(1, run, setting, least)]).is_err()
        };
        assert!(refused(&run, &setting, broken));
        let sound = least(&setting.scenario, 1, setting.asked()).unwrap();
        assert!(!refused(&run, &setting, sound));

        // A little less may be chance in one run, and not in many.
        let little = Least {
            prompt: Joules::new(run.energy_j * 1.02),
            ..broken
        };
        assert!(!refused(&run, &setting, little));
        let many = (0..20).map(|seed| {
            let mut run = run;
            run.energy_j *= 1.0 + 0.001 * seed as f64;
            run
        });
        let many: Vec<Figures> = many.collect();
        let each = |bound: Least| many.iter().zip(0..).map(move |(run, seed)| (seed, run, bound));
        let check = |bound| {
            let setting = &setting;
            check_bound(
                "fixed",
                "a minute",
                each(bound).map(|(seed, run, bound)| (seed, run, setting, bound)),
            )
        };
        assert!(check(little).is_err() && check(sound).is_ok());

        // What is late more often than asked, lets a request wait, leaves an old one, or fails one, may be under that bound.
        let mut run_late = run;
        run_late.periods_over = 0.01;
        assert!(!refused(&run_late, &setting, broken));
        let mut asks_less = setting.clone();
        asks_less.law.joint.late = 0.02;
        assert!(refused(&run_late, &asks_less, broken), "it goes by what is asked");
        let mut waits = run;
        waits.latency_max_ms = 1.01 * WAIT_TARGETS * setting.scenario.service.target_ms;
        assert!(!refused(&waits, &setting, broken));
        let mut leaves_one = run;
        leaves_one.oldest_at_end_ms = waits.latency_max_ms;
        assert!(!refused(&leaves_one, &setting, broken));
        let mut fails_one = run;
        fails_one.failed = 1;
        assert!(!refused(&fails_one, &setting, broken));

        // The bound of any schedule holds for these too.
        let any = Least {
            any: broken.prompt,
            ..broken
        };
        for run in [run_late, waits, leaves_one, fails_one] {
            assert!(refused(&run, &setting, any), "{run:?}");
        }
        // None holds where much of the work was not done.
        let mut idle = run;
        idle.failed = run.requests / 10;
        idle.unanswered = idle.failed;
        assert!(!refused(&idle, &setting, any));
    }
}
