//! The fault suite: seeded faults against live programs, and whether each of them leaves a limit, a server that is off, a process, a
//! mount, a file or a control group behind. `make faults` runs all of it, `make test` one run of each fault.
//!
//! It knows the program by its command line, its configuration, its run directory and the kernel's files alone.

#[path = "../common/mod.rs"]
mod common;
mod draw;
mod kinds;
mod lever;
mod oracle;
mod report;
mod subject;
mod suite;
mod world;

use suite::{Settings, run_suite};

/// What the suite stands on that this machine or user may lack; the reason where it does.
fn missing() -> Option<&'static str> {
    if !rustix::process::geteuid().is_root() {
        return Some("faults need root: control groups, mounts, namespaces");
    }
    if !std::path::Path::new("/dev/fuse").exists() {
        return Some("faults need emulated hardware, which needs /dev/fuse");
    }
    if common::hierarchies().is_empty() {
        return Some("no control group hierarchy with the cpu controller is mounted");
    }
    None
}

#[test]
fn one_run_of_each_fault_leaves_nothing_behind() {
    if let Some(why) = missing() {
        println!("skipped: {why}");
        return;
    }
    let report = run_suite(&Settings::short());
    println!("{}{}", report.troubles(), report.table());
    assert!(
        report.is_clean(),
        "something was left behind or went wrong: see above"
    );
}

#[test]
#[ignore = "many minutes: make faults"]
fn whole_suite() {
    if let Some(why) = missing() {
        println!("skipped: {why}");
        return;
    }
    let report = run_suite(&Settings::from_environment());
    println!("{}{}", report.troubles(), report.table());
    report.write_json();
    assert!(
        report.is_clean(),
        "something was left behind or went wrong: see above"
    );
}
