//! What an operator, somebody else, a second program and a full disk do to a running `headroom up`.

use crate::common::place::Disk;
use crate::common::{
    Config, Group, Up, assert_has, headroom, kill, launched_below, number, refused, succeeds, undo_left,
    until, wait,
};
use std::fs;
use std::process::Command;

fn operate(command: &str, config: &Config) -> Command {
    let mut command = headroom(command);
    command.arg("--run-dir").arg(config.run_dir());
    command
}

#[track_caller]
fn asked(command: &str, config: &Config) -> String {
    succeeds(operate(command, config)).out()
}

#[test]
fn what_somebody_else_sets_is_left_alone_until_an_operator_resumes() {
    let Some(group) = Group::new() else { return };
    let config = Config::idle(&group);
    let mut up = Up::start(&config);
    group.until_law_saves(1.0);
    group.interfere(12_000);
    up.program.said("somebody else wrote");
    up.counts("headroom_periods_total", 20.0);
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
    assert_has(&said, &["is controlled again"]);
    group.until_law_saves(1.2);
    up.program.stop();
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
    up.program.said("somebody else wrote");
    up.program.stop();
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
        assert_has(&said, &["put back", "headroom resume"]);
        assert_eq!(group.settings(), before, "{command}");
        up.counts("headroom_periods_total", 10.0);
        assert_eq!(group.settings(), before, "{command}: nothing is written");
        assert_eq!(up.metrics().sum("headroom_paused"), Some(1.0));
        assert_eq!(up.metrics().sum("headroom_cores"), Some(0.9));
        assert!(up.admin("/status").body.contains("\"paused\":true"));
        assert!(!undo_left(&config.run_dir()), "{command}");
        asked("resume", &config);
    }
    group.until_law_saves(0.9);
    asked("pause", &config);
    up.program.stop();
    assert_eq!(group.settings(), before);
    refused(operate("pause", &config), &["headroom release"]);
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
    let (pid, run_dir) = (up.program.pid(), config.run_dir());
    let owner = format!("pid {pid}, run directory {}", run_dir.display());
    let said = refused(other.command(), &[&owner, "several --config"]).err();
    let check = refused(other.command().arg("--check"), &[]);
    assert_eq!(check.err(), said, "a check says the same");
    assert!(up.program.ended().is_none());

    up.program.kill_with_guard();
    assert!(group.cores().unwrap() < 0.7 * 0.9, "kill -9 leaves it as it is");
    let next = succeeds(other.command().args(["--duration", "1"]));
    assert_has(next.err(), &["left by a run that was killed: put back"]);
    let mean = number(&next.json(), "cores.mean");
    assert!((mean - 0.9).abs() < 1e-6, "{mean} cores");
    assert_eq!(group.settings(), before);
    assert!(!undo_left(&config.run_dir()));
}

#[test]
fn a_full_disk_leaves_no_limit_that_nobody_puts_back() {
    let Some(group) = Group::new() else { return };
    group.limit(90_000, 100_000);
    let before = group.settings();
    let config = Config::idle(&group);
    let Some(_disk) = Disk::or_skipped(&config.run_dir(), "32k") else {
        return;
    };
    let mut up = Up::start(&config);
    until("the law begins to save", || {
        group.cores().filter(|cores| *cores < 0.89)
    });
    let _ = fs::write(config.run_dir().join("ballast"), vec![0; 64 << 10]);
    up.counted("headroom_actuation_failures_total", 5.0);
    up.program.kill_with_guard();
    let release = succeeds(operate("release", &config));
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
    wait("it says that the group is gone", || {
        let ready = up.admin("/readyz");
        ready.status == 503 && ready.body.contains("is gone")
    });
    group.make().unwrap();
    until("the law saves again", || {
        group.cores().filter(|cores| *cores < 0.7)
    });
    wait("it no longer says so", || {
        !up.admin("/readyz").body.contains("is gone")
    });
    up.program.stop();
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
            // It fails where something is written into the folder meanwhile.
            false => wait("the run folder is removed", || {
                let gone = |error: std::io::Error| error.kind() == std::io::ErrorKind::NotFound;
                fs::remove_dir_all(config.run_dir()).map_or_else(gone, |()| true)
            }),
        }
        // Not while it is written still: who is killed then has no record, as its folder was removed.
        wait("the record is made anew, or nothing is left to record", || {
            config.run_dir().join("undo.json").exists() || group.settings() == before
        });
        up.program.kill();
        wait("everything is as it was found", || group.settings() == before);
        // The gateway's own record went with the folder.
        launched_below(config.dir()).into_iter().for_each(kill);
    }
}
