//! `headroom agent`: one node served to a controller, under a lease that puts everything back when it runs out.

use crate::args::{GuardChoice, Trees};
use crate::check::{self, Objections, Report, Running, savings};
use crate::config::agent::{AgentFile, EXAMPLE};
use crate::config::machine;
use crate::demos;
use crate::oncall::{MIN_LEASE, OnCall};
use anyhow::anyhow;
use clap::Args;
use headroom_console::Document;
use headroom_console::Failure;
use headroom_console::Mistakes;
use headroom_console::Stop;
use headroom_console::say;
use headroom_control::FrequencyRange;
use headroom_node::Roots;
use headroom_node::agent::{
    Agent, AgentConfig, AgentError, AgentHandle, Least, LocalMachine, Machine, OpenError,
};
use headroom_node::cgroup::Target;
use headroom_node::cpu::online;
use headroom_node::probe::{Finding, QUEUE_BY_EBPF, QUEUE_BY_KERNEL, State, probe};
use headroom_node::restore::{self, MAX_PULSES};
use headroom_runtime::live::control::Control;
use headroom_runtime::live::guard::namespace::Place;
use headroom_runtime::live::{admin, service_manager, undo};
use headroom_runtime::oncall::{AttachOptions, ConnectionPages, Connections, LEVERS, OncallMachine};
use headroom_units::{Cores, Hertz, Lever};
use headroom_wire::server::{Listen, ListenError};
use serde_json::json;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// `headroom agent`.
#[derive(Debug, Args)]
pub struct AgentArgs {
    /// The configuration file. Given more than once, one agent serves several services of this machine, each by its own
    /// file and on its own address; their power is estimated by the model, and the frequency is the highest that any of
    /// them asks for.
    #[arg(long, short, value_name = "FILE", required_unless_present_any = ["example", "cgroup"])]
    pub config: Vec<PathBuf>,
    /// Instead of a file: the service's control group.
    #[arg(long, value_name = "DIR", conflicts_with = "config", requires = "listen")]
    pub cgroup: Option<PathBuf>,
    /// Instead of a file: a Unix socket to listen on, as unix:/path (TCP needs certificates, and a file that names
    /// them). May be given more than once.
    #[arg(long, value_name = "ADDR", requires = "cgroup")]
    pub listen: Vec<String>,
    /// Check the configuration and what it needs of this machine, change nothing, and stop.
    #[arg(long)]
    pub check: bool,
    /// With --check: print what was found as one JSON object on standard output, errors too.
    #[arg(long, requires = "check")]
    pub json: bool,
    /// Print an example configuration that explains every key, and stop.
    #[arg(long)]
    pub example: bool,
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

/// The most services that one agent serves: a service has two threads that the guard hears signs of life of.
const MAX_SERVICES: usize = MAX_PULSES / 2;

/// How often it is looked whether the agent's threads still run.
const WATCH: Duration = Duration::from_millis(500);

/// The thread that has the machine reads it at least every ten seconds.
const TURNS_WITHIN: Duration = Duration::from_secs(15);

/// What it prints before each address that it listens on, for whoever started it.
const LISTENING: &str = "listening on ";

/// Serves until a signal comes; then puts everything back.
///
/// # Errors
/// A configuration, a certificate, a service or a run folder that cannot be used: nothing was changed then. An agent
/// that broke, or something that could not be put back.
pub fn run(args: &AgentArgs) -> Result<(), Failure> {
    if args.example {
        return say::result(EXAMPLE.trim_end());
    }
    if args.check {
        return check::conclude(args.json, checked(args));
    }
    let services = read(args)?;
    let roots = args.trees.roots();
    let run_dir = undo::run_dir(args.run_dir.as_deref())?;
    let stop = Stop::at_signals()?;
    // Before the machine is opened: what is found must be what was there before an agent that was killed.
    undo::protect(
        undo::take(&run_dir, demos::REMAINS)?,
        &roots,
        Place::required(args.guard.allow_guard_inside),
    )?;
    let _control = Control::serve(&run_dir, restore::global()).map_err(Failure::usage)?;
    let machines = services
        .iter()
        .map(|service| open(&service.file, &service.document, &roots))
        .collect::<Result<Vec<_>, _>>()?;
    say::note!("note: {}", watching(&roots));
    let agents = services
        .into_iter()
        .zip(machines)
        .map(|(service, machine)| start(service, &roots, &run_dir, machine))
        .collect::<Result<Vec<_>, _>>()?;
    serve(agents, &stop)
}

/// One service: its configuration, and where it is served.
struct Service {
    file: AgentFile,
    document: Document,
    listen: Vec<Listen>,
}

/// The configurations, each of a service.
fn read(args: &AgentArgs) -> Result<Vec<Service>, Failure> {
    let mut mistakes = Mistakes::default();
    let files: Vec<_> = match &args.cgroup {
        Some(cgroup) => vec![AgentFile::of_flags(cgroup, &args.listen)?],
        None => {
            let read = |config| mistakes.of(AgentFile::read(config));
            args.config
                .iter()
                .map(PathBuf::as_path)
                .filter_map(read)
                .collect()
        }
    };
    mistakes.done()?;
    if files.len() > MAX_SERVICES {
        return Err(Failure::usage(anyhow!(
            "--config is given {} times: one agent serves at most {MAX_SERVICES} services",
            files.len()
        )));
    }
    let mut services: Vec<Service> = Vec::new();
    let several = files.len() > 1;
    for (mut file, document) in files {
        if several {
            file.power.share(&document)?;
        }
        let target = file.service.target();
        if let Some(other) = services
            .iter()
            .find(|other| other.file.service.target() == target)
        {
            let why = format!(
                "{target} is the service of {} too",
                other.document.file().display()
            );
            return Err(document.error("service", why).into());
        }
        let listen = file.listen(&document)?;
        services.push(Service {
            file,
            document,
            listen,
        });
    }
    Ok(services)
}

/// All that the start would refuse, and else what would be served. Changes nothing.
fn checked(args: &AgentArgs) -> Result<Report, Failure> {
    let services = read(args)?;
    let roots = args.trees.roots();
    let run_dir = undo::run_dir(args.run_dir.as_deref())?;
    let mut found = Objections::default();
    found.of(restore::usable(&run_dir).map_err(Failure::usage));
    restore::global().only_ask(&run_dir);
    let running = check::running_in(&run_dir);
    let mut reports = Vec::new();
    for service in &services {
        let name = service.file.service.target().to_string();
        let report = of(service, &roots, &run_dir, &running, &mut found);
        reports.push((name, report));
    }
    found.done()?;
    Ok(Report::joined("services", reports))
}

fn of(service: &Service, roots: &Roots, run_dir: &Path, running: &Running, found: &mut Objections) -> Report {
    let Service {
        file,
        document,
        listen,
    } = service;
    let mut report = Report::default();
    let opened = found.of(open(file, document, roots));
    found.of_levers(document, "service");
    if let Some(mut machine) = opened {
        describe(&mut machine, &mut report);
        if let Some(Some((on_call, note))) = found.of(on_call(file, document, roots, run_dir)) {
            found.of(on_call.check((document, running.pid()), &mut report));
            for (lever, range) in LEVERS {
                report.lever(lever, range, Some("the server on call"));
            }
            report.note(note);
            found.of(check::admin_port(
                file.admin.listen,
                document,
                running,
                &mut report,
            ));
        }
        found.of(of_figures(service, &mut machine, roots, &mut report));
    }
    for (place, listen) in file.agent.listen.iter().zip(listen) {
        let holder = match listen {
            Listen::Tcp { address, .. } => running.holding(*address),
            Listen::Unix { path } => running.holding_unix(path),
        };
        match listen.check() {
            Ok(()) => report.listener("agent", place, None),
            Err(ListenError::InUse { .. }) if holder.is_some() => report.listener("agent", place, holder),
            Err(error) => drop(found.of::<()>(Err(document.error("agent.listen", error)))),
        }
    }
    let notes = [
        Some(watching(roots)),
        found.of(telling(file, document)),
        undo::note_of_left(run_dir),
    ];
    for note in notes.into_iter().flatten() {
        report.note(note);
    }
    report
}

/// What the machine is, and what its levers save.
fn of_figures(
    service: &Service,
    machine: &mut LocalMachine,
    roots: &Roots,
    report: &mut Report,
) -> Result<(), Failure> {
    let Service { file, document, .. } = service;
    let own = machine.ranges().get(Lever::Frequency).and_then(|range| {
        let [lowest, highest, step] = [range.min, range.max, range.step].map(Hertz::new);
        FrequencyRange::new(lowest, highest, step).ok()
    });
    let cores = Cores::new(online(roots).map_err(Failure::usage)?.len() as f64);
    let figures = machine::figures(&file.machine, document, "machine", cores)?;
    let figures = machine::with_frequencies(&file.machine, figures, own);
    savings::describe(&figures, roots, report);
    Ok(())
}

fn open(file: &AgentFile, document: &Document, roots: &Roots) -> Result<LocalMachine, Failure> {
    let cores = Cores::new(online(roots).map_err(Failure::usage)?.len() as f64);
    let options = file.machine(document, roots, cores)?;
    let machine = LocalMachine::open(options, restore::global());
    Ok(machine.map_err(|error| {
        let key = match &error {
            OpenError::Meter(_) => Some("power.meter"),
            OpenError::Limit(error) => check::limit_key(error),
            _ => None,
        };
        document.error(key.unwrap_or("service"), error)
    })?)
}

/// By what accept queues can be watched here.
fn watching(roots: &Roots) -> String {
    let findings = probe(roots);
    let of = |what: &str| findings.iter().find(|finding| finding.what == what);
    let usable = |finding: &&Finding| finding.state == State::Usable;
    match (of(QUEUE_BY_EBPF), of(QUEUE_BY_KERNEL).filter(usable)) {
        (Some(ebpf), _) if ebpf.state == State::Usable => {
            "accept queues can be watched by eBPF, port by port".to_owned()
        }
        (ebpf, Some(_)) => format!(
            "accept queues can be watched by sock_diag alone, which counts no arrivals by port: {}",
            ebpf.map_or_else(|| "no eBPF".to_owned(), reason)
        ),
        (_, None) => format!(
            "accept queues cannot be watched: {}",
            of(QUEUE_BY_KERNEL).map_or_else(|| "no sock_diag".to_owned(), reason)
        ),
    }
}

/// Whose CPU time is reported to whoever watches an accept queue.
fn telling(file: &AgentFile, document: &Document) -> Result<String, Failure> {
    let groups: Vec<String> = file
        .cpu_groups(document)?
        .iter()
        .map(ToString::to_string)
        .collect();
    Ok(format!(
        "whoever watches may ask for the CPU time of {} and of what is below",
        groups.join(", ")
    ))
}

fn reason(finding: &Finding) -> String {
    match &finding.remedy {
        Some(remedy) => format!("{}; {remedy}", finding.why),
        None => finding.why.clone(),
    }
}

fn describe(machine: &mut LocalMachine, report: &mut Report) {
    let about = machine.about();
    report.fact("node", "node", &about.node.name, about.node.name.as_str());
    report.fact("service", "service", &about.service, about.service.as_str());
    let meter = machine.meter().to_string();
    report.fact("meter", "meter", &meter, meter.as_str());
    for (lever, range) in machine.ranges().each() {
        match range {
            Ok(range) => report.lever(lever, *range, None),
            Err(none) => report.item(
                lever.name(),
                "levers",
                format_args!("cannot be limited: {}", none.reason),
                json!({ "lever": lever.name(), "why_not": none.reason }),
            ),
        }
    }
}

/// The server on call that the file names; and from when on an idle period pays, in words.
fn on_call(
    file: &AgentFile,
    document: &Document,
    roots: &Roots,
    run_dir: &Path,
) -> Result<Option<(OnCall, String)>, Failure> {
    let Some(server) = file.oncall.as_ref().and_then(|oncall| oncall.server.as_ref()) else {
        return Ok(None);
    };
    let target =
        Target::resolve(roots, &file.service.target()).map_err(|error| document.error("service", error))?;
    let cores = Cores::new(online(roots)?.len() as f64);
    let figures = machine::figures(&file.machine, document, "machine", cores)?;
    let of = (run_dir, server.as_str(), document);
    OnCall::new(of, (roots, &target, &figures)).map(Some)
}

/// The machine with the levers of the server on call that the file names, where it names one.
fn with_server(
    (file, document): (&AgentFile, &Document),
    roots: &Roots,
    run_dir: &Path,
    machine: LocalMachine,
) -> Result<Box<dyn Machine>, Failure> {
    let Some((on_call, note)) = on_call(file, document, roots, run_dir)? else {
        return Ok(Box::new(machine));
    };
    let table = file.oncall.clone().unwrap_or_default();
    let (cpus, break_even) = on_call.machine();
    let options = AttachOptions {
        linger: Duration::from_micros(table.linger_us),
        lease: MIN_LEASE,
        classes: Vec::new(),
        each: false,
        cpus,
        break_even,
        connections: Arc::new(Connections::new(Vec::new(), table.connections_in_metrics)),
    };
    if let Some(listen) = file.admin.listen {
        let refused = |error: anyhow::Error| document.error("admin.listen", format!("{error:#}"));
        let pages = Arc::new(ConnectionPages::new(Arc::clone(&options.connections)));
        let address = admin::bind(listen).and_then(|listener| admin::serve(listener, pages));
        say::note!("connections: http://{}/connections", address.map_err(refused)?);
    }
    let opened = OncallMachine::open(Box::new(machine), on_call.at().clone(), options);
    let (machine, notes) = opened.map_err(|error| document.error("oncall.server", error))?;
    for note in notes.iter().chain([&note]).chain(&on_call.note_of_group()) {
        say::note!("note: {note}");
    }
    Ok(Box::new(machine))
}

fn start(
    service: Service,
    roots: &Roots,
    run_dir: &Path,
    machine: LocalMachine,
) -> Result<AgentHandle, Failure> {
    let Service {
        file,
        document,
        listen,
    } = service;
    say::note!("note: {}", machine.meter());
    let machine = with_server((&file, &document), roots, run_dir, machine)?;
    let config = AgentConfig {
        roots: roots.clone(),
        watch: restore::global().watch().clone(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        lease: file.leases(),
        cpu_groups: file.cpu_groups(&document)?,
        access: file.rules(&document)?,
        least: Least(file.limits),
        queues: file.queues(),
        audit: file.audit(),
        ..AgentConfig::at(listen)
    };
    let agent = Agent::start(config, machine).map_err(|error| match error {
        AgentError::Listen(_) => Failure::from(document.error("agent.listen", error)),
        AgentError::Audit(_) => Failure::from(document.error("agent.audit", error)),
        AgentError::Setting { .. } => Failure::from(document.error("agent", error)),
        AgentError::Thread(_) | AgentError::Panicked => Failure::from(error),
    })?;
    for address in agent.addresses() {
        say::note!("{LISTENING}{address}");
    }
    Ok(agent)
}

/// Serves until it is stopped, or until one of the services cannot be served any more.
fn serve(agents: Vec<AgentHandle>, stop: &Stop) -> Result<(), Failure> {
    service_manager::keep_watchdog(restore::global().watch(), TURNS_WITHIN)?;
    service_manager::ready();
    while agents.iter().all(AgentHandle::is_running) && !stop.wait_until(Instant::now() + WATCH) {}
    service_manager::stopping();
    let stopped: Vec<_> = agents.into_iter().map(AgentHandle::stop).collect();
    undo::keep();
    let mut failed = Vec::new();
    for done in stopped {
        let done = done?;
        for note in &done.notes {
            say::note!("{note}");
        }
        failed.extend(done.failed);
    }
    if failed.is_empty() {
        Ok(())
    } else {
        Err(Failure::Run(anyhow!(
            "not everything could be put back; `headroom release` tries again: {}",
            failed.join("; ")
        )))
    }
}
