//! What a cluster is made of here: certificates, agents, a node in plain files, and who commands them.

use crate::common::{Group, Program, get, headroom, run};
use headroom_units::{Lever, Setting};
use headroom_wire::client::{CallError, Client, ClientOptions};
use headroom_wire::message::{Apply, Holder};
use headroom_wire::tls::{ClientTls, TlsFiles};
use headroom_wire::{Address, certs};
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use tempfile::TempDir;

/// The section of an agent's file that names the modelled meter, which every machine has and which reads the same.
pub const MODEL_METER: &str = "\n[power]\nmeter = \"model\"\n";

/// The address of the agent whose files are in a folder, where that is a Unix socket.
pub fn socket_in(dir: &Path) -> String {
    format!("unix:{}", dir.join("agent.sock").display())
}

/// Runs a command to its end: its exit status, its standard output and its standard error.
pub fn ended(command: &mut Command) -> (Option<i32>, String, String) {
    let program = run(command);
    (program.code(), program.out(), program.err())
}

/// `headroom agent` with its run folder in a folder.
pub fn agent_command(words: &str, dir: &Path) -> Command {
    let mut command = headroom(format!("agent {words} --run-dir"));
    command.arg(dir.join("run"));
    command
}

/// `headroom agent` for a group on a file that is written into a folder: where it listens with what else `[agent]` has, and
/// the other sections.
pub fn agent_on(group: &Group, dir: &Path, agent: &str, sections: &str) -> Command {
    let file = dir.join("agent.toml");
    let text = format!(
        "[agent]\nlisten = {agent}\n\n{sections}\n[service]\ncgroup = \"{}\"\n{MODEL_METER}",
        group.path()
    );
    fs::write(&file, text).unwrap();
    agent_command(&format!("--config {}", file.display()), dir)
}

/// Starts an agent and waits until it listens; where.
pub fn listening(command: Command) -> (Program, Address) {
    let mut program = Program::start(command);
    let address = program.said("listening on ").parse().unwrap();
    (program, address)
}

/// An authority, and whatever it signs.
pub struct Certs {
    dir: TempDir,
    authority: certs::Authority,
}

impl Certs {
    /// With the controller's certificate and one of the node n1, reached as 127.0.0.1.
    pub fn new() -> Self {
        let certs = Self::empty();
        let year = certs::Validity::days(365).unwrap();
        certs.authority.issue_controller(year).unwrap();
        certs
            .authority
            .issue_node("n1", &["127.0.0.1".to_owned()], year)
            .unwrap();
        certs
    }

    /// With the authority alone.
    pub fn empty() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let decade = certs::Validity::days(3650).unwrap();
        let (authority, _) = certs::Authority::create(dir.path(), decade).unwrap();
        Self { dir, authority }
    }

    /// What signs.
    pub fn authority(&self) -> &certs::Authority {
        &self.authority
    }

    /// Where they are.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// The `[tls]` section that names one of them.
    pub fn section(&self, stem: &str) -> String {
        let dir = self.dir().display();
        format!(
            "[tls]\nca = \"{dir}/ca.crt\"\ncertificate = \"{dir}/{stem}.crt\"\nkey = \"{dir}/{stem}.key\"\n"
        )
    }

    /// A client that shows one of them.
    pub fn client(&self, stem: &str) -> ClientOptions {
        let file = |name: String| self.dir().join(name);
        let files = TlsFiles {
            ca: file("ca.crt".to_owned()),
            certificate: file(format!("{stem}.crt")),
            key: file(format!("{stem}.key")),
            revoked: None,
        };
        ClientOptions {
            tls: Some(ClientTls::load(&files).unwrap()),
            ..ClientOptions::default()
        }
    }
}

/// A running agent for one group, listening on a Unix socket in a folder of its own.
pub struct Agent {
    pub program: Program,
    pub dir: TempDir,
}

impl Agent {
    /// Starts one.
    pub fn start(group: &Group) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let program = Self::again(group, dir.path());
        Self { program, dir }
    }

    /// Starts one in the folder of one that was killed.
    pub fn again(group: &Group, dir: &Path) -> Program {
        // The meter is named: what the machine at hand can measure is no part of these tests.
        listening(agent_on(group, dir, &format!("[\"{}\"]", socket_in(dir)), "")).0
    }

    /// Where it listens.
    pub fn address(&self) -> Address {
        self.at().parse().unwrap()
    }

    /// The same as text.
    pub fn at(&self) -> String {
        socket_in(self.dir.path())
    }

    /// Its run folder.
    pub fn run_dir(&self) -> PathBuf {
        self.dir.path().join("run")
    }
}

/// What runs calls over the wire in this thread.
pub fn runtime() -> tokio::runtime::Runtime {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_all().build().unwrap()
}

/// The last period, as the admin port tells it.
pub fn status(admin: SocketAddr) -> Option<serde_json::Value> {
    serde_json::from_str(&get(admin, "/status").ok()?.body).ok()
}

/// Asks an agent for cores, under a lease of a given holder.
pub fn apply(
    address: &Address,
    options: &ClientOptions,
    holder: u64,
    cores: f64,
    lease: Duration,
) -> Result<Setting, CallError> {
    let setting = Setting::from([(Lever::Cores, cores)]);
    apply_setting(address, options, holder, setting, lease)
}

/// Asks an agent for a setting, under a lease of a given holder.
pub fn apply_setting(
    address: &Address,
    options: &ClientOptions,
    holder: u64,
    setting: Setting,
    lease: Duration,
) -> Result<Setting, CallError> {
    runtime().block_on(async {
        let client = Client::connect(address, options).await?;
        let apply = Apply {
            holder: Holder::new(format!("test {holder}"), holder).unwrap(),
            sequence: u64::from(std::process::id()) + u64::from(NEXT.fetch_add(1, Ordering::Relaxed)),
            length: lease,
            setting,
        };
        Ok(client.apply(apply).await?.in_force)
    })
}

static NEXT: AtomicU32 = AtomicU32::new(1);

/// A node of four cores in plain files, which anybody may make.
pub struct Plain {
    pub dir: TempDir,
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
        let program = Self::agent(dir.path());
        Self { dir, program }
    }

    /// Its agent, once more after that was killed.
    pub fn again(&mut self) {
        self.program = Self::agent(self.dir.path());
    }

    fn agent(at: &Path) -> Program {
        let mut command = agent_command(&format!("--cgroup /web --listen {}", socket_in(at)), at);
        command
            .arg("--sys")
            .arg(at.join("sys"))
            .arg("--proc")
            .arg(at.join("proc"));
        let mut program = Program::start(command);
        program.said("listening on ");
        program
    }

    pub fn at(&self) -> String {
        socket_in(self.dir.path())
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
