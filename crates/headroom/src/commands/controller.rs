//! `headroom controller`: many agents and gateways under one law.

use crate::check::{self, Report, Running};
use crate::cli::RunArgs;
use crate::config::controller::{ControllerFile, EXAMPLE};
use crate::start::{self, ServiceRate, Start};
use anyhow::anyhow;
use clap::Args;
use headroom_console::Document;
use headroom_console::Failure;
use headroom_console::Stop;
use headroom_console::say;
use headroom_control::LawContext;
use headroom_record::RunSummary;
use headroom_runtime::cluster::{ClusterMachine, ClusterOptions, ClusterTelemetry, Described};
use headroom_runtime::live::{Machine, run};
use headroom_units::{Cores, PerSecond, Seconds};
use headroom_wire::message::Holder;
use serde_json::json;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// `headroom controller`.
#[derive(Debug, Args)]
pub struct ControllerArgs {
    /// The configuration file.
    #[arg(long, short, value_name = "FILE", required_unless_present = "example")]
    pub config: Option<PathBuf>,
    /// Check the configuration, ask every node and gateway, change nothing, and stop. With --json what was found is one JSON
    /// object, errors too.
    #[arg(long)]
    pub check: bool,
    /// Print an example configuration that explains every key, and stop.
    #[arg(long)]
    pub example: bool,
    /// The run.
    #[command(flatten)]
    pub run: RunArgs,
}

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
    if args.check {
        return check::conclude(args.run.json, checked(args, file));
    }
    let (config, document, mut cluster) = prepare(args, file)?;
    let stop = Stop::at_signals()?;
    let outcome = serve(args, &config, &document, &mut cluster, &stop);
    // Before the summary: the nodes are released.
    drop(cluster);
    let Some(summary) = outcome? else { return Ok(()) };
    start::tell(summary, &args.run, &config.record.db)
}

/// What start and check do alike before anything is commanded.
fn prepare(args: &ControllerArgs, file: &Path) -> Result<(ControllerFile, Document, Cluster), Failure> {
    let (mut config, document) = ControllerFile::read(file)?;
    config.law.name = args.run.law.unwrap_or(config.law.name);
    let cluster = Cluster::open(&config, &document)?;
    // A law can be built only where mu is known; otherwise it is measured later.
    if let Some(rate) = config.cluster.requests_per_core_s.map(PerSecond::new) {
        let context = LawContext {
            slo: config.slo.slo(&document)?,
            plant: cluster.found.plant,
            service_rate: rate,
        };
        start::buildable(&config.law, &document, &context)?;
    }
    Ok((config, document, cluster))
}

/// All that the start would refuse, and else what would run. Changes nothing.
fn checked(args: &ControllerArgs, file: &Path) -> Result<Report, Failure> {
    let (config, document, cluster) = prepare(args, file)?;
    let running = Running::with_config("controller", file);
    let mut report = Report::default();
    let law = config.law.name.to_string();
    report.fact("law", "law", &law, law.as_str());
    report.slo(config.slo.slo(&document)?);
    for (name, address) in &config.nodes {
        let value = json!({ "name": name, "address": address });
        report.item("node", "nodes", format_args!("{name} at {address}"), value);
    }
    for (name, address) in &config.gateways {
        let value = json!({ "name": name, "address": address });
        report.item("gateway", "gateways", format_args!("{name} at {address}"), value);
    }
    let admin = check::record_and_admin(&config.record, &config.admin, &document, &running, &mut report)?;
    drop(admin);
    report.plant(&cluster.found.plant, "the agents", "the agents");
    match cluster.found.source {
        Some(source) => report.fact(
            "meter",
            "meter",
            format_args!("the agents' ({source})"),
            source.as_str(),
        ),
        None => report.fact(
            "meter",
            "meter",
            "the agents', of several sources",
            serde_json::Value::Null,
        ),
    }
    for note in &cluster.found.notes {
        report.note(note);
    }
    Ok(report)
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
        let period = config.control.period();
        let name = config.cluster.name.clone().unwrap_or_else(headroom_record::host);
        let holder = Holder::new(name, headroom_runtime::random().max(1))
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
}

fn serve(
    args: &ControllerArgs,
    config: &ControllerFile,
    document: &Document,
    cluster: &mut Cluster,
    stop: &Stop,
) -> Result<Option<RunSummary>, Failure> {
    let ran_by = (config.law.name, &config.control);
    let (recorder, admin) = start::open(&config.record, &config.admin, ran_by, document)?;
    for note in &cluster.found.notes {
        say::note!("note: {note}");
    }
    // The first lease: only now is it known who else holds a node.
    let full = cluster.found.plant.full_allocation();
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
    let start = Start {
        args: &args.run,
        usual_name: "controller",
        slo: config.slo.slo(document)?,
        law: &config.law,
        control: &config.control,
        document,
        plant: cluster.found.plant,
        rate: ServiceRate {
            given: config.cluster.requests_per_core_s.map(PerSecond::new),
            observed_for: Seconds::new(config.cluster.calibrate_s),
        },
        notes: cluster.found.notes.clone(),
        power_source: cluster.found.source,
        nodes: config.nodes.keys().cloned().collect(),
    };
    let world = run::World {
        machine: &mut cluster.machine,
        telemetry: &mut cluster.telemetry,
        recorder: &recorder,
    };
    start.run(world, &admin, stop)
}
