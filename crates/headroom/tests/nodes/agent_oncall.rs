//! `headroom agent` with the levers of a server that `headroom wrap --steered` started, under a controller's lease.

use crate::common::record::cores_and_workers;
use crate::common::{
    Config, Database, Group, Program, assert_has, get, headroom, openmetrics, refused, run, succeeds, until,
};
use crate::parts::{Agent, agent_on, apply_setting, listening, runtime, socket_in, status};
use headroom_units::{Lever, Setting};
use headroom_wire::Address;
use headroom_wire::client::{Client, ClientOptions};
use headroom_wire::message::{Description, Holder, OnCallCounters, Sample};
use rustix::process::Signal;
use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::time::Duration;
use tempfile::TempDir;

/// The sections of an agent's file that name the server, and the longest delay between its rounds that anybody may ask for.
const SERVER: &str = "[limits]\nround_delay = 0.5\n\n[oncall]\nserver = \"db\"\nconnections_in_metrics = 2\n\n[admin]\nlisten = \"127.0.0.1:0\"\n";

/// An agent with a wrapped database.
struct Node {
    database: Database,
    agent: Program,
    address: Address,
    group: Group,
    dir: TempDir,
}

/// The agent's command in a folder.
fn command(group: &Group, dir: &TempDir) -> Command {
    let listen = format!("[\"{}\"]", socket_in(dir.path()));
    agent_on(group, dir.path(), &listen, SERVER)
}

impl Node {
    /// Both, the agent first: the server is attached to when it comes; `None` where this machine or this user cannot have them.
    fn start() -> Option<Self> {
        let group = Group::new()?;
        let dir = tempfile::tempdir().unwrap();
        let (agent, address) = listening(command(&group, &dir));
        let words = format!("--name db --run-dir {}", dir.path().join("run").display());
        let database = Database::start_steered(&words, group.dirs())?;
        database.prepare();
        Some(Self {
            database,
            agent,
            address,
            group,
            dir,
        })
    }

    /// What the agent said it is, and a sample of a tenth of a second.
    fn seen(&self) -> (Description, Sample) {
        runtime().block_on(async {
            let client = Client::connect(&self.address, &ClientOptions::default())
                .await
                .unwrap();
            let mut samples = client.observe(Duration::from_millis(100)).await.unwrap();
            let sample = samples.next().await.unwrap().unwrap();
            (client.agent().clone(), sample)
        })
    }

    /// What was counted, while the server is there.
    fn counted(&self) -> Option<OnCallCounters> {
        let oncall = self.seen().1.oncall.unwrap();
        oncall.now.ok().map(|_| oncall.counters)
    }

    fn commanded(&self) -> Setting {
        self.seen().1.in_force
    }

    /// Half a second from round to round: whoever asks and waits for the answer is answered twice a second.
    fn slow_down(&self, lease: Duration) {
        let asked = apply_setting(&self.address, &ClientOptions::default(), 1, SLOW.into(), lease);
        assert_eq!(asked.unwrap(), Setting::from(SLOW), "{}", self.agent.err());
    }

    /// While four clients ask, the agent's admin port has each of them, and the metrics of the two busiest.
    fn tells_of_its_connections(&mut self) {
        let at = self.agent.said("connections: http://");
        let at: SocketAddr = at.trim_end_matches("/connections").parse().unwrap();
        let mut load = self.database.sysbench("--threads=4 --time=20 run");
        let mut load = load.stdout(Stdio::null()).spawn().unwrap();
        until("each connection is told", || {
            let page = get(at, "/connections").ok()?;
            let told: serde_json::Value = serde_json::from_str(&page.body).ok()?;
            let all = told["connections"].as_array()?;
            let busy = all.iter().filter(|one| one["queries"].as_u64() > Some(10));
            (busy.count() >= 4).then_some(())
        });
        let page = get(at, "/metrics").unwrap();
        let metrics = openmetrics::parse(&page.body).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(metrics.of("headroom_connection_queries_total").count(), 2);
        load.kill().unwrap();
        load.wait().unwrap();
    }

    fn release(&self) {
        runtime().block_on(async {
            let client = Client::connect(&self.address, &ClientOptions::default())
                .await
                .unwrap();
            client.release(&Holder::new("test 1", 1).unwrap()).await.unwrap();
        });
    }

    /// Queries that four clients are answered in two seconds.
    fn answered(&self) -> u64 {
        let done = self
            .database
            .sysbench("--threads=4 --time=2 run")
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&done.stdout);
        let total = text.lines().find_map(|line| line.trim().strip_prefix("total:"));
        let total = total.unwrap_or_else(|| panic!("{text} {}", String::from_utf8_lossy(&done.stderr)));
        total.trim().parse().unwrap()
    }

    /// Who commands the server, as `wrap --list` says.
    fn commander(&self) -> String {
        run(headroom("wrap --list --run-dir").arg(self.dir.path().join("run"))).out()
    }
}

const SLOW: [(Lever, f64); 3] = [
    (Lever::Concurrency, 1.0),
    (Lever::QueryBatch, 1.0),
    (Lever::RoundDelay, 0.5),
];

/// Twenty is far from two times four for two seconds, and from what a database answers that is left alone.
const MANY: u64 = 20 * 16;

#[test]
fn a_lease_has_the_workers_on_call_and_all_go_when_it_ends_or_the_agent_is_killed() {
    let Some(mut node) = Node::start() else {
        return;
    };
    until("the server is attached to", || node.counted());
    let (description, _) = node.seen();
    let server = description.oncall.unwrap();
    assert_eq!(server.name, "db");
    for (lever, _) in SLOW {
        assert!(description.ranges.get(lever).is_some(), "{lever}");
    }
    assert_has(
        node.commander(),
        &[&format!("commanded by pid {}", node.agent.pid())],
    );
    node.tells_of_its_connections();
    // As it is; the queries are counted, with how long each took.
    let before = node.counted().unwrap();
    let free = node.answered();
    assert!(free > MANY, "{free}");
    let since = |before: &OnCallCounters| node.counted().unwrap().queries - before.queries;
    assert!(since(&before) >= free, "{} of {free}", since(&before));
    let counted = node.counted().unwrap();
    let latencies: u64 = counted.latencies.iter().map(|(_, count)| count).sum();
    assert!(latencies > 0 && counted.context_switches > Some(0), "{counted:?}");
    // Under a lease.
    node.slow_down(Duration::from_secs(60));
    assert_eq!(node.commanded(), SLOW.into());
    let slow = node.answered();
    assert!(slow < MANY / 10, "{slow} of {free}");
    let (rounds, after) = (counted.rounds, node.counted().unwrap().rounds);
    assert!(after > rounds, "{rounds} rounds, then {after}");
    // No holder may ask for nobody, or for less than the node's own file lets.
    for (lever, value, said) in [
        (Lever::Concurrency, 0.0, "concurrency is 0 workers, outside 1 to"),
        (Lever::RoundDelay, 0.6, "limits.round_delay = 0.5"),
    ] {
        let setting = Setting::from([(lever, value)]);
        let (options, lease) = (ClientOptions::default(), Duration::from_secs(5));
        let refused = apply_setting(&node.address, &options, 1, setting, lease);
        let why = refused.unwrap_err().to_string();
        assert!(why.contains(said), "{why}");
    }
    // An operator of the machine goes before whoever has the lease.
    let operate = |word: &str| {
        let mut command = headroom(format!("{word} --run-dir"));
        succeeds(command.arg(node.dir.path().join("run")));
    };
    operate("pause");
    until("all workers go", || node.commanded().is_empty().then_some(()));
    assert!(node.answered() > MANY);
    operate("resume");
    until("they are on call again", || {
        (node.commanded() == SLOW.into()).then_some(())
    });
    node.release();
    assert!(node.commanded().is_empty());
    assert!(node.answered() > MANY);
    // A lease that is not renewed.
    node.slow_down(Duration::from_secs(1));
    until("the lease has ended", || {
        node.commanded().is_empty().then_some(())
    });
    assert!(node.answered() > MANY);
    // An agent that hangs keeps nobody from running, and has the workers again when it goes on.
    node.slow_down(Duration::from_secs(300));
    node.agent.signal(Signal::STOP);
    until("all workers go", || (node.answered() > MANY).then_some(()));
    node.agent.signal(Signal::CONT);
    until("they are on call again", || {
        (node.answered() < MANY / 10).then_some(())
    });
    // An agent that is killed.
    node.slow_down(Duration::from_secs(60));
    node.agent.kill();
    assert_has(node.commander(), &["commanded by nobody"]);
    until("all workers go", || (node.answered() > MANY).then_some(()));
    // The next one has the server again.
    (node.agent, node.address) = listening(command(&node.group, &node.dir));
    node.slow_down(Duration::from_secs(60));
    assert!(node.answered() < MANY / 10);
    node.agent.stop();
    assert!(node.answered() > MANY, "with the agent's end all workers go");
}

#[test]
fn a_server_that_is_started_again_has_what_the_lease_asks_for() {
    let Some(mut node) = Node::start() else {
        return;
    };
    until("the server is attached to", || node.counted());
    node.answered();
    node.slow_down(Duration::from_secs(300));
    let before = node.counted().unwrap();
    node.database.program.signal(Signal::TERM);
    assert_eq!(node.database.program.wait().code(), Some(0));
    let why = until("it is away", || node.seen().1.oncall?.now.err());
    assert!(why.contains("wrap --steered"), "{why}");
    assert!(node.commanded().is_empty());
    // A controller that renews is answered, and told.
    let asked = apply_setting(
        &node.address,
        &ClientOptions::default(),
        1,
        SLOW.into(),
        Duration::from_secs(300),
    );
    assert!(asked.unwrap().is_empty());
    node.database.again(node.group.dirs());
    let after = until("the server is attached to again", || node.counted());
    // Counts are of the agent's time, not of one process.
    assert!(after.queries >= before.queries, "{before:?}, then {after:?}");
    until("its workers are on call", || {
        (node.commanded() == SLOW.into()).then_some(())
    });
    assert!(node.answered() < MANY / 10);
    // A wrap that is killed leaves its server to itself.
    node.database.program.kill();
    until("it is away", || node.seen().1.oncall?.now.err());
    assert!(node.answered() > MANY);
}

#[test]
fn a_server_has_one_commander_and_a_check_says_who() {
    let Some(node) = Node::start() else {
        return;
    };
    until("the server is attached to", || node.counted());
    let other = Group::new().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let file = node.dir.path().join("run/wrapped/db.json");
    let section = format!("[oncall]\nserver = \"{}\"\n", file.display());
    let second = || {
        agent_on(
            &other,
            dir.path(),
            &format!("[\"{}\"]", socket_in(dir.path())),
            &section,
        )
    };
    let pid = format!("pid {}", node.agent.pid());
    for command in [&mut second(), second().arg("--check")] {
        refused(
            command,
            &["agent.toml:5: oncall.server", &pid, "one commander at a time"],
        );
    }
    let mut own = command(&node.group, &node.dir);
    let own = run(own.arg("--check"));
    assert_has(
        own.out(),
        &[
            "on call",
            "db (pid ",
            "concurrency",
            "round_delay",
            "127.0.0.1:0 (admin)",
        ],
    );
    assert_eq!(own.code(), Some(0), "{}", own.err());
}

/// A lever of the run, as far as it is in force.
fn in_force(admin: SocketAddr, lever: &str) -> Option<f64> {
    status(admin)?["in_force"][lever].as_f64()
}

/// Waits until the law takes cores away, and has the workers of each node on call.
fn until_both_are_commanded(nodes: &[&Node], admin: SocketAddr) -> Setting {
    until(
        "cores and workers of all nodes are commanded by one controller",
        || {
            let on_call = |node: &&Node| {
                let setting = node.commanded();
                let has_both = setting.cores().is_some_and(|cores| cores.get() < 1.95)
                    && setting
                        .get(Lever::Concurrency)
                        .is_some_and(|workers| workers >= 1.0);
                has_both.then_some(setting)
            };
            let settings: Vec<Setting> = nodes.iter().map(on_call).collect::<Option<_>>()?;
            in_force(admin, "concurrency")?;
            let same = settings
                .iter()
                .all(|one| one.get(Lever::Concurrency) == settings[0].get(Lever::Concurrency));
            same.then_some(settings[0])
        },
    )
}

#[test]
fn a_controller_has_the_servers_of_all_its_nodes_on_call_and_goes_by_their_queries() {
    let (Some(one), Some(mut two)) = (Node::start(), Node::start()) else {
        return;
    };
    until("both servers are attached to", || {
        one.counted().zip(two.counted())
    });
    let nodes = [("n1", one.address.to_string()), ("n2", two.address.to_string())];
    let config = Config::controller_of_queries(&nodes, 2000);
    let mut check = headroom("controller --check --config");
    let check = run(check.arg(config.file()));
    assert_eq!(check.code(), Some(0), "{}", check.err());
    assert_has(check.out(), &["concurrency", "round_delay"]);
    let (mut controller, admin) = config.start();
    let load =
        |node: &Node| Program::start(&mut node.database.sysbench("--threads=8 --rate=200 --time=120 run"));
    let loads = [load(&one), load(&two)];
    until_both_are_commanded(&[&one, &two], admin);
    // Their queries are the requests; each node has its part of them.
    until("the queries of both are seen", || {
        let status = status(admin)?;
        let oncall = &status["observation"]["oncall"];
        let queries = oncall["queries"].as_u64()?;
        let completions = status["observation"]["traffic"]["completions"].as_u64()?;
        let rate = |name: &str| {
            let node = status["nodes"]
                .as_array()?
                .iter()
                .find(|node| node["name"] == name)?;
            node["values"]["service_rate"]
                .as_f64()
                .filter(|rate| *rate > 10.0)
        };
        let (first, second) = (rate("n1")?, rate("n2")?);
        (queries > 0 && completions > 0 && oncall["connections"].as_u64()? >= 16).then_some((first, second))
    });
    let page = get(admin, "/metrics").unwrap().body;
    let metrics = openmetrics::parse(&page).unwrap_or_else(|error| panic!("{error}"));
    assert!(metrics.sum("headroom_connections") >= Some(16.0), "{page}");
    assert!(metrics.sum("headroom_switches_per_query") > Some(0.0), "{page}");
    // Killed, nobody renews: all workers go, and the limits are put back.
    controller.kill();
    until("both nodes put themselves back", || {
        (one.commanded().is_empty() && two.commanded().is_empty()).then_some(())
    });
    // A second controller has them again; without one server nothing is known of the requests, and everything is on.
    let (mut controller, admin) = config.start();
    until_both_are_commanded(&[&one, &two], admin);
    drop(loads);
    two.database.program.signal(Signal::TERM);
    assert_eq!(two.database.program.wait().code(), Some(0));
    until("everything is on", || {
        let cores = one.commanded().cores();
        (in_force(admin, "cores")? >= 3.9 && cores.is_none_or(|cores| cores.get() >= 1.95)).then_some(())
    });
    assert_has(
        controller.err(),
        &["the queries of this period are not known: n2: "],
    );
    two.database.again(two.group.dirs());
    let loads = [load(&one), load(&two)];
    until_both_are_commanded(&[&one, &two], admin);
    drop(loads);
    controller.stop();
    assert!(one.commanded().is_empty() && two.commanded().is_empty());
    let summary = controller.json();
    assert!(
        summary["requests"]["completed"].as_u64().unwrap() > 100,
        "{summary}"
    );
    let periods = cores_and_workers(&config.db());
    assert!(
        periods.iter().any(|(_, workers)| workers.is_some()),
        "{periods:?}"
    );
}

#[test]
fn each_law_of_servers_on_call_runs_in_a_controller() {
    let Some(node) = Node::start() else {
        return;
    };
    until("the server is attached to", || node.counted());
    let nodes = [("n1", node.address.to_string())];
    for law in ["joint", "reef", "on-call"] {
        let config = Config::controller_of_queries(&nodes, 2000)
            .with("[\"slo-power\", \"on-call\"]", &format!("\"{law}\""))
            .with("target_ms = 500", "target_ms = 2000");
        let (mut controller, admin) = config.start();
        // More at once than one core serves: the workers stand in line.
        let load = Program::start(&mut node.database.sysbench("--threads=32 --time=120 run"));
        until(&format!("{law} has the workers on call"), || {
            in_force(admin, "concurrency").filter(|workers| *workers >= 1.0)
        });
        drop(load);
        controller.stop();
        assert!(node.commanded().is_empty(), "{law}");
    }
}

#[test]
fn a_controller_of_queries_refuses_a_node_without_a_server() {
    let Some(group) = Group::new() else {
        return;
    };
    let agent = Agent::start(&group);
    let config = Config::controller_of_queries(&[("n1", agent.at())], 2000);
    let line = format!(
        "controller.toml:{}: cluster.queries",
        config.line_of("queries = true")
    );
    refused(
        config.command(),
        &[&line, "the agent of n1 has no server on call", "[oncall]"],
    );
    // Where gateways count the requests the levers are what lacks.
    let without = Config::controller(&[("n1", agent.at())], "unix:/none", 2000)
        .with("\"slo-power\"", "\"on-call\"")
        .with("[gateways]\ng1 = \"unix:/none\"\n", "")
        .with("wait_s = 20", "wait_s = 20\nqueries = false");
    refused(without.command(), &["gateways: has 0", "cluster.queries = true"]);
}
