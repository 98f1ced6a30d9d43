//! Real processes behind emulated groups: a cap, a quota and a frequency each slow them, and what they used is turned back
//! into emulated busy time. Only ratios are asserted: the machine is shared.

use crate::{can_mount, real_options, write};
use headroom_testbed::hardware::{
    CgroupVersion, Emulated, HardwareConfig, HardwareError, RealOptions, recover,
};
use headroom_units::Cores;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

/// A process that is busy until it is dropped.
pub struct Busy(Child);

impl Busy {
    pub fn new() -> Self {
        Self(
            Command::new("sh")
                .args(["-c", "while :; do :; done"])
                .spawn()
                .unwrap(),
        )
    }

    pub fn pid(&self) -> u32 {
        self.0.id()
    }

    pub fn is_alive(&mut self) -> bool {
        self.0.try_wait().unwrap().is_none()
    }

    /// The CPU time it has used, seconds.
    fn used(&self) -> f64 {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.pid())).unwrap();
        let (_, fields) = stat.rsplit_once(')').unwrap();
        let ticks: u64 = fields
            .split_whitespace()
            .skip(11)
            .take(2)
            .map(|field| field.parse::<u64>().unwrap())
            .sum();
        ticks as f64 / 100.0
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Little enough of the real machine that other load on it does not matter.
pub const REAL_CORES: f64 = 0.3;

pub fn config() -> HardwareConfig {
    HardwareConfig {
        real_cores: Some(Cores::new(REAL_CORES)),
        ..HardwareConfig::default()
    }
}

/// A machine with real control groups; says where this machine has none.
pub fn mount(config: HardwareConfig, options: &RealOptions, at: &Path) -> Option<Emulated> {
    if !can_mount() {
        return None;
    }
    match Emulated::mount(config, Some(options), at) {
        Err(error @ HardwareError::NoCpuController { .. }) => {
            println!("skipped: {error}");
            None
        }
        result => Some(result.unwrap()),
    }
}

fn usage_us(root: &Path, group: &str) -> u64 {
    let stat = fs::read_to_string(root.join("fs/cgroup").join(group).join("cpu.stat")).unwrap();
    stat.lines()
        .find_map(|line| line.strip_prefix("usage_usec "))
        .unwrap()
        .parse()
        .unwrap()
}

/// The real directory of a process in the hierarchy of the cpu controller, below the base group of a test.
pub fn real_dir(pid: u32, options: &RealOptions) -> Option<PathBuf> {
    let membership = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap();
    let group = membership
        .lines()
        .find_map(|line| line.find(&options.name).and_then(|_| line.splitn(3, ':').nth(2)))?;
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    mounts
        .lines()
        .filter(|line| line.contains(" - cgroup"))
        .find_map(|line| {
            let dir = Path::new(line.split(' ').nth(4).unwrap()).join(group.trim_start_matches('/'));
            (dir.join("cpu.cfs_quota_us").exists() || dir.join("cpu.max").exists()).then_some(dir)
        })
}

/// The real quota of a directory in cores; nothing where there is none.
pub fn real_quota(dir: &Path) -> Option<f64> {
    let number = |name: &str| {
        fs::read_to_string(dir.join(name))
            .ok()?
            .trim()
            .parse::<f64>()
            .ok()
    };
    match fs::read_to_string(dir.join("cpu.max")) {
        Ok(text) => {
            let (quota, period) = text.trim().split_once(' ').unwrap();
            Some(quota.parse::<f64>().ok()? / period.parse::<f64>().unwrap())
        }
        Err(_) => {
            Some(number("cpu.cfs_quota_us").filter(|quota| *quota > 0.0)? / number("cpu.cfs_period_us")?)
        }
    }
}

/// Waits until something holds, and says what where it does not: the clock of the emulator may be late on a busy machine.
pub fn eventually(what: &str, holds: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(10);
    while !holds() {
        assert!(Instant::now() < deadline, "not in 10 s: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Gives a test's groups still more precedence on the real machine, so that what else runs there does not starve them: they come
/// before others by themselves.
fn favour(real: &Path) {
    let base = real.parent().unwrap();
    let number = |file: &str| {
        fs::read_to_string(base.join(file))
            .ok()?
            .trim()
            .parse::<u64>()
            .ok()
    };
    let (shares, weight) = (number("cpu.shares"), number("cpu.weight"));
    assert!(
        shares.or(weight).unwrap() >= 1000 && shares != Some(1024),
        "{shares:?} {weight:?}"
    );
    let written =
        fs::write(base.join("cpu.shares"), "262144").or_else(|_| fs::write(base.join("cpu.weight"), "10000"));
    written.unwrap();
}

/// What a service did over a while: real cores used, emulated utilisation of sixteen cores, watts of the machine.
struct Seen {
    real_cores: f64,
    utilisation: f64,
    watts: f64,
}

fn observe(emulated: &Emulated, busy: &Busy) -> Seen {
    let look = || {
        let state = emulated.machine().snapshot();
        (
            state.elapsed.get(),
            state.energy.get(),
            usage_us(emulated.root(), "web") as f64 / 1e6,
        )
    };
    let (started, used, before) = (Instant::now(), busy.used(), look());
    std::thread::sleep(Duration::from_millis(1500));
    let (after, used) = (look(), busy.used() - used);
    let elapsed = after.0 - before.0;
    Seen {
        real_cores: used / started.elapsed().as_secs_f64(),
        utilisation: (after.2 - before.2) / elapsed / 16.0,
        watts: (after.1 - before.1) / elapsed,
    }
}

/// Observes until what was seen is as expected; a machine that was taken away from us for a moment gets another try.
fn see(emulated: &Emulated, busy: &Busy, what: &str, expected: impl Fn(&Seen) -> bool) -> Seen {
    let mut tries = Vec::new();
    for _ in 0..5 {
        let seen = observe(emulated, busy);
        if expected(&seen) {
            return seen;
        }
        tries.push(format!(
            "{:.3} cores, {:.2} utilised, {:.1} W",
            seen.real_cores, seen.utilisation, seen.watts
        ));
    }
    panic!("{what}: {tries:?}");
}

fn near(value: f64, expected: f64) -> bool {
    (value / expected - 1.0).abs() < 0.25
}

#[test]
fn caps_quotas_and_frequencies_slow_a_real_process() {
    let dir = tempfile::tempdir().unwrap();
    let options = real_options(dir.path());
    let Some(emulated) = mount(config(), &options, &dir.path().join("sys")) else {
        return;
    };
    let root = emulated.root().to_path_buf();
    fs::create_dir(root.join("fs/cgroup/web")).unwrap();
    let busy = Busy::new();
    write(&root.join("fs/cgroup/web/cgroup.procs"), &busy.pid().to_string()).unwrap();
    let real = real_dir(busy.pid(), &options).unwrap();
    favour(&real);

    let all_busy = |seen: &Seen| (0.75..=1.1).contains(&seen.utilisation);
    let full = see(&emulated, &busy, "the whole machine", |seen| {
        near(seen.real_cores, REAL_CORES) && all_busy(seen) && seen.watts > 80.0 && seen.watts < 92.3
    });

    let limit_both = |microwatts: &str| {
        for package in 0..2 {
            let limit = format!("class/powercap/intel-rapl:{package}/constraint_0_power_limit_uw");
            write(&root.join(limit), microwatts).unwrap();
        }
    };
    limit_both("33000000");
    // Slower cores are just as busy, and the packages (66 W) with their memory (3 W) keep to the cap.
    let capped = see(&emulated, &busy, "under a cap", |seen| {
        let speed = emulated.machine().snapshot().groups[0].speed.get();
        near(seen.real_cores / full.real_cores, speed) && speed < 0.8 && all_busy(seen) && seen.watts < 70.0
    });
    assert!(capped.real_cores < full.real_cores);

    limit_both("50000000");
    write(&root.join("fs/cgroup/web/cpu.max"), "80000 10000").unwrap();
    see(&emulated, &busy, "half of the cores", |seen| {
        near(seen.real_cores / full.real_cores, 0.5) && (0.375..=0.55).contains(&seen.utilisation)
    });
    let stat = fs::read_to_string(root.join("fs/cgroup/web/cpu.stat")).unwrap();
    let throttled: u64 = stat
        .lines()
        .find_map(|l| l.strip_prefix("nr_throttled "))
        .unwrap()
        .parse()
        .unwrap();
    assert!(throttled > 10, "{stat}");
    let pressure = fs::read_to_string(root.join("fs/cgroup/web/cpu.pressure")).unwrap();
    let stalled = pressure
        .strip_prefix("some avg10=")
        .and_then(|rest| rest.split(' ').next())
        .unwrap();
    let stalled: f64 = stalled.parse().unwrap();
    assert!(stalled > 1.0 && stalled <= 100.0, "{pressure}");

    write(&root.join("fs/cgroup/web/cpu.max"), "max").unwrap();
    for policy in 0..16 {
        write(
            &root.join(format!(
                "devices/system/cpu/cpufreq/policy{policy}/scaling_max_freq"
            )),
            "800000",
        )
        .unwrap();
    }
    see(&emulated, &busy, "the lowest frequency", |seen| {
        near(seen.real_cores / full.real_cores, 0.8 / 2.1) && all_busy(seen)
    });

    assert!(real_quota(&real).is_some());
    let recovered = emulated.unmount().unwrap();
    assert_eq!(recovered.moved, [busy.pid()]);
    assert!(!real.exists() && real_dir(busy.pid(), &options).is_none());
    assert!(!options.record.exists());
}

#[test]
fn version_1_groups_hold_real_processes_too() {
    let dir = tempfile::tempdir().unwrap();
    let options = real_options(dir.path());
    let config = HardwareConfig {
        cgroup: CgroupVersion::V1,
        ..config()
    };
    let Some(emulated) = mount(config, &options, &dir.path().join("sys")) else {
        return;
    };
    let cpu = emulated.root().join("fs/cgroup/cpu,cpuacct/web");
    fs::create_dir(&cpu).unwrap();
    let mut busy = Busy::new();
    write(&cpu.join("cgroup.procs"), &busy.pid().to_string()).unwrap();
    write(&cpu.join("cpu.cfs_quota_us"), "400000").unwrap();
    let real = real_dir(busy.pid(), &options).unwrap();
    favour(&real);
    eventually("four of sixteen cores", || {
        real_quota(&real).is_some_and(|quota| near(quota, REAL_CORES / 4.0))
    });
    let usage = || {
        fs::read_to_string(cpu.join("cpuacct.usage"))
            .unwrap()
            .trim()
            .parse::<f64>()
            .unwrap()
            / 1e9
    };
    let look = || (emulated.machine().snapshot().elapsed.get(), usage());
    eventually("four busy cores", || {
        let before = look();
        std::thread::sleep(Duration::from_millis(1000));
        let after = look();
        near((after.1 - before.1) / (after.0 - before.0), 4.0)
    });
    // Removing the group while the process lives is refused; the group above takes it.
    assert!(fs::remove_dir(&cpu).is_err());
    write(
        &emulated.root().join("fs/cgroup/cpu,cpuacct/cgroup.procs"),
        &busy.pid().to_string(),
    )
    .unwrap();
    fs::remove_dir(&cpu).unwrap();
    assert!(real_dir(busy.pid(), &options).is_none() && busy.is_alive());
    drop(emulated);
    assert_eq!(recover(&options.record).unwrap(), Default::default());
}

#[test]
fn a_group_that_is_there_without_a_record_is_not_taken() {
    let dir = tempfile::tempdir().unwrap();
    let options = real_options(dir.path());
    let Some(emulated) = mount(config(), &options, &dir.path().join("sys")) else {
        return;
    };
    let second = RealOptions {
        record: dir.path().join("second.json"),
        ..options.clone()
    };
    let error = Emulated::mount(config(), Some(&second), &dir.path().join("again"))
        .err()
        .unwrap();
    assert!(error.to_string().contains(&options.name), "{error}");
    // And its record tells that its emulator runs.
    let error = Emulated::mount(config(), Some(&options), &dir.path().join("again"))
        .err()
        .unwrap();
    assert!(matches!(error, HardwareError::StillRuns { .. }), "{error}");
    drop(emulated);
}
