//! Controller and guard are both killed, or the guard hangs: every server comes back all the same.

use super::{CAPACITY_PER_S, fixed, resize, resizing, run_dir};
use crate::common::process::{Process, children};
use crate::common::site::{Service, Site};
use crate::common::{
    Load, Program, assert_has, get, headroom, is_alive, kill, refused, signal, succeeds, until, wait,
};
use rustix::process::{Signal, kill_process};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A cluster of two servers whose controller has switched one off.
pub(super) struct Cluster {
    pub(super) site: Site,
    pub(super) config: PathBuf,
    pub(super) controller: Program,
    _load: Load,
    gateway: Program,
}

impl Cluster {
    pub(super) fn with_one_off() -> Self {
        let cluster = Self::with(&fixed(), 1);
        cluster.site.until_states(&["serving", "off"]);
        cluster
    }

    /// With the law of which this is the table, while so many run.
    pub(super) fn with(law: &str, running: usize) -> Self {
        let site = Site::new(2, Service::Wiki);
        (1..=running).for_each(|server| site.boot(server));
        Self::of(site, law)
    }

    /// Of these servers.
    pub(super) fn of(site: Site, law: &str) -> Self {
        let config = site.behind_gateway(law);
        Self::by(site, config)
    }

    /// Of these servers, by this file of theirs.
    pub(super) fn by(site: Site, config: PathBuf) -> Self {
        let gateway = site.gateway();
        let load = Load::to(site.front, CAPACITY_PER_S / 3);
        let controller = resize(&config);
        wait("the run is recorded", || {
            run_dir(&config).exists() && !records(&config).is_empty()
        });
        assert_eq!(records(&config).len(), 1);
        Self {
            site,
            config,
            controller,
            _load: load,
            gateway,
        }
    }

    /// Kills the controller and its guard.
    pub(super) fn kill_both(&mut self) {
        kill(guard(&self.controller));
        self.controller.kill();
    }

    /// Starts the gateway anew, which remembers nothing then.
    pub(super) fn renew_gateway(&mut self) {
        self.gateway.kill();
        self.gateway = self.site.gateway();
    }

    pub(super) fn release(&self) -> Program {
        let mut release = headroom("release --run-dir");
        succeeds(release.arg(run_dir(&self.config)))
    }

    /// The second server runs, and gets requests: it answers when the first is gone.
    pub(super) fn second_serves(&self) {
        assert!(self.site.runs(2));
        kill_process(self.site.pid(1).unwrap(), Signal::KILL).unwrap();
        until("an answer of the other server", || {
            get(self.site.front, "/")
                .ok()
                .filter(|answer| answer.status == 200)
        });
    }
}

pub(super) fn guard(controller: &Program) -> u32 {
    until("its guard", || {
        children(controller.pid())
            .into_iter()
            .find(|child| !child.is_zombie && Process::is_guard(child))
    })
    .pid
}

/// The records of killed or running controllers.
pub(super) fn records(config: &Path) -> Vec<PathBuf> {
    let folders = fs::read_dir(run_dir(config))
        .unwrap()
        .map(|entry| entry.unwrap().path());
    folders
        .map(|folder| folder.join("servers.json"))
        .filter(|file| file.exists())
        .collect()
}

#[test]
fn a_start_brings_back_every_server_where_controller_and_guard_were_killed() {
    let mut cluster = Cluster::with_one_off();
    cluster.kill_both();
    let mut next = resize(&cluster.config);
    next.said("was killed, and its guard with it");
    let site = &cluster.site;
    site.until_states(&["serving", "serving"]);
    next.said("could not start every server: all 2 are on first");
    // Then the law has them, which spares one.
    next.said("every server is back");
    site.until_states(&["serving", "off"]);
    next.stop();
    assert!(site.runs(1) && site.runs(2));
    assert!(records(&cluster.config).is_empty());
    assert_has(cluster.release().out(), &["nothing was left"]);
}

#[test]
fn release_brings_back_every_server_and_touches_none_of_a_controller_that_runs() {
    let mut cluster = Cluster::with_one_off();
    assert_has(cluster.release().out(), &["has its servers", "left alone"]);
    assert!(!cluster.site.runs(2) && records(&cluster.config).len() == 1);
    cluster.kill_both();
    // It goes by what the run had read, wherever it is itself.
    fs::write(&cluster.config, "spoilt").unwrap();
    assert_has(cluster.release().out(), &["web1, web2 serve"]);
    assert_eq!(cluster.site.starts(2), 1);
    assert!(records(&cluster.config).is_empty());
    assert_has(cluster.release().out(), &["nothing was left"]);
    cluster.second_serves();
}

#[test]
fn a_server_that_is_on_and_silent_is_switched_off_and_on_again_after_both_were_killed() {
    for by in ["release", "start"] {
        let mut cluster = Cluster::with_one_off();
        cluster.kill_both();
        // A machine that hangs: on, by its switch, and silent.
        let hung = format!(
            "sleep 600 & echo $! > {}",
            cluster.site.path("web2.pid").display()
        );
        assert!(
            Command::new("/bin/sh")
                .args(["-c", &hung])
                .status()
                .unwrap()
                .success()
        );
        let hung = cluster.site.pid(2);
        match by {
            "release" => {
                let said = cluster.release();
                assert_has(
                    said.err(),
                    &["web2 is on and does not answer", "off and on again"],
                );
            }
            _ => {
                let mut next = resize(&cluster.config);
                next.said("every server is back");
                next.stop();
            }
        }
        assert_ne!(cluster.site.pid(2), hung, "{by}");
        assert!(records(&cluster.config).is_empty(), "{by}");
        cluster.second_serves();
    }
}

#[test]
fn a_guard_that_is_killed_or_hangs_is_replaced_and_the_next_does_its_work() {
    let mut cluster = Cluster::with_one_off();
    let mut stopped = Vec::new();
    for (how, said) in [(Signal::KILL, "has ended"), (Signal::STOP, "gave no answer for")] {
        let before = guard(&cluster.controller);
        signal(before, how);
        cluster.controller.said(said);
        wait("another stands", || {
            let err = cluster.controller.err();
            err.matches("another guard stands").count() == stopped.len() + 1
        });
        assert_ne!(guard(&cluster.controller), before);
        assert!(!is_alive(before));
        stopped.push(before);
    }
    let last = guard(&cluster.controller);
    cluster.controller.kill();
    wait("the guard is done", || !is_alive(last));
    assert!(records(&cluster.config).is_empty());
    cluster.second_serves();
}

#[test]
fn a_guard_that_was_stopped_before_its_controller_was_killed_is_stood_in_for_and_then_ends() {
    let mut cluster = Cluster::with_one_off();
    let stopped = guard(&cluster.controller);
    signal(stopped, Signal::STOP);
    cluster.controller.kill();
    assert_has(cluster.release().out(), &["web1, web2 serve"]);
    signal(stopped, Signal::CONT);
    wait("it ends", || !is_alive(stopped));
    assert_eq!(cluster.site.starts(2), 1);
    cluster.second_serves();
}

#[test]
fn a_start_that_would_leave_a_server_of_the_run_before_off_is_refused() {
    let mut cluster = Cluster::with_one_off();
    cluster.kill_both();
    let text = fs::read_to_string(&cluster.config).unwrap();
    let (without, _) = text.split_once("[nodes.web2]").unwrap();
    fs::write(&cluster.config, without).unwrap();
    refused(
        resizing(&cluster.config, ""),
        &["switched web2", "headroom release --run-dir"],
    );
    assert_has(cluster.release().out(), &["web1, web2 serve"]);
    let mut next = resize(&cluster.config);
    cluster.site.until_states(&["serving"]);
    next.stop();
    cluster.second_serves();
}

#[test]
fn a_start_while_the_guard_stands_has_the_servers_as_they_are() {
    let mut cluster = Cluster::with_one_off();
    let before = guard(&cluster.controller);
    cluster.controller.kill();
    let mut next = resize(&cluster.config);
    next.said("its servers are this run's now, as they are");
    wait("the guard lets go", || !is_alive(before));
    cluster.site.until_states(&["serving", "off"]);
    assert_eq!(cluster.site.starts(2), 0);
    next.stop();
    cluster.second_serves();
}
