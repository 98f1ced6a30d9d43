//! What the agent costs, and how fast it acts.
//!
//! `cargo run --release -p headroom-node --example agent_cost`
//!
//! 1. The share of a core that an agent's process takes while it streams samples of four RAPL zones, 16 processors with
//!    a frequency policy each, and one service: at 1 Hz and at 100 Hz, over its Unix socket and over mutual TLS. The
//!    machine is a tree of files in the place of `/sys` and `/proc`, in memory where `/dev/shm` is there.
//!    The same on the emulated server, whose own share is told apart: there each value is a call to another process.
//! 2. The time from an Apply's arrival at the agent to the last write, and to the answer at the controller, on a real
//!    control group: the quota alone, and a cap, which the software cap turns into a quota; on the emulated server the
//!    quota, and a cap, which is the RAPL limits of two packages, written and read back. Needs root, and /dev/fuse.
//!
//! The agent runs in a process of its own, this program again, so that only its own time is counted.

use headroom_node::Roots;
use headroom_node::agent::{Agent, AgentConfig, LocalMachine, LocalOptions, keep_state};
use headroom_node::cgroup::{CgroupScope, ScopeOptions};
use headroom_node::power::PowerModel;
use headroom_node::restore::{self, Registry};
use headroom_testbed::hardware::{Emulated, HardwareConfig};
use headroom_units::{Cores, Lever, Setting, Watts};
use headroom_wire::Address;
use headroom_wire::certs::{Authority, Validity};
use headroom_wire::client::{Client, ClientOptions};
use headroom_wire::message::{Apply, Holder};
use headroom_wire::server::Listen;
use headroom_wire::tls::{ClientTls, ServerTls, TlsFiles};
use std::error::Error;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

const AGENT: &str = "HEADROOM_AGENT_COST_AGENT";
const EMULATOR: &str = "HEADROOM_AGENT_COST_EMULATOR";
/// How often each write is timed.
const ROUNDS: u32 = 2000;
const CORES: u32 = 16;
const ZONES: [(&str, &str); 4] = [
    ("intel-rapl:0", "package-0"),
    ("intel-rapl:0:0", "dram"),
    ("intel-rapl:1", "package-1"),
    ("intel-rapl:1:0", "dram"),
];

fn main() -> Outcome<()> {
    if let Ok(spec) = std::env::var(AGENT) {
        return agent(&spec);
    }
    if let Some(root) = std::env::var_os(EMULATOR) {
        return emulator(Path::new(&root));
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let dir = in_memory()?;
    make_tree(dir.path())?;
    make_certificates(dir.path())?;

    println!("the agent's processor time while it streams samples (4 zones, {CORES} processors):");
    let stop = Arc::new(AtomicBool::new(false));
    let draw = std::thread::spawn({
        let (dir, stop) = (dir.path().to_path_buf(), stop.clone());
        move || draw_power(&dir, &stop)
    });
    for (what, tls, period_ms, seconds) in [
        ("1 Hz, Unix socket", false, 1000, 20),
        ("1 Hz, mutual TLS", true, 1000, 20),
        ("100 Hz, Unix socket", false, 10, 10),
        ("100 Hz, mutual TLS", true, 10, 10),
    ] {
        let period = Duration::from_millis(period_ms);
        let (share, samples) = runtime.block_on(streaming(
            dir.path(),
            tls,
            period,
            Duration::from_secs(seconds),
            None,
        ))?;
        println!(
            "  {what:<42} {:>7.3} % of a core, {samples} samples in {seconds} s",
            share * 100.0
        );
    }
    let cap = Some(Watts::new(60.0));
    let (share, samples) = runtime.block_on(streaming(
        dir.path(),
        false,
        Duration::from_secs(1),
        Duration::from_secs(10),
        cap,
    ))?;
    println!(
        "  {:<42} {:>7.3} % of a core, {samples} samples in 10 s",
        "1 Hz, Unix socket, a software cap held",
        share * 100.0
    );
    stop.store(true, Ordering::Relaxed);
    draw.join().map_err(|_| "the thread that draws power failed")?;

    if !rustix::process::geteuid().is_root() {
        println!("skipped: the time of a write needs a control group, which needs root");
        return Ok(());
    }
    runtime.block_on(on_this_machine())?;
    if !Path::new("/dev/fuse").exists() {
        println!("skipped: the emulated server needs /dev/fuse");
        return Ok(());
    }
    runtime.block_on(on_the_emulated_server())
}

/// The emulated server's own process: serves its tree until its standard input ends.
fn emulator(root: &Path) -> Outcome<()> {
    let emulated = Emulated::mount(HardwareConfig::default(), None, &root.join("sys"))?;
    println!("ready");
    while std::io::stdin().read(&mut [0; 64])? > 0 {}
    emulated.unmount()?;
    Ok(())
}

async fn on_the_emulated_server() -> Outcome<()> {
    let dir = in_memory()?;
    let root = dir.path();
    let mut child = Command::new(std::env::current_exe()?)
        .env(EMULATOR, root)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut line = String::new();
    BufReader::new(child.stdout.take().ok_or("no output")?).read_line(&mut line)?;
    if line.trim() != "ready" {
        return Err("the emulated server could not be mounted".into());
    }
    fs::create_dir(root.join("sys/fs/cgroup/web"))?;
    std::os::unix::fs::symlink(root.join("sys/headroom-testbed/proc"), root.join("proc"))?;
    println!("on the emulated server (two packages, {CORES} cores), which is a process of its own:");
    for (what, period_ms, seconds) in [("1 Hz, Unix socket", 1000, 20), ("100 Hz, Unix socket", 10, 10)] {
        let before = used(child.id())?;
        let (period, length) = (Duration::from_millis(period_ms), Duration::from_secs(seconds));
        let (share, samples) = streaming(root, false, period, length, None).await?;
        let own = (used(child.id())? - before).as_secs_f64() / length.as_secs_f64();
        println!(
            "  {what:<42} {:>7.3} % of a core, {samples} samples in {seconds} s; the server itself {:.3} %",
            share * 100.0,
            own * 100.0
        );
    }
    let done = acting(Some(root), "/web", "a cap: RAPL limits of two packages").await;
    drop(child.stdin.take());
    child.wait()?;
    done
}

/// The agent's own process: serves what the specification says until its standard input ends.
fn agent(spec: &str) -> Outcome<()> {
    let mut parts = spec.split('\n');
    let mut next = || parts.next().ok_or("a part of the specification is missing");
    let (root, target, run_dir, tls) = (next()?, next()?, PathBuf::from(next()?), next()?);
    let (roots, cores) = match root {
        "" => (
            Roots::default(),
            std::thread::available_parallelism()?.get() as f64,
        ),
        root => (
            Roots::at(Path::new(root).join("sys"), Path::new(root).join("proc")),
            f64::from(CORES),
        ),
    };
    let registry = restore::global();
    keep_state(&run_dir, &roots, registry)?;
    let model = PowerModel::default_for(Cores::new(cores))?;
    let options = LocalOptions {
        emulated: !root.is_empty(),
        ..LocalOptions::of(roots, target.parse()?, model)
    };
    let machine = LocalMachine::open(options, registry)?;
    let listen = match tls {
        "" => Listen::Unix {
            path: run_dir.join("agent.sock"),
        },
        certs => Listen::Tcp {
            address: "127.0.0.1:0".parse()?,
            tls: ServerTls::load(&files(Path::new(certs), "node-n1"))?,
        },
    };
    let handle = Agent::start(AgentConfig::at(vec![listen]), Box::new(machine))?;
    println!("{}", handle.addresses()[0]);
    std::io::stdin().read_to_end(&mut Vec::new())?;
    handle.stop()?;
    Ok(())
}

/// A directory on a file system in memory, where there is one.
fn in_memory() -> Outcome<tempfile::TempDir> {
    let memory = Path::new("/dev/shm");
    Ok(match memory.is_dir() {
        true => tempfile::tempdir_in(memory)?,
        false => tempfile::tempdir()?,
    })
}

struct Process {
    child: Child,
    address: Address,
    _run_dir: tempfile::TempDir,
}

impl Process {
    fn start(root: Option<&Path>, target: &str, certs: Option<&Path>) -> Outcome<Self> {
        // As on a server, where it is below /run: the state file is replaced before each new value is written.
        let run_dir = in_memory()?;
        let text = |path: Option<&Path>| path.map(|path| path.display().to_string()).unwrap_or_default();
        let spec = [text(root), target.into(), text(Some(run_dir.path())), text(certs)].join("\n");
        let mut child = Command::new(std::env::current_exe()?)
            .env(AGENT, spec)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut line = String::new();
        BufReader::new(child.stdout.take().ok_or("no output")?).read_line(&mut line)?;
        Ok(Self {
            child,
            address: line.trim().parse()?,
            _run_dir: run_dir,
        })
    }

    fn used(&self) -> Outcome<Duration> {
        used(self.child.id())
    }
}

/// Processor time of all threads of a process so far, from the scheduler's own count in nanoseconds.
fn used(process: u32) -> Outcome<Duration> {
    let mut used = 0;
    for task in fs::read_dir(format!("/proc/{process}/task"))? {
        let text = fs::read_to_string(task?.path().join("schedstat"))?;
        used += text
            .split(' ')
            .next()
            .ok_or("schedstat is empty")?
            .parse::<u64>()?;
    }
    Ok(Duration::from_nanos(used))
}

impl Drop for Process {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

async fn streaming(
    root: &Path,
    tls: bool,
    period: Duration,
    length: Duration,
    cap: Option<Watts>,
) -> Outcome<(f64, u64)> {
    let certs = root.join("certs");
    let process = Process::start(Some(root), "/web", tls.then_some(certs.as_path()))?;
    let mut options = ClientOptions::default();
    if tls {
        options.tls = Some(ClientTls::load(&files(&certs, "controller"))?);
    }
    let client = Client::connect(&process.address, &options).await?;
    let setting = Setting::default()
        .with(Lever::Cores, Some(8.0))
        .with(Lever::Cap, cap.map(Watts::get));
    let apply = |sequence| Apply {
        holder: Holder::new("bench", 1).expect("a name and a number"),
        sequence,
        length: Duration::from_secs(120),
        setting,
    };
    client.apply(apply(1)).await?;
    let mut samples = client.observe(period).await?;
    samples.next().await?;
    let (began, before) = (Instant::now(), process.used()?);
    let (mut count, mut watts) = (0, 0.0);
    while began.elapsed() < length {
        let sample = samples.next().await?.ok_or("the stream ended")?;
        count += 1;
        watts = sample
            .energy
            .and_then(|energy| energy.power)
            .map_or(watts, |power| power.value.get());
    }
    let share = (process.used()? - before).as_secs_f64() / began.elapsed().as_secs_f64();
    if watts <= 0.0 {
        return Err("the agent saw no power".into());
    }
    Ok((share, count))
}

async fn on_this_machine() -> Outcome<()> {
    let registry = Registry::new();
    let name = format!("headroom-cost-{}", std::process::id());
    let scope = match CgroupScope::create(&Roots::default(), &ScopeOptions::named(name), &registry) {
        Ok(scope) => scope,
        Err(error) => {
            println!("skipped: {error}");
            return Ok(());
        }
    };
    println!("on a control group of this machine:");
    let group = scope.target().cpu_dir.display().to_string();
    acting(None, &group, "a cap, and the quota that holds it").await
}

/// Times writes of a quota and of a cap by an agent on these trees.
async fn acting(root: Option<&Path>, group: &str, cap: &str) -> Outcome<()> {
    let process = Process::start(root, group, None)?;
    let client = Client::connect(&process.address, &ClientOptions::default()).await?;
    let range = client.agent().ranges.get(Lever::Cap).ok_or("no cap")?;
    let cores = client.agent().ranges.get(Lever::Cores).ok_or("no cores")?;
    let span = range.max - range.min;
    println!("  from an Apply to the last write, {ROUNDS} times each:");
    let mut sequence = 0;
    for what in ["the quota", cap] {
        let (mut writes, mut answers) = (Vec::new(), Vec::new());
        for round in 0..ROUNDS {
            sequence += 1;
            let share = f64::from(round % 10) / 10.0;
            let (lever, value) = match what {
                "the quota" => (Lever::Cores, cores.min + share * (cores.max - cores.min)),
                _ => (Lever::Cap, range.min + span * (0.5 + share * 0.5)),
            };
            let setting = Setting::from([(lever, value)]);
            let length = Duration::from_secs(60);
            let apply = Apply {
                holder: Holder::new("bench", 1)?,
                sequence,
                length,
                setting,
            };
            let asked = Instant::now();
            let applied = client.apply(apply).await?;
            answers.push(asked.elapsed());
            writes.push(applied.took);
            if let (Some(asked), Some(got)) = (setting.cores(), applied.in_force.cores())
                && (asked - got).get().abs() > 0.01
            {
                return Err(format!("{asked} were asked for and {got} are in force").into());
            }
        }
        let line = |name: &str, times: &mut Vec<Duration>| {
            times.sort();
            let at = |share: f64| times[((times.len() - 1) as f64 * share) as usize].as_secs_f64() * 1e6;
            println!(
                "    {what:<34} {name:<22} P50 {:>7.0} us, P99 {:>7.0} us",
                at(0.5),
                at(0.99)
            );
        };
        line("written at the agent", &mut writes);
        line("answer at the caller", &mut answers);
    }
    Ok(())
}

fn files(dir: &Path, stem: &str) -> TlsFiles {
    TlsFiles {
        ca: dir.join("ca.crt"),
        certificate: dir.join(format!("{stem}.crt")),
        key: dir.join(format!("{stem}.key")),
        revoked: None,
    }
}

fn make_certificates(root: &Path) -> Outcome<()> {
    let (authority, _) = Authority::create(&root.join("certs"), Validity::days(7)?)?;
    authority.issue_node("n1", &["127.0.0.1".into()], Validity::days(1)?)?;
    authority.issue_controller(Validity::days(1)?)?;
    Ok(())
}

/// Two packages with their memory, 16 processors, one version 2 group.
fn make_tree(root: &Path) -> Outcome<()> {
    let put = |path: &str, text: &str| -> Outcome<()> {
        let path = root.join(path);
        fs::create_dir_all(path.parent().ok_or("no parent")?)?;
        Ok(fs::write(path, text)?)
    };
    put(
        "proc/self/mountinfo",
        "25 20 0:22 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw\n",
    )?;
    let stat: String = (0..CORES)
        .map(|cpu| format!("cpu{cpu} 10 0 10 80 0 0 0 0 0 0\n"))
        .collect();
    put(
        "proc/stat",
        &format!(
            "cpu  160 0 160 1280 0 0 0 0 0 0\n{stat}intr {}\n",
            "0 ".repeat(2000)
        ),
    )?;
    put("sys/devices/system/cpu/online", "0-15\n")?;
    put("sys/fs/cgroup/cgroup.controllers", "cpuset cpu\n")?;
    put("sys/fs/cgroup/cgroup.subtree_control", "cpuset cpu\n")?;
    put("sys/fs/cgroup/cpuset.cpus.effective", "0-15\n")?;
    put("sys/fs/cgroup/web/cpu.max", "max 100000\n")?;
    put(
        "sys/fs/cgroup/web/cpu.stat",
        "usage_usec 0\nnr_periods 0\nnr_throttled 0\nthrottled_usec 0\n",
    )?;
    for cpu in 0..CORES {
        let policy = format!("sys/devices/system/cpu/cpufreq/policy{cpu}");
        put(&format!("{policy}/cpuinfo_max_freq"), "3000000\n")?;
        put(&format!("{policy}/scaling_cur_freq"), "2000000\n")?;
        put(&format!("{policy}/affected_cpus"), &format!("{cpu}\n"))?;
    }
    for (dir, name) in ZONES {
        put(&format!("sys/class/powercap/{dir}/name"), &format!("{name}\n"))?;
        put(&format!("sys/class/powercap/{dir}/energy_uj"), "1000000\n")?;
        put(
            &format!("sys/class/powercap/{dir}/max_energy_range_uj"),
            "262143328850\n",
        )?;
    }
    Ok(())
}

/// Each zone draws 40 W until told to stop; a counter that stands still would be no measurement.
fn draw_power(root: &Path, stop: &AtomicBool) {
    let began = Instant::now();
    while !stop.load(Ordering::Relaxed) {
        let uj = 1_000_000 + (began.elapsed().as_secs_f64() * 40e6) as u64;
        for (dir, _) in ZONES {
            let path = root.join("sys/class/powercap").join(dir).join("energy_uj");
            // Replaced whole: a reader must not see an empty file.
            let beside = path.with_extension("new");
            if fs::write(&beside, format!("{uj}\n"))
                .and_then(|()| fs::rename(&beside, &path))
                .is_err()
            {
                return;
            }
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}
