//! What a cluster is made of here: wikis, gateways in front of them, a node in plain files, a controller's configuration,
//! and who asks.

use crate::common::{Group, Program, headroom};
use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// A wiki in a group.
pub fn wiki(group: &Group, listen: &str) -> (Program, SocketAddr) {
    let mut command = headroom();
    command.args(["service", "wiki", "--page-cpu-ms", "2", "--listen", listen]);
    let mut program = Program::start(&mut command);
    let address = program.said("listening on ").parse().unwrap();
    group.add(program.pid());
    (program, address)
}

/// A gateway in front of wikis, with its control port on a Unix socket.
pub struct Gateway {
    _program: Program,
    pub address: SocketAddr,
    dir: tempfile::TempDir,
}

impl Gateway {
    pub fn start(backends: &[SocketAddr]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mut command = headroom();
        command.args(["gateway", "--listen", "127.0.0.1:0", "--health", "/"]);
        for backend in backends {
            command.args(["--backend", &format!("http://{backend}")]);
        }
        command
            .arg("--control")
            .arg(format!("unix:{}", dir.path().join("gateway.sock").display()));
        let mut program = Program::start(&mut command);
        let address = program.said("listening on ").parse().unwrap();
        program.said("control on ");
        Self {
            _program: program,
            address,
            dir,
        }
    }

    pub fn control(&self) -> String {
        format!("unix:{}", self.dir.path().join("gateway.sock").display())
    }
}

/// A controller's configuration, in a folder of its own.
pub struct Config {
    pub dir: tempfile::TempDir,
    pub text: String,
}

impl Config {
    pub fn new(nodes: &[(&str, String)], gateway: &str, lease_ms: u32) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let nodes: String = nodes
            .iter()
            .map(|(name, at)| format!("{name} = \"{at}\"\n"))
            .collect();
        let db = dir.path().join("record.db");
        let text = format!(
            "[slo]\ntarget_ms = 250\n\n[nodes]\n{nodes}\n[gateways]\ng1 = \"{gateway}\"\n\n[cluster]\nname = \"first\"\n\
             lease_ms = {lease_ms}\nwait_s = 20\nrequests_per_core_s = 400\n\n[law]\nname = \"slo-power\"\n\n[control]\n\
             period_ms = 200\n\n[record]\ndb = \"{}\"\n\n[admin]\nlisten = \"127.0.0.1:0\"\n",
            db.display()
        );
        Self { dir, text }
    }

    pub fn with(mut self, from: &str, to: &str) -> Self {
        assert!(self.text.contains(from), "{from:?} is not in the configuration");
        self.text = self.text.replace(from, to);
        self
    }

    pub fn file(&self) -> PathBuf {
        let file = self.dir.path().join("controller.toml");
        fs::write(&file, &self.text).unwrap();
        file
    }

    pub fn command(&self) -> std::process::Command {
        let mut command = headroom();
        command
            .args(["controller", "--json", "--no-view", "--config"])
            .arg(self.file());
        command
    }

    /// Starts it and waits until its loop runs; where its admin port is.
    pub fn start(&self) -> (Program, SocketAddr) {
        let mut program = Program::start(&mut self.command());
        let admin = program.said("metrics on http://");
        let admin = admin.strip_suffix("/metrics").unwrap().parse().unwrap();
        (program, admin)
    }
}

/// Asks for a path on a connection of its own; the status and the body.
pub fn get(address: SocketAddr, path: &str) -> std::io::Result<(u16, String)> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(Duration::from_secs(30)))?;
    write!(
        stream,
        "GET {path} HTTP/1.1\r\nHost: nodes\r\nConnection: close\r\n\r\n"
    )?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok());
    let (_, body) = answer.split_once("\r\n\r\n").unwrap_or_default();
    Ok((status.unwrap_or(0), body.to_owned()))
}

/// The last period, as the admin port tells it.
pub fn status(admin: SocketAddr) -> Option<serde_json::Value> {
    serde_json::from_str(&get(admin, "/status").ok()?.1).ok()
}

/// Requests one after another, until it is dropped.
pub struct Traffic {
    pub answered: Arc<AtomicU64>,
    pub wrong: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Traffic {
    pub fn to(address: SocketAddr) -> Self {
        let counters = [Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0))];
        let [answered, wrong] = counters.clone();
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                let counter = match get(address, "/") {
                    Ok((200, _)) => &counters[0],
                    _ => &counters[1],
                };
                counter.fetch_add(1, Ordering::Relaxed);
                std::thread::sleep(Duration::from_millis(10));
            }
        });
        Self {
            answered,
            wrong,
            stop,
            thread: Some(thread),
        }
    }
}

impl Drop for Traffic {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// A node of four cores in plain files, which anybody may make.
pub struct Plain {
    pub dir: tempfile::TempDir,
    pub program: Program,
}

impl Plain {
    pub fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        for (path, text) in [
            (
                "proc/self/mountinfo",
                "25 20 0:22 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw\n",
            ),
            ("proc/stat", "cpu  10 0 10 80 0 0 0 0 0 0\n"),
            ("proc/cpuinfo", "processor\t: 0\n"),
            ("proc/sys/kernel/hostname", "plain\n"),
            ("sys/devices/system/cpu/online", "0-3\n"),
            ("sys/fs/cgroup/cgroup.controllers", "cpuset cpu\n"),
            ("sys/fs/cgroup/cgroup.subtree_control", "cpuset cpu\n"),
            ("sys/fs/cgroup/cpuset.cpus.effective", "0-3\n"),
            ("sys/fs/cgroup/web/cpu.max", "max 100000\n"),
            (
                "sys/fs/cgroup/web/cpu.stat",
                "usage_usec 0\nnr_periods 0\nnr_throttled 0\nthrottled_usec 0\n",
            ),
        ] {
            let path = dir.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let mut command = headroom();
        command.args(["agent", "--cgroup", "/web", "--listen"]);
        command.arg(format!("unix:{}", dir.path().join("agent.sock").display()));
        command.arg("--run-dir").arg(dir.path().join("run"));
        command.arg("--sys").arg(dir.path().join("sys"));
        command.arg("--proc").arg(dir.path().join("proc"));
        let mut program = Program::start(&mut command);
        program.said("listening on ");
        Self { dir, program }
    }

    pub fn at(&self) -> String {
        format!("unix:{}", self.dir.path().join("agent.sock").display())
    }

    pub fn group(&self) -> PathBuf {
        self.dir.path().join("sys/fs/cgroup/web")
    }

    /// The quota in cores; nothing where there is none.
    pub fn cores(&self) -> Option<f64> {
        let text = fs::read_to_string(self.group().join("cpu.max")).ok()?;
        let (quota, period) = text.trim().split_once(' ')?;
        Some(quota.parse::<f64>().ok()? / period.parse::<f64>().ok()?)
    }
}
