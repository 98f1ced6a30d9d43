//! RAPL and HSMP limits: what is written, what is read back, what the kernel refuses, and what is put back.

use super::{Bench, HSMP_ANSWERS};
use crate::testing::says;
use headroom_node::limit::{HardwareCap, HsmpLimits, PowerLimitError, RaplLimits};
use headroom_node::restore::{Ledger, Outcome, Registry, recover};
use headroom_testbed::hardware::config::{LimitKind, RaplConfig};
use headroom_testbed::hardware::{HardwareConfig, Operation};
use headroom_units::Watts;
use rustix::io::Errno;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

fn watts(value: f64) -> Option<Watts> {
    Some(Watts::new(value))
}

#[test]
fn a_cap_is_split_quantised_read_back_and_lifted() {
    let Some(bench) = Bench::usual() else { return };
    let registry = Registry::new();
    let mut limits = RaplLimits::open(&bench.roots(), &registry).unwrap();
    let bounds = limits.bounds();
    assert_eq!(
        (bounds.smallest, bounds.largest),
        (Watts::new(20.0), Watts::new(100.0))
    );
    let window = bench.zone(0, "constraint_0_time_window_us");
    // 60.3 W are 30.15 each, and the hardware holds eighths of a watt.
    let set = limits.set(watts(60.3)).unwrap();
    assert_eq!((set.limit, set.bounded), (Watts::new(60.25), None));
    assert_eq!((bench.limit_w(0, 0), bench.limit_w(1, 0)), (30.125, 30.125));
    assert_eq!(bench.limit_w(0, 1), 30.125, "bursts are held too");
    assert_eq!(
        bench.zone(0, "constraint_0_time_window_us"),
        window,
        "the window is left alone"
    );
    // What the kernel would cut to 15 bits (4096 W is 0 W) never reaches it.
    for (asked, held) in [(4096.0 * 2.0, 100.0), (1.0, 20.0)] {
        let set = limits.set(watts(asked)).unwrap();
        assert_eq!(
            (set.limit, set.bounded.is_some()),
            (Watts::new(held), true),
            "{asked}"
        );
    }
    assert_eq!(limits.set(None).unwrap().limit, Watts::new(100.0));
    assert_eq!((bench.limit_w(0, 0), bench.limit_w(0, 1)), (50.0, 60.0));
    limits.set(watts(50.0)).unwrap();
    drop(limits);
    assert_eq!((bench.limit_w(1, 0), bench.limit_w(1, 1)), (50.0, 60.0));
}

#[test]
fn limits_are_found_by_name_and_not_by_number() {
    let Some(bench) = Bench::new(HardwareConfig {
        rapl: RaplConfig {
            constraints: vec![LimitKind::PeakPower, LimitKind::ShortTerm, LimitKind::LongTerm],
            ..RaplConfig::default()
        },
        ..HardwareConfig::default()
    }) else {
        return;
    };
    let peak = bench.limit_w(0, 0);
    let registry = Registry::new();
    let mut limits = RaplLimits::open(&bench.roots(), &registry).unwrap();
    limits.set(watts(60.0)).unwrap();
    assert_eq!(
        (bench.limit_w(0, 0), bench.limit_w(0, 1), bench.limit_w(0, 2)),
        (peak, 30.0, 30.0)
    );
    let report = registry.restore_all();
    assert!(report.is_clean() && report.restored() == 1, "{report}");
    assert_eq!((bench.limit_w(0, 1), bench.limit_w(0, 2)), (60.0, 50.0));
    says(limits.set(watts(40.0)).unwrap_err(), &["put back"]);
}

#[test]
fn a_maximum_of_zero_or_without_data_is_no_maximum() {
    for fault in [
        "reads constraint_0_max_power_uw 0",
        "error read ENODATA constraint_0_max_power_uw",
    ] {
        let Some(bench) = Bench::usual() else { return };
        bench.fault(fault);
        let mut limits = RaplLimits::open(&bench.roots(), &Registry::new()).unwrap();
        assert_eq!(limits.bounds().largest, Watts::new(100.0), "{fault}");
        assert_eq!(
            limits.set(watts(70.0)).unwrap().limit,
            Watts::new(70.0),
            "{fault}"
        );
    }
}

#[test]
fn a_limit_that_is_switched_off_is_switched_on_with_it_and_off_again() {
    let Some(bench) = Bench::usual() else { return };
    bench.write("class/powercap/intel-rapl:0/enabled", "0");
    let mut limits = RaplLimits::open(&bench.roots(), &Registry::new()).unwrap();
    limits.set(watts(60.0)).unwrap();
    assert_eq!(bench.zone(0, "enabled"), "1");
    drop(limits);
    assert_eq!(
        (bench.zone(0, "enabled"), bench.limit_w(0, 0)),
        ("0".into(), 50.0)
    );
}

#[test]
fn a_locked_limit_is_said_and_the_other_package_goes_back() {
    let Some(bench) = Bench::usual() else { return };
    bench.fault("locked intel-rapl:1");
    let mut limits = RaplLimits::open(&bench.roots(), &Registry::new()).unwrap();
    let error = limits.set(watts(60.0)).unwrap_err();
    assert!(
        matches!(&error, PowerLimitError::Locked { zone, .. } if zone == "package-1"),
        "{error}"
    );
    assert!(
        error.to_string().contains("unlock power limits in the BIOS"),
        "{error}"
    );
    assert_eq!(bench.limit_w(0, 0), 50.0, "all or none");
    drop(limits);
    bench.clear();
    let mut limits = RaplLimits::open(&bench.roots(), &Registry::new()).unwrap();
    limits.set(watts(60.0)).unwrap();
    assert_eq!((bench.limit_w(0, 0), bench.limit_w(1, 0)), (30.0, 30.0));
}

#[test]
fn a_limit_that_somebody_switched_off_is_left_off() {
    let Some(bench) = Bench::usual() else { return };
    let mut limits = RaplLimits::open(&bench.roots(), &Registry::new()).unwrap();
    limits.set(watts(80.0)).unwrap();
    bench.write("class/powercap/intel-rapl:1/enabled", "0");
    assert_eq!(limits.set(watts(60.0)).unwrap().foreign[0].seen, "0");
    limits.set(watts(50.0)).unwrap();
    let is_off = bench.read("class/powercap/intel-rapl:1/enabled");
    assert_eq!(
        (is_off.as_str(), bench.limit_w(1, 0)),
        ("0", 50.0),
        "as found, and off"
    );
    drop(limits);
    assert_eq!(bench.read("class/powercap/intel-rapl:1/enabled"), "0");
    assert_eq!(bench.limit_w(0, 0), 50.0);
}

#[test]
fn every_answer_to_a_write_is_an_error_with_a_remedy_and_changes_nothing() {
    let Some(bench) = Bench::usual() else { return };
    let mut limits = RaplLimits::open(&bench.roots(), &Registry::new()).unwrap();
    for (on, errno, word) in [
        (Operation::Write, Errno::INVAL, "refuses this value"),
        (Operation::Write, Errno::NODATA, "locked by the firmware"),
        (Operation::Write, Errno::IO, "dmesg"),
        (Operation::Open, Errno::ACCESS, "run as root"),
        (Operation::Open, Errno::ROFS, "read-only"),
    ] {
        bench.fails(on, errno, "intel-rapl:1/constraint_0_power_limit_uw");
        says(limits.set(watts(60.0)).unwrap_err(), &[word]);
        bench.clear();
        assert_eq!(
            (bench.limit_w(0, 0), bench.limit_w(1, 0)),
            (50.0, 50.0),
            "{errno}"
        );
    }
    for asked in [0.0, -5.0, f64::NAN, f64::INFINITY] {
        assert!(
            matches!(limits.set(watts(asked)), Err(PowerLimitError::NotACap { .. })),
            "{asked}"
        );
    }
    bench.fault("emptied class/powercap");
    says(
        RaplLimits::open(&bench.roots(), &Registry::new()).unwrap_err(),
        &["container masks it"],
    );
}

#[test]
fn another_writer_is_said_and_theirs_is_left_alone() {
    let Some(bench) = Bench::usual() else { return };
    let mut limits = RaplLimits::open(&bench.roots(), &Registry::new()).unwrap();
    limits.set(watts(60.0)).unwrap();
    bench.write(
        "class/powercap/intel-rapl:1/constraint_0_power_limit_uw",
        "45000000",
    );
    assert_eq!(limits.foreign_writes().unwrap()[0].seen, "45000000");
    assert_eq!(
        limits.set(watts(50.0)).unwrap().limit,
        Watts::new(70.0),
        "25 of ours, 45 of theirs"
    );
    assert_eq!(bench.limit_w(1, 0), 45.0);
    drop(limits);
    assert_eq!((bench.limit_w(0, 0), bench.limit_w(1, 0)), (50.0, 45.0));
}

/// A registry with a record in a run directory of its own, as a program has.
fn program(bench: &Bench, run_dir: &Path) -> Registry {
    let registry = Registry::new();
    let (ledger, _) = Ledger::open(run_dir, &bench.roots()).unwrap();
    registry.attach(ledger).unwrap();
    registry
}

#[test]
fn a_machines_limits_have_one_owner_whatever_the_run_directory() {
    let Some(bench) = Bench::usual() else { return };
    let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let first = program(&bench, dirs[0].path());
    let second = program(&bench, dirs[1].path());
    let mut limits = RaplLimits::open(&bench.roots(), &first).unwrap();
    limits.set(watts(60.0)).unwrap();
    // The same program may open them again, as an agent does for each lease.
    drop(RaplLimits::open(&bench.roots(), &first).unwrap());
    let error = RaplLimits::open(&bench.roots(), &second).unwrap_err().to_string();
    let owner = format!(
        "pid {}, run directory {}",
        std::process::id(),
        dirs[0].path().display()
    );
    says(&error, &[&owner, "several --config"]);
    assert_eq!(bench.limit_w(1, 0), 30.0, "nothing was changed");
    drop((limits, first));
    RaplLimits::open(&bench.roots(), &second).unwrap();
    second.disown();
}

#[test]
fn amd_zones_have_no_limits_and_hsmp_has() {
    let Some(bench) = Bench::amd() else { return };
    says(
        RaplLimits::open(&bench.roots(), &Registry::new()).unwrap_err(),
        &["AMD"],
    );
    let cap = |socket: usize| bench.read(&format!("class/hwmon/hwmon{socket}/power1_cap"));
    let registry = Registry::new();
    let mut limits = HsmpLimits::open(&bench.roots(), &registry).unwrap();
    let set = limits.set(watts(70.0)).unwrap();
    assert_eq!(
        (set.limit, cap(0), cap(1)),
        (Watts::new(70.0), "35000000".into(), "35000000".into())
    );
    assert_eq!(limits.set(watts(1e9)).unwrap().limit, Watts::new(100.0));
    limits.set(watts(50.0)).unwrap();
    let answers = [&HSMP_ANSWERS[..], &[(Errno::INVAL, "refuses this value")]].concat();
    let mut asked = 50.0;
    bench.answers(Operation::Write, "hwmon1/power1_cap", &answers, || {
        // Another one each time, so that there is something to write.
        asked = 130.0 - asked;
        limits.set(watts(asked))
    });
    drop(limits);
    assert_eq!((cap(0), cap(1)), ("50000000".into(), "50000000".into()));
}

const TREE: &str = "HEADROOM_NODE_TEST_TREE";
const RUN_DIR: &str = "HEADROOM_NODE_TEST_RUN_DIR";

/// Not a test of its own: the process that is killed.
#[test]
#[ignore = "run by another test of this file"]
fn limiting_child() {
    let Ok(tree) = std::env::var(TREE) else { return };
    let roots = headroom_node::Roots::at(&tree, PathBuf::from(&tree).join("headroom-testbed/proc"));
    let registry = Registry::new();
    let (ledger, _) = Ledger::open(&PathBuf::from(std::env::var(RUN_DIR).unwrap()), &roots).unwrap();
    registry.attach(ledger).unwrap();
    let mut limits = RaplLimits::open(&roots, &registry).unwrap();
    limits.set(watts(60.3)).unwrap();
    println!("READY");
    for step in 0.. {
        // Never a multiple of the hardware's unit: what is in the file is never what was written.
        limits.set(watts(40.05 + f64::from(step % 40))).unwrap();
    }
}

#[test]
fn a_killed_process_leaves_limits_that_the_next_start_puts_back() {
    let Some(bench) = Bench::usual() else { return };
    let run_dir = bench.dir.path().join("run");
    for _ in 0..5 {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args([
                "--ignored",
                "--exact",
                "limits::limiting_child",
                "--nocapture",
                "--test-threads=1",
            ])
            .env(TREE, bench.emulated.root())
            .env(RUN_DIR, &run_dir)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .process_group(0);
        let mut child = command.spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        lines
            .map_while(Result::ok)
            .find(|line| line.contains("READY"))
            .expect("the child says that it is ready");
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(bench.limit_w(0, 0) < 50.0);
        let report = recover(&run_dir, &bench.roots()).unwrap();
        assert!(report.is_clean() && report.restored() == 1, "{report}");
        assert_eq!(
            (
                bench.limit_w(0, 0),
                bench.limit_w(0, 1),
                bench.limit_w(1, 0),
                bench.limit_w(1, 1)
            ),
            (50.0, 60.0, 50.0, 60.0)
        );
    }
    assert!(!fs::exists(run_dir.join("undo.json")).unwrap());
}

#[test]
fn what_cannot_be_put_back_is_said_and_the_rest_is() {
    let Some(bench) = Bench::usual() else { return };
    let registry = Registry::new();
    let mut limits = RaplLimits::open(&bench.roots(), &registry).unwrap();
    limits.set(watts(60.0)).unwrap();
    bench.fails(
        Operation::Write,
        Errno::NODATA,
        "intel-rapl:1/constraint_0_power_limit_uw",
    );
    let report = registry.restore_all();
    let failed: Vec<&Outcome> = report.failed().collect();
    assert!(
        failed.len() == 1 && failed[0].to_string().contains("package-1"),
        "{report}"
    );
    assert_eq!(bench.limit_w(0, 0), 50.0, "the other package is as it was found");
    bench.clear();
}
