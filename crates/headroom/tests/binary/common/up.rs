//! `headroom up` and the built-in wiki, started as a user starts them.

use super::{Answer, Group, Program, free_port, get, headroom, until};
use crate::openmetrics::{self, Exposition};
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// A configuration in a folder of its own, where run folder and record are too.
pub struct Config {
    dir: TempDir,
    text: String,
}

impl Config {
    /// A run for a group without traffic: the law saves more and more, so that there is much to put back.
    pub fn idle(group: &Group) -> Self {
        Self::new(group.path(), &format!("http://127.0.0.1:{}", free_port()))
            .with("period_ms = 200", "period_ms = 100")
    }

    /// One that works, in front of a backend, for a group.
    pub fn new(group: &Path, backend: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let text = format!(
            r#"[slo]
percentile = 95
target_ms = 250

[gateway]
listen = ["127.0.0.1:0"]
threads = 1
backends = [{{ url = "{backend}" }}]

[service]
cgroup = "{}"
requests_per_core_s = 250.0

[law]
name = "slo-power"

[law.slo-power]
guard = 0.8

[power]
meter = "model"

[control]
period_ms = 200

[record]
db = "{}"

[admin]
listen = "127.0.0.1:0"
"#,
            group.display(),
            dir.path().join("record.db").display()
        );
        Self { dir, text }
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
        let file = self.dir.path().join("headroom.toml");
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

    /// `headroom up` on it.
    pub fn command(&self) -> std::process::Command {
        let mut command = headroom();
        command.args(["up", "--json", "--no-view", "--config"]);
        command.arg(self.file()).arg("--run-dir").arg(self.run_dir());
        command
    }
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
            let launched = |pid: &u32| {
                fs::read_to_string(format!("/proc/{pid}/cmdline"))
                    .is_ok_and(|line| line.contains("--launched"))
            };
            let pid = gateway_in(&dir).filter(launched);
            if let Some(pid) = pid.and_then(|pid| Pid::from_raw(i32::try_from(pid).ok()?)) {
                let _ = kill_process(pid, Signal::KILL);
            }
        }
    }
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
    let launched = |pid: u32| {
        fs::read_to_string(format!("/proc/{pid}/cmdline")).is_ok_and(|line| line.contains("--launched"))
    };
    let pids = fs::read_dir("/proc").unwrap().flatten();
    pids.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(|pid| launched(*pid) && holds(*pid))
        .collect()
}

/// Whether a run folder still records something to put back.
pub fn undo_left(run_dir: &Path) -> bool {
    ["undo.json", "undo.json.new"]
        .iter()
        .any(|name| run_dir.join(name).exists())
}

/// A running `headroom up`.
pub struct Up {
    /// It.
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
        let mut up = Self::start_command(config.command().args(more));
        up.admin = up.program.said("where its metrics are", |err| {
            after(err, "metrics on http://")?
                .strip_suffix("/metrics")?
                .parse()
                .ok()
        });
        // What came before the first period is in none of them.
        up.counted("headroom_periods_total", 1.0);
        up
    }

    fn start_command(command: &mut std::process::Command) -> Self {
        let mut program = Program::start(command);
        let gateway = program.said("where it listens", |err| {
            let line = err.lines().find(|line| line.starts_with("serving "))?;
            line.rsplit_once(" on ")?.1.parse().ok()
        });
        Self {
            program,
            gateway,
            admin: gateway,
        }
    }

    /// A page of the admin port.
    pub fn admin(&self, path: &str) -> Answer {
        get(self.admin, path).unwrap_or_else(|error| panic!("{path}: {error}; {}", self.program.err()))
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

fn after<'a>(text: &'a str, start: &str) -> Option<&'a str> {
    let line = text.lines().find_map(|line| line.strip_prefix(start))?;
    // A line that is still being written ends somewhere.
    text.contains(&format!("{line}\n")).then_some(line)
}

/// A running wiki.
pub struct Wiki {
    /// It.
    pub program: Program,
    /// Where it listens.
    pub address: SocketAddr,
}

impl Wiki {
    /// Starts it on an address, pages costing half of the default.
    pub fn start(listen: &str) -> Self {
        let mut command = headroom();
        command.args(["service", "wiki", "--listen", listen, "--page-cpu-ms", "2"]);
        let mut program = Program::start(&mut command);
        let address = until("the wiki says where it listens", || {
            assert!(program.ended().is_none(), "{}", program.err());
            let out = program.out();
            out.strip_suffix('\n')?
                .strip_prefix("listening on ")?
                .parse()
                .ok()
        });
        Self { program, address }
    }
}
