//! `headroom demo` on two clusters: each law has each of them for a day, and nothing is left, however it ends.

use crate::common::{
    Program, assert_has, exists_anywhere, fuse_or_skipped, headroom, is_alive, measuring, number, undo_left,
    wait,
};
use std::fs;
use std::path::Path;

/// Emulated servers of both clusters.
const SERVERS: usize = 16;

fn start(folder: &Path) -> Program {
    // Other tests run beside it.
    let mut command = headroom("demo --duration 30 --cores 0.5 --nice 0 --json --no-view --run-dir");
    command
        .arg(folder.join("run"))
        .arg("--out")
        .arg(folder.join("out"));
    Program::start(&mut command)
}

fn groups(demo: &Program) -> Vec<String> {
    let name = |server| format!("headroom-emulated-{}-{server}", demo.pid());
    (1..=SERVERS).map(name).collect()
}

/// This program's processes whose command line names the folder.
fn processes(folder: &Path) -> Vec<u32> {
    let name = folder.to_str().unwrap();
    let all = fs::read_dir("/proc").unwrap().flatten();
    all.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(|pid| {
            let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            String::from_utf8_lossy(&words).contains(name) && is_alive(*pid)
        })
        .collect()
}

fn assert_nothing_is_left(folder: &Path, groups: &[String]) {
    wait("nothing of it is left", || {
        !groups.iter().any(|group| exists_anywhere(group))
            && processes(folder).is_empty()
            && !undo_left(&folder.join("run"))
    });
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    assert!(!mounts.contains(folder.to_str().unwrap()), "{mounts}");
    wait("no folder is left", || {
        let mut left = fs::read_dir(folder.join("run")).unwrap().flatten();
        !left.any(|entry| entry.file_name().to_string_lossy().starts_with("demo-"))
    });
}

#[test]
fn two_laws_change_places_on_the_same_requests_and_nothing_is_left() {
    let _one_at_a_time = measuring();
    if !fuse_or_skipped("the demo on emulated clusters") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let mut demo = start(folder.path());
    let groups = groups(&demo);
    demo.succeeds();
    assert_nothing_is_left(folder.path(), &groups);
    let summaries = demo.json();
    let runs = summaries.as_array().unwrap();
    let laws: Vec<_> = runs.iter().map(|run| run["law"].as_str().unwrap()).collect();
    assert_eq!(laws, ["fixed", "joint", "fixed", "joint"]);
    for run in runs {
        assert_eq!(run["energy_j"]["source"], "emulated", "{run}");
        assert_eq!(run["provenance"]["load"], runs[0]["provenance"]["load"]);
        // Of twelve servers, between all of them off and all of them busy.
        let watts = number(run, "power_w.consumed_mean");
        assert!((12.0 * 3.0..12.0 * 52.0).contains(&watts), "{run}");
    }
    for run in [&runs[1], &runs[3]] {
        let notes = run["notes"].to_string();
        let causes = [
            "by fewer joules for the work",
            "by deeper sleep",
            "by servers off",
            "by switching",
        ];
        assert_has(&notes, &causes);
    }
    for run in runs {
        // The platform and servers that are off are allocated as they are consumed.
        let (consumed, allocated) = (
            number(run, "power_w.consumed_mean"),
            number(run, "power_w.allocated_mean"),
        );
        assert!(consumed < allocated, "{run}");
    }
    let cluster = |run: usize, name: &str| {
        runs[run]["notes"]
            .to_string()
            .contains(&format!("the {name} cluster"))
    };
    for (run, name) in [(0, "left"), (1, "right"), (2, "right"), (3, "left")] {
        assert!(cluster(run, name), "{}", runs[run]["notes"]);
    }
    let out = folder.path().join("out");
    assert_has(
        fs::read_to_string(out.join("demo.html")).unwrap(),
        &["Servers on", "<svg"],
    );
    let agent = fs::read_to_string(out.join("demo/right/agent-n4.toml")).unwrap();
    assert_has(agent, &["[service]", "cgroup = \"/web\""]);
}

#[test]
fn after_kill_9_two_clusters_take_themselves_away() {
    // Two demos at once are 32 servers: on a busy machine one of them may not come up in time.
    let _one_at_a_time = measuring();
    if !fuse_or_skipped("the demo on emulated clusters") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let mut demo = start(folder.path());
    demo.said("measuring what one core serves");
    let groups = groups(&demo);
    assert!(groups.iter().all(|group| exists_anywhere(group)), "{groups:?}");
    assert!(processes(folder.path()).len() > SERVERS);
    demo.kill();
    assert_nothing_is_left(folder.path(), &groups);
}
