//! What a check refuses, and a start says, of servers that it finds otherwise than the file has them.

use super::haproxy::{behind_haproxy, haproxy};
use super::{check, fixed, resize};
use crate::common::site::{Service, Site, resizing, run_dir};
use crate::common::{Program, assert_has, free_port, program_or_skipped, refused, run, succeeds, wait};
use std::fs;
use std::os::unix::fs::chown;
use std::path::Path;
use std::process::Command;

/// A user who is nobody else's.
const NOBODY: u32 = 65_534;

#[test]
fn servers_that_are_exchanged_between_two_nodes_behind_haproxy_are_refused() {
    let site = Site::new(2, Service::Wiki);
    (1..=2).for_each(|server| site.boot(server));
    let Some(_haproxy) = haproxy(&site) else { return };
    let config = behind_haproxy(&site, &fixed(), "");
    succeeds(check(&config));
    let text = fs::read_to_string(&config).unwrap();
    let exchanged = text
        .replace("member = \"web1\"", "member = \"other\"")
        .replace("member = \"web2\"", "member = \"web1\"")
        .replace("member = \"other\"", "member = \"web2\"");
    fs::write(&config, exchanged).unwrap();
    let said = [
        "nodes.web1.check: is where web2 takes requests",
        &format!("this node's member web2 is at 127.0.0.1:{}", site.ports[1]),
    ];
    refused(check(&config), &said);
    let mut start = resize(&config);
    assert!(!start.wait().success());
    assert_has(start.err(), &said);
    assert!(site.runs(1) && site.runs(2));
}

#[test]
fn a_check_at_a_port_where_nobody_listens_is_refused_where_haproxy_finds_the_server_up_and_a_start_warns() {
    let site = Site::new(1, Service::Wiki);
    site.boot(1);
    let Some(_haproxy) = haproxy(&site) else { return };
    let config = behind_haproxy(&site, &fixed(), "");
    let text = fs::read_to_string(&config).unwrap();
    let port = free_port();
    let [right, wrong] = [site.ports[0], port].map(|port| format!("check = \"tcp:127.0.0.1:{port}\""));
    fs::write(&config, text.replace(&right, &wrong)).unwrap();
    let said = [
        &format!(
            "nodes.web1.check: nobody listens at tcp:127.0.0.1:{port}, while HAProxy finds web1 up at 127.0.0.1:"
        ),
        &*format!("write {right}"),
    ];
    refused(check(&config), &said);
    // It goes on; here it does nothing.
    let mut start = Program::start(resizing(&config, "--dry-run"));
    start.says("the warning", |said| said.contains("warning: ").then_some(()));
    start.stop();
    assert_has(start.err(), &said);
}

/// Gives a folder and all in it to nobody.
fn give(folder: &Path) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => give(&path),
            false => chown(path, Some(NOBODY), Some(NOBODY)).unwrap(),
        }
    }
    chown(folder, Some(NOBODY), Some(NOBODY)).unwrap();
}

/// A check by nobody, who may not measure accept queues; `None` where this user cannot be another.
fn by_nobody(config: &Path) -> Option<Command> {
    let is_there = program_or_skipped("setpriv --version", "util-linux");
    if !is_there || !rustix::process::geteuid().is_root() {
        println!("skipped: a check by another user takes root, and setpriv of util-linux");
        return None;
    }
    let plain = check(config);
    let mut command = Command::new("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]);
    command.arg(plain.get_program()).args(plain.get_args());
    Some(command)
}

#[test]
fn where_no_accept_queue_can_be_measured_it_is_said_that_nothing_will_be_saved() {
    let site = Site::new(2, Service::Wiki);
    (1..=2).for_each(|server| site.boot(server));
    let Some(_haproxy) = haproxy(&site) else { return };
    let law = "name = \"elastic\"\n[law.elastic]\nboot_s = 1.0";
    let config = behind_haproxy(&site, law, "queues");
    let said = "no server's accept queue can be measured: elastic will keep all 2 servers on; run as root, or with CAP_BPF and CAP_PERFMON";
    let by_root = succeeds(check(&config)).all();
    if !by_root.contains("cannot be measured by ebpf") {
        assert!(!by_root.contains(said), "{by_root}");
    }
    // Who only switches servers is told of no other lever.
    assert!(!by_root.contains("what levers save on"), "{by_root}");
    let Some(by_nobody) = by_nobody(&config) else {
        return;
    };
    give(site.dir.path());
    let program = run(by_nobody);
    let all = program.all();
    if all.contains("Permission denied") && !all.contains("accept queue") {
        println!("skipped: nobody may not run the binary where it is: {all}");
        return;
    }
    let first = all.lines().find(|line| line.starts_with("note ")).unwrap();
    assert_has(first, &[said]);
}

#[test]
fn a_run_folder_that_another_could_change_is_refused_by_a_check_as_by_a_start() {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: a folder of another user needs root");
        return;
    }
    let site = Site::new(1, Service::Wiki);
    site.boot(1);
    let _gateway = site.gateway();
    let config = site.behind_gateway(&fixed());
    let folder = run_dir(&config);
    succeeds(check(&config));
    assert!(!folder.exists(), "a check leaves nothing behind");
    fs::create_dir(&folder).unwrap();
    chown(&folder, Some(NOBODY), None).unwrap();
    let said = "belongs to user 65534, who could put something else in the place";
    refused(check(&config), &[said]);
    let mut start = resize(&config);
    assert!(!start.wait().success());
    assert_has(start.err(), &[said]);
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 0);
}

#[test]
fn remedies_name_what_this_command_has() {
    let site = Site::new(1, Service::Wiki);
    let config = site.behind_gateway(&fixed());
    // No gateway: an agent in its place is no help.
    let program = refused(
        check(&config),
        &["there is no such socket: start the gateway with --control"],
    );
    assert!(!program.all().contains("headroom agent"), "{}", program.all());
    // A record in a folder that cannot be made.
    let text = fs::read_to_string(&config).unwrap();
    let db = site.path("runs.db").display().to_string();
    fs::write(&config, text.replace(&db, "/proc/nowhere/runs.db")).unwrap();
    let program = refused(check(&config), &["(record.db)"]);
    assert!(!program.all().contains("--db"), "{}", program.all());
    wait("nothing is left", || !run_dir(&config).exists());
}
