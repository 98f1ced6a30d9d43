//! What an operator, somebody else, a second program and a full disk do to a running `headroom up`.

use crate::common::{Config, Group, Program, Up, guard_of, headroom, run, undo_left, until};
use crate::contract::number;
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;

/// So many more periods.
fn periods(up: &Up, more: f64) {
    let now = up.metrics().sum("headroom_periods_total").unwrap();
    up.counted("headroom_periods_total", now + more);
}

fn kill_with_guard(up: &mut Up) {
    // Stopped first: it would lift everything and get another guard.
    up.program.signal(Signal::STOP);
    let guard = i32::try_from(guard_of(up.program.pid())).unwrap();
    kill_process(Pid::from_raw(guard).unwrap(), Signal::KILL).unwrap();
    up.program.signal(Signal::KILL);
    up.program.wait();
}

fn operate(command: &str, run_dir: &Path) -> (ExitStatus, Program) {
    run(headroom().arg(command).arg("--run-dir").arg(run_dir))
}

fn asked(command: &str, config: &Config) -> String {
    let (status, program) = operate(command, &config.run_dir());
    assert!(status.success(), "{command}: {}", program.err());
    program.out()
}

#[test]
fn what_somebody_else_sets_is_left_alone_until_an_operator_resumes() {
    let Some(group) = Group::new() else { return };
    let config = Config::idle(&group);
    let mut up = Up::start(&config);
    group.until_law_saves(1.0);
    group.interfere(12_000);
    up.program.said("that somebody else wrote", |err| {
        err.contains("somebody else wrote").then_some(())
    });
    periods(&up, 20.0);
    assert_eq!(group.cores(), Some(1.2), "it is not fought: {}", up.program.err());
    assert_eq!(up.metrics().sum("headroom_foreign_writes_total"), Some(1.0));
    assert_eq!(
        up.metrics().sum("headroom_cores"),
        Some(1.2),
        "theirs is in force"
    );
    assert!(up.admin("/readyz").body.contains("somebody else wrote"));
    assert!(up.admin("/status").body.contains("somebody else wrote"));
    assert_eq!(up.program.err().matches("somebody else wrote").count(), 1);

    let said = asked("resume", &config);
    assert!(said.contains("is controlled again"), "{said}");
    group.until_law_saves(1.2);
    up.program.signal(Signal::TERM);
    up.program.succeeds();
    assert_eq!(group.cores(), Some(1.2), "what was there when it was given back");
    assert!(!undo_left(&config.run_dir()));
}

#[test]
fn what_somebody_else_set_stays_at_the_end() {
    let Some(group) = Group::new() else { return };
    let config = Config::idle(&group);
    let mut up = Up::start(&config);
    group.until_law_saves(1.0);
    group.interfere(12_000);
    up.program.said("that somebody else wrote", |err| {
        err.contains("somebody else wrote").then_some(())
    });
    up.program.signal(Signal::TERM);
    up.program.succeeds();
    assert_eq!(group.cores(), Some(1.2));
    assert!(!undo_left(&config.run_dir()));
}

#[test]
fn a_pause_puts_everything_back_while_it_runs_and_a_release_is_one() {
    let Some(group) = Group::new() else { return };
    group.limit(90_000, 100_000);
    let before = group.settings();
    let config = Config::idle(&group);
    let mut up = Up::start(&config);
    for command in ["pause", "release"] {
        group.until_law_saves(0.9);
        let said = asked(command, &config);
        assert!(
            said.contains("put back") && said.contains("headroom resume"),
            "{said}"
        );
        assert_eq!(group.settings(), before, "{command}");
        periods(&up, 10.0);
        assert_eq!(group.settings(), before, "{command}: nothing is written");
        assert_eq!(up.metrics().sum("headroom_paused"), Some(1.0));
        assert_eq!(up.metrics().sum("headroom_cores"), Some(0.9));
        assert!(up.admin("/status").body.contains("\"paused\":true"));
        assert!(!undo_left(&config.run_dir()), "{command}");
        asked("resume", &config);
    }
    group.until_law_saves(0.9);
    asked("pause", &config);
    up.program.signal(Signal::TERM);
    up.program.succeeds();
    assert_eq!(group.settings(), before);
    let (status, program) = operate("pause", &config.run_dir());
    assert_eq!(status.code(), Some(2));
    assert!(program.err().contains("headroom release"), "{}", program.err());
}

#[test]
fn a_second_program_on_a_group_is_refused_and_after_kill_9_finds_what_was_found_first() {
    let Some(group) = Group::new() else { return };
    group.limit(90_000, 100_000);
    let before = group.settings();
    let config = Config::idle(&group);
    let other = Config::idle(&group).with("name = \"slo-power\"", "name = \"fixed\"");
    let mut up = Up::start(&config);
    group.until_law_saves(0.9);
    let (status, refused) = run(&mut other.command());
    let err = refused.err();
    assert_eq!(status.code(), Some(2), "{err}");
    let owner = format!(
        "pid {}, run directory {}",
        up.program.pid(),
        config.run_dir().display()
    );
    assert!(err.contains(&owner) && err.contains("several --config"), "{err}");
    let (status, check) = run(other.command().arg("--check"));
    assert_eq!(
        (status.code(), check.err()),
        (Some(2), err),
        "a check says the same"
    );
    assert!(up.program.ended().is_none());

    kill_with_guard(&mut up);
    assert!(group.cores().unwrap() < 0.7 * 0.9, "kill -9 leaves it as it is");
    let (status, next) = run(other.command().args(["--duration", "1"]));
    assert!(status.success(), "{}", next.err());
    assert!(
        next.err().contains("left by a run that was killed: put back"),
        "{}",
        next.err()
    );
    let mean = number(&next.json(), "cores.mean");
    assert!((mean - 0.9).abs() < 1e-6, "{mean} cores");
    assert_eq!(group.settings(), before);
    assert!(!undo_left(&config.run_dir()));
}

/// A disk of a few pages where a run directory is to be.
struct Disk(PathBuf);

impl Disk {
    fn at(path: PathBuf) -> Option<Self> {
        fs::create_dir_all(&path).unwrap();
        match mount(
            "tmpfs",
            &path,
            "tmpfs",
            MountFlags::empty(),
            Some(c"size=32k,mode=700"),
        ) {
            Ok(()) => Some(Self(path)),
            Err(error) => {
                println!("skipped: a small disk cannot be mounted here: {error}");
                None
            }
        }
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = unmount(&self.0, UnmountFlags::DETACH);
    }
}

#[test]
fn a_full_disk_leaves_no_limit_that_nobody_puts_back() {
    let Some(group) = Group::new() else { return };
    group.limit(90_000, 100_000);
    let before = group.settings();
    let config = Config::idle(&group);
    let Some(disk) = Disk::at(config.run_dir()) else {
        return;
    };
    let mut up = Up::start(&config);
    until("the law begins to save", || {
        group.cores().filter(|cores| *cores < 0.89)
    });
    let _ = fs::write(disk.0.join("ballast"), vec![0; 64 << 10]);
    up.counted("headroom_actuation_failures_total", 5.0);
    kill_with_guard(&mut up);
    let (status, release) = operate("release", &config.run_dir());
    assert!(status.success(), "{}", release.err());
    assert!(!release.out().contains("somebody else"), "{}", release.out());
    assert_eq!(group.settings(), before, "{}", release.out());
    assert!(!undo_left(&config.run_dir()));
}

#[test]
fn a_group_that_is_removed_is_not_ready_and_taken_up_when_it_is_made_anew() {
    let Some(group) = Group::new() else { return };
    let config = Config::idle(&group);
    let mut up = Up::start(&config);
    group.until_law_saves(1.0);
    group.remove();
    until("it says that the group is gone", || {
        let ready = up.admin("/readyz");
        (ready.status == 503 && ready.body.contains("is gone")).then_some(())
    });
    group.make().unwrap();
    until("the law saves again", || {
        group.cores().filter(|cores| *cores < 0.7)
    });
    until("it no longer says so", || {
        (!up.admin("/readyz").body.contains("is gone")).then_some(())
    });
    up.program.signal(Signal::TERM);
    up.program.succeeds();
    assert_eq!(group.cores(), None, "as it was made: {}", up.program.err());
    assert!(!undo_left(&config.run_dir()));
}

#[test]
fn a_run_folder_that_is_removed_leaves_no_limit_whatever_comes_next() {
    for moved in [false, true] {
        let Some(group) = Group::new() else { return };
        group.limit(90_000, 100_000);
        let before = group.settings();
        let config = Config::idle(&group);
        let mut up = Up::start(&config);
        group.until_law_saves(0.9);
        match moved {
            true => fs::rename(config.run_dir(), config.dir().join("elsewhere")).unwrap(),
            false => fs::remove_dir_all(config.run_dir()).unwrap(),
        }
        until("the record is made anew, or nothing is left to record", || {
            (undo_left(&config.run_dir()) || group.settings() == before).then_some(())
        });
        up.program.signal(Signal::KILL);
        up.program.wait();
        until("everything is as it was found", || {
            (group.settings() == before).then_some(())
        });
        // The gateway's own record went with the folder.
        for pid in crate::common::launched_below(config.dir()) {
            kill_process(Pid::from_raw(i32::try_from(pid).unwrap()).unwrap(), Signal::KILL).unwrap();
        }
    }
}
