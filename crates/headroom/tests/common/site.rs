//! A cluster on this machine: processes that stand for its servers, and the controller's files.

use crate::common::process;
use crate::common::{Program, free_port, headroom, kill, until, wait, within};
use rustix::process::Pid;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use tempfile::TempDir;

/// What stands for a machine's service: a process of the binary, or a program of the test's.
pub enum Service {
    Wiki,
    /// A server of so many worker threads, each taking a connection, waiting for so many seconds and answering, with its port for a
    /// name.
    Workers(u32, f64),
}

/// The controller of a file, with a run folder beside that.
pub fn resizing(config: &Path, words: &str) -> Command {
    let mut command = headroom(format!("resize {words} --config"));
    command.arg(config).arg("--run-dir").arg(run_dir(config));
    command
}

/// The run folder of a file's controllers.
pub fn run_dir(config: &Path) -> PathBuf {
    config.with_file_name("run")
}

/// Processes that stand for machines, their load balancer, and the controller's files.
pub struct Site {
    pub dir: TempDir,
    pub ports: Vec<u16>,
    /// Where the load balancer is.
    pub front: SocketAddr,
    service: Service,
    /// Power tables other than commands, by server.
    powers: BTreeMap<usize, String>,
    /// A server whose workers wait three times as long.
    slow: Option<usize>,
}

impl Site {
    pub fn new(servers: usize, service: Service) -> Self {
        let site = Self {
            dir: tempfile::tempdir().unwrap(),
            ports: (0..servers).map(|_| free_port()).collect(),
            front: (Ipv4Addr::LOCALHOST, free_port()).into(),
            service,
            powers: BTreeMap::new(),
            slow: None,
        };
        fs::write(site.path("workers.py"), WORKERS).unwrap();
        site
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Gives a server another power table than one of commands.
    pub fn powered_by(&mut self, server: usize, table: String) {
        self.powers.insert(server, table);
    }

    /// Makes a server of workers three times as slow as the others.
    pub fn slowed(mut self, server: usize) -> Self {
        self.slow = Some(server);
        self
    }

    /// Makes a server fail in a way that its start command knows, or ends that.
    pub fn set(&self, server: usize, how: &str, on: bool) {
        let file = self.path(&format!("web{server}.{how}"));
        if on {
            fs::write(file, "").unwrap();
        } else {
            fs::remove_file(file).unwrap();
        }
    }

    /// How often a server was told to start.
    pub fn starts(&self, server: usize) -> usize {
        let text = fs::read_to_string(self.path(&format!("web{server}.starts"))).unwrap_or_default();
        text.lines().count()
    }

    pub fn pid(&self, server: usize) -> Option<Pid> {
        let text = fs::read_to_string(self.path(&format!("web{server}.pid"))).ok()?;
        Pid::from_raw(text.trim().parse().ok()?)
    }

    pub fn runs(&self, server: usize) -> bool {
        let Some(pid) = self.pid(server) else { return false };
        let status = fs::read_to_string(format!("/proc/{}/status", pid.as_raw_nonzero()));
        status.is_ok_and(|text| !text.contains("State:\tZ"))
    }

    /// The command that starts a server after a moment, which is its boot.
    pub fn start_script(&self, server: usize) -> String {
        let (dir, port) = (self.dir.path().display(), self.ports[server - 1]);
        let service = match self.service {
            Service::Wiki => format!(
                "{} service wiki --listen 127.0.0.1:{port} --workers 2 --page-cpu-ms 0.2",
                env!("CARGO_BIN_EXE_headroom")
            ),
            Service::Workers(workers, wait_s) => {
                let times = if self.slow == Some(server) { 3.0 } else { 1.0 };
                format!("python3 {dir}/workers.py {port} {workers} {}", wait_s * times)
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
    pub fn boot(&self, server: usize) {
        let booted = Command::new("/bin/sh")
            .args(["-c", &self.start_script(server)])
            .status();
        assert!(booted.unwrap().success());
        let address = (Ipv4Addr::LOCALHOST, self.ports[server - 1]);
        until("a server answers", || TcpStream::connect(address).ok());
        fs::remove_file(self.path(&format!("web{server}.starts"))).unwrap();
    }

    fn power(&self, server: usize) -> String {
        if let Some(table) = self.powers.get(&server) {
            return table.clone();
        }
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
    pub fn config(&self, head: &str, member: impl Fn(usize) -> String) -> PathBuf {
        let mut text = format!(
            "{head}\n[law.resize]\nwarm_up_s = 0.6\nblind_s = 3.0\nspare_for_s = 1.0\n[slo]\ntarget_ms = 250.0\n[power]\nboot_timeout_s = 6.0\nwarm_up_s = 0.4\n\
             lost_s = 1.5\ndrain_timeout_s = 5.0\nshutdown_s = 1.0\nstop_timeout_s = 6.0\nbackoff_s = 1.0\n\
             backoff_most_s = 4.0\nforgive_s = 60.0\n[control]\nperiod_ms = 200.0\n[cluster]\npower_poll_s = 0.5\n[energy]\n\
             idle_w = 60.0\nfull_w = 65.0\nbooting_w = 65.0\nshutting_down_w = 60.0\noff_w = 0.0\n\
             [exit]\nwait_s = 20.0\n[record]\ndb = \"{}\"\n[admin]\nlisten = \"127.0.0.1:0\"\n",
            self.path("runs.db").display()
        );
        for server in 1..=self.ports.len() {
            text.push_str(&format!(
                "[nodes.web{server}]\ncheck = \"tcp:127.0.0.1:{}\"\n{}\n[nodes.web{server}.power]\n{}",
                self.ports[server - 1],
                member(server),
                self.power(server)
            ));
        }
        let file = self.path("resize.toml");
        fs::write(&file, text).unwrap();
        file
    }

    pub fn url(&self, server: usize) -> String {
        format!("http://127.0.0.1:{}", self.ports[server - 1])
    }

    /// Our gateway in front of all.
    pub fn gateway(&self) -> Program {
        let mut command = headroom(format!(
            "gateway --backend-idle 0 --balance round-robin --listen {} --control=unix:{}",
            self.front,
            self.path("gateway.sock").display()
        ));
        for server in 1..=self.ports.len() {
            command.arg("--backend").arg(self.url(server));
        }
        let mut gateway = Program::start(&mut command);
        gateway.said("control on");
        gateway
    }

    pub fn behind_gateway(&self, kind: &str) -> PathBuf {
        let head = format!(
            "[law]\n{kind}\n[gateways]\ng1 = \"unix:{}\"",
            self.path("gateway.sock").display()
        );
        self.config(&head, |server| format!("member = \"{}\"", self.url(server)))
    }

    /// The periods of the newest run in the record.
    pub fn periods(&self) -> Vec<Value> {
        crate::common::record::periods(&self.path("runs.db"))
    }

    /// The last of them.
    pub fn last(&self) -> Option<Value> {
        self.periods().pop()
    }

    /// Each server's state, by the record.
    pub fn states(&self) -> Vec<String> {
        let last = self.last().unwrap_or_default();
        let servers = last["servers"].as_array().cloned().unwrap_or_default();
        servers
            .iter()
            .map(|one| one["state"].as_str().unwrap().to_owned())
            .collect()
    }

    pub fn until_states(&self, states: &[&str]) {
        wait(&format!("{states:?}, being {:?}", self.states()), || {
            self.states() == states
        });
    }

    /// Waits until a period of the record is as asked for; that period.
    pub fn until_period(&self, what: &str, found: impl Fn(&Value) -> bool) -> Value {
        until(what, || self.periods().into_iter().find(|period| found(period)))
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        if std::thread::panicking() {
            println!("the last period: {}", self.last().unwrap_or_default());
        }
        // Also one that a guard which is still at work starts now, of which no file is read any more.
        let dir = self.dir.path().to_string_lossy().into_owned();
        let addresses = self.ports.iter().map(|port| format!("127.0.0.1:{port}"));
        let marks: Vec<String> = addresses.chain([dir]).collect();
        let is_of_it = |args: &[String]| args.iter().any(|arg| marks.iter().any(|mark| arg.contains(mark)));
        let left = || process::all().into_iter().filter(|one| is_of_it(&one.args));
        let none_left = within(Duration::from_secs(5), || {
            left().for_each(|process| kill(process.pid));
            left().next().is_none().then_some(())
        });
        if none_left.is_none() {
            println!("processes of the site are left: {:?}", left().collect::<Vec<_>>());
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
                connection.sendall(b'HTTP/1.1 200 OK\\r\\nServer: %d\\r\\nContent-Length: 2\\r\\nConnection: close\\r\\n\\r\\nok' % port)
        except OSError:
            pass
        connection.close()
for _ in range(workers):
    threading.Thread(target=work, daemon=True).start()
threading.Event().wait()
";
