//! The start of a run on live traffic, the same on one machine and on many: the admin port, the law (which begins with
//! everything on where nobody gave μ), the view, the run.

use crate::args::RunArgs;
use crate::commands::report::DEFAULT_DB;
use crate::config::{AdminConfig, ControlConfig, RecordConfig};
use headroom_console::Failure;
use headroom_console::Stop;
use headroom_console::say;
use headroom_console::terminal;
use headroom_console::{ConfigError, Document};
use headroom_control::stack::Part;
use headroom_control::{
    Calibrating, Law, LawConfig, LawContext, LawName, LawNames, LoadHistory, Plant, PlantError, Slo, Stack,
};
use headroom_node::restore;
use headroom_physics::MachineFigures;
use headroom_record::{Archive, Provenance, Recorder, RunSummary, summary_table};
use headroom_runtime::live::admin::{self, Status};
use headroom_runtime::live::run::{RunPlan, Watchers, World, run};
use headroom_runtime::live::view::View;
use headroom_runtime::live::{Frame, service_manager, silence};
use headroom_runtime::oncall::LEVERS;
use headroom_units::{Lever, LeverRange, PerSecond, Seconds, Source};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// A line on standard error, where there is no view.
const LINES_EVERY: Duration = Duration::from_secs(10);
/// So many requests can no core serve in a second.
const MAX_RATE: PerSecond = PerSecond::new(1e9);

/// μ, and for how long it is observed where nobody gave it.
#[derive(Clone, Copy, Debug)]
pub struct ServiceRate {
    /// As it was given.
    pub given: Option<PerSecond>,
    /// For how long it is observed else, at least.
    pub observed_for: Seconds,
}

/// The admin port, which answers already.
pub struct Admin {
    /// What it tells.
    pub status: Arc<Status>,
    address: Option<SocketAddr>,
}

/// Opens the record and the admin port, which answers from then on: before anything is measured or changed.
///
/// # Errors
/// A record that cannot be written, an address that cannot be listened on.
pub fn open(
    record: &RecordConfig,
    admin: &AdminConfig,
    (laws, control): (&LawNames, &ControlConfig),
    document: &Document,
) -> Result<(Recorder, Admin), Failure> {
    let missing = missing_folder(&record.db);
    let recorder =
        Recorder::open(&record.db, record.limits()).map_err(|error| unusable_record(document, &error))?;
    if let Some(folder) = missing {
        say::note!(
            "note: the folder {} was not there, and was made for the record",
            folder.display()
        );
    }
    let status = Arc::new(Status::new(laws.to_string(), control.period()));
    let mut address = None;
    if let Some(wanted) = admin.listen {
        let listener =
            admin::bind(wanted).map_err(|error| document.error("admin.listen", format!("{error:#}")))?;
        address = Some(admin::serve(listener, status.clone())?);
    }
    Ok((recorder, Admin { status, address }))
}

/// That the record cannot be used, with what names another file here: its key, or the flag that gave it.
pub fn unusable_record(document: &Document, error: &headroom_record::Error) -> ConfigError {
    const KEY: &str = "record.db";
    document.error(KEY, error.with_file_named_by(document.name_of(KEY)))
}

/// The folder of a record that is not there yet, unless it is the usual one: a path that was mistyped makes another.
fn missing_folder(db: &Path) -> Option<&Path> {
    let folder = db.parent().filter(|folder| !folder.as_os_str().is_empty())?;
    let is_usual = Path::new(DEFAULT_DB).parent() == Some(folder);
    (!is_usual && !folder.exists()).then_some(folder)
}

/// A plant with levers that its gateways have.
///
/// # Errors
/// A range that is none.
pub fn with_ranges(plant: Plant, ranges: &[(Lever, LeverRange)]) -> Result<Plant, PlantError> {
    let mut ranges = ranges.iter();
    ranges.try_fold(plant, |plant, (lever, range)| plant.with_range(*lever, *range))
}

/// What laws are built for whose μ is not known yet.
pub const fn context(slo: Slo, plant: Plant, machines: Vec<MachineFigures>) -> LawContext {
    LawContext {
        slo,
        plant,
        service_rate: MAX_RATE,
        machines,
    }
}

fn built(
    law: &LawConfig,
    name: LawName,
    document: &Document,
    context: &LawContext,
) -> Result<Box<dyn Law>, Failure> {
    law.build_named(name, context)
        .map_err(|error| document.error(&error.key, error.why).into())
}

/// The laws of a configuration together, as they would run with this μ.
///
/// # Errors
/// One that cannot be built, two on one lever, a lever that is not there; with the line.
pub fn stack(
    law: &LawConfig,
    document: &Document,
    context: &LawContext,
    control: &ControlConfig,
) -> Result<Stack, Failure> {
    if context.plant.bounds(Lever::Servers).is_some() {
        let foreseen = law.foresees(&context.machines, Seconds::from(control.period()));
        foreseen.map_err(|error| document.error(&error.key, error.why))?;
    }
    let part = |name: LawName| Ok(part(law, name, built(law, name, document, context)?));
    let parts: Vec<Part> = law.names.iter().map(part).collect::<Result<_, Failure>>()?;
    joined(parts, context.plant, control, document)
}

/// A law with the period that its kind has.
fn part(config: &LawConfig, name: LawName, law: Box<dyn Law>) -> Part {
    match name.resizes() {
        true => Part::new(law).every(config.servers_every_periods),
        false => Part::new(law),
    }
}

fn joined(
    parts: Vec<Part>,
    plant: Plant,
    control: &ControlConfig,
    document: &Document,
) -> Result<Stack, Failure> {
    let stack = Stack::new(parts, plant, control.lost_periods_to_full);
    let stack = stack.map_err(|error| document.error("law.name", error))?;
    Ok(stack.with_failing(control.failing()))
}

/// Whether a law whose μ is given can be built, and reach its target.
///
/// # Errors
/// Where it cannot, with the line.
pub fn buildable(law: &LawConfig, document: &Document, context: &LawContext) -> Result<(), Failure> {
    law.reachable(context)
        .map_err(|error| document.error(&error.key, error.why))?;
    law.names
        .iter()
        .try_for_each(|name| built(law, name, document, context).map(drop))
}

/// A run on live traffic.
pub struct Start<'a> {
    /// What the command line says of it.
    pub args: &'a RunArgs,
    /// Its name where the command line gives none.
    pub usual_name: &'a str,
    /// The promise.
    pub slo: Slo,
    /// The law's part of the configuration.
    pub law: &'a LawConfig,
    /// The period, and when telemetry is lost.
    pub control: &'a ControlConfig,
    /// The configuration.
    pub document: &'a Document,
    /// What can be allocated.
    pub plant: Plant,
    /// What each server is, in the order in which they are switched on.
    pub machines: Vec<MachineFigures>,
    /// μ.
    pub rate: ServiceRate,
    /// What it falls back to, in plain words.
    pub notes: Vec<String>,
    /// Where its watts come from; `None` where no watt is known because several sources do not add.
    pub power_source: Option<Source>,
    /// The nodes that it has, by name; empty where that is this machine alone.
    pub nodes: Vec<String>,
    /// Decide and say, and set nothing.
    pub dry: bool,
}

impl Start<'_> {
    /// The laws; where μ is not given, those that go by it begin with everything on and observe it.
    fn laws(&self, plant: Plant) -> Result<Stack, Failure> {
        let part = |name: LawName| {
            // Of a server on call alone nothing is moved by μ: the law `joint` of `wrap`.
            let is_of_server = || {
                plant
                    .levers()
                    .iter()
                    .all(|moved| LEVERS.iter().any(|(lever, _)| lever == moved))
            };
            let law = match name.needs_service_rate() && !is_of_server() {
                // Whatever μ is: a law of the batch interval behind a cache, say, which leaves the service too little work to show it.
                false => built(self.law, name, self.document, &self.context(plant, MAX_RATE))?,
                true => self.law(name, plant)?,
            };
            Ok(part(self.law, name, law))
        };
        let parts: Vec<Part> = self.law.names.iter().map(part).collect::<Result<_, Failure>>()?;
        joined(parts, plant, self.control, self.document)
    }

    fn law(&self, name: LawName, plant: Plant) -> Result<Box<dyn Law>, Failure> {
        let reported = |rate: PerSecond| say::note!("one core serves {:.1} requests/s", rate.get());
        if let Some(rate) = self.rate.given {
            reported(rate);
            return built(self.law, name, self.document, &self.context(plant, rate));
        }
        // What no μ makes good, such as a lever that the machine lacks, is an error now and not in the night.
        let prototype = built(self.law, name, self.document, &self.context(plant, MAX_RATE))?;
        let length = self.rate.observed_for;
        say::note!(
            "everything is on until the traffic has shown, for {} s at least, what one core serves",
            length.get()
        );
        let (config, context) = (self.law.clone(), self.context(plant, MAX_RATE));
        let build = move |service_rate| {
            let context = LawContext {
                service_rate,
                ..context.clone()
            };
            let law = config
                .build_named(name, &context)
                .map_err(|error| error.to_string())?;
            reported(service_rate);
            Ok(law)
        };
        Ok(Box::new(Calibrating::new(prototype, plant, length, build)))
    }

    fn context(&self, plant: Plant, service_rate: PerSecond) -> LawContext {
        LawContext {
            slo: self.slo,
            plant,
            service_rate,
            machines: self.machines.clone(),
        }
    }

    /// The load that earlier runs of this name recorded; nothing where there was none. It is no reason not to start that it
    /// cannot be read.
    fn recalled(&self, record: &Path, name: &str) -> Option<LoadHistory> {
        let period = Seconds::from(self.control.period());
        let asked = (self.control.recall_days * 86_400.0 / period.get()) as usize;
        let most = asked.min(LoadHistory::MAX_PERIODS);
        if most == 0 {
            return None;
        }
        let past = Archive::open(record)
            .and_then(|archive| archive.past_load(name, period, SystemTime::now(), most));
        let past = match past {
            Ok(past) => past,
            Err(error) => {
                say::note!("note: what earlier runs saw arrive cannot be read, and is learned anew: {error}");
                return None;
            }
        };
        if let Some((one, other)) = past.at_once {
            say::note!(
                "note: the runs {one} and {other} of the record are both named `{name}` and ran at the same time: what earlier runs saw \
                 arrive is not recalled. Give each service a name (--name) or a record of its own (record.db)"
            );
            return None;
        }
        let mut history = LoadHistory::new(period);
        past.rates.iter().for_each(|rate| history.push(*rate));
        let known = history.known();
        if known <= Seconds::ZERO {
            return None;
        }
        say::note!(
            "the load of {:.1} h, of {} earlier runs named `{name}`, is recalled from the record",
            known.get() / 3600.0,
            past.runs.len()
        );
        Some(history)
    }

    /// Runs until `stop` is raised or the given duration is over; `None` where it was raised before the run began.
    ///
    /// # Errors
    /// A law that cannot be built, a view that cannot be opened, a run that broke.
    pub fn run(self, world: World<'_>, admin: &Admin, stop: &Stop) -> Result<Option<RunSummary>, Failure> {
        if let Some(address) = admin.address {
            say::note!("metrics on http://{address}/metrics");
        }
        let watch = restore::global().watch();
        service_manager::keep_watchdog(watch, silence(self.control.period()))?;
        service_manager::ready();
        let mut law = self.laws(self.plant)?;
        let name = self.args.name.as_deref().unwrap_or(self.usual_name).to_owned();
        if law.recalls()
            && let Some(history) = self.recalled(world.recorder.path(), &name)
        {
            law.recall(history);
        }
        let servers = self.plant.bounds(Lever::Servers);
        let of_gateways: Vec<(Lever, LeverRange)> = self.plant.of_cluster().collect();
        let laws = |plant: Plant| {
            let plant = match servers {
                Some((_, all)) => plant.with_servers(all as usize),
                None => plant,
            };
            self.laws(with_ranges(plant, &of_gateways)?)
                .map_err(|failure| anyhow::anyhow!("{failure}"))
        };
        let period = self.control.period();
        let view = terminal::view(self.args.no_view, || View::open(stop.clone()))?;
        let plan = RunPlan {
            name,
            trace: "live traffic".to_owned(),
            seed: 0,
            length: self.args.duration.map(Seconds::new),
            frame: Frame {
                period,
                slo: self.slo,
                dry: self.dry,
            },
            plant: self.plant,
            notes: self.notes.clone(),
            power_source: self.power_source,
            config: self.document.text().to_owned(),
            nodes: self.nodes.clone(),
            provenance: Provenance::of_this_process(env!("CARGO_PKG_VERSION")).on_live_traffic(),
            lines_every: (LINES_EVERY.as_secs_f64() / period.as_secs_f64())
                .round()
                .max(1.0) as u64,
        };
        let watchers = Watchers {
            view: view.as_ref(),
            status: Some(&admin.status),
        };
        let duration = self.args.duration.unwrap_or(f64::INFINITY);
        let done = |at: Seconds| at.get() >= duration;
        service_manager::status(&format!("law {} in control", plan.name));
        let outcome = run(&plan, (&mut law, Some(&laws)), world, watchers, stop, done);
        service_manager::stopping();
        Ok(Some(outcome?))
    }
}

/// The option with which `report` finds a record that is not where it looks by itself.
pub fn elsewhere(db: &Path) -> String {
    match db == Path::new(DEFAULT_DB) {
        true => String::new(),
        false => format!(" --db {}", db.display()),
    }
}

/// Prints how a run ended, as was asked for.
///
/// # Errors
/// Standard output that cannot be written.
pub fn tell(summary: RunSummary, args: &RunArgs, db: &Path) -> Result<(), Failure> {
    if args.json {
        return say::result(serde_json::to_string(&summary)?);
    }
    say::result(format_args!(
        "{}\nthe record: {}; `headroom report latest{}` draws it",
        summary_table(&[summary]),
        db.display(),
        elsewhere(db)
    ))
}
