//! What is where, and that it behaves.

use crate::{Bench, can_mount, errno};
use headroom_testbed::hardware::config::Zones;
use headroom_testbed::hardware::{Driver, Emulated, HardwareConfig, HardwareError};
use headroom_units::{Cores, Seconds};
use rustix::io::Errno;
use std::fs;
use std::io::{Read, Seek};
use std::os::unix::process::CommandExt;
use std::process::Command;

const PACKAGE: &str = "class/powercap/intel-rapl:0";
const CPU: &str = "devices/system/cpu";

#[test]
fn the_tree_is_that_of_a_two_package_server() {
    let mut config = HardwareConfig::default();
    config.rapl.psys = true;
    let Some(bench) = Bench::new(config) else { return };
    let zones = [
        ("intel-rapl:0", "package-0"),
        ("intel-rapl:0:0", "core"),
        ("intel-rapl:0:1", "dram"),
        ("intel-rapl:1", "package-1"),
        ("intel-rapl:1:0", "core"),
        ("intel-rapl:1:1", "dram"),
        ("intel-rapl:2", "psys"),
    ];
    let mut names: Vec<String> = zones.iter().map(|(zone, _)| zone.to_string()).collect();
    names.insert(0, "intel-rapl".into());
    assert_eq!(bench.list("class/powercap").unwrap(), names);
    for (zone, name) in zones {
        assert_eq!(bench.read(&format!("class/powercap/{zone}/name")).unwrap(), name);
    }
    assert_eq!(
        bench.read(&format!("{PACKAGE}/constraint_0_name")).unwrap(),
        "long_term"
    );
    assert_eq!(
        bench.read(&format!("{PACKAGE}/constraint_1_name")).unwrap(),
        "short_term"
    );
    assert_eq!(
        bench.number(&format!("{PACKAGE}/max_energy_range_uj")),
        262_143_328_850
    );
    let real = fs::canonicalize(bench.path("class/powercap/intel-rapl:1:0")).unwrap();
    assert!(real.ends_with("devices/virtual/powercap/intel-rapl/intel-rapl:1/intel-rapl:1:0"));

    for list in ["online", "possible", "present"] {
        assert_eq!(bench.read(&format!("{CPU}/{list}")).unwrap(), "0-15");
    }
    assert_eq!(bench.list(&format!("{CPU}/cpufreq")).unwrap().len(), 16);
    assert_eq!(
        bench.read(&format!("{CPU}/cpu9/cpufreq/affected_cpus")).unwrap(),
        "9"
    );
    assert_eq!(
        bench
            .read(&format!("{CPU}/cpu9/topology/physical_package_id"))
            .unwrap(),
        "1"
    );
    assert_eq!(bench.read(&format!("{CPU}/cpu9/topology/core_id")).unwrap(), "1");
    assert_eq!(
        bench.read(&format!("{CPU}/cpu9/cpuidle/state4/name")).unwrap(),
        "C6"
    );
    assert_eq!(
        bench.read(&format!("{CPU}/intel_pstate/status")).unwrap(),
        "active"
    );
    assert!(
        bench
            .read("headroom-testbed/emulated")
            .unwrap()
            .contains("emulated")
    );
    assert_eq!(
        fs::metadata(bench.path(&format!("{CPU}/cpu16")))
            .map_err(errno)
            .unwrap_err(),
        Errno::NOENT
    );
    // As on sysfs, nobody can make or remove anything.
    assert_eq!(
        fs::write(bench.path("class/new"), "x").map_err(errno),
        Err(Errno::ACCESS)
    );
    assert_eq!(
        fs::create_dir(bench.path("class/new")).map_err(errno),
        Err(Errno::PERM)
    );
    assert_eq!(
        fs::remove_file(bench.path(&format!("{PACKAGE}/name"))).map_err(errno),
        Err(Errno::PERM)
    );
    assert_eq!(bench.write(&format!("{PACKAGE}/name"), "x"), Err(Errno::ACCESS));
    assert!(bench.dir.path().exists());
}

#[test]
fn energy_is_for_root_alone() {
    let Some(bench) = Bench::new(HardwareConfig::default()) else {
        return;
    };
    let as_nobody = |file: &str| {
        let output = Command::new("cat")
            .arg(bench.path(file))
            .uid(65_534)
            .gid(65_534)
            .output()
            .unwrap();
        (
            output.status.success(),
            String::from_utf8_lossy(&output.stderr).into_owned(),
        )
    };
    assert!(as_nobody(&format!("{PACKAGE}/max_energy_range_uj")).0);
    let (read, message) = as_nobody(&format!("{PACKAGE}/energy_uj"));
    assert!(!read && message.contains("Permission denied"), "{message}");
    assert!(!as_nobody("headroom-testbed/faults").0);
    let write = format!("echo 1 > {}", bench.path(&format!("{PACKAGE}/enabled")).display());
    assert!(
        !Command::new("sh")
            .args(["-c", &write])
            .uid(65_534)
            .stderr(std::process::Stdio::null())
            .status()
            .unwrap()
            .success()
    );
    let mkdir = Command::new("mkdir")
        .arg(bench.path("fs/cgroup/mine"))
        .uid(65_534)
        .stderr(std::process::Stdio::null())
        .status();
    assert!(!mkdir.unwrap().success());
}

#[test]
fn energy_counts_and_wraps() {
    let Some(bench) = Bench::new(HardwareConfig::default()) else {
        return;
    };
    let machine = bench.emulated.machine();
    let energy = || bench.number(&format!("{PACKAGE}/energy_uj"));
    machine.advance(Seconds::new(1.0));
    let idle = energy();
    assert!((9_300_000..9_400_000).contains(&idle), "{idle}");
    machine.wrap_soon("intel-rapl:0", 5_000_000).unwrap();
    let before = energy();
    machine.advance(Seconds::new(1.0));
    let after = energy();
    assert!(after < before);
    let delta = 262_143_328_850 - before + after;
    assert!(delta.abs_diff(idle) < 1_000, "{delta} {idle}");
    // An open file is read anew from its beginning, and one reading is not mixed with the next.
    let mut file = fs::File::open(bench.path(&format!("{PACKAGE}/energy_uj"))).unwrap();
    let mut first = [0; 3];
    file.read_exact(&mut first).unwrap();
    machine.advance(Seconds::new(100.0));
    let mut rest = String::new();
    file.read_to_string(&mut rest).unwrap();
    assert_eq!(
        format!("{}{}", std::str::from_utf8(&first).unwrap(), rest.trim()),
        after.to_string()
    );
    file.rewind().unwrap();
    let mut again = String::new();
    file.read_to_string(&mut again).unwrap();
    assert!(again.trim().parse::<u64>().unwrap() > after);
}

#[test]
fn limits_are_quantised_and_read_back() {
    let Some(bench) = Bench::new(HardwareConfig::default()) else {
        return;
    };
    for (file, written, read) in [
        ("constraint_0_power_limit_uw", "40049999", 40_000_000),
        ("constraint_0_power_limit_uw", "4136000000\n", 40_000_000),
        ("constraint_1_power_limit_uw", "45125000", 45_125_000),
        ("constraint_0_time_window_us", "1000000", 999_424),
        ("constraint_0_time_window_us", "28000000", 27_983_872),
        ("enabled", "0", 0),
        ("enabled", "1", 1),
    ] {
        bench.write(&format!("{PACKAGE}/{file}"), written).unwrap();
        assert_eq!(
            bench.number(&format!("{PACKAGE}/{file}")),
            read,
            "{file} {written}"
        );
    }
    assert_eq!(
        bench.number(&format!("{PACKAGE}/constraint_0_max_power_uw")),
        50_000_000
    );
    for bad in ["", "forty", "-1", "1.5", "99999999999999999999"] {
        let bad = if bad.is_empty() { "\n" } else { bad };
        assert_eq!(
            bench.write(&format!("{PACKAGE}/constraint_0_power_limit_uw"), bad),
            Err(Errno::INVAL),
            "{bad}"
        );
    }
    assert_eq!(
        bench.write(&format!("{PACKAGE}/enabled"), "maybe"),
        Err(Errno::INVAL)
    );
    assert_eq!(
        bench.read(&format!("{PACKAGE}/constraint_7_power_limit_uw")),
        Err(Errno::NOENT)
    );
    assert_eq!(
        bench.read("class/powercap/intel-rapl:0:0/constraint_0_max_power_uw"),
        Err(Errno::NODATA)
    );
}

#[test]
fn a_cap_becomes_a_frequency() {
    let Some(bench) = Bench::new(HardwareConfig::default()) else {
        return;
    };
    fs::create_dir(bench.path("fs/cgroup/web")).unwrap();
    let machine = bench.emulated.machine();
    machine.set_load("web", Cores::new(16.0)).unwrap();
    let run = || (0..200).for_each(|_| machine.advance(Seconds::new(0.02)));
    let frequency = |cpu: u32| bench.number(&format!("{CPU}/cpufreq/policy{cpu}/scaling_cur_freq"));
    run();
    assert_eq!(frequency(0), 2_100_000);
    let mut last = 2_100_000;
    for watts in [42, 38, 34, 30] {
        bench
            .write(
                &format!("{PACKAGE}/constraint_0_power_limit_uw"),
                &format!("{watts}000000"),
            )
            .unwrap();
        run();
        let before = bench.number(&format!("{PACKAGE}/energy_uj"));
        machine.advance(Seconds::new(1.0));
        let used = (bench.number(&format!("{PACKAGE}/energy_uj")) - before) as f64 / 1e6;
        assert!(
            used <= f64::from(watts) && used > f64::from(watts) - 3.0,
            "{used} W under {watts} W"
        );
        assert!(frequency(0) < last || frequency(0) == 800_000);
        last = frequency(0);
    }
    assert_eq!(frequency(8), 2_100_000);
    // Idle time goes on counting where there is any.
    machine.set_load("web", Cores::new(4.0)).unwrap();
    let idle = |state: u32| bench.number(&format!("{CPU}/cpu3/cpuidle/state{state}/time"));
    let before: u64 = (0..5).map(idle).sum();
    machine.advance(Seconds::new(1.0));
    let passed = (0..5).map(idle).sum::<u64>() - before;
    assert!((600_000..1_000_000).contains(&passed), "{passed}");
}

#[test]
fn an_amd_server_and_a_virtual_machine_look_different() {
    let mut config = HardwareConfig {
        driver: Driver::AmdPstateActive,
        ..HardwareConfig::default()
    };
    config.rapl.zones = Zones::Amd;
    let Some(bench) = Bench::new(config) else { return };
    let files = bench.list(PACKAGE).unwrap();
    assert!(files.contains(&"energy_uj".into()) && !files.iter().any(|name| name.starts_with("constraint")));
    assert_eq!(
        (
            bench.number(&format!("{PACKAGE}/enabled")),
            bench.write(&format!("{PACKAGE}/enabled"), "1")
        ),
        (0, Err(Errno::NOSYS))
    );
    assert_eq!(bench.read("class/hwmon/hwmon1/name").unwrap(), "amd_hsmp_hwmon");
    assert!(
        bench
            .read("headroom-testbed/proc/cpuinfo")
            .unwrap()
            .contains("AuthenticAMD")
    );
    bench.write("class/hwmon/hwmon1/power1_cap", "34000999").unwrap();
    assert_eq!(bench.number("class/hwmon/hwmon1/power1_cap"), 34_000_000);
    assert_eq!(bench.number("class/hwmon/hwmon1/power1_cap_max"), 50_000_000);
    assert_eq!(bench.read(&format!("{CPU}/amd_pstate/status")).unwrap(), "active");
    assert_eq!(
        bench.number(&format!("{CPU}/cpufreq/policy0/amd_pstate_lowest_nonlinear_freq")),
        1_200_000
    );

    let mut config = HardwareConfig {
        driver: Driver::None,
        cpuidle: false,
        ..HardwareConfig::default()
    };
    config.rapl.zones = Zones::None;
    let bench = Bench::new(config).unwrap();
    assert_eq!(bench.list("class/powercap"), Err(Errno::NOENT));
    assert_eq!(bench.list(&format!("{CPU}/cpufreq")), Ok(vec![]));
    assert_eq!(bench.list(&format!("{CPU}/cpu0/cpuidle")), Err(Errno::NOENT));
    assert_eq!(bench.list(&format!("{CPU}/cpu0")).unwrap(), ["topology"]);
}

#[test]
fn the_clock_runs_by_itself() {
    let Some(bench) = Bench::with(HardwareConfig::default()) else {
        return;
    };
    let look = || bench.emulated.machine().snapshot();
    let (started, before) = (std::time::Instant::now(), look());
    std::thread::sleep(std::time::Duration::from_millis(1000));
    let after = look();
    let passed = (after.elapsed - before.elapsed).get();
    // It may be a tick behind at either end, and much more on a busy machine; it never runs ahead.
    assert!(
        passed > 0.5 && passed < started.elapsed().as_secs_f64() + 0.1,
        "{passed}"
    );
    let watts = (after.energy - before.energy).get() / passed;
    assert!((watts - 21.73).abs() < 0.01, "{watts}");
}

#[test]
fn one_emulator_a_directory_and_none_over_files() {
    let Some(bench) = Bench::new(HardwareConfig::default()) else {
        return;
    };
    let again = |dir| {
        Emulated::mount(HardwareConfig::default(), None, dir)
            .err()
            .unwrap()
    };
    assert!(matches!(
        again(bench.emulated.root()),
        HardwareError::AlreadyMounted { .. }
    ));
    let full = tempfile::tempdir().unwrap();
    fs::write(full.path().join("mine"), "x").unwrap();
    let error = again(full.path()).to_string();
    assert!(error.starts_with("cannot use as mount point"), "{error}");
    let wrong = HardwareConfig {
        packages: 0,
        ..HardwareConfig::default()
    };
    let error = Emulated::mount(wrong, None, full.path()).err().unwrap();
    assert!(error.to_string().contains("packages is 0"), "{error}");
}

#[test]
fn unmounting_does_not_wait_for_open_files() {
    if !can_mount() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let emulated = Emulated::mount(HardwareConfig::default(), None, dir.path()).unwrap();
    assert!(emulated.is_served());
    let mut open = fs::File::open(dir.path().join(PACKAGE).join("energy_uj")).unwrap();
    emulated.unmount().unwrap();
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    assert_eq!(
        open.read_to_string(&mut String::new()).map_err(errno),
        Err(Errno::NODEV)
    );
    drop(open);
    let again = Emulated::mount(HardwareConfig::default(), None, dir.path()).unwrap();
    drop(again);
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
}
