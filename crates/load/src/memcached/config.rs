//! What to ask a memcached for, how fast and over how many connections; checked before anything is sent.

use crate::bursts::Bursts;
use crate::error::{GRACE, LoadError, allow_files, check_common, in_range};
use crate::share::{ArrivalShare, part};
use headroom_units::{Ratio, Seconds};
use headroom_workload::Arrivals;
use std::net::{SocketAddr, ToSocketAddrs};

/// Where memcached listens where the URL does not say.
const PORT: u16 = 11_211;

/// The largest value, bytes: the most that memcached can be made to hold (`-I`).
const MAX_VALUE: usize = 1 << 30;

/// The most keys.
const MAX_KEYS: usize = 100_000_000;

/// How many bytes of values [`LoadConfig::new`] fills a server with at most: a quarter of what memcached has by default (`-m 64`),
/// because memory that it gave to values of one size stays theirs when the next size is filled.
const DEFAULT_FILL_BYTES: usize = 16 << 20;

/// How many keys [`LoadConfig::new`] uses at most.
const DEFAULT_KEYS: usize = 10_000;

const FORM: &str = "memcached://HOST[:PORT]";

/// What decides when requests are sent.
#[derive(Debug)]
pub enum Pacing {
    /// Open loop: the arrival process decides, whatever the server does.
    Open(Box<Arrivals>),
    /// Closed loop: each connection sends its next request when the last is answered, in windows of a density.
    /// [`Bursts::closed`] never sleeps.
    Bursts(Bursts),
}

/// A load to offer. [`LoadConfig::new`] fills in everything but the URL, the pacing and the size of the values.
#[derive(Debug)]
pub struct LoadConfig {
    /// `memcached://HOST[:PORT]`; the port is 11211 where it is left out.
    pub url: String,
    /// When requests are sent.
    pub pacing: Pacing,
    /// Bytes of each value, 1 to 1 GiB. A `get` that is answered with a value of another size is a failure:
    /// [`Failures::wrong_size`](crate::Failures::wrong_size).
    pub value_bytes: usize,
    /// How many keys there are, of which each request is for one, each equally likely. By default 10,000, or as many as hold
    /// 16 MiB if those are fewer.
    pub keys: usize,
    /// The share of requests that are a `set`, 0 to 1; 0 by default: every request is a `get`.
    pub sets_share: Ratio,
    /// Whether [`start`](super::start) stores every key first ([`fill`](super::fill)); it does by default. Without it the
    /// keys must be there from an earlier load with the same `value_bytes` and `keys`.
    pub fill: bool,
    /// The most connections open at a time in an open loop; 64 by default, at most 60,000. All are opened before the first
    /// request is due, and used in turn. In a closed loop it is [`Bursts::connections`].
    pub max_connections: usize,
    /// How many requests of an open loop may wait for a connection when all are busy; 10,000 by default. One more is dropped.
    pub queue: usize,
    /// How long after its intended send time a request is given up; 10 s by default. It is looked at every
    /// twentieth of it (between 1 and 100 ms), so a request may last that much longer.
    pub timeout: Seconds,
    /// How long after the end of the load answers are still waited for; 1 s by default, at most an hour. Then what is
    /// outstanding is a failure: [`Failures::unanswered`](crate::Failures::unanswered). It lengthens no timeout.
    pub grace: Seconds,
    /// The seed of the choice of keys, of what is a `set`, and of the values' contents.
    pub seed: u64,
    /// How many threads share the load, each with its part of the connections and of the queue; 1 by default, at most 64. In
    /// an open loop each sends every n-th request of the same arrivals.
    pub threads: usize,
}

impl LoadConfig {
    /// A load on a server, with the defaults stated at each field.
    pub fn new(url: impl Into<String>, pacing: Pacing, value_bytes: usize) -> Self {
        Self {
            url: url.into(),
            pacing,
            value_bytes,
            keys: (DEFAULT_FILL_BYTES / value_bytes.max(1)).clamp(1, DEFAULT_KEYS),
            sets_share: Ratio::new(0.0),
            fill: true,
            max_connections: 64,
            queue: 10_000,
            timeout: Seconds::new(10.0),
            grace: GRACE,
            seed: 1,
            threads: 1,
        }
    }
}

/// What is stored and asked for.
#[derive(Clone, Debug)]
pub(super) struct Contents {
    pub(super) url: String,
    pub(super) addresses: Vec<SocketAddr>,
    pub(super) value_bytes: usize,
    pub(super) keys: usize,
    pub(super) seed: u64,
    /// Seconds.
    pub(super) timeout: f64,
}

impl Contents {
    pub(super) fn new(config: &LoadConfig) -> Result<Self, LoadError> {
        let remedy = "give from 1 byte to 1 GiB (1,073,741,824)";
        in_range(
            "value_bytes",
            config.value_bytes as f64,
            1.0,
            MAX_VALUE as f64,
            remedy,
        )?;
        let remedy = "give from 1 to 100,000,000 keys";
        in_range("keys", config.keys as f64, 1.0, MAX_KEYS as f64, remedy)?;
        let remedy = "give from 0.001 to 3,600 seconds";
        in_range("timeout", config.timeout.get(), 0.001, 3600.0, remedy)?;
        Ok(Self {
            addresses: find_target(&config.url)?,
            url: config.url.clone(),
            value_bytes: config.value_bytes,
            keys: config.keys,
            seed: config.seed,
            timeout: config.timeout.get(),
        })
    }
}

/// A checked load: what the engine runs, on one thread.
pub(super) struct Plan {
    pub(super) contents: Contents,
    /// Of how many threads it is which.
    pub(super) thread: usize,
    pub(super) pacing: PlannedPacing,
    pub(super) sets_share: f64,
    pub(super) connections: usize,
    pub(super) queue: usize,
    /// Seconds.
    pub(super) grace: f64,
}

/// What decides when one thread sends.
pub(super) enum PlannedPacing {
    Open(ArrivalShare),
    Bursts(Bursts),
}

impl Plan {
    /// Checks a configuration and divides it over its threads.
    pub(super) fn new(config: LoadConfig, contents: &Contents) -> Result<Vec<Self>, LoadError> {
        let connections = match &config.pacing {
            Pacing::Open(_) => config.max_connections,
            Pacing::Bursts(bursts) => {
                bursts.check()?;
                bursts.connections
            }
        };
        let give_up = (config.timeout.get(), config.grace.get());
        check_common(connections, config.queue, give_up, config.threads)?;
        let share = config.sets_share.get();
        let remedy = "give the share of requests that store a value, 0 to 1, as 0.1";
        in_range("sets_share", share, 0.0, 1.0, remedy)?;
        allow_files(connections)?;
        let threads = config.threads;
        let plan = |thread, pacing| Self {
            contents: contents.clone(),
            thread,
            pacing,
            sets_share: share,
            connections: part(connections, thread, threads),
            queue: part(config.queue, thread, threads),
            grace: config.grace.get(),
        };
        Ok((0..threads)
            .map(|thread| match &config.pacing {
                Pacing::Open(arrivals) => plan(
                    thread,
                    PlannedPacing::Open(ArrivalShare::new(arrivals.clone(), thread, threads)),
                ),
                Pacing::Bursts(bursts) => plan(thread, PlannedPacing::Bursts(*bursts)),
            })
            .collect())
    }
}

/// The addresses of a URL.
fn find_target(url: &str) -> Result<Vec<SocketAddr>, LoadError> {
    let bad = |problem: &str| LoadError::BadUrl {
        url: url.into(),
        problem: problem.into(),
        form: FORM,
    };
    let rest = url
        .strip_prefix("memcached://")
        .ok_or_else(|| bad("it does not begin with memcached://"))?;
    let authority = rest.strip_suffix('/').unwrap_or(rest);
    let parsed: http::uri::Authority = authority
        .parse()
        .map_err(|error: http::uri::InvalidUri| bad(&error.to_string()))?;
    if authority.contains('@') {
        return Err(bad("a user name in it, and memcached's SASL is not spoken"));
    }
    if parsed.host().is_empty() {
        return Err(bad("no host"));
    }
    let port = match authority.strip_prefix(parsed.host()) {
        Some("") => PORT,
        _ => parsed.port_u16().ok_or_else(|| bad("its port is not a number"))?,
    };
    let name = parsed.host().trim_start_matches('[').trim_end_matches(']');
    let unresolved = |problem: String| LoadError::Unresolved {
        host: format!("{}:{port}", parsed.host()),
        problem,
    };
    let addresses: Vec<SocketAddr> = (name, port)
        .to_socket_addrs()
        .map_err(|error| unresolved(error.to_string()))?
        .collect();
    if addresses.is_empty() {
        return Err(unresolved("the resolver answered with none".into()));
    }
    Ok(addresses)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(url: &str) -> LoadConfig {
        let pacing = Pacing::Bursts(Bursts::closed(4, Seconds::new(1.0)));
        LoadConfig::new(url, pacing, 1024)
    }

    fn refused(config: LoadConfig) -> String {
        match Contents::new(&config).and_then(|contents| Plan::new(config, &contents)) {
            Ok(_) => panic!("it must be refused"),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn urls_are_read_and_refused() {
        for (url, address) in [
            ("memcached://127.0.0.1", "127.0.0.1:11211"),
            ("memcached://127.0.0.1:99/", "127.0.0.1:99"),
            ("memcached://[::1]:99", "[::1]:99"),
        ] {
            assert_eq!(find_target(url).unwrap(), [address.parse().unwrap()], "{url}");
        }
        for url in [
            "",
            "127.0.0.1:11211",
            "http://127.0.0.1/",
            "memcached://",
            "memcached://me@127.0.0.1",
            "memcached://127.0.0.1:99999",
            "memcached://127.0.0.1/path",
            "memcached://a b",
        ] {
            let message = refused(config(url));
            assert!(message.contains("memcached://HOST[:PORT]"), "{url}: {message}");
        }
    }

    #[test]
    fn settings_out_of_range_are_named() {
        let of = |change: fn(&mut LoadConfig)| {
            let mut config = config("memcached://127.0.0.1:1");
            change(&mut config);
            refused(config)
        };
        assert!(of(|config| config.value_bytes = 0).contains("value_bytes = 0"));
        assert!(of(|config| config.keys = 0).contains("keys = 0"));
        assert!(of(|config| config.sets_share = Ratio::new(f64::NAN)).contains("sets_share = NaN"));
        assert!(of(|config| config.sets_share = Ratio::new(1.5)).contains("sets_share = 1.5"));
        assert!(of(|config| config.threads = 5).contains("threads = 5"));
        assert!(of(|config| config.timeout = Seconds::ZERO).contains("timeout = 0"));
    }

    #[test]
    fn default_keys_fit_in_what_memcached_has_by_default() {
        let of = |bytes| {
            let pacing = Pacing::Bursts(Bursts::closed(1, Seconds::new(1.0)));
            LoadConfig::new("memcached://127.0.0.1", pacing, bytes).keys
        };
        assert_eq!(
            [of(1), of(1024), of(10_240), of(999 * 1024)],
            [10_000, 10_000, 1638, 16]
        );
    }
}
