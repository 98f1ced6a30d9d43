//! The gateway with its cache, before raw servers and raw clients: what is stored, for whom, and what never is.

mod collapsed;
#[path = "../common/mod.rs"]
mod common;
mod concurrent;
mod refused;
mod resized;
mod selected;
mod stored;
mod told;
mod waiting;

use common::{Backend, Message, gateway_with};
use headroom_gateway::{CachePolicy, GatewayConfig, Handle};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A backend that counts what it is asked, behind a gateway with a cache.
struct Cached {
    handle: Handle,
    address: SocketAddr,
    asked: Arc<AtomicUsize>,
    _backend: Backend,
}

impl Cached {
    fn new(answer: impl Fn(&Message, usize) -> Vec<u8> + Send + Sync + 'static) -> Self {
        Self::with(answer, |_| {})
    }

    fn with(
        answer: impl Fn(&Message, usize) -> Vec<u8> + Send + Sync + 'static,
        change: impl FnOnce(&mut GatewayConfig),
    ) -> Self {
        let asked = Arc::new(AtomicUsize::new(0));
        let counter = asked.clone();
        let backend = Backend::http(move |request| answer(request, counter.fetch_add(1, Ordering::SeqCst)));
        let (handle, address) = gateway_with(&backend, |config| {
            config.cache.bytes = 8 << 20;
            change(config);
        });
        Self {
            handle,
            address,
            asked,
            _backend: backend,
        }
    }

    fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }

    /// One request on a connection of its own, with these header lines.
    fn get(&self, path: &str, headers: &str) -> Message {
        self.ask("GET", path, headers)
    }

    fn ask(&self, method: &str, path: &str, headers: &str) -> Message {
        let mut client = common::Client::connect(self.address);
        client.send(format!("{method} {path} HTTP/1.1\r\nHost: test\r\n{headers}\r\n"));
        Message::read(&mut client.reader, method == "HEAD").expect("a response")
    }
}

/// A 200 with these header lines.
fn answer(headers: &str, body: &str) -> Vec<u8> {
    format!(
        "HTTP/1.1 200 OK\r\n{headers}content-length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

/// How an answer came about.
fn how(message: &Message) -> &str {
    message.header("cache-status").unwrap_or("none")
}

const POLICIES: [CachePolicy; 2] = [CachePolicy::Lru, CachePolicy::S3Fifo];
