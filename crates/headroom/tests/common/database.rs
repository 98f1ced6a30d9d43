//! A MariaDB of a test's own, wrapped.

use super::group::inside;
use super::process;
use super::{Program, headroom, kill, until};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

/// A running `headroom wrap -- mariadbd`.
pub struct Database {
    /// The wrap.
    pub program: Program,
    /// Its run folder, its data and its record.
    pub folder: TempDir,
    start: Start,
}

/// How it is started.
struct Start {
    /// The words of `wrap`.
    words: String,
    /// As whom it runs.
    user: &'static str,
    /// What executes it.
    before: Vec<String>,
}

impl Start {
    /// As root: the root of a container may be the only user there is.
    fn of(words: String) -> Self {
        Self {
            words,
            user: "root",
            before: Vec::new(),
        }
    }
}

impl Database {
    /// Starts it wrapped, with its run folder and its record in a folder of its own; `None` where there is none on this machine.
    pub fn start(words: &str) -> Option<Self> {
        Self::start_as(words, "root", &[])
    }

    /// The same as this user, executed by what these words say.
    pub fn start_as(words: &str, user: &'static str, before: &[&str]) -> Option<Self> {
        let folder = Self::installed(&["mariadb-install-db", "mysqlslap", "mariadb"], user)?;
        let at = folder.path().display().to_string();
        let words = format!("--admin 127.0.0.1:0 --run-dir {at} --db {at}/record.db {words}");
        let start = Start {
            user,
            before: before.iter().map(|&word| word.to_owned()).collect(),
            ..Start::of(words)
        };
        Some(Self::of(folder, start, &[]))
    }

    /// Starts it for another run to command, in the group of these directories; `None` where it, or sysbench, is not on this machine.
    pub fn start_steered(words: &str, group: &[PathBuf]) -> Option<Self> {
        let folder = Self::installed(&["mariadb-install-db", "sysbench", "mariadb"], "root")?;
        Some(Self::of(folder, Start::of(format!("--steered {words}")), group))
    }

    /// A folder with an empty database of this user's.
    fn installed(needed: &[&str], user: &str) -> Option<TempDir> {
        let is_there = |name: &str| {
            let mut asked = Command::new("sh");
            let asked = asked.args(["-c", &format!("command -v {name}")]).output();
            asked.is_ok_and(|output| output.status.success())
        };
        if let Some(missing) = ["mariadbd"].iter().chain(needed).find(|name| !is_there(name)) {
            println!("skipped: a wrapped MariaDB: {missing} is not installed");
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        // Whoever it runs as loads the library.
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let temporary = folder.path().join("tmp");
        fs::create_dir(&temporary).unwrap();
        fs::set_permissions(&temporary, fs::Permissions::from_mode(0o1777)).unwrap();
        let mut install = Command::new("mariadb-install-db");
        install
            .arg("--no-defaults")
            .arg(format!("--datadir={}", folder.path().join("data").display()))
            .arg(temporary_of(folder.path()));
        let user = format!("--user={user}");
        let made = install
            .args([
                &user,
                "--auth-root-authentication-method=normal",
                "--skip-test-db",
            ])
            .output()
            .unwrap();
        let said = [&made.stdout, &made.stderr].map(|said| String::from_utf8_lossy(said));
        assert!(made.status.success(), "{}", said.concat());
        Some(folder)
    }

    fn of(folder: TempDir, start: Start, group: &[PathBuf]) -> Self {
        let program = Program::start(&mut command(folder.path(), &start, group));
        let database = Self {
            program,
            folder,
            start,
        };
        database.answers();
        database
    }

    /// Starts it again after its end.
    pub fn again(&mut self, group: &[PathBuf]) {
        self.program = Program::start(&mut command(self.folder.path(), &self.start, group));
        self.answers();
    }

    fn answers(&self) {
        until("the database answers", || self.asks("select 1").map(|_| ()));
    }

    /// A client of it.
    pub fn client(&self, name: &str) -> Command {
        let mut command = Command::new(name);
        let socket = self.folder.path().join("data/socket");
        command
            .arg("--no-defaults")
            .arg("--user=root")
            .arg(format!("--socket={}", socket.display()));
        command
    }

    /// The answer to a statement; `None` where it fails.
    pub fn asks(&self, statement: &str) -> Option<String> {
        let output = self
            .client("mariadb")
            .args(["-N", "-e", statement])
            .output()
            .unwrap();
        output
            .status
            .success()
            .then(|| String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Sysbench's point selects on a small table, which `prepare` makes.
    pub fn sysbench(&self, words: &str) -> Command {
        let mut command = Command::new("sysbench");
        command.args(["--db-driver=mysql", "--mysql-user=root", "--mysql-db=sbtest"]);
        command.arg(format!(
            "--mysql-socket={}",
            self.folder.path().join("data/socket").display()
        ));
        command.args(["--tables=1", "--table-size=2000", "oltp_point_select"]);
        command.args(words.split_whitespace());
        command
    }

    /// Makes sysbench's table.
    pub fn prepare(&self) {
        assert!(self.asks("create database if not exists sbtest").is_some());
        let made = self.sysbench("prepare").output().unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stdout));
    }
}

impl Drop for Database {
    /// The server outlives a wrap that was killed.
    fn drop(&mut self) {
        let data = format!("--datadir={}", self.folder.path().join("data").display());
        let is_ours = |process: &process::Process| {
            process
                .args
                .first()
                .is_some_and(|name| name.ends_with("mariadbd"))
                && process.args.contains(&data)
        };
        let ours = process::all().into_iter().filter(is_ours);
        ours.for_each(|process| kill(process.pid));
    }
}

/// Where a server's temporary tables are: one that starts removes those of all others that have theirs in the same folder.
fn temporary_of(folder: &Path) -> String {
    format!("--tmpdir={}", folder.join("tmp").display())
}

/// The server in a folder, wrapped, in a group from its first instruction on.
fn command(folder: &Path, start: &Start, group: &[PathBuf]) -> Command {
    let mut wrap = headroom(format!("wrap {} --", start.words));
    wrap.args(&start.before).arg("mariadbd");
    let mut command = match group {
        [] => wrap,
        group => inside(group, &wrap),
    };
    command.args([
        "--no-defaults",
        &format!("--user={}", start.user),
        "--skip-networking",
        "--max-connections=200",
    ]);
    command.args(["--skip-log-bin", "--innodb-buffer-pool-size=32M"]);
    command.arg("--innodb-log-file-size=8M");
    command.arg(format!("--datadir={}", folder.join("data").display()));
    command.arg(temporary_of(folder));
    command.arg(format!("--socket={}", folder.join("data/socket").display()));
    command
}
