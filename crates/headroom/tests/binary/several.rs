//! Several services of one machine under one `headroom up`, or under one agent.

use crate::common::{
    Config, Group, Program, free_port, get, headroom, refused, succeeds, undo_left, until, wait,
};
use std::fs;
use std::net::SocketAddr;

/// Where the service of each group is served, as soon as all are.
fn served(program: &mut Program, groups: &[&Group]) -> Vec<SocketAddr> {
    let of = |err: &str, group: &Group| {
        let start = format!("serving cgroup {} on ", group.path());
        let line = err.lines().find_map(|line| line.strip_prefix(&*start))?;
        line.parse().ok()
    };
    program.says("where each service is served", |err| {
        groups.iter().map(|group| of(err, group)).collect()
    })
}

#[test]
fn one_up_controls_several_services_and_puts_each_back() {
    let (Some(one), Some(other)) = (Group::new(), Group::new()) else {
        return;
    };
    one.limit(90_000, 100_000);
    let before = [one.settings(), other.settings()];
    let configs = [Config::idle(&one), Config::idle(&other)];
    let mut program = Program::start(configs[0].command().arg("--config").arg(configs[1].file()));
    let gateways = served(&mut program, &[&one, &other]);
    assert_ne!(gateways[0], gateways[1]);
    // Each has its own law and its own gateway; without a backend that answers both say so themselves.
    for gateway in &gateways {
        assert_eq!(get(*gateway, "/").unwrap().status, 502);
    }
    until("both services are saved on", || {
        let saves = |group: &Group, found: f64| group.cores().filter(|cores| *cores < 0.7 * found);
        saves(&one, 0.9).zip(saves(&other, 2.0))
    });
    program.stop();
    assert_eq!([one.settings(), other.settings()], before);
    assert!(!undo_left(&configs[0].run_dir()));
    assert!(
        !configs[0].run_dir().join("services").exists(),
        "the gateways left nothing"
    );
    let out = program.out();
    let summaries: Vec<serde_json::Value> = out
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(summaries.len(), 2, "{out}");
    for (config, db) in configs.iter().zip([configs[0].db(), configs[1].db()]) {
        assert!(fs::metadata(db).unwrap().len() > 0, "{}", config.dir().display());
    }
}

#[test]
fn after_kill_9_all_services_are_put_back_and_their_gateways_serve_on_and_are_taken_over() {
    let (Some(one), Some(other)) = (Group::new(), Group::new()) else {
        return;
    };
    let before = [one.settings(), other.settings()];
    let port = |config: Config| {
        let listen = format!("listen = [\"127.0.0.1:{}\"]", free_port());
        config.with("listen = [\"127.0.0.1:0\"]", &listen)
    };
    let configs = [port(Config::idle(&one)), port(Config::idle(&other))];
    let start = || {
        let mut program = Program::start(configs[0].command().arg("--config").arg(configs[1].file()));
        let gateways = served(&mut program, &[&one, &other]);
        (program, gateways)
    };
    let (mut program, gateways) = start();
    until("both services are saved on", || {
        let saves = |group: &Group| group.cores().filter(|cores| *cores < 1.4);
        saves(&one).zip(saves(&other))
    });
    program.kill();
    wait("everything is as it was found", || {
        [one.settings(), other.settings()] == before
    });
    for gateway in &gateways {
        assert_eq!(get(*gateway, "/").unwrap().status, 502);
    }
    let (mut program, again) = start();
    assert_eq!(again, gateways);
    assert_eq!(
        program.err().matches("taking over the gateway").count(),
        2,
        "{}",
        program.err()
    );
    program.stop();
    // One service alone: the gateways of a killed run with two are ended, not left beside it.
    let (mut program, gateways) = start();
    program.kill();
    wait("the run folder is free", || !undo_left(&configs[0].run_dir()));
    let mut alone = Program::start(&mut configs[0].command());
    assert_eq!(served(&mut alone, &[&one]), gateways[..1]);
    wait("the other's gateway ended", || get(gateways[1], "/").is_err());
    alone.stop();
}

#[test]
fn services_that_want_the_same_are_refused_by_check_and_start_before_anything_is_changed() {
    let (Some(one), Some(other)) = (Group::new(), Group::new()) else {
        return;
    };
    let before = [one.settings(), other.settings()];
    let listen = format!("listen = [\"127.0.0.1:{}\"]", free_port());
    let at_port = |group: &Group| Config::idle(group).with("listen = [\"127.0.0.1:0\"]", &listen);
    let same_port = [at_port(&one), at_port(&other)];
    let same_group = [Config::idle(&one), Config::idle(&one)];
    for (configs, why) in [
        (&same_port, "give each service a port of its own"),
        (&same_group, "one law controls a service"),
    ] {
        for check in [true, false] {
            let mut command = configs[0].command();
            command.arg("--config").arg(configs[1].file());
            if check {
                command.arg("--check");
            }
            refused(&mut command, &[why]);
        }
    }
    assert_eq!([one.settings(), other.settings()], before);
    let good = [Config::idle(&one), Config::idle(&other)];
    let mut command = good[0].command();
    command.arg("--config").arg(good[1].file()).arg("--check");
    let program = succeeds(&mut command);
    assert_eq!(program.json()["services"].as_array().map(Vec::len), Some(2));
}

#[test]
fn one_agent_serves_several_services_each_on_its_own_address() {
    let (Some(one), Some(other)) = (Group::new(), Group::new()) else {
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let mut command = headroom("agent --run-dir");
    command.arg(dir.path().join("run"));
    for (name, group) in [("a", &one), ("b", &other)] {
        let file = dir.path().join(format!("{name}.toml"));
        let socket = dir.path().join(format!("{name}.sock"));
        let text = format!(
            "[agent]\nlisten = [\"unix:{}\"]\n\n[service]\ncgroup = \"{}\"\n\n[power]\nmeter = \"model\"\n",
            socket.display(),
            group.path()
        );
        fs::write(&file, text).unwrap();
        command.arg("--config").arg(file);
    }
    let mut agent = Program::start(&mut command);
    let places = agent.says("where it listens", |err| {
        let all: Vec<&str> = err
            .lines()
            .filter_map(|line| line.strip_prefix("listening on "))
            .collect();
        (all.len() == 2).then(|| all.join(" "))
    });
    assert!(places.contains("a.sock") && places.contains("b.sock"), "{places}");
    agent.stop();
}
