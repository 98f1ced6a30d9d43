//! `headroom place`: which machines a service needs over a day, and which of them serves what, for the least energy within the SLO.

mod demand;
mod fleet;
mod page;
mod recorded;

use crate::simulate::{narrow_text, write_sheet};
use anyhow::anyhow;
use clap::{Args, ValueEnum};
use demand::{Demand, Peaks, logged, read};
use fleet::{FleetKind, counted, fleet, server};
use headroom_console::args::{content_bytes, seconds};
use headroom_console::{Failure, file, say, terminal};
use headroom_control::Slo;
use headroom_control::placement::advisor::{
    self, Alternative, Bounds, DemandLevel, Equivalence, Kind, Migration, Plan, Problem, Serving, Step,
};
use headroom_control::placement::{KindFigures, measured_limit};
use headroom_physics::serving::StudiedService;
use headroom_units::{Joules, PerSecond, Ratio, Seconds};
use page::{json, sheet};
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// What the help teaches by example.
const EXAMPLES: &str = "\
Examples:
  headroom place --fleet xeon=2,atom=4,arm=20 --demand examples/placement/day.csv --slo P95=250ms
                                           (the paper's machines, a day of mixed sizes)
  headroom place --profile big.json small.json --fleet big=4,small=20 --access-log access.log --slo P99=100ms
                                           (machines that `headroom profile` measured, a day that was logged)
  headroom place --profile big.json small.json --fleet big=4,small=20 --run latest --step 900 --slo P95=250ms
                                           (a run of ours whose gateway tells sizes apart: gateway.sizes)
  headroom place --fleet xeon=2,arm=20 --demand day.toml --slo P95=250ms --server arm:boot_s=30,booting_w=7,off_w=0.5 --spare
                                           (what a start takes; any one machine may be lost)
  headroom place --profile big.json small.json --fleet big=4,small=20 --slo P95=250ms --law >> headroom.toml
                                           (what the law `placement` routes by; --speed for emulated machines)

A demand is CSV, a line for each step (from 0) and size of answers, with the mean requests a second in that step; the columns in any order
by the names of a header, in this one without:

  step,size,requests_per_s
  0,1K,8500
  0,100K,442
  1,1K,5808
  1,100K,272

or TOML:

  step_s = 3600
  [[class]]
  size = \"10K\"
  rates_per_s = [120, 90, 60]

A kind is named as its profile is: the host, or what --name said when it was measured.";

/// What is needed, which options that stand for each other do not say.
const USAGE: &str = "\
headroom place --fleet KIND=N,... --slo P95=250ms (--demand FILE | --access-log FILE | --run RUN) [--profile FILE...] [OPTIONS]
       headroom place --fleet KIND=N,... --slo P95=250ms --law [--profile FILE...]";

/// `headroom place`.
///
/// Takes a fleet, what its machines are (from profiles, or built in), and what comes in over a day, and finds the cheapest mix of machines on
/// and its assignment of requests by size, step by step, that keeps the SLO. Prints the plan, its kWh beside those of other ways to run the
/// same machines, and what the figures say of the questions that the paper leaves open: how many small machines equal a large one, whether to
/// consolidate or to spread, when work moves between kinds.
#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES, override_usage = USAGE)]
pub struct PlaceArgs {
    /// How many there are of each kind: the name of a profile's machine, or of a built-in one (xeon, atom, arm: those of the paper).
    #[arg(long, required = true, value_name = "KIND=N", value_delimiter = ',', value_parser = counted)]
    pub fleet: Vec<(String, u32)>,
    /// Profiles that `headroom profile` wrote.
    #[arg(long, value_name = "FILE", num_args = 1..)]
    pub profile: Vec<PathBuf>,
    /// What the built-in machines serve with.
    #[arg(long, value_enum, default_value_t = BuiltInService::Apache)]
    pub service: BuiltInService,
    /// What switching a kind takes: off_w, booting_w, boot_s, shutting_down_w, shutdown_s.
    #[arg(long, value_name = "KIND:KEY=VALUE,...", value_parser = server)]
    pub server: Vec<(String, Vec<(String, f64)>)>,
    /// What comes in, as CSV or TOML.
    #[arg(
        long,
        value_name = "FILE",
        required_unless_present_any = ["access_log", "run", "law"],
        conflicts_with_all = ["access_log", "run"]
    )]
    pub demand: Option<PathBuf>,
    /// What came in, from a web server's access log with the bytes of answers.
    #[arg(long, value_name = "FILE")]
    pub access_log: Option<PathBuf>,
    /// What came in during this recorded run (an id, a name or `latest`), whose gateway had [gateway.sizes].
    #[arg(long, value_name = "RUN", conflicts_with = "access_log")]
    pub run: Option<String>,
    /// With --run: the flight recorder's database.
    #[arg(
        long,
        default_value = "out/headroom.db",
        value_name = "FILE",
        requires = "run"
    )]
    pub db: PathBuf,
    /// The classes of an access log: answers up to each of these sizes, and all larger ones; each class counts as its mean size.
    #[arg(long, value_name = "SIZE", value_delimiter = ',', default_value = "2K,20K,200K", requires = "access_log", value_parser = content_bytes)]
    pub sizes: Vec<f64>,
    /// The length of a step, seconds; by default an hour, or what a demand in TOML says.
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub step: Option<f64>,
    /// The SLO: a percentile and its target.
    #[arg(long, value_name = "P95=250ms", value_parser = slo)]
    pub slo: Slo,
    /// The share of the target that the predicted percentile of each class may reach.
    #[arg(long, default_value_t = 0.8, value_name = "SHARE", value_parser = share)]
    pub guard: f64,
    /// Plan each step for a load so many times its mean, less one: 0.3 for 30 % more. By default what was measured within the steps of an
    /// access log or a run, windows of a sixtieth of a step; and of a demand from a file, which says no more than means: a quarter above
    /// the course between neighbouring steps, and three standard deviations of Poisson arrivals.
    #[arg(long, value_name = "SHARE", value_parser = margin)]
    pub margin: Option<f64>,
    /// Keep the SLO also when any one of the machines on is lost (N+1).
    #[arg(long)]
    pub spare: bool,
    /// Print the configuration of the law `placement` for this fleet, and nothing else; the backends' URLs are to be filled in.
    #[arg(long, conflicts_with_all = ["json", "out"])]
    pub law: bool,
    /// With --law: the share of their speed at which the machines are emulated (`headroom service machine --speed`): the figures are of that.
    #[arg(long, default_value_t = 1.0, value_name = "SHARE", requires = "law", value_parser = speed)]
    pub speed: f64,
    /// The report to write.
    #[arg(long, default_value = "out/place.html", value_name = "FILE")]
    pub out: PathBuf,
    /// Print the plan as JSON on standard output, and nothing else there.
    #[arg(long)]
    pub json: bool,
}

/// What the built-in machines serve with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum BuiltInService {
    /// Static files of Apache, a connection for each request.
    Apache,
    /// Values of memcached, over connections that stay.
    Memcached,
}

/// `P95=250ms`, `P99.9=0.5s`.
fn slo(text: &str) -> Result<Slo, String> {
    let parsed = || {
        let (percentile, target) = text.split_once('=')?;
        let percentile: f64 = percentile.trim().strip_prefix(['P', 'p'])?.parse().ok()?;
        let target = target.trim();
        let seconds = match target.strip_suffix("ms") {
            Some(number) => number.trim().parse::<f64>().ok()? / 1e3,
            None => target.strip_suffix('s')?.trim().parse().ok()?,
        };
        Some((percentile, seconds))
    };
    let (percentile, target) =
        parsed().ok_or_else(|| format!("{text:?}: give a percentile and its target, as P95=250ms"))?;
    Slo::new(Ratio::from_percent(percentile), Seconds::new(target)).map_err(|error| error.to_string())
}

fn share(text: &str) -> Result<f64, String> {
    let share: Option<f64> = text.parse().ok();
    share
        .filter(|share| *share > 0.0 && *share <= 1.0)
        .ok_or_else(|| format!("{text:?}: give a share above 0 and at most 1, as 0.8"))
}

fn margin(text: &str) -> Result<f64, String> {
    let most = advisor::MAX_PEAK.get() - 1.0;
    let margin: Option<f64> = text.parse().ok();
    margin
        .filter(|margin| (0.0..=most).contains(margin))
        .ok_or_else(|| format!("{text:?}: give a share of the mean, 0 to {most}, as 0.3"))
}

fn speed(text: &str) -> Result<f64, String> {
    let speed: Option<f64> = text.parse().ok();
    speed
        .filter(|speed| (1e-6..=1e3).contains(speed))
        .ok_or_else(|| format!("{text:?}: give a share of the speed, 1e-6 to 1000, as 0.02"))
}

/// What was found.
struct Found {
    fleet: Vec<FleetKind>,
    demand: Demand,
    problem: Problem,
    bounds: Bounds,
    peaks: Peaks,
    plan: Plan,
    alternatives: Vec<Alternative>,
    /// What both come to without a margin; `None` where there is none, or nothing to be told.
    bare: Option<Bare>,
    equivalences: Vec<Equivalence>,
    consolidation: Vec<DemandLevel>,
    migrations: Vec<Migration>,
}

/// A plan for the means, and the best other way to serve them that keeps the SLO.
struct Bare {
    energy: Joules,
    best_other: Option<Joules>,
}

impl Bare {
    fn of(problem: &Problem, bounds: &Bounds) -> Option<Self> {
        let means = Bounds {
            peaks: vec![Ratio::new(1.0); bounds.peaks.len()],
            ..bounds.clone()
        };
        if means.peaks == bounds.peaks {
            return None;
        }
        let others = advisor::alternatives_within(problem, &means).ok()?;
        Some(Self {
            energy: advisor::plan_within(problem, &means).ok()?.energy,
            best_other: best_other(&others).map(|(_, energy)| energy),
        })
    }
}

/// The alternative that takes the least of those that keep the SLO, and its energy.
fn best_other(alternatives: &[Alternative]) -> Option<(&Alternative, Joules)> {
    alternatives
        .iter()
        .filter_map(|one| Some((one, page::kept(one)?.energy)))
        .min_by(|one, two| one.1.get().total_cmp(&two.1.get()))
}

/// Plans.
///
/// # Errors
/// A fleet, a profile or a demand that cannot be used; a demand that the fleet cannot serve within the SLO, by class and step.
pub fn run(args: &PlaceArgs) -> Result<(), Failure> {
    let service = match args.service {
        BuiltInService::Apache => StudiedService::Apache,
        BuiltInService::Memcached => StudiedService::Memcached,
    };
    let fleet = fleet(&args.fleet, &args.profile, service, &args.server)?;
    if args.law {
        law_alone(args)?;
        return say::result(law(&fleet, args.speed)?.trim_end());
    }
    if !args.json {
        file::will_write_report(&args.out)?;
    }
    let step = args.step.unwrap_or(3600.0);
    let demand = match (&args.demand, &args.access_log, &args.run) {
        (Some(file), ..) => read(file, args.step)?,
        (None, Some(log), _) => logged(log, step, &args.sizes, args.slo.percentile())?,
        (None, None, Some(run)) => recorded::recorded(&args.db, run, step)?,
        (None, None, None) => {
            return Err(Failure::usage(anyhow!(
                "give a demand: --demand FILE, --access-log FILE or --run RUN"
            )));
        }
    };
    let found = find(fleet, demand, args)?;
    if args.json {
        return say::result(json(&found));
    }
    let sheet = sheet(&found, args);
    write_sheet(&sheet, None, &args.out)?;
    say::result(format_args!(
        "{}the report is in {}",
        narrow_text(&sheet, terminal::columns()),
        args.out.display()
    ))
}

/// The law's configuration is of machines alone.
fn law_alone(args: &PlaceArgs) -> Result<(), Failure> {
    let given = [
        (args.demand.is_some(), "--demand"),
        (args.access_log.is_some(), "--access-log"),
        (args.run.is_some(), "--run"),
    ];
    match given.into_iter().find(|(given, _)| *given) {
        Some((_, option)) => Err(Failure::usage(anyhow!(
            "--law prints what the law is told of the machines, whatever comes in: leave {option} out, or --law for a plan"
        ))),
        None => Ok(()),
    }
}

/// Plans, and compares.
fn find(fleet: Vec<FleetKind>, demand: Demand, args: &PlaceArgs) -> Result<Found, Failure> {
    let problem = problem(&fleet, &demand, args);
    let peaks = Peaks::of(&demand, args.margin);
    let bounds = Bounds {
        most: fleet.iter().map(|kind| most(kind, &demand)).collect(),
        peaks: peaks.of_steps.clone(),
    };
    let plan = advisor::plan_within(&problem, &bounds).map_err(|error| match error {
        unmet @ advisor::AdvisorError::Unmet { .. } => Failure::usage(anyhow!(
            "{unmet}, or give a smaller --margin: each step is planned for {}",
            peaks.source
        )),
        other => Failure::usage(other),
    })?;
    Ok(Found {
        bare: Bare::of(&problem, &bounds),
        alternatives: advisor::alternatives_within(&problem, &bounds).map_err(Failure::usage)?,
        equivalences: advisor::equivalences(&problem, &bounds),
        consolidation: advisor::consolidation(&problem, &bounds),
        migrations: advisor::migrations(&problem, &plan),
        plan,
        fleet,
        demand,
        problem,
        bounds,
        peaks,
    })
}

/// The most of each class that a machine was measured to serve.
fn most(kind: &FleetKind, demand: &Demand) -> Vec<Option<PerSecond>> {
    let classes = demand.classes.iter();
    classes.map(|class| kind.most_of(class.size_bytes)).collect()
}

fn problem(fleet: &[FleetKind], demand: &Demand, args: &PlaceArgs) -> Problem {
    let guard = Ratio::new(args.guard);
    let kinds = fleet.iter().map(|kind| Kind {
        machine: kind.machine.clone(),
        count: kind.count,
        serves: demand
            .classes
            .iter()
            .zip(most(kind, demand))
            .map(|(class, most)| {
                // Its load is that of the mean size; in time must be the size that nearly all are within.
                let cost = kind.cost_of(class.size_bytes);
                let limit = |cost, most| measured_limit(&kind.machine, cost, most, args.slo, guard);
                let of_mean = limit(cost, most);
                let of_late = match class.late_bytes > class.size_bytes {
                    true => limit(kind.cost_of(class.late_bytes), kind.most_of(class.late_bytes)),
                    false => of_mean,
                };
                Serving {
                    cost,
                    limit: of_mean.zip(of_late).map(|(mean, late)| mean.min(late)),
                }
            })
            .collect(),
    });
    let steps = demand.classes.first().map_or(0, |class| class.rates.len());
    Problem {
        classes: demand.classes.iter().map(demand::DemandClass::name).collect(),
        kinds: kinds.collect(),
        steps: (0..steps)
            .map(|step| Step {
                length: demand.step,
                rates: demand.classes.iter().map(|class| class.rates[step]).collect(),
            })
            .collect(),
        spare: args.spare,
    }
}

/// The configuration of the law, for machines at this share of their speed.
fn law(fleet: &[FleetKind], speed: f64) -> Result<String, Failure> {
    #[derive(Serialize)]
    struct Config {
        law: Law,
    }
    #[derive(Serialize)]
    struct Law {
        placement: Table,
    }
    #[derive(Serialize)]
    struct Table {
        machines: BTreeMap<String, String>,
        kinds: BTreeMap<String, KindFigures>,
    }
    let backends = fleet
        .iter()
        .flat_map(|kind| (1..=kind.count).map(move |number| (kind, number)));
    let machines = backends.map(|(kind, number)| {
        let name = &kind.machine.name;
        (format!("http://{name}-{number}:80"), name.clone())
    });
    let config = Config {
        law: Law {
            placement: Table {
                machines: machines.collect(),
                kinds: fleet
                    .iter()
                    .map(|kind| (kind.machine.name.clone(), at_speed(kind.figures(), speed)))
                    .collect(),
            },
        },
    };
    let toml = toml::to_string(&config).map_err(|error| Failure::Run(error.into()))?;
    let of_speed = match speed == 1.0 {
        true => "For emulated machines at a share of the speed (headroom service machine --speed) give --speed here too.".to_owned(),
        false => format!("For machines that are emulated at {speed} of their speed (headroom service machine --speed {speed})."),
    };
    let early = fleet.iter().filter_map(FleetKind::full_early);
    let off = fleet.iter().filter_map(FleetKind::off_the_line);
    let unknown: String = early
        .chain(off)
        .map(|note| format!("# The law does not know: {note}.\n"))
        .collect();
    Ok(format!(
        "# The backends' URLs are examples: give those of gateway.backends.\n# {of_speed}\n{unknown}{toml}"
    ))
}

/// The figures of a machine whose cores and link have a share of their speed; its watts stay.
fn at_speed(of: KindFigures, speed: f64) -> KindFigures {
    KindFigures {
        link_bytes_per_s: of.link_bytes_per_s * speed,
        request_us: of.request_us / speed,
        kilobyte_us: of.kilobyte_us / speed,
        ..of
    }
}

#[cfg(test)]
mod tests;
