//! The guard: limits are lifted whatever happens to whoever set them, and nothing is limited while nobody would.

use crate::common::{
    Config, Group, Program, Up, children_of, guard_of, headroom, is_alive, run, undo_left, until,
};
use rustix::process::{Pid, Signal, kill_process};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

fn until_as_found(group: &Group, before: &BTreeMap<String, String>) {
    until("everything is as it was found", || {
        (group.settings() == *before).then_some(())
    });
}

fn signal(pid: u32, signal: Signal) {
    kill_process(Pid::from_raw(i32::try_from(pid).unwrap()).unwrap(), signal).unwrap();
}

/// A group with a quota of 0.9 cores, and its settings.
fn limited() -> Option<(Group, BTreeMap<String, String>)> {
    let group = Group::new()?;
    group.limit(90_000, 100_000);
    let before = group.settings();
    Some((group, before))
}

/// The mount point of version 2's hierarchy, in which a group can be killed.
fn unified() -> Option<PathBuf> {
    let root = Path::new("/sys/fs/cgroup");
    let found = [root.join("unified"), root.to_owned()]
        .into_iter()
        .find(|dir| dir.join("cgroup.controllers").exists());
    if found.is_none() {
        println!("skipped: no control group hierarchy of version 2 is mounted");
    }
    found
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
        until("no zombie is left", || {
            (!children_of(up.program.pid()).contains(&guard)).then_some(())
        });
        assert!(!is_alive(guard));
    }
    assert_eq!(up.metrics().sum("headroom_guard_up"), Some(1.0));
    group.until_law_saves(0.9);
    let err = up.program.err();
    assert!(
        err.contains("ERROR") && err.contains("has ended: nothing is limited"),
        "{err}"
    );
    assert!(err.contains("gave no answer for"), "{err}");
    // It is said with the next period.
    until("the status says so", || {
        let status: serde_json::Value = serde_json::from_str(&up.admin("/status").body).ok()?;
        (status["guard"]["up"] == true && status["guard"]["restarts"] == 2).then_some(())
    });
    // The newest guard does what the first would have done.
    let guard = guard_of(up.program.pid());
    up.program.signal(Signal::KILL);
    up.program.wait();
    until_as_found(&group, &before);
    until("the guard ends", || (!is_alive(guard)).then_some(()));
}

#[test]
fn a_kill_of_the_group_that_it_was_started_in_leaves_no_limit() {
    let (Some((group, before)), Some(unified)) = (limited(), unified()) else {
        return;
    };
    let unit = unified.join(format!("headroom-e2e-unit-{}", std::process::id()));
    if let Err(error) = fs::create_dir(&unit) {
        println!("skipped: {} cannot be made: {error}", unit.display());
        return;
    }
    if !unit.join("cgroup.kill").exists() {
        println!("skipped: this kernel has no cgroup.kill");
        fs::remove_dir(&unit).unwrap();
        return;
    }
    let config = Config::idle(&group);
    let inner = config.command();
    let mut command = Command::new("sh");
    command
        .args(["-c", "echo $$ > \"$0\" && exec \"$@\""])
        .arg(unit.join("cgroup.procs"))
        .arg(inner.get_program())
        .args(inner.get_args());
    let mut program = Program::start(&mut command);
    group.until_law_saves(0.9);
    let guard = guard_of(program.pid());
    fs::write(unit.join("cgroup.kill"), "1").unwrap();
    program.wait();
    until_as_found(&group, &before);
    until("nothing is recorded", || {
        (!undo_left(&config.run_dir())).then_some(())
    });
    until("the guard ends", || (!is_alive(guard)).then_some(()));
    fs::remove_dir(&unit).unwrap();
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
                fs::write(group.path().join(name), value).unwrap();
            }
        }
    }
    until_as_found(&group, &before);
    up.program.said("that it is silent", |err| {
        err.contains("gave no sign of life").then_some(())
    });
    up.program.signal(Signal::CONT);
    group.until_law_saves(0.9);
    up.program.signal(Signal::TERM);
    up.program.succeeds();
    assert_eq!(group.settings(), before);
    assert!(!undo_left(&config.run_dir()));
}

/// Stops one thread of a process, which nothing but a debugger can do; dropped, it runs again.
struct Stopped(i32);

impl Stopped {
    fn thread(tid: u32) -> Option<Self> {
        // Stopped in the midst of a period it may hold a lock that the admin port needs: it sleeps between two periods.
        until("it sleeps", || {
            let stat = fs::read_to_string(format!("/proc/{tid}/stat")).ok()?;
            stat.rsplit_once(") ")?.1.starts_with('S').then_some(())
        });
        let tid = i32::try_from(tid).unwrap();
        let none = std::ptr::null_mut::<libc::c_void>();
        // SAFETY: these requests neither read nor write memory of this process.
        let seized = unsafe { libc::ptrace(libc::PTRACE_SEIZE, tid, none, none) };
        if seized != 0 {
            println!(
                "skipped: a thread cannot be traced: {}",
                std::io::Error::last_os_error()
            );
            return None;
        }
        // SAFETY: as above.
        let interrupted = unsafe { libc::ptrace(libc::PTRACE_INTERRUPT, tid, none, none) };
        assert_eq!(interrupted, 0);
        let mut status = 0;
        // SAFETY: the status is a valid place for an int.
        let waited = unsafe { libc::waitpid(tid, &raw mut status, libc::__WALL) };
        assert_eq!(waited, tid);
        Some(Self(tid))
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        let none = std::ptr::null_mut::<libc::c_void>();
        // SAFETY: as above. It may have ended, and there is nothing to do then.
        unsafe { libc::ptrace(libc::PTRACE_DETACH, self.0, none, none) };
    }
}

#[test]
fn a_single_stopped_control_thread_has_its_limits_lifted() {
    let Some((group, before)) = limited() else { return };
    let config = Config::idle(&group);
    let mut up = Up::start(&config);
    group.until_law_saves(0.9);
    // The loop runs in the first thread.
    let Some(stopped) = Stopped::thread(up.program.pid()) else {
        return;
    };
    until_as_found(&group, &before);
    until("it is reported", || {
        let text = up.admin("/readyz").body;
        text.contains("the control loop gave no sign of life")
            .then_some(())
    });
    assert_eq!(up.metrics().sum("headroom_guard_up"), Some(1.0));
    drop(stopped);
    group.until_law_saves(0.9);
    up.program.signal(Signal::TERM);
    up.program.succeeds();
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
    let (status, refused) = run(&mut contained(&config.command()));
    let err = refused.err();
    assert_eq!(status.code(), Some(2), "{err}");
    assert!(
        err.contains("headroom guard --serve --run-dir") && err.contains("--allow-guard-inside"),
        "{err}"
    );
    assert_eq!(group.settings(), before);

    let serve = || {
        let mut command = headroom();
        command
            .args(["guard", "--serve", "--run-dir"])
            .arg(config.run_dir());
        let mut guard = Program::start(&mut command);
        guard.said("that it serves", |err| err.contains("guarding ").then_some(()));
        guard
    };
    let mut guard = serve();
    let mut outer = Program::start(&mut contained(&config.command()));
    group.until_law_saves(0.9);
    // Without its guard it gives everything back, and limits again when one is there.
    guard.signal(Signal::KILL);
    guard.wait();
    until("everything is given back", || {
        group.cores().is_none_or(|cores| cores > 0.89).then_some(())
    });
    outer.said("that no guard stands", |err| {
        err.contains("no guard stands").then_some(())
    });
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
    until("nothing is recorded", || {
        (!undo_left(&config.run_dir())).then_some(())
    });
    guard.signal(Signal::TERM);
    guard.succeeds();

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
    let Some(stopped) = Stopped::thread(program.pid()) else {
        return;
    };
    until("it is silent", || {
        let mut bytes = [0; 512];
        // Four times the interval without a word.
        socket
            .set_read_timeout(Some(Duration::from_millis(1600)))
            .unwrap();
        socket.recv(&mut bytes).is_err().then_some(())
    });
    socket.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    drop(stopped);
    hear("WATCHDOG=1");
    program.signal(Signal::TERM);
    hear("STOPPING=1");
    program.succeeds();
}
