//! Whether the event loop of a live server is found to be full: one that accepts at once and computes for each request.

use headroom_node::Roots;
use headroom_node::queue::{KernelQueueMeter, QueueMeter};
use rustix::event::{PollFd, PollFlags, poll};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Where the server writes its port; it is this program, started by the test.
const PORT_FILE: &str = "HEADROOM_TEST_LOOP_PORT_FILE";
/// CPU time of a request.
const COMPUTES: Duration = Duration::from_millis(5);

struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn computed() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

#[test]
fn serves_where_it_is_started_as_the_server() {
    let Ok(file) = std::env::var(PORT_FILE) else {
        return;
    };
    let listeners = [0, 1].map(|_| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap());
    let ports = listeners.each_ref().map(|listener| {
        listener.set_nonblocking(true).unwrap();
        listener.local_addr().unwrap().port().to_string()
    });
    std::fs::write(file, format!("{}.", ports.join(" "))).unwrap();
    let mut open: Vec<TcpStream> = Vec::new();
    loop {
        let mut files: Vec<PollFd> = listeners
            .iter()
            .map(|listener| PollFd::new(listener, PollFlags::IN))
            .collect();
        files.extend(open.iter().map(|stream| PollFd::new(stream, PollFlags::IN)));
        poll(&mut files, None).unwrap();
        let ready: Vec<bool> = files[2..].iter().map(|file| !file.revents().is_empty()).collect();
        drop(files);
        let mut ready = ready.into_iter();
        open.retain_mut(|stream| {
            let is_ready = ready.next() == Some(true);
            if is_ready && stream.read(&mut [0; 64]).is_ok_and(|count| count > 0) {
                let until = computed() + COMPUTES;
                while computed() < until {}
                // A client that has gone is none of the server's concern.
                let _ = stream.write_all(b"done");
            }
            !is_ready
        });
        for listener in &listeners {
            while let Ok((stream, _)) = listener.accept() {
                stream.set_nonblocking(true).unwrap();
                open.push(stream);
            }
        }
    }
}

fn ask(port: u16) {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
    stream.write_all(b"?").unwrap();
    stream.read_to_end(&mut Vec::new()).unwrap();
}

#[test]
fn a_loop_is_full_under_clients_that_always_ask_and_not_under_one_that_pauses() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("port");
    let server = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "serves_where_it_is_started_as_the_server"])
        .env(PORT_FILE, &file)
        .stdout(Stdio::null())
        .spawn();
    let _server = Server(server.unwrap());
    let deadline = Instant::now() + Duration::from_secs(10);
    let [port, other]: [u16; 2] = loop {
        let text = std::fs::read_to_string(&file).unwrap_or_default();
        if let Some((port, other)) = text.strip_suffix('.').and_then(|ports| ports.split_once(' ')) {
            break [port, other].map(|port| port.parse().unwrap());
        }
        assert!(Instant::now() < deadline, "the server does not listen");
        thread::sleep(Duration::from_millis(10));
    };
    let mut meter = KernelQueueMeter::open(port, &Roots::default()).unwrap();
    let mut lightly = 1_000;
    let pauses = Instant::now();
    while pauses.elapsed() < Duration::from_secs(4) {
        ask(port);
        thread::sleep(20 * COMPUTES);
        lightly = meter.sample().unwrap().loops_busy.unwrap_or(lightly);
    }
    let ends = Arc::new(AtomicBool::new(false));
    let always_ask = |port: u16| {
        [(); 6].map(|()| {
            let ends = ends.clone();
            thread::spawn(move || {
                while !ends.load(Ordering::Relaxed) {
                    ask(port);
                }
            })
        })
    };
    let clients = always_ask(port);
    let deadline = Instant::now() + Duration::from_secs(30);
    while meter.sample().unwrap().loops_busy.is_none_or(|busy| busy < 970) {
        assert!(Instant::now() < deadline, "no full loop");
        thread::sleep(20 * COMPUTES);
    }
    let elsewhere =
        |meter: &mut KernelQueueMeter| meter.sample().unwrap().connections.map(|found| found.elsewhere);
    let alone = elsewhere(&mut meter);
    let others = always_ask(other);
    let deadline = Instant::now() + Duration::from_secs(30);
    while elsewhere(&mut meter).is_none_or(|found| found == 0) {
        assert!(
            Instant::now() < deadline,
            "nobody is worked for at the other port"
        );
        thread::sleep(20 * COMPUTES);
    }
    ends.store(true, Ordering::Relaxed);
    clients
        .into_iter()
        .chain(others)
        .for_each(|client| client.join().unwrap());
    assert_eq!(alone.unwrap_or(0), 0, "nobody asks at the other port");
    assert!(lightly < 970, "{lightly} thousandths with pauses");
}
