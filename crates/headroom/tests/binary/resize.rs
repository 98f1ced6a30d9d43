//! `headroom resize` with real processes for machines: commands that boot them after a while, our gateway or an HAProxy in
//! front of them.

use crate::common::{PATIENCE, Program, free_port, get, headroom, until};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream, UdpSocket};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// What one server takes, as the static controller is told.
const CAPACITY_PER_S: u64 = 50;

/// What stands for a machine's service: a process of the binary, or a program of the test's.
enum Service {
    Wiki,
    /// A server of so many worker threads, each taking a connection, waiting for so many seconds and answering.
    Workers(u32, f64),
}

/// Processes that stand for machines, their load balancer, and the controller's files.
struct Site {
    dir: TempDir,
    ports: Vec<u16>,
    front: SocketAddr,
    service: Service,
}

impl Site {
    fn new(servers: usize, service: Service) -> Self {
        let site = Self {
            dir: tempfile::tempdir().unwrap(),
            ports: (0..servers).map(|_| free_port()).collect(),
            front: (Ipv4Addr::LOCALHOST, free_port()).into(),
            service,
        };
        fs::write(site.path("workers.py"), WORKERS).unwrap();
        site
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Makes a server fail in a way that its start command knows, or ends that.
    fn set(&self, server: usize, how: &str, on: bool) {
        let file = self.path(&format!("web{server}.{how}"));
        if on {
            fs::write(file, "").unwrap();
        } else {
            fs::remove_file(file).unwrap();
        }
    }

    /// How often a server was told to start.
    fn starts(&self, server: usize) -> usize {
        let text = fs::read_to_string(self.path(&format!("web{server}.starts"))).unwrap_or_default();
        text.lines().count()
    }

    fn pid(&self, server: usize) -> Option<Pid> {
        let text = fs::read_to_string(self.path(&format!("web{server}.pid"))).ok()?;
        Pid::from_raw(text.trim().parse().ok()?)
    }

    fn runs(&self, server: usize) -> bool {
        let Some(pid) = self.pid(server) else { return false };
        let status = fs::read_to_string(format!("/proc/{}/status", pid.as_raw_nonzero()));
        status.is_ok_and(|text| !text.contains("State:\tZ"))
    }

    /// The command that starts a server after a moment, which is its boot.
    fn start_script(&self, server: usize) -> String {
        let (dir, port) = (self.dir.path().display(), self.ports[server - 1]);
        let service = match self.service {
            Service::Wiki => format!(
                "{} service wiki --listen 127.0.0.1:{port} --workers 2 --page-cpu-ms 0.2",
                env!("CARGO_BIN_EXE_headroom")
            ),
            Service::Workers(workers, wait_s) => {
                format!("python3 {dir}/workers.py {port} {workers} {wait_s}")
            }
        };
        format!(
            "echo start >> {dir}/web{server}.starts\n\
             [ -e {dir}/web{server}.hangs ] && {{ echo $$ > {dir}/web{server}.hung; sleep 600; }}\n\
             [ -e {dir}/web{server}.broken ] && exit 0\n\
             (sleep 0.3; exec {service}) > {dir}/web{server}.log 2>&1 &\n\
             echo $! > {dir}/web{server}.pid"
        )
    }

    /// Starts a server by hand.
    fn boot(&self, server: usize) {
        let booted = Command::new("/bin/sh")
            .args(["-c", &self.start_script(server)])
            .status();
        assert!(booted.unwrap().success());
        let address = (Ipv4Addr::LOCALHOST, self.ports[server - 1]);
        until("a server answers", || TcpStream::connect(address).ok());
        fs::remove_file(self.path(&format!("web{server}.starts"))).unwrap();
    }

    fn power(&self, server: usize) -> String {
        let dir = self.dir.path().display();
        let script = |text: &str| serde_json::json!(["/bin/sh", "-c", text]).to_string();
        let file = format!("{dir}/web{server}.pid");
        format!(
            "kind = \"command\"\nstart = {}\nstop = {}\nstate = {}\nlimit_s = 2.0\n",
            script(&self.start_script(server)),
            script(&format!("kill $(cat {file})")),
            script(&format!(
                "grep -qs '^State:.[RSDT]' /proc/$(cat {file} 2>/dev/null || echo none)/status || exit 1"
            )),
        )
    }

    /// The controller's file: the given tables, and a table for each server with `member` and what else is given.
    fn config(&self, head: &str, member: impl Fn(usize) -> String) -> PathBuf {
        let mut text = format!(
            "{head}\n[resize]\nwarm_up_s = 0.6\nblind_s = 3.0\n[power]\nboot_timeout_s = 6.0\nwarm_up_s = 0.4\n\
             lost_s = 1.5\ndrain_timeout_s = 5.0\nshutdown_s = 1.0\nstop_timeout_s = 6.0\nbackoff_s = 1.0\n\
             backoff_most_s = 4.0\nforgive_s = 60.0\n[control]\nperiod_ms = 200.0\npower_poll_s = 0.5\n[energy]\n\
             [exit]\nwait_s = 20.0\n[record]\nfile = \"{}\"\n[admin]\nlisten = \"127.0.0.1:0\"\n",
            self.path("journal.jsonl").display()
        );
        for server in 1..=self.ports.len() {
            text.push_str(&format!(
                "[servers.web{server}]\ncheck = \"tcp:127.0.0.1:{}\"\n{}\n[servers.web{server}.power]\n{}",
                self.ports[server - 1],
                member(server),
                self.power(server)
            ));
        }
        let file = self.path("resize.toml");
        fs::write(&file, text).unwrap();
        file
    }

    fn url(&self, server: usize) -> String {
        format!("http://127.0.0.1:{}", self.ports[server - 1])
    }

    /// Our gateway in front of all.
    fn gateway(&self) -> Program {
        let mut command = headroom();
        command
            .args(["gateway", "--backend-idle", "0", "--balance", "round-robin"])
            .arg("--listen")
            .arg(self.front.to_string())
            .arg(format!("--control=unix:{}", self.path("gateway.sock").display()));
        for server in 1..=self.ports.len() {
            command.arg("--backend").arg(self.url(server));
        }
        let mut gateway = Program::start(&mut command);
        gateway.said("control on", |text| text.contains("control on").then_some(()));
        gateway
    }

    fn behind_gateway(&self, kind: &str) -> PathBuf {
        let head = format!(
            "[controller]\n{kind}\n[balancer.gateways]\ng1 = \"unix:{}\"",
            self.path("gateway.sock").display()
        );
        self.config(&head, |server| format!("member = \"{}\"", self.url(server)))
    }

    /// The last whole line of the record.
    fn last(&self) -> Option<Value> {
        let text = fs::read_to_string(self.path("journal.jsonl")).ok()?;
        let whole = &text[..=text.rfind('\n')?];
        serde_json::from_str(whole.lines().last()?).ok()
    }

    /// Each server's state, by the record.
    fn states(&self) -> Vec<String> {
        let last = self.last().unwrap_or_default();
        let servers = last["servers"].as_array().cloned().unwrap_or_default();
        servers
            .iter()
            .map(|one| one["state"].as_str().unwrap().to_owned())
            .collect()
    }

    fn until_states(&self, states: &[&str]) {
        until(&format!("{states:?}, being {:?}", self.states()), || {
            (self.states() == states).then_some(())
        });
    }

    /// Waits until a period of the record is as asked for; that period.
    fn until_period(&self, what: &str, found: impl Fn(&Value) -> bool) -> Value {
        until(what, || {
            let text = fs::read_to_string(self.path("journal.jsonl")).ok()?;
            let lines = text.lines().filter_map(|line| serde_json::from_str(line).ok());
            lines.into_iter().find(|period| found(period))
        })
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        if std::thread::panicking() {
            println!("the last period: {}", self.last().unwrap_or_default());
        }
        for server in 1..=self.ports.len() {
            if self.runs(server) {
                let _ = kill_process(self.pid(server).unwrap(), Signal::KILL);
            }
        }
    }
}

const WORKERS: &str = "
import socket, sys, threading, time
port, workers, wait = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
listener = socket.socket()
listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
listener.bind(('127.0.0.1', port))
listener.listen(16)
def work():
    while True:
        connection, _ = listener.accept()
        try:
            if connection.recv(4096):
                time.sleep(wait)
                connection.sendall(b'HTTP/1.1 200 OK\\r\\nContent-Length: 2\\r\\nConnection: close\\r\\n\\r\\nok')
        except OSError:
            pass
        connection.close()
for _ in range(workers):
    threading.Thread(target=work, daemon=True).start()
threading.Event().wait()
";

/// Requests at a rate that can be changed, each on a connection of its own.
struct Load {
    per_s: Arc<AtomicU64>,
    answered: Arc<AtomicU64>,
    wrong: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Load {
    fn to(address: SocketAddr, per_s: u64) -> Self {
        Self::of_clients(8, address, per_s)
    }

    /// So many clients share the rate, each waiting for its answer.
    fn of_clients(clients: u64, address: SocketAddr, rate: u64) -> Self {
        let mut load = Self {
            per_s: Arc::new(AtomicU64::new(rate)),
            answered: Arc::default(),
            wrong: Arc::default(),
            stop: Arc::default(),
            threads: Vec::new(),
        };
        for number in 0..clients {
            let (per_s, stop) = (Arc::clone(&load.per_s), Arc::clone(&load.stop));
            let (answered, wrong) = (Arc::clone(&load.answered), Arc::clone(&load.wrong));
            load.threads.push(std::thread::spawn(move || {
                let mut next = Instant::now() + Duration::from_secs_f64(number as f64 / rate as f64);
                while !stop.load(Ordering::Relaxed) {
                    std::thread::sleep(next.saturating_duration_since(Instant::now()));
                    let right = get(address, "/").is_ok_and(|answer| answer.status == 200);
                    if right { &answered } else { &wrong }.fetch_add(1, Ordering::Relaxed);
                    next += Duration::from_secs_f64(clients as f64 / per_s.load(Ordering::Relaxed) as f64);
                    next = next.max(Instant::now() - Duration::from_millis(200));
                }
            }));
        }
        load
    }

    fn at(&self, per_s: u64) {
        self.per_s.store(per_s, Ordering::Relaxed);
    }

    fn counts(&self) -> (u64, u64) {
        (
            self.answered.load(Ordering::Relaxed),
            self.wrong.load(Ordering::Relaxed),
        )
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

fn resize(config: &Path) -> Program {
    Program::start(headroom().args(["resize", "--json", "--config"]).arg(config))
}

fn fixed() -> String {
    format!("kind = \"static\"\ncapacity_per_s = {CAPACITY_PER_S}.0")
}

#[test]
fn a_cluster_behind_the_gateway_follows_its_load_and_is_whole_at_the_end() {
    let site = Site::new(3, Service::Wiki);
    site.boot(1);
    let _gateway = site.gateway();
    let config = site.behind_gateway(&fixed());
    let mut controller = resize(&config);
    let load = Load::to(site.front, CAPACITY_PER_S / 3);
    site.until_states(&["serving", "off", "off"]);
    load.at(CAPACITY_PER_S * 5 / 2);
    site.until_states(&["serving", "serving", "serving"]);
    let metrics = controller.said("its metrics", |text| {
        let address = text.split_once("metrics on http://")?.1.split_once('/')?.0;
        address.parse::<SocketAddr>().ok()
    });
    let page = get(metrics, "/metrics").unwrap().body;
    assert!(
        page.contains("headroom_resize_servers{state=\"serving\"} 3"),
        "{page}"
    );
    assert!(
        page.contains("headroom_resize_transitions_total{from=\"off\",to=\"booting\"}"),
        "{page}"
    );
    assert_eq!(get(metrics, "/readyz").unwrap().status, 200);
    load.at(CAPACITY_PER_S / 3);
    site.until_states(&["serving", "off", "off"]);
    assert!(site.runs(1) && !site.runs(2) && !site.runs(3));
    // The servers came and went under load, and nobody noticed.
    let (answered, wrong) = load.counts();
    assert!(answered > 100 && wrong == 0, "{answered} answered, {wrong} wrong");
    // Two controllers with one file would undo each other's work.
    let second = headroom()
        .args(["resize", "--config"])
        .arg(&config)
        .output()
        .unwrap();
    assert_eq!(second.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&second.stderr).contains("another headroom resize runs"));

    controller.signal(Signal::TERM);
    controller.succeeds();
    assert!(
        (1..=3).all(|server| site.runs(server)),
        "a server was left off: {}",
        controller.err()
    );
    let summary = controller.json();
    let resize = &summary["resize"];
    assert_eq!(summary["law"], "resize-static");
    assert_eq!(resize["failures"], serde_json::json!({}));
    assert!(
        resize["transitions"]["draining-stopping"].as_u64() >= Some(2),
        "{summary}"
    );
    assert!(resize["serving_mean"].as_f64().unwrap() < 3.0);
    assert_eq!(summary["energy_j"]["source"], "estimated");
    assert!(resize["saving"].as_f64().unwrap() > 0.0, "{summary}");
    let served: Vec<u64> = (0..3)
        .map(|_| {
            get(site.front, "/").unwrap();
            load.counts().0
        })
        .collect();
    assert!(!served.is_empty() && load.counts().1 == 0);
}

#[test]
fn servers_that_fail_to_boot_hang_or_die_are_no_capacity_and_are_tried_again() {
    let site = Site::new(3, Service::Wiki);
    site.boot(1);
    site.set(2, "hangs", true);
    site.set(3, "broken", true);
    let _gateway = site.gateway();
    let config = site.behind_gateway(&fixed());
    let mut controller = resize(&config);
    let load = Load::to(site.front, CAPACITY_PER_S * 3 / 2);
    // The start command of web2 hangs and is killed at its limit; web3's says that all is well, and nothing comes.
    let failed = |server: usize, cause: &str| {
        site.until_period(&format!("web{server} fails: {cause}"), |period| {
            period["servers"][server - 1]["cause"] == cause
        })
    };
    let period = failed(2, "command");
    assert!(
        period["servers"][1]["trouble"][0]
            .as_str()
            .unwrap()
            .contains("did not end within 2 s")
    );
    let hung = fs::read_to_string(site.path("web2.hung")).unwrap();
    let status = fs::read_to_string(format!("/proc/{}/status", hung.trim())).unwrap_or_default();
    assert!(
        status.is_empty() || status.contains("State:\tZ"),
        "the hanging command lives: {status}"
    );
    failed(3, "boot");
    // They are tried again, and waited for longer each time.
    until("more tries", || {
        (site.starts(2) >= 2 && site.starts(3) >= 2).then_some(())
    });
    let text = fs::read_to_string(site.path("journal.jsonl")).unwrap();
    for line in text.lines() {
        let period: Value = serde_json::from_str(line).unwrap();
        for server in period["servers"].as_array().unwrap() {
            let takes = ["warming", "serving"].contains(&server["state"].as_str().unwrap());
            assert!(
                !takes || server["answering"] == true || server["name"] == "web1",
                "{period}"
            );
        }
    }
    site.set(2, "hangs", false);
    site.set(3, "broken", false);
    until("a second server", || {
        (site.states().iter().filter(|state| *state == "serving").count() == 2).then_some(())
    });

    // One that serves is killed: another takes its place, and it comes back itself where it is needed.
    let victim = if site.runs(2) { 2 } else { 3 };
    kill_process(site.pid(victim).unwrap(), Signal::KILL).unwrap();
    failed(victim, "lost");
    until("a second server again", || {
        (site.states().iter().filter(|state| *state == "serving").count() == 2).then_some(())
    });

    // The controller is killed, and finds everything as it is: nobody is started or stopped for it.
    controller.signal(Signal::KILL);
    controller.wait();
    let starts: Vec<usize> = (1..=3).map(|server| site.starts(server)).collect();
    let running: Vec<bool> = (1..=3).map(|server| site.runs(server)).collect();
    fs::remove_file(site.path("journal.jsonl")).unwrap();
    let controller = resize(&config);
    until("ten periods", || {
        (site.last()?["period"].as_u64()? >= 10).then_some(())
    });
    let states = site.states();
    for (state, running) in states.iter().zip(&running) {
        assert_eq!(state == "serving", *running, "{states:?} {}", controller.err());
    }
    assert_eq!(
        starts,
        (1..=3).map(|server| site.starts(server)).collect::<Vec<_>>()
    );
    assert!(load.counts().0 > 100);
}

#[test]
fn a_controller_that_is_killed_for_good_leaves_every_server_serving() {
    let site = Site::new(2, Service::Wiki);
    site.boot(1);
    let _gateway = site.gateway();
    let config = site.behind_gateway(&fixed());
    let mut controller = resize(&config);
    let _load = Load::to(site.front, CAPACITY_PER_S / 3);
    site.until_states(&["serving", "off"]);
    controller.signal(Signal::KILL);
    controller.wait();
    until("the guard has started the other server", || {
        site.runs(2).then_some(())
    });
    // Which gets requests: it answers in its turn when the first is gone.
    let address = (Ipv4Addr::LOCALHOST, site.ports[1]);
    until("it answers", || TcpStream::connect(address).ok());
    until("the guard is done", || {
        controller.err().contains("every server is started").then_some(())
    });
    kill_process(site.pid(1).unwrap(), Signal::KILL).unwrap();
    until("an answer of the other server", || {
        get(site.front, "/").ok().filter(|answer| answer.status == 200)
    });
}

#[test]
fn a_dry_run_and_a_check_change_nothing() {
    let site = Site::new(2, Service::Wiki);
    site.boot(1);
    let _gateway = site.gateway();
    let config = site.behind_gateway(&fixed());
    let load = Load::to(site.front, CAPACITY_PER_S * 3 / 2);
    let checked = headroom()
        .args(["resize", "--check", "--config"])
        .arg(&config)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&checked.stdout).into_owned();
    assert!(
        checked.status.success(),
        "{}",
        String::from_utf8_lossy(&checked.stderr)
    );
    assert!(
        said.contains("web1: serving, power by command") && said.contains("web2: off"),
        "{said}"
    );
    let mut dry = Program::start(
        headroom()
            .args(["resize", "--dry-run", "--json", "--duration", "4", "--config"])
            .arg(&config),
    );
    dry.succeeds();
    assert!(dry.err().contains("grow"), "{}", dry.err());
    assert_eq!(dry.json()["resize"]["dry_run"], true);
    assert_eq!((site.starts(2), site.runs(1), site.runs(2)), (0, true, false));
    drop(load);
}

/// An HAProxy in front of a site, with a statistics socket.
fn haproxy(site: &Site) -> Option<Program> {
    if Command::new("haproxy").arg("-v").output().is_err() {
        println!("skipped: haproxy is not installed (apt install haproxy)");
        return None;
    }
    let mut text = format!(
        "global\n stats socket {} mode 600 level admin\ndefaults\n mode http\n timeout connect 1s\n timeout client 30s\n \
         timeout server 30s\n retries 3\n option redispatch 1\n option httpclose\nfrontend in\n bind {}\n default_backend app\n\
         backend app\n balance roundrobin\n",
        site.path("haproxy.sock").display(),
        site.front
    );
    for server in 1..=site.ports.len() {
        text.push_str(&format!(
            " server web{server} 127.0.0.1:{} check inter 200ms weight 100{}\n",
            site.ports[server - 1],
            if server > 1 { " disabled" } else { "" }
        ));
    }
    let file = site.path("haproxy.cfg");
    fs::write(&file, text).unwrap();
    let program = Program::start(Command::new("haproxy").args(["-db", "-f"]).arg(&file));
    until("haproxy answers", || get(site.front, "/").ok());
    Some(program)
}

fn behind_haproxy(site: &Site, kind: &str, rest: &str) -> PathBuf {
    let head = format!(
        "[controller]\n{kind}\n[balancer.haproxy]\nsocket = \"{}\"\nbackend = \"app\"\nwarm_up_weight_percent = 50",
        site.path("haproxy.sock").display()
    );
    let port = |server: usize| format!("accept_queue = {}", site.ports[server - 1]);
    site.config(&head, |server| {
        let queue = if rest == "queues" {
            port(server)
        } else {
            String::new()
        };
        format!("member = \"web{server}\"\n{queue}")
    })
}

fn asked(socket: &Path, command: &str) -> String {
    let mut stream = std::os::unix::net::UnixStream::connect(socket).unwrap();
    stream.write_all(format!("{command}\n").as_bytes()).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}

#[test]
fn a_cluster_behind_haproxy_keeps_its_servers_while_the_socket_is_gone() {
    let site = Site::new(2, Service::Wiki);
    site.boot(1);
    let Some(_haproxy) = haproxy(&site) else { return };
    let config = behind_haproxy(&site, &fixed(), "");
    let mut controller = resize(&config);
    let load = Load::to(site.front, CAPACITY_PER_S * 3 / 2);
    // While it warms up it has half of its weight, and then all of it.
    let warming = site.until_period("web2 warms up", |period| {
        period["servers"][1]["state"] == "warming"
    });
    assert_eq!(warming["servers"][1]["command"], "enable");
    site.until_states(&["serving", "serving"]);
    let socket = site.path("haproxy.sock");
    until("all of its weight", || {
        asked(&socket, "get weight app/web2")
            .contains("100 (initial 100)")
            .then_some(())
    });

    let aside = site.path("aside.sock");
    fs::rename(&socket, &aside).unwrap();
    load.at(CAPACITY_PER_S / 3);
    site.until_period("the balancer is lost", |period| {
        period["balancer"]["trouble"]
            .as_str()
            .is_some_and(|why| why.contains("cannot be reached"))
    });
    std::thread::sleep(Duration::from_secs(2));
    assert_eq!(site.states(), ["serving", "serving"]);
    fs::rename(&aside, &socket).unwrap();
    site.until_states(&["serving", "off"]);
    let servers = asked(&socket, "show servers state app");
    let web2 = servers.lines().find(|line| line.contains(" web2 ")).unwrap();
    // Forced maintenance.
    let told = |line: &str| line.split(' ').nth(6)?.parse::<u32>().ok();
    assert_eq!(told(web2).map(|flags| flags & 0x23), Some(1), "{servers}");
    let (answered, wrong) = load.counts();
    assert!(answered > 50 && wrong == 0, "{answered} answered, {wrong} wrong");

    controller.signal(Signal::TERM);
    controller.succeeds();
    assert!(site.runs(1) && site.runs(2));
    let servers = asked(&socket, "show servers state app");
    assert!(
        servers
            .lines()
            .skip(2)
            .all(|line| line.is_empty() || told(line).is_some_and(|flags| flags & 0x23 == 0)),
        "{servers}"
    );
}

#[test]
fn the_dynamic_controller_goes_by_the_accept_queues() {
    let python = Command::new("python3").arg("--version").output();
    if !python.is_ok_and(|output| output.status.success()) {
        println!("skipped: the server with few workers needs python3");
        return;
    }
    // Each takes some 50 connections a second.
    let site = Site::new(3, Service::Workers(1, 0.02));
    site.boot(1);
    let Some(_haproxy) = haproxy(&site) else { return };
    let config = behind_haproxy(&site, "kind = \"dynamic\"", "queues");
    // Rates of the few connections of a fifth of a second are noise.
    let text = fs::read_to_string(&config).unwrap();
    let text = text.replace("period_ms = 200.0", "period_ms = 1000.0");
    fs::write(&config, format!("{text}[capacity.queue]\nforecast_s = 1.0\n")).unwrap();
    let checked = headroom()
        .args(["resize", "--check", "--config"])
        .arg(&config)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&checked.stdout).into_owned();
    assert!(
        checked.status.success(),
        "{}",
        String::from_utf8_lossy(&checked.stderr)
    );
    assert!(said.contains("connections at the accept queues"), "{said}");
    if said.contains("cannot be measured by ebpf") {
        println!("skipped: {said}");
        return;
    }
    let controller = resize(&config);
    // More than the accept queue of one has places for.
    let load = Load::of_clients(60, site.front, 20);
    until("six periods", || {
        (site.last()?["period"].as_u64()? >= 6).then_some(())
    });
    assert_eq!(site.states(), ["serving", "off", "off"]);
    // Nobody said what a server takes: the queue of the first says that it is less than this.
    load.at(120);
    until("another server", || {
        (site.states().iter().filter(|state| *state == "serving").count() >= 2).then_some(())
    });
    let capacity = |period: &Value| period["servers"][0]["capacity"].clone();
    let period = site.until_period("a capacity that was met", |period| {
        capacity(period)["kind"] == "exact"
    });
    let per_s = capacity(&period)["per_s"].as_f64().unwrap();
    assert!((15.0..150.0).contains(&per_s), "{per_s}: {}", controller.err());
}

#[test]
fn a_machine_wakes_by_its_packet() {
    let site = Site::new(2, Service::Wiki);
    site.boot(1);
    let _gateway = site.gateway();
    let card = UdpSocket::bind("127.0.0.1:0").unwrap();
    card.set_read_timeout(Some(PATIENCE)).unwrap();
    let config = site.behind_gateway(&fixed());
    let text = fs::read_to_string(&config).unwrap();
    let (before, _) = text.split_once("[servers.web2.power]").unwrap();
    let stop = format!("kill $(cat {}/web2.pid)", site.dir.path().display());
    let power = format!(
        "[servers.web2.power]\nkind = \"wake-on-lan\"\nmac = \"02:00:00:00:00:02\"\nbroadcast = \"{}\"\n\
         stop = {}\n",
        card.local_addr().unwrap(),
        serde_json::json!(["/bin/sh", "-c", stop])
    );
    fs::write(&config, format!("{before}{power}")).unwrap();
    let _controller = resize(&config);
    let load = Load::to(site.front, CAPACITY_PER_S * 3 / 2);
    let mut packet = [0; 256];
    let (length, _) = card.recv_from(&mut packet).unwrap();
    assert_eq!((length, packet[..6].to_vec()), (102, vec![0xff; 6]));
    assert_eq!(packet[96..102], [2, 0, 0, 0, 0, 2]);
    site.boot(2);
    site.until_states(&["serving", "serving"]);
    // Nobody can say whether its power is off: it is taken for off when its time to shut down is over.
    load.at(CAPACITY_PER_S / 3);
    site.until_states(&["serving", "off"]);
    assert!(!site.runs(2));
}

#[test]
fn a_password_that_everybody_may_read_is_refused_with_its_line() {
    let dir = tempfile::tempdir().unwrap();
    let password = dir.path().join("password");
    fs::write(&password, "sesame").unwrap();
    fs::set_permissions(&password, fs::Permissions::from_mode(0o644)).unwrap();
    let config = dir.path().join("resize.toml");
    fs::write(
        &config,
        format!(
            "[controller]\nkind = \"always-on\"\n[balancer.gateways]\ng1 = \"unix:{0}/g\"\n[servers.web1]\n\
             member = \"http://127.0.0.1:1\"\ncheck = \"tcp:127.0.0.1:1\"\n[servers.web1.power]\nkind = \"redfish\"\n\
             url = \"https://bmc\"\nuser = \"u\"\npassword = {{ file = \"{0}/password\" }}\n\
             [admin]\nlisten = \"off\"\n",
            dir.path().display()
        ),
    )
    .unwrap();
    let output = headroom()
        .args(["resize", "--check", "--config"])
        .arg(&config)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2));
    assert!(
        said.contains("resize.toml:8: servers.web1.power") && said.contains("chmod 600"),
        "{said}"
    );
    assert!(!said.contains("sesame"));
}
