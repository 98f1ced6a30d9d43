//! Listeners and clients on loopback, with a queue of any limit.
#![allow(dead_code, reason = "each test program uses what it needs of it")]

mod listener;

pub use listener::listener;

use headroom_node::Roots;
use headroom_node::queue::{EbpfQueueMeter, QueueError, QueueMeter, QueueSample};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

pub fn port_of(listener: &TcpListener) -> u16 {
    listener.local_addr().unwrap().port()
}

/// Connections that are made at once: there is room for them.
pub fn connect(port: u16, count: usize) -> Vec<TcpStream> {
    (0..count)
        .map(|_| {
            TcpStream::connect_timeout(&(Ipv4Addr::LOCALHOST, port).into(), Duration::from_secs(2)).unwrap()
        })
        .collect()
}

/// Attempts for which there is no room, each given up before the kernel sends its SYN a second time (after 1 s).
pub fn attempt(port: u16, count: usize) {
    for _ in 0..count {
        let given = Duration::from_millis(60);
        let tried = TcpStream::connect_timeout(&(Ipv4Addr::LOCALHOST, port).into(), given);
        assert!(tried.is_err(), "there was room");
    }
}

/// Samples until the condition holds: the kernel finishes a handshake in its own time.
pub fn until(meter: &mut dyn QueueMeter, what: &str, holds: impl Fn(&QueueSample) -> bool) -> QueueSample {
    let deadline = Instant::now() + Duration::from_secs(10);
    loop {
        let sample = meter.sample().unwrap();
        if holds(&sample) {
            return sample;
        }
        assert!(Instant::now() < deadline, "{what}: {sample:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The meter by eBPF, or nothing and the reason said where this machine, user or build has none.
pub fn ebpf(port: u16) -> Option<EbpfQueueMeter> {
    match EbpfQueueMeter::open(port, &Roots::default()) {
        Ok(meter) => Some(meter),
        Err(error @ QueueError::Refused { .. }) => {
            println!("skipped: the accept queue by eBPF: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

pub fn is_installed(program: &str) -> bool {
    ["/usr/sbin", "/sbin", "/usr/bin", "/bin"]
        .iter()
        .any(|dir| std::path::Path::new(dir).join(program).is_file())
}
