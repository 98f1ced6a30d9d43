//! `headroom demo`: a built-in service under a compressed day, with everything on and under control: on two emulated clusters
//! side by side (`cluster`), or on one machine, one law after another (here).

mod bystanders;
pub(crate) mod cluster;
mod demo_machine;
mod wiki;

use super::trace;
use crate::args::law_names;
use crate::emulator;
use crate::origin;
use crate::simulate::{EmulatedRun, Measured};
use anyhow::{Context, anyhow, bail};
use bystanders::Used;
use clap::{Args, ValueEnum};
use demo_machine::DemoMachine;
use headroom_console::Failure;
use headroom_console::Stop;
use headroom_console::file;
use headroom_console::say;
use headroom_console::terminal;
use headroom_control::{Decision, LawConfig, LawContext, LawName, Plant, Slo, Stack, guardian};
use headroom_gateway::{BackendConfig, Gateway, GatewayConfig, Handle};
use headroom_load::http::{LoadConfig, LoadHandle, Pacing, Paths};
use headroom_node::agent::LocalOptions;
use headroom_node::cgroup::{CgroupScope, ScopeOptions, TargetSpec};
use headroom_node::power::PowerModel;
use headroom_node::restore;
use headroom_physics::MachineFigures;
use headroom_record::report::runs_html;
use headroom_record::{Archive, Limits, Recorder, RunSummary, compare_with_reference, summary_table};
use headroom_runtime::live::guard::namespace::Place;
use headroom_runtime::live::run::{RunPlan, Watchers, World};
use headroom_runtime::live::view::View;
use headroom_runtime::live::{
    CgroupMachine, Device, Frame, GatewayTelemetry, SystemClock, Telemetry, calibrate, run, undo,
};
use headroom_testbed::hardware::HardwareConfig;
use headroom_testbed::wiki::WikiCosts;
use headroom_units::{PerSecond, Ratio, Seconds};
use headroom_workload::{Arrivals, Spacing, Trace};
use std::net::SocketAddr;
use std::path::Path;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use wiki::Wiki;

/// `headroom demo`.
#[derive(Debug, Args)]
pub struct DemoArgs {
    /// One machine, and one law after another, instead of two clusters side by side.
    #[arg(long)]
    pub single: bool,
    /// Length of the compressed day, in seconds: there are two on clusters (90 by default), and with --single one for each law
    /// (120 by default).
    #[arg(long, value_name = "SECONDS")]
    pub duration: Option<f64>,
    /// The latency target T, in milliseconds: 500 on clusters by default, and 250 with --single.
    #[arg(long, value_name = "MS")]
    pub target_ms: Option<f64>,
    /// The percentile that the target is for.
    #[arg(long, default_value_t = 95.0, value_name = "PERCENT")]
    pub percentile: f64,
    /// The trace to replay: `wikipedia`, `azure`, or a file with one rate a line.
    #[arg(long, default_value = "wikipedia", value_name = "NAME|FILE")]
    pub trace: String,
    /// Seed of the trace and of the arrivals.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// The laws to compare, in this order; the first is what savings are measured against. By default fixed and joint, and with
    /// --single slo-power too.
    #[arg(long, value_parser = law_names(), value_delimiter = ',')]
    pub laws: Vec<LawName>,
    /// Cores of this machine that the service may have at most; on emulated hardware, those that stand for all cores
    /// of the emulated servers. By default some 0.6 of this machine's: the rest is for gateways and load generators,
    /// which run here too.
    #[arg(long, value_name = "CORES")]
    pub cores: Option<f64>,
    /// Niceness of the gateways, the load and the controllers of two clusters: below 0 other programs of a busy machine disturb them
    /// little, and they disturb those more.
    #[arg(long, value_name = "N", default_value_t = -10, allow_hyphen_values = true,
          value_parser = clap::value_parser!(i32).range(-20..=19))]
    pub nice: i32,
    /// Folder for the recorded run and the HTML report.
    #[arg(long, default_value = "out", value_name = "DIR")]
    pub out: PathBuf,
    /// Folder for the record of what is to be put back if this program is killed. By default /run/headroom for root,
    /// and $XDG_RUNTIME_DIR/headroom, or where that is not set /tmp/headroom-UID, for others.
    #[arg(long, value_name = "DIR")]
    pub run_dir: Option<PathBuf>,
    /// What the demo runs on with --single.
    #[arg(long, value_enum, default_value_t = Hardware::Auto)]
    pub hardware: Hardware,
    /// Print the run summaries as a JSON array on standard output, and nothing else there.
    #[arg(long)]
    pub json: bool,
    /// Print a line now and then instead of the live view.
    #[arg(long)]
    pub no_view: bool,
}

/// What a demonstration runs on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Hardware {
    /// This machine where it has RAPL that can be read and written, else the emulated server, else (without /dev/fuse)
    /// this machine with a modelled meter and a software cap. Which, and why, is said at the start.
    Auto,
    /// This machine with what it has.
    Real,
    /// The emulated server.
    Emulated,
}

/// Control period of the demo: half the usual one, for an hour of its day passes in some seconds.
const PERIOD: Duration = Duration::from_millis(500);
/// How long what one core serves is measured.
const CALIBRATION: Duration = Duration::from_secs(8);
/// The trace's peak, as a share of what all cores of the service can serve: room enough that `fixed` is never late.
const PEAK: f64 = 0.7;
/// The day and the target on one machine, and on clusters.
const DAY_S: f64 = 120.0;
const TARGET_MS: f64 = 250.0;
const CLUSTER_DAY_S: f64 = 90.0;
const CLUSTER_TARGET_MS: f64 = 500.0;
/// The laws on one machine.
const LAWS: [LawName; 3] = [LawName::FIXED, LawName::SLO_POWER, LawName::JOINT];
/// How long after the trace's end its last requests may take.
const AFTER_THE_END: Seconds = Seconds::new(15.0);

/// Runs the demo.
///
/// # Errors
/// A machine that cannot run it, with the remedy; a run that broke.
pub fn run(args: &DemoArgs) -> Result<(), Failure> {
    if let Some(duration) = args
        .duration
        .filter(|duration| !(30.0..=86_400.0).contains(duration))
    {
        return Err(Failure::usage(anyhow!(
            "--duration {duration}: a day takes between 30 s and 86400 s ({CLUSTER_DAY_S} is the default, {DAY_S} with --single)"
        )));
    }
    let clusters = clusters(args)?;
    let db = args.out.join("headroom.db");
    let summaries = match clusters {
        Some(laws) => {
            let slo = slo(args, CLUSTER_TARGET_MS)?;
            let length = Seconds::new(args.duration.unwrap_or(CLUSTER_DAY_S));
            cluster::perform(args, laws, slo, length, &db)?
        }
        None => perform(args, &db)?,
    };
    let Some(summaries) = summaries else {
        return Ok(());
    };
    let report = args.out.join("demo.html");
    let archive = Archive::open(&db)?;
    let runs: Vec<_> = summaries.iter().filter_map(|summary| summary.run).collect();
    file::write(&report, &runs_html(&archive, &runs)?)?;
    if args.json {
        return say::result(serde_json::to_string(&summaries)?);
    }
    let table = summary_table(&summaries);
    let verdict = clusters.and_then(|_| cluster::verdict(&summaries));
    let verdict = verdict.map_or(String::new(), |verdict| format!("\n{verdict}"));
    say::result(format_args!("{table}{verdict}\nreport: {}", report.display()))
}

/// The two laws that are compared on clusters; nothing where one machine is to do, or has to.
fn clusters(args: &DemoArgs) -> Result<Option<[LawName; 2]>, Failure> {
    if args.single {
        return Ok(None);
    }
    if args.hardware != Hardware::Auto {
        let why = anyhow!("--hardware is for one machine: give --single, too");
        return Err(Failure::usage(why));
    }
    let laws = match args.laws[..] {
        [] => [LawName::FIXED, LawName::JOINT],
        [first, second] if first != second => [first, second],
        _ => {
            let why = anyhow!(
                "--laws: two different laws are compared on clusters, and here are {}; with --single there may be any number",
                args.laws.len()
            );
            return Err(Failure::usage(why));
        }
    };
    Ok(match cluster::hindrance() {
        None => Some(laws),
        Some(why) => {
            say::note!("note: one machine and one law after another instead of two clusters: {why}");
            None
        }
    })
}

fn slo(args: &DemoArgs, target_ms: f64) -> Result<Slo, Failure> {
    let target = Seconds::from_millis(args.target_ms.unwrap_or(target_ms));
    Slo::new(Ratio::from_percent(args.percentile), target).map_err(Failure::usage)
}

/// Runs each law on the day, and records the runs; nothing where it was stopped.
///
/// # Errors
/// As [`run()`].
pub fn perform(args: &DemoArgs, db: &Path) -> Result<Option<Vec<RunSummary>>, Failure> {
    let slo = slo(args, TARGET_MS)?;
    let day = trace::named(&args.trace, Seconds::new(10.0), args.seed)?
        .compressed_to(Seconds::new(args.duration.unwrap_or(DAY_S)))
        .map_err(Failure::usage)?;
    let stop = Stop::at_signals()?;
    let run_dir = undo::run_dir(args.run_dir.as_deref())?;
    // Before anything is made in it: whoever has the run folder may take away what lies there of demos.
    let run_dir = undo::take(&run_dir, emulator::REMAINS)?;
    let demo_machine = DemoMachine::prepare(args, &run_dir)?;
    // What a demo limits is its own, and ends with it in whatever PID namespace.
    undo::protect(run_dir, &demo_machine.roots, Place::Inside)?;
    let outcome = stage(args, slo, &day, &demo_machine, db, &stop);
    undo::keep();
    drop(demo_machine);
    let summaries = outcome?;
    if summaries.is_none() {
        say::note!("stopped");
    }
    Ok(summaries)
}

/// What each law is given at its start.
struct LawInputs {
    slo: Slo,
    plant: Plant,
    rate: PerSecond,
}

/// Everything that the runs share.
struct Stage {
    machine: CgroupMachine,
    model: PowerModel,
    gateway: Handle,
    recorder: Recorder,
    demo_machine: String,
    real_per_core: f64,
    emulator: Option<u32>,
    wiki: Wiki,
    _scope: CgroupScope,
}

fn stage(
    args: &DemoArgs,
    slo: Slo,
    day: &Trace,
    demo_machine: &DemoMachine,
    db: &Path,
    stop: &Stop,
) -> Result<Option<Vec<RunSummary>>, Failure> {
    let mut stage = Stage::build(db, demo_machine)?;
    let envelope = stage.machine.envelope(&stage.model, demo_machine.range.min())?;
    let plant = Plant::new(demo_machine.range, envelope).map_err(Failure::usage)?;
    let plant = stage.machine.with_frequency(plant)?;
    for note in stage.notes() {
        say::note!("note: {note}");
    }

    stage.machine.apply(&mut Decision::of(plant.full()))?;
    let Some(rate) = stage.calibrate(plant, stop)? else {
        return Ok(None);
    };
    say::note!("one core serves {:.0} pages/s", rate.get());
    let peak = rate * plant.cores().max().get() * PEAK;
    let day = Arc::new(day.clone().scaled_to_peak(peak).map_err(Failure::usage)?);
    let names = match args.laws[..] {
        [] => &LAWS[..],
        ref given => given,
    };
    let laws = names
        .iter()
        .map(|name| law(*name, slo, plant, rate, stage.model.machine()))
        .collect::<Result<Vec<_>, Failure>>()?;

    let view = terminal::view(args.no_view, || View::open(stop.clone()))?;
    let mut summaries = Vec::new();
    for (name, mut law) in names.iter().zip(laws) {
        let before = (stage.wiki.costs()?, stage.used());
        let Some(mut summary) = stage.replay(args, *name, &mut law, slo, plant, &day, view.as_ref(), stop)?
        else {
            return Ok(None);
        };
        if let Some(hardware) = &demo_machine.emulated {
            let inputs = LawInputs { slo, plant, rate };
            stage.describe(&summary, *name, hardware, &inputs, &before.0)?;
        }
        if let Some(others) = stage.bystanders(before.1) {
            let note = bystanders::sentence(others);
            say::note!("{name}: {note}");
            if let Some(run) = summary.run {
                stage.recorder.annotate(run, &note)?;
                stage.recorder.keep_bystanders(run, others)?;
            }
            summary.notes.push(note);
            summary.conditions.bystanders = Some(others);
        }
        summaries.push(summary);
    }
    compare_with_reference(&mut summaries);
    Ok(Some(summaries))
}

/// The processors that this process may use.
fn processors() -> f64 {
    std::thread::available_parallelism().map_or(1.0, |cpus| cpus.get() as f64)
}

fn run_name(law: LawName) -> String {
    format!("demo-{law}")
}

fn law(
    name: LawName,
    slo: Slo,
    plant: Plant,
    rate: PerSecond,
    machine: &MachineFigures,
) -> Result<Stack, Failure> {
    let context = LawContext {
        slo,
        plant,
        service_rate: rate,
        machines: vec![machine.clone()],
    };
    let law = LawConfig::of(name).build(&context).map_err(Failure::usage)?;
    Stack::of(law, plant, guardian::DEFAULT_PATIENCE_PERIODS).map_err(Failure::usage)
}

impl Stage {
    fn build(db: &Path, demo_machine: &DemoMachine) -> Result<Self, Failure> {
        let roots = &demo_machine.roots;
        let recorder = Recorder::open(db, Limits::default())?;
        let name = format!("headroom-demo-{}", std::process::id());
        let scope = CgroupScope::create(roots, &ScopeOptions::named(name), restore::global())
            .context("the demo's service needs a cgroup of its own: run as root (sudo)")?;
        say::note!("starting the wiki");
        let wiki = Wiki::start(&scope)?;
        let model = match &demo_machine.emulated {
            Some(hardware) => PowerModel::new(hardware.metered())?,
            None => PowerModel::default_for(demo_machine.cores)?,
        };
        let target = TargetSpec::Path(scope.target().cpu_dir.display().to_string());
        let options = LocalOptions::of(roots.clone(), target, model.clone());
        let machine = CgroupMachine::open(options, restore::global())?;
        let gateway = Gateway::start(GatewayConfig {
            listen: vec![SocketAddr::from(([127, 0, 0, 1], 0))],
            threads: 1,
            backends: vec![BackendConfig::new(format!("http://{}", wiki.address))],
            ..GatewayConfig::default()
        })?;
        Ok(Self {
            machine,
            model,
            gateway,
            recorder,
            demo_machine: demo_machine.note.clone(),
            real_per_core: demo_machine.real_per_core,
            emulator: demo_machine.emulator_pid(),
            wiki,
            _scope: scope,
        })
    }

    fn notes(&self) -> Vec<String> {
        let mut notes = vec![self.demo_machine.clone()];
        notes.extend(self.machine.notes());
        notes.push("service, gateway and load generator share this machine".to_owned());
        notes
    }

    fn load(&self, seed: u64, trace: Arc<Trace>, spacing: Spacing) -> anyhow::Result<LoadHandle> {
        let Some(address) = self.gateway.local_addrs().first() else {
            bail!("the gateway listens nowhere")
        };
        let pages = self.wiki.pages.clone();
        Ok(headroom_load::http::start(LoadConfig {
            paths: Paths::Uniform(pages),
            seed,
            ..LoadConfig::new(
                format!("http://{address}/"),
                Pacing::open(Arrivals::new(trace, spacing, seed)),
            )
        })?)
    }

    /// Measures what one core serves, under even load at about half of what all cores of the service can do.
    fn calibrate(&mut self, plant: Plant, stop: &Stop) -> Result<Option<PerSecond>, Failure> {
        say::note!("measuring what one core serves, for {} s", CALIBRATION.as_secs());
        let guess = self.real_per_core / Seconds::from_millis(wiki::PAGE_CPU_MS).get();
        let rate = PerSecond::new(0.5 * guess * plant.cores().max().get());
        // Longer than needed: the measurement stops it.
        let trace = Trace::constant(rate, Seconds::from(CALIBRATION * 4))?;
        let load = self.load(0, Arc::new(trace), Spacing::Even)?;
        let mut telemetry = GatewayTelemetry::new(&self.gateway);
        let measured =
            calibrate::service_rate(&mut self.machine, &mut telemetry, CALIBRATION, &SystemClock, stop);
        load.stop();
        load.join()?;
        Ok(measured?)
    }

    /// Completes a run's record by the world that it was: the machine, and what the service cost while it ran.
    fn describe(
        &self,
        summary: &RunSummary,
        law: LawName,
        hardware: &HardwareConfig,
        inputs: &LawInputs,
        before: &WikiCosts,
    ) -> Result<(), Failure> {
        let measured = Measured::between(before, &self.wiki.costs()?);
        let (Some(service), Some(run), Some(real_cores)) = (measured, summary.run, hardware.real_cores)
        else {
            return Ok(());
        };
        let world = EmulatedRun {
            name: &summary.name,
            hardware,
            real_cores,
            cpus: processors(),
            slo: inputs.slo,
            period: PERIOD,
            plant: inputs.plant,
            law,
            assumed: inputs.rate,
            service: &service,
        };
        match world.text() {
            Ok(text) => self.recorder.describe(run, text)?,
            Err(why) => say::note!("`headroom validate` will not know the world of this run: {why}"),
        }
        Ok(())
    }

    /// CPU time of everything, and of the demo's own processes.
    fn used(&self) -> Option<Used> {
        let mut ours = vec![std::process::id(), self.wiki.pid()];
        ours.extend(self.emulator);
        Used::until_now(&ours)
    }

    /// What other programs used since then, as a share of the machine.
    fn bystanders(&self, before: Option<Used>) -> Option<Ratio> {
        let (before, now) = before.zip(self.used())?;
        Some(now.by_others_since(&before, processors()))
    }

    /// Replays the day under one law.
    #[expect(
        clippy::too_many_arguments,
        reason = "what differs between two replays, and what they share"
    )]
    fn replay(
        &mut self,
        args: &DemoArgs,
        name: LawName,
        law: &mut Stack,
        slo: Slo,
        plant: Plant,
        day: &Arc<Trace>,
        view: Option<&View>,
        stop: &Stop,
    ) -> Result<Option<RunSummary>, Failure> {
        say::note!(
            "{}: {:.0} s of the day, {:.0} requests",
            name,
            day.duration().get(),
            day.requests()
        );
        let plan = RunPlan {
            name: run_name(name),
            trace: day.name().to_owned(),
            seed: args.seed,
            length: Some(day.duration()),
            frame: Frame {
                period: PERIOD,
                slo,
                dry: false,
            },
            plant,
            notes: self.notes(),
            power_source: Some(self.machine.source()),
            config: format!("{args:?}"),
            nodes: Vec::new(),
            provenance: origin::provenance().with_load(Some(origin::of_trace(day, args.seed))),
            lines_every: 10,
        };
        self.machine.apply(&mut Decision::of(plant.full()))?;
        let load = self.load(args.seed, Arc::clone(day), Spacing::Poisson)?;
        let mut telemetry = GatewayTelemetry::new(&self.gateway);
        // The run ends with the last answer, which comes soon after the trace's end or never.
        let ends = day.duration();
        let done = |at: Seconds| at >= ends && (load.is_finished() || at >= ends + AFTER_THE_END);
        let watchers = Watchers { view, status: None };
        let world = World {
            devices: vec![&mut self.machine],
            telemetry: Some(&mut telemetry),
            recorder: &self.recorder,
        };
        let summary = run::run(&plan, (law, None), world, watchers, stop, done)?;
        load.stop();
        let offered = load.join()?;
        if stop.is_raised() {
            return Ok(None);
        }
        if offered.failed_total > 0 {
            say::note!(
                "{name}: {} requests failed, as the load generator saw it",
                offered.failed_total
            );
        }
        // What the pause leaves in the gateway's counters belongs to no run.
        telemetry.take(PERIOD);
        Ok(Some(summary))
    }
}
