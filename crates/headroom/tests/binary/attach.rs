//! `headroom up` with the levers of a server that `headroom wrap --steered` started: one run commands the machine and the server's workers.

use crate::common::record::cores_and_workers;
use crate::common::{
    Config, Database, Group, Program, assert_has, get, headroom, openmetrics, refused, run, until, wait,
};
use rustix::process::Signal;
use serde_json::Value;
use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

/// The server `db` and a configuration that attaches to it; `None` where this machine or this user cannot have it.
fn start() -> Option<(Group, Config, Database)> {
    let group = Group::new()?;
    let config = Config::attached(group.dir());
    let words = format!("--name db --run-dir {}", config.run_dir().display());
    let database = Database::start_steered(&words, group.dirs())?;
    database.prepare();
    Some((group, config, database))
}

/// What `wrap --list` says.
fn list(run_dir: &Path) -> String {
    let program = run(headroom("wrap --list --run-dir").arg(run_dir));
    assert_eq!(program.code(), Some(0), "{}", program.err());
    program.out() + &program.err()
}

fn status(admin: SocketAddr) -> Option<Value> {
    serde_json::from_str(&get(admin, "/status").ok()?.body).ok()
}

/// A lever of the run, as far as it is in force.
fn in_force(admin: SocketAddr, lever: &str) -> Option<f64> {
    status(admin)?["in_force"][lever].as_f64()
}

/// What the run says of the server.
fn state(admin: SocketAddr) -> Option<String> {
    let status = status(admin)?;
    let nodes = status["nodes"].as_array()?;
    let server = nodes.iter().find(|node| node["name"] == "db")?;
    Some(server["state"].as_str()?.to_owned())
}

/// Selects all the while, for two minutes at most.
fn load(database: &Database) -> Program {
    Program::start(&mut database.sysbench("--threads=8 --rate=200 --time=120 run"))
}

/// Waits until the law takes cores away, of two, and has the workers on call.
fn until_both_are_commanded(group: &Group, admin: SocketAddr) {
    until("cores and workers are commanded by one run", || {
        let cores = group.cores().filter(|cores| *cores < 1.95)?;
        let workers = in_force(admin, "concurrency").filter(|workers| *workers >= 1.0)?;
        Some((cores, workers))
    });
}

#[test]
fn one_run_commands_the_machine_and_the_workers_and_gives_both_back() {
    let Some((group, config, mut database)) = start() else {
        return;
    };
    let before = group.settings();
    assert_has(list(&config.run_dir()), &["db\t", "commanded by nobody"]);
    let check = run(&mut config.check());
    assert_has(
        check.out(),
        &["on call", "db (pid ", "concurrency", "by the server on call"],
    );
    let (mut up, admin) = config.start();
    let load = load(&database);
    until_both_are_commanded(&group, admin);
    // Its queries, connections and costs are in the run's metrics.
    until("what the server does is in the metrics", || {
        let page = get(admin, "/metrics").ok()?;
        let metrics = openmetrics::parse(&page.body).unwrap_or_else(|error| panic!("{error}"));
        let counted = metrics.sum("headroom_service_requests_total")?;
        let connections = metrics.sum("headroom_connections")?;
        let switches = metrics.sum("headroom_switches_per_query")?;
        (counted > 100.0 && connections >= 8.0 && switches > 0.0).then_some(())
    });
    let commander = format!("commanded by pid {}", up.pid());
    assert_has(list(&config.run_dir()), &[&commander]);
    // Another run has levers of its own, and not this server's.
    let other = Group::new().unwrap();
    let server = format!("{}/wrapped/db.json", config.run_dir().display());
    let second = Config::attached(other.dir()).with("server = \"db\"", &format!("server = \"{server}\""));
    let line = format!("headroom.toml:{}: oncall.server", second.line_of("server ="));
    let pid = format!("pid {}", up.pid());
    refused(&mut second.command(), &[&line, &pid, "one commander at a time"]);
    refused(&mut second.check(), &[&line, &pid]);
    assert!(!up.err().contains("start `headroom wrap` in"), "{}", up.err());
    drop(load);
    up.stop();
    assert_eq!(group.settings(), before);
    assert_has(list(&config.run_dir()), &["commanded by nobody"]);
    // Of another service's group it is said that the server is not in it.
    let elsewhere = format!("set of {}: start `headroom wrap` in", other.path());
    assert_has(
        run(&mut second.check()).out(),
        &["runs in ", &group.path(), &elsewhere],
    );
    // What it decided of both is in the one record.
    let periods = cores_and_workers(&config.db());
    let both = |(cores, workers): &(Option<f64>, Option<f64>)| {
        cores.is_some_and(|cores| cores < 1.95) && workers.is_some_and(|workers| workers >= 1.0)
    };
    assert!(periods.iter().any(both), "{periods:?}");
    database.program.ends_well();
    assert_has(list(&config.run_dir()), &["no server runs"]);
}

#[test]
fn a_server_that_is_started_again_is_taken_up_again_and_all_is_on_meanwhile() {
    let Some((group, config, mut database)) = start() else {
        return;
    };
    let (mut up, admin) = config.start();
    let loaded = load(&database);
    until_both_are_commanded(&group, admin);
    drop(loaded);
    database.program.ends_well();
    until("it is away", || state(admin).filter(|state| state == "away"));
    until("everything is on", || {
        in_force(admin, "cores").filter(|cores| *cores >= 2.0)
    });
    assert_eq!(in_force(admin, "concurrency"), None);
    database.again(group.dirs());
    let loaded = load(&database);
    until_both_are_commanded(&group, admin);
    until("it is on call", || {
        state(admin).filter(|state| state == "on call")
    });
    drop(loaded);
    // A wrap that was killed leaves a server that serves as without us, and a name that gives way.
    database.program.kill();
    until("it is away", || state(admin).filter(|state| state == "away"));
    assert!(database.asks("select 1").is_some());
    assert_has(list(&config.run_dir()), &["ended without a farewell"]);
    assert_has(
        up.err(),
        &["the server on call is gone", "ended without a farewell"],
    );
    up.stop();
}

#[test]
fn what_a_killed_run_commanded_ends_and_another_takes_over() {
    let Some((group, config, mut database)) = start() else {
        return;
    };
    let before = group.settings();
    let (mut up, admin) = config.start();
    let _load = load(&database);
    until_both_are_commanded(&group, admin);
    up.kill();
    wait("the limits are put back", || group.settings() == before);
    // The levers of the server are free with the process, and its workers with the lease.
    assert_has(list(&config.run_dir()), &["commanded by nobody"]);
    let selects = database.sysbench("--threads=16 --time=6 run").output().unwrap();
    assert!(
        selects.status.success(),
        "{}",
        String::from_utf8_lossy(&selects.stderr)
    );
    let (mut up, admin) = config.start();
    until_both_are_commanded(&group, admin);
    up.stop();
    assert_eq!(group.settings(), before);
    database.program.ends_well();
}

#[test]
fn a_run_waits_for_its_server_and_refuses_what_is_no_server() {
    let Some(group) = Group::new() else {
        return;
    };
    let config = Config::attached(group.dir());
    let said = ["no server on call yet", "wrap --steered"];
    assert_has(run(&mut config.check()).out(), &said);
    let (mut up, admin) = config.start();
    until("it is away", || state(admin).filter(|state| state == "away"));
    assert_has(up.err(), &said);
    up.stop();
    let wrong = |from: &str, to: &str, parts: &[&str]| {
        let config = Config::attached(group.dir()).with(from, to);
        refused(&mut config.check(), parts);
        refused(&mut config.command(), parts);
    };
    wrong(
        "server = \"db\"",
        "server = \"a b\"",
        &["headroom.toml:10: oncall.server", "is no name"],
    );
    wrong("server = \"db\"", "linger_us = 5", &["oncall", "names no server"]);
    wrong("\"on-call\"", "\"constant\"", &["law.constant.setting"]);
    wrong("[oncall]\nserver = \"db\"", "", &["gateway", "[oncall]"]);
    let folder = config.run_dir().join("wrapped");
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("db.json"), "{\"name\": 3}").unwrap();
    for command in [&mut config.check(), &mut config.command()] {
        refused(command, &["oncall.server", "db.json", "is not what"]);
    }
}

#[test]
fn a_steered_server_has_a_name_of_its_own_and_no_law() {
    let folder = tempfile::tempdir().unwrap();
    let wrap = |words: &str| {
        let mut command = headroom(format!("wrap --steered {words} --run-dir"));
        command.arg(folder.path()).arg("--");
        command
    };
    let mut first = Program::start(wrap("--name one").args(["sleep", "60"]));
    first.said("/bin/sleep (pid ");
    let pid = format!("pid {}", first.pid());
    refused(wrap("--name one").arg("true"), &["one.json", &pid, "--name"]);
    refused(wrap("--name a/b").arg("true"), &["a/b", "is no name", "--name"]);
    refused(
        wrap("--law reef").arg("true"),
        &["--law", "`headroom up`, has the law"],
    );
    assert_has(list(folder.path()), &["one\t", "sleep", "commanded by nobody"]);
    first.signal(Signal::TERM);
    assert_eq!(first.wait().code(), Some(143));
    let ended = |mut command: Command| run(command.args(["sh", "-c", "exit 7"])).code();
    assert_eq!(ended(wrap("")), Some(7));
    assert_has(list(folder.path()), &["no server runs"]);
}
