//! Whether what is in use is in use by the headroom that runs already.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

/// The headroom that runs already with the same run directory or configuration, if one does.
#[derive(Clone, Copy, Debug)]
pub struct Running {
    pid: Option<u32>,
}

impl Running {
    /// A known one.
    pub fn of(pid: Option<u32>) -> Self {
        Self { pid }
    }

    /// The one that runs `headroom COMMAND` on this configuration file, by its command line.
    pub fn with_config(command: &str, file: &Path) -> Self {
        let wanted = fs::canonicalize(file).ok();
        let found = processes()
            .into_iter()
            .find(|pid| *pid != std::process::id() && wanted.is_some() && config_of(*pid, command) == wanted);
        Self { pid: found }
    }

    /// Its process.
    pub fn pid(&self) -> Option<u32> {
        self.pid
    }

    /// Its process, where it or a child of it listens on that port.
    pub fn holding(&self, address: SocketAddr) -> Option<u32> {
        self.pid.filter(|pid| holds(*pid, &tcp_listeners(address.port())))
    }

    /// Its process, where it or a child of it listens on that Unix socket.
    pub fn holding_unix(&self, path: &Path) -> Option<u32> {
        self.pid.filter(|pid| holds(*pid, &unix_listeners(path)))
    }
}

/// The configuration file that a process of `headroom COMMAND` was started with.
fn config_of(pid: u32, command: &str) -> Option<PathBuf> {
    let line = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    let words: Vec<String> = line
        .split(|byte| *byte == 0)
        .map(|word| String::from_utf8_lossy(word).into_owned())
        .collect();
    let asks_only = |word: &String| ["--check", "--dry-run", "--when-input-closes"].contains(&word.as_str());
    if !words.iter().any(|word| word == command) || words.iter().any(asks_only) {
        return None;
    }
    let named = words
        .iter()
        .enumerate()
        .find_map(|(at, word)| match word.as_str() {
            "--config" | "-c" => words.get(at + 1).cloned(),
            other => other.strip_prefix("--config=").map(str::to_owned),
        })?;
    let folder = fs::read_link(format!("/proc/{pid}/cwd")).ok()?;
    fs::canonicalize(folder.join(named)).ok()
}

fn processes() -> Vec<u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect()
}

/// Whether a process or one of its descendants has one of these sockets open.
fn holds(pid: u32, sockets: &BTreeSet<String>) -> bool {
    !sockets.is_empty() && family(pid).into_iter().any(|member| has_open(member, sockets))
}

fn has_open(pid: u32, sockets: &BTreeSet<String>) -> bool {
    let entries = fs::read_dir(format!("/proc/{pid}/fd"))
        .into_iter()
        .flatten()
        .flatten();
    entries
        .filter_map(|entry| fs::read_link(entry.path()).ok())
        .any(|link| link.to_str().is_some_and(|link| sockets.contains(link)))
}

/// A process and all that descend from it.
fn family(pid: u32) -> BTreeSet<u32> {
    let parents: BTreeMap<u32, u32> = processes()
        .into_iter()
        .filter_map(|pid| Some((pid, parent(pid)?)))
        .collect();
    let descends = |mut member: u32| {
        // A chain of parents is no longer than there are processes.
        for _ in 0..parents.len() {
            match parents.get(&member) {
                _ if member == pid => return true,
                Some(parent) => member = *parent,
                None => return false,
            }
        }
        false
    };
    let mut family: BTreeSet<u32> = parents
        .keys()
        .copied()
        .filter(|member| descends(*member))
        .collect();
    family.insert(pid);
    family
}

/// Field 4 of /proc/PID/stat; the name before it may hold anything but ends in the last parenthesis.
fn parent(pid: u32) -> Option<u32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, after) = stat.rsplit_once(')')?;
    after.split_ascii_whitespace().nth(1)?.parse().ok()
}

/// The sockets that listen on a port, as the links in /proc/PID/fd name them: /proc/net/tcp has the local address, the state
/// (0A listens) and the inode as its columns 2, 4 and 10.
fn tcp_listeners(port: u16) -> BTreeSet<String> {
    let ending = format!(":{port:04X}");
    let listener = |line: &str| {
        let columns: Vec<&str> = line.split_ascii_whitespace().collect();
        let listens = columns.get(1)?.ends_with(&ending) && *columns.get(3)? == "0A";
        listens.then(|| columns.get(9).map(|inode| format!("socket:[{inode}]")))?
    };
    let tables = ["/proc/net/tcp", "/proc/net/tcp6"].map(|file| fs::read_to_string(file).unwrap_or_default());
    tables
        .iter()
        .flat_map(|table| table.lines().filter_map(listener))
        .collect()
}

/// As [`tcp_listeners`], of a Unix socket: /proc/net/unix has the inode and the path as its columns 7 and 8.
fn unix_listeners(path: &Path) -> BTreeSet<String> {
    let table = fs::read_to_string("/proc/net/unix").unwrap_or_default();
    let inode = |line: &str| {
        let columns: Vec<&str> = line.split_ascii_whitespace().collect();
        let here = Path::new(columns.get(7)?) == path;
        here.then(|| columns.get(6).map(|inode| format!("socket:[{inode}]")))?
    };
    table.lines().filter_map(inode).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;
    use std::os::unix::net::UnixListener;

    #[test]
    fn a_port_belongs_to_who_listens_on_it_and_to_nobody_else() {
        let bound = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = bound.local_addr().unwrap();
        let ours = Running::of(Some(std::process::id()));
        assert_eq!(ours.holding(address), Some(std::process::id()));
        // The first process of the machine listens on no port of a test.
        assert_eq!(Running::of(None).holding(address), None);
        let mut other = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        assert_eq!(Running::of(Some(other.id())).holding(address), None);
        assert!(family(std::process::id()).contains(&other.id()));
        other.kill().unwrap();
        other.wait().unwrap();
        drop(bound);
        assert_eq!(ours.holding(address), None);
    }

    #[test]
    fn so_does_a_unix_socket() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("agent.sock");
        let _bound = UnixListener::bind(&path).unwrap();
        let ours = Running::of(Some(std::process::id()));
        assert_eq!(ours.holding_unix(&path), Some(std::process::id()));
        assert_eq!(ours.holding_unix(&dir.path().join("other.sock")), None);
    }
}
