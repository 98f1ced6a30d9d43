//! Servers whose accept queues fill, who asks them, and what they can take.

use std::io::{BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

use headroom_gateway::{BackendConfig, GatewayConfig};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::common::{Backend, Client, Message, config, ok};

/// A listener with an accept queue of `backlog + 1` places.
pub fn listener(backlog: i32) -> TcpListener {
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    socket
        .bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into())
        .unwrap();
    socket.listen(backlog).unwrap();
    socket.into()
}

/// A server that nobody can connect to: it listens, its queue is full, and it does not accept.
pub struct Full {
    listener: TcpListener,
    pub address: SocketAddr,
    /// What fills the queue.
    queued: Vec<TcpStream>,
}

impl Full {
    pub fn new() -> Self {
        Self::of(listener(0))
    }

    pub fn of(listener: TcpListener) -> Self {
        let address = listener.local_addr().unwrap();
        let fill = |_| TcpStream::connect_timeout(&address, Duration::from_millis(100)).ok();
        let queued = (0..3).filter_map(fill).collect();
        Self {
            listener,
            address,
            queued,
        }
    }

    /// It comes back: accepts, and answers.
    pub fn recover(self, body: &'static str) -> Backend {
        drop(self.queued);
        Backend::http_on(self.listener, move |_| ok(body))
    }
}

/// A server that gives each connection one of its workers for one request, as Apache's prefork does without
/// keep-alive.
pub struct Prefork {
    address: SocketAddr,
    served: Arc<AtomicUsize>,
    stop: Arc<AtomicBool>,
    workers: usize,
}

pub const WORKERS: usize = 2;
const SERVICE: Duration = Duration::from_millis(20);
const BACKLOG: i32 = 7;

impl Prefork {
    pub fn new() -> Self {
        let listener = Arc::new(listener(BACKLOG));
        let server = Self {
            address: listener.local_addr().unwrap(),
            served: Arc::default(),
            stop: Arc::default(),
            workers: WORKERS,
        };
        for _ in 0..server.workers {
            let (listener, served, stop) = (listener.clone(), server.served.clone(), server.stop.clone());
            std::thread::spawn(move || {
                while let Ok((mut stream, _)) = listener.accept() {
                    if stop.load(SeqCst) {
                        return;
                    }
                    stream.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
                    let Some(_) = Message::read(&mut BufReader::new(stream.try_clone().unwrap()), false)
                    else {
                        continue;
                    };
                    std::thread::sleep(SERVICE);
                    let answer = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok";
                    if stream.write_all(answer).is_ok() {
                        served.fetch_add(1, SeqCst);
                    }
                }
            });
        }
        server
    }

    fn served(&self) -> usize {
        self.served.load(SeqCst)
    }
}

impl Drop for Prefork {
    fn drop(&mut self) {
        self.stop.store(true, SeqCst);
        for _ in 0..self.workers {
            let _ = TcpStream::connect_timeout(&self.address, Duration::from_millis(100));
        }
    }
}

pub fn in_front_of(servers: &[Prefork]) -> GatewayConfig {
    GatewayConfig {
        backends: servers
            .iter()
            .map(|server| BackendConfig::new(format!("http://{}", server.address)))
            .collect(),
        ..config(&[])
    }
}

/// One request on a connection of its own; its status.
async fn ask(front: SocketAddr, path: &str) -> Option<u16> {
    let mut stream = tokio::net::TcpStream::connect(front).await.ok()?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.ok()?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.ok()?;
    Message::read_head(&mut answer.as_slice()).map(|head| head.status())
}

/// Sends `rate_per_s` for so long, whoever waits; how many were answered 200.
pub fn offer(front: SocketAddr, rate_per_s: f64, length: Duration) -> std::thread::JoinHandle<usize> {
    offer_for(front, "/", rate_per_s, length)
}

/// The same for a path.
pub fn offer_for(
    front: SocketAddr,
    path: &'static str,
    rate_per_s: f64,
    length: Duration,
) -> std::thread::JoinHandle<usize> {
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            let begun = tokio::time::Instant::now();
            let count = (rate_per_s * length.as_secs_f64()) as u32;
            let requests: Vec<_> = (0..count)
                .map(|number| {
                    tokio::spawn(async move {
                        tokio::time::sleep_until(
                            begun + Duration::from_secs_f64(f64::from(number) / rate_per_s),
                        )
                        .await;
                        ask(front, path).await
                    })
                })
                .collect();
            let mut answered = 0;
            for request in requests {
                answered += usize::from(request.await.unwrap() == Some(200));
            }
            answered
        })
    })
}

fn served(servers: &[Prefork]) -> usize {
    servers.iter().map(Prefork::served).sum()
}

/// What the servers answer in a second while none of their workers is ever idle: measured, for no thread sleeps exactly
/// as long as it is told.
pub fn capacity_per_s(servers: &[Prefork]) -> f64 {
    let users: Vec<_> = servers
        .iter()
        .flat_map(|server| (0..2 * WORKERS).map(|_| server.address))
        .map(|address| {
            std::thread::spawn(move || {
                let until = Instant::now() + Duration::from_secs(1);
                while Instant::now() < until {
                    Client::connect(address).get("/");
                }
            })
        })
        .collect();
    std::thread::sleep(Duration::from_millis(200));
    let rate = served_per_s(servers, Duration::from_millis(600));
    for user in users {
        user.join().unwrap();
    }
    rate
}

pub fn served_per_s(servers: &[Prefork], length: Duration) -> f64 {
    let (before, begun) = (served(servers), Instant::now());
    std::thread::sleep(length);
    (served(servers) - before) as f64 / begun.elapsed().as_secs_f64()
}

/// Offers the servers 1.4 times what they can take; which share of that they served, after the first moments.
pub fn share_of_capacity(servers: &[Prefork], front: SocketAddr) -> f64 {
    let capacity_per_s = capacity_per_s(servers);
    let load = offer(front, 1.4 * capacity_per_s, Duration::from_secs(6));
    std::thread::sleep(Duration::from_millis(1_500));
    let rate = served_per_s(servers, Duration::from_secs(4));
    load.join().unwrap();
    rate / capacity_per_s
}
