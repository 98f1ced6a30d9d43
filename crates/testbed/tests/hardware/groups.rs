//! Control groups of both versions.

use crate::{Bench, errno};
use headroom_testbed::hardware::{CgroupVersion, HardwareConfig};
use headroom_units::{Cores, Seconds};
use rustix::io::Errno;
use std::fs;
use std::io::Read;

#[test]
fn control_groups_of_version_2() {
    let Some(bench) = Bench::new(HardwareConfig::default()) else {
        return;
    };
    let group = |file: &str| format!("fs/cgroup/web/{file}");
    assert_eq!(bench.read("fs/cgroup/cgroup.controllers").unwrap(), "cpuset cpu");
    fs::create_dir(bench.path("fs/cgroup/web")).unwrap();
    assert_eq!(
        fs::create_dir(bench.path("fs/cgroup/web")).map_err(errno),
        Err(Errno::EXIST)
    );
    assert_eq!(bench.read(&group("cpu.max")).unwrap(), "max 100000");
    for bad in [
        "0 10000",
        "999 10000",
        "many",
        "5000 999",
        "5000 1000001",
        "-5 10000",
        "99999999999999999 10000",
    ] {
        assert_eq!(bench.write(&group("cpu.max"), bad), Err(Errno::INVAL), "{bad}");
    }
    bench.write(&group("cpu.max"), "25000 10000").unwrap();
    assert_eq!(bench.read(&group("cpu.max")).unwrap(), "25000 10000");
    assert_eq!(bench.write(&group("cpuset.cpus"), "0-16"), Err(Errno::RANGE));
    bench.write(&group("cpuset.cpus"), "0-1").unwrap();
    assert_eq!(bench.read(&group("cpuset.cpus.effective")).unwrap(), "0-1");
    let machine = bench.emulated.machine();
    machine.set_load("web", Cores::new(16.0)).unwrap();
    machine.advance(Seconds::new(1.0));
    let stat = bench.read(&group("cpu.stat")).unwrap();
    // Two CPUs, although the quota would allow two and a half.
    assert!(
        stat.starts_with("usage_usec 2000000\n") && stat.contains("nr_periods 0"),
        "{stat}"
    );

    fs::create_dir(bench.path("fs/cgroup/web/inner")).unwrap();
    assert_eq!(bench.read(&group("inner/cpu.max")), Err(Errno::NOENT));
    assert!(
        bench
            .read(&group("inner/cpu.stat"))
            .unwrap()
            .starts_with("usage_usec 0")
    );
    assert_eq!(
        bench.write(&group("inner/cgroup.subtree_control"), "+cpu"),
        Err(Errno::NOENT)
    );
    assert_eq!(
        bench.write(&group("cgroup.subtree_control"), "+memory"),
        Err(Errno::NOENT)
    );
    bench.write(&group("cgroup.subtree_control"), "+cpu").unwrap();
    assert_eq!(bench.read(&group("inner/cpu.max")).unwrap(), "max 100000");
    assert_eq!(
        fs::remove_dir(bench.path("fs/cgroup/web")).map_err(errno),
        Err(Errno::BUSY)
    );

    let me = std::process::id();
    assert_eq!(
        bench.write(&group("cgroup.procs"), &me.to_string()),
        Err(Errno::BUSY)
    );
    assert_eq!(
        bench.write(&group("inner/cgroup.procs"), "4194304"),
        Err(Errno::SRCH)
    );
    bench
        .write(&group("inner/cgroup.procs"), &me.to_string())
        .unwrap();
    assert_eq!(bench.read(&group("inner/cgroup.procs")).unwrap(), me.to_string());
    assert_eq!(
        bench.read(&format!("headroom-testbed/proc/{me}/cgroup")).unwrap(),
        "0::/web/inner"
    );
    assert_eq!(
        bench.read("headroom-testbed/proc/self/cgroup").unwrap(),
        "0::/web/inner"
    );
    assert!(
        bench
            .read("headroom-testbed/proc/self/mountinfo")
            .unwrap()
            .contains(" /sys/fs/cgroup ")
    );
    assert_eq!(
        fs::remove_dir(bench.path("fs/cgroup/web/inner")).map_err(errno),
        Err(Errno::BUSY)
    );
    bench.write("fs/cgroup/cgroup.procs", &me.to_string()).unwrap();
    let mut open = fs::File::open(bench.path("fs/cgroup/web/inner/cpu.stat")).unwrap();
    fs::remove_dir(bench.path("fs/cgroup/web/inner")).unwrap();
    assert_eq!(
        open.read_to_string(&mut String::new()).map_err(errno),
        Err(Errno::NODEV)
    );
    fs::remove_dir(bench.path("fs/cgroup/web")).unwrap();
    assert_eq!(bench.list("fs/cgroup/web"), Err(Errno::NOENT));
}

#[test]
fn control_groups_of_version_1() {
    let config = HardwareConfig {
        cgroup: CgroupVersion::V1,
        ..HardwareConfig::default()
    };
    let Some(bench) = Bench::new(config) else { return };
    let cpu = |file: &str| format!("fs/cgroup/cpu,cpuacct/web/{file}");
    let cpuset = |file: &str| format!("fs/cgroup/cpuset/web/{file}");
    fs::create_dir(bench.path(&cpu(""))).unwrap();
    fs::create_dir(bench.path(&cpuset(""))).unwrap();
    assert_eq!(
        (
            bench.read(&cpu("cpu.cfs_quota_us")).unwrap(),
            bench.number(&cpu("cpu.cfs_period_us"))
        ),
        ("-1".into(), 100_000)
    );
    for bad in ["0", "999", "17592186044416", "some"] {
        assert_eq!(
            bench.write(&cpu("cpu.cfs_quota_us"), bad),
            Err(Errno::INVAL),
            "{bad}"
        );
    }
    for bad in ["999", "1000001", "-1"] {
        assert_eq!(
            bench.write(&cpu("cpu.cfs_period_us"), bad),
            Err(Errno::INVAL),
            "{bad}"
        );
    }
    bench.write(&cpu("cpu.cfs_quota_us"), "50000").unwrap();
    bench.write(&cpu("cpu.cfs_period_us"), "10000").unwrap();
    let machine = bench.emulated.machine();
    machine.set_load("web", Cores::new(16.0)).unwrap();
    machine.advance(Seconds::new(1.0));
    machine.advance(Seconds::new(1.0));
    assert_eq!(bench.number(&cpu("cpuacct.usage")), 10_000_000_000);
    assert!(bench.read(&cpu("cpu.stat")).unwrap().contains("throttled_time 0"));
    bench.write(&cpu("cpu.cfs_quota_us"), "-7").unwrap();
    assert_eq!(bench.read(&cpu("cpu.cfs_quota_us")).unwrap(), "-1");

    let me = std::process::id().to_string();
    assert_eq!(bench.write(&cpuset("cgroup.procs"), &me), Err(Errno::NOSPC));
    assert_eq!(bench.write(&cpuset("cpuset.cpus"), "16"), Err(Errno::RANGE));
    bench.write(&cpuset("cpuset.cpus"), "0-3").unwrap();
    assert_eq!(bench.write(&cpuset("tasks"), &me), Err(Errno::NOSPC));
    bench.write(&cpuset("cpuset.mems"), "0-1").unwrap();
    bench.write(&cpuset("tasks"), &me).unwrap();
    assert_eq!(bench.write(&cpuset("cpuset.cpus"), "\n"), Err(Errno::NOSPC));
    assert!(
        bench
            .read("headroom-testbed/proc/self/cgroup")
            .unwrap()
            .contains("cpuset:/web")
    );
    assert_eq!(
        fs::remove_dir(bench.path(&cpuset(""))).map_err(errno),
        Err(Errno::BUSY)
    );
    bench.write("fs/cgroup/cpuset/cgroup.procs", &me).unwrap();
    fs::remove_dir(bench.path(&cpuset(""))).unwrap();
    assert!(bench.read(&cpu("cpu.shares")).is_ok());
}
