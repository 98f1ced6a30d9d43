//! Configurations of `headroom up` and `headroom controller`, and what runs on them, started as a user starts it.

use super::openmetrics::{self, Exposition};
use super::process::{self, Process};
use super::{Answer, Group, Program, free_address, get, headroom, kill, until};
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

/// A configuration in a folder of its own, where run folder and record are too.
pub struct Config {
    dir: TempDir,
    name: &'static str,
    text: String,
}

impl Config {
    /// A run for a group without traffic: the law saves more and more, so that there is much to put back.
    pub fn idle(group: &Group) -> Self {
        Self::new(group, free_address()).with("period_ms = 200", "period_ms = 100")
    }

    /// One of `headroom up` that works, for a group, in front of a backend.
    pub fn new(group: &Group, backend: SocketAddr) -> Self {
        Self::of(group.dir(), backend)
    }

    /// The same for a group that need not be there.
    pub fn of(group: &Path, backend: SocketAddr) -> Self {
        let text = format!(
            "[slo]\npercentile = 95\ntarget_ms = 250\n\n[gateway]\nlisten = [\"127.0.0.1:0\"]\nthreads = 1\n\
             backends = [{{ url = \"http://{backend}\" }}]\n\n[service]\ncgroup = \"{}\"\nrequests_per_core_s = 250.0\n\n\
             [law]\nname = \"slo-power\"\n\n[law.slo-power]\nguard = 0.8\n\n[power]\nmeter = \"model\"\n\n[control]\n\
             period_ms = 200\n",
            group.display()
        );
        Self::recorded("headroom.toml", text)
    }

    /// One of `headroom up` for the wrapped server `db`, started with the same run folder, in a group.
    pub fn attached(group: &Path) -> Self {
        let text = format!(
            "[slo]\npercentile = 95\ntarget_ms = 500\n\n[service]\ncgroup = \"{}\"\nrequests_per_core_s = 4000.0\n\n\
             [oncall]\nserver = \"db\"\n\n[law]\nname = [\"slo-power\", \"on-call\"]\n\n[power]\nmeter = \"model\"\n\n\
             [control]\nperiod_ms = 200\n",
            group.display()
        );
        Self::recorded("headroom.toml", text)
    }

    /// One of a controller of nodes and a gateway.
    pub fn controller(nodes: &[(&str, String)], gateway: &str, lease_ms: u32) -> Self {
        let nodes: String = nodes
            .iter()
            .map(|(name, at)| format!("{name} = \"{at}\"\n"))
            .collect();
        let text = format!(
            "[slo]\ntarget_ms = 250\n\n[nodes]\n{nodes}\n[gateways]\ng1 = \"{gateway}\"\n\n[cluster]\nname = \"first\"\n\
             lease_ms = {lease_ms}\nwait_s = 20\nrequests_per_core_s = 400\n\n[law]\nname = \"slo-power\"\n\n[control]\n\
             period_ms = 200\n"
        );
        Self::recorded("controller.toml", text)
    }

    /// One of a controller of nodes whose servers on call answer the requests.
    pub fn controller_of_queries(nodes: &[(&str, String)], lease_ms: u32) -> Self {
        Self::controller(nodes, "none", lease_ms)
            .with("[gateways]\ng1 = \"none\"\n", "")
            .with("target_ms = 250", "percentile = 95\ntarget_ms = 500")
            .with("wait_s = 20", "wait_s = 20\nqueries = true")
            .with("requests_per_core_s = 400", "requests_per_core_s = 4000")
            .with("\"slo-power\"", "[\"slo-power\", \"on-call\"]")
    }

    fn recorded(name: &'static str, text: String) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let db = dir.path().join("record.db");
        let rest = format!(
            "\n[record]\ndb = \"{}\"\n\n[admin]\nlisten = \"127.0.0.1:0\"\n",
            db.display()
        );
        Self {
            dir,
            name,
            text: text + &rest,
        }
    }

    /// The same with a port of its own for the gateway.
    pub fn serving(self, address: SocketAddr) -> Self {
        self.with("listen = [\"127.0.0.1:0\"]", &format!("listen = [\"{address}\"]"))
    }

    /// The same with a port of its own for the metrics.
    pub fn metrics_on(self, address: SocketAddr) -> Self {
        self.with(
            "[admin]\nlisten = \"127.0.0.1:0\"",
            &format!("[admin]\nlisten = \"{address}\""),
        )
    }

    /// The same with a piece of its text replaced.
    pub fn with(mut self, from: &str, to: &str) -> Self {
        assert!(self.text.contains(from), "{from:?} is not in the configuration");
        self.text = self.text.replace(from, to);
        self
    }

    /// The line on which a piece of text stands.
    pub fn line_of(&self, text: &str) -> usize {
        let at = self.text.lines().position(|line| line.contains(text));
        at.unwrap_or_else(|| panic!("{text:?} is not in the configuration")) + 1
    }

    /// The file, written.
    pub fn file(&self) -> PathBuf {
        let file = self.dir.path().join(self.name);
        fs::write(&file, &self.text).unwrap();
        file
    }

    /// The folder that the file is in.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// The flight recorder's file.
    pub fn db(&self) -> PathBuf {
        self.dir.path().join("record.db")
    }

    /// The run folder.
    pub fn run_dir(&self) -> PathBuf {
        self.dir.path().join("run")
    }

    /// A command on it that is one of `headroom up`, with a run folder.
    fn on_run_dir(&self, words: &str) -> Command {
        let mut command = headroom(format!("{words} --config"));
        command.arg(self.file()).arg("--run-dir").arg(self.run_dir());
        command
    }

    /// `headroom up`, or the controller, on it.
    pub fn command(&self) -> Command {
        if self.name == "headroom.toml" {
            return self.on_run_dir("up --json --no-view");
        }
        let mut command = headroom("controller --json --no-view --config");
        command.arg(self.file());
        command
    }

    /// `headroom up --check` on it, in words.
    pub fn check(&self) -> Command {
        self.on_run_dir("up --check")
    }

    /// Starts it and waits until its loop runs; where its admin port is.
    pub fn start(&self) -> (Program, SocketAddr) {
        let mut program = Program::start(self.command());
        let admin = metrics_at(&mut program);
        (program, admin)
    }
}

/// Waits until a program says where its metrics are.
#[track_caller]
pub fn metrics_at(program: &mut Program) -> SocketAddr {
    let at = program.said("metrics on http://");
    at.split('/').next().unwrap().parse().unwrap()
}

impl Drop for Config {
    fn drop(&mut self) {
        // A gateway outlives a control side that was killed; a test's ends with the test.
        let run_dir = self.run_dir();
        let of_services = fs::read_dir(run_dir.join("services"))
            .into_iter()
            .flatten()
            .flatten();
        for dir in of_services.map(|entry| entry.path()).chain([run_dir]) {
            if let Some(gateway) = gateway_in(&dir).filter(|pid| is_launched(*pid)) {
                kill(gateway);
            }
        }
        // One that was started again while that was killed is in no record.
        launched_below(self.dir()).into_iter().for_each(kill);
    }
}

fn is_launched(pid: u32) -> bool {
    Process::read(pid).is_some_and(|process| process.args.iter().any(|arg| arg == "--launched"))
}

/// The gateway's process that a run folder records.
pub fn gateway_in(run_dir: &Path) -> Option<u32> {
    let text = fs::read(run_dir.join("gateway.json")).ok()?;
    let record: serde_json::Value = serde_json::from_slice(&text).ok()?;
    record["pid"].as_u64().and_then(|pid| u32::try_from(pid).ok())
}

/// The gateways that were launched with a socket below a folder, whatever became of their records.
pub fn launched_below(folder: &Path) -> Vec<u32> {
    let sockets = fs::read_to_string("/proc/net/unix").unwrap_or_default();
    let inodes: Vec<&str> = sockets
        .lines()
        .filter(|line| line.contains(&*folder.to_string_lossy()))
        .filter_map(|line| line.split_whitespace().nth(6))
        .collect();
    let holds = |pid: u32| {
        let files = fs::read_dir(format!("/proc/{pid}/fd"))
            .into_iter()
            .flatten()
            .flatten();
        files
            .filter_map(|file| fs::read_link(file.path()).ok())
            .any(|to| {
                inodes
                    .iter()
                    .any(|inode| to.to_string_lossy() == format!("socket:[{inode}]"))
            })
    };
    let pids = process::all().into_iter().map(|process| process.pid);
    pids.filter(|pid| is_launched(*pid) && holds(*pid)).collect()
}

/// Whether a run folder still records something to put back.
pub fn undo_left(run_dir: &Path) -> bool {
    ["undo.json", "undo.json.new"]
        .iter()
        .any(|name| run_dir.join(name).exists())
}

/// A running `headroom up`.
pub struct Up {
    /// The process.
    pub program: Program,
    /// Where its gateway listens.
    pub gateway: SocketAddr,
    /// Where its admin port is.
    pub admin: SocketAddr,
}

impl Up {
    /// Starts it and waits until its control loop runs.
    pub fn start(config: &Config) -> Self {
        Self::start_with(config, &[])
    }

    /// The same with more words on its command line.
    pub fn start_with(config: &Config, more: &[&str]) -> Self {
        let mut program = Program::start(config.command().args(more));
        let gateway = serving_at(&mut program);
        let admin = metrics_at(&mut program);
        let up = Self {
            program,
            gateway,
            admin,
        };
        // What came before the first period is in none of them.
        up.counted("headroom_periods_total", 1.0);
        up
    }

    /// A page of the admin port.
    pub fn admin(&self, path: &str) -> Answer {
        get(self.admin, path).unwrap_or_else(|error| panic!("{path}: {error}; {}", self.program.err()))
    }

    /// What `/status` has.
    #[track_caller]
    pub fn status(&self) -> serde_json::Value {
        serde_json::from_str(&self.admin("/status").body).unwrap()
    }

    /// A metric, summed over its labels.
    #[track_caller]
    pub fn metric(&self, name: &str) -> f64 {
        self.metrics()
            .sum(name)
            .unwrap_or_else(|| panic!("there is no {name}"))
    }

    /// Waits until a metric is so much more than it is.
    #[track_caller]
    pub fn counts(&self, name: &str, more: f64) {
        self.counted(name, self.metric(name) + more);
    }

    /// The metrics.
    pub fn metrics(&self) -> Exposition {
        openmetrics::parse(&self.admin("/metrics").body)
            .unwrap_or_else(|error| panic!("the metrics are no OpenMetrics: {error}"))
    }

    /// Waits until a metric, summed over its labels, is at least so much.
    pub fn counted(&self, name: &str, least: f64) {
        until(&format!("{name} reaches {least}"), || {
            (self.metrics().sum(name)? >= least).then_some(())
        });
    }
}

/// Waits until a program says where its gateway listens.
#[track_caller]
pub fn serving_at(program: &mut Program) -> SocketAddr {
    program.says("where it listens", |err| {
        let line = err.lines().find(|line| line.starts_with("serving "))?;
        line.rsplit_once(" on ")?.1.parse().ok()
    })
}
