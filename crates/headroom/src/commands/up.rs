//! `headroom up`: gateway, meters, actuators, law and recorder in one process in front of any service.

use crate::cli::UpArgs;
use crate::config::{Config, Document, EXAMPLE};
use crate::failure::Failure;
use crate::live::start::{self, ServiceRate, Start};
use crate::live::{CgroupMachine, GatewayTelemetry, Machine, Telemetry, run, undo};
use crate::say;
use crate::stop::Stop;
use headroom_control::Plant;
use headroom_gateway::Gateway;
use headroom_node::Roots;
use headroom_node::cgroup::Target;
use headroom_node::cpu::online;
use headroom_node::restore;
use headroom_record::RunSummary;
use headroom_units::{Cores, PerSecond};
use std::time::Duration;

/// Runs until a signal, a key or the given duration ends it; then drains, puts everything back and prints the summary.
///
/// # Errors
/// A configuration, a target or a machine that cannot be used (nothing was changed then); a run that broke.
pub fn run(args: &UpArgs) -> Result<(), Failure> {
    let Some(file) = args.config.as_ref().filter(|_| !args.example) else {
        return say::result(EXAMPLE.trim_end());
    };
    let (mut config, document) = Config::read(file)?;
    config.law.name = args.run.law.unwrap_or(config.law.name);
    let roots = args.trees.roots();
    let run_dir = args.run_dir.clone().unwrap_or_else(undo::default_run_dir);
    if !args.check {
        // Before anything is looked at: what a killed run left in force is not what was found.
        undo::promise(undo::take(&run_dir)?, &roots)?;
    }
    let mut world = World::open(&config, &document, &roots)?;
    // A law can be built only where mu is known; otherwise it is measured later.
    if let Some(rate) = config.service.requests_per_core_s {
        let slo = config.slo(&document)?;
        config
            .law
            .law(&document, slo, world.plant, PerSecond::new(rate))?;
    }
    if args.check {
        return say::result(world.describe(&config, undo::note_of_left(&run_dir)));
    }
    let stop = Stop::at_signals()?;
    let outcome = serve(args, &config, &document, &mut world, &stop);
    drop(world);
    undo::keep();
    let Some(summary) = outcome? else { return Ok(()) };
    start::tell(summary, &args.run, &config.record.db)
}

/// The machine as a configuration describes it.
struct World {
    machine: CgroupMachine,
    plant: Plant,
    target: Target,
}

impl World {
    fn open(config: &Config, document: &Document, roots: &Roots) -> Result<Self, Failure> {
        let target = Target::resolve(roots, &config.service.target())
            .map_err(|error| document.error(config.service.target_key(), error))?;
        let machine_cores = Cores::new(online(roots)?.len() as f64);
        let model = config
            .power
            .model
            .model(machine_cores)
            .map_err(|error| document.error("power.model", error))?;
        let machine = CgroupMachine::open(
            roots,
            &target,
            model,
            config.power.meter,
            config.power.limiter(&config.service),
            restore::global(),
        )
        .map_err(|error| document.error(config.service.target_key(), format!("{error:#}")))?;
        let most = machine.most_cores()?;
        let range = config.core_range(document, most)?;
        let envelope = machine.envelope(&model, range.min())?;
        let plant = machine.with_frequency(config.plant(document, range, envelope)?)?;
        Ok(Self {
            machine,
            plant,
            target,
        })
    }

    fn describe(&self, config: &Config, left: Option<String>) -> String {
        let mut text = format!(
            "law      {}\nservice  {} (cgroup {})\n{}",
            config.law.name,
            self.target.name,
            self.target.cpu_dir.display(),
            run::plant_lines(&self.plant)
        );
        for note in self.machine.notes().into_iter().chain(left) {
            text.push_str(&format!("note     {note}\n"));
        }
        text.push_str("nothing was changed");
        text
    }
}

fn serve(
    args: &UpArgs,
    config: &Config,
    document: &Document,
    world: &mut World,
    stop: &Stop,
) -> Result<Option<RunSummary>, Failure> {
    let (recorder, admin) = start::open(&config.record, &config.admin, document)?;
    let mut notes = world.machine.notes();
    let gateway = match &config.gateway {
        None => None,
        Some(gateway) => {
            let started = Gateway::start(gateway.clone());
            Some(started.map_err(|error| document.error(&config.gateway_key(&error), error))?)
        }
    };
    let mut telemetry: Box<dyn Telemetry + '_> = match (&gateway, &config.telemetry) {
        (Some(gateway), _) => {
            for address in gateway.local_addrs() {
                say::note!("serving {} on {address}", world.target.name);
            }
            Box::new(GatewayTelemetry::new(gateway))
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
            measured_for: Duration::from_secs_f64(config.service.calibrate_s),
            key: "service.requests_per_core_s",
        },
        notes,
        power_source: Some(world.machine.source()),
    };
    let live = run::World {
        machine: &mut world.machine,
        telemetry: &mut *telemetry,
        recorder: &recorder,
    };
    let outcome = start.run(live, admin, stop);
    // Whatever happened to the control plane, requests being served are finished, with everything on.
    let full = world.plant.full();
    if let Err(error) = world.machine.apply(full) {
        tracing::warn!("everything could not be put to full for the end: {error:#}");
    }
    drop(telemetry);
    if let Some(gateway) = gateway {
        gateway.shutdown_blocking(gateway.drain_timeout());
    }
    outcome
}
