//! Telemetry lost: a thread of the gateway that does not answer. A thread can be stopped alone where version 1's
//! freezer is mounted, which freezes tasks one by one.

use crate::common::{Config, Group, Up, free_address, gateway_in, number, until, wait};
use std::fs;
use std::path::{Path, PathBuf};

/// A group of the freezer; dropped, everything in it runs again.
struct Freezer(PathBuf);

impl Freezer {
    fn new() -> Option<Self> {
        let dir = Path::new("/sys/fs/cgroup/freezer").join(format!("headroom-e2e-{}", std::process::id()));
        if let Err(error) = fs::create_dir(&dir) {
            println!(
                "skipped: stopping one thread needs version 1's freezer: {}: {error}",
                dir.display()
            );
            return None;
        }
        Some(Self(dir))
    }

    fn freeze(&self, thread: u32) {
        fs::write(self.0.join("tasks"), thread.to_string()).unwrap();
        fs::write(self.0.join("freezer.state"), "FROZEN").unwrap();
    }

    fn thaw(&self) {
        let _ = fs::write(self.0.join("freezer.state"), "THAWED");
    }
}

impl Drop for Freezer {
    fn drop(&mut self) {
        self.thaw();
        for task in fs::read_to_string(self.0.join("tasks"))
            .unwrap_or_default()
            .lines()
        {
            let _ = fs::write(self.0.parent().unwrap().join("tasks"), task);
        }
        let _ = fs::remove_dir(&self.0);
    }
}

/// A thread of a process, by its name.
fn thread_named(pid: u32, name: &str) -> u32 {
    fs::read_dir(format!("/proc/{pid}/task"))
        .unwrap()
        .filter_map(|entry| entry.ok())
        .find(|entry| fs::read_to_string(entry.path().join("comm")).is_ok_and(|comm| comm.trim() == name))
        .and_then(|entry| entry.file_name().to_str()?.parse().ok())
        .unwrap_or_else(|| panic!("{pid} has no thread {name}"))
}

#[test]
fn without_telemetry_for_five_periods_everything_goes_to_full() {
    let Some(group) = Group::new() else { return };
    let before = group.settings();
    let config = Config::new(&group, free_address());
    let mut up = Up::start(&config);
    // Dropped first, for a frozen thread cannot even be killed.
    let Some(freezer) = Freezer::new() else { return };
    // The law waits five periods before it takes a core.
    let full = up.metrics().sum("headroom_cores").unwrap();
    until("the law saves", || {
        (up.metrics().sum("headroom_cores")? < full - 0.15 && group.cores().is_some()).then_some(())
    });

    freezer.freeze(thread_named(gateway_in(&config.run_dir()).unwrap(), "gateway-0"));
    up.counted("headroom_telemetry_lost_periods_total", 5.0);
    let to_full = up.program.says("that everything goes to full", |err| {
        err.lines()
            .find(|line| line.contains("everything to full"))
            .map(str::to_owned)
    });
    assert!(to_full.contains("no telemetry for 5 periods"), "{to_full}");
    wait("everything is on, and has been for a period", || {
        let on = group.cores().is_none_or(|cores| cores > full - 0.01);
        on && up.metrics().sum("headroom_cores") == Some(full)
    });
    let metrics = up.metrics();
    let by_rule = |rule: &str| {
        let of = metrics.of("headroom_decisions_total");
        of.filter(|sample| sample.labels["rule"] == rule)
            .map(|sample| sample.value)
            .sum::<f64>()
    };
    // On a busy machine a period may have been lost before.
    assert!(by_rule("telemetry-lost-hold") >= 4.0);
    assert!(by_rule("telemetry-lost-full") >= 1.0);
    assert_eq!(up.admin("/healthz").status, 200, "the loop itself is well");
    assert_eq!(up.admin("/readyz").status, 503, "but not ready");

    freezer.thaw();
    wait("it is ready again", || up.admin("/readyz").status == 200);
    until("the law saves again", || {
        group.cores().filter(|cores| *cores < full - 0.15)
    });
    up.program.stop();
    assert_eq!(group.settings(), before);
    assert!(number(&up.program.json(), "telemetry_lost_periods") >= 5.0);
}
