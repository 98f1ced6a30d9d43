//! `headroom agent`: one node served to a controller, under a lease that puts everything back when it runs out.

use crate::cli::AgentArgs;
use crate::config::Document;
use crate::config::agent::{AgentFile, EXAMPLE};
use crate::failure::Failure;
use crate::live::undo;
use crate::say;
use crate::stop::Stop;
use anyhow::anyhow;
use headroom_node::Roots;
use headroom_node::agent::{Agent, AgentConfig, AgentError, LocalMachine, Machine};
use headroom_node::cpu::online;
use headroom_node::probe::{Finding, QUEUE_BY_EBPF, QUEUE_BY_KERNEL, State, probe};
use headroom_node::restore;
use headroom_units::Cores;
use headroom_wire::server::Listen;
use std::time::{Duration, Instant};

/// How often it is looked whether the agent's threads still run.
const WATCH: Duration = Duration::from_millis(500);

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
    let (file, document) = match (&args.config, &args.cgroup) {
        (Some(config), _) => AgentFile::read(config)?,
        (None, Some(cgroup)) => AgentFile::of_flags(cgroup, &args.listen)?,
        // The command line does not let this through.
        (None, None) => {
            return Err(Failure::usage(anyhow!(
                "give --config FILE, or --cgroup DIR and --listen ADDR"
            )));
        }
    };
    let roots = args.trees.roots();
    let listen = file.listen(&document)?;
    let run_dir = args.run_dir.clone().unwrap_or_else(undo::default_run_dir);
    if args.check {
        let mut machine = open(&file, &document, &roots)?;
        let notes = [
            Some(watching(&roots)),
            Some(telling(&file, &document)?),
            undo::note_of_left(&run_dir),
        ];
        return say::result(describe(
            &mut machine,
            &file.agent.listen,
            notes.into_iter().flatten(),
        ));
    }
    let stop = Stop::at_signals()?;
    // Before the machine is opened: what is found must be what was there before an agent that was killed.
    undo::promise(undo::take(&run_dir)?, &roots)?;
    let machine = open(&file, &document, &roots)?;
    serve(&file, &document, listen, &roots, machine, &stop)
}

fn open(file: &AgentFile, document: &Document, roots: &Roots) -> Result<LocalMachine, Failure> {
    let cores = Cores::new(online(roots).map_err(Failure::usage)?.len() as f64);
    let options = file.machine(document, roots, cores)?;
    let machine = LocalMachine::open(options, restore::global());
    Ok(machine.map_err(|error| document.error("service", error))?)
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

/// Whose CPU time is told to whoever watches an accept queue.
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

fn describe(
    machine: &mut LocalMachine,
    listen: &[String],
    notes: impl IntoIterator<Item = String>,
) -> String {
    let about = machine.about();
    let mut text = format!("node     {}\nservice  {}\n", about.node.name, about.service);
    for place in listen {
        text.push_str(&format!("listen   {place}\n"));
    }
    let ranges = machine.ranges();
    let parts = [
        ("cores   ", "cores", ranges.cores),
        ("cap     ", "W", ranges.cap),
        ("speed   ", "Hz", ranges.frequency),
    ];
    for (name, unit, range) in parts {
        match range {
            Ok(range) => text.push_str(&format!(
                "{name} {:.2} to {:.2} {unit}\n",
                range.minimum, range.maximum
            )),
            Err(none) => text.push_str(&format!("{name} cannot be limited: {}\n", none.reason)),
        }
    }
    text.push_str(&format!("note     {}\n", machine.meter()));
    for note in notes {
        text.push_str(&format!("note     {note}\n"));
    }
    text.push_str("nothing was changed");
    text
}

fn serve(
    file: &AgentFile,
    document: &Document,
    listen: Vec<Listen>,
    roots: &Roots,
    machine: LocalMachine,
    stop: &Stop,
) -> Result<(), Failure> {
    say::note!("note: {}", machine.meter());
    say::note!("note: {}", watching(roots));
    let config = AgentConfig {
        roots: roots.clone(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        lease: file.leases(),
        cpu_groups: file.cpu_groups(document)?,
        access: file.rules(document)?,
        least: file.least(),
        queues: file.queues(),
        audit: file.audit(),
        ..AgentConfig::at(listen)
    };
    let agent = Agent::start(config, Box::new(machine)).map_err(|error| match error {
        AgentError::Listen(_) => Failure::from(document.error("agent.listen", error)),
        AgentError::Audit(_) => Failure::from(document.error("agent.audit", error)),
        AgentError::Setting { .. } => Failure::from(document.error("agent", error)),
        AgentError::Thread(_) | AgentError::Panicked => Failure::from(error),
    })?;
    for address in agent.addresses() {
        say::note!("{LISTENING}{address}");
    }
    while agent.is_running() && !stop.wait_until(Instant::now() + WATCH) {}
    let done = agent.stop()?;
    for note in &done.notes {
        say::note!("{note}");
    }
    if done.failed.is_empty() {
        Ok(())
    } else {
        Err(Failure::Run(anyhow!(
            "not everything could be put back; `headroom release` tries again: {}",
            done.failed.join("; ")
        )))
    }
}
