//! Kill -9 of everything in turn, twice each, while a cap and a quota are low on an emulated server: within one lease all
//! of it is as it was before the run, and no request that could be served is lost.

use crate::common::{
    Config, Emulator, Gateway, Program, Traffic, Wiki, children_of, exists_anywhere, fuse_or_skipped, get,
    headroom, kill, serves, until, wait,
};
use crate::parts::{agent_command, listening, socket_in, status};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tempfile::TempDir;

const LEASE: Duration = Duration::from_secs(2);
/// All cores of the emulated server.
const CORES: f64 = 16.0;

/// An emulated server with a service's group, an agent and a wiki on it.
struct Server {
    dir: TempDir,
    emulator: Emulator,
    agent: Program,
    wiki: Wiki,
}

impl Server {
    fn start() -> Option<Self> {
        if !fuse_or_skipped("emulated hardware") {
            return None;
        }
        let dir = tempfile::tempdir().unwrap();
        let emulator = Emulator::start(dir.path(), "headroom-kill", 0.5);
        let agent = Self::agent(dir.path(), &emulator);
        let wiki = Wiki::start("127.0.0.1:0");
        let server = Self {
            dir,
            emulator,
            agent,
            wiki,
        };
        server.add_wiki();
        Some(server)
    }

    fn sys(&self) -> &Path {
        self.emulator.sys()
    }

    fn agent(dir: &Path, emulator: &Emulator) -> Program {
        let mut command = agent_command(&format!("--cgroup /web --listen {}", socket_in(dir)), dir);
        emulator.trees(&mut command);
        listening(command).0
    }

    /// Puts the wiki into its group.
    fn add_wiki(&self) {
        let procs = self.sys().join("fs/cgroup/web/cgroup.procs");
        fs::write(procs, self.wiki.program.pid().to_string()).unwrap();
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
        wait(
            &format!("all is as before the run, after {whom} was killed"),
            || self.limits().as_ref() == Some(before),
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
fn worker_of(emulator: &Program) -> u32 {
    until("the emulator's worker", || children_of(emulator.pid()).pop())
}

fn load(gateway: &Gateway) -> Program {
    let mut command = headroom("load --trace wikipedia --peak 20 --json --url");
    Program::start(command.arg(format!("http://{}/", gateway.address)))
}

#[test]
fn whatever_is_killed_everything_is_put_back_within_a_lease_and_requests_are_served() {
    let Some(mut server) = Server::start() else { return };
    let before = server.limits().unwrap();
    let gateway = Gateway::start(&[server.wiki.address]);
    let traffic = Traffic::to(gateway.address);
    let lost = || traffic.wrong();
    let lease_ms = u32::try_from(LEASE.as_millis()).unwrap();
    let config = Config::controller(&[("n1", socket_in(server.dir.path()))], &gateway.control(), lease_ms)
        .with("requests_per_core_s = 400", "requests_per_core_s = 15\ncores_step = 1.0")
        // Also on a busy machine there is something to save.
        .with("target_ms = 250", "target_ms = 1000")
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
        traffic.flows(5);
        (controller, admin) = config.start();
    }
    assert_eq!(lost(), 0, "no request noticed");

    for _ in 0..2 {
        server.until_low();
        server.agent.kill();
        let took = server.until_as_before(&before, "the agent");
        assert!(took < LEASE * 3, "{took:?}");
        traffic.flows(5);
        server.agent = Server::agent(server.dir.path(), &server.emulator);
    }
    assert_eq!(lost(), 0, "no request noticed");

    for _ in 0..2 {
        server.until_low();
        let (worker, deaths) = (
            worker_of(&server.emulator.program),
            deaths(&server.emulator.program),
        );
        kill(worker);
        wait("the emulator is started again", || {
            deaths < self::deaths(&server.emulator.program)
        });
        until("it serves its tree", || server.limits());
        traffic.flows(5);
    }
    // What a fresh emulator has is what was there before, until the law saves anew; its service was taken over.
    server.until_low();
    let procs = fs::read_to_string(server.sys().join("fs/cgroup/web/cgroup.procs")).unwrap();
    assert_eq!(procs.trim(), server.wiki.program.pid().to_string());
    assert_eq!(lost(), 0, "no request noticed");

    for _ in 0..2 {
        server.until_low();
        let mut load = load(&gateway);
        until("the load arrives", || {
            let rate = status(admin)?["observation"]["traffic"]["arrivals"].as_u64()?;
            (rate > 0).then_some(())
        });
        load.kill();
        traffic.flows(5);
    }
    assert_eq!(lost(), 0, "no request noticed");

    for _ in 0..2 {
        server.until_low();
        server.wiki.program.kill();
        until("everything goes to full while nothing can be served", || {
            let (cores, cap) = server.cores_and_cap()?;
            (cores >= CORES && cap > 85.0).then_some(())
        });
        server.wiki = Wiki::start(&server.wiki.address.to_string());
        server.add_wiki();
        serves(gateway.address);
        traffic.flows(5);
    }

    server.until_low();
    controller.stop();
    let took = server.until_as_before(&before, "nobody");
    assert!(took < LEASE, "{took:?}");
    server.agent.stop();
    server.emulator.program.stop();
    let left = format!("headroom-kill-{}", std::process::id());
    assert!(!exists_anywhere(&left));
    assert!(get(gateway.address, "/").is_ok_and(|answer| answer.status == 200));
}

/// How often the emulator said that its tree died.
fn deaths(emulator: &Program) -> usize {
    emulator.err().matches("the emulated hardware died").count()
}
