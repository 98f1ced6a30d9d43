//! The two that are compared, and how each is told the same.

use std::net::SocketAddr;

use headroom_gateway::{BackendConfig, Balance, GatewayConfig, Handle};

use crate::common;
use crate::common::process::{Process, free_address, version};

/// Which of the two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Headroom,
    Haproxy,
}

/// What both are told. HAProxy's words for it are those that its manual has for the purpose.
#[derive(Debug, Clone)]
pub struct Setup {
    pub backends: Vec<SocketAddr>,
    pub threads: usize,
    /// Requests in flight at each backend: `maxconn` of a server.
    pub max_in_flight: usize,
    /// How long a request waits for one of them: `timeout queue`.
    pub queue_timeout_ms: u64,
    /// The longest pause of a client that takes an answer: `timeout client`.
    pub client_timeout_ms: u64,
    /// How long a client may be waited for until its request is whole: `timeout http-request`. Ours goes by the rate from then on.
    pub request_timeout_ms: u64,
    /// Backends are asked for `/health` every 200 ms, and passed over if they fail requests: `check`, and `observe layer7` with
    /// `on-error mark-down`.
    pub check: bool,
    /// Requests whose connection dies are sent again: `retry-on all-retryable-errors`. HAProxy then also sends again what was
    /// answered with 500, 502, 503 or 504, which ours does not.
    pub retry_all: bool,
    /// What the kernel may hold of an answer: `tune.sndbuf.client`. HAProxy counts as taken what the kernel has room for again, ours what
    /// the client's machine has acknowledged, so that it needs no such setting.
    pub client_buffer_bytes: Option<usize>,
    /// Where HAProxy sends a line for each request, as [`Setup::LOG_FORMAT`] says.
    pub log: Option<SocketAddr>,
}

impl Setup {
    /// Method, status, and the milliseconds until the first byte of the backend's answer and of the whole.
    const LOG_FORMAT: &str = "%HM %ST %Tr %Ta";

    /// In front of these backends, with nothing that is short.
    pub fn new(backends: Vec<SocketAddr>) -> Self {
        Self {
            backends,
            threads: 2,
            max_in_flight: 1_000,
            queue_timeout_ms: 10_000,
            client_timeout_ms: 60_000,
            request_timeout_ms: 20_000,
            check: false,
            retry_all: false,
            client_buffer_bytes: None,
            log: None,
        }
    }

    fn ours(&self) -> GatewayConfig {
        let mut config = common::config(&[]);
        let backend = |address| BackendConfig::new(format!("http://{address}"));
        config.backends = self.backends.iter().map(backend).collect();
        config.threads = self.threads;
        config.balance = Balance::RoundRobin;
        config.limits.max_in_flight_per_backend = self.max_in_flight;
        config.retry.max_retries = 3;
        config.timeouts.queue_timeout_ms = self.queue_timeout_ms;
        config.timeouts.body_timeout_ms = self.client_timeout_ms;
        config.timeouts.client_grace_ms = self.request_timeout_ms.min(self.client_timeout_ms);
        if self.check {
            config.health.path = Some("/health".into());
            config.health.interval_ms = 200;
        }
        config
    }

    fn haproxy(&self, front: SocketAddr) -> String {
        let (check, httpchk) = match self.check {
            true => (
                "check inter 200ms fall 3 rise 2 observe layer7 error-limit 5 on-error mark-down",
                "option httpchk GET /health",
            ),
            false => ("", ""),
        };
        let retry_on = match self.retry_all {
            true => "all-retryable-errors",
            false => "conn-failure empty-response response-timeout",
        };
        let client_buffer = self
            .client_buffer_bytes
            .map_or(String::new(), |bytes| format!(" tune.sndbuf.client {bytes}\n"));
        let servers = self.backends.iter().enumerate().map(|(number, address)| {
            format!(
                " server s{number} {address} maxconn {} {check}\n",
                self.max_in_flight
            )
        });
        let log = self.log.map_or(String::new(), |to| {
            format!(
                " log {to} len 1024 local0\n log-format \"{}\"\n",
                Self::LOG_FORMAT
            )
        });
        format!(
            "global\n nbthread {}\n maxconn 2000\n{client_buffer}\
             defaults\n mode http\n timeout connect 1s\n timeout server 60s\n timeout http-keep-alive 75s\n\
             timeout client {}ms\n timeout queue {}ms\n timeout http-request {}ms\n\
             option http-buffer-request\n option dontlognull\n option redispatch 1\n retries 3\n retry-on {retry_on}\n\
             frontend front\n bind {front}\n{log} default_backend back\n\
             backend back\n balance roundrobin\n {httpchk}\n{}",
            self.threads,
            self.client_timeout_ms,
            self.queue_timeout_ms,
            self.request_timeout_ms,
            servers.collect::<String>()
        )
    }
}

/// One of the two while it runs.
pub struct Product {
    pub address: SocketAddr,
    runs: Runs,
}

enum Runs {
    Ours(Handle),
    Process(Process),
}

impl Product {
    pub fn start(kind: Kind, setup: &Setup) -> Self {
        match kind {
            Kind::Headroom => {
                let (handle, address) = common::start(setup.ours());
                Self {
                    address,
                    runs: Runs::Ours(handle),
                }
            }
            Kind::Haproxy => {
                let address = free_address();
                let process = Process::haproxy(&setup.haproxy(address), &[address]);
                Self {
                    address,
                    runs: Runs::Process(process),
                }
            }
        }
    }

    /// What our gateway tells; `None` of HAProxy.
    pub fn handle(&self) -> Option<&Handle> {
        match &self.runs {
            Runs::Ours(handle) => Some(handle),
            Runs::Process(_) => None,
        }
    }
}

impl Drop for Product {
    /// What is counted where it has ended meanwhile says nothing of it.
    fn drop(&mut self) {
        if let Runs::Process(process) = &mut self.runs
            && let Ok(Some(status)) = process.child.try_wait()
            && !std::thread::panicking()
        {
            panic!("haproxy ended before its case did: {status}");
        }
    }
}

/// What came of a case at our gateway, and at HAProxy where it is installed: one after the other, so that neither takes the other's time.
pub fn beside<T: std::fmt::Debug>(case: &str, play: impl Fn(Kind) -> T) -> (T, Option<T>) {
    let ours = play(Kind::Headroom);
    println!("{case}: headroom {ours:?}");
    let Some(version) = version("haproxy", "-v") else {
        println!("skipped: haproxy is not installed");
        return (ours, None);
    };
    let theirs = play(Kind::Haproxy);
    println!("{case}: haproxy {version} {theirs:?}");
    (ours, Some(theirs))
}
