//! `headroom controller` with agents, a gateway and a wiki on this machine.

use crate::common::{
    Config, Emulator, Gateway, Group, NOBODY, Program, Traffic, Wiki, assert_has, fuse_or_skipped, get,
    headroom, refused, succeeds, until, wait,
};
use crate::parts::{Agent, Certs, Plain, agent_command, listening, socket_in, status};
use rustix::process::Signal;
use serde_json::Value;
use std::fs;
use std::net::UdpSocket;
use std::time::Duration;

#[test]
fn cores_are_spread_over_the_nodes_and_released_at_the_end_and_after_kill_9() {
    let (Some(one), Some(two)) = (Group::new(), Group::new()) else {
        return;
    };
    let (first, second) = (Agent::start(&one), Agent::start(&two));
    let wiki = Wiki::of(&one);
    let gateway = Gateway::start(&[wiki.address]);
    let traffic = Traffic::to(gateway.address);
    let nodes = [("n1", first.at()), ("n2", second.at())];
    let config = Config::controller(&nodes, &gateway.control(), 2000);

    let (mut controller, admin) = config.start();
    // The load is low: the law saves, on both nodes alike.
    until("both nodes have fewer cores", || {
        let (one, two) = (one.cores()?, two.cores()?);
        (one < 1.5 && two < 1.5 && (one - two).abs() < 0.11).then_some(())
    });
    let seen = status(admin).unwrap();
    assert!(
        seen["observation"]["traffic"]["arrivals"].as_u64().is_some(),
        "{seen}"
    );
    assert_eq!(seen["observation"]["power"]["source"], "estimated", "{seen}");
    assert!(seen["observation"]["utilisation"].as_f64().is_some(), "{seen}");

    // Another controller is refused, by name, at once and with nothing changed.
    let before = (one.cores(), two.cores());
    let other = second_of(&nodes, &gateway);
    refused(
        other.command(),
        &["no node can be commanded", "held by \"first\""],
    )
    .err();
    assert!(before.0.is_some() && one.cores().is_some());

    // Killed, nobody renews: each node puts itself back when its lease ends.
    controller.kill();
    wait("the nodes put themselves back", || {
        one.cores().is_none() && two.cores().is_none()
    });

    // One that is killed and started again at once waits for the leases of the one before.
    let (mut controller, _) = config.start();
    until("both nodes are limited", || one.cores().zip(two.cores()));
    controller.kill();
    // The next one takes over, and releases when it is told to stop.
    let (mut controller, admin) = config.start();
    until("both nodes are limited again", || {
        one.cores().zip(two.cores()).map(|_| ())
    });
    until("requests are counted", || {
        let seen = status(admin)?;
        (seen["observation"]["period"].as_u64()? > 3
            && seen["observation"]["traffic"]["completions"].as_u64()? > 0)
            .then_some(())
    });
    controller.stop();
    assert_eq!((one.cores(), two.cores()), (None, None), "{}", controller.err());
    let summary = controller.json();
    assert_eq!(summary["energy_j"]["source"], "estimated", "{summary}");
    assert!(
        summary["requests"]["completed"].as_u64().unwrap() > 0,
        "{summary}"
    );
    assert!(traffic.answered() > 0);
    assert_eq!(traffic.wrong(), 0, "no request noticed");
}

#[test]
fn a_check_asks_the_source_of_telemetry_and_takes_nothing_from_a_controller_that_runs() {
    let node = Plain::start();
    let source = |table: String| {
        Config::controller(&[("n1", node.at())], "unix:/none", 1000)
            .with("[gateways]\ng1 = \"unix:/none\"\n", &table)
    };
    let checked = |config: &Config| succeeds(config.command().arg("--check")).json();
    let json = checked(&source(format!(
        "[telemetry.prometheus]\nurl = \"http://{NOBODY}\"\nlatency = \"l\"\nrate = \"r\"\n"
    )));
    assert_has(
        json["notes"].to_string(),
        &["no telemetry yet", &format!("Prometheus at http://{NOBODY}")],
    );

    let udp = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let config = source(format!(
        "[telemetry.haproxy]\nlog = \"udp:{udp}\"\nstatistics = \"/none/haproxy.sock\"\n"
    ));
    let place = |json: &Value| json["listeners"][1].clone();
    let json = checked(&config);
    assert_eq!(place(&json)["address"], format!("udp:{udp}"), "{json}");
    assert_has(
        json["notes"].to_string(),
        &["no telemetry yet", "/none/haproxy.sock"],
    );
    let (mut controller, _) = config.start();
    let json = checked(&config);
    assert!(place(&json)["in_use_by"].as_u64().is_some(), "{json}");
    assert_has(controller.err(), &["no telemetry yet"]);
    controller.stop();
}

/// A second controller of the same nodes.
fn second_of(nodes: &[(&str, String)], gateway: &Gateway) -> Config {
    Config::controller(nodes, &gateway.control(), 2000)
        .with("name = \"first\"", "name = \"second\"")
        .with("wait_s = 20", "wait_s = 2")
}

#[test]
fn a_node_that_dies_counts_no_more_and_is_taken_back_when_it_returns() {
    let (Some(one), Some(two)) = (Group::new(), Group::new()) else {
        return;
    };
    let (first, mut second) = (Agent::start(&one), Agent::start(&two));
    let wiki = Wiki::of(&one);
    let gateway = Gateway::start(&[wiki.address]);
    let nodes = [("n1", first.at()), ("n2", second.at())];
    let config = Config::controller(&nodes, &gateway.control(), 2000).with("slo-power", "fixed");
    let (mut controller, admin) = config.start();
    let allocated = || status(admin)?["observation"]["in_force"]["cores"].as_f64();
    // Everything on is no limit, and none is written: what says that a node is commanded is its state.
    let held = || {
        let status = status(admin)?;
        let nodes = status["nodes"].as_array()?;
        let all_held = nodes.iter().all(|node| node["state"] == "held");
        (nodes.len() == 2 && all_held).then_some(())
    };
    let all = until("both are counted", || allocated().filter(|_| held().is_some()));

    second.program.kill();
    until("one is counted", || {
        allocated().filter(|cores| *cores < 0.75 * all)
    });
    assert_has(controller.err(), &["the node is lost"]);
    second.program = Agent::again(&two, second.dir.path());
    until("both are counted again", || {
        allocated().filter(|cores| *cores > 0.99 * all)
    });
    assert_has(controller.err(), &["the node is back"]);
    until("it is held", held);

    // A gateway that is gone is lost telemetry, and everything goes to full; its return is noticed.
    let lost = |admin| status(admin).filter(|status| status["observation"]["traffic"].is_null());
    drop(gateway);
    until("telemetry is lost", || lost(admin));
    controller.stop();
    assert_eq!((one.cores(), two.cores()), (None, None));
}

#[test]
fn a_node_whose_service_was_away_for_a_while_is_commanded_again() {
    let node = Plain::start();
    let gateway = Gateway::of_nobody();
    let config = Config::controller(&[("n1", node.at())], &gateway.control(), 1000);
    let (mut controller, _) = config.start();
    until("the node is limited", || node.cores());
    let away = node.dir.path().join("away");
    fs::rename(node.group(), &away).unwrap();
    controller.said("/web");
    fs::rename(&away, node.group()).unwrap();
    fs::write(node.group().join("cpu.max"), "max 100000\n").unwrap();
    until("the node is limited again", || node.cores());
    controller.stop();
    assert_eq!(node.cores(), None, "{}", node.program.err());
}

#[test]
fn two_gateways_are_one_telemetry_and_one_that_hangs_is_lost_telemetry() {
    let node = Plain::start();
    let wiki = Wiki::start("127.0.0.1:0");
    let at = wiki.address;
    let (first, second) = (Gateway::start(&[wiki.address]), Gateway::start(&[wiki.address]));
    let config = Config::controller(&[("n1", node.at())], &first.control(), 2000).with(
        "\n[cluster]",
        &format!("g2 = \"{}\"\n\n[cluster]", second.control()),
    );
    let (mut controller, admin) = config.start();
    let traffic = [Traffic::to(first.address), Traffic::to(second.address)];
    let answered = || -> u64 { traffic.iter().map(|one| one.answered()).sum() };
    let counter = |name: &str| -> Option<u64> {
        let metrics = get(admin, "/metrics").ok()?.body;
        let value = metrics
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))?;
        value.parse().ok()
    };
    let more = answered() + 200;
    wait("both gateways answer", || answered() >= more);
    for one in &traffic {
        let alone = one.answered();
        assert!(alone > 20, "both have had their share: {alone}");
    }
    let clients = traffic.len() as u64;
    drop(traffic);
    // What is counted at the last comes with the next period.
    let total = until("the traffic has ended", || {
        let before = counter("headroom_service_completions_total")?;
        std::thread::sleep(Duration::from_millis(700));
        (counter("headroom_service_completions_total")? == before).then_some(before)
    });
    // What was answered before the first whole period of both belongs to no run.
    assert!(total >= 150, "{total} completions of both together");
    let backends = get(admin, "/metrics").unwrap().body;
    let sent: u64 = backends
        .lines()
        .filter(|line| line.starts_with("headroom_backend_requests_total{"))
        .filter_map(|line| line.rsplit_once(' ')?.1.parse::<u64>().ok())
        .sum();
    // What was on its way when the run began was sent before it: at most one request of each client.
    assert!(
        sent + clients >= total,
        "{sent} sent for {total} answered\n{backends}"
    );
    // Connections opened before the run and kept alive since are not counted: what matters is that the count is told.
    let opened = format!("headroom_backend_connects_total{{backend=\"http://{at}\",outcome=\"opened\"}}");
    for name in [opened.as_str(), "headroom_service_queue_waits_total"] {
        assert!(
            backends.lines().any(|line| line.starts_with(name)),
            "{name}\n{backends}"
        );
    }
    // It may serve, for all that is known here.
    second.program.signal(Signal::STOP);
    until("half of the requests are not seen: telemetry is lost", || {
        status(admin).filter(|status| status["observation"]["traffic"].is_null())
    });
    controller.stop();
}

#[test]
fn what_one_core_serves_is_measured_over_the_nodes_where_it_is_not_given() {
    let Some(group) = Group::new() else { return };
    let agent = Agent::start(&group);
    let wiki = Wiki::of(&group);
    let gateway = Gateway::start(&[wiki.address]);
    let _traffic = Traffic::to(gateway.address);
    let config = Config::controller(&[("n1", agent.at())], &gateway.control(), 2000)
        .with("requests_per_core_s = 400", "calibrate_s = 3.0");
    let (mut controller, admin) = config.start();
    until("it says that it calibrates", || {
        status(admin).filter(|status| status["decided"]["reasons"][0]["rule"] == "calibrating")
    });
    let rate = until("what one core serves is said", || {
        controller.err().lines().find_map(|line| {
            line.strip_prefix("one core serves ")?
                .strip_suffix(" requests/s")?
                .parse::<f64>()
                .ok()
        })
    });
    // The front page takes some tenths of a millisecond of processor time.
    assert!((200.0..50_000.0).contains(&rate), "{rate} requests/s");
    until("the law decides", || {
        status(admin).filter(|status| {
            let rule = status["decided"]["reasons"][0]["rule"].as_str();
            rule.is_some_and(|rule| !rule.starts_with("calibrat"))
        })
    });
    controller.stop();
    assert_eq!(group.cores(), None);
}

#[test]
fn watts_of_an_emulated_and_of_an_estimated_node_are_never_added() {
    if !fuse_or_skipped("emulated hardware") {
        return;
    }
    let plain = Plain::start();
    let dir = tempfile::tempdir().unwrap();
    let mut emulator = Emulator::start(dir.path(), "headroom-mixed", 0.5);
    let socket = socket_in(dir.path());
    let mut agent = agent_command(&format!("--cgroup /web --listen {socket}"), dir.path());
    emulator.trees(&mut agent);
    let (mut agent, _) = listening(agent);
    let gateway = Gateway::of_nobody();
    let nodes = [("plain", plain.at()), ("emulated", socket)];
    let config = Config::controller(&nodes, &gateway.control(), 2000).with("slo-power", "fixed");
    let (mut controller, admin) = config.start();
    assert_has(controller.err(), &["different sources and are not added"]);
    let seen = until("both nodes are seen", || {
        let seen = status(admin)?;
        (seen["observation"]["period"].as_u64()? > 5 && seen["observation"]["utilisation"].is_number())
            .then_some(seen)
    });
    assert!(seen["observation"]["power"].is_null(), "{seen}");
    let metrics = get(admin, "/metrics").unwrap().body;
    for power in ["headroom_node_cpu_watts{", "headroom_node_cpu_joules_total{"] {
        assert!(!metrics.contains(power), "{metrics}");
    }
    controller.stop();
    let summary = controller.json();
    assert!(
        summary["energy_j"].is_null() || summary["energy_j"]["value"].is_null(),
        "{summary}"
    );
    agent.stop();
    emulator.program.stop();
}

#[test]
fn what_cannot_be_reached_is_told_and_nothing_starts() {
    let Some(group) = Group::new() else { return };
    let agent = Agent::start(&group);
    let dir = tempfile::tempdir().unwrap();
    let nowhere = format!("unix:{}/none.sock", dir.path().display());
    let quick = |config: Config| config.with("wait_s = 20", "wait_s = 0.5");
    refused(
        quick(Config::controller(&[("n1", nowhere.clone())], &nowhere, 2000)).command(),
        &[
            "controller.toml:4: nodes: no node can be commanded: node n1: ",
            "start `headroom agent` there",
        ],
    );

    let config = quick(Config::controller(&[("n1", agent.at())], &nowhere, 2000));
    refused(config.command(), &["gateways: none can be reached: gateway g1: "]);

    let gateway = Gateway::of_nobody();
    let config = Config::controller(&[("n1", agent.at()), ("n2", nowhere)], &gateway.control(), 2000);
    let out = succeeds(quick(config).command().arg("--check")).out();
    let found: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(
        (&found["ok"], &found["law"]),
        (&true.into(), &"slo-power".into()),
        "{out}"
    );
    assert!(
        found["notes"][0].as_str().unwrap().starts_with("node n2: "),
        "{out}"
    );
    assert_eq!(group.cores(), None);
}

#[test]
fn a_gateway_is_reached_over_tcp_with_the_controllers_certificate_only() {
    let Some(group) = Group::new() else { return };
    let (agent, certs, other) = (Agent::start(&group), Certs::new(), Certs::new());
    let mut command =
        headroom("gateway --listen 127.0.0.1:0 --backend http://127.0.0.1:9 --control 127.0.0.1:0");
    refused(&mut command, &["--control: 127.0.0.1:0 is TCP", "--control-ca"]);
    for (option, file) in [
        ("--control-ca", "ca.crt"),
        ("--control-cert", "node-n1.crt"),
        ("--control-key", "node-n1.key"),
    ] {
        command.arg(option).arg(certs.dir().join(file));
    }
    let mut gateway = Program::start(&mut command);
    let control = gateway.said("control on ");
    let config = |certs: &Certs| {
        Config::controller(&[("n1", agent.at())], &control, 2000)
            .with("[law]", &format!("{}\n[law]", certs.section("controller")))
            .with("wait_s = 20", "wait_s = 3")
    };
    succeeds(config(&certs).command().arg("--check"));
    refused(
        config(&other).command().arg("--check"),
        &["gateways: none can be reached"],
    );
}
