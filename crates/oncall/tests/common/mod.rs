//! A server under the preload library, and its clients.

use headroom_oncall::{ConnectionTotals, LIBRARY, Levers, Steering, Turns, VARIABLE};
use rustix::thread::{CpuSet, Pid, sched_getcpu, sched_setaffinity};
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Long enough for anything that is not stuck.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// A server.
pub struct Server {
    pub child: Child,
    port: u16,
    pub steering: Steering,
    _folder: TempDir,
}

impl Server {
    /// What is counted of a client's connection. Its place says nothing: each process takes one when it comes to it.
    pub fn counted(&self, client: &Client) -> ConnectionTotals {
        let address = client.0.local_addr().unwrap();
        let all = self.steering.connections();
        let one = all.into_iter().find(|one| one.client == Some(address));
        one.expect("its client's address is known")
    }

    /// Starts one of the examples, or the program at an absolute path.
    pub fn start(program: &[&str], levers: Levers, lease: Option<Duration>) -> Self {
        Self::prepared(&server_path(program[0]), levers, lease, |command, _| {
            command.args(&program[1..]);
        })
    }

    /// Starts a program whose command is made ready by `prepare`, which is told the region's file.
    pub fn prepared(
        program: &Path,
        levers: Levers,
        lease: Option<Duration>,
        prepare: impl FnOnce(&mut Command, &Path),
    ) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let library = folder.path().join("liboncall.so");
        fs::write(&library, LIBRARY).unwrap();
        let steering = Steering::create(&folder.path().join("region")).unwrap();
        steering.command(levers, lease);
        let mut command = Command::new(program);
        command
            .env("LD_PRELOAD", &library)
            .env(VARIABLE, steering.path())
            .stdout(Stdio::piped())
            // What it forks ends with it.
            .process_group(0);
        prepare(&mut command, steering.path());
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        Self {
            port: line.trim().parse().unwrap(),
            child,
            steering,
            _folder: folder,
        }
    }

    /// A client of its.
    pub fn connect(&self) -> Client {
        let stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        Client(stream)
    }

    /// Waits until something is so.
    pub fn until(&self, what: &str, is_so: impl Fn(&Self) -> bool) {
        let end = Instant::now() + PATIENCE;
        while !is_so(self) {
            let mut totals = self.steering.totals();
            totals.latencies.clear();
            assert!(Instant::now() < end, "{what}: {totals:?}");
            thread::sleep(Duration::from_millis(2));
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let group = format!("-{}", self.child.id());
        let _ = Command::new("kill").args(["-KILL", "--", &group]).status();
        let _ = self.child.wait();
    }
}

/// A client.
pub struct Client(pub TcpStream);

impl Client {
    /// Sends a query.
    pub fn say(&mut self, line: &str) {
        self.0.write_all(format!("{line}\n").as_bytes()).unwrap();
    }

    /// Waits for the answer.
    pub fn hear(&mut self) {
        let mut answer = [0; 3];
        self.0.read_exact(&mut answer).unwrap();
        assert_eq!(&answer, b"ok\n");
    }

    /// Both.
    pub fn ask(&mut self, line: &str) {
        self.say(line);
        self.hear();
    }

    /// Whether the server closes the connection.
    pub fn is_closed(&mut self) -> bool {
        matches!(self.0.read(&mut [0]), Ok(0) | Err(_))
    }
}

fn server_path(name: &str) -> PathBuf {
    let mut path = std::env::current_exe().unwrap();
    path.pop();
    path.pop();
    path.join("examples").join(name)
}

/// Compiles one of the servers in C that are beside these tests; `None` where there is no C compiler.
pub fn compiled(source: &str, folder: &Path) -> Option<PathBuf> {
    let program = folder.join(source.trim_end_matches(".c"));
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(source);
    let run = Command::new("cc")
        .args(["-O1", "-Wall", "-pthread"])
        .arg(source)
        .arg("-o")
        .arg(&program)
        .output();
    match run {
        Ok(output) => {
            assert!(
                output.status.success(),
                "{}",
                String::from_utf8_lossy(&output.stderr)
            );
            Some(program)
        }
        Err(error) => {
            println!("skipped: a server in C: cc cannot be run: {error}");
            None
        }
    }
}

/// On call, with so many slots and so many queries in a round.
pub fn levers(concurrency: u32, batch: u32) -> Levers {
    Levers {
        enabled: true,
        concurrency,
        batch,
        ..Levers::default()
    }
}

/// So many clients, each with so many queries one after another.
pub fn load(server: &Server, clients: usize, queries: usize, line: &str) {
    thread::scope(|scope| {
        for _ in 0..clients {
            scope.spawn(|| {
                let mut client = server.connect();
                (0..queries).for_each(|_| client.ask(line));
            });
        }
    });
}

/// What was counted of sixteen clients' latencies, over what they waited by their own clocks, where all workers have one processor.
pub fn counted_share(server: &Server) -> f64 {
    let mut one = CpuSet::new();
    one.set(sched_getcpu());
    // Its workers, which are yet to come, have what it has.
    let main = Pid::from_raw(server.child.id().cast_signed());
    sched_setaffinity(main, &one).unwrap();
    let mut clients: Vec<Client> = (0..16).map(|_| server.connect()).collect();
    let waited: Duration = thread::scope(|scope| {
        let asks = |client: &mut Client| {
            let began = Instant::now();
            (0..60).for_each(|_| client.ask("spin 500"));
            began.elapsed()
        };
        let all: Vec<_> = clients
            .iter_mut()
            .map(|client| scope.spawn(move || asks(client)))
            .collect();
        all.into_iter().map(|one| one.join().unwrap()).sum()
    });
    let counted: f64 = clients
        .iter()
        .map(|client| server.counted(client).latency.get())
        .sum();
    counted / waited.as_secs_f64()
}

/// Gives a client's connection no turn.
pub fn starve(server: &Server, client: &Client) {
    let place = server.counted(client).place;
    let none = Turns {
        batch: Some(0),
        ..Turns::default()
    };
    server.steering.give(place, none);
}

/// Ten queries of 2 ms of one client; what was counted of its connection.
pub fn ten_queries(server: &Server) -> ConnectionTotals {
    let mut client = server.connect();
    (0..10).for_each(|_| client.ask("spin 2000"));
    server.until("its last query has ended", |server| {
        server.steering.totals().queries == 10
    });
    let mut all = server.steering.connections();
    assert_eq!(all.len(), 1);
    let one = all.remove(0);
    assert_eq!((one.queries, one.recent.len()), (10, 10));
    assert_eq!(one.client, Some(client.0.local_addr().unwrap()));
    assert!(one.latency.get() >= 0.02, "{one:?}");
    one
}
