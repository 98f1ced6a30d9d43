//! A database of the stress's own under `headroom wrap`: its data outlive its runs.

use crate::common::process::children;
use crate::common::{Program, copy_headroom, free_port, headroom, signal, within};
use crate::region::RegionFile;
use crate::wire::{Address, Database};
use anyhow::{Context, bail, ensure};
use rustix::process::Signal;
use std::fs;
use std::net::TcpStream;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use tempfile::TempDir;

/// The user of nothing, as which PostgreSQL runs where the stress is root's.
const NOBODY: u32 = 65_534;
/// Connections that a server has room for: fewer than a storm brings.
pub const ROOM: usize = 110;
/// After how long without progress a server gives a client up that does not read.
pub const WRITES_WITHIN: Duration = Duration::from_secs(4);
/// How long a server may take to load the library and listen; after kill -9 it recovers first.
pub const STARTS_WITHIN: Duration = Duration::from_secs(90);

/// A database's files, and how it is started.
pub struct Place {
    /// Which it is.
    pub database: Database,
    folder: TempDir,
    bin: PathBuf,
    headroom: PathBuf,
    port: u16,
    started: u32,
}

/// One run of it.
pub struct Served {
    /// `headroom wrap`.
    pub wrap: Program,
    /// The server itself, wrap's child.
    pub pid: u32,
    /// The region.
    pub region: RegionFile,
    /// Its folder, which must be gone with it.
    pub shared: PathBuf,
}

fn has(bin: &Path, names: &[&str]) -> bool {
    names.iter().all(|name| bin.join(name).exists())
}

fn folder_of(names: &[&str]) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let debian = fs::read_dir("/usr/lib/postgresql")
        .into_iter()
        .flatten()
        .flatten();
    let mut all: Vec<PathBuf> = debian.map(|entry| entry.path().join("bin")).collect();
    all.extend(std::env::split_paths(&path));
    all.push("/usr/sbin".into());
    all.into_iter().find(|bin| has(bin, names))
}

impl Place {
    /// Makes a database's files; `None` where its programs are not on this machine.
    pub fn make(database: Database) -> anyhow::Result<Option<Self>> {
        let (server, install, package) = match database {
            Database::Maria => ("mariadbd", "mariadb-install-db", "mariadb-server"),
            Database::Postgres => ("postgres", "initdb", "postgresql"),
        };
        let found = folder_of(&[server]).zip(folder_of(&[install]));
        let Some((bin, install_bin)) = found else {
            println!("skipped: {server} under stress: {package} is not installed");
            return Ok(None);
        };
        let folder = tempfile::tempdir()?;
        let copy = folder.path().join("headroom");
        // Whoever the server runs as may not read every folder in which this program was built.
        copy_headroom(&copy);
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755))?;
        let place = Self {
            database,
            folder,
            bin,
            headroom: copy,
            port: free_port(),
            started: 0,
        };
        if place.is_nobodys() {
            chown(place.folder.path(), Some(NOBODY), Some(NOBODY))?;
        }
        let mut make = place.command(&install_bin.join(install));
        match database {
            Database::Maria => make
                .arg("--no-defaults")
                .arg(format!("--datadir={}", place.data().display()))
                .arg(place.temporary())
                .args([
                    "--user=root",
                    "--auth-root-authentication-method=normal",
                    "--skip-test-db",
                ]),
            Database::Postgres => make
                .args(["--auth=trust", "--username=root", "--no-sync", "--pgdata"])
                .arg(place.data()),
        };
        let made = make.output().context(install)?;
        let words = String::from_utf8_lossy(&made.stderr);
        ensure!(made.status.success(), "{install}: {words}");
        Ok(Some(place))
    }

    fn is_nobodys(&self) -> bool {
        self.database == Database::Postgres && rustix::process::geteuid().is_root()
    }

    /// Where a MariaDB's temporary tables are: one that starts removes those of all others that have theirs in the same folder.
    fn temporary(&self) -> String {
        format!("--tmpdir={}", self.folder.path().display())
    }

    fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    /// A command that runs as who the server runs as.
    pub fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        if self.is_nobodys() {
            command.uid(NOBODY).gid(NOBODY);
        }
        command.current_dir(self.folder.path());
        command
    }

    /// Where clients find it: by its Unix socket, and by its port.
    pub fn addresses(&self) -> [Address; 2] {
        let socket = match self.database {
            Database::Maria => "socket".to_owned(),
            Database::Postgres => format!(".s.PGSQL.{}", self.port),
        };
        [
            Address::Unix(self.folder.path().join(socket)),
            Address::Tcp(([127, 0, 0, 1], self.port).into()),
        ]
    }

    /// A client program of the database's own that asks one statement again and again. PostgreSQL carries all of them out, whether its
    /// client lives or not.
    pub fn client(&self, statement: &str, times: usize) -> Command {
        let mut command = match self.database {
            Database::Maria => {
                let mut command = self.command(Path::new("mariadb"));
                command
                    .args(["--no-defaults", "--user=gold", "--batch", "--force", "--socket"])
                    .arg(self.folder.path().join("socket"));
                command
            }
            Database::Postgres => {
                let mut command = self.command(Path::new("psql"));
                command
                    .args(["--no-psqlrc", "--quiet", "--username=gold", "postgres"])
                    .env("PGHOST", self.folder.path())
                    .env("PGPORT", self.port.to_string());
                command
            }
        };
        let flag = match self.database {
            Database::Maria => "--execute",
            Database::Postgres => "--command",
        };
        command.args([flag, &statement.repeat(times)]);
        command
    }

    fn server_arguments(&self) -> Vec<String> {
        let folder = self.folder.path().display();
        let data = self.data();
        match self.database {
            Database::Maria => [
                "--no-defaults".to_owned(),
                "--user=root".to_owned(),
                format!("--datadir={}", data.display()),
                self.temporary(),
                format!("--socket={folder}/socket"),
                format!("--pid-file={folder}/pid"),
                format!("--port={}", self.port),
                "--bind-address=127.0.0.1".to_owned(),
                format!("--max-connections={ROOM}"),
                "--max-connect-errors=1000000000".to_owned(),
                "--thread-cache-size=8".to_owned(),
                "--connect-timeout=3".to_owned(),
                "--net-read-timeout=3".to_owned(),
                format!("--net-write-timeout={}", WRITES_WITHIN.as_secs()),
                "--innodb-lock-wait-timeout=3".to_owned(),
                "--lock-wait-timeout=10".to_owned(),
                "--max-allowed-packet=64M".to_owned(),
                "--innodb-buffer-pool-size=32M".to_owned(),
                "--innodb-log-file-size=8M".to_owned(),
                "--skip-log-bin".to_owned(),
                "--skip-name-resolve".to_owned(),
            ]
            .into(),
            Database::Postgres => {
                let mut all = vec!["-D".to_owned(), data.display().to_string()];
                let settings = [
                    "listen_addresses=127.0.0.1".to_owned(),
                    format!("port={}", self.port),
                    format!("unix_socket_directories={folder}"),
                    format!("max_connections={ROOM}"),
                    "shared_buffers=32MB".to_owned(),
                    "authentication_timeout=3s".to_owned(),
                    "lock_timeout=3s".to_owned(),
                    "deadlock_timeout=500ms".to_owned(),
                    format!("tcp_user_timeout={}s", WRITES_WITHIN.as_secs()),
                    "log_min_messages=panic".to_owned(),
                    "log_min_error_statement=panic".to_owned(),
                    "log_connections=off".to_owned(),
                ];
                settings
                    .into_iter()
                    .for_each(|setting| all.extend(["-c".to_owned(), setting]));
                all
            }
        }
    }

    /// Starts it under `headroom wrap` with these words, and waits until it listens.
    pub fn start(&mut self, words: &str, config: &str) -> anyhow::Result<Served> {
        self.started += 1;
        let folder = self.folder.path().to_owned();
        let run_dir = folder.join("run");
        fs::create_dir_all(&run_dir)?;
        let file = folder.join("wrap.toml");
        fs::write(&file, config)?;
        let db = folder.join("record.db");
        if self.is_nobodys() {
            chown(&run_dir, Some(NOBODY), Some(NOBODY))?;
        }
        let plain = headroom("");
        let mut command = self.command(&self.headroom);
        for (key, value) in plain.get_envs() {
            match value {
                Some(value) => command.env(key, value),
                None => command.env_remove(key),
            };
        }
        command
            .arg("wrap")
            .arg("--run-dir")
            .arg(&run_dir)
            .arg("--db")
            .arg(&db);
        command
            .arg("--config")
            .arg(&file)
            .args(words.split_whitespace())
            .arg("--");
        let name = match self.database {
            Database::Maria => "mariadbd",
            Database::Postgres => "postgres",
        };
        command.arg(self.bin.join(name)).args(self.server_arguments());
        let mut wrap = Program::start_named(&mut command, &folder, &format!("wrap-{}", self.started));
        let shared = run_dir.join(format!("oncall-{}", wrap.pid()));
        let listens = within(STARTS_WITHIN, || {
            if let Some(status) = wrap.ended() {
                return Some(Err(status));
            }
            let [Address::Unix(socket), Address::Tcp(port)] = self.addresses() else {
                return None;
            };
            let listens = UnixStream::connect(socket).is_ok() && TcpStream::connect(port).is_ok();
            listens.then_some(Ok(()))
        });
        match listens {
            None => bail!("it does not listen within {STARTS_WITHIN:?}: {}", wrap.all()),
            Some(Err(status)) => bail!("it ended with {status}: {}", wrap.all()),
            Some(Ok(())) => {}
        }
        let [server] = &children(wrap.pid())[..] else {
            bail!("wrap has not one child");
        };
        let pid = server.pid;
        let region = RegionFile::open(&shared.join("region"))?;
        Ok(Served {
            wrap,
            pid,
            region,
            shared,
        })
    }

    /// Folders that wraps of this place left behind, but for this one.
    pub fn left(&self, but: Option<&Path>) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.folder.path().join("run"))
            .into_iter()
            .flatten()
            .flatten();
        let mut all: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
        all.retain(|path| Some(path.as_path()) != but);
        all
    }
}

/// What a server holds.
#[derive(Clone, Copy, Debug)]
pub struct Held {
    /// Kibibytes resident.
    pub rss_kib: u64,
    /// Threads, or processes of a server of processes.
    pub workers: u64,
    /// Descriptors of its first process.
    pub descriptors: u64,
}

impl Served {
    /// What it holds now.
    pub fn held(&self, database: Database) -> anyhow::Result<Held> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid))?;
        let of = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name))?;
            line.split_whitespace().next()?.parse().ok()
        };
        let workers = match database {
            Database::Maria => of("Threads:"),
            Database::Postgres => Some(children(self.pid).len() as u64),
        };
        Ok(Held {
            rss_kib: of("VmRSS:").context("VmRSS")?,
            workers: workers.context("Threads")?,
            descriptors: fs::read_dir(format!("/proc/{}/fd", self.pid))?.count() as u64,
        })
    }

    /// Whether the server itself is there.
    pub fn is_alive(&self) -> bool {
        crate::common::is_alive(self.pid)
    }
}

impl Drop for Served {
    /// A server whose wrap was killed is nobody's child here.
    fn drop(&mut self) {
        if self.is_alive() {
            signal(self.pid, Signal::KILL);
        }
    }
}
