//! `headroom up`: meters, actuators, law and recorder in one process, and a gateway in another that it keeps, in front of
//! any service.

use crate::check::{self, Report};
use crate::cli::UpArgs;
use crate::config::{Config, Document, EXAMPLE, Lever, gateway_key};
use crate::descriptors;
use crate::door::{self, Door, OpenError};
use crate::failure::Failure;
use crate::live::control::Control;
use crate::live::guard::namespace::Place;
use crate::live::start::{self, ServiceRate, Start};
use crate::live::{CgroupMachine, Machine, Telemetry, run, silence, undo};
use crate::say;
use crate::stop::Stop;
use headroom_control::Plant;
use headroom_gateway::Gateway;
use headroom_node::Roots;
use headroom_node::cap::LimiterOptions;
use headroom_node::cgroup::Target;
use headroom_node::cpu::online;
use headroom_node::restore;
use headroom_record::RunSummary;
use headroom_units::{Cores, PerSecond, Seconds};
use serde_json::json;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};

/// Runs until a signal, a key or the given duration ends it; then drains, puts everything back and prints the summary.
///
/// # Errors
/// A configuration, a target or a machine that cannot be used (nothing was changed then); a run that broke.
pub fn run(args: &UpArgs) -> Result<(), Failure> {
    let Some(file) = args.config.as_ref().filter(|_| !args.example) else {
        return say::result(EXAMPLE.trim_end());
    };
    if args.check {
        return check::conclude(args.run.json, checked(args, file));
    }
    descriptors::raise_limit();
    let (config, document, mut world) = prepare(args, file, |run_dir, roots| {
        // Before anything is looked at: what a killed run left in force is not what was found.
        let place = Place::required(args.guard.allow_guard_inside);
        undo::promise(undo::take(run_dir)?, roots, place)?;
        Ok(Limits::AsFound)
    })?;
    let _control = Control::serve(&run_dir(args), restore::global()).map_err(Failure::usage)?;
    let stop = Stop::at_signals()?;
    let outcome = serve((args, &run_dir(args)), &config, &document, &mut world, &stop);
    drop(world);
    undo::keep();
    let Some(summary) = outcome? else { return Ok(()) };
    start::tell(summary, &args.run, &config.record.db)
}

/// Whose the limits are that are in force now.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Limits {
    /// An administrator's: cores beyond them cannot be had.
    AsFound,
    /// A run's own, which puts them back when it ends.
    OfARun,
}

fn run_dir(args: &UpArgs) -> PathBuf {
    args.run_dir.clone().unwrap_or_else(undo::default_run_dir)
}

/// What start and check do alike before anything listens. `begin` is told the run directory before the machine is looked at.
fn prepare(
    args: &UpArgs,
    file: &Path,
    begin: impl FnOnce(&Path, &Roots) -> Result<Limits, Failure>,
) -> Result<(Config, Document, World), Failure> {
    let (mut config, document) = Config::read(file)?;
    config.law.name = args.run.law.unwrap_or(config.law.name);
    let roots = args.trees.roots();
    let limits = begin(&run_dir(args), &roots)?;
    let world = World::open(&config, &document, &roots, limits)?;
    // A law can be built only where mu is known; otherwise it is measured later.
    if let Some(rate) = config.service.requests_per_core_s.map(PerSecond::new) {
        let slo = config.slo(&document)?;
        config.law.reachable(&document, slo, rate)?;
        config.law.law(&document, slo, world.plant, rate)?;
    }
    Ok((config, document, world))
}

/// All that the start would refuse, and else what would run. Changes nothing.
fn checked(args: &UpArgs, file: &Path) -> Result<Report, Failure> {
    let (config, document, world) = prepare(args, file, |run_dir, _| {
        restore::usable(run_dir).map_err(Failure::usage)?;
        Ok(match restore::left(run_dir) {
            restore::Left::Nothing => Limits::AsFound,
            restore::Left::OfRunning(_) | restore::Left::OfKilled => Limits::OfARun,
        })
    })?;
    let run_dir = run_dir(args);
    let running = check::running_in(&run_dir);
    let mut report = Report::default();
    world.describe(&config, &document, &mut report)?;
    let admin = check::record_and_admin(&config.record, &config.admin, &document, &running, &mut report)?;
    if let Some(gateway) = &config.gateway {
        // What a killed run's gateway listens on is taken over.
        let ours = |address| running.holding(address).is_some() || door::is_left(&run_dir, address);
        Gateway::check(gateway, ours)
            .map_err(|error| document.error(&gateway_key(gateway, &error), error))?;
        let tls = gateway.tls.iter().map(|tls| (tls.listen, "gateway, TLS"));
        for (address, what) in gateway
            .listen
            .iter()
            .map(|address| (*address, "gateway"))
            .chain(tls)
        {
            report.listener(what, &address.to_string(), running.holding(address));
        }
        for backend in &gateway.backends {
            report.item("backend", "backends", &backend.url, backend.url.as_str());
        }
    }
    if let Some(telemetry) = &config.telemetry {
        let failed_status = config.slo.failed_status;
        telemetry.try_open(
            &document,
            config.slo(&document)?,
            failed_status,
            running.pid(),
            &mut report,
        )?;
    }
    drop(admin);
    report.line(
        "running",
        match running.pid() {
            Some(pid) => format!("yes, pid {pid}: the start waits for its end to have its run directory"),
            None => "no other headroom in this run directory".to_owned(),
        },
    );
    for note in world
        .machine
        .notes()
        .into_iter()
        .chain(undo::note_of_left(&run_dir))
    {
        report.note(note);
    }
    Ok(report)
}

/// The machine as a configuration describes it.
struct World {
    machine: CgroupMachine,
    plant: Plant,
    target: Target,
}

impl World {
    fn open(config: &Config, document: &Document, roots: &Roots, limits: Limits) -> Result<Self, Failure> {
        let target = Target::resolve(roots, &config.service.target())
            .map_err(|error| document.error(config.service.target_key(), error))?;
        let machine_cores = Cores::new(online(roots)?.len() as f64);
        let model = config
            .power
            .model
            .model(machine_cores)
            .map_err(|error| document.error("power.model", error))?;
        let mut machine = CgroupMachine::open(
            roots,
            &target,
            model,
            config.power.meter,
            LimiterOptions {
                lease: Some(Seconds::from(silence(config.control.period()))),
                ..config.power.limiter(&config.service)
            },
            restore::global(),
        )
        .map_err(|error| {
            let key = check::power_key(&error).unwrap_or(config.service.target_key());
            document.error(key, format!("{error:#}"))
        })?;
        machine.follow(config.service.target());
        let most = match limits {
            Limits::AsFound => machine.most_cores()?,
            // A run's limit is no bound for the next one.
            Limits::OfARun => machine.most_cores()?.max(machine_cores),
        };
        let range = config.core_range(document, most)?;
        let envelope = machine.envelope(&model, range.min())?;
        let plant = machine.with_frequency(config.plant(document, range, envelope)?)?;
        Ok(Self {
            machine,
            plant,
            target,
        })
    }

    fn describe(&self, config: &Config, document: &Document, report: &mut Report) -> Result<(), Failure> {
        let law = config.law.name.to_string();
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

fn serve(
    (args, run_dir): (&UpArgs, &Path),
    config: &Config,
    document: &Document,
    world: &mut World,
    stop: &Stop,
) -> Result<Option<RunSummary>, Failure> {
    let ran_by = (config.law.name, &config.control);
    let (recorder, admin) = start::open(&config.record, &config.admin, ran_by, document)?;
    let mut notes = world.machine.notes();
    // What the gateway's process writes while the live view has the terminal is held back with the rest.
    let own_log = !args.run.no_view && std::io::stderr().is_terminal();
    let door = config.gateway.as_ref().map(|gateway| {
        Door::open(gateway, run_dir, own_log).map_err(|error| match error {
            OpenError::Refused { key, why } => Failure::from(document.error(&key, why)),
            OpenError::Other(error) => error.into(),
        })
    });
    let door = door.transpose()?;
    let mut telemetry: Box<dyn Telemetry + '_> = match (&door, &config.telemetry) {
        (Some(door), _) => {
            for address in door.addresses() {
                say::note!("serving {} on {address}", world.target.name);
            }
            admin.status.attend(door.watched());
            Box::new(door.telemetry(config.control.period())?)
        }
        (None, Some(telemetry)) => {
            let (telemetry, more) =
                telemetry.open(document, config.slo(document)?, config.slo.failed_status)?;
            notes.extend(more);
            telemetry
        }
        (None, None) => return Err(Failure::usage(document.error("gateway", "is missing"))),
    };
    for note in &notes {
        say::note!("note: {note}");
    }
    let start = Start {
        args: &args.run,
        usual_name: "up",
        slo: config.slo(document)?,
        law: &config.law,
        control: &config.control,
        document,
        plant: world.plant,
        rate: ServiceRate {
            given: config.service.requests_per_core_s.map(PerSecond::new),
            observed_for: Seconds::new(config.service.calibrate_s),
        },
        notes,
        power_source: Some(world.machine.source()),
        nodes: Vec::new(),
    };
    let live = run::World {
        machine: &mut world.machine,
        telemetry: &mut *telemetry,
        recorder: &recorder,
    };
    let outcome = start.run(live, &admin, stop);
    // Whatever happened to the control plane, requests being served are finished, with everything on.
    let full = world.plant.full();
    if let Err(error) = world.machine.apply(full) {
        tracing::warn!("everything could not be put to full for the end: {error:#}");
    }
    drop(telemetry);
    if let Some(door) = door {
        door.close();
    }
    outcome
}
