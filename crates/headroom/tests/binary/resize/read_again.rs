//! Whoever has the servers after a controller that was killed goes by what that read last, whatever has become of the file, and lets nobody
//! keep it from them who has none.

use super::come_back::{Cluster, guard, records};
use super::{resize, resizing, run_dir};
use crate::common::site::{Service, Site};
use crate::common::{Program, assert_has, headroom, is_alive, kill, refused, wait};
use rustix::process::Signal;
use std::fs::{self, File};

/// A cluster whose second server an operator has taken out by SIGHUP, with its power.
fn with_one_taken_out() -> Cluster {
    let cluster = Cluster::with("name = \"always-on\"", 2);
    cluster.site.until_states(&["serving", "serving"]);
    let text = fs::read_to_string(&cluster.config).unwrap();
    let out = "[nodes.web2]\nmaintenance = { power_off = true, at_once = true }\n";
    fs::write(&cluster.config, text.replace("[nodes.web2]\n", out)).unwrap();
    cluster.controller.signal(Signal::HUP);
    cluster.site.until_states(&["serving", "maintenance"]);
    assert!(!cluster.site.runs(2));
    cluster
}

fn is_left_alone(cluster: &Cluster) {
    assert!(!cluster.site.runs(2) && cluster.site.runs(1));
    assert_eq!((cluster.site.starts(1), cluster.site.starts(2)), (0, 0));
    assert!(records(&cluster.config).is_empty());
}

#[test]
fn a_guard_that_took_anothers_place_leaves_alone_what_sighup_took_out() {
    let mut cluster = with_one_taken_out();
    kill(guard(&cluster.controller));
    cluster.controller.said("another guard stands");
    // A file that nobody has read yet is nobody's word.
    fs::write(&cluster.config, "spoilt").unwrap();
    let last = guard(&cluster.controller);
    cluster.controller.kill();
    wait("the guard is done", || !is_alive(last));
    is_left_alone(&cluster);
}

#[test]
fn release_leaves_alone_what_sighup_took_out_where_the_file_is_spoilt_or_gone() {
    for is_gone in [false, true] {
        let mut cluster = with_one_taken_out();
        cluster.kill_both();
        match is_gone {
            true => fs::remove_file(&cluster.config).unwrap(),
            false => fs::write(&cluster.config, "spoilt").unwrap(),
        }
        let said = cluster.release();
        assert_has(
            said.err(),
            &["web2 of its servers is in maintenance", "cannot be used now"],
        );
        assert_has(said.out(), &["web1 serve, and web2 is left alone"]);
        is_left_alone(&cluster);
    }
}

#[test]
fn who_waits_for_release_is_told_which_servers_answer_and_which_stay_in_maintenance() {
    let site = Site::new(2, Service::Wiki);
    site.boot(1);
    let config = site.behind_gateway("name = \"always-on\"");
    // What was ordered to stop may take longer than until it is first said how far it is.
    let text = fs::read_to_string(&config).unwrap();
    let text = text.replace("stop_timeout_s = 6.0", "stop_timeout_s = 12.0");
    let out = "[nodes.web2]\nmaintenance = { power_off = true, at_once = true }\n";
    fs::write(&config, text.replace("[nodes.web2]\n", out)).unwrap();
    let mut cluster = Cluster::by(site, config);
    cluster.site.until_states(&["serving", "maintenance"]);
    cluster.kill_both();
    let said = cluster.release();
    assert_has(
        said.err(),
        &[
            "web1 answers: one that was ordered to stop may still do so for",
            "web2 is in maintenance and stays as it is",
        ],
    );
    is_left_alone(&cluster);
}

#[test]
fn a_file_that_is_gone_or_that_somebody_else_locks_keeps_no_guard_from_its_work() {
    for is_gone in [false, true] {
        let mut cluster = Cluster::with_one_off();
        let last = guard(&cluster.controller);
        let locked = File::open(&cluster.config).unwrap();
        match is_gone {
            true => fs::remove_file(&cluster.config).unwrap(),
            false => locked.lock_shared().unwrap(),
        }
        cluster.controller.kill();
        wait("the guard is done", || !is_alive(last));
        assert_eq!(cluster.site.starts(2), 1);
        assert!(records(&cluster.config).is_empty());
        cluster.second_serves();
    }
}

#[test]
fn who_is_refused_for_a_lock_is_told_what_is_known_of_it() {
    let mut cluster = Cluster::with_one_off();
    let runs = format!("pid {}", cluster.controller.pid());
    refused(resizing(&cluster.config, ""), &["another controller runs", &runs]);
    cluster.kill_both();
    let locked = File::open(&cluster.config).unwrap();
    locked.lock_shared().unwrap();
    refused(
        resizing(&cluster.config, ""),
        &["a process holds a lock on this file"],
    );
    let mut release = headroom("release --run-dir");
    release.arg(run_dir(&cluster.config));
    let mut release = Program::start(release);
    assert_eq!(release.wait().code(), Some(1));
    assert_has(release.err(), &["a process holds a lock on this file"]);
    drop(locked);
    assert_has(cluster.release().out(), &["web1, web2 serve"]);
}

#[test]
fn a_dry_run_gives_its_gateways_to_the_controller_that_starts() {
    let mut cluster = Cluster::with_one_off();
    cluster.kill_both();
    let mut dry = Program::start(resizing(&cluster.config, "--dry-run --json"));
    dry.said("metrics on");
    let mut next = resize(&cluster.config);
    next.said("every server is back");
    cluster.site.until_states(&["serving", "off"]);
    dry.said("serves 1 controller");
    dry.stop();
    next.stop();
    cluster.second_serves();
}

#[test]
fn a_dry_run_gives_its_gateways_to_a_guard() {
    let mut cluster = Cluster::with_one_off();
    let last = guard(&cluster.controller);
    // It waits for the controller's end.
    let dry = Program::start(resizing(&cluster.config, "--dry-run --json"));
    cluster.controller.kill();
    wait("the guard is done", || !is_alive(last));
    cluster.second_serves();
    drop(dry);
}
