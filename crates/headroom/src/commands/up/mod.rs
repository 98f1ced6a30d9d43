//! `headroom up`: meters, actuators, law and recorder in one process, and a gateway in another that it keeps, in front of
//! any service.

mod apart;
mod check;

use crate::args::{GuardChoice, RunArgs, Trees};
use crate::check::{Report, conclude, power_key, savings};
use crate::config::{Config, EXAMPLE, Lever, machine};
use crate::demos;
use crate::oncall::{self, OnCall};
use crate::start::{self, ServiceRate, Start};
use anyhow::anyhow;
use apart::apart;
use clap::Args;
use headroom_console::Document;
use headroom_console::Failure;
use headroom_console::Mistakes;
use headroom_console::Stop;
use headroom_console::say;
use headroom_control::{Decision, LawContext, Plant, Slo};
use headroom_node::Roots;
use headroom_node::agent::LocalOptions;
use headroom_node::cap::LimiterOptions;
use headroom_node::cgroup::Target;
use headroom_node::cpu::online;
use headroom_node::power::PowerModel;
use headroom_node::probe::probe;
use headroom_node::restore::{self, MAX_PULSES};
use headroom_physics::MachineFigures;
use headroom_record::RunSummary;
use headroom_runtime::cluster::gateway_port::levers_of;
use headroom_runtime::descriptors;
use headroom_runtime::door::{self, Door, OpenError};
use headroom_runtime::live::control::Control;
use headroom_runtime::live::guard::namespace::Place;
use headroom_runtime::live::{CgroupMachine, Device, Telemetry, run, service_manager, silence, undo};
use headroom_runtime::oncall::{Attachment, LEVERS};
use headroom_units::{Cores, PerSecond, Seconds};
use serde_json::json;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::thread::ScopedJoinHandle;

/// `headroom up`.
#[derive(Debug, Args)]
pub struct UpArgs {
    /// The configuration file. Given more than once, one process controls several services of this machine, each by its
    /// own file; their power is estimated by the model, and the frequency is the highest that any of them asks for.
    #[arg(long, short, value_name = "FILE", required_unless_present = "example")]
    pub config: Vec<PathBuf>,
    /// Check the configuration and what it needs of this machine, change nothing, and stop. With --json what was found is
    /// one JSON object, errors too.
    #[arg(long)]
    pub check: bool,
    /// Print an example configuration that explains every key, with the lever that saves most on this machine, and stop.
    #[arg(long)]
    pub example: bool,
    /// The run.
    #[command(flatten)]
    pub run: RunArgs,
    /// Folder for the record of what is to be put back if this program is killed. By default /run/headroom for root,
    /// and $XDG_RUNTIME_DIR/headroom, or where that is not set /tmp/headroom-UID, for others.
    #[arg(long, value_name = "DIR")]
    pub run_dir: Option<PathBuf>,
    /// The guard.
    #[command(flatten)]
    pub guard: GuardChoice,
    /// Where the kernel's files are.
    #[command(flatten)]
    pub trees: Trees,
}

/// The most services that one process controls: the guard hears signs of life of the start of each one's run, its control loop
/// and its power cap, and what is beyond its limit is not watched.
const MAX_SERVICES: usize = MAX_PULSES / 3;

/// Runs until a signal, a key or the given duration ends it; then drains, puts everything back and prints the summary.
///
/// # Errors
/// A configuration, a target or a machine that cannot be used (nothing was changed then); a run that broke.
pub fn run(args: &UpArgs) -> Result<(), Failure> {
    if args.example {
        let roots = args.trees.roots();
        let savings = savings::of_machine(&roots, &probe(&roots));
        return say::result(savings::example(EXAMPLE, &savings).trim_end());
    }
    let run_dir = undo::run_dir(args.run_dir.as_deref())?;
    if args.check {
        return conclude(args.run.json, check::checked(args, &run_dir));
    }
    descriptors::raise_limit();
    let configs = read(args)?;
    let roots = args.trees.roots();
    // Before anything is looked at: what a killed run left in force is not what was found.
    let place = Place::required(args.guard.allow_guard_inside);
    undo::protect(undo::take(&run_dir, demos::REMAINS)?, &roots, place)?;
    let mut services = prepare(configs, &run_dir, &roots)?;
    let _control = Control::serve(&run_dir, restore::global()).map_err(Failure::usage)?;
    let stop = Stop::at_signals()?;
    door::end_strangers(
        &run_dir,
        &services.iter().map(|service| &*service.dir).collect::<Vec<_>>(),
    );
    let outcomes = serve_all(args, &mut services, &stop);
    let dbs: Vec<PathBuf> = services
        .iter()
        .map(|service| service.config.record.db.clone())
        .collect();
    drop(services);
    undo::keep();
    // What the others recorded is said also where one failed.
    let mut failed = None;
    for (outcome, db) in outcomes.into_iter().zip(dbs) {
        match outcome {
            Ok(Some(summary)) => start::tell(summary, &args.run, &db)?,
            Ok(None) => {}
            Err(error) => failed = failed.or(Some(error)),
        }
    }
    failed.map_or(Ok(()), Err)
}

/// Whose the limits are that are in force now.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Limits {
    /// An administrator's: cores beyond them cannot be had.
    AsFound,
    /// A run's own, which puts them back when it ends.
    OfARun,
}

/// One service: its configuration, what was found of it, and where its gateway's process leaves its record.
struct Service {
    config: Config,
    document: Document,
    world: World,
    dir: PathBuf,
    /// What is to be said of it beside what the machine says.
    notes: Vec<String>,
    /// The server on call that it is, where it is one.
    oncall: Option<OnCall>,
}

/// What each of several services says of its power.
const SHARED_MACHINE: &str = "several services share this machine: the power of each is estimated as if it were alone, so \
    that the machine's base is in every one of them and their energies do not add up; the frequency is the highest that any asks for";

/// The configurations, each of a service; what cannot be at once is refused.
fn read(args: &UpArgs) -> Result<Vec<(Config, Document)>, Failure> {
    if args.config.len() > MAX_SERVICES {
        return Err(Failure::usage(anyhow!(
            "--config is given {} times: one headroom controls at most {MAX_SERVICES} services",
            args.config.len()
        )));
    }
    let (mut configs, mut mistakes) = (Vec::new(), Mistakes::default());
    for file in &args.config {
        configs.extend(mistakes.of(Config::read(file, |names| args.run.laws(names))));
    }
    if configs.len() > 1 {
        for (config, document) in &mut configs {
            mistakes.of(config.power.share(document));
        }
    }
    mistakes.done()?;
    if !args.run.law.is_empty() {
        configs
            .iter_mut()
            .for_each(|(_, document)| document.given_by("law.name", "--law"));
    }
    apart(&configs)?;
    Ok(configs)
}

/// What start and check do alike before anything listens.
fn prepare(configs: Vec<(Config, Document)>, run_dir: &Path, roots: &Roots) -> Result<Vec<Service>, Failure> {
    let several = configs.len() > 1;
    let mut services: Vec<Service> = Vec::new();
    for configured in configs {
        let dir = (run_dir, several);
        let service = Service::prepare(configured, dir, roots, Limits::AsFound, &services)?;
        services.push(service);
    }
    Ok(services)
}

impl Service {
    /// One service beside others of the same process; where there are `several`, each has a folder of its own.
    fn prepare(
        (mut config, document): (Config, Document),
        (run_dir, several): (&Path, bool),
        roots: &Roots,
        limits: Limits,
        others: &[Self],
    ) -> Result<Self, Failure> {
        let world = World::open(&config, &document, roots, limits)?;
        let oncall = world.on_call(&mut config, &document, run_dir, roots)?;
        // A law can be built only where mu is known; otherwise it is measured later.
        if let Some(rate) = config.service.requests_per_core_s.map(PerSecond::new) {
            let context = LawContext {
                service_rate: rate,
                ..world.context(config.slo(&document)?)
            };
            start::buildable(&config.law, &document, &context)?;
        }
        start::stack(
            &config.law,
            &document,
            &world.context(config.slo(&document)?),
            &config.control,
        )?;
        let group = &world.target.cpu_dir;
        if let Some(other) = others.iter().find(|other| other.world.target.cpu_dir == *group) {
            let why = format!(
                "{} is the service of {} too: one law controls a service",
                group.display(),
                other.document.file().display()
            );
            return Err(document.error(config.service.target_key(), why).into());
        }
        let dir = match several {
            true => door::dir_of(run_dir, group),
            false => run_dir.to_owned(),
        };
        let mut notes = config.notes(&document)?;
        notes.extend(several.then(|| SHARED_MACHINE.to_owned()));
        let (oncall, pays) = oncall.unzip();
        notes.extend(pays);
        Ok(Self {
            notes,
            oncall,
            config,
            document,
            world,
            dir,
        })
    }
}

/// The machine as a configuration describes it.
struct World {
    machine: CgroupMachine,
    plant: Plant,
    target: Target,
    /// What the machine is, as a law plans by it.
    figures: MachineFigures,
}

impl World {
    fn open(config: &Config, document: &Document, roots: &Roots, limits: Limits) -> Result<Self, Failure> {
        let target = Target::resolve(roots, &config.service.target())
            .map_err(|error| document.error(config.service.target_key(), error))?;
        let machine_cores = Cores::new(online(roots)?.len() as f64);
        let figures = machine::figures(&config.machine, document, "machine", machine_cores)?;
        let model = PowerModel::new(figures.clone()).map_err(|error| document.error("machine", error))?;
        let options = LocalOptions {
            meter: config.power.meter,
            // A delay between rounds makes idle periods longer, and nothing else.
            idle_by_periods: config.oncall.is_some(),
            limiter: LimiterOptions {
                lease: Some(Seconds::from(silence(config.control.period()))),
                ..config.power.limiter(&config.service)
            },
            ..LocalOptions::of(roots.clone(), config.service.target(), model.clone())
        };
        let machine = CgroupMachine::open(options, restore::global()).map_err(|error| {
            let key = power_key(&error).unwrap_or(config.service.target_key());
            document.error(key, format!("{error:#}"))
        })?;
        let of_a_run = limits == Limits::OfARun || restore::global().is_refused();
        let most = match of_a_run {
            false => machine.most_cores()?,
            // A run's limit is no bound for the next one.
            true => machine.most_cores()?.max(machine_cores),
        };
        let range = config.core_range(document, most)?;
        let envelope = machine.envelope(&model, range.min())?;
        let plant = machine.with_frequency(config.plant(document, range, envelope)?)?;
        let of_gateway = config.gateway.as_ref().map_or_else(Vec::new, levers_of);
        let plant =
            start::with_ranges(plant, &of_gateway).map_err(|error| document.error("gateway", error))?;
        let of_server: &[_] = match config.oncall {
            Some(_) => &LEVERS,
            None => &[],
        };
        let plant = start::with_ranges(plant, of_server).map_err(|error| document.error("oncall", error))?;
        Ok(Self {
            machine,
            target,
            figures: machine::with_frequencies(&config.machine, figures, plant.frequency()),
            plant,
        })
    }

    /// What `[oncall]` says, with the laws told from when on an idle period pays; and that in words.
    fn on_call(
        &self,
        config: &mut Config,
        document: &Document,
        run_dir: &Path,
        roots: &Roots,
    ) -> Result<Option<(OnCall, String)>, Failure> {
        let Some(server) = config.oncall.as_ref().and_then(|oncall| oncall.server.as_ref()) else {
            return Ok(None);
        };
        let of = (run_dir, server.as_str(), document);
        let (on_call, mut note) = OnCall::new(of, (roots, &self.target, &self.figures))?;
        config.law = oncall::with_break_even(&config.law, on_call.machine().1);
        if let Some(never) = oncall::no_delay_pays(&config.law) {
            note = format!("{note}; {never}");
        }
        Ok(Some((on_call, note)))
    }

    /// What laws are built for before their μ is known.
    fn context(&self, slo: Slo) -> LawContext {
        start::context(slo, self.plant, vec![self.figures.clone()])
    }

    fn describe(&self, config: &Config, document: &Document, report: &mut Report) -> Result<(), Failure> {
        let law = config.law.names.to_string();
        report.fact("law", "law", &law, law.as_str());
        report.slo(config.slo(document)?);
        let (name, group) = (&self.target.name, self.target.cpu_dir.display().to_string());
        report.fact(
            "service",
            "service",
            format_args!("{name} (cgroup {group})"),
            json!({ "name": name, "cgroup": group }),
        );
        let cores_by = match config.service.lever {
            Lever::Quota => "CPU quota",
            Lever::Cpuset => "cpuset",
        };
        report.plant(&self.plant, cores_by, &self.machine.cap_lever());
        report.gateway_levers(&self.plant);
        report.oncall_levers(&self.plant);
        let (meter, source) = (self.machine.meter(), self.machine.source().as_str());
        report.fact(
            "meter",
            "meter",
            format_args!("{meter} ({source})"),
            json!({ "name": meter, "source": source }),
        );
        Ok(())
    }
}

/// Runs each service on a thread of its own, one alone on this one; where one ends, the others do.
fn serve_all(
    args: &UpArgs,
    services: &mut [Service],
    stop: &Stop,
) -> Vec<Result<Option<RunSummary>, Failure>> {
    if let [service] = services {
        return vec![serve(&args.run, service, stop)];
    }
    service_manager::expect(services.len());
    std::thread::scope(|scope| {
        let mut threads = Vec::new();
        for service in services {
            let name = service.world.target.name.clone();
            let run = RunArgs {
                // One view shows one run.
                no_view: true,
                name: Some(match &args.run.name {
                    Some(all) => format!("{all} {name}"),
                    None => name,
                }),
                ..args.run.clone()
            };
            let spawned = std::thread::Builder::new()
                .name("control".to_owned())
                .spawn_scoped(scope, move || {
                    let outcome = serve(&run, service, stop);
                    stop.raise();
                    outcome
                });
            threads.push(spawned.map_err(|error| {
                stop.raise();
                Failure::from(error)
            }));
        }
        let ended = |thread: Result<ScopedJoinHandle<'_, _>, Failure>| match thread?.join() {
            Ok(outcome) => outcome,
            Err(_) => Err(Failure::Run(anyhow!(
                "the thread of a service panicked: see above"
            ))),
        };
        threads.into_iter().map(ended).collect()
    })
}

/// Attaches to a server, or waits for it; with what is to be said of it.
fn attach(
    oncall: &OnCall,
    config: &Config,
    document: &Document,
) -> Result<(Attachment, Vec<String>), Failure> {
    let table = config.oncall.clone().unwrap_or_default();
    let options = oncall::attach_options(&table, &config.law, &config.control, oncall.machine());
    let opened = Attachment::open(oncall.at().clone(), options);
    let (attachment, mut notes) = opened.map_err(|error| document.error("oncall.server", error))?;
    notes.extend(oncall.note_of_group());
    Ok((attachment, notes))
}

fn serve(args: &RunArgs, service: &mut Service, stop: &Stop) -> Result<Option<RunSummary>, Failure> {
    let Service {
        config,
        document,
        world,
        dir,
        notes: more,
        oncall,
    } = service;
    // Before anything listens: one that somebody else commands is refused.
    let attached = oncall.as_ref().map(|oncall| attach(oncall, config, document));
    let (attached, of_server) = attached.transpose()?.unzip();
    let ran_by = (&config.law.names, &config.control);
    let (recorder, admin) = start::open(&config.record, &config.admin, ran_by, document)?;
    if let Some(server) = &attached {
        admin.status.attend_connections(server.connections());
    }
    let mut notes = world.machine.notes();
    notes.append(more);
    notes.extend(of_server.into_iter().flatten());
    // The gateway's process parses what clients send: it is to have no way to this terminal.
    let own_log = std::io::stderr().is_terminal();
    let door = config.gateway.as_ref().map(|gateway| {
        Door::open(gateway, dir, own_log).map_err(|error| match error {
            OpenError::Refused { key, why } => Failure::from(document.error(&key, why)),
            OpenError::Other(error) => error.into(),
        })
    });
    let door = door.transpose()?;
    let mut levers = None;
    let mut telemetry: Box<dyn Telemetry + '_> = match (&door, &config.telemetry) {
        (Some(door), _) => {
            for address in door.addresses() {
                say::note!("serving {} on {address}", world.target.name);
            }
            admin.status.attend(door.watched());
            let (telemetry, of_gateway) = door.telemetry(config.control.period())?;
            levers = Some(of_gateway);
            Box::new(telemetry)
        }
        (None, Some(telemetry)) => {
            let (telemetry, more) =
                telemetry.open(document, config.slo(document)?, config.slo.failed_status, None)?;
            notes.extend(more);
            telemetry
        }
        (None, None) => match &attached {
            Some(attached) => Box::new(attached.telemetry()),
            None => return Err(Failure::usage(document.error("gateway", "is missing"))),
        },
    };
    for note in &notes {
        say::note!("note: {note}");
    }
    let start = Start {
        args,
        usual_name: "up",
        slo: config.slo(document)?,
        law: &config.law,
        control: &config.control,
        document,
        plant: world.plant,
        machines: vec![world.figures.clone()],
        rate: ServiceRate {
            given: config.service.requests_per_core_s.map(PerSecond::new),
            observed_for: Seconds::new(config.service.calibrate_s),
        },
        notes,
        power_source: Some(world.machine.source()),
        nodes: Vec::new(),
        dry: false,
    };
    let mut devices: Vec<&mut dyn Device> = vec![&mut world.machine];
    devices.extend(levers.as_mut().map(|levers| levers as &mut dyn Device));
    let mut on_call = attached.as_ref().map(Attachment::device);
    devices.extend(on_call.as_mut().map(|server| server as &mut dyn Device));
    let live = run::World {
        devices,
        telemetry: Some(&mut *telemetry),
        recorder: &recorder,
    };
    let outcome = start.run(live, &admin, stop);
    // Whatever happened to the control plane, requests being served are finished, with everything on.
    let full = &mut Decision::of(world.plant.full());
    if let Err(error) = world.machine.apply(full) {
        tracing::warn!("everything could not be put to full for the end: {error:#}");
    }
    drop(telemetry);
    // Its workers are let go.
    drop((on_call, attached));
    if let Some(door) = door {
        door.close();
    }
    outcome
}
