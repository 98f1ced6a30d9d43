//! Kill -9 of everything in turn, twice each, while a cap and a quota are low on an emulated server: within one lease all
//! of it is as it was before the run, and no request that could be served is lost.

use crate::cluster::{Config, Gateway, Traffic, get, status};
use crate::common::{Program, headroom, until};
use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use tempfile::TempDir;

const LEASE: Duration = Duration::from_secs(2);
/// All cores of the emulated server.
const CORES: f64 = 16.0;

/// An emulated server with a service's group, an agent and a wiki on it.
struct Server {
    dir: TempDir,
    emulator: Program,
    agent: Program,
    wiki: Program,
    wiki_at: SocketAddr,
}

impl Server {
    fn start() -> Option<Self> {
        let root = rustix::process::geteuid().is_root();
        let device = Path::new("/dev/fuse").exists();
        if !(root && device) {
            println!("skipped: emulated hardware needs root and /dev/fuse");
            return None;
        }
        let dir = tempfile::tempdir().unwrap();
        let mut command = headroom();
        command
            .args(["emulate", "--real-cores", "0.5", "--group", "web", "--at"])
            .arg(dir.path().join("sys"))
            .args(["--name", &format!("headroom-kill-{}", std::process::id())]);
        let mut emulator = Program::start(&mut command);
        emulator.said("an emulated server of ");
        let mut server = Self {
            agent: Self::agent(dir.path()),
            wiki: Program::start(&mut Self::wiki("127.0.0.1:0")),
            wiki_at: SocketAddr::from(([127, 0, 0, 1], 0)),
            emulator,
            dir,
        };
        server.serve_wiki();
        Some(server)
    }

    fn sys(&self) -> PathBuf {
        self.dir.path().join("sys")
    }

    fn agent(dir: &Path) -> Program {
        let sys = dir.join("sys");
        let mut command = headroom();
        command.args(["agent", "--cgroup", "/web", "--listen"]);
        command.arg(format!("unix:{}", dir.join("agent.sock").display()));
        command.arg("--run-dir").arg(dir.join("run"));
        command
            .arg("--proc")
            .arg(sys.join("headroom-testbed/proc"))
            .arg("--sys")
            .arg(sys);
        let mut program = Program::start(&mut command);
        program.said("listening on ");
        program
    }

    fn agent_at(&self) -> String {
        format!("unix:{}", self.dir.path().join("agent.sock").display())
    }

    fn wiki(listen: &str) -> std::process::Command {
        let mut command = headroom();
        command.args(["service", "wiki", "--page-cpu-ms", "2", "--listen", listen]);
        command
    }

    /// Waits until the wiki serves, and puts it into its group.
    fn serve_wiki(&mut self) {
        self.wiki_at = self.wiki.said("listening on ").parse().unwrap();
        fs::write(
            self.sys().join("fs/cgroup/web/cgroup.procs"),
            self.wiki.pid().to_string(),
        )
        .unwrap();
    }

    /// Everything that can be limited; nothing while the tree is not there.
    fn limits(&self) -> Option<BTreeMap<PathBuf, String>> {
        let mut files = vec![PathBuf::from("fs/cgroup/web/cpu.max")];
        for package in 0..2 {
            for limit in 0..2 {
                files.push(
                    format!("class/powercap/intel-rapl:{package}/constraint_{limit}_power_limit_uw").into(),
                );
            }
        }
        for cpu in 0..16 {
            files.push(format!("devices/system/cpu/cpufreq/policy{cpu}/scaling_max_freq").into());
        }
        let read = |file: PathBuf| Some((file.clone(), fs::read_to_string(self.sys().join(file)).ok()?));
        files.into_iter().map(read).collect()
    }

    /// The quota in cores, which are all where there is none, and the long-term limits of both packages in watts.
    fn cores_and_cap(&self) -> Option<(f64, f64)> {
        let limits = self.limits()?;
        let (quota, period) = limits[Path::new("fs/cgroup/web/cpu.max")]
            .trim()
            .split_once(' ')?;
        let cores = match quota {
            "max" => CORES,
            quota => quota.parse::<f64>().ok()? / period.parse::<f64>().ok()?,
        };
        let watts = |package: u32| {
            let file = format!("class/powercap/intel-rapl:{package}/constraint_0_power_limit_uw");
            limits[Path::new(&file)]
                .trim()
                .parse::<f64>()
                .map(|microwatts| microwatts / 1e6)
                .ok()
        };
        Some((cores, watts(0)? + watts(1)?))
    }

    /// Waits until the law has taken something of both.
    fn until_low(&self) {
        until("cores and cap are low", || {
            self.cores_and_cap()
                .filter(|(cores, cap)| *cores < 0.8 * CORES && *cap < 85.0)
        });
    }

    fn until_as_before(&self, before: &BTreeMap<PathBuf, String>, whom: &str) -> Duration {
        let since = Instant::now();
        until(
            &format!("all is as before the run, after {whom} was killed"),
            || (self.limits().as_ref() == Some(before)).then_some(()),
        );
        since.elapsed()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if std::thread::panicking() {
            println!("limits: {:?}", self.cores_and_cap());
        }
    }
}

/// The process behind the emulated tree: the emulator's child.
fn worker_of(emulator: u32) -> u32 {
    let parent = format!("PPid:\t{emulator}\n");
    until("the emulator's worker", || {
        let processes = fs::read_dir("/proc").unwrap();
        processes
            .filter_map(|entry| entry.unwrap().file_name().to_str()?.parse().ok())
            .find(|pid: &u32| {
                fs::read_to_string(format!("/proc/{pid}/status")).is_ok_and(|status| status.contains(&parent))
            })
    })
}

fn kill(pid: u32) {
    let pid = rustix::process::Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
}

fn load(gateway: &Gateway) -> Program {
    let mut command = headroom();
    command.args(["load", "--trace", "wikipedia", "--peak", "20", "--json", "--url"]);
    Program::start(command.arg(format!("http://{}/", gateway.address)))
}

#[test]
fn whatever_is_killed_everything_is_put_back_within_a_lease_and_requests_are_served() {
    let Some(mut server) = Server::start() else { return };
    let before = server.limits().unwrap();
    let gateway = Gateway::start(&[server.wiki_at]);
    let traffic = Traffic::to(gateway.address);
    let lost = || traffic.wrong.load(Ordering::Relaxed);
    let answered = || traffic.answered.load(Ordering::Relaxed);
    let answers = |more: u64| {
        let now = answered();
        until("requests are answered", || {
            (answered() >= now + more).then_some(())
        });
    };
    let lease_ms = u32::try_from(LEASE.as_millis()).unwrap();
    let config = Config::new(&[("n1", server.agent_at())], &gateway.control(), lease_ms)
        .with("requests_per_core_s = 400", "requests_per_core_s = 15\ncores_step = 1.0")
        // Quick to save: much is to be seen of it in little time.
        .with("period_ms = 200", "period_ms = 100")
        .with(
            "[control]",
            "[law.slo-power]\nsustained_periods = 1\npower_step_w_per_core = 6.0\nat_limit_margin_w = 12.0\n\n[control]",
        );
    let (mut controller, mut admin) = config.start();

    for _ in 0..2 {
        server.until_low();
        controller.kill();
        let took = server.until_as_before(&before, "the controller");
        // It may have renewed its lease just before; the rest is room for a busy machine.
        assert!(took < LEASE * 3, "{took:?}");
        answers(5);
        (controller, admin) = config.start();
    }
    assert_eq!(lost(), 0, "no request noticed");

    for _ in 0..2 {
        server.until_low();
        server.agent.kill();
        let took = server.until_as_before(&before, "the agent");
        assert!(took < LEASE * 3, "{took:?}");
        answers(5);
        server.agent = Server::agent(server.dir.path());
    }
    assert_eq!(lost(), 0, "no request noticed");

    for _ in 0..2 {
        server.until_low();
        let (worker, deaths) = (worker_of(server.emulator.pid()), deaths(&server.emulator));
        kill(worker);
        until("the emulator is started again", || {
            (deaths < self::deaths(&server.emulator)).then_some(())
        });
        until("it serves its tree", || server.limits());
        answers(5);
    }
    // What a fresh emulator has is what was there before, until the law saves anew; its service was taken over.
    server.until_low();
    let procs = fs::read_to_string(server.sys().join("fs/cgroup/web/cgroup.procs")).unwrap();
    assert_eq!(procs.trim(), server.wiki.pid().to_string());
    assert_eq!(lost(), 0, "no request noticed");

    for _ in 0..2 {
        server.until_low();
        let mut load = load(&gateway);
        until("the load arrives", || {
            let rate = status(admin)?["seen"]["traffic"]["arrivals"].as_u64()?;
            (rate > 0).then_some(())
        });
        load.kill();
        answers(5);
    }
    assert_eq!(lost(), 0, "no request noticed");

    for _ in 0..2 {
        server.until_low();
        server.wiki.kill();
        until("everything goes to full while nothing can be served", || {
            let (cores, cap) = server.cores_and_cap()?;
            (cores >= CORES && cap > 85.0).then_some(())
        });
        server.wiki = Program::start(&mut Server::wiki(&server.wiki_at.to_string()));
        server.serve_wiki();
        until("the gateway sends to it again", || {
            get(gateway.address, "/")
                .ok()
                .filter(|(status, _)| *status == 200)
        });
        answers(5);
    }

    server.until_low();
    controller.stop();
    let took = server.until_as_before(&before, "nobody");
    assert!(took < LEASE, "{took:?}");
    server.agent.stop();
    server.emulator.stop();
    let left = format!("headroom-kill-{}", std::process::id());
    let groups = fs::read_dir("/sys/fs/cgroup").unwrap();
    let groups = groups.map(|hierarchy| hierarchy.unwrap().path().join(&left));
    assert_eq!(groups.filter(|group| group.is_dir()).count(), 0);
    assert!(get(gateway.address, "/").is_ok_and(|(status, _)| status == 200));
}

/// How often the emulator said that its tree died.
fn deaths(emulator: &Program) -> usize {
    emulator.err().matches("the emulated hardware died").count()
}
