//! What these tests stand on: programs with an end, a control group each, certificates, a client.

use headroom_node::Roots;
use headroom_node::cgroup::{CgroupScope, ScopeOptions};
use headroom_node::cpu::{QuotaActuator, QuotaOptions};
use headroom_node::restore::Registry;
use headroom_units::{Cores, Lever, Setting};
use headroom_wire::client::{CallError, Client, ClientOptions};
use headroom_wire::message::{Apply, Holder};
use headroom_wire::{Address, certs};
use rustix::process::{Pid, Signal, kill_process};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Long enough for anything that happens at all on a busy machine of two cores.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// The section of an agent's file that names the modelled meter, which every machine has and which reads the same.
pub const MODEL_METER: &str = "\n[power]\nmeter = \"model\"\n";

/// Asks again and again until there is an answer.
pub fn until<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(Instant::now() < deadline, "waited in vain: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The binary, without what this process's environment would change about it.
pub fn headroom() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_headroom"));
    command.env_remove("RUST_LOG").env_remove("RUST_BACKTRACE");
    // Where the tests themselves run in a container, no guard is outside.
    let here = fs::read_link("/proc/self/ns/pid");
    if here.is_ok_and(|namespace| namespace.as_os_str() != "pid:[4026531836]") {
        command.env("HEADROOM_ALLOW_GUARD_INSIDE", "1");
    }
    command
}

/// A running program with its output in files; dropped, it is killed.
pub struct Program {
    child: Child,
    dir: TempDir,
    what: String,
}

impl Program {
    /// Starts a command.
    pub fn start(command: &mut Command) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let what = format!("{command:?}");
        let file = |name: &str| File::create(dir.path().join(name)).unwrap();
        let child = command
            .stdin(Stdio::null())
            .stdout(file("out"))
            .stderr(file("err"))
            .spawn()
            .unwrap();
        Self { child, dir, what }
    }

    /// Its number.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Its standard output up to now.
    pub fn out(&self) -> String {
        fs::read_to_string(self.dir.path().join("out")).unwrap()
    }

    /// Its standard error up to now.
    pub fn err(&self) -> String {
        fs::read_to_string(self.dir.path().join("err")).unwrap()
    }

    /// Waits until it said something, on either; the rest of that line.
    pub fn said(&mut self, start: &str) -> String {
        until(start, || {
            let ended = self.child.try_wait().unwrap();
            let text = self.out() + &self.err();
            let whole = text.split_inclusive('\n').filter(|line| line.ends_with('\n'));
            let found = whole.filter_map(|line| line.trim_end().split_once(start)).next();
            let found = found.map(|(_, rest)| rest.to_owned());
            assert!(
                found.is_some() || ended.is_none(),
                "it ended before it said {start:?}: {text}"
            );
            found
        })
    }

    /// Sends a signal.
    pub fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(i32::try_from(self.pid()).unwrap()).unwrap();
        kill_process(pid, signal).unwrap();
    }

    /// Waits for its end.
    pub fn wait(&mut self) -> ExitStatus {
        until("its end", || self.child.try_wait().unwrap())
    }

    /// Kills it, as kill -9 does.
    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Kills it together with the process that watches over it, which would put everything back at once.
    pub fn kill_with_guard(&mut self) {
        let parent = format!("PPid:\t{}\n", self.pid());
        let watches = |pid: &i32| {
            let about = |file: &str| fs::read_to_string(format!("/proc/{pid}/{file}")).unwrap_or_default();
            about("status").contains(&parent) && about("cmdline").contains("\0guard\0--run-dir\0")
        };
        let guard = until("the guard", || {
            let processes = fs::read_dir("/proc").unwrap();
            let mut pids = processes.filter_map(|entry| entry.unwrap().file_name().to_str()?.parse().ok());
            pids.find(watches)
        });
        // Stopped, it gets no other one.
        self.signal(Signal::STOP);
        kill_process(Pid::from_raw(guard).unwrap(), Signal::KILL).unwrap();
        self.kill();
    }

    /// Stops it by SIGTERM; it must end well.
    pub fn stop(&mut self) {
        self.signal(Signal::TERM);
        let status = self.wait();
        assert!(status.success(), "{status}: {}", self.err());
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        if std::thread::panicking() {
            println!("{} had said:\n{}", self.what, self.err());
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs a command to its end: its exit status, its standard output and its standard error.
pub fn run(command: &mut Command) -> (Option<i32>, String, String) {
    let mut program = Program::start(command);
    (program.wait().code(), program.out(), program.err())
}

/// A fresh control group; it is removed when it is dropped.
pub struct Group {
    scope: CgroupScope,
    registry: Registry,
    /// Below the root of the hierarchies.
    below: String,
}

impl Group {
    /// Makes one, or says why it cannot be made here.
    pub fn new() -> Option<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        if !rustix::process::geteuid().is_root() {
            println!("skipped: making a control group needs root");
            return None;
        }
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("headroom-nodes-{}-{number}", std::process::id());
        Self::make(ScopeOptions::named(name))
    }

    fn make(options: ScopeOptions) -> Option<Self> {
        let registry = Registry::new();
        let below = format!("{}/{}", options.parent.trim_end_matches('/'), options.name);
        match CgroupScope::create(&Roots::default(), &options, &registry) {
            Ok(scope) => Some(Self {
                scope,
                registry,
                below,
            }),
            Err(error) => {
                println!("skipped: {error}");
                None
            }
        }
    }

    /// One below it.
    pub fn child(&self, name: &str) -> Self {
        let options = ScopeOptions {
            name: name.to_owned(),
            parent: self.below.clone(),
        };
        Self::make(options).unwrap()
    }

    /// Its directory.
    pub fn path(&self) -> String {
        self.scope.target().cpu_dir.display().to_string()
    }

    /// Moves a process into it.
    pub fn add(&self, pid: u32) {
        self.scope.add(pid).unwrap();
    }

    /// The quota in force, in cores; nothing where there is none.
    pub fn cores(&self) -> Option<f64> {
        let options = QuotaOptions::default();
        let quota = QuotaActuator::open(&Roots::default(), self.scope.target(), options, &self.registry);
        quota.unwrap().read().unwrap().map(Cores::get)
    }
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
        let file = dir.join("agent.toml");
        // The meter is named: what the machine at hand can measure is no part of these tests.
        let text = format!(
            "[agent]\nlisten = [\"unix:{}\"]\n[service]\ncgroup = \"{}\"\n{MODEL_METER}",
            dir.join("agent.sock").display(),
            group.path()
        );
        fs::write(&file, text).unwrap();
        let mut command = headroom();
        command.args(["agent", "--config"]).arg(&file);
        let mut program = Program::start(command.arg("--run-dir").arg(dir.join("run")));
        program.said("listening on ");
        program
    }

    /// Where it listens.
    pub fn address(&self) -> Address {
        Address::Unix(self.dir.path().join("agent.sock"))
    }

    /// Its run folder.
    pub fn run_dir(&self) -> PathBuf {
        self.dir.path().join("run")
    }
}

/// Asks an agent for cores, under a lease of a given holder.
pub fn apply(
    address: &Address,
    options: &ClientOptions,
    holder: u64,
    cores: f64,
    lease: Duration,
) -> Result<Setting, CallError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let client = Client::connect(address, options).await?;
        let apply = Apply {
            holder: Holder::new(format!("test {holder}"), holder).unwrap(),
            sequence: u64::from(std::process::id()) + u64::from(NEXT.fetch_add(1, Ordering::Relaxed)),
            length: lease,
            setting: Setting::from([(Lever::Cores, cores)]),
        };
        Ok(client.apply(apply).await?.in_force)
    })
}

static NEXT: AtomicU32 = AtomicU32::new(1);
