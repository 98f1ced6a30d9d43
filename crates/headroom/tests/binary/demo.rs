//! `headroom demo`: it ends well, stops at once, and leaves neither a group nor a process.

use crate::common::{
    Program, assert_has, children_of, exists_anywhere, fuse_or_skipped, guard_of, headroom, is_alive, kill,
    measuring, number, root_or_skipped, run, succeeds, undo_left, wait,
};
use crate::contract::assert_summary;
use rustix::process::Signal;
use std::fs;
use std::path::Path;
use std::process::Command;
use tempfile::TempDir;

/// A demo in a folder of its own.
struct Demo {
    program: Program,
    children: Vec<u32>,
    groups: Vec<String>,
}

impl Demo {
    /// Starts it on given hardware, and waits until it measures its wiki.
    fn start(folder: &Path, hardware: &str) -> Self {
        let mut program = Program::start(
            headroom("demo --single --duration 30 --cores 0.5 --json --no-view")
                // Not slo-power: where the machine is busy, what one core is measured to serve can be too little for its
                // Equation 2, which then refuses the target.
                .args(["--laws", "fixed,headroom", "--hardware", hardware, "--run-dir"])
                .arg(folder.join("run"))
                .arg("--out")
                .arg(folder.join("out")),
        );
        program.said("measuring what one core serves");
        let (demo, server) = (
            format!("headroom-demo-{}", program.pid()),
            format!("headroom-emulated-{}", program.pid()),
        );
        let children = children_of(program.pid());
        let groups = match hardware {
            "emulated" => vec![server.clone(), format!("{server}/{demo}")],
            _ => vec![demo],
        };
        assert!(groups.iter().all(|group| exists_anywhere(group)), "{groups:?}");
        // The wiki and the guard, and the emulated server where there is one.
        assert_eq!(children.len(), 1 + groups.len());
        Self {
            program,
            children,
            groups,
        }
    }

    fn assert_nothing_is_left(&self, folder: &Path) {
        wait("nothing of it is left", || {
            let groups = self.groups.iter().any(|group| exists_anywhere(group));
            let children = self.children.iter().any(|pid| is_alive(*pid));
            !groups && !children && !undo_left(&folder.join("run"))
        });
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
        assert!(!mounts.contains(folder.to_str().unwrap()), "{mounts}");
    }
}

fn folder(hardware: &str) -> Option<TempDir> {
    let can = match hardware {
        "emulated" => fuse_or_skipped("the demo on emulated hardware"),
        _ => root_or_skipped("the demo"),
    };
    can.then(|| tempfile::tempdir().unwrap())
}

#[test]
fn compares_two_laws_on_emulated_hardware_and_leaves_a_report() {
    let _one_at_a_time = measuring();
    let Some(folder) = folder("emulated") else { return };
    let folder = folder.path();
    let mut demo = Demo::start(folder, "emulated");
    demo.program.succeeds();
    demo.assert_nothing_is_left(folder);
    let summaries = demo.program.json();
    assert_eq!(summaries.as_array().map(Vec::len), Some(2));
    let too_busy = summaries
        .as_array()
        .unwrap()
        .iter()
        .any(|summary| number(summary, "latency_ms.p999") > 4_000.0);
    if too_busy {
        println!(
            "skipped: that no request of the demo fails and both laws are offered the same: the machine was too busy to \
             answer them in time"
        );
    }
    for (summary, law) in summaries.as_array().unwrap().iter().zip(["fixed", "headroom"]) {
        // What the law before left unanswered is answered in the time of the next.
        let before = if too_busy { f64::INFINITY } else { 64.0 };
        assert_summary(summary, law, "emulated", 16.0, before);
        assert_eq!(summary["energy_j"]["source"], "emulated");
        if !too_busy {
            let failed = number(summary, "requests.failed");
            assert_eq!(failed, 0.0, "{summary}\n{}", demo.program.err());
        }
        assert!(number(summary, "duration_s") >= 30.0);
        assert_eq!(number(summary, "seed"), 1.0);
        assert!(
            summary["trace"].as_str().unwrap().contains("wikipedia"),
            "{summary}"
        );
    }
    // Both were offered the same requests, up to those under way where one run ends and the next begins.
    let offered = |at: usize| number(&summaries[at], "requests.offered");
    assert!(too_busy || (offered(0) - offered(1)).abs() <= 64.0, "{summaries}");
    let html = fs::read_to_string(folder.join("out/demo.html")).unwrap();
    assert!(html.contains("headroom") && html.contains("fixed") && html.contains("<svg"));
    // A saving is printed where the comparison holds, and nowhere else; on a busy machine it does not.
    let comparison = &summaries[1]["comparison"];
    let holds = comparison["holds"].as_bool().unwrap();
    assert_eq!(comparison["saving"].is_number(), holds, "{comparison}");
    assert_eq!(
        comparison["why"].as_array().unwrap().is_empty(),
        holds,
        "{comparison}"
    );
    assert_eq!(html.contains("the comparison does not hold: "), !holds);
    assert_eq!(
        html.contains("% less energy than fixed") || html.contains("% more energy than fixed"),
        holds
    );
    for summary in summaries.as_array().unwrap() {
        assert!(summary["conditions"]["bystanders"].is_number(), "{summary}");
        let command = summary["provenance"]["command"].as_str().unwrap();
        assert!(
            command.starts_with("headroom demo --single --duration 30 "),
            "{command}"
        );
    }
    let load = |at: usize| summaries[at]["provenance"]["load"].as_str().unwrap().to_owned();
    assert_eq!(load(0), load(1), "both were offered the same trace");
    assert!(html.contains("Where these figures come from") && html.contains(&load(0)));
    assert!(folder.join("out/headroom.db").exists());
    let err = demo.program.err();
    assert_has(
        &err,
        &[
            "an emulated server of 2 x 8 cores",
            "Every watt is emulated",
            "held by the hardware (rapl)",
        ],
    );
}

fn stops_at_once(hardware: &str) {
    let Some(folder) = folder(hardware) else { return };
    let mut demo = Demo::start(folder.path(), hardware);
    demo.program.said("fixed: 30 s of the day");
    demo.program.signal(Signal::INT);
    demo.program.succeeds();
    assert_has(demo.program.err(), &["stopped"]);
    assert!(
        !demo.program.err().contains("headroom: 30 s of the day"),
        "no further law is tried"
    );
    assert_eq!(demo.program.out(), "");
    demo.assert_nothing_is_left(folder.path());
}

#[test]
fn stops_at_once_in_the_middle_of_a_day() {
    stops_at_once("real");
    stops_at_once("emulated");
}

#[test]
fn after_kill_9_nothing_is_left_on_emulated_hardware() {
    let Some(folder) = folder("emulated") else { return };
    for _ in 0..2 {
        let mut killed = Demo::start(folder.path(), "emulated");
        killed.program.kill();
        killed.assert_nothing_is_left(folder.path());
    }
}

/// Kills a demo on emulated hardware together with its emulated server, and with the guard where that is told: nothing of it
/// can take anything away any more.
fn kill_with_its_server(demo: &mut Demo, and_guard: bool) {
    let guard = guard_of(demo.program.pid());
    // Stopped first, so that it starts nothing again.
    demo.program.signal(Signal::STOP);
    let children = demo.children.iter().filter(|pid| and_guard || **pid != guard);
    children.for_each(|pid| kill(*pid));
    demo.program.kill();
    wait("they are dead", || {
        let alive = |pid: &u32| (and_guard || *pid != guard) && is_alive(*pid);
        !demo.children.iter().any(alive)
    });
}

fn mounts_of(folder: &Path) -> Vec<String> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let ours = mounts
        .lines()
        .filter(|line| line.contains(folder.to_str().unwrap()));
    ours.map(str::to_owned).collect()
}

fn assert_no_folder_is_left(run: &Path, but: Option<u32>) {
    let left: Vec<String> = fs::read_dir(run)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.starts_with("demo-"))
        .filter(|name| but.is_none_or(|pid| !name.starts_with(&format!("demo-{pid}"))))
        .collect();
    assert!(left.is_empty(), "{left:?}");
}

/// A command in a PID namespace of its own.
fn elsewhere() -> Command {
    let mut command = Command::new("unshare");
    command.args(["--pid", "--fork", "--mount-proc"]);
    command
}

#[test]
fn what_a_demo_left_that_was_killed_with_its_server_is_taken_away_by_the_guard_a_release_or_the_next() {
    let Some(folder) = folder("emulated") else { return };
    let folder = folder.path();
    let run_dir = folder.join("run");

    let mut killed = Demo::start(folder, "emulated");
    kill_with_its_server(&mut killed, false);
    wait("the guard has taken away the mount", || {
        mounts_of(folder).is_empty()
    });
    killed.assert_nothing_is_left(folder);
    assert_no_folder_is_left(&run_dir, None);

    let mut killed = Demo::start(folder, "emulated");
    let at = run_dir.join(format!("demo-{}", killed.program.pid()));
    kill_with_its_server(&mut killed, true);
    assert_eq!(mounts_of(folder).len(), 1);
    assert!(exists_anywhere(&killed.groups[0]));
    let release = succeeds(headroom("release --run-dir").arg(&run_dir));
    let said = release.out();
    assert_has(
        &said,
        &[
            &format!("detached {}\n", at.display()),
            &format!("removed {}\n", at.display()),
            &format!("{}\n", killed.groups[1]),
        ],
    );
    killed.assert_nothing_is_left(folder);
    assert_no_folder_is_left(&run_dir, None);

    let mut killed = Demo::start(folder, "emulated");
    kill_with_its_server(&mut killed, true);
    assert_eq!(mounts_of(folder).len(), 1);
    let mut next = Demo::start(folder, "emulated");
    assert!(!exists_anywhere(&killed.groups[0]), "{}", next.program.err());
    assert_eq!(mounts_of(folder).len(), 1, "its own");
    assert_no_folder_is_left(&run_dir, Some(next.program.pid()));
    let err = next.program.err();
    assert_has(&err, &["left by a demo that was killed: detached"]);
    assert!(!err.contains("NOT"), "{err}");
    // The living one is left alone, and goes on.
    let out = folder.join("another");
    let mut commands = [headroom(""), headroom("")];
    commands[0].args(["release", "--run-dir"]).arg(&run_dir);
    commands[1]
        .args(["demo", "--single", "--hardware", "emulated", "--no-view", "--out"])
        .args([&out, Path::new("--run-dir"), &run_dir]);
    let mut refused: Vec<Program> = commands.map(|mut command| run(&mut command)).into();
    // From a container that has its run folder, its process is not to be seen.
    let mut unseen = elsewhere();
    if unseen.arg("true").status().is_ok_and(|status| status.success()) {
        let mut release = elsewhere();
        release.args([env!("CARGO_BIN_EXE_headroom"), "release", "--run-dir"]);
        refused.push(run(release.arg(&run_dir)));
    } else {
        println!(
            "skipped: a release in another PID namespace: `unshare --pid` (util-linux) cannot make one here"
        );
    }
    for other in refused {
        let err = other.err();
        assert_has(&err, &["is in use by a running headroom"]);
        assert!(!err.contains("an emulated server"), "it made nothing: {err}");
        assert_eq!((mounts_of(folder).len(), other.out().as_str()), (1, ""));
    }
    next.program.stop();
    next.assert_nothing_is_left(folder);
    assert_no_folder_is_left(&run_dir, None);
}

#[test]
fn after_kill_9_its_wiki_ends_and_its_group_is_removed_at_once_or_by_the_next_start() {
    let Some(folder) = folder("real") else { return };
    let mut killed = Demo::start(folder.path(), "real");
    killed.program.kill();
    killed.assert_nothing_is_left(folder.path());

    let mut killed = Demo::start(folder.path(), "real");
    killed.program.kill_with_guard();
    wait("the wiki ends by itself", || {
        !killed.children.iter().any(|pid| is_alive(*pid))
    });
    assert!(exists_anywhere(&killed.groups[0]) && undo_left(&folder.path().join("run")));

    let mut next = Demo::start(folder.path(), "real");
    assert!(!exists_anywhere(&killed.groups[0]), "{}", next.program.err());
    assert_has(next.program.err(), &["left by a run that was killed"]);
    next.program.stop();
    next.assert_nothing_is_left(folder.path());
}
