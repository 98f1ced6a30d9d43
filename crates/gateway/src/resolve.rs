//! How the names of backends become addresses: the hosts file, then DNS with its times to live, then the system.

use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use domain::base::iana::Rcode;
use domain::base::{Name, Rtype};
use domain::rdata::{A, Aaaa};
use domain::resolv::StubResolver;
use domain::resolv::stub::conf::{ResolvConf, ServerConf, Transport};
use tokio::sync::{Mutex, mpsc};

use crate::backend::Backend;
use crate::config::{ResolverConfig, ms};
use crate::error::GatewayError;
use crate::thread::ToCore;

/// An answer holds for no less and no more than this, whatever its time to live.
const TTL_RANGE: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(300));
/// After a look-up that failed the next one, at first and at most.
const AGAIN: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));
/// Addresses of one name that are used; of more, the lowest.
const MAX_ADDRESSES: usize = 64;
/// The file that the system goes by: where another is given, only that is asked.
const SYSTEM_RESOLV_CONF: &str = "/etc/resolv.conf";

/// What a name is for now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Found {
    /// Sorted, each once.
    pub addresses: Arc<[SocketAddr]>,
    /// After how long it is to be asked again; `None` for an address, which stays what it is.
    pub lasts: Option<Duration>,
}

impl Found {
    fn new(ips: impl IntoIterator<Item = IpAddr>, port: u16, lasts: Duration) -> io::Result<Self> {
        let mut addresses: Vec<SocketAddr> = ips.into_iter().map(|ip| SocketAddr::new(ip, port)).collect();
        addresses.sort_unstable();
        addresses.dedup();
        // As getaddrinfo orders last what there is no way to: an IPv6 address on a host without IPv6 would fail each time.
        if addresses.iter().any(has_route) {
            addresses.retain(has_route);
        }
        addresses.truncate(MAX_ADDRESSES);
        if addresses.is_empty() {
            return Err(io::Error::new(io::ErrorKind::NotFound, "it has no address"));
        }
        Ok(Self {
            addresses: addresses.into(),
            lasts: Some(lasts),
        })
    }
}

/// Whether the kernel knows a way there; nothing is sent.
fn has_route(address: &SocketAddr) -> bool {
    let any: SocketAddr = match address {
        SocketAddr::V4(_) => ([0, 0, 0, 0], 0).into(),
        SocketAddr::V6(_) => ([0_u16; 8], 0).into(),
    };
    UdpSocket::bind(any).is_ok_and(|socket| socket.connect(address).is_ok())
}

/// The addresses of a name in a hosts file.
fn in_hosts(text: &str, name: &str) -> Vec<IpAddr> {
    let lines = text
        .lines()
        .map(|line| line.split('#').next().unwrap_or_default());
    lines
        .filter_map(|line| {
            let mut words = line.split_whitespace();
            let ip = words.next()?.parse().ok()?;
            words.any(|word| word.eq_ignore_ascii_case(name)).then_some(ip)
        })
        .collect()
}

/// Understands a resolv.conf as the system does: a line that means nothing is passed over.
fn understand(text: &str) -> ResolvConf {
    let mut conf = ResolvConf::new();
    for line in text.lines() {
        if let Err(error) = conf.parse(&mut line.as_bytes()) {
            tracing::debug!(?error, line, "a line of resolv.conf is not understood");
        }
    }
    conf
}

/// The names to ask for in turn: with fewer dots than `ndots` the search domains first.
fn candidates(name: &str, conf: &ResolvConf) -> Vec<Name<Vec<u8>>> {
    let absolute = name.parse().ok();
    let suffixes = conf.options.search.as_slice().iter();
    let searched = suffixes
        .filter(|suffix| !suffix.is_root() && !name.ends_with('.'))
        .filter_map(|suffix| format!("{name}.{suffix}").parse().ok());
    match name.matches('.').count() >= conf.options.ndots {
        true => absolute.into_iter().chain(searched).collect(),
        false => searched.chain(absolute).collect(),
    }
}

/// What the nameservers were asked with, as long as their configuration is the same.
struct Asking {
    text: String,
    conf: ResolvConf,
    stub: Arc<StubResolver>,
}

/// Looks names up.
pub(crate) struct Resolver {
    config: ResolverConfig,
    asking: Mutex<Option<Asking>>,
}

impl Resolver {
    pub(crate) fn new(config: &ResolverConfig) -> Self {
        Self {
            config: config.clone(),
            asking: Mutex::new(None),
        }
    }

    /// Whether the system may know what the nameservers do not.
    fn asks_system(&self) -> bool {
        self.config.nameservers.is_empty() && self.config.resolv_conf == Path::new(SYSTEM_RESOLV_CONF)
    }

    /// All addresses of a host.
    ///
    /// # Errors
    /// Where nobody knows it, or nobody answers.
    pub(crate) async fn look_up(&self, host: &str, port: u16) -> io::Result<Found> {
        if let Ok(ip) = host.parse() {
            return Ok(Found {
                addresses: [SocketAddr::new(ip, port)].into(),
                lasts: None,
            });
        }
        let interval = ms(self.config.interval_ms);
        let hosts = std::fs::read_to_string(&self.config.hosts).unwrap_or_default();
        let ips = in_hosts(&hosts, host);
        if !ips.is_empty() {
            return Found::new(ips, port, interval);
        }
        let is_local = host == "localhost" || host.ends_with(".localhost");
        let failure = match is_local {
            true => None,
            false => match self.ask_dns(host, port).await {
                Ok(found) => return Ok(found),
                Err(error) => Some(error),
            },
        };
        match failure {
            Some(error) if !self.asks_system() => Err(error),
            _ => {
                let found = tokio::net::lookup_host((host, port)).await?;
                Found::new(found.map(|address| address.ip()), port, interval)
            }
        }
    }

    /// The nameservers, as they are configured now.
    async fn asking(&self) -> io::Result<(ResolvConf, Arc<StubResolver>)> {
        let file = &self.config.resolv_conf;
        let read = std::fs::read_to_string(file);
        let text = match self.config.nameservers.is_empty() {
            true => {
                read.map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", file.display())))?
            }
            // Search domains and options are welcome where there are any.
            false => read.unwrap_or_default(),
        };
        let mut asking = self.asking.lock().await;
        if let Some(known) = asking.as_ref().filter(|known| known.text == text) {
            return Ok((known.conf.clone(), Arc::clone(&known.stub)));
        }
        let mut conf = understand(&text);
        if !self.config.nameservers.is_empty() {
            let server = |address: &SocketAddr| ServerConf::new(*address, Transport::UdpTcp);
            conf.servers = self.config.nameservers.iter().map(server).collect();
        }
        if conf.servers.is_empty() {
            let why = format!("{} names no nameserver", file.display());
            return Err(io::Error::new(io::ErrorKind::NotFound, why));
        }
        conf.finalize();
        let stub = Arc::new(StubResolver::from_conf(conf.clone()));
        *asking = Some(Asking {
            text,
            conf: conf.clone(),
            stub: Arc::clone(&stub),
        });
        Ok((conf, stub))
    }

    async fn ask_dns(&self, host: &str, port: u16) -> io::Result<Found> {
        let (conf, stub) = self.asking().await?;
        let mut failure = io::Error::new(io::ErrorKind::NotFound, "DNS does not know the name");
        for name in candidates(host, &conf) {
            match ask(&stub, &name, port).await {
                Ok(found) => return Ok(found),
                // That a server is silent says more than that another name is unknown.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => failure = error,
            }
        }
        Err(failure)
    }
}

/// Asks for both kinds of addresses of one name.
async fn ask(stub: &StubResolver, name: &Name<Vec<u8>>, port: u16) -> io::Result<Found> {
    let (v4, v6) = tokio::join!(stub.query((name, Rtype::A)), stub.query((name, Rtype::AAAA)));
    let (mut ips, mut ttl) = (Vec::<IpAddr>::new(), TTL_RANGE.1);
    let mut failure = None;
    for answer in [v4, v6] {
        let answer = match answer {
            Ok(answer) => answer,
            Err(error) => {
                failure = Some(error);
                continue;
            }
        };
        match answer.header().rcode() {
            Rcode::NOERROR => {}
            Rcode::NXDOMAIN => continue,
            code => {
                failure = Some(io::Error::other(format!("the nameserver answered {code}")));
                continue;
            }
        }
        let before = ips.len();
        let wrong = |error| {
            io::Error::new(
                io::ErrorKind::InvalidData,
                format!("a bad answer of DNS: {error}"),
            )
        };
        let section = answer.answer().map_err(wrong)?;
        for record in section.limit_to::<A>().flatten() {
            ips.push(record.data().addr().into());
        }
        for record in section.limit_to::<Aaaa>().flatten() {
            ips.push(record.data().addr().into());
        }
        if ips.len() > before {
            // The way there, by CNAMEs, holds no longer than its shortest part.
            let ttls = section.flatten().map(|record| record.ttl().into_duration());
            ttl = ttls.fold(ttl, Duration::min);
        }
    }
    match failure {
        Some(error) if ips.is_empty() => Err(error),
        _ => Found::new(ips, port, ttl.max(TTL_RANGE.0)),
    }
}

/// Looks all backends up before anything runs; it blocks, inside a runtime too.
///
/// # Errors
/// The first that has no address.
pub(crate) fn look_up_all(
    config: &ResolverConfig,
    backends: &[Arc<Backend>],
) -> Result<Vec<Found>, GatewayError> {
    let failed = |backend: &Backend, source| GatewayError::Resolve {
        url: backend.url.clone(),
        source,
    };
    let look_up = || -> Result<Vec<Found>, GatewayError> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|source| GatewayError::Thread {
                thread: "resolver".to_owned(),
                source,
            })?;
        runtime.block_on(async {
            let resolver = Resolver::new(config);
            let mut found = Vec::new();
            for backend in backends {
                let answer = resolver.look_up(&backend.host, backend.port).await;
                found.push(answer.map_err(|source| failed(backend, source))?);
            }
            Ok(found)
        })
    };
    // A thread of its own: a runtime cannot be blocked on within another.
    std::thread::scope(|scope| match scope.spawn(look_up).join() {
        Ok(found) => found,
        Err(panic) => std::panic::resume_unwind(panic),
    })
}

/// Keeps a backend's addresses as its name says, until dropped.
pub(crate) async fn follow(
    index: usize,
    backend: Arc<Backend>,
    resolver: Arc<Resolver>,
    mut lasts: Duration,
    cores: Vec<mpsc::Sender<ToCore>>,
) {
    let mut reported = backend.addresses();
    let mut failures = 0_u32;
    loop {
        tokio::time::sleep(lasts).await;
        match resolver.look_up(&backend.host, backend.port).await {
            Ok(found) => {
                if failures > 0 {
                    tracing::info!(backend = backend.url, "the host name resolves again");
                }
                failures = 0;
                lasts = found.lasts.unwrap_or(TTL_RANGE.1);
                if found.addresses == reported {
                    continue;
                }
                tracing::info!(backend = backend.url, addresses = ?found.addresses, "the host name has other addresses");
                backend.set_addresses(Arc::clone(&found.addresses));
                let order = || ToCore::Addresses {
                    backend: index,
                    addresses: Arc::clone(&found.addresses),
                };
                let all = cores.iter().filter(|core| core.try_send(order()).is_ok()).count();
                match all == cores.len() {
                    true => reported = found.addresses,
                    // A core has stalled: it is told again.
                    false => lasts = TTL_RANGE.0,
                }
            }
            Err(error) => {
                if failures == 0 {
                    tracing::warn!(backend = backend.url, %error, "the host name does not resolve: its last addresses stay");
                }
                lasts = AGAIN.1.min(AGAIN.0 * (1 << failures.min(5)));
                failures = failures.saturating_add(1);
            }
        }
    }
}

#[cfg(test)]
#[path = "resolve_tests.rs"]
mod tests;
