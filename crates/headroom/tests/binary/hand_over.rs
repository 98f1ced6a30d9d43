//! One gateway after the other on the same address, under load: the next is given the listening sockets, and no connection is lost.

use crate::common::{
    Config, Group, KeepAlive, Program, Server, Up, assert_has, command, free_address, free_port, gateway_in,
    get, headroom, is_alive, kill, program_or_skipped, refused, serves, signal, until, wait, within,
};
use rustix::process::Signal;
use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;
use tempfile::TempDir;

/// Clients that each send one request after another, every one on a connection of its own.
struct Visitors {
    answered: Arc<AtomicU64>,
    failed: Arc<Mutex<Vec<String>>>,
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Visitors {
    fn to(address: SocketAddr, clients: usize) -> Self {
        Self::asking(clients, move || {
            let answer = get(address, "/").map_err(|error| format!("{:?}: {error}", error.kind()))?;
            match answer.status {
                200 => Ok(()),
                status => Err(format!("status {status}")),
            }
        })
    }

    fn asking(clients: usize, ask: impl Fn() -> Result<(), String> + Clone + Send + 'static) -> Self {
        let (answered, failed) = (Arc::new(AtomicU64::new(0)), Arc::new(Mutex::new(Vec::new())));
        let stop = Arc::new(AtomicBool::new(false));
        let client = |_| {
            let (answered, failed, stop) = (Arc::clone(&answered), Arc::clone(&failed), Arc::clone(&stop));
            let ask = ask.clone();
            std::thread::spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    match ask() {
                        Ok(()) => drop(answered.fetch_add(1, Ordering::Relaxed)),
                        Err(error) => failed.lock().unwrap().push(error),
                    }
                    std::thread::sleep(Duration::from_millis(2));
                }
            })
        };
        let threads = (0..clients).map(client).collect();
        Self {
            answered,
            failed,
            stop,
            threads,
        }
    }

    fn answered(&self) -> u64 {
        self.answered.load(Ordering::Relaxed)
    }

    #[track_caller]
    fn flow(&self, more: u64) {
        let from = self.answered();
        wait("requests flow", || self.answered() >= from + more);
    }

    fn failed(&self) -> Vec<String> {
        self.failed.lock().unwrap().clone()
    }
}

impl Drop for Visitors {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// Gateways that follow each other.
struct Line {
    dir: TempDir,
    server: Server,
    listen: String,
}

impl Line {
    fn new() -> Self {
        Self {
            dir: tempfile::tempdir().unwrap(),
            server: Server::start(Duration::ZERO),
            listen: "127.0.0.1:0".to_owned(),
        }
    }

    fn command(&self, more: &str) -> std::process::Command {
        headroom(format!(
            "gateway --listen {} --backend http://{} --run-dir {} {more}",
            self.listen,
            self.server.address,
            self.dir.path().display()
        ))
    }

    /// The first, on a port of the kernel's choice, where the others follow it.
    fn first(&mut self, more: &str) -> (Program, SocketAddr) {
        let mut program = Program::start(self.command(more));
        let address: SocketAddr = program.said("listening on ").parse().unwrap();
        self.listen = address.to_string();
        until("it offers its sockets", || {
            let offers = fs::read_dir(self.offers()).ok()?;
            (offers.count() > 0).then_some(())
        });
        (program, address)
    }

    fn offers(&self) -> PathBuf {
        self.dir.path().join("listeners")
    }
}

/// The sockets of a process, by inode.
fn sockets_of(pid: u32) -> Vec<PathBuf> {
    let descriptors = fs::read_dir(format!("/proc/{pid}/fd"))
        .into_iter()
        .flatten()
        .flatten();
    let targets = descriptors.filter_map(|entry| fs::read_link(entry.path()).ok());
    targets
        .filter(|to| to.to_string_lossy().starts_with("socket:"))
        .collect()
}

/// Whether a process that was told to stand still does, and has threads that accept.
fn is_accepting(pid: u32) -> bool {
    within(Duration::from_secs(5), || {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        stat.rsplit_once(") ")?.1.starts_with('T').then_some(())
    });
    let threads = fs::read_dir(format!("/proc/{pid}/task"))
        .into_iter()
        .flatten()
        .flatten();
    let mut names = threads.filter_map(|thread| fs::read_to_string(thread.path().join("comm")).ok());
    names.any(|name| name.starts_with("gateway-"))
}

/// The sockets that listen there, by inode.
fn listening_at(address: SocketAddr) -> Vec<PathBuf> {
    let port = format!(":{:04X}", address.port());
    let table = fs::read_to_string("/proc/net/tcp").unwrap();
    let fields = table
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>());
    // Local address, remote address, state (0A listens); the inode is the tenth.
    fields
        .filter(|fields| fields[1].ends_with(&port) && fields[3] == "0A")
        .map(|fields| PathBuf::from(format!("socket:[{}]", fields[9])))
        .collect()
}

#[test]
fn fifty_takeovers_under_load_lose_no_connection_whatever_the_number_of_threads() {
    let mut line = Line::new();
    let (mut serving, address) = line.first("--threads 2");
    let visitors = Visitors::to(address, 4);
    let regulars = KeepAlive::to(address, 2);
    visitors.flow(50);
    for round in 0..50 {
        let threads = [1, 3, 2, 5, 2][round % 5];
        let mut next = Program::start(line.command(&format!("--threads {threads} --takeover")));
        next.said("taken over from the gateway of process ");
        serving.succeeds();
        assert_has(serving.err(), &["has taken over", "draining"]);
        serving = next;
        visitors.flow(10);
        assert_eq!(visitors.failed(), Vec::<String>::new(), "in takeover {round}");
        assert_eq!(regulars.failed(), Vec::<String>::new(), "in takeover {round}");
    }
    // Five at least, since that many threads were there once: each is served still.
    assert!(listening_at(address).len() >= 5);
    println!(
        "50 takeovers, {} requests on connections of their own and {} on kept ones: none failed",
        visitors.answered(),
        regulars.answered()
    );
    drop((visitors, regulars));
    serving.stop();
    assert!(get(address, "/").is_err(), "nobody has the sockets any more");
    assert_eq!(fs::read_dir(line.offers()).unwrap().count(), 0);
}

#[test]
fn a_successor_that_is_killed_in_the_middle_leaves_the_old_one_serving() {
    let mut line = Line::new();
    let (mut old, address) = line.first("--threads 2");
    let mut shared = listening_at(address);
    let mut visitors = Visitors::to(address, 4);
    let mut in_the_middle = 0;
    for _ in 0..20 {
        visitors.flow(20);
        // As many threads as the old one: it opens no socket of its own, whose connections would end with it.
        let mut next = Program::start(line.command("--threads 2 --takeover"));
        // Looked at as often as possible: what is between is short.
        while !sockets_of(next.pid())
            .iter()
            .any(|socket| shared.contains(socket))
        {
            assert!(is_alive(next.pid()), "{}", next.err());
        }
        // It stands still while it is asked how far it is: what it has accepted would be cut with it.
        signal(next.pid(), Signal::STOP);
        let is_serving = is_accepting(next.pid());
        kill(next.pid());
        next.wait();
        if !is_serving {
            in_the_middle += 1;
            visitors.flow(20);
            assert_eq!(visitors.failed(), Vec::<String>::new(), "after {in_the_middle}");
            assert_eq!(old.ended(), None);
            continue;
        }
        // It was through, and what it had accepted is cut: nothing that a hand-over could save. Another first one begins.
        drop(visitors);
        old.signal(Signal::TERM);
        old.wait();
        old = Program::start(line.command("--threads 2"));
        old.said("listening on ");
        shared = listening_at(address);
        visitors = Visitors::to(address, 4);
    }
    println!("{in_the_middle} of 20 successors were killed in the middle: no request failed");
    assert!(in_the_middle > 0);
    // One that lives takes over.
    let mut next = Program::start(line.command("--threads 1 --takeover"));
    next.said("taken over from the gateway of process ");
    old.succeeds();
    visitors.flow(20);
    assert_eq!(visitors.failed(), Vec::<String>::new());
    drop(visitors);
    next.stop();
}

#[test]
fn another_users_process_is_given_no_socket_also_where_the_files_let_it_through() {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: only root can be another user");
        return;
    }
    let mut line = Line::new();
    let (mut old, address) = line.first("");
    let open = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    open(line.dir.path(), 0o755);
    open(&line.offers(), 0o755);
    for offer in fs::read_dir(line.offers()).unwrap() {
        let path = offer.unwrap().path();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        open(&path, 0o777);
    }
    let stranger = refused(
        line.command("--takeover").uid(65_534).gid(65_534),
        &[
            "only root and user 0 may have them, and not user 65534",
            "no gateway in",
            "cannot listen on",
        ],
    );
    assert!(!stranger.err().contains("listening on 127"), "{}", stranger.err());
    serves(address);
    wait("the old one has said it", || {
        old.err().contains("a successor was given no sockets")
    });
    old.stop();
}

#[test]
fn one_that_gives_no_sockets_is_listened_beside_and_that_is_said() {
    let mut line = Line::new();
    let (mut old, address) = line.first("");
    // As an earlier version, which offers none.
    for offer in fs::read_dir(line.offers()).unwrap() {
        fs::remove_file(offer.unwrap().path()).unwrap();
    }
    let mut next = Program::start(line.command("--takeover"));
    next.said("listening on ");
    assert_has(next.err(), &["gives its listening sockets", "may be reset"]);
    assert!(is_alive(old.pid()), "nobody told it");
    old.signal(Signal::TERM);
    old.succeeds();
    serves(address);
    next.stop();
}

#[test]
fn a_listener_of_tls_is_handed_over_as_the_others() {
    if !(program_or_skipped("curl --version", "apt install curl")
        && program_or_skipped("openssl version", "apt install openssl"))
    {
        return;
    }
    let mut line = Line::new();
    let (certificate, key) = (line.dir.path().join("cert.pem"), line.dir.path().join("key.pem"));
    let made =
        command("openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=e2e")
            .arg("-keyout")
            .arg(&key)
            .arg("-out")
            .arg(&certificate)
            .output()
            .unwrap();
    assert!(made.status.success(), "{made:?}");
    let port = free_port();
    let tls = format!(
        "--tls-listen 127.0.0.1:{port} --tls-cert {} --tls-key {}",
        certificate.display(),
        key.display()
    );
    let (mut serving, _) = line.first(&format!("{tls} --threads 2"));
    let visitors = Visitors::asking(2, move || {
        let url = format!("https://127.0.0.1:{port}/");
        let output = command("curl -sSk --max-time 60").arg(url).output().unwrap();
        match output.status.success() && output.stdout == b"hello" {
            true => Ok(()),
            false => Err(format!("{output:?}")),
        }
    });
    for _ in 0..5 {
        visitors.flow(10);
        let mut next = Program::start(line.command(&format!("{tls} --threads 1 --takeover")));
        next.said("taken over from the gateway of process ");
        serving.succeeds();
        serving = next;
    }
    visitors.flow(10);
    assert_eq!(visitors.failed(), Vec::<String>::new());
    drop(visitors);
    serving.stop();
}

#[test]
fn a_run_that_follows_a_killed_one_with_another_configuration_loses_no_connection() {
    let Some(group) = Group::new() else { return };
    let server = Server::start(Duration::ZERO);
    let listen = format!("127.0.0.1:{}", free_port());
    let mut config = Config::new(&group, server.address).with(
        "127.0.0.1:0\"]\nthreads = 1",
        &format!("{listen}\"]\nthreads = 1"),
    );
    let run_dir = config.run_dir();
    let mut up = Up::start(&config);
    let visitors = Visitors::to(up.gateway, 4);
    visitors.flow(50);
    for (before, threads) in [(1, 3), (3, 2), (2, 1), (1, 2)] {
        let old = gateway_in(&run_dir).unwrap();
        kill(up.program.pid());
        up.program.wait();
        config = config.with(&format!("threads = {before}"), &format!("threads = {threads}"));
        up = Up::start(&config);
        wait("the old gateway has drained", || !is_alive(old));
        assert_ne!(gateway_in(&run_dir), Some(old));
        let said = up.program.err();
        assert!(!said.contains("gives no listening sockets"), "{said}");
        visitors.flow(20);
        assert_eq!(visitors.failed(), Vec::<String>::new(), "{said}");
    }
    drop(visitors);
    up.program.stop();
    let left = fs::read_dir(&run_dir).unwrap();
    let left = left.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    assert_eq!(
        left.filter(|name| name.starts_with("gateway"))
            .collect::<Vec<_>>(),
        Vec::<String>::new()
    );
}

#[test]
fn sockets_that_a_service_manager_opened_are_served() {
    if !program_or_skipped("systemd-socket-activate --version", "apt install systemd") {
        return;
    }
    let line = Line::new();
    let activated = |listen: &str, opened: &str| {
        let gateway = line.command("--threads 2");
        let words: Vec<_> = gateway.get_args().map(|word| word.to_str().unwrap()).collect();
        let words = words.join(" ").replace("127.0.0.1:0", listen);
        Program::start(
            command(format!(
                "systemd-socket-activate -l {opened} {}",
                env!("CARGO_BIN_EXE_headroom")
            ))
            .args(words.split(' ')),
        )
    };
    let address = free_address();
    let mut program = activated(&address.to_string(), &address.to_string());
    // The first connection starts it, and waits in the socket for it.
    for _ in 0..20 {
        serves(address);
    }
    assert_eq!(listening_at(address).len(), 1, "it opened none of its own");
    program.stop();
    let other = free_address();
    let mut program = activated(&address.to_string(), &other.to_string());
    wait("it listens", || std::net::TcpStream::connect(other).is_ok());
    assert_eq!(program.wait().code(), Some(2));
    assert_has(
        program.err(),
        &["LISTEN_FDS has a socket of", &other.to_string(), "--listen"],
    );
}
