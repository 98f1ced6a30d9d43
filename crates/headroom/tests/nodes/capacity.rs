//! `headroom capacity` of the server of another machine, through its agent, over a Unix socket and over TCP.

use crate::common::{Group, Program, bare as headroom, until};
use crate::parts::{Certs, apply, ended as run};
use crate::queues::{Server, agent};
use headroom_wire::Address;
use headroom_wire::client::ClientOptions;
use serde_json::Value;
use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The command on a port of an agent's machine, its record and its samples in this folder.
fn capacity(port: u16, agent: &str, dir: &Path) -> Command {
    let mut command = headroom();
    command.args([
        "capacity",
        "--json",
        "--agent",
        agent,
        "--port",
        &port.to_string(),
    ]);
    command.arg("--db").arg(dir.join("capacity.db"));
    command.arg("--csv").arg(dir.join("capacity.csv"));
    command.args(["--period", "0.5"]);
    command
}

/// The report of the run that was recorded in this folder.
fn report(dir: &Path) -> String {
    let page = dir.join("report.html");
    let mut command = headroom();
    command.args(["report", "latest", "--json", "--db"]);
    command.arg(dir.join("capacity.db")).arg("--out").arg(&page);
    let (code, _, err) = run(&mut command);
    assert_eq!(code, Some(0), "{err}");
    fs::read_to_string(page).unwrap()
}

/// Gives it the certificates of a controller.
fn with_certificates<'a>(command: &'a mut Command, certs: &Certs) -> &'a mut Command {
    for (option, file) in [
        ("--agent-ca", "ca.crt"),
        ("--agent-cert", "controller.crt"),
        ("--agent-key", "controller.key"),
    ] {
        command.arg(option).arg(certs.dir().join(file));
    }
    command
}

/// The samples of a run: in each row the cells under these names.
fn cells(dir: &Path, names: [&str; 3]) -> Vec<[String; 3]> {
    let text = fs::read_to_string(dir.join("capacity.csv")).unwrap();
    let mut lines = text.lines();
    let head: Vec<&str> = lines.next().unwrap().split(',').collect();
    let at = names.map(|name| head.iter().position(|cell| *cell == name).unwrap());
    let row = |line: &str| {
        let cells: Vec<&str> = line.split(',').collect();
        at.map(|at| cells[at].to_owned())
    };
    lines.map(row).collect()
}

/// What uses all the CPU time that it gets, for a minute and a half at most.
fn busy() -> Program {
    let work = "end=$(($(date +%s) + 90)); while [ $(date +%s) -lt $end ]; do i=0; \
                while [ $i -lt 20000 ]; do i=$((i + 1)); done; done";
    Program::start(Command::new("sh").args(["-c", work]))
}

/// How often an estimate by the CPU time that /proc or the group shows was said.
fn estimates(said: &str) -> usize {
    let of = "CPU (sock_diag, /proc): if CPU is the bottleneck and no other port is used: ";
    let number = |line: &&str| {
        let rest = line.split_once(of).map(|(_, rest)| rest);
        rest.is_some_and(|rest| rest.starts_with(|first: char| first.is_ascii_digit()))
    };
    said.lines().filter(number).count()
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
    let capacity = |port: u16, agent: &str| capacity(port, agent, dir.path());
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
    let mut watching =
        Program::start(with_certificates(&mut command, &certs).args(["--method", "ebpf,kernel,status"]));
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
        passed_over
            .iter()
            .any(|one| one["method"] == "status" && one["reason"].as_str().unwrap().contains("--status-url")),
        "{result}"
    );
    let published = result["estimates"].as_array().unwrap();
    let last = published
        .iter()
        .find(|one| one["estimator"] == "published")
        .unwrap();
    assert_eq!(last["reason"]["rule"], "without-reading", "{result}");
    let report = report(dir.path());
    assert!(
        report.contains(&format!("through the agent at {tcp}")),
        "the report says where"
    );
}

#[test]
fn what_makes_no_sense_with_an_agent_is_refused_and_says_why() {
    let dir = tempfile::tempdir().unwrap();
    let nowhere = format!("unix:{}", dir.path().join("no.sock").display());
    for (args, said) in [
        (
            ["--rates", "1"],
            "would be how many the network carries: run `headroom capacity --rates` on",
        ),
        (["--pid", "1"], "'--agent <ADDR>' cannot be used with"),
        (["--cgroup", "/web/../db"], "--cgroup: cpu_group is /web/../db"),
        (["--cgroup", ""], "--cgroup: cpu_group is "),
        (["--status-url", "ftp://a/"], "starts with http://"),
    ] {
        let (code, _, err) = run(capacity(80, &nowhere, dir.path()).args(args));
        assert_eq!(code, Some(2), "{args:?}: {err}");
        assert!(err.contains(said), "{args:?}: {err}");
    }
    for args in [
        ["--cgroup", "/web", "--method", "ebpf,status"],
        ["--status-url", "http://127.0.0.1:9/", "--method", "ebpf"],
    ] {
        let (code, _, err) = run(capacity(80, &nowhere, dir.path()).args(args));
        assert_eq!(code, Some(2), "{args:?}: {err}");
        assert!(
            err.contains("is not among the ways to measure: add "),
            "{args:?}: {err}"
        );
    }
}

#[test]
fn the_cpu_of_a_group_of_another_machine_is_a_share_of_what_it_may_use_there() {
    let Some(group) = Group::new() else { return };
    let (server, certs, dir) = (Server::start(), Certs::new(), tempfile::tempdir().unwrap());
    let tcp = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let unix = dir.path().join("agent.sock");
    let mut watcher = agent(&group, dir.path(), &certs, tcp);
    let limited = || {
        let (address, options) = (Address::Unix(unix.clone()), ClientOptions::default());
        let in_force = apply(&address, &options, 1, 0.2, Duration::from_secs(120)).unwrap();
        assert_eq!(in_force.cores().unwrap().get(), 0.2);
    };
    limited();
    let port = server.address.port();
    let asking = |group: &str| {
        let mut command = capacity(port, &tcp.to_string(), dir.path());
        with_certificates(&mut command, &certs).args(["--method", "kernel", "--cgroup", group]);
        command
    };
    for (path, said) in [
        (
            "/".to_owned(),
            "may not be asked for: this agent tells the processor time of cgroup ",
        ),
        (format!("{}-not", group.path()), "may not be asked for"),
        (format!("{}/not", group.path()), "does not exist"),
    ] {
        let (code, _, err) = run(&mut asking(&path));
        assert_eq!(code, Some(2), "{path}: {err}");
        assert!(
            err.contains(&format!("--cgroup {path}")) && err.contains(said),
            "{path}: {err}"
        );
    }

    // A worker below the service's group, which alone is limited: to a fifth of a core, all of which it uses.
    let (worker, busy) = (group.child("worker"), busy());
    worker.add(busy.pid());
    let mut watching = Program::start(&mut asking(&worker.path()));
    watching.said("the CPU utilisation by /proc is that of ");
    let more = |what: &str, count: usize| {
        let before = estimates(&watching.err());
        until(what, || {
            server.connect(20);
            (estimates(&watching.err()) >= before + count).then_some(())
        });
    };
    more("estimates", 4);

    // The group goes, with what is in it: there is no estimate until it is back.
    let path = worker.path();
    drop(worker);
    until("its end", || {
        server.connect(20);
        watching.err().contains("worker is gone").then_some(())
    });
    let without = estimates(&watching.err());
    let lines = |said: &str| said.lines().filter(|line| line.contains("arrivals ")).count();
    let then = lines(&watching.err());
    until("four periods", || {
        server.connect(20);
        (lines(&watching.err()) >= then + 4).then_some(())
    });
    assert_eq!(estimates(&watching.err()), without, "{}", watching.err());
    let worker = group.child("worker");
    assert_eq!(worker.path(), path);
    worker.add(busy.pid());
    more("estimates of the new one", 2);

    // The agent is killed and started again: nothing is made of the time between.
    watcher.kill_with_guard();
    until("a period without it", || {
        let said = watching.err();
        let of_a_period = |line: &str| line.contains("cannot be reached") && line.contains("  | ");
        said.lines().any(of_a_period).then_some(())
    });
    let _watcher = agent(&group, dir.path(), &certs, tcp);
    limited();
    more("estimates by the next agent", 2);
    watching.stop();

    let result: Value = serde_json::from_str(&watching.out()).unwrap();
    assert_eq!(result["cgroup"], path);
    let kernel = &result["methods"][0];
    assert!(kernel["failures"].as_u64().unwrap() >= 1, "{kernel}");
    // Of the machine, a fifth of a core would be far less than half of what there is, were nobody else busy.
    let cpu = kernel["cpu_mean"].as_f64().unwrap();
    assert!(cpu > 0.5, "{result}");
    let rows = cells(
        dir.path(),
        ["served_per_s", "cpu", "cpu_utilisation_sock_diag__proc_per_s"],
    );
    let number = |cell: &String| cell.parse::<f64>().ok();
    let mut compared = 0;
    for [served, cpu, estimate] in &rows {
        match (number(served), number(cpu), number(estimate)) {
            (Some(served), Some(cpu), Some(estimate)) => {
                assert!(
                    (estimate * cpu - served).abs() < 0.01 * served.max(1.0),
                    "{rows:?}"
                );
                compared += 1;
            }
            (_, _, estimate) => assert_eq!(estimate, None, "{rows:?}"),
        }
    }
    assert!(compared >= 6, "{rows:?}");
    let report = report(dir.path());
    assert!(report.contains(&format!("is that of {path} on the machine of the agent at {tcp}")));
}

/// A server whose status page shows 100 requests a second and half a core of CPU time, as Apache's does.
struct Page {
    address: SocketAddr,
    stop: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Page {
    fn start(port: u16) -> Self {
        // The last one's connections may still be about to end.
        let listener = until("the port", || TcpListener::bind(("127.0.0.1", port)).ok());
        let address = listener.local_addr().unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let (ended, began) = (stop.clone(), Instant::now());
        let thread = std::thread::spawn(move || {
            for stream in listener.incoming() {
                if ended.load(Ordering::SeqCst) {
                    return;
                }
                let Ok(mut stream) = stream else { continue };
                let _ = stream.set_read_timeout(Some(Duration::from_millis(200)));
                let Ok(length) = stream.read(&mut [0; 1024]) else {
                    continue;
                };
                if length == 0 {
                    continue;
                }
                let up_s = began.elapsed().as_secs_f64();
                let page = format!(
                    "HTTP/1.0 200 OK\r\n\r\nTotal Accesses: {}\nCPUUser: {}\nCPUSystem: 0\nCPUChildrenUser: 0\n\
                     CPUChildrenSystem: 0\nServerUptimeSeconds: {}\n",
                    (up_s * 100.0) as u64,
                    up_s / 2.0,
                    up_s as u64
                );
                let _ = stream.write_all(page.as_bytes());
            }
        });
        Self {
            address,
            stop,
            thread: Some(thread),
        }
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        let _ = std::net::TcpStream::connect(self.address);
        self.thread.take().unwrap().join().unwrap();
    }
}

#[test]
fn a_status_page_is_got_from_here_and_goes_on_without_the_agent() {
    let Some(group) = Group::new() else { return };
    let (certs, dir) = (Certs::new(), tempfile::tempdir().unwrap());
    let tcp = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let page = Page::start(0);
    let (port, address) = (page.address.port(), page.address);
    let mut watcher = agent(&group, dir.path(), &certs, tcp);
    let unix = format!("unix:{}", dir.path().join("agent.sock").display());
    let asking = |port: u16, url: &str| {
        let mut command = capacity(port, &unix, dir.path());
        command.args(["--method", "status", "--status-url", url]);
        command
    };
    let url = format!("http://{address}/server-status?auto");
    // The agent says that nobody listens on the port, whatever the page shows; a page that is none is passed over.
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let (code, _, err) = run(&mut asking(free.port(), &url));
    assert_eq!(code, Some(2));
    assert!(err.contains("nobody listens on TCP port"), "{err}");
    let (code, _, err) = run(&mut asking(port, &format!("http://{free}/server-status?auto")));
    assert_eq!(code, Some(2));
    assert!(
        err.contains("status page cannot be used") && err.contains("the status page cannot be read"),
        "{err}"
    );

    let mut watching = Program::start(&mut asking(port, &url));
    watching.said("is got from this machine and not by the agent");
    let served = || {
        let said = watching.err();
        said.lines()
            .filter(|line| line.contains("served ") && !line.contains("served -"))
            .count()
    };
    let more = |what: &str| {
        let before = served();
        until(what, || (served() >= before + 4).then_some(()));
    };
    more("what it serves");
    // It goes; one that comes back counts from nought.
    drop(page);
    until("its end", || {
        let said = watching.err();
        (said.contains("nobody listens") || said.contains("cannot be read")).then_some(())
    });
    let page = Page::start(port);
    more("the next");
    watcher.kill_with_guard();
    std::thread::sleep(Duration::from_secs(1));
    more("without the agent");
    watching.stop();
    drop(page);

    let result: Value = serde_json::from_str(&watching.out()).unwrap();
    assert_eq!(result["status_url"], url);
    assert_eq!(result["methods"][0]["method"], "status", "{result}");
    assert!(
        result["methods"][0]["failures"].as_u64().unwrap() >= 1,
        "{result}"
    );
    let by_cpu = &result["estimates"][0];
    assert_eq!(
        (&by_cpu["estimator"], &by_cpu["scope"]),
        (&"cpu".into(), &"server".into())
    );
    // Half a core serves 100: all processors of the machine 200 each.
    let cores = std::thread::available_parallelism().unwrap().get() as f64;
    let mean = by_cpu["mean_per_s"].as_f64().unwrap() / (200.0 * cores);
    assert!((0.7..1.4).contains(&mean), "{mean}: {result}");
    let most = by_cpu["most_per_s"].as_f64().unwrap() / (200.0 * cores);
    assert!(most < 3.0, "{most}: {result}");
    let report = report(dir.path());
    assert!(report.contains("is got from this machine"));
}
