//! `headroom resize` with accept queues that agents watch, over a Unix socket and over TCP.

use crate::common::{Gateway, Group, Program, assert_has, headroom, succeeds, until, wait};
use crate::parts::{Certs, agent_on, socket_in};
use headroom_node::Roots;
use headroom_node::queue::{EbpfQueueMeter, QueueError};
use serde_json::Value;
use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A server that takes each connection, answers and closes it.
pub struct Server {
    pub address: SocketAddr,
    taken: Arc<AtomicU64>,
}

impl Server {
    pub fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let taken = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&taken);
        // It ends with the test's process.
        std::thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                // Who has gone already takes no answer.
                let _ = stream.write_all(b"ok");
                drop(stream);
                counted.fetch_add(1, Ordering::SeqCst);
            }
        });
        Self { address, taken }
    }

    pub fn connect(&self, times: u64) {
        for _ in 0..times {
            let mut stream = TcpStream::connect(self.address).unwrap();
            let _ = stream.read_to_end(&mut Vec::new());
        }
    }

    pub fn taken(&self) -> u64 {
        self.taken.load(Ordering::SeqCst)
    }

    /// Whether queues can be counted here, which is said where they cannot.
    pub fn can_be_counted(&self) -> bool {
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

/// An agent that listens on a Unix socket and on TCP. Whoever watches by both is two peers, so that no lease is asked for.
pub fn agent(group: &Group, dir: &Path, certs: &Certs, tcp: SocketAddr) -> Program {
    let agent = format!("[\"{}\", \"{tcp}\"]", socket_in(dir));
    let tls = certs.section("node-n1");
    let command = agent_on(
        group,
        dir,
        &agent,
        &format!("{tls}\n[access]\nqueues = \"readers\"\n"),
    );
    let mut program = Program::start(command);
    program.said(&format!("listening on {tcp}"));
    assert_has(program.err(), &["accept queues can be watched by eBPF"]);
    program
}

/// A cluster of three: the first server's queue is watched here, the second's and the third's through the agent.
fn config(dir: &Path, kind: &str, servers: &[Server; 3], gateway: &Gateway, certs: &Certs, tcp: SocketAddr) {
    let mut text = format!(
        "[slo]\ntarget_ms = 250\n[law]\nname = \"dynamic\"\n[law.resize]\nmin_servers = 3\n[power]\nlost_s = 600.0\n\
         [control]\nperiod_ms = 300.0\n[capacity.queue]\nkind = \"{kind}\"\nhold_s = 1.0\n[exit]\nservers = \"as-they-are\"\n\
         [gateways]\ng1 = \"{}\"\n[record]\ndb = \"{}\"\n[admin]\nlisten = \"off\"\n{}",
        gateway.control(),
        dir.join("runs.db").display(),
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
            "[nodes.web{number}]\nmember = \"http://{address}\"\ncheck = \"tcp:{address}\"\naccept_queue = {port}\n\
             {agent}\n[nodes.web{number}.power]\nkind = \"command\"\nstart = [\"true\", \"on\", \"{number}\"]\n\
             stop = [\"true\", \"off\", \"{number}\"]\nstate = [\"true\", \"{number}\"]\n"
        ));
    }
    fs::write(dir.join("resize.toml"), text).unwrap();
}

/// The record of a controller, in its folder.
pub struct Journal<'a>(pub &'a Path);

impl Journal<'_> {
    /// Its periods up to now.
    pub fn periods(&self) -> Vec<Value> {
        crate::common::record::periods(&self.0.join("runs.db"))
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
    are_counted_and_a_lost_agent_is_no_estimate("published");
}

#[test]
fn queues_of_other_machines_are_looked_at_many_times_a_period() {
    are_counted_and_a_lost_agent_is_no_estimate("busy-time");
}

fn are_counted_and_a_lost_agent_is_no_estimate(kind: &str) {
    let servers = [Server::start(), Server::start(), Server::start()];
    let Some(group) = Group::new() else { return };
    if !servers[0].can_be_counted() {
        return;
    }
    let (certs, dir) = (Certs::new(), tempfile::tempdir().unwrap());
    let tcp = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let addresses: Vec<SocketAddr> = servers.iter().map(|server| server.address).collect();
    let gateway = Gateway::start(&addresses);
    config(dir.path(), kind, &servers, &gateway, &certs, tcp);
    let check = || succeeds(headroom("resize --check --config").arg(dir.path().join("resize.toml"))).out();

    // A check says whether each agent answers, and what it can.
    let out = check();
    assert_has(&out, &["web2: ", "there is no such socket"]);
    let mut watcher = agent(&group, dir.path(), &certs, tcp);
    let out = check();
    for (server, through) in [
        (1, format!("agent at unix:{}", dir.path().display())),
        (2, format!("agent at {tcp}")),
    ] {
        let line = format!(
            "queue    web{}: port {} by ebpf, through the {through}",
            server + 1,
            servers[server].address.port()
        );
        assert_has(&out, &[&line]);
    }

    let mut controller = Program::start(
        headroom("resize --config")
            .arg(dir.path().join("resize.toml"))
            .arg("--run-dir")
            .arg(dir.path().join("run")),
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
        wait("all were counted", || journal.sum(at, "arrivals", 0) >= times);
        let accepts = journal.sum(at, "accepts", 0);
        wait("no more than came", || servers[at].taken() >= accepts);
    }
    let known = |server: usize, kind: &'static str| {
        move |period: &Value| period["servers"][server]["capacity"]["kind"] == kind
    };
    // A lower bound, or an exact one where a busy machine let a queue fill: of a period in which this machine stood still
    // nothing is concluded, so that there is always something to see.
    wait("an estimate", || {
        servers[1].connect(1);
        let unknown = known(1, "unknown");
        let estimated = |period: &Value| counted(1)(period) && !unknown(period);
        journal.periods()[from..].iter().any(estimated)
    });

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
    wait("the new ones are counted", || {
        journal.sum(1, "arrivals", back) >= 40
    });
    let accepts = journal.sum(1, "accepts", lost);
    assert!(
        accepts < 500 && servers[1].taken() >= taken + 40,
        "{accepts} of {} accepted since the agent was lost",
        servers[1].taken()
    );
    controller.stop();
    assert_has(controller.err(), &["is back"]);
}
