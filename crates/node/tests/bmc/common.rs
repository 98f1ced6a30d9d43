//! Programs, ports and passwords.

use headroom_node::switch::Secret;
use std::fs::{self, Permissions};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How long something may take that is sure to come.
const PATIENCE: Duration = Duration::from_secs(60);

/// The password that the service processors are given.
pub const PASSWORD: &str = "sesame";

/// A program, from the PATH, the administrator's directories or this workspace's cache; else the reason to skip is printed.
pub fn program(name: &str, from: &str) -> Option<PathBuf> {
    let cache = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.cache/bin");
    let path = std::env::var_os("PATH").unwrap_or_default();
    let more = [PathBuf::from("/usr/sbin"), PathBuf::from("/sbin"), cache];
    let found = std::env::split_paths(&path)
        .chain(more)
        .map(|dir| dir.join(name))
        .find(|file| file.is_file());
    if found.is_none() {
        println!("skipped: {name} not found ({from})");
    }
    found
}

/// A password file.
pub fn secret(dir: &Path, name: &str, password: &str) -> Secret {
    let file = dir.join(name);
    fs::write(&file, format!("{password}\n")).unwrap();
    fs::set_permissions(&file, Permissions::from_mode(0o600)).unwrap();
    Secret::File(file)
}

/// A script that somebody else runs.
pub fn script(file: &Path, text: &str) {
    fs::write(file, text).unwrap();
    fs::set_permissions(file, Permissions::from_mode(0o755)).unwrap();
}

pub fn free_tcp_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

pub fn free_udp_port() -> u16 {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.local_addr().unwrap().port()
}

/// A program that runs until it is dropped.
pub struct Running {
    child: Child,
    log: PathBuf,
}

impl Running {
    /// Starts it; where this user cannot, the reason to skip is printed.
    pub fn start(command: &mut Command, log: PathBuf) -> Option<Self> {
        let file = fs::File::create(&log).unwrap();
        let child = command
            .stdin(Stdio::null())
            .stdout(file.try_clone().unwrap())
            .stderr(file)
            .spawn();
        match child {
            Ok(child) => Some(Self { child, log }),
            Err(error) => {
                println!(
                    "skipped: {} cannot be run: {error}",
                    command.get_program().display()
                );
                None
            }
        }
    }

    /// Waits for something that shows that it is there.
    pub fn until(&mut self, what: &str, ready: impl Fn() -> bool) {
        let deadline = Instant::now() + PATIENCE;
        while !ready() {
            let log = || fs::read_to_string(&self.log).unwrap_or_default();
            if let Some(status) = self.child.try_wait().unwrap() {
                panic!("{what}: it ended ({status}): {}", log());
            }
            assert!(Instant::now() < deadline, "{what}: {}", log());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    pub fn until_tcp(&mut self, port: u16) {
        self.until("it listens", || TcpStream::connect(("127.0.0.1", port)).is_ok());
    }

    pub fn until_udp(&mut self, port: u16) {
        self.until("it listens", || has_udp(port));
    }
}

/// Whether somebody has this UDP port. The kernel is asked: whoever tries to bind it can take it from a program that is
/// about to.
fn has_udp(port: u16) -> bool {
    let port = format!(":{port:04X}");
    // Some take an IPv6 socket for both.
    ["/proc/net/udp", "/proc/net/udp6"].into_iter().any(|file| {
        let sockets = fs::read_to_string(file).unwrap_or_default();
        let mut local = sockets.lines().filter_map(|line| line.split_whitespace().nth(1));
        local.any(|address| address.ends_with(&port))
    })
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Waits until a switch says so.
pub fn until(what: &str, ready: impl Fn() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !ready() {
        assert!(Instant::now() < deadline, "waited in vain: {what}");
        std::thread::sleep(Duration::from_millis(100));
    }
}
