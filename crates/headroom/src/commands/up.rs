//! `headroom up`: gateway, meters, actuators, law and recorder in one process in front of any service.

use crate::cli::UpArgs;
use crate::config::{Config, Document, EXAMPLE};
use crate::failure::Failure;
use crate::live::admin::{self, Status};
use crate::live::run::{RunPlan, Watchers};
use crate::live::view::View;
use crate::live::{CgroupMachine, Frame, GatewayTelemetry, Machine, Telemetry, calibrate, run, undo};
use crate::say;
use crate::stop::Stop;
use anyhow::Context;
use headroom_control::{Guardian, Law, Plant};
use headroom_gateway::Gateway;
use headroom_node::Roots;
use headroom_node::cgroup::Target;
use headroom_node::cpu::online;
use headroom_node::restore;
use headroom_record::{Limits, Recorder, RunSummary, summary_table};
use headroom_units::{Cores, PerSecond, Seconds};
use std::net::TcpListener;
use std::sync::Arc;
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
        undo::promise(&run_dir, &roots)?;
    }
    let mut world = World::open(&config, &document, &roots)?;
    // A law can be built only where mu is known; otherwise it is measured later.
    if let Some(rate) = config.service.requests_per_core_s {
        config.guarded_law(&document, world.plant, PerSecond::new(rate))?;
    }
    if args.check {
        return say::result(world.describe(&config, undo::note_of_left(&run_dir)));
    }
    let stop = Stop::at_signals()?;
    let outcome = serve(args, &config, &document, &mut world, &stop);
    drop(world);
    undo::keep();
    let Some(summary) = outcome? else { return Ok(()) };
    if args.run.json {
        say::result(serde_json::to_string(&summary)?)
    } else {
        say::result(format_args!(
            "{}\nthe record: {}; `headroom report latest` draws it",
            summary_table(&[summary]),
            config.record.db.display()
        ))
    }
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
        let cores = self.plant.cores();
        let power = self.plant.power();
        let mut text = format!(
            "law      {}\nservice  {} (cgroup {})\ncores    {} to {} in steps of {}\npower    {:.2} W + {:.2} W per \
             core, caps from {:.2} W\n",
            config.law.name,
            self.target.name,
            self.target.cpu_dir.display(),
            cores.min().get(),
            cores.max().get(),
            cores.step().get(),
            power.base.get(),
            power.per_core.get(),
            power.lowest_cap.get(),
        );
        text.push_str(&run::frequency_line(&self.plant));
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
    let limits = Limits {
        max_age: Duration::from_secs_f64(config.record.max_age_days * 86_400.0),
        max_bytes: (config.record.max_mib * 1024.0 * 1024.0) as u64,
    };
    let recorder = Recorder::open(&config.record.db, limits).map_err(Failure::usage)?;
    // All that is to be listened on, before anything is measured or changed.
    let admin = match config.admin.listen {
        Some(listen) => {
            Some(admin::bind(listen).map_err(|error| document.error("admin.listen", format!("{error:#}")))?)
        }
        None => None,
    };
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
            let (telemetry, more) = telemetry.open(document, config.slo(document)?)?;
            notes.extend(more);
            telemetry
        }
        (None, None) => return Err(Failure::usage(document.error("gateway", "is missing"))),
    };
    for note in &notes {
        say::note!("note: {note}");
    }
    let ready = Ready {
        notes,
        telemetry: &mut *telemetry,
        recorder: &recorder,
        admin,
    };
    let outcome = control(args, config, document, world, ready, stop);
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

/// What a run is started with.
struct Ready<'a> {
    notes: Vec<String>,
    telemetry: &'a mut dyn Telemetry,
    recorder: &'a Recorder,
    admin: Option<TcpListener>,
}

fn control(
    args: &UpArgs,
    config: &Config,
    document: &Document,
    world: &mut World,
    ready: Ready<'_>,
    stop: &Stop,
) -> Result<Option<RunSummary>, Failure> {
    let Ready {
        notes,
        telemetry,
        recorder,
        admin,
    } = ready;
    let period = Duration::from_secs_f64(config.control.period_ms / 1e3);
    let rate = match config.service.requests_per_core_s {
        Some(rate) => PerSecond::new(rate),
        None => {
            let length = Duration::from_secs_f64(config.service.calibrate_s);
            say::note!(
                "measuring what one core serves, for {} s with everything on",
                length.as_secs_f64()
            );
            world.machine.apply(world.plant.full())?;
            match calibrate::service_rate(&mut world.machine, telemetry, length, stop)? {
                Some(rate) => rate,
                None => return Ok(None),
            }
        }
    };
    say::note!("one core serves {:.1} requests/s", rate.get());
    let mut law: Guardian<Box<dyn Law>> = config.guarded_law(document, world.plant, rate)?;
    let status = Arc::new(Status::new(law.law().name(), period));
    if let Some(listener) = admin {
        let address = admin::serve(listener, Arc::clone(&status))?;
        say::note!("metrics on http://{address}/metrics");
    }
    let view = (!args.run.no_view && View::possible())
        .then(|| View::open(stop.clone()))
        .transpose()
        .context("the live view cannot be opened; --no-view does without it")?;
    let slo = config.slo(document)?;
    let plan = RunPlan {
        name: args.run.name.clone().unwrap_or_else(|| "up".to_owned()),
        trace: "live traffic".to_owned(),
        seed: 0,
        length: args.run.duration.map(Seconds::new),
        frame: Frame {
            period,
            slo,
            guard: config.law.guard(slo),
        },
        plant: world.plant,
        notes,
        power_source: Some(world.machine.source()),
        config: document.text().to_owned(),
        lines_every: 10,
    };
    let duration = args.run.duration.unwrap_or(f64::INFINITY);
    let watchers = Watchers {
        view: view.as_ref(),
        status: Some(&status),
    };
    let done = |at: Seconds| at.get() >= duration;
    let live = run::World {
        machine: &mut world.machine,
        telemetry,
        recorder,
    };
    let summary = run::run(&plan, &mut law, live, watchers, stop, done)?;
    Ok(Some(summary))
}
