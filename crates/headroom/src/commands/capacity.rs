//! `headroom capacity`: how many connections a second the server of a port can take.

use super::report::RecordArgs;
use crate::args::Trees;
use anyhow::anyhow;
use clap::Args;
use headroom_console::args::{seconds, seconds_or_none};
use headroom_console::{Failure, Stop, say, terminal};
use headroom_control::capacity::{QueueTuning, RampTuning, StaticCapacity};
use headroom_node::cgroup::TargetSpec;
use headroom_node::queue::{QueueMethod, QueueOptions, QueuePreference, SnmpOptions, StatusPage};
use headroom_record::{Limits, Provenance, Recorder};
use headroom_runtime::capacity::{LEGEND, Outputs, Place, Plan, SamplesFile, Watching, rates};
use headroom_runtime::live::view::{Heading, View};
use headroom_units::{PerSecond, Seconds};
use headroom_wire::Address;
use headroom_wire::client::ClientOptions;
use headroom_wire::message::CpuGroup;
use headroom_wire::tls::{ClientTls, TlsFiles};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// `headroom capacity`.
///
/// Watches the accept queue of a TCP port, whoever serves it, and says how many connections a second that server can
/// take now: by our own queue monitoring (busy time), and beside it by queue monitoring as published (C.-H. Tsai et al.,
/// 2007), by throughput over CPU utilisation as it is read from /proc, vmstat and netstat, SNMP or the server's status
/// page, and as a benchmark found it. A connection counts once, whatever it carries: with keep-alive a server takes more
/// requests than connections, and a worker that keeps a connection open takes no other. It changes nothing on the
/// machine. The run is recorded: `headroom report latest` draws it.
///
///   headroom capacity --port 80
///   headroom capacity --port 80 --status-url 'http://127.0.0.1/server-status?auto' --duration 600
///   headroom capacity --port 80 --agent web1:7443 --agent-ca ca.crt --agent-cert controller.crt --agent-key controller.key
///   headroom capacity --port 80 --agent unix:/run/headroom/agent.sock --cgroup /sys/fs/cgroup/system.slice/apache2.service
#[derive(Debug, Args)]
#[command(verbatim_doc_comment, after_long_help = help())]
pub struct CapacityArgs {
    /// The TCP port, in this network namespace, or in that of the agent.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub port: u16,
    /// Ways to measure, with commas: ebpf, kernel, tools, snmp, status. By default all; those that do not work here are
    /// listed with reason and remedy.
    #[arg(long, value_name = "LIST")]
    pub method: Option<QueuePreference>,
    /// T, seconds between two samples.
    #[arg(long, default_value_t = 1.0, value_name = "SECONDS", value_parser = period)]
    pub period: f64,
    /// Stop after this time, in seconds or with a unit (90, 10min); by default at SIGINT or SIGTERM.
    #[arg(long, value_name = "TIME", value_parser = seconds)]
    pub duration: Option<f64>,
    /// The share of itself that an estimate keeps when it is adapted, from 0 to below 1 (Equation 5).
    #[arg(long, default_value_t = QueueTuning::default().keep, value_name = "SHARE")]
    pub alpha: f64,
    /// The drop ratio that is too much, in percent of the connection attempts.
    #[arg(long, default_value_t = QueueTuning::default().drop_ratio * 100.0, value_name = "PERCENT")]
    pub threshold: f64,
    /// T_c, the time for which the queue's growth is forecast: that which another server would take to start.
    #[arg(long, default_value_t = QueueTuning::default().forecast_s, value_name = "TIME", value_parser = seconds_or_none)]
    pub forecast: f64,
    /// K, the accept queue's backlog, in place of the kernel's own figure.
    #[arg(long, value_name = "BACKLOG")]
    pub queue_limit: Option<u32>,
    /// The capacity that a benchmark found, in connections a second, to compare with.
    #[arg(long = "static", value_name = "RATE", value_parser = rate)]
    pub fixed: Option<f64>,
    /// Call it capacity, as a benchmark under a slowly rising load does, once the drop ratio over this time
    /// reaches the threshold: the mean throughput of that window, and no other figure from then on. 60 in the paper.
    #[arg(long, value_name = "TIME", value_parser = seconds)]
    pub ramp: Option<f64>,
    /// Instead of watching, find out how many samples a second each method can take now, one after another, each for this
    /// time. Not through an agent: that would be how many samples the network carries; run it on that machine.
    #[arg(long, value_name = "TIME", value_parser = seconds)]
    pub rates: Option<f64>,
    /// The server's status page: mod_status with ?auto (Apache), stub_status (nginx). It is got by this program, also where
    /// the port is watched through an agent: give it as this machine can reach it.
    #[arg(long, value_name = "URL")]
    pub status_url: Option<StatusPage>,
    /// The SNMP agent.
    #[arg(long, default_value = "127.0.0.1:161", value_name = "ADDR")]
    pub snmp: SocketAddr,
    /// The community that the agent lets in.
    #[arg(long, default_value = "public", value_name = "NAME")]
    pub snmp_community: String,
    /// Take the CPU utilisation of this control group, in the cores that it may use, instead of the machine's (for the
    /// estimate by /proc). With --agent it is a group of the agent's machine: that of its service, one that its
    /// configuration names (agent.cpu_groups), or one below these.
    #[arg(long, value_name = "DIR", conflicts_with = "pid")]
    pub cgroup: Option<String>,
    /// The same, of the control group that this process of this machine is in.
    #[arg(long, value_name = "PID")]
    pub pid: Option<u32>,
    /// Watch the port of another machine, through its `headroom agent`: unix:/path, or host:port with certificates. The ways
    /// to measure are those that it has, and a status page that this machine can reach; SNMP is the agent's machine's own.
    #[arg(long, value_name = "ADDR", conflicts_with_all = ["snmp", "snmp_community", "pid"])]
    pub agent: Option<Address>,
    /// For an agent over TCP: the authority's certificate, as `headroom certs` makes it.
    #[arg(long, value_name = "FILE", requires_all = ["agent", "agent_cert", "agent_key"])]
    pub agent_ca: Option<PathBuf>,
    /// For an agent over TCP: the controller's certificate (`headroom certs issue-controller`).
    #[arg(long, value_name = "FILE", requires = "agent_ca")]
    pub agent_cert: Option<PathBuf>,
    /// For an agent over TCP: the key to it.
    #[arg(long, value_name = "FILE", requires = "agent_ca")]
    pub agent_key: Option<PathBuf>,
    /// Where the run is recorded, for `headroom report` and `headroom runs`.
    #[command(flatten)]
    pub record: RecordArgs,
    /// The name of the run in the record.
    #[arg(long, default_value = "capacity", value_name = "NAME")]
    pub name: String,
    /// Write every sample of every method to this file too, as CSV.
    #[arg(long, value_name = "FILE")]
    pub csv: Option<PathBuf>,
    /// Print the result as JSON on standard output, and nothing else there.
    #[arg(long)]
    pub json: bool,
    /// Print a line a period instead of the live view (the default where standard error is no terminal).
    #[arg(long)]
    pub no_view: bool,
    /// Where the kernel's files are.
    #[command(flatten)]
    pub trees: Trees,
}

/// What stands below the options.
fn help() -> String {
    format!("What an estimate says:\n\n{LEGEND}")
}

/// The sampling period.
fn period(text: &str) -> Result<f64, String> {
    let seconds = text
        .parse()
        .ok()
        .filter(|seconds| (0.01..=3_600.0).contains(seconds));
    seconds.ok_or_else(|| "give a number of seconds between 0.01 and 3600".to_owned())
}

/// Connections a second.
fn rate(text: &str) -> Result<f64, String> {
    let rate = text
        .parse()
        .ok()
        .filter(|rate: &f64| *rate > 0.0 && rate.is_finite());
    rate.ok_or_else(|| "give a number of connections a second above 0, without a unit: 80".to_owned())
}

/// The ways to measure.
const ALL: [QueueMethod; 5] = [
    QueueMethod::Ebpf,
    QueueMethod::Kernel,
    QueueMethod::Tools,
    QueueMethod::Snmp,
    QueueMethod::Status,
];
/// For how long an agent is waited for: to be reached, and again to answer. Both together are shorter than its first snapshot is
/// waited for, so that why it cannot be reached is known before it is given up.
const AGENT_PATIENCE: Duration = Duration::from_secs(2);

/// Watches until the time is over or a signal comes; then prints what was found.
///
/// # Errors
/// A parameter outside its range, a port that nobody listens on, no method that works, a file that cannot be written.
pub fn run(args: &CapacityArgs) -> Result<(), Failure> {
    let plan = plan(args).map_err(Failure::usage)?;
    if let (Some(each), Place::Here { options, .. }) = (args.rates, &plan.place) {
        let rates = rates(&plan.methods, options, Duration::from_secs_f64(each))?;
        return match args.json {
            true => say::result(rates.json()),
            false => say::result(rates.table()),
        };
    }
    if let Some(csv) = &args.csv {
        SamplesFile::may_be(csv, &args.record.db).map_err(Failure::usage)?;
    }
    for file in [Some(&args.record.db), args.csv.as_ref()].into_iter().flatten() {
        if let Some(folder) = file
            .parent()
            .filter(|folder| !folder.as_os_str().is_empty() && !folder.exists())
        {
            say::note!("the folder {} is made, for {}", folder.display(), file.display());
        }
    }
    let title = plan.to_string();
    let watching = Watching::open(plan)?;
    let recorder = Recorder::open(&args.record.db, Limits::default()).map_err(Failure::usage)?;
    let samples = args.csv.as_deref().map(SamplesFile::create).transpose()?;
    let stop = Stop::at_signals()?;
    let meta = watching.meta(&args.name, Provenance::of_this_process(env!("CARGO_PKG_VERSION")));
    let heading = Heading {
        law: meta.law.clone(),
        trace: title,
        length: args.duration.map(Seconds::new),
        notes: meta.notes.clone(),
    };
    let view = terminal::view(args.no_view, || View::open(stop.clone()))?;
    let outputs = Outputs {
        recorder: recorder.start_run(meta)?,
        view: view.as_ref().map(|view| (view, heading)),
        samples,
    };
    let found = watching.run(outputs, args.duration.map(Duration::from_secs_f64), &stop)?;
    drop(view);
    if args.json {
        return say::result(found.json());
    }
    say::result(format_args!(
        "{}\nthe record: {}; `headroom report latest{}` draws it",
        found.table(),
        args.record.db.display(),
        crate::start::elsewhere(&args.record.db)
    ))
}

/// What is to be watched, where that goes together.
fn plan(args: &CapacityArgs) -> anyhow::Result<Plan> {
    let tuning = QueueTuning {
        queue_limit: args.queue_limit,
        sampling_period_s: args.period,
        drop_ratio: args.threshold / 100.0,
        forecast_s: args.forecast,
        keep: args.alpha,
        hold_s: (10.0 * args.period).min(3_600.0),
        ..QueueTuning::default()
    };
    tuning.check().map_err(|error| {
        let option = match error.key.as_ref() {
            "keep" => "alpha",
            "drop_ratio" => "threshold (a hundredth of it)",
            "forecast_s" => "forecast",
            "queue_limit" => "queue-limit",
            "sampling_period_s" => "period",
            other => other,
        };
        anyhow!("--{option} {}: it must be {}", error.is(), error.range)
    })?;
    let methods = match args.method.unwrap_or(QueuePreference::Auto) {
        QueuePreference::Auto => ALL.to_vec(),
        wanted @ QueuePreference::Ordered(_) => wanted.order(),
    };
    let fixed = args.fixed.map(|rate| StaticCapacity::new(PerSecond::new(rate)));
    let plan = Plan {
        port: args.port,
        methods,
        are_chosen: matches!(args.method, Some(QueuePreference::Ordered(_))),
        tuning,
        ramp: args.ramp.map(|window_s| RampTuning {
            window_s,
            drop_ratio: tuning.drop_ratio,
        }),
        fixed: fixed.transpose()?,
        place: place(args)?,
    };
    if let (Some(_), Some(address)) = (args.rates, &args.agent) {
        return Err(anyhow!(
            "--rates finds out how many samples a second a method can take, and through the agent at {address} that would \
             be how many the network carries: run `headroom capacity --rates` on the agent's machine"
        ));
    }
    if (args.cgroup.is_some() || args.pid.is_some()) && !plan.methods.contains(&QueueMethod::Kernel) {
        return Err(anyhow!(
            "--cgroup and --pid are for the estimate by /proc, which is not among the ways to measure: add kernel to \
             --method"
        ));
    }
    if args.status_url.is_some() && !plan.methods.contains(&QueueMethod::Status) {
        return Err(anyhow!(
            "--status-url names a page that is not among the ways to measure: add status to --method"
        ));
    }
    Ok(plan)
}

/// On which machine the port is.
fn place(args: &CapacityArgs) -> anyhow::Result<Place> {
    let Some(address) = args.agent.clone() else {
        let group = args.cgroup.clone().map(TargetSpec::Path);
        let options = QueueOptions {
            roots: args.trees.roots(),
            snmp: SnmpOptions {
                agent: args.snmp,
                community: args.snmp_community.clone(),
            },
            status: args.status_url.clone(),
            ..QueueOptions::new(args.port)
        };
        return Ok(Place::Here {
            options: Box::new(options),
            group: group.or(args.pid.map(TargetSpec::Pid)),
        });
    };
    let group = args.cgroup.clone().map(CpuGroup::new).transpose();
    let tls = match (&args.agent_ca, &args.agent_cert, &args.agent_key) {
        (Some(ca), Some(certificate), Some(key)) => {
            let files = TlsFiles {
                ca: ca.clone(),
                certificate: certificate.clone(),
                key: key.clone(),
                revoked: None,
            };
            Some(ClientTls::load(&files)?)
        }
        _ => None,
    };
    Ok(Place::Agent {
        address,
        client: Box::new(ClientOptions {
            tls,
            connect_time: AGENT_PATIENCE,
            answer_time: AGENT_PATIENCE,
            ..ClientOptions::default()
        }),
        group: group.map_err(|error| anyhow!("--cgroup: {error}"))?,
        status: args.status_url.clone(),
    })
}
