//! `headroom capacity`: how many connections a second the server of a port can take.

mod agent;
mod args;
mod cpu;
mod history;
mod others;
mod page;
mod rates;
mod report;
mod seen;
mod tables;
mod view;
mod watch;
mod way;

pub use args::CapacityArgs;

use anyhow::anyhow;
use cpu::{GroupCpu, ServiceCpu};
use headroom_console::Failure;
use headroom_console::Stop;
use headroom_console::say;
use headroom_console::terminal;
use headroom_control::capacity::{QueueTuning, RampTuning, StaticCapacity};
use headroom_node::cgroup::TargetSpec;
use headroom_node::queue::{
    Opened, QueueError, QueueMethod, QueueOptions, QueuePreference, SnmpOptions, listening_ports, open,
};
use headroom_units::{PerSecond, Seconds};
use history::History;
use seen::Row;
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::{Duration, Instant};
use view::View;
use watch::Watch;
use way::{Way, name};

/// Rows that wait to be taken: the methods' threads wait when there are more.
const MAX_WAITING: usize = 256;
/// How often the flag is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// The most that is remembered of what was said on the way.
const MAX_NEWS: usize = 100;

/// A method that cannot be used here.
#[derive(Clone, Debug, serde::Serialize)]
pub struct PassedOver {
    /// Which.
    pub method: QueueMethod,
    /// Why, and what helps.
    pub reason: String,
}

/// What a run was, for its report.
pub struct Run<'a> {
    args: &'a CapacityArgs,
    tuning: QueueTuning,
    methods: Vec<QueueMethod>,
    passed_over: Vec<PassedOver>,
    /// What a reader must know.
    remarks: Vec<String>,
    fixed: Option<StaticCapacity>,
    /// What was said on the way, with its time.
    news: Vec<(f64, String)>,
    duration: Seconds,
}

/// Watches until the time is over or a signal comes; then prints the table and writes the report.
///
/// # Errors
/// A parameter outside its range, a port that nobody listens on, no method that works, a file that cannot be written.
pub fn run(args: &CapacityArgs) -> Result<(), Failure> {
    let tuning = QueueTuning {
        queue_limit: args.queue_limit,
        sampling_period_s: args.period,
        drop_ratio: args.threshold / 100.0,
        forecast_s: args.forecast,
        keep: args.alpha,
        hold_s: (10.0 * args.period).min(3_600.0),
        ..QueueTuning::default()
    };
    tuning.check().map_err(Failure::usage)?;
    let fixed = args
        .fixed
        .map(|rate| StaticCapacity::new(PerSecond::new(rate)))
        .transpose()
        .map_err(Failure::usage)?;
    sensible(args).map_err(Failure::usage)?;
    let roots = args.trees.roots();
    let spec = match (&args.agent, &args.cgroup, args.pid) {
        // That of the agent's machine is the agent's to find.
        (Some(_), _, _) => None,
        (None, Some(group), _) => Some(TargetSpec::Path(group.clone())),
        (None, None, pid) => pid.map(TargetSpec::Pid),
    };
    let cpu = spec
        .map(|spec| GroupCpu::open(&roots, &spec))
        .transpose()
        .map_err(Failure::usage)?;
    let options = QueueOptions {
        roots,
        snmp: SnmpOptions {
            agent: args.snmp,
            community: args.snmp_community.clone(),
        },
        status: args.status_url.clone(),
        ..QueueOptions::new(args.port)
    };
    if let Some(seconds) = args.rates {
        return rates::run(args, &options, Duration::from_secs_f64(seconds));
    }
    let mut run = Run {
        args,
        tuning,
        methods: Vec::new(),
        passed_over: Vec::new(),
        remarks: Vec::new(),
        fixed,
        news: Vec::new(),
        duration: Seconds::ZERO,
    };
    let started = Instant::now();
    let watches = match &args.agent {
        Some(address) => agent::open_all(&mut run, address, started)?,
        None => {
            let watches = open_all(&mut run, &options, cpu, started)?;
            run.remark(&options)?;
            watches
        }
    };
    for remark in &run.remarks {
        say::note!("{remark}");
    }
    let stop = Stop::at_signals()?;
    let history = run.watch(watches, started, &stop)?;
    run.finish(&history)
}

/// Whether what is asked for goes together.
fn sensible(args: &CapacityArgs) -> anyhow::Result<()> {
    if let (Some(_), Some(address)) = (args.rates, &args.agent) {
        return Err(anyhow!(
            "--rates finds out how many samples a second a method can take, and through the agent at {address} that would \
             be how many the network carries: run `headroom capacity --rates` on the agent's machine"
        ));
    }
    let methods = order(args);
    if (args.cgroup.is_some() || args.pid.is_some()) && !methods.contains(&QueueMethod::Kernel) {
        return Err(anyhow!(
            "--cgroup and --pid are for the estimate by /proc, which is not among the ways to measure: add kernel to \
             --method"
        ));
    }
    if args.status_url.is_some() && !methods.contains(&QueueMethod::Status) {
        return Err(anyhow!(
            "--status-url names a page that is not among the ways to measure: add status to --method"
        ));
    }
    Ok(())
}

/// Opens what works, and keeps why the others do not.
fn open_all(
    run: &mut Run<'_>,
    options: &QueueOptions,
    mut cpu: Option<GroupCpu>,
    started: Instant,
) -> Result<Vec<Watch>, Failure> {
    let order = order(run.args);
    let ramp = run.ramp();
    if let Some(cpu) = cpu.as_ref().filter(|_| order.contains(&QueueMethod::Kernel)) {
        run.remarks
            .push(format!("the CPU utilisation by /proc is that of {}", cpu.name()));
    }
    let mut watches = Vec::new();
    for method in order {
        match open_one(method, options) {
            Ok((meter, looking)) => {
                let cpu = cpu
                    .take_if(|_| method == QueueMethod::Kernel)
                    .map(|cpu| Box::new(cpu) as Box<dyn ServiceCpu>);
                watches.push(
                    Watch::new(meter, looking, cpu, run.tuning, ramp, started).map_err(Failure::usage)?,
                );
                run.methods.push(method);
            }
            Err(error @ QueueError::NobodyListens { .. }) => return Err(Failure::usage(error)),
            Err(error) => run.pass_over(method, error.to_string()),
        }
    }
    some(watches)
}

/// What can be watched by, if anything can.
fn some(watches: Vec<Watch>) -> Result<Vec<Watch>, Failure> {
    match watches.is_empty() {
        true => Err(Failure::usage(anyhow!(
            "none of the ways to measure works here; the reasons are above"
        ))),
        false => Ok(watches),
    }
}

const ALL: [QueueMethod; 5] = [
    QueueMethod::Ebpf,
    QueueMethod::Kernel,
    QueueMethod::Tools,
    QueueMethod::Snmp,
    QueueMethod::Status,
];

/// The methods that are asked for.
fn order(args: &CapacityArgs) -> Vec<QueueMethod> {
    match args.method.unwrap_or(QueuePreference::Auto) {
        QueuePreference::Auto => ALL.to_vec(),
        wanted @ QueuePreference::Ordered(_) => wanted.order(),
    }
}

type Meter = Box<dyn headroom_node::queue::QueueMeter>;

/// A method's meter, and a second one for the looks in between, where those would make its CPU utilisation one of
/// hundredths of a second.
fn open_one(method: QueueMethod, options: &QueueOptions) -> Result<(Meter, Option<Meter>), QueueError> {
    let meter: Opened = open(method, options);
    let looking = (method == QueueMethod::Kernel)
        .then(|| open(method, options))
        .transpose();
    Ok((meter?, looking?))
}

impl Run<'_> {
    fn ramp(&self) -> Option<RampTuning> {
        self.args.ramp.map(|window_s| RampTuning {
            window_s,
            drop_ratio: self.tuning.drop_ratio,
        })
    }

    fn pass_over(&mut self, method: QueueMethod, reason: String) {
        say::note!("{} cannot be used: {reason}", name(method));
        self.passed_over.push(PassedOver { method, reason });
    }

    /// The port, and on which machine.
    fn place(&self) -> String {
        let port = self.args.port;
        match &self.args.agent {
            Some(address) => format!("port {port}, through the agent at {address}"),
            None => format!("port {port}"),
        }
    }

    /// What a reader must know of the port and of this machine.
    fn remark(&mut self, options: &QueueOptions) -> Result<(), Failure> {
        let port = self.args.port;
        let others: Vec<String> = listening_ports()?
            .into_iter()
            .filter(|other| *other != port)
            .map(|other| other.to_string())
            .collect();
        if !others.is_empty() {
            let named = match others.len() {
                0..=12 => others.join(", "),
                more => format!("{} and {} more", others[..12].join(", "), more - 12),
            };
            self.remark_machine(&format!("port {named}"));
        }
        let sockets = open(QueueMethod::Kernel, options).and_then(|mut meter| meter.sample());
        if let Ok(sample) = sockets {
            self.remark_sockets(sample.listeners.len(), sample.places());
        }
        Ok(())
    }

    /// That some methods count those to other ports too, which are named.
    fn remark_machine(&mut self, others: &str) {
        let of_machine: Vec<&str> = self
            .methods
            .iter()
            .filter(|method| !matches!(method, QueueMethod::Ebpf | QueueMethod::Status))
            .map(|method| name(*method))
            .collect();
        if of_machine.is_empty() {
            return;
        }
        let checked = match self.methods.contains(&QueueMethod::Ebpf) {
            true => "where they are many, as eBPF tells, those estimates are withheld",
            false => "their estimates hold only while next to nothing comes there",
        };
        self.remarks.push(format!(
            "{} count connections of the whole machine, those to {others} too: {checked}",
            of_machine.join(" and ")
        ));
    }

    fn remark_sockets(&mut self, sockets: usize, places: Option<u64>) {
        if sockets > 1 {
            self.remarks.push(format!(
                "{sockets} sockets listen on port {}: they are read as one queue of {} places. The published estimator \
                 takes it for one, although one of them may overflow while others are empty; the estimate by busy time \
                 counts only while somebody waits at each socket that connections come to",
                self.args.port,
                places.unwrap_or(0)
            ));
        }
    }

    /// Runs the methods and takes their rows.
    fn watch(&mut self, watches: Vec<Watch>, started: Instant, stop: &Stop) -> Result<History, Failure> {
        let view = terminal::view(self.args.no_view, || View::open(self, stop.clone()))?;
        let (sender, rows) = sync_channel(MAX_WAITING);
        let mut threads = Vec::new();
        for watch in watches {
            let (sender, stop) = (sender.clone(), stop.clone());
            let thread = std::thread::Builder::new().name("watch".to_owned());
            threads.push(thread.spawn(move || watch.run(&sender, &stop))?);
        }
        drop(sender);
        let end = self
            .args
            .duration
            .map(|seconds| started + Duration::from_secs_f64(seconds));
        let history = self.take_rows(&rows, end, view.as_ref(), stop);
        stop.raise();
        drop(rows);
        for thread in threads {
            if thread.join().is_err() {
                return Err(anyhow!("a thread that measures panicked; please report it").into());
            }
        }
        self.duration = started.elapsed().into();
        Ok(history)
    }

    fn take_rows(
        &mut self,
        rows: &Receiver<Row>,
        end: Option<Instant>,
        view: Option<&View>,
        stop: &Stop,
    ) -> History {
        let mut history = History::default();
        // In the order of the history, the rows of whose first method the report and the view take.
        let lead = self.methods.iter().min().copied();
        let over = || end.is_some_and(|end| Instant::now() >= end) || stop.is_raised();
        while !over() {
            let left = end.map_or(LOOK_EVERY, |end| end.saturating_duration_since(Instant::now()));
            let mut row = match rows.recv_timeout(left.min(LOOK_EVERY)) {
                Ok(row) => row,
                Err(RecvTimeoutError::Timeout) => continue,
                Err(RecvTimeoutError::Disconnected) => break,
            };
            let leads = lead == Some(row.method);
            if let Some(fixed) = self.fixed.filter(|_| leads) {
                row.estimates.push((Way::Static, fixed.estimate()));
            }
            let shown = row.clone();
            for news in history.push(row) {
                say::note!("{:8.1} s  {news}", shown.at.get());
                if self.news.len() < MAX_NEWS {
                    self.news.push((shown.at.get(), news));
                }
            }
            match view {
                Some(view) => view.show(&history),
                None if leads => say::note!("{}", tables::line(&shown, &history)),
                None => {}
            }
        }
        history
    }

    /// The table, the JSON and the files.
    fn finish(&self, history: &History) -> Result<(), Failure> {
        if let Some(file) = &self.args.csv {
            headroom_console::file::write(file, &tables::csv(history))?;
        }
        headroom_console::file::write(&self.args.html, &report::html(self, history)?)?;
        if self.args.json {
            return say::result(serde_json::to_string(&tables::json(self, history))?);
        }
        say::result(format_args!(
            "{}\nreport: {}",
            tables::table(self, history),
            self.args.html.display()
        ))
    }
}
