//! `headroom controller` and `headroom resize`: one service on many nodes, whose agents and gateways are elsewhere, and whose
//! servers may be switched on and off.

mod amendment;
mod foreseen;
mod found;
mod guard;
mod ownership;
mod record;
mod reload;
mod servers;
mod supervisor;
mod told;

pub use ownership::finish_all;

use crate::args::RunArgs;
use crate::check;
use crate::config::controller::{AtExit, ClusterConfig, ControllerFile, EXAMPLE};
use crate::oncall;
use crate::start::{self, ServiceRate, Start};
use anyhow::anyhow;
use clap::Args;
use headroom_console::{Document, Failure, Stop, say};
use headroom_control::resize::kinds;
use headroom_control::{Decision, LawConfig, LawContext, Plant};
use headroom_physics::MachineFigures;
use headroom_record::RunSummary;
use headroom_runtime::cluster::{
    ClusterMachine, ClusterOptions, GatewayLevers, GatewayMembers, Gateways, NoNode,
};
use headroom_runtime::live::{Device, Telemetry, run, undo};
use headroom_runtime::resize::{Servers, leave};
use headroom_units::{Cores, PerSecond, Seconds, Source};
use headroom_wire::message::{Description, Holder};
use ownership::Ownership;
use record::Place;
use reload::{Hangups, Reload};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use supervisor::Orders;
use told::Told;

/// `headroom controller` and `headroom resize`, which read the same file.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
SIGHUP has the gateways of --config read again: those that are new in [gateways] join, those that are not there any more are released. So it has
the key maintenance of each node, by which an operator takes a server out and gives it back. All of the file has to be right; what is wrong in it
leaves all as it was, and is said. (The terminal from which it runs being closed still ends it.)
A gateway whose control port refuses connections for cluster.refused_periods_to_leave periods is dead and left out until it answers; one
that hangs is lost telemetry: after control.lost_periods_to_full periods everything is on.")]
pub struct ControllerArgs {
    /// The configuration file.
    #[arg(long, short, value_name = "FILE", required_unless_present = "example")]
    pub config: Option<PathBuf>,
    /// The run folder, where it is recorded that servers may be off: where this program and its guard are both killed, the next start and
    /// `headroom release` go by it. By default /run/headroom for root, and $XDG_RUNTIME_DIR/headroom, or where that is not set
    /// /tmp/headroom-UID, for others; one that outlives a reboot of this machine, as servers that are off do, is better.
    #[arg(long, value_name = "DIR")]
    pub run_dir: Option<PathBuf>,
    /// Check the configuration, ask every node, power switch, balancer and gateway what it has, change nothing, and stop. With
    /// --json what was found is one JSON object, errors too.
    #[arg(long)]
    pub check: bool,
    /// Print an example configuration that explains every key, and stop.
    #[arg(long)]
    pub example: bool,
    /// Say each period what would be done, and do nothing, not at the end either.
    #[arg(long)]
    pub dry_run: bool,
    /// Wait until standard input closes; unless "done" came before, do at the end what the controller could not: start every
    /// server and give it requests. This is how a controller is watched over.
    #[arg(long, hide = true, conflicts_with_all = ["check", "dry_run", "example"])]
    pub when_input_closes: bool,
    /// The run.
    #[command(flatten)]
    pub run: RunArgs,
}

/// Runs until a signal, a key or the given duration ends it; then releases every node, leaves every server serving, and prints
/// the summary. However it ends, each node puts itself back when its lease does.
///
/// # Errors
/// A configuration that cannot be used, no node or no gateway that can be reached, a balancer that cannot be relied on, nodes
/// that are all another controller's: nothing was changed then. A run that broke.
pub fn run(args: &ControllerArgs, command: &'static str) -> Result<(), Failure> {
    let Some(file) = args.config.as_ref().filter(|_| !args.example) else {
        return say::result(EXAMPLE.trim_end());
    };
    if args.when_input_closes {
        return guard::watch_over(file, command);
    }
    if args.check {
        return match foreseen::checked(args, file, command) {
            Ok(None) => Ok(()),
            Ok(Some(report)) => check::conclude(args.run.json, Ok(report)),
            Err(failure) => check::conclude(args.run.json, Err(failure)),
        };
    }
    let (config, document) = read(args, file, command)?;
    let run_dir = undo::run_dir(args.run_dir.as_deref())?;
    let place = Place::of(&run_dir, file)?;
    // Held until the end.
    let owned = match (config.resizes(), args.dry_run) {
        (_, true) => None,
        (true, false) => {
            let owned = Ownership::take(file, &run_dir)?;
            owned.covers(&config, &run_dir)?;
            Some(owned)
        }
        (false, false) => {
            ownership::nothing_left(file, &run_dir)?;
            None
        }
    };
    let stop = Stop::at_signals_but_hangup()?;
    let hangups = Hangups::caught(&stop)?;
    let Some(mut cluster) = Cluster::open(args, (&config, &document), &place, &stop)? else {
        return Ok(());
    };
    let outcome = serve(
        args,
        (&config, &document),
        &mut cluster,
        (&stop, &hangups),
        (owned.as_ref(), command),
    );
    // Before the summary: the nodes are released.
    drop(cluster);
    let (summary, left) = outcome?;
    if let Some(summary) = summary {
        start::tell(summary, &args.run, &config.record.db)?;
    }
    match left.is_empty() {
        true => Ok(()),
        false => Err(anyhow!("not every server was left serving: {}", left.join("; ")).into()),
    }
}

fn read(args: &ControllerArgs, file: &Path, command: &str) -> Result<(ControllerFile, Document), Failure> {
    let (mut config, document) = ControllerFile::read(file, command)?;
    config.law.names = args.run.laws(config.law.names);
    // The laws of the command line may need more than those of the file.
    config.check(&document)?;
    Ok((config, document))
}

/// What is controlled, as it was found.
struct Cluster {
    /// The servers that are switched.
    servers: Option<Servers>,
    /// The agents that are commanded.
    machine: Option<ClusterMachine>,
    /// The gateways' levers.
    levers: Option<GatewayLevers>,
    /// Which gateways the telemetry is of.
    members: Option<GatewayMembers>,
    telemetry: Option<Box<dyn Telemetry>>,
    plant: Plant,
    /// The laws as configured, told from when on an idle period of a node's server on call pays.
    law: LawConfig,
    /// What each node is, in the order of their names; empty where no law sets them.
    machines: Vec<MachineFigures>,
    /// What each node's agent said of it, where it answered.
    descriptions: BTreeMap<String, Description>,
    source: Option<Source>,
    /// How many gateways another controller commands, of which a check asks nothing.
    commanded: usize,
    /// What is said before all else.
    warnings: Vec<String>,
    notes: Vec<String>,
}

/// Whether a gateway cannot be reached because another controller has it.
fn is_commanded(why: &str) -> bool {
    why.contains("serves 1 controller")
}

impl Cluster {
    fn open(
        args: &ControllerArgs,
        (config, document): (&ControllerFile, &Document),
        place: &Place,
        stop: &Stop,
    ) -> Result<Option<Self>, Failure> {
        let (client, period) = (config.client(document)?, config.control.period());
        let wait = Duration::from_secs_f64(config.cluster.wait_s);
        let slo = config.slo.slo(document)?;
        let mut notes = config.law.notes(slo);
        notes.extend(config.in_hand_note());
        notes.extend(config.unmeasured_note());
        notes.extend(config.queue_notes());
        if args.dry_run && !args.check {
            notes.push("dry run: nothing is done".to_owned());
        }
        let mut commanded = Vec::new();
        let gateways = match config.gateways.is_empty() {
            true => None,
            false => {
                let addresses = config.gateway_addresses(document)?;
                let gateways = match args.dry_run {
                    true => Gateways::look(addresses, &client, period)?,
                    false => Gateways::start(addresses, &client, period)?,
                };
                Some(gateways.leaving_after(config.cluster.refused_periods_to_leave))
            }
        };
        // What is wrong with a switch is said before anybody is waited for.
        let mut parts = match config.resizes() {
            true => Some(servers::assemble(
                config,
                document,
                gateways.as_ref(),
                Some(place),
            )?),
            false => None,
        };
        let mut plant = match config.nodes.len() {
            0 => Plant::left_alone(Cores::new(1.0)),
            nodes => Plant::of_servers(nodes),
        };
        let (mut machines, mut descriptions) = (Vec::new(), BTreeMap::new());
        let (mut levers, mut law) = (None, config.law.clone());
        let (mut machine, mut source) = (None, config.energy.map(|_| Source::Estimated));
        if config.sets_nodes() {
            let mut all = agents(config, document)?;
            let mut found = all
                .describe(wait, config.most_cores())
                .map_err(|error| document.error("nodes", format!("{error:#}")))?;
            notes.append(&mut found.notes);
            (plant, source) = (found.plant, found.source);
            machines = config.machines(document, &found.processors, &plant)?;
            if let Some(parts) = &mut parts {
                parts.kinds = kinds(&machines);
            }
            descriptions = found.descriptions;
            law = with_servers(config, document, &descriptions)?;
            if config.resizes() {
                plant = plant.with_servers(config.nodes.len());
                notes.push(
                    "a server that is switched off counts with 0 W: what it draws in standby is not metered"
                        .to_owned(),
                );
            }
            machine = Some(all);
        }
        if let Some(gateways) = &gateways {
            // A check waits for none that is about to start.
            let is_over = || stop.is_raised() || args.check && gateways.have_shown();
            let mut missing = gateways.connect(wait, is_over);
            if stop.is_raised() {
                return Ok(None);
            }
            if args.check {
                let all = std::mem::take(&mut missing);
                (commanded, missing) = all.into_iter().partition(|why| is_commanded(why));
            }
            if missing.len() == config.gateways.len() {
                let mut why = format!("none can be reached: {}", missing.join("; "));
                if missing.iter().any(|why| is_commanded(why)) {
                    why += ". A controller that runs has its gateways for itself: stop it first; SIGHUP has it read its file's gateways and \
                            maintenance again";
                }
                return Err(document.error("gateways", why).into());
            }
            notes.extend(missing);
            let of_gateways = gateways.levers(config.lease());
            let mut offered = of_gateways.offered();
            notes.append(&mut offered.notes);
            plant = start::with_ranges(plant, &offered.ranges)
                .map_err(|error| document.error("gateways", error))?;
            levers = Some(of_gateways);
        }
        // What cannot run together is refused before anything is done; so is a law that cannot reach its target.
        let context = start::context(slo, plant, machines.clone());
        match start::stack(&law, document, &context, &config.control) {
            // What their gateways have is not known.
            Err(error) if !commanded.is_empty() => notes.push(format!(
                "without the gateways the laws could not be put together: {error:#}"
            )),
            stack => drop(stack?),
        }
        // Only these laws go by how long a machine is said to boot.
        if let Some(parts) = &parts
            && config.law.names.iter().any(|law| law.may_resize())
        {
            for machine in &machines {
                let waits = parts.tuning.waits_for(machine.server.boot.get());
                waits.map_err(|why| document.error("power.boot_timeout_s", why))?;
            }
        }
        if let Some(service_rate) = config.cluster.requests_per_core_s.map(PerSecond::new) {
            let context = LawContext {
                service_rate,
                ..context
            };
            start::buildable(&law, document, &context)?;
        }
        let (mut found, mut warnings) = (None, Vec::new());
        if let Some(mut parts) = parts {
            if !commanded.is_empty() {
                parts.balancer = Box::new(servers::Unasked(parts.servers.len()));
            }
            let Some(mut servers) = Servers::find(parts, args.dry_run, servers::FIND, stop)
                .map_err(|error| servers::unreliable(config, document, &error))?
            else {
                return Ok(None);
            };
            warnings = found::warnings((config, document), &mut servers, args.check)?;
            notes.extend(servers.notes());
            found = Some(servers);
        }
        let of_gateways = config.telemetry.is_none();
        let members = gateways.as_ref().filter(|_| of_gateways).map(Gateways::members);
        let telemetry = match (&config.telemetry, gateways) {
            // A check tries it, and takes nothing from a controller that runs.
            (Some(_), _) if args.check => None,
            (Some(telemetry), _) => {
                let (telemetry, more) =
                    telemetry.open(document, slo, config.slo.failed_status, config.statistics())?;
                notes.extend(more);
                Some(telemetry)
            }
            (None, Some(gateways)) => Some(Box::new(gateways) as Box<dyn Telemetry>),
            (None, None) => machine
                .as_ref()
                .filter(|_| config.cluster.queries)
                .map(|machine| Box::new(machine.queries()) as Box<dyn Telemetry>),
        };
        Ok(Some(Self {
            servers: found,
            machine,
            levers,
            members,
            telemetry,
            plant,
            law,
            machines,
            descriptions,
            source,
            commanded: commanded.len(),
            warnings,
            notes,
        }))
    }
}

/// The laws, told from when on an idle period pays of the node where that takes longest.
///
/// # Errors
/// A node whose queries are to be the requests has no server on call.
fn with_servers(
    config: &ControllerFile,
    document: &Document,
    descriptions: &BTreeMap<String, Description>,
) -> Result<LawConfig, Failure> {
    let without = descriptions.iter().find(|(_, node)| node.oncall.is_none());
    if let Some((name, _)) = without.filter(|_| config.cluster.queries) {
        let why = format!(
            "is true, and the agent of {name} has no server on call: give its file [oncall], or name gateways or [telemetry] instead"
        );
        return Err(document.error("cluster.queries", why).into());
    }
    let servers = descriptions.values().filter_map(|node| node.oncall.as_ref());
    let pays = servers.fold(Seconds::ZERO, |longest, server| longest.max(server.break_even));
    let law = oncall::with_break_even(&config.law, pays);
    if let Some(note) = oncall::no_delay_pays(&law) {
        say::note!("note: {note}");
    }
    Ok(law)
}

/// The agents that are commanded.
fn agents(config: &ControllerFile, document: &Document) -> Result<ClusterMachine, Failure> {
    let name = config.cluster.name.clone().unwrap_or_else(headroom_record::host);
    let holder = Holder::new(name, headroom_runtime::random().max(1))
        .map_err(|error| document.error("cluster.name", error))?;
    Ok(ClusterMachine::start(ClusterOptions {
        nodes: config.agent_addresses(document)?,
        client: config.client(document)?,
        holder,
        lease: config.lease(),
        period: config.control.period(),
        step: Cores::new(config.cluster.cores_step),
    })?)
}

/// Takes the first leases: only now is it known who else holds a node. Whether it was not stopped meanwhile.
fn hold(
    machine: &mut ClusterMachine,
    plant: &Plant,
    cluster: &ClusterConfig,
    stop: &Stop,
) -> Result<bool, Failure> {
    let start = Instant::now();
    let lease_ends = start + Duration::from_secs_f64(cluster.lease_ms / 1e3) + Duration::from_secs(1);
    let give_up = start + Duration::from_secs_f64(cluster.wait_s);
    loop {
        let applied = machine.apply(&mut Decision::of(plant.full()));
        match (applied, machine.all_held()) {
            // A predecessor that was killed keeps its nodes until its leases end, and they are this one's then.
            (_, Some(held)) if !held.by_our_name || Instant::now() >= lease_ends => {
                return Err(Failure::usage(anyhow!("no node can be commanded: {}", held.why)));
            }
            (_, Some(_)) => {}
            // They were there a moment ago.
            (Err(error), None) if error.is::<NoNode>() && Instant::now() < give_up => {}
            (applied, None) => {
                applied?;
                return Ok(true);
            }
        }
        if stop.wait_until(Instant::now() + Duration::from_millis(200)) {
            return Ok(false);
        }
    }
}

/// Holds the nodes, runs the loop, and leaves every server serving; the summary where it ran, and what was left undone.
fn serve(
    args: &ControllerArgs,
    (config, document): (&ControllerFile, &Document),
    cluster: &mut Cluster,
    (stop, hangups): (&Stop, &Hangups),
    (owned, command): (Option<&Ownership>, &'static str),
) -> Result<(Option<RunSummary>, Vec<String>), Failure> {
    let ran_by = (&config.law.names, &config.control);
    let (recorder, admin) = start::open(&config.record, &config.admin, ran_by, document)?;
    for warning in &cluster.warnings {
        say::note!("warning: {warning}");
    }
    for note in &cluster.notes {
        say::note!("note: {note}");
    }
    for (name, state) in cluster.servers.iter().flat_map(Servers::states) {
        say::note!("{name} is found {}", state.name());
    }
    let held = match cluster.machine.as_mut().filter(|_| !args.dry_run) {
        Some(machine) => hold(machine, &cluster.plant, &config.cluster, stop)?,
        None => true,
    };
    let leaves = owned.is_some() && config.exit.servers == AtExit::Serving;
    // From here on servers are switched off; whatever ends this process, somebody switches them on again.
    let (mut guard, watched) = match (owned, &mut cluster.servers) {
        (Some(owned), Some(servers)) => {
            let orders = Orders {
                command,
                document: document.clone(),
                place: owned.place.clone(),
                run: headroom_runtime::random(),
            };
            owned.take_over(servers, leaves.then_some(orders))?
        }
        _ => None,
    }
    .unzip();
    let mut told = Told::default();
    hangups.serve(Reload {
        told: told.clone(),
        args: args.clone(),
        file: document.file().to_owned(),
        command,
        at_start: document.clone(),
        has_tls: config.tls.is_some(),
        members: cluster.members.clone(),
        taken_out: cluster.servers.as_ref().map(Servers::taken_out),
        watched,
        lock: None,
        warned: None,
    });
    let mut outcome = Ok(None);
    if held {
        let start = Start {
            args: &args.run,
            usual_name: command,
            slo: config.slo.slo(document)?,
            law: &cluster.law,
            control: &config.control,
            document,
            plant: cluster.plant,
            machines: cluster.machines.clone(),
            rate: ServiceRate {
                given: config.cluster.requests_per_core_s.map(PerSecond::new),
                observed_for: Seconds::new(config.cluster.calibrate_s),
            },
            notes: [&cluster.warnings[..], &cluster.notes].concat(),
            power_source: cluster.source,
            nodes: config.nodes.keys().cloned().collect(),
            dry: args.dry_run,
        };
        let mut devices: Vec<&mut dyn Device> = Vec::new();
        // First: who is switched off is not missing.
        devices.extend(cluster.servers.as_mut().map(|servers| servers as &mut dyn Device));
        devices.extend(cluster.machine.as_mut().map(|machine| machine as &mut dyn Device));
        devices.extend(cluster.levers.as_mut().map(|levers| levers as &mut dyn Device));
        devices.extend(guard.as_mut().map(|guard| guard as &mut dyn Device));
        devices.push(&mut told);
        let world = run::World {
            devices,
            telemetry: cluster
                .telemetry
                .as_deref_mut()
                .map(|telemetry| telemetry as &mut dyn Telemetry),
            recorder: &recorder,
        };
        outcome = start.run(world, &admin, stop);
    }
    hangups.end();
    let mut left = Vec::new();
    if let (Some(servers), Some(guard)) = (cluster.servers.as_mut(), guard.as_mut()) {
        guard.leaves();
        left = leave(servers, Duration::from_secs_f64(config.exit.wait_s));
        for left in &left {
            say::note!("warning: {left}");
        }
        // What is left stays recorded: the next start and `headroom release` try again.
        if let Some(owned) = owned.filter(|_| left.is_empty()) {
            owned.place.remove()?;
        }
        guard.dismiss();
    }
    Ok((outcome?, left))
}
