//! `headroom resize`: as many servers of a cluster on as its load needs.

use crate::check::{self, Report, Running};
use crate::config::resize::{AtExit, ControllerKind, EXAMPLE, ResizeFile};
use anyhow::anyhow;
use clap::Args;
use headroom_console::Document;
use headroom_console::Failure;
use headroom_console::Stop;
use headroom_console::args::seconds;
use headroom_console::{file, say, terminal};
use headroom_control::capacity::QueueKind;
use headroom_control::resize::Energy;
use headroom_record::report::sheet_html;
use headroom_runtime::cluster::{AgentQueue, WatchOptions};
use headroom_runtime::live::admin;
use headroom_runtime::looks::look_period;
use headroom_runtime::resize::{
    CheckTarget, Checks, Cluster, Gateways, HaproxyServers, History, Journal, Parts, Queue, Recorded,
    ResizeStatus, ServerParts, Start, Summary, SwitchWorker, View, balancer::Balancer, leave, read, sheet,
    text, unix_s,
};
use headroom_units::PerSecond;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// `headroom resize`.
#[derive(Debug, Args)]
pub struct ResizeArgs {
    /// The configuration file.
    #[arg(long, short, value_name = "FILE", required_unless_present_any = ["example", "report"])]
    pub config: Option<PathBuf>,
    /// Check the configuration, ask every server, switch and balancer how it is, change nothing, and stop. With --json what
    /// was found is one JSON object, errors too.
    #[arg(long)]
    pub check: bool,
    /// Print an example configuration that explains every key, and stop.
    #[arg(long)]
    pub example: bool,
    /// Say each period what would be done, and do nothing, not at the end either.
    #[arg(long)]
    pub dry_run: bool,
    /// Stop after this many seconds; by default at SIGINT or SIGTERM.
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub duration: Option<f64>,
    /// Write a report with plots to this file at the end.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["check", "example"])]
    pub html: Option<PathBuf>,
    /// Instead of a run, read the last one of this record (the file that [record] names, and FILE.1 before it): print its
    /// summary, and with --html write its report.
    #[arg(long, value_name = "RECORD", conflicts_with_all = ["config", "check", "dry_run", "example", "duration", "no_view"])]
    pub report: Option<PathBuf>,
    /// Print a line now and then instead of the live view (the default where standard error is no terminal).
    #[arg(long)]
    pub no_view: bool,
    /// Wait until standard input closes; unless "done" came before, do at the end what the controller could not: start every
    /// server and give it requests. This is how a controller is watched over.
    #[arg(long, hide = true, conflicts_with_all = ["check", "dry_run", "example", "duration", "html", "report", "no_view"])]
    pub when_input_closes: bool,
    /// Print the run summary as JSON on standard output, and nothing else there.
    #[arg(long)]
    pub json: bool,
}

/// For how long the servers, their switches and the balancer are waited for at the start.
const FIND: Duration = Duration::from_secs(10);
/// A controller that was killed may be started again within this time; else its guard acts.
const SUCCESSOR: Duration = Duration::from_secs(5);
/// What a guard is told by a controller that ended by itself.
const DONE: &[u8] = b"done";
/// A line at least every so many periods.
const LINE_EVERY: u64 = 10;
/// An agent is asked for so many sights of a queue in one of the loop's periods, so that there always is a new one;
const QUEUE_PARTS: u32 = 5;
/// but in none shorter than this.
const MIN_QUEUE_PART: Duration = Duration::from_millis(20);
/// For how long a thread that looks at a queue through an agent waits for a new sight, and no longer than half a period.
const SIGHT_PATIENCE: Duration = Duration::from_secs(1);

/// Runs until a signal or the given duration ends it; then leaves every server serving and prints the summary.
///
/// # Errors
/// A configuration that cannot be used, a balancer that cannot be relied on at the start, another controller with this
/// file: nothing was changed then.
pub fn run(args: &ResizeArgs) -> Result<(), Failure> {
    if let Some(record) = &args.report {
        return report(record, args);
    }
    let Some(file) = args.config.as_ref().filter(|_| !args.example) else {
        return say::result(EXAMPLE.trim_end());
    };
    if args.when_input_closes {
        return watch_over(file);
    }
    if args.check {
        return match checked(file) {
            Ok(None) => Ok(()),
            Ok(Some(report)) => check::conclude(args.json, Ok(report)),
            Err(failure) => check::conclude(args.json, Err(failure)),
        };
    }
    let (config, document) = ResizeFile::read(file)?;
    let looks_only = args.dry_run;
    // Held until the end.
    let _lock = if looks_only { None } else { Some(lock(file)?) };
    let bound = config.admin.listen.map(admin::bind).transpose();
    let bound = bound.map_err(|error| document.error("admin.listen", format!("{error:#}")))?;
    let mut journal = match &config.record.file {
        Some(file) if !looks_only => Some(
            Journal::open(file, config.record.max_mib)
                .map_err(|error| document.error("record.file", format!("{error:#}")))?,
        ),
        _ => None,
    };
    if let Some(html) = &args.html {
        file::will_write(html)?;
    }
    let stop = Stop::at_signals()?;
    let parts = assemble(&config, &document)?;
    let found = Cluster::find(parts, looks_only, FIND, &stop)
        .map_err(|error| document.error("balancer", format!("{error:#}")))?;
    let Some(mut cluster) = found else { return Ok(()) };
    let notes = cluster.notes();
    for note in &notes {
        say::note!("note: {note}");
    }
    for (name, state) in cluster.states() {
        say::note!("{name} is found {}", state.name());
    }
    let leaves = !args.dry_run && config.exit.servers == AtExit::Serving;
    // From here on servers are switched off; whatever ends this process, somebody switches them on again.
    let mut guard = leaves.then(|| Guard::start(file)).flatten();
    let status = Arc::new(ResizeStatus::new(cluster.resizer_name(), config.period()));
    if let Some(bound) = bound {
        let address = admin::serve(bound, Arc::clone(&status))?;
        say::note!("metrics on http://{address}/metrics");
    }
    let start = Start {
        unix_s: unix_s(),
        controller: cluster.resizer_name().to_owned(),
        balancer: cluster.balancer_name(),
        demand: config.demand().words().to_owned(),
        period_s: config.period().as_secs_f64(),
        dry_run: args.dry_run,
        notes,
        version: env!("CARGO_PKG_VERSION").to_owned(),
    };
    if let Some(journal) = &mut journal {
        journal.begin(&start);
    }
    let mut summary = Summary::new(cluster.resizer_name(), args.dry_run);
    let mut history = args.html.is_some().then(History::default);
    let view = terminal::view(args.no_view, || View::open(&start, stop.clone()))?;
    let started = Instant::now();
    let duration = args.duration.map(Duration::from_secs_f64);
    let mut next = started;
    loop {
        next += config.period();
        if stop.wait_until(next) || duration.is_some_and(|duration| started.elapsed() >= duration) {
            break;
        }
        let tick = cluster.tick();
        status.tick(&tick);
        summary.tick(&tick);
        if let Some(journal) = &mut journal {
            journal.tick(&tick);
        }
        if let Some(history) = &mut history {
            history.tick(&tick);
        }
        if let Some(view) = &view {
            view.tick(&tick);
        }
        // While the view has the terminal lines are held back, so that the news can be read after it.
        if tick.is_news() || (view.is_none() && tick.period.is_multiple_of(LINE_EVERY)) {
            say::note!("{}", tick.line());
        }
        // Periods that were missed, as while the machine slept, are not made up for.
        next = next.max(Instant::now() - config.period());
    }
    drop(view);
    if leaves {
        for left in leave(&mut cluster, Duration::from_secs_f64(config.exit.wait_s)) {
            say::note!("warning: {left}");
        }
        if let Some(guard) = &mut guard {
            guard.dismiss();
        }
    }
    let summary = summary.json();
    if let Some(journal) = &mut journal {
        journal.end(&summary);
    }
    if let (Some(html), Some(history)) = (&args.html, &history) {
        file::write(html, &sheet_html(&sheet(&start, history, &summary, &[]), None)?)?;
    }
    tell(args, &summary)
}

/// Prints the summary, and where the report is.
fn tell(args: &ResizeArgs, summary: &Value) -> Result<(), Failure> {
    if args.json {
        return say::result(summary);
    }
    match &args.html {
        Some(html) => say::result(format_args!("{}\nreport       {}", text(summary), html.display())),
        None => say::result(text(summary)),
    }
}

/// The report of the last run of a record.
fn report(record: &Path, args: &ResizeArgs) -> Result<(), Failure> {
    let recorded = read(record).map_err(Failure::usage)?;
    let Recorded {
        start,
        history,
        summary,
        remarks,
    } = &recorded;
    match &args.html {
        Some(html) => file::write(html, &sheet_html(&sheet(start, history, summary, remarks), None)?)?,
        None => remarks.iter().for_each(|remark| say::note!("note: {remark}")),
    }
    tell(args, summary)
}

/// Keeps a second controller with the same file away: they would undo each other's work.
fn lock(file: &Path) -> Result<File, Failure> {
    let opened = File::open(file)?;
    opened.try_lock().map_err(|error| {
        Failure::usage(anyhow!(
            "{}: another headroom resize runs with this file ({error}); stop it first",
            file.display()
        ))
    })?;
    Ok(opened)
}

/// A process that waits for the end of this one, and does what this one could not.
struct Guard(ChildStdin);

impl Guard {
    /// Starts it. Without it the servers stay as they are if this process is killed.
    fn start(file: &Path) -> Option<Self> {
        let start = || -> std::io::Result<Option<ChildStdin>> {
            let mut guard = Command::new(std::env::current_exe()?)
                .args(["resize", "--when-input-closes", "--config"])
                .arg(file)
                .stdin(Stdio::piped())
                .stdout(Stdio::null())
                // What ends this process from the terminal must not end the guard with it.
                .process_group(0)
                .spawn()?;
            Ok(guard.stdin.take())
        };
        match start() {
            Ok(input) => input.map(Self),
            Err(error) => {
                tracing::warn!(
                    "nothing watches over this process ({error}): if it is killed, servers stay off"
                );
                None
            }
        }
    }

    /// Everything is done: there is nothing left for it.
    fn dismiss(&mut self) {
        // It may be gone already; then nobody waits for the word.
        let _ = self.0.write_all(DONE);
    }
}

/// Waits for the controller's end, and leaves every server serving where that could not.
fn watch_over(file: &Path) -> Result<(), Failure> {
    let mut word = Vec::new();
    std::io::stdin().take(16).read_to_end(&mut word)?;
    if word == DONE {
        return Ok(());
    }
    std::thread::sleep(SUCCESSOR);
    // One that was started again has the lock, and the servers; and without the file there is nobody to act for.
    let Ok(_lock) = lock(file) else { return Ok(()) };
    say::note!("headroom resize was killed: every server is started and given requests");
    let (config, document) = ResizeFile::read(file)?;
    let parts = assemble(&config, &document)?;
    let found = Cluster::find(parts, false, FIND, &Stop::default())?;
    let Some(mut cluster) = found else { return Ok(()) };
    for left in leave(&mut cluster, Duration::from_secs_f64(config.exit.wait_s)) {
        say::note!("warning: {left}");
    }
    Ok(())
}

/// Makes everything that the file names.
fn assemble(config: &ResizeFile, document: &Document) -> Result<Parts, Failure> {
    let tuning = config.queue_tuning(document)?;
    let poll = Duration::from_secs_f64(config.control.power_poll_s);
    let mut agents = agents(config, document)?;
    let mut servers = Vec::new();
    let mut targets: Vec<CheckTarget> = Vec::new();
    for (name, table) in &config.servers {
        let switch = table
            .power
            .open()
            .map_err(|error| document.error(&format!("servers.{name}.power"), error))?;
        targets.push(config.check_target(document, name)?);
        servers.push(ServerParts {
            name: name.clone(),
            switch_worker: SwitchWorker::start(name, switch, poll)?,
            queue: match agents.remove(name) {
                Some(agent) => Some(Queue::elsewhere(agent, sight_period(config), tuning)?),
                None => table
                    .accept_queue
                    .map(|port| Queue::new(port, config.capacity.method, tuning))
                    .transpose()?,
            },
        });
    }
    let members: Vec<String> = config
        .servers
        .values()
        .map(|table| table.member.clone())
        .collect();
    let balancer: Box<dyn Balancer> = match config.haproxy() {
        Some((address, table)) => Box::new(HaproxyServers::new(
            address,
            table.backend.clone(),
            members,
            table.warm_up_weight_percent,
        )),
        None => Box::new(Gateways::start(
            config.gateway_addresses(document)?,
            members,
            &config.client(document)?,
            config.period(),
        )?),
    };
    let limit = Duration::from_secs_f64(config.control.check_limit_s);
    let kind = config.controller.kind;
    let given = config.controller.capacity_per_s.map(PerSecond::new);
    Ok(Parts {
        servers,
        balancer,
        checks: Checks::start(targets, config.period(), limit)?,
        resizer: config.resizer(document)?,
        tuning: config.power,
        demand: config.demand(),
        fixed: given.filter(|_| kind != ControllerKind::Dynamic),
        energy: config.energy.map(Energy::new),
        period: config.period(),
    })
}

/// The time between two sights of a queue that an agent tells.
fn sight_period(config: &ResizeFile) -> Duration {
    let period = match config.capacity.queue.kind {
        QueueKind::Published => config.period() / QUEUE_PARTS,
        QueueKind::BusyTime => look_period(config.period()),
    };
    period.max(MIN_QUEUE_PART)
}

/// The accept queues that are watched through agents, by the server's name.
fn agents(config: &ResizeFile, document: &Document) -> Result<BTreeMap<String, AgentQueue>, Failure> {
    if config.servers.values().all(|server| server.agent.is_none()) {
        return Ok(BTreeMap::new());
    }
    let client = config.client(document)?;
    let (mut names, mut watches) = (Vec::new(), Vec::new());
    for (name, table) in &config.servers {
        let Some((address, port)) = config.agent(document, name)?.zip(table.accept_queue) else {
            continue;
        };
        names.push(name.clone());
        watches.push(WatchOptions {
            address,
            client: client.clone(),
            port,
            methods: config.agent_methods(),
            period: sight_period(config),
            patience: match config.capacity.queue.kind {
                // The loop waits for nobody.
                QueueKind::Published => Duration::ZERO,
                // Who looks that often has a thread.
                QueueKind::BusyTime => SIGHT_PATIENCE.min(config.period() / 2),
            },
            cpu_group: None,
        });
    }
    Ok(names.into_iter().zip(AgentQueue::watch(watches)?).collect())
}

/// All that the start would refuse, and else what would run; nothing where it was stopped. Changes nothing.
fn checked(file: &Path) -> Result<Option<Report>, Failure> {
    let (config, document) = ResizeFile::read(file)?;
    let running = Running::with_config("resize", file);
    let mut report = Report::default();
    let admin = check::admin_port(config.admin.listen, &document, &running, &mut report)?;
    drop(admin);
    if let Some(file) = &config.record.file {
        file::could_write(file).map_err(|error| document.error("record.file", error))?;
        let place = file.display().to_string();
        report.fact("record", "record", &place, place.as_str());
    }
    let stop = Stop::at_signals()?;
    let parts = assemble(&config, &document)?;
    let found = Cluster::find(parts, true, FIND, &stop)
        .map_err(|error| document.error("balancer", format!("{error:#}")))?;
    let Some(mut cluster) = found else { return Ok(None) };
    describe(&config, &mut cluster, &mut report);
    Ok(Some(report))
}

fn describe(config: &ResizeFile, cluster: &mut Cluster, report: &mut Report) {
    // First: each agent is waited for, and what its queue is watched by is known then.
    let notes = cluster.notes();
    let named = |report: &mut Report, label: &str, text: &str| report.fact(label, label, text, text);
    named(report, "controller", cluster.resizer_name());
    named(report, "balancer", &cluster.balancer_name());
    named(report, "demand", config.demand().words());
    for (name, state) in cluster.states() {
        let kind = config.servers.get(&name).map_or("", |table| table.power.kind());
        report.item(
            "server",
            "servers",
            format_args!("{name}: {}, power by {kind}", state.name()),
            json!({ "name": name, "state": state.name(), "power": kind }),
        );
    }
    for (name, place) in cluster.queues() {
        let value = json!({ "name": name, "place": place.to_string() });
        report.item("queue", "queues", format_args!("{name}: {place}"), value);
    }
    for note in notes {
        report.note(note);
    }
}
