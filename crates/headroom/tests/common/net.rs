//! A client and a server of a few lines each, on the standard library.

use super::PATIENCE;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Where nobody listens.
pub const NOBODY: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 9);

/// A port that nobody listens on, and that nobody is given who asks the kernel for any: it is below those that Linux
/// hands out by default.
pub fn free_port() -> u16 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    for _ in 0..1_000 {
        let number = NEXT
            .fetch_add(1, Ordering::Relaxed)
            .wrapping_add(std::process::id().wrapping_mul(61));
        let port = u16::try_from(20_000 + number % 12_000).unwrap();
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
    panic!("a thousand ports are taken");
}

/// The same as an address.
pub fn free_address() -> SocketAddr {
    (Ipv4Addr::LOCALHOST, free_port()).into()
}

/// An answer.
#[derive(Debug)]
pub struct Answer {
    /// Its status.
    pub status: u16,
    /// Its header fields, as text.
    pub head: String,
    /// Its body.
    pub body: String,
}

/// Asks for a path on a connection of its own.
pub fn get(address: SocketAddr, path: &str) -> io::Result<Answer> {
    read_answer(connect_and_send(
        address,
        &format!("GET {path} HTTP/1.1\r\nHost: e2e\r\nConnection: close\r\n\r\n"),
    )?)
}

/// The same, by a client that resets its connection where nothing comes for so long.
fn get_within(address: SocketAddr, path: &str, patience: Duration) -> io::Result<Answer> {
    let request = format!("GET {path} HTTP/1.1\r\nHost: e2e\r\nConnection: close\r\n\r\n");
    let stream = connect_and_send(address, &request)?;
    stream.set_read_timeout(Some(patience))?;
    rustix::net::sockopt::set_socket_linger(&stream, Some(Duration::ZERO))?;
    read_answer(stream)
}

/// Waits until requests are answered with 200.
#[track_caller]
pub fn serves(address: SocketAddr) {
    super::wait("it is served", || {
        get(address, "/").is_ok_and(|answer| answer.status == 200)
    });
}

/// Connects and sends a request as it is given.
pub fn connect_and_send(address: SocketAddr, request: &str) -> io::Result<TcpStream> {
    let mut stream = TcpStream::connect_timeout(&address, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(request.as_bytes())?;
    Ok(stream)
}

/// Reads one answer from a connection that closes after it.
pub fn read_answer(mut stream: TcpStream) -> io::Result<Answer> {
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes)?;
    let text = String::from_utf8_lossy(&bytes).into_owned();
    let bad = || io::Error::new(io::ErrorKind::InvalidData, format!("no answer: {text:?}"));
    let (head, body) = text.split_once("\r\n\r\n").ok_or_else(bad)?;
    let status = head
        .split(' ')
        .nth(1)
        .and_then(|s| s.parse().ok())
        .ok_or_else(bad)?;
    Ok(Answer {
        status,
        head: head.to_owned(),
        body: body.to_owned(),
    })
}

/// A backend: it answers every request with 200, after a delay, and counts what came.
pub struct Server {
    /// Where it listens.
    pub address: SocketAddr,
    /// Requests that came in.
    pub seen: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Answers after `delay`.
    pub fn start(delay: Duration) -> Self {
        Self::answering(delay, "")
    }

    /// The same with more header lines, each ended.
    pub fn answering(delay: Duration, headers: &'static str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (seen, stop) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let (counter, ended) = (Arc::clone(&seen), Arc::clone(&stop));
        let thread = std::thread::spawn(move || {
            for stream in listener.incoming() {
                if ended.load(Ordering::Relaxed) {
                    return;
                }
                let Ok(mut stream) = stream else { continue };
                let counter = Arc::clone(&counter);
                std::thread::spawn(move || {
                    let mut head = Vec::new();
                    let mut byte = [0];
                    while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).is_ok_and(|read| read > 0) {
                        head.push(byte[0]);
                    }
                    if head.ends_with(b"\r\n\r\n") {
                        counter.fetch_add(1, Ordering::Relaxed);
                        std::thread::sleep(delay);
                        let head = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n";
                        let _ = stream.write_all(format!("{head}{headers}\r\nhello").as_bytes());
                    }
                });
            }
        });
        Self {
            address,
            seen,
            stop,
            thread: Some(thread),
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let _ = TcpStream::connect(self.address);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Requests one after another, until it is dropped.
pub struct Traffic {
    answered: Arc<AtomicU64>,
    wrong: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Traffic {
    /// Begins.
    pub fn to(address: SocketAddr) -> Self {
        let (answered, wrong) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let stop = Arc::new(AtomicBool::new(false));
        let thread = std::thread::spawn({
            let (answered, wrong, stop) = (Arc::clone(&answered), Arc::clone(&wrong), Arc::clone(&stop));
            move || {
                while !stop.load(Ordering::Relaxed) {
                    match get(address, "/") {
                        Ok(answer) if answer.status == 200 => answered.fetch_add(1, Ordering::Relaxed),
                        _ => wrong.fetch_add(1, Ordering::Relaxed),
                    };
                    std::thread::sleep(Duration::from_millis(5));
                }
            }
        });
        Self {
            answered,
            wrong,
            stop,
            thread: Some(thread),
        }
    }

    /// Requests answered with 200.
    pub fn answered(&self) -> u64 {
        self.answered.load(Ordering::Relaxed)
    }

    /// Requests answered otherwise, or not.
    pub fn wrong(&self) -> u64 {
        self.wrong.load(Ordering::Relaxed)
    }

    /// Waits until so many more were answered.
    #[track_caller]
    pub fn flows(&self, more: u64) {
        let from = self.answered();
        super::wait("requests flow", || self.answered() >= from + more);
    }
}

impl Drop for Traffic {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Requests at a rate that can be changed, each on a connection of its own.
pub struct Load {
    per_s: Arc<AtomicU64>,
    answered: Arc<AtomicU64>,
    wrong: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Load {
    /// Begins, with so many clients that the rate is there on a busy machine too, where an answer takes some hundred milliseconds.
    pub fn to(address: SocketAddr, per_s: u64) -> Self {
        Self::of_clients(32, address, per_s)
    }

    /// So many clients share the rate, each waiting for its answer.
    pub fn of_clients(clients: u64, address: SocketAddr, rate: u64) -> Self {
        Self::asking_for("/", clients, address, rate)
    }

    /// The same for a path.
    pub fn asking_for(path: &'static str, clients: u64, address: SocketAddr, rate: u64) -> Self {
        Self::by(clients, rate, move || get(address, path))
    }

    /// The same of clients that reset their connections where nothing comes for so long.
    pub fn leaving_after(patience: Duration, clients: u64, address: SocketAddr, rate: u64) -> Self {
        Self::by(clients, rate, move || get_within(address, "/", patience))
    }

    fn by(clients: u64, rate: u64, ask: impl Fn() -> io::Result<Answer> + Clone + Send + 'static) -> Self {
        let mut load = Self {
            per_s: Arc::new(AtomicU64::new(rate)),
            answered: Arc::default(),
            wrong: Arc::default(),
            stop: Arc::default(),
            threads: Vec::new(),
        };
        let start = Instant::now();
        for number in 0..clients {
            let (per_s, stop) = (Arc::clone(&load.per_s), Arc::clone(&load.stop));
            let (answered, wrong) = (Arc::clone(&load.answered), Arc::clone(&load.wrong));
            let ask = ask.clone();
            load.threads.push(std::thread::spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    // Of a grid that all share, so that no stall makes them send together from then on.
                    let interval = clients as f64 / per_s.load(Ordering::Relaxed) as f64;
                    let phase = number as f64 / clients as f64;
                    let turn = (start.elapsed().as_secs_f64() / interval - phase).floor() + 1.0;
                    let due = Duration::from_secs_f64((turn + phase).max(0.0) * interval);
                    std::thread::sleep(due.saturating_sub(start.elapsed()));
                    let right = ask().is_ok_and(|answer| answer.status == 200);
                    if right { &answered } else { &wrong }.fetch_add(1, Ordering::Relaxed);
                }
            }));
        }
        load
    }

    /// Changes the rate.
    pub fn at(&self, per_s: u64) {
        self.per_s.store(per_s, Ordering::Relaxed);
    }

    /// Requests answered with 200, and others.
    pub fn counts(&self) -> (u64, u64) {
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

/// Clients that each send one request after another on a connection they keep, until it is dropped.
pub struct KeepAlive {
    answered: Arc<AtomicU64>,
    failed: Arc<Mutex<Vec<String>>>,
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl KeepAlive {
    /// Begins, with so many clients.
    pub fn to(address: SocketAddr, clients: usize) -> Self {
        let (answered, failed) = (Arc::new(AtomicU64::new(0)), Arc::new(Mutex::new(Vec::new())));
        let stop = Arc::new(AtomicBool::new(false));
        let client = |_| {
            let (answered, failed, stop) = (Arc::clone(&answered), Arc::clone(&failed), Arc::clone(&stop));
            std::thread::spawn(move || {
                let mut kept = None;
                while !stop.load(Ordering::Relaxed) {
                    match exchange(address, &mut kept) {
                        Ok(200) => {
                            answered.fetch_add(1, Ordering::Relaxed);
                        }
                        Ok(status) => failed.lock().unwrap().push(format!("status {status}")),
                        Err(error) => {
                            failed.lock().unwrap().push(error.to_string());
                            kept = None;
                        }
                    }
                    std::thread::sleep(Duration::from_millis(3));
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

    /// Requests answered with 200.
    pub fn answered(&self) -> u64 {
        self.answered.load(Ordering::Relaxed)
    }

    /// Waits until so many more were answered.
    #[track_caller]
    pub fn flows(&self, more: u64) {
        let from = self.answered();
        super::wait("requests flow", || self.answered() >= from + more);
    }

    /// How requests failed that did.
    pub fn failed(&self) -> Vec<String> {
        self.failed.lock().unwrap().clone()
    }
}

impl Drop for KeepAlive {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// One request on the connection that is kept, or on a new one; the answer's status. A connection that the answer
/// closes is not kept.
fn exchange(address: SocketAddr, kept: &mut Option<BufReader<TcpStream>>) -> io::Result<u16> {
    let mut stream = match kept.take() {
        Some(stream) => stream,
        None => {
            let stream = TcpStream::connect_timeout(&address, PATIENCE)?;
            stream.set_read_timeout(Some(PATIENCE))?;
            BufReader::new(stream)
        }
    };
    stream
        .get_mut()
        .write_all(b"GET / HTTP/1.1\r\nHost: e2e\r\n\r\n")?;
    let (mut status, mut length, mut closes) = (0, 0, false);
    for number in 0.. {
        let mut line = String::new();
        if stream.read_line(&mut line)? == 0 {
            return Err(io::Error::new(
                io::ErrorKind::UnexpectedEof,
                "closed before the answer",
            ));
        }
        let line = line.trim_end().to_ascii_lowercase();
        if number == 0 {
            let bad = || io::Error::new(io::ErrorKind::InvalidData, line.clone());
            status = line
                .split(' ')
                .nth(1)
                .and_then(|s| s.parse().ok())
                .ok_or_else(bad)?;
        }
        if let Some(value) = line.strip_prefix("content-length: ") {
            length = value.parse().unwrap();
        }
        closes |= line == "connection: close";
        if line.is_empty() {
            break;
        }
    }
    stream.read_exact(&mut vec![0; length])?;
    if !closes {
        *kept = Some(stream);
    }
    Ok(status)
}
