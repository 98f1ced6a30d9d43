//! The guard: limits are lifted whatever happens to whoever set them, and nothing is limited while nobody would.

use crate::common::place::KillGroup;
use crate::common::process::StoppedThread;
use crate::common::{
    Config, Group, Program, Up, assert_has, children_of, guard_of, headroom, is_alive, refused, signal,
    succeeds, undo_left, until, wait,
};
use rustix::process::Signal;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::net::UnixDatagram;
use std::process::Command;
use std::time::Duration;

fn until_as_found(group: &Group, before: &BTreeMap<String, String>) {
    wait("everything is as it was found", || group.settings() == *before);
}

/// A group with a quota of 0.9 cores, and its settings.
fn limited() -> Option<(Group, BTreeMap<String, String>)> {
    let group = Group::new()?;
    group.limit(90_000, 100_000);
    let before = group.settings();
    Some((group, before))
}

#[test]
fn a_guard_that_is_killed_or_hangs_is_replaced_and_that_is_reported() {
    let Some((group, before)) = limited() else { return };
    let config = Config::idle(&group);
    let mut up = Up::start(&config);
    assert_eq!(up.metrics().sum("headroom_guard_up"), Some(1.0));
    assert_eq!(up.metrics().sum("headroom_guard_restarts_total"), Some(0.0));
    for (restarts, how) in [(1.0, Signal::KILL), (2.0, Signal::STOP)] {
        group.until_law_saves(0.9);
        let guard = guard_of(up.program.pid());
        signal(guard, how);
        up.counted("headroom_guard_restarts_total", restarts);
        assert_ne!(guard_of(up.program.pid()), guard, "another one");
        wait("no zombie is left", || {
            !children_of(up.program.pid()).contains(&guard)
        });
        assert!(!is_alive(guard));
    }
    assert_eq!(up.metrics().sum("headroom_guard_up"), Some(1.0));
    group.until_law_saves(0.9);
    let err = up.program.err();
    assert_has(&err, &["ERROR", "has ended: nothing is limited"]);
    assert_has(&err, &["gave no answer for"]);
    // The status carries it with the next period.
    wait("the status reports two restarts", || {
        let status = up.status();
        status["guard"]["up"] == true && status["guard"]["restarts"] == 2
    });
    // The newest guard does what the first would have done.
    let guard = guard_of(up.program.pid());
    up.program.kill();
    until_as_found(&group, &before);
    wait("the guard ends", || !is_alive(guard));
}

#[test]
fn half_a_record_of_a_run_that_was_killed_while_it_wrote_it_is_taken_away() {
    let Some((group, before)) = limited() else { return };
    let config = Config::idle(&group);
    let mut up = Up::start(&config);
    group.until_law_saves(0.9);
    // Paused, it has nothing to put back, as before its first record.
    let mut pause = headroom("pause --run-dir");
    succeeds(pause.arg(config.run_dir()));
    wait("nothing is recorded", || !undo_left(&config.run_dir()));
    fs::write(config.run_dir().join("undo.json.new"), "{\"version\":").unwrap();
    up.program.kill();
    wait("half a record is taken away", || !undo_left(&config.run_dir()));
    assert_eq!(group.settings(), before);
}

#[test]
fn a_kill_of_the_group_that_it_was_started_in_leaves_no_limit() {
    let Some((group, before)) = limited() else { return };
    if !KillGroup::is_possible() {
        println!("skipped: no control group of version 2 with cgroup.kill can be made");
        return;
    }
    let unit = KillGroup::new(&format!("headroom-e2e-unit-{}", std::process::id())).unwrap();
    let config = Config::idle(&group);
    let mut program = Program::start(unit.enter(&config.command()));
    group.until_law_saves(0.9);
    let guard = guard_of(program.pid());
    unit.kill().unwrap();
    program.wait();
    until_as_found(&group, &before);
    wait("nothing is recorded", || !undo_left(&config.run_dir()));
    wait("the guard ends", || !is_alive(guard));
}

#[test]
fn a_stopped_run_has_its_limits_lifted_and_goes_on_when_it_is_continued() {
    let Some((group, before)) = limited() else { return };
    let config = Config::idle(&group);
    let mut up = Up::start(&config);
    group.until_law_saves(0.9);
    up.program.signal(Signal::STOP);
    let tight = group.settings();
    assert_ne!(tight, before);
    for _ in 0..2 {
        until_as_found(&group, &before);
        assert!(undo_left(&config.run_dir()), "it lives, and its record stays");
        // What is limited again while it is silent, as by another thread of its, is lifted again.
        for name in ["cpu.cfs_period_us", "cpu.cfs_quota_us", "cpu.max"] {
            if let Some(value) = tight.get(name) {
                fs::write(group.dir().join(name), value).unwrap();
            }
        }
    }
    until_as_found(&group, &before);
    up.program.said("gave no sign of life");
    up.program.signal(Signal::CONT);
    group.until_law_saves(0.9);
    up.program.stop();
    assert_eq!(group.settings(), before);
    assert!(!undo_left(&config.run_dir()));
}

#[test]
fn a_single_stopped_control_thread_has_its_limits_lifted() {
    let Some((group, before)) = limited() else { return };
    let config = Config::idle(&group);
    let mut up = Up::start(&config);
    group.until_law_saves(0.9);
    // The loop runs in the first thread.
    let Some(stopped) = StoppedThread::asleep_or_skipped(up.program.pid()) else {
        return;
    };
    until_as_found(&group, &before);
    wait("it is reported", || {
        let text = up.admin("/readyz").body;
        text.contains("the control loop gave no sign of life")
    });
    assert_eq!(up.metrics().sum("headroom_guard_up"), Some(1.0));
    drop(stopped);
    group.until_law_saves(0.9);
    up.program.stop();
    assert_eq!(group.settings(), before);
}

/// The same command as the first process of a PID namespace of its own.
fn contained(command: &Command) -> Command {
    let mut outer = Command::new("unshare");
    outer
        .args(["--pid", "--fork", "--mount-proc", "--"])
        .arg(command.get_program())
        .args(command.get_args())
        .env_remove("HEADROOM_ALLOW_GUARD_INSIDE")
        .env_remove("RUST_LOG");
    outer
}

fn can_unshare() -> bool {
    let mut command = contained(&Command::new("true"));
    let can = command.status().is_ok_and(|status| status.success());
    if !can {
        println!("skipped: a PID namespace cannot be made by unshare of util-linux");
    }
    can
}

#[test]
fn in_a_pid_namespace_nothing_is_limited_without_a_guard_outside() {
    let Some((group, before)) = limited() else { return };
    if !can_unshare() {
        return;
    }
    let config = Config::idle(&group);
    refused(
        contained(&config.command()),
        &["headroom guard --serve --run-dir", "--allow-guard-inside"],
    );
    assert_eq!(group.settings(), before);

    let serve = || {
        let mut command = headroom("guard --serve --run-dir");
        command.arg(config.run_dir());
        let mut guard = Program::start(&mut command);
        guard.said("guarding ");
        guard
    };
    let mut guard = serve();
    let mut outer = Program::start(&mut contained(&config.command()));
    group.until_law_saves(0.9);
    // Without its guard it gives everything back, and limits again when one is there.
    guard.kill();
    wait("everything is given back", || {
        group.cores().is_none_or(|cores| cores > 0.89)
    });
    outer.said("no guard stands");
    for _ in 0..10 {
        let cores = group.cores();
        assert!(
            cores.is_none_or(|cores| cores > 0.89),
            "limited without a guard: {cores:?}"
        );
        std::thread::sleep(Duration::from_millis(100));
    }
    let mut guard = serve();
    group.until_law_saves(0.9);

    let first = children_of(outer.pid());
    signal(first[0], Signal::KILL);
    outer.wait();
    until_as_found(&group, &before);
    wait("nothing is recorded", || !undo_left(&config.run_dir()));
    guard.stop();

    // Whoever accepts the risk may.
    let mut command = config.command();
    command.arg("--allow-guard-inside");
    let mut accepted = Program::start(&mut contained(&command));
    group.until_law_saves(0.9);
    signal(children_of(accepted.pid())[0], Signal::TERM);
    accepted.wait();
    until_as_found(&group, &before);
}

#[test]
fn a_service_manager_is_notified_by_the_thread_that_decides() {
    let Some((group, _)) = limited() else { return };
    let config = Config::idle(&group);
    let dir = tempfile::tempdir().unwrap();
    let at = dir.path().join("notify");
    let socket = UnixDatagram::bind(&at).unwrap();
    socket.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    let hear = |wanted: &str| {
        until(wanted, || {
            let mut bytes = [0; 512];
            let read = socket.recv(&mut bytes).ok()?;
            String::from_utf8_lossy(&bytes[..read])
                .lines()
                .any(|line| line == wanted)
                .then_some(())
        });
    };
    let mut command = config.command();
    command.env("NOTIFY_SOCKET", &at).env("WATCHDOG_USEC", "400000");
    let mut program = Program::start(&mut command);
    hear("READY=1");
    group.until_law_saves(0.9);
    hear("WATCHDOG=1");
    // A stopped thread that decides is one whose watchdog is not kept quiet.
    let Some(stopped) = StoppedThread::asleep_or_skipped(program.pid()) else {
        return;
    };
    wait("it is silent", || {
        let mut bytes = [0; 512];
        // Four times the interval without a word.
        socket
            .set_read_timeout(Some(Duration::from_millis(1600)))
            .unwrap();
        socket.recv(&mut bytes).is_err()
    });
    socket.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    drop(stopped);
    hear("WATCHDOG=1");
    program.signal(Signal::TERM);
    hear("STOPPING=1");
    program.succeeds();
}
