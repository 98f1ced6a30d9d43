//! `headroom controller`: many agents and gateways under one law.

use crate::cli::ControllerArgs;
use crate::cluster::{ClusterMachine, ClusterOptions, ClusterTelemetry, Described};
use crate::config::Document;
use crate::config::controller::{ControllerFile, EXAMPLE};
use crate::failure::Failure;
use crate::live::admin::{self, Status};
use crate::live::run::{RunPlan, Watchers};
use crate::live::view::View;
use crate::live::{Frame, Machine, calibrate, run};
use crate::say;
use crate::stop::Stop;
use anyhow::{Context, anyhow};
use headroom_control::{Guardian, Law};
use headroom_record::{Limits, Recorder, RunSummary, summary_table};
use headroom_units::{Cores, PerSecond, Seconds};
use headroom_wire::message::Holder;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Runs until a signal, a key or the given duration ends it; then releases every node and prints the summary. However it
/// ends, each node puts itself back when its lease does.
///
/// # Errors
/// A configuration that cannot be used, no node or no gateway that can be reached, nodes that are all another
/// controller's: nothing was changed then. A run that broke.
pub fn run(args: &ControllerArgs) -> Result<(), Failure> {
    let Some(file) = args.config.as_ref().filter(|_| !args.example) else {
        return say::result(EXAMPLE.trim_end());
    };
    let (mut config, document) = ControllerFile::read(file)?;
    config.law.name = args.run.law.unwrap_or(config.law.name);
    let mut cluster = Cluster::open(&config, &document)?;
    if let Some(rate) = config.cluster.requests_per_core_s {
        cluster.law(&config, &document, PerSecond::new(rate))?;
    }
    if args.check {
        return say::result(cluster.describe(&config));
    }
    let stop = Stop::at_signals()?;
    let outcome = serve(args, &config, &document, &mut cluster, &stop);
    // Before the summary: the nodes are released.
    drop(cluster);
    let Some(summary) = outcome? else { return Ok(()) };
    if args.run.json {
        say::result(serde_json::to_string(&summary)?)
    } else {
        say::result(summary_table(&[summary]))?;
        let db = config.record.db.display();
        say::result(format_args!(
            "the record: {db}; `headroom report latest` draws it"
        ))
    }
}

/// The nodes and gateways as they were found.
struct Cluster {
    machine: ClusterMachine,
    telemetry: ClusterTelemetry,
    found: Described,
}

impl Cluster {
    fn open(config: &ControllerFile, document: &Document) -> Result<Self, Failure> {
        let client = config.client(document)?;
        let period = period(config);
        let name = config.cluster.name.clone().unwrap_or_else(run::host);
        let holder = Holder::new(name, crate::random().max(1))
            .map_err(|error| document.error("cluster.name", error))?;
        let options = ClusterOptions {
            nodes: config.node_addresses(document)?,
            client: client.clone(),
            holder,
            lease: config.lease(),
            period,
            step: Cores::new(config.cluster.cores_step),
        };
        let mut machine = ClusterMachine::start(options)?;
        let telemetry = ClusterTelemetry::start(config.gateway_addresses(document)?, &client, period)?;
        let wait = Duration::from_secs_f64(config.cluster.wait_s);
        let mut found = machine
            .describe(wait, config.most_cores())
            .map_err(|error| document.error("nodes", format!("{error:#}")))?;
        let missing = telemetry.connect(wait);
        if missing.len() == config.gateways.len() {
            let why = format!("none can be reached: {}", missing.join("; "));
            return Err(document.error("gateways", why).into());
        }
        found.notes.extend(missing);
        Ok(Self {
            machine,
            telemetry,
            found,
        })
    }

    fn law(
        &self,
        config: &ControllerFile,
        document: &Document,
        rate: PerSecond,
    ) -> Result<Guardian<Box<dyn Law>>, Failure> {
        let slo = config.slo.slo(document)?;
        let law = config.law.law(document, slo, self.found.plant, rate)?;
        Ok(Guardian::new(
            law,
            self.found.plant,
            config.control.lost_periods_to_full,
        ))
    }

    fn describe(&self, config: &ControllerFile) -> String {
        let (cores, power) = (self.found.plant.cores(), self.found.plant.power());
        let mut text = format!(
            "law      {}\nnodes    {}\ngateways {}\ncores    {} to {} in steps of {}\npower    {:.2} W + {:.2} W per core, \
             caps from {:.2} W\n",
            config.law.name,
            config.nodes.len(),
            config.gateways.len(),
            cores.min().get(),
            cores.max().get(),
            cores.step().get(),
            power.base.get(),
            power.per_core.get(),
            power.lowest_cap.get(),
        );
        text.push_str(&run::frequency_line(&self.found.plant));
        for note in &self.found.notes {
            text.push_str(&format!("note     {note}\n"));
        }
        text + "nothing was changed"
    }
}

fn period(config: &ControllerFile) -> Duration {
    Duration::from_secs_f64(config.control.period_ms / 1e3)
}

fn serve(
    args: &ControllerArgs,
    config: &ControllerFile,
    document: &Document,
    cluster: &mut Cluster,
    stop: &Stop,
) -> Result<Option<RunSummary>, Failure> {
    let limits = Limits {
        max_age: Duration::from_secs_f64(config.record.max_age_days * 86_400.0),
        max_bytes: (config.record.max_mib * 1024.0 * 1024.0) as u64,
    };
    let recorder = Recorder::open(&config.record.db, limits).map_err(Failure::usage)?;
    // All that is to be listened on, before anything is measured or changed.
    let bound = config.admin.listen.map(admin::bind).transpose();
    let admin = bound.map_err(|error| document.error("admin.listen", format!("{error:#}")))?;
    for note in &cluster.found.notes {
        say::note!("note: {note}");
    }
    // The first lease: only now is it known who else holds a node.
    let full = cluster.found.plant.full();
    let give_up = Instant::now() + config.lease() + Duration::from_secs(1);
    loop {
        let applied = cluster.machine.apply(full);
        let Some(held) = cluster.machine.all_held() else {
            applied?;
            break;
        };
        // A predecessor that was killed keeps its nodes until its leases end, and they are this one's then.
        if !held.by_our_name || Instant::now() >= give_up {
            return Err(Failure::usage(anyhow!("no node can be commanded: {}", held.why)));
        }
        if stop.wait_until(Instant::now() + Duration::from_millis(200)) {
            return Ok(None);
        }
    }
    let rate = match config.cluster.requests_per_core_s {
        Some(rate) => PerSecond::new(rate),
        None => {
            let length = Duration::from_secs_f64(config.cluster.calibrate_s);
            say::note!(
                "measuring what one core serves, for {} s with everything on",
                length.as_secs_f64()
            );
            let measured =
                calibrate::service_rate(&mut cluster.machine, &mut cluster.telemetry, length, stop)?;
            let Some(rate) = measured else { return Ok(None) };
            rate
        }
    };
    say::note!("one core serves {:.1} requests/s", rate.get());
    let mut law = cluster.law(config, document, rate)?;
    let period = period(config);
    let status = Arc::new(Status::new(law.law().name(), period));
    if let Some(admin) = admin {
        let address = admin::serve(admin, Arc::clone(&status))?;
        say::note!("metrics on http://{address}/metrics");
    }
    let view = (!args.run.no_view && View::possible())
        .then(|| View::open(stop.clone()))
        .transpose()
        .context("the live view cannot be opened; --no-view does without it")?;
    let slo = config.slo.slo(document)?;
    let plan = RunPlan {
        name: args.run.name.clone().unwrap_or_else(|| "controller".to_owned()),
        trace: "live traffic".to_owned(),
        seed: 0,
        length: args.run.duration.map(Seconds::new),
        frame: Frame {
            period,
            slo,
            guard: config.law.guard(slo),
        },
        plant: cluster.found.plant,
        notes: cluster.found.notes.clone(),
        power_source: cluster.found.source,
        config: document.text().to_owned(),
        lines_every: 10,
    };
    let duration = args.run.duration.unwrap_or(f64::INFINITY);
    let watchers = Watchers {
        view: view.as_ref(),
        status: Some(&status),
    };
    let world = run::World {
        machine: &mut cluster.machine,
        telemetry: &mut cluster.telemetry,
        recorder: &recorder,
    };
    let done = |at: Seconds| at.get() >= duration;
    Ok(Some(run::run(&plan, &mut law, world, watchers, stop, done)?))
}
