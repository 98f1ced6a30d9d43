//! What services and machines are made of here: wikis, gateways in front of them, emulated hardware.

use super::{Group, Program, headroom};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

/// A running wiki.
pub struct Wiki {
    /// The process.
    pub program: Program,
    /// Where it listens.
    pub address: SocketAddr,
}

impl Wiki {
    /// Starts it on an address, pages costing half of the default.
    pub fn start(listen: &str) -> Self {
        let words = format!("service wiki --page-cpu-ms 2 --listen {listen}");
        let mut program = Program::start(headroom(words));
        let address = program.said("listening on ").parse().unwrap();
        Self { program, address }
    }

    /// One on any port, in a group.
    pub fn of(group: &Group) -> Self {
        let wiki = Self::start("127.0.0.1:0");
        group.add(wiki.program.pid());
        wiki
    }
}

/// A gateway in front of backends, with its control port on a Unix socket.
pub struct Gateway {
    /// The process.
    pub program: Program,
    /// Where it listens.
    pub address: SocketAddr,
    dir: TempDir,
    /// What starts it, without its control port.
    words: Vec<String>,
}

impl Gateway {
    /// Starts it and waits until both listen.
    pub fn start(backends: &[SocketAddr]) -> Self {
        Self::start_with(backends, "")
    }

    /// The same with more words on its command line.
    pub fn start_with(backends: &[SocketAddr], more: &str) -> Self {
        Self::checked_at("/", backends, more)
    }

    /// The same with backends that are asked for this path to see whether they answer.
    pub fn checked_at(path: &str, backends: &[SocketAddr], more: &str) -> Self {
        Self::unchecked(backends, &format!("--health {path} {more}"))
    }

    /// The same with backends that nobody asks whether they answer.
    pub fn unchecked(backends: &[SocketAddr], more: &str) -> Self {
        let words = format!("gateway --listen 127.0.0.1:0 {more}");
        let mut words: Vec<String> = words.split_whitespace().map(str::to_owned).collect();
        words.extend(
            backends
                .iter()
                .map(|backend| format!("--backend=http://{backend}")),
        );
        let dir = tempfile::tempdir().unwrap();
        let (program, address) = Self::run(&words, dir.path());
        Self {
            program,
            address,
            dir,
            words,
        }
    }

    /// One more process with the same control port, after this one was killed.
    pub fn again(&mut self) {
        (self.program, self.address) = Self::run(&self.words, self.dir.path());
    }

    fn run(words: &[String], dir: &Path) -> (Program, SocketAddr) {
        let mut command = headroom(words.join(" "));
        command.arg(format!("--control=unix:{}", dir.join("gateway.sock").display()));
        let mut program = Program::start(command);
        let address = program.said("listening on ").parse().unwrap();
        program.said("control on ");
        (program, address)
    }

    /// In front of a port that nobody listens on.
    pub fn of_nobody() -> Self {
        Self::start(&["127.0.0.1:9".parse().unwrap()])
    }

    /// Where it is controlled.
    pub fn control(&self) -> String {
        format!("unix:{}", self.dir.path().join("gateway.sock").display())
    }
}

/// An emulated server with the service's group `web`.
pub struct Emulator {
    /// The process.
    pub program: Program,
    at: PathBuf,
}

impl Emulator {
    /// Starts it in a folder; its control group has this name and the number of the test's process.
    pub fn start(dir: &Path, name: &str, real_cores: f64) -> Self {
        let at = dir.join("sys");
        let name = format!("{name}-{}", std::process::id());
        let words = format!("emulate --real-cores {real_cores} --group web --name {name} --at");
        let mut program = Program::start(headroom(words).arg(&at));
        program.said("an emulated server of ");
        Self { program, at }
    }

    /// Where its `/sys` is.
    pub fn sys(&self) -> &Path {
        &self.at
    }

    /// Says to a command where the kernel's files are.
    pub fn trees(&self, command: &mut Command) {
        command.arg("--proc").arg(self.at.join("headroom-testbed/proc"));
        command.arg("--sys").arg(&self.at);
    }
}
