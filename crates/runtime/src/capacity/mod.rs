//! How many connections a second the server of a port can take: a run that measures and estimates, and sets nothing.
//!
//! Each way to measure the accept queue samples on a thread of its own ([`Watching::open`]) and feeds the estimators that can use
//! what it shows ([`Way`]). Each sample of the first of them ends a period, which is recorded and shown as those of any other run
//! ([`Watching::run`]): the meters and the estimators are its parts.
//!
//! ```
//! use headroom_console::Stop;
//! use headroom_control::capacity::QueueTuning;
//! use headroom_node::queue::{QueueMethod, QueueOptions};
//! use headroom_record::{Limits, Provenance, Recorder};
//! use headroom_runtime::capacity::{Outputs, Place, Plan, Watching};
//! use std::net::TcpListener;
//! use std::time::Duration;
//!
//! let server = TcpListener::bind("127.0.0.1:0")?;
//! let port = server.local_addr()?.port();
//! let plan = Plan {
//!     port,
//!     methods: vec![QueueMethod::Kernel],
//!     are_chosen: true,
//!     tuning: QueueTuning { sampling_period_s: 0.05, ..QueueTuning::default() },
//!     ramp: None,
//!     fixed: None,
//!     place: Place::Here { options: Box::new(QueueOptions::new(port)), group: None },
//! };
//! let folder = tempfile::tempdir()?;
//! let recorder = Recorder::open(&folder.path().join("capacity.db"), Limits::default())?;
//! let watching = Watching::open(plan)?;
//! let run = recorder.start_run(watching.meta("example", Provenance::of_this_process("0.0.0")))?;
//! let found = watching.run(Outputs::to(run), Some(Duration::from_millis(300)), &Stop::default())?;
//! assert!(found.summary.periods > 0);
//! assert_eq!(found.json()["methods"][0]["method"], "kernel");
//! # Ok::<(), headroom_console::Failure>(())
//! ```

mod agent;
mod cpu;
mod local;
mod others;
mod page;
mod rates;
mod run;
mod sample;
mod samples_file;
mod text;
mod totals;
mod watch;
mod way;

pub use rates::{Rate, Rates, rates};
pub use run::{Found, Outputs};
pub use samples_file::SamplesFile;
pub use text::LEGEND;
pub use way::{Way, name};

use headroom_console::{Failure, say};
use headroom_control::capacity::{QueueTuning, RampTuning, StaticCapacity};
use headroom_node::cgroup::TargetSpec;
use headroom_node::queue::{QueueMethod, QueueOptions, StatusPage};
use headroom_record::{Provenance, RunMeta, World};
use headroom_units::Seconds;
use headroom_wire::Address;
use headroom_wire::client::ClientOptions;
use headroom_wire::message::CpuGroup;
use std::fmt;
use std::time::{Instant, SystemTime};
use watch::Watch;

/// What is watched, and how its capacity is estimated.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The TCP port.
    pub port: u16,
    /// The ways to measure that are tried.
    pub methods: Vec<QueueMethod>,
    /// Whether somebody chose them: of one that nobody asked for it is no news that it cannot be used.
    pub are_chosen: bool,
    /// The estimators' parameters; the sampling period is that of the run.
    pub tuning: QueueTuning,
    /// The benchmark's estimator under a rising load, where it is wanted.
    pub ramp: Option<RampTuning>,
    /// What a benchmark found, to compare with.
    pub fixed: Option<StaticCapacity>,
    /// On which machine the port is.
    pub place: Place,
}

/// On which machine a port is.
#[derive(Clone, Debug)]
pub enum Place {
    /// This one.
    Here {
        /// How its accept queue is measured.
        options: Box<QueueOptions>,
        /// The control group whose CPU time the estimate by /proc goes by; `None` for the machine's.
        group: Option<TargetSpec>,
    },
    /// That of an agent.
    Agent {
        /// Where the agent is.
        address: Address,
        /// How it is reached.
        client: Box<ClientOptions>,
        /// The control group there whose CPU time the estimate by /proc goes by; `None` for the machine's.
        group: Option<CpuGroup>,
        /// The server's status page, as this machine can reach it.
        status: Option<StatusPage>,
    },
}

impl fmt::Display for Plan {
    /// The port, and on which machine.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "port {}", self.port)?;
        match &self.place {
            Place::Here { .. } => Ok(()),
            Place::Agent { address, .. } => write!(f, ", through the agent at {address}"),
        }
    }
}

impl Plan {
    fn agent(&self) -> Option<&Address> {
        match &self.place {
            Place::Here { .. } => None,
            Place::Agent { address, .. } => Some(address),
        }
    }

    /// The control group whose CPU time is taken.
    fn group(&self) -> Option<String> {
        match &self.place {
            Place::Here {
                group: Some(TargetSpec::Path(path)),
                ..
            } => Some(path.clone()),
            Place::Here { group, .. } => group.as_ref().map(ToString::to_string),
            Place::Agent { group, .. } => group.as_ref().map(ToString::to_string),
        }
    }

    fn status(&self) -> Option<&StatusPage> {
        match &self.place {
            Place::Here { options, .. } => options.status.as_ref(),
            Place::Agent { status, .. } => status.as_ref(),
        }
    }

    /// As text, for the record.
    fn text(&self) -> String {
        let methods: Vec<String> = self.methods.iter().map(ToString::to_string).collect();
        let optional = |name: &str, value: Option<String>| {
            value.map_or_else(String::new, |value| format!("{name} = {value:?}\n"))
        };
        let tuning = &self.tuning;
        format!(
            "port = {}\nmethods = \"{}\"\nperiod_s = {}\nalpha = {}\nthreshold = {}\nforecast_s = {}\n{}{}{}{}{}",
            self.port,
            methods.join(","),
            tuning.sampling_period_s,
            tuning.keep,
            tuning.drop_ratio,
            tuning.forecast_s,
            optional("agent", self.agent().map(ToString::to_string)),
            optional("cgroup", self.group()),
            optional("status_url", self.status().map(ToString::to_string)),
            tuning
                .queue_limit
                .map_or_else(String::new, |limit| format!("queue_limit = {limit}\n")),
            self.ramp
                .as_ref()
                .map_or_else(String::new, |ramp| format!("ramp_s = {}\n", ramp.window_s)),
        )
    }
}

/// A way to measure that cannot be used.
#[derive(Clone, Debug, serde::Serialize)]
pub struct PassedOver {
    /// By which it would measure.
    pub method: QueueMethod,
    /// Why, and what helps.
    pub reason: String,
}

impl PassedOver {
    fn say(&self) {
        say::note!("{} cannot be used: {}", name(self.method), self.reason);
    }
}

/// A port that is watched, by the ways to measure that work.
pub struct Watching {
    plan: Plan,
    started: Instant,
    watches: Vec<Watch>,
    passed_over: Vec<PassedOver>,
    remarks: Vec<String>,
}

impl Watching {
    /// Opens what works, and says on standard error why the others do not and what a reader of the estimates must know.
    ///
    /// # Errors
    /// A parameter outside its range, a port that nobody listens on, an agent that cannot be reached, no way to measure that works.
    pub fn open(plan: Plan) -> Result<Self, Failure> {
        plan.tuning.check().map_err(Failure::usage)?;
        let mut watching = Self {
            plan: plan.clone(),
            started: Instant::now(),
            watches: Vec::new(),
            passed_over: Vec::new(),
            remarks: Vec::new(),
        };
        match plan.place {
            Place::Here { options, group } => watching.open_here(&options, group)?,
            Place::Agent {
                address,
                client,
                group,
                status,
            } => watching.open_agent(&address, &client, group, status.as_ref())?,
        }
        if watching.watches.is_empty() {
            for one in watching
                .passed_over
                .iter()
                .filter(|one| !watching.is_news(one.method))
            {
                one.say();
            }
            return Err(Failure::usage(anyhow::anyhow!(
                "none of the ways to measure works here; the reasons are above"
            )));
        }
        for remark in &watching.remarks {
            say::note!("{remark}");
        }
        Ok(watching)
    }

    /// What the run is, for the record: its law is the estimator whose estimate is that of the whole.
    pub fn meta(&self, run_name: &str, provenance: Provenance) -> RunMeta {
        let config = self.plan.text();
        let passed_over = self.passed_over.iter().filter(|one| self.is_news(one.method));
        let passed_over =
            passed_over.map(|one| format!("{} cannot be used: {}", name(one.method), one.reason));
        RunMeta {
            name: run_name.to_owned(),
            law: self.leading().word().to_owned(),
            trace: "live traffic".to_owned(),
            seed: 0,
            world: World::Live,
            period: Seconds::new(self.plan.tuning.sampling_period_s),
            slo: None,
            power_source: None,
            notes: self.remarks.iter().cloned().chain(passed_over).collect(),
            config: config.clone(),
            version: provenance.version.clone(),
            host: provenance.host.clone(),
            started_at: SystemTime::now(),
            energy_bound: None,
            nodes: Vec::new(),
            provenance: provenance.configured_by(&config),
        }
    }

    /// What a reader must know of the estimates.
    pub fn remarks(&self) -> &[String] {
        &self.remarks
    }

    fn methods(&self) -> impl Iterator<Item = QueueMethod> + '_ {
        self.watches.iter().map(Watch::method)
    }

    /// The way to measure whose samples end the periods.
    fn first(&self) -> QueueMethod {
        self.methods().min().unwrap_or(QueueMethod::Kernel)
    }

    /// The estimator whose estimate is that of the whole: by busy time where the queue is seen, else by CPU utilisation.
    fn leading(&self) -> Way {
        match self.first() {
            method @ (QueueMethod::Ebpf | QueueMethod::Kernel) => Way::BusyTime(method),
            method => Way::Cpu(method),
        }
    }

    /// Every way to an estimate, in order.
    fn ways(&self) -> Vec<Way> {
        let mut ways: Vec<Way> = self.watches.iter().flat_map(Watch::ways).collect();
        ways.extend(self.plan.fixed.map(|_| Way::Static));
        ways.sort();
        ways
    }

    fn pass_over(&mut self, method: QueueMethod, reason: String) {
        let one = PassedOver { method, reason };
        if self.is_news(method) {
            one.say();
        }
        self.passed_over.push(one);
    }

    /// Whether somebody waits to hear that this one cannot be used; else the result says it, and that is enough.
    fn is_news(&self, method: QueueMethod) -> bool {
        match method {
            QueueMethod::Snmp => self.plan.are_chosen,
            QueueMethod::Status => self.plan.are_chosen || self.plan.status().is_some(),
            QueueMethod::Ebpf | QueueMethod::Kernel | QueueMethod::Tools => true,
        }
    }

    /// Notes that some methods count connections to other ports too, which are named.
    fn remark_machine(&mut self, others: &str) {
        let of_machine: Vec<&str> = self
            .methods()
            .filter(|method| !matches!(method, QueueMethod::Ebpf | QueueMethod::Status))
            .map(name)
            .collect();
        if of_machine.is_empty() {
            return;
        }
        let checked = match self.methods().any(|method| method == QueueMethod::Ebpf) {
            true => "where they are many, by eBPF, those estimates are withheld",
            false => "their estimates hold only while next to nothing comes there",
        };
        self.remarks.push(format!(
            "{} count connections of the whole machine, those to {others} too: {checked}",
            of_machine.join(" and ")
        ));
    }

    fn remark_sockets(&mut self, sockets: usize, backlog: Option<u64>) {
        if sockets > 1 {
            self.remarks.push(format!(
                "{sockets} sockets listen on port {}: they are read as one queue with a backlog of {}. The published estimator \
                 takes it for one, although one of them may overflow while others are empty; the estimate by busy time \
                 counts only while somebody waits at each socket that connections come to",
                self.plan.port,
                backlog.unwrap_or(0)
            ));
        }
    }
}
