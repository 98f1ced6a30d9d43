//! Every error that the kernel's interfaces are known for, switched on and off while the machine runs, and seen through the
//! kernel as the error number that an agent gets.

use crate::{Bench, errno};
use headroom_testbed::hardware::config::Zones;
use headroom_testbed::hardware::{Driver, Fault, HardwareConfig, Operation};
use headroom_units::{Cores, Seconds};
use rustix::io::Errno;
use std::fs;

const PACKAGE: &str = "class/powercap/intel-rapl:0";
const LIMIT: &str = "class/powercap/intel-rapl:0/constraint_0_power_limit_uw";
const ENERGY: &str = "class/powercap/intel-rapl:0/energy_uj";
const POLICY: &str = "devices/system/cpu/cpufreq/policy3";

/// Writing and reading fail with each error that was asked for, and no longer once it is cleared.
#[test]
fn each_error_on_each_kind_of_file() {
    let Some(bench) = Bench::new(HardwareConfig::default()) else {
        return;
    };
    fs::create_dir(bench.path("fs/cgroup/web")).unwrap();
    let max_freq = format!("{POLICY}/scaling_max_freq");
    let disable = "devices/system/cpu/cpu2/cpuidle/state4/disable";
    let writes = [
        (LIMIT, "40000000", "EINVAL", Errno::INVAL),
        (LIMIT, "40000000", "EACCES", Errno::ACCESS),
        (LIMIT, "40000000", "ENODATA", Errno::NODATA),
        (LIMIT, "40000000", "EIO", Errno::IO),
        (max_freq.as_str(), "1500000", "EBUSY", Errno::BUSY),
        (max_freq.as_str(), "1500000", "EINVAL", Errno::INVAL),
        (disable, "1", "EPERM", Errno::PERM),
        ("fs/cgroup/web/cpu.max", "20000 10000", "ENODEV", Errno::NODEV),
        ("fs/cgroup/web/cpu.max", "20000 10000", "EINVAL", Errno::INVAL),
        ("fs/cgroup/web/cpuset.cpus", "0-3", "ENOSPC", Errno::NOSPC),
        ("fs/cgroup/web/cpuset.cpus", "0-3", "ERANGE", Errno::RANGE),
    ];
    for (file, value, name, expected) in writes {
        bench.command(&format!("set error write {name} {file}"));
        assert_eq!(bench.write(file, value), Err(expected), "{file}");
        let read = bench.read(file).unwrap();
        assert_ne!(read, value, "{file} was changed by a write that failed");
        bench.command("clear");
    }
    for (file, value, _, _) in writes {
        bench.write(file, value).unwrap();
    }
    for (file, name, expected) in [
        (ENERGY, "EINVAL", Errno::INVAL),
        (ENERGY, "EIO", Errno::IO),
        (
            "class/powercap/intel-rapl:0/constraint_0_max_power_uw",
            "ENODATA",
            Errno::NODATA,
        ),
        ("devices/system/cpu/cpu2/cpuidle/state4/time", "EIO", Errno::IO),
        ("fs/cgroup/web/cpu.stat", "ENODEV", Errno::NODEV),
    ] {
        bench.command(&format!("set error read {name} {file}"));
        assert_eq!(bench.read(file), Err(expected), "{file}");
        bench.command(&format!("clear error read {name} {file}"));
        bench.read(file).unwrap();
    }
    bench.command("set error open EACCES intel-rapl:*/energy_uj");
    assert_eq!(
        fs::File::open(bench.path(ENERGY)).map_err(errno).err(),
        Some(Errno::ACCESS)
    );
    assert_eq!(
        fs::File::open(bench.path("class/powercap/intel-rapl:1/energy_uj"))
            .map_err(errno)
            .err(),
        Some(Errno::ACCESS)
    );
    bench.read(&format!("{PACKAGE}/name")).unwrap();
}

#[test]
fn limits_locked_by_the_firmware() {
    let Some(bench) = Bench::new(HardwareConfig::default()) else {
        return;
    };
    bench.command("set locked intel-rapl:0");
    assert_eq!(bench.write(LIMIT, "40000000"), Err(Errno::NODATA));
    assert_eq!(
        bench.write(&format!("{PACKAGE}/constraint_0_time_window_us"), "1000"),
        Err(Errno::NODATA)
    );
    assert_eq!(bench.number(&format!("{PACKAGE}/enabled")), 0);
    assert_eq!(bench.write(&format!("{PACKAGE}/enabled"), "1"), Err(Errno::NOSYS));
    assert_eq!(bench.number(LIMIT), 50_000_000);
    bench
        .write(
            "class/powercap/intel-rapl:1/constraint_0_power_limit_uw",
            "40000000",
        )
        .unwrap();
    bench.command("clear locked intel-rapl:0");
    assert_eq!(bench.number(&format!("{PACKAGE}/enabled")), 1);
    bench.write(LIMIT, "40000000").unwrap();
}

#[test]
fn a_zone_vanishes_and_comes_back() {
    let Some(bench) = Bench::new(HardwareConfig::default()) else {
        return;
    };
    let mut open = fs::File::open(bench.path("class/powercap/intel-rapl:1/energy_uj")).unwrap();
    bench.command("set vanished intel-rapl:1");
    assert_eq!(
        bench.read("class/powercap/intel-rapl:1/energy_uj"),
        Err(Errno::NOENT)
    );
    assert_eq!(
        bench.read("class/powercap/intel-rapl:1:0/energy_uj"),
        Err(Errno::NOENT)
    );
    assert!(
        !bench
            .list("class/powercap")
            .unwrap()
            .contains(&"intel-rapl:1".to_string())
    );
    assert_eq!(
        std::io::Read::read_to_string(&mut open, &mut String::new()).map_err(errno),
        Err(Errno::NODEV)
    );
    bench.read(ENERGY).unwrap();
    bench.command("clear");
    bench.read("class/powercap/intel-rapl:1/energy_uj").unwrap();
}

#[test]
fn a_container_masks_or_lacks_the_directory() {
    let Some(bench) = Bench::new(HardwareConfig::default()) else {
        return;
    };
    let machine = bench.emulated.machine();
    bench.command("set emptied class/powercap");
    assert_eq!(bench.list("class/powercap"), Ok(vec![]));
    assert_eq!(bench.read(ENERGY), Err(Errno::NOENT));
    machine.clear_all().unwrap();
    bench.command("set vanished class/powercap");
    assert_eq!(bench.list("class/powercap"), Err(Errno::NOENT));
    machine.clear_all().unwrap();
    // What the names lead to is masked, and the names are there still.
    bench.command("set emptied devices/virtual/powercap");
    assert_eq!(bench.list("class/powercap").unwrap().len(), 7);
    assert_eq!(bench.read(ENERGY), Err(Errno::NOENT));
    bench.command("clear");
    bench.command("set vanished cpu*/cpuidle\nset vanished fs/cgroup/cpu.stat");
    assert_eq!(bench.list("devices/system/cpu/cpu5/cpuidle"), Err(Errno::NOENT));
    assert_eq!(bench.read("fs/cgroup/cpu.stat"), Err(Errno::NOENT));
}

#[test]
fn all_is_mounted_read_only_but_the_control_file() {
    let Some(bench) = Bench::new(HardwareConfig::default()) else {
        return;
    };
    bench.command("set read-only");
    for file in [LIMIT, "devices/system/cpu/cpufreq/policy0/scaling_max_freq"] {
        assert_eq!(bench.write(file, "1"), Err(Errno::ROFS));
        let access = rustix::fs::access(bench.path(file), rustix::fs::Access::WRITE_OK);
        assert_eq!(access, Err(Errno::ROFS));
        bench.read(file).unwrap();
    }
    assert_eq!(
        fs::create_dir(bench.path("fs/cgroup/web")).map_err(errno),
        Err(Errno::ROFS)
    );
    bench.command("clear read-only");
    bench.write(LIMIT, "40000000").unwrap();
}

#[test]
fn counters_that_freeze_lie_and_jump() {
    let Some(bench) = Bench::new(HardwareConfig::default()) else {
        return;
    };
    let machine = bench.emulated.machine();
    let second = || {
        let before = bench.number(ENERGY);
        machine.advance(Seconds::new(1.0));
        bench.number(ENERGY) as i64 - before as i64
    };
    let honest = second();
    assert!(honest > 9_000_000);
    bench.command("set frozen intel-rapl:0");
    assert_eq!((second(), second()), (0, 0));
    bench.command("clear frozen intel-rapl:0");
    assert!(second().abs_diff(honest) < 100);
    for sentinel in [0, 4_294_967_295_000, u64::MAX] {
        bench.command(&format!("set reads intel-rapl:0/energy_uj {sentinel}"));
        assert_eq!(bench.number(ENERGY), sentinel);
        machine.clear_all().unwrap();
    }
    let before = bench.number(ENERGY);
    bench.command("jump intel-rapl:0 5000000000");
    assert!((bench.number(ENERGY) - before).abs_diff(5_000_000_000) < 62);
    bench.command("set reads intel-rapl:0/energy_uj not a number");
    assert_eq!(bench.read(ENERGY).unwrap(), "not a number");
    bench.command("set reads intel-rapl:0/constraint_0_max_power_uw 0");
    assert_eq!(bench.number(&format!("{PACKAGE}/constraint_0_max_power_uw")), 0);
}

#[test]
fn a_suspend_goes_on_counting_or_starts_anew() {
    let Some(bench) = Bench::new(HardwareConfig::default()) else {
        return;
    };
    bench.emulated.machine().advance(Seconds::new(10.0));
    let before = bench.number(ENERGY);
    bench.command("suspend 3600");
    let slept = bench.number(ENERGY) - before;
    assert!(slept.abs_diff(3_600_000_000) < 62, "{slept}");
    bench.command("suspend 60 restart");
    assert_eq!(bench.number(ENERGY), 0);
}

#[test]
fn a_cap_is_accepted_and_does_not_bite() {
    let Some(bench) = Bench::new(HardwareConfig::default()) else {
        return;
    };
    fs::create_dir(bench.path("fs/cgroup/web")).unwrap();
    let machine = bench.emulated.machine();
    machine.set_load("web", Cores::new(16.0)).unwrap();
    let watts = || {
        (0..150).for_each(|_| machine.advance(Seconds::new(0.02)));
        machine.snapshot().packages[0].power.get()
    };
    bench.command("set inert intel-rapl:0");
    bench.write(LIMIT, "30000000").unwrap();
    assert_eq!(bench.number(LIMIT), 30_000_000);
    assert!(watts() > 44.0);
    bench.command("clear");
    assert!(watts() <= 30.0);
    // A limit that is not enabled does nothing either.
    bench.write(&format!("{PACKAGE}/enabled"), "0").unwrap();
    assert!(watts() > 44.0);
}

#[test]
fn an_inactive_policy_is_busy() {
    let Some(bench) = Bench::new(HardwareConfig {
        driver: Driver::AcpiCpufreq,
        ..HardwareConfig::default()
    }) else {
        return;
    };
    bench.command("set inactive policy3");
    for file in ["scaling_cur_freq", "scaling_max_freq", "scaling_governor"] {
        assert_eq!(bench.read(&format!("{POLICY}/{file}")), Err(Errno::BUSY));
    }
    assert_eq!(
        bench.write(&format!("{POLICY}/scaling_max_freq"), "1000000"),
        Err(Errno::BUSY)
    );
    bench
        .read("devices/system/cpu/cpufreq/policy2/scaling_cur_freq")
        .unwrap();
    bench.command("clear");
    bench
        .write(&format!("{POLICY}/scaling_max_freq"), "1000000")
        .unwrap();
}

#[test]
fn hsmp_fails_in_all_its_ways() {
    let mut config = HardwareConfig {
        driver: Driver::AmdPstateActive,
        ..HardwareConfig::default()
    };
    config.rapl.zones = Zones::Amd;
    let Some(bench) = Bench::new(config) else { return };
    let cap = "class/hwmon/hwmon0/power1_cap";
    for (name, expected) in [
        ("ETIMEDOUT", Errno::TIMEDOUT),
        ("ENOMSG", Errno::NOMSG),
        ("EINVAL", Errno::INVAL),
        ("EREMOTEIO", Errno::REMOTEIO),
        ("EBUSY", Errno::BUSY),
        ("EPERM", Errno::PERM),
        ("ENODEV", Errno::NODEV),
    ] {
        bench.command(&format!(
            "set error write {name} hwmon0/power1_cap\nset error read {name} hwmon0/power1_input"
        ));
        assert_eq!(bench.write(cap, "40000000"), Err(expected));
        assert_eq!(bench.read("class/hwmon/hwmon0/power1_input"), Err(expected));
        bench.command("clear");
    }
    assert_eq!(bench.write(cap, "forty"), Err(Errno::INVAL));
    bench.write(cap, "40000000").unwrap();
}

#[test]
fn faults_are_listed_bounded_and_refused_where_they_make_no_sense() {
    let Some(bench) = Bench::new(HardwareConfig::default()) else {
        return;
    };
    let file = "headroom-testbed/faults";
    bench.command("set frozen intel-rapl:0\n\nset locked intel-rapl:1\nset frozen intel-rapl:0\n");
    assert_eq!(
        bench.read(file).unwrap(),
        "frozen intel-rapl:0\nlocked intel-rapl:1"
    );
    assert_eq!(bench.emulated.machine().snapshot().faults.len(), 2);
    for bad in [
        "set melted x",
        "set frozen intel-rapl:9",
        "set inactive policy99",
        "explode",
        "counter intel-rapl:9 1",
        "load nobody 1",
    ] {
        assert_eq!(bench.write(file, bad), Err(Errno::INVAL), "{bad}");
    }
    bench.command("clear");
    for at in 0..64 {
        bench.command(&format!("set vanished never{at}"));
    }
    assert_eq!(bench.write(file, "set read-only"), Err(Errno::NOSPC));
    let error = bench
        .emulated
        .machine()
        .inject(Fault::error(Operation::Read, Errno::IO, "energy_uj").unwrap());
    assert!(error.unwrap_err().to_string().contains("64 faults"));
    let state: serde_json::Value =
        serde_json::from_str(&bench.read("headroom-testbed/state").unwrap()).unwrap();
    assert!(state["most_power"].as_f64().unwrap() > 92.0);
}
