//! `headroom resize` with accept queues that agents watch, over a Unix socket and over TCP.

use crate::common::{Certs, Group, Program, headroom, run, until};
use crate::controller::Gateway;
use headroom_node::Roots;
use headroom_node::queue::{EbpfQueueMeter, QueueError};
use serde_json::Value;
use std::fs;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A server that takes each connection and closes it.
struct Server {
    address: SocketAddr,
    taken: Arc<AtomicU64>,
}

impl Server {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let taken = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&taken);
        // It ends with the test's process.
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                drop(stream);
                counted.fetch_add(1, Ordering::SeqCst);
            }
        });
        Self { address, taken }
    }

    fn connect(&self, times: u64) {
        for _ in 0..times {
            TcpStream::connect(self.address).unwrap();
        }
    }

    fn taken(&self) -> u64 {
        self.taken.load(Ordering::SeqCst)
    }

    /// Whether queues can be counted here, which is said where they cannot.
    fn can_be_counted(&self) -> bool {
        match EbpfQueueMeter::open(self.address.port(), &Roots::default()) {
            Ok(_) => true,
            Err(error @ QueueError::Refused { .. }) => {
                println!("skipped: the accept queue by eBPF: {error}");
                false
            }
            Err(error) => panic!("{error}"),
        }
    }
}

/// An agent that listens on a Unix socket and on TCP.
fn agent(group: &Group, dir: &Path, certs: &Certs, tcp: SocketAddr) -> Program {
    let file = dir.join("agent.toml");
    let text = format!(
        "[agent]\nlisten = [\"unix:{}\", \"{tcp}\"]\n\n{}\n[service]\ncgroup = \"{}\"\n",
        dir.join("agent.sock").display(),
        certs.section("node-n1"),
        group.path()
    );
    fs::write(&file, text).unwrap();
    let mut command = headroom();
    command.args(["agent", "--config"]).arg(&file);
    let mut program = Program::start(command.arg("--run-dir").arg(dir.join("run")));
    program.said(&format!("listening on {tcp}"));
    assert!(
        program.err().contains("accept queues can be watched by eBPF"),
        "{}",
        program.err()
    );
    program
}

/// A cluster of three: the first server's queue is watched here, the second's and the third's through the agent.
fn config(dir: &Path, servers: &[Server; 3], gateway: &Gateway, certs: &Certs, tcp: SocketAddr) {
    let mut text = format!(
        "[controller]\nkind = \"dynamic\"\n[resize]\nmin_servers = 3\n[power]\nlost_s = 600.0\n\
         [control]\nperiod_ms = 300.0\n[capacity.queue]\nhold_s = 1.0\n[exit]\nservers = \"as-they-are\"\n\
         [balancer.gateways]\ng1 = \"{}\"\n[record]\nfile = \"{}\"\n[admin]\nlisten = \"off\"\n{}",
        gateway.control(),
        dir.join("journal.jsonl").display(),
        certs.section("controller")
    );
    let agents = [
        String::new(),
        format!("agent = \"unix:{}\"", dir.join("agent.sock").display()),
        format!("agent = \"{tcp}\""),
    ];
    for (number, (server, agent)) in servers.iter().zip(agents).enumerate() {
        let (number, address, port) = (number + 1, server.address, server.address.port());
        text.push_str(&format!(
            "[servers.web{number}]\nmember = \"http://{address}\"\ncheck = \"tcp:{address}\"\naccept_queue = {port}\n\
             {agent}\n[servers.web{number}.power]\nkind = \"command\"\nstart = [\"true\"]\nstop = [\"true\"]\n\
             state = [\"true\"]\n"
        ));
    }
    fs::write(dir.join("resize.toml"), text).unwrap();
}

/// The record of a controller, in its folder.
pub struct Journal<'a>(pub &'a Path);

impl Journal<'_> {
    /// Its periods up to now.
    pub fn periods(&self) -> Vec<Value> {
        let text = fs::read_to_string(self.0.join("journal.jsonl")).unwrap_or_default();
        let whole = text.split_inclusive('\n').filter(|line| line.ends_with('\n'));
        whole.map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// The sum of what one server's queue showed in every period from one on.
    pub fn sum(&self, server: usize, what: &str, from: usize) -> u64 {
        let counted = |period: &Value| period["servers"][server]["queue"][what].as_f64();
        self.periods()[from..].iter().filter_map(counted).sum::<f64>() as u64
    }

    /// Waits for a period from one on that is as asked for; its number.
    pub fn until(&self, what: &str, from: usize, found: impl Fn(&Value) -> bool) -> usize {
        until(what, || {
            let periods = self.periods();
            let at = periods.get(from..)?.iter().position(&found)?;
            Some(from + at)
        })
    }
}

/// Whether a server's queue was counted in a period.
pub fn counted(server: usize) -> impl Fn(&Value) -> bool {
    move |period| period["servers"][server]["queue"].is_object()
}

/// What is wrong with a server, in words.
pub fn trouble(period: &Value, server: usize) -> String {
    period["servers"][server]["trouble"].to_string()
}

#[test]
fn queues_of_other_machines_are_counted_and_a_lost_agent_is_no_estimate() {
    let servers = [Server::start(), Server::start(), Server::start()];
    let Some(group) = Group::new() else { return };
    if !servers[0].can_be_counted() {
        return;
    }
    let (certs, dir) = (Certs::new(), tempfile::tempdir().unwrap());
    let tcp = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let addresses: Vec<SocketAddr> = servers.iter().map(|server| server.address).collect();
    let gateway = Gateway::start(&addresses);
    config(dir.path(), &servers, &gateway, &certs, tcp);
    let check = || {
        run(headroom()
            .args(["resize", "--check", "--config"])
            .arg(dir.path().join("resize.toml")))
    };

    // A check says whether each agent answers, and what it can.
    let (code, out, err) = check();
    assert_eq!(code, Some(0), "{err}");
    assert!(
        out.contains("web2: ") && out.contains("there is no such socket"),
        "{out}"
    );
    let mut watcher = agent(&group, dir.path(), &certs, tcp);
    let (code, out, err) = check();
    assert_eq!(code, Some(0), "{err}");
    for (server, through) in [
        (1, format!("agent at unix:{}", dir.path().display())),
        (2, format!("agent at {tcp}")),
    ] {
        let line = format!(
            "queue      web{}: port {} by ebpf, through the {through}",
            server + 1,
            servers[server].address.port()
        );
        assert!(out.contains(&line), "{line}: {out}");
    }

    let mut controller = Program::start(
        headroom()
            .args(["resize", "--config"])
            .arg(dir.path().join("resize.toml")),
    );
    let journal = Journal(dir.path());
    let mut from = 0;
    for server in 0..3 {
        from = from.max(journal.until("the first count", 0, counted(server)));
    }
    for (server, times) in servers.iter().zip([100, 200, 300]) {
        server.connect(times);
    }
    for (at, times) in [100, 200, 300].into_iter().enumerate() {
        // Checks of the controller and of the gateway are connections too; nothing is counted twice.
        until("all were counted", || {
            (journal.sum(at, "arrivals", 0) >= times).then_some(())
        });
        let accepts = journal.sum(at, "accepts", 0);
        until("no more than came", || {
            (servers[at].taken() >= accepts).then_some(())
        });
    }
    let known = |server: usize, kind: &'static str| {
        move |period: &Value| period["servers"][server]["capacity"]["kind"] == kind
    };
    journal.until("a lower bound", from, known(1, "lower-bound"));

    // The agent is killed: nothing is known of its queues, the others' go on, and so does the loop.
    watcher.kill_with_guard();
    let from = journal.periods().len();
    for server in [1, 2] {
        let lost = journal.until("the agent is lost", from, |period| {
            !counted(server)(period) && trouble(period, server).contains("agent")
        });
        journal.until("its estimate is given up", lost, known(server, "unknown"));
    }
    let lost = journal.periods().len();
    servers[1].connect(500);
    journal.until("ten periods", 0, |period| {
        period["period"].as_u64() == Some(lost as u64 + 10)
    });
    for period in &journal.periods()[lost..] {
        assert!(counted(0)(period), "{period}");
        assert!(!counted(1)(period) && !counted(2)(period), "{period}");
        assert!(
            period["arrival_rate_per_s"].is_number(),
            "by the first's: {period}"
        );
        assert_eq!(period["servers"][1]["state"], "serving");
    }

    // It comes back: what happened meanwhile is in no count.
    let _watcher = agent(&group, dir.path(), &certs, tcp);
    let back = journal.until("it is back", lost, counted(1));
    journal.until("it is back", lost, counted(2));
    let taken = servers[1].taken();
    servers[1].connect(40);
    until("the new ones are counted", || {
        (journal.sum(1, "arrivals", back) >= 40).then_some(())
    });
    let accepts = journal.sum(1, "accepts", lost);
    assert!(
        accepts < 500 && servers[1].taken() >= taken + 40,
        "{accepts} of {} accepted since the agent was lost",
        servers[1].taken()
    );
    controller.stop();
    assert!(controller.err().contains("is back"), "{}", controller.err());
}

#[test]
fn the_capacity_of_another_machine_is_watched_by_the_ways_that_its_agent_has() {
    let server = Server::start();
    let Some(group) = Group::new() else { return };
    if !server.can_be_counted() {
        return;
    }
    let (certs, dir) = (Certs::new(), tempfile::tempdir().unwrap());
    let tcp = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let capacity = |port: u16, agent: &str| {
        let mut command = headroom();
        command.args([
            "capacity",
            "--json",
            "--agent",
            agent,
            "--port",
            &port.to_string(),
        ]);
        command
            .arg("--html")
            .arg(dir.path().join("capacity.html"))
            .args(["--period", "0.5"]);
        command
    };
    let port = server.address.port();
    let unix = format!("unix:{}", dir.path().join("agent.sock").display());
    let (code, _, err) = run(&mut capacity(port, &unix));
    assert_eq!(code, Some(2));
    assert!(err.contains("there is no such socket"), "{err}");

    let mut watcher = agent(&group, dir.path(), &certs, tcp);
    let (code, _, err) = run(&mut capacity(port, &tcp.to_string()));
    assert_eq!(code, Some(2));
    assert!(err.contains("needs certificates"), "{err}");
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let (code, _, err) = run(&mut capacity(free.port(), &unix));
    assert_eq!(code, Some(2));
    assert!(
        err.contains("the agent at unix:") && err.contains("nobody listens on TCP port"),
        "{err}"
    );

    let mut command = capacity(port, &tcp.to_string());
    for (option, file) in [
        ("--agent-ca", "ca.crt"),
        ("--agent-cert", "controller.crt"),
        ("--agent-key", "controller.key"),
    ] {
        command.arg(option).arg(certs.dir().join(file));
    }
    let mut watching = Program::start(command.args(["--method", "ebpf,kernel,status"]));
    let lines = |of: &str| watching.err().lines().filter(|line| line.contains(of)).count();
    until("a first period", || (lines("arrivals ") >= 1).then_some(()));
    server.connect(300);
    until("they are taken", || (server.taken() == 300).then_some(()));
    let before = lines("arrivals ");
    until("two periods", || (lines("arrivals ") >= before + 2).then_some(()));
    // The agent is killed on the way: what it counted stays, and nothing is made of its silence.
    watcher.kill_with_guard();
    let without = || {
        let said = watching.err();
        let of_a_period = |line: &&str| line.contains("cannot be reached") && line.contains("  | ");
        (said.lines().filter(of_a_period).count() >= 2).then_some(())
    };
    until("two periods without it", without);
    watching.stop();
    let result: Value = serde_json::from_str(&watching.out()).unwrap();
    assert_eq!(result["agent"], tcp.to_string());
    let of = |method: &str| {
        let methods = result["methods"].as_array().unwrap();
        methods
            .iter()
            .find(|one| one["method"] == method)
            .unwrap()
            .clone()
    };
    assert_eq!(of("ebpf")["connections"], 300, "{result}");
    assert!(of("kernel")["connections"].as_u64().unwrap() >= 300, "{result}");
    for method in ["ebpf", "kernel"] {
        assert!(of(method)["failures"].as_u64().unwrap() >= 1, "{result}");
    }
    let passed_over = result["passed_over"].as_array().unwrap();
    assert!(
        passed_over.iter().any(
            |one| one["method"] == "status" && one["reason"].as_str().unwrap().contains("no status page")
        ),
        "{result}"
    );
    let published = result["estimates"].as_array().unwrap();
    let last = published
        .iter()
        .find(|one| one["estimator"] == "published")
        .unwrap();
    assert_eq!(last["reason"]["rule"], "held", "{result}");
    let report = fs::read_to_string(dir.path().join("capacity.html")).unwrap();
    assert!(
        report.contains(&format!("through the agent at {tcp}")),
        "the report says where"
    );
}
