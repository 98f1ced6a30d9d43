//! Servers with a fixed number of workers, a listen queue of a few, and a connection for each request, as many are: what they bear one by
//! one they bear in batches.

use crate::common::{Client, Message, ok, start, take};
use headroom_gateway::{BackendConfig, GatewayConfig, Handle};
use socket2::{Domain, Socket, Type};
use std::io::{BufReader, Write};
use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, RwLock};
use std::time::{Duration, Instant};

/// A server whose workers each serve one connection at a time, behind a gateway.
struct Workers {
    handle: Handle,
    address: SocketAddr,
    /// Whoever holds it for writing stops all workers, as SIGSTOP does.
    stop: Arc<RwLock<()>>,
    ends: Arc<AtomicBool>,
    server: SocketAddr,
    workers: usize,
}

impl Workers {
    /// `heads_first`: they send the head of an answer at once and its body at the end.
    fn new(workers: usize, takes: Duration, listens: i32, interval: Duration, heads_first: bool) -> Self {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        socket
            .bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into())
            .unwrap();
        socket.listen(listens).unwrap();
        let listener = Arc::new(TcpListener::from(socket));
        let server = listener.local_addr().unwrap();
        let (stop, ends) = (Arc::<RwLock<()>>::default(), Arc::<AtomicBool>::default());
        for _ in 0..workers {
            let (listener, stop, ends) = (listener.clone(), stop.clone(), ends.clone());
            std::thread::spawn(move || {
                while !ends.load(SeqCst) {
                    let Ok((mut stream, _)) = listener.accept() else {
                        return;
                    };
                    let mut reader = BufReader::new(stream.try_clone().unwrap());
                    if Message::read(&mut reader, false).is_none() {
                        continue;
                    }
                    let answer = String::from_utf8(ok("x")).unwrap();
                    let answer = answer.replacen("\r\n", "\r\nconnection: close\r\n", 1);
                    let (first, rest) = answer.split_at(if heads_first { answer.len() - 1 } else { 0 });
                    let _ = stream.write_all(first.as_bytes());
                    std::thread::sleep(takes);
                    drop(stop.read().unwrap());
                    let _ = stream.write_all(rest.as_bytes());
                }
            });
        }
        let mut config = GatewayConfig {
            listen: vec!["127.0.0.1:0".parse().unwrap()],
            backends: vec![BackendConfig::new(format!("http://{server}"))],
            ..GatewayConfig::default()
        };
        config.batch.interval_ms = Some(interval.as_millis().try_into().unwrap());
        config.batch.max_wait_ms = 10_000;
        let (handle, address) = start(config);
        Self {
            handle,
            address,
            stop,
            ends,
            server,
            workers,
        }
    }

    /// Sends requests, each for another page, at a steady rate; how many were answered 200, and after how long in the mean.
    fn load(&self, per_s: u32, over: Duration) -> (usize, usize, Duration) {
        let requests = (per_s as f64 * over.as_secs_f64()) as u32;
        let begun = Instant::now();
        let clients: Vec<_> = (0..requests)
            .map(|number| {
                let at = begun + number * Duration::from_secs(1) / per_s;
                std::thread::sleep(at.saturating_duration_since(Instant::now()));
                let address = self.address;
                std::thread::spawn(move || {
                    let mut client = Client::connect(address);
                    client.send(format!("GET /{number} HTTP/1.1\r\nHost: test\r\n\r\n"));
                    (client.receive().status(), at.elapsed())
                })
            })
            .collect();
        let answers: Vec<_> = clients.into_iter().map(|client| client.join().unwrap()).collect();
        let served: Vec<_> = answers.iter().filter(|(status, _)| *status == 200).collect();
        let total: Duration = served.iter().map(|(_, after)| *after).sum();
        (
            answers.len(),
            served.len(),
            total / u32::try_from(served.len()).unwrap().max(1),
        )
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.ends.store(true, SeqCst);
        for _ in 0..self.workers {
            // Wakes one that waits for a connection.
            drop(std::net::TcpStream::connect(self.server));
        }
    }
}

const INTERVAL: Duration = Duration::from_millis(300);

#[test]
fn a_short_listen_queue_bears_batches() {
    for heads_first in [false, true] {
        // Sixteen at once and six that wait; a batch is twice that.
        let workers = Workers::new(16, Duration::from_millis(50), 5, INTERVAL, heads_first);
        workers.handle.set_batch_interval(Duration::ZERO);
        let (_, _, alone) = workers.load(150, Duration::from_secs(2));
        workers.handle.set_batch_interval(INTERVAL);
        let (sent, served, mean) = workers.load(150, Duration::from_secs(5));
        assert_eq!(served, sent);
        // Half an interval held and at most one on its way, and what a busy machine adds.
        assert!(mean < alone + 3 * INTERVAL, "{mean:?} {alone:?}");
        let period = take(&workers.handle);
        assert!(period.batch.requests > 500, "{:?}", period.batch);
        // One that finds the listen queue full comes again, and is answered late.
        let late = period.backends[0].connects.timed_out;
        assert!(20 * late < sent as u64, "{late} of {sent}, {heads_first}");
    }
}

#[test]
fn a_server_that_stood_still_comes_back() {
    // As above: a batch is twice what it bears at once.
    let workers = Workers::new(16, Duration::from_millis(50), 5, INTERVAL, false);
    let (_, _, before) = workers.load(150, Duration::from_secs(2));
    let stop = workers.stop.clone();
    let stopped = std::thread::spawn(move || {
        let held = stop.write().unwrap();
        std::thread::sleep(Duration::from_millis(1500));
        drop(held);
    });
    let (_, _, during) = workers.load(150, Duration::from_secs(2));
    stopped.join().unwrap();
    // What waited for it meanwhile says nothing of what it is asked for after that.
    take(&workers.handle);
    let (sent, served, after) = workers.load(150, Duration::from_secs(4));
    assert_eq!(served, sent);
    assert!(
        during > before && after < before + 2 * INTERVAL,
        "{before:?} {during:?} {after:?}"
    );
    // Neither the long answers nor those that came at once when it went on have made the window wide.
    let late = take(&workers.handle).backends[0].connects.timed_out;
    assert!(20 * late < sent as u64, "{late} of {sent}");
}
