//! What to send, how fast and over how many connections; checked before anything is sent.

use super::paths::{PathChooser, Paths, parse_all};
use bytes::Bytes;
use headroom_units::Seconds;
use headroom_workload::Arrivals;
use headroom_workload::access_log::Replay;
use headroom_workload::auction;
use headroom_workload::users::{FileSet, Model, Site, UserCurve};
use http::{HeaderMap, HeaderValue, Method, Uri, header};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;

/// The most connections a generator may be given.
const MAX_CONNECTIONS: usize = 60_000;

/// The most requests that may be given room to wait for a connection.
const MAX_QUEUE: usize = 10_000_000;

/// File descriptors that the rest of the process may need beside the connections.
const OTHER_FILES: u64 = 128;

/// Why a load could not be offered.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The URL cannot be read.
    #[error("`{url}` is not a URL ({problem}); write it as http://HOST:PORT/PATH")]
    BadUrl {
        /// The URL.
        url: String,
        /// What is wrong with it.
        problem: String,
    },
    /// The URL asks for something other than cleartext HTTP.
    #[error(
        "`{url}`: the load generator speaks cleartext http:// only, not {scheme}; aim it at the service's http:// address, or at a gateway that speaks {scheme} to the service"
    )]
    NotHttp {
        /// The URL.
        url: String,
        /// Its scheme.
        scheme: String,
    },
    /// The host's name has no address.
    #[error("`{host}` has no address ({problem}); check the name, or write the address in its place")]
    Unresolved {
        /// The host and port.
        host: String,
        /// What the resolver answered.
        problem: String,
    },
    /// A path is not one.
    #[error("`{path}` is not a path; write each path from its `/` on, percent-encoded, without a host")]
    BadPath {
        /// What stands there.
        path: String,
    },
    /// A setting is out of its range.
    #[error("{setting} = {value}: {remedy}")]
    BadSetting {
        /// The setting.
        setting: &'static str,
        /// Its value.
        value: String,
        /// What to give instead.
        remedy: &'static str,
    },
    /// The process may not open so many connections.
    #[error(
        "max_connections = {wanted}: this process may open only {limit} files; raise the limit (`ulimit -n {needed}`, or LimitNOFILE= in its systemd unit) or give fewer connections"
    )]
    TooManyConnections {
        /// The connections asked for.
        wanted: usize,
        /// The hard limit on open files.
        limit: u64,
        /// The limit that would do.
        needed: u64,
    },
    /// The system refused a thread, a timer or an event loop.
    #[error("the load generator could not start: {0}; check the limits on processes and open files")]
    System(#[from] std::io::Error),
    /// The generator has ended.
    #[error("the load generator has ended; call join for its result")]
    Ended,
    /// The generator did not answer.
    #[error(
        "the load generator did not answer within {0} s: its thread gets no CPU time; pin it to a core of its own"
    )]
    NoAnswer(u64),
    /// The generator's thread panicked.
    #[error("the load generator's thread panicked: {0}; please report it")]
    Panicked(String),
}

/// What decides when requests are sent.
#[derive(Debug)]
pub enum Pacing {
    /// Open loop: the arrival process decides, whatever the service does.
    Open(Box<Arrivals>),
    /// Closed loop: each of so many connections sends its next request when the last is answered. It measures a
    /// maximum throughput; its latencies leave out the requests that a slow answer kept from being sent, so use
    /// [`Pacing::Open`] to measure latency.
    Closed {
        /// How many connections.
        connections: usize,
        /// For how long.
        duration: Seconds,
    },
    /// Open loop: an access log's requests at its own times.
    Replay(Box<Replay>),
    /// Closed loop: users whose number follows a curve. Each may hold one connection, so
    /// [`LoadConfig::max_connections`] must be as large as the curve's peak.
    Users(Box<UserLoad>),
}

/// Users to emulate.
#[derive(Debug)]
pub struct UserLoad {
    /// How many there are over time; rounded to whole users.
    pub curve: UserCurve,
    /// For how long.
    pub duration: Seconds,
    /// Who they are.
    pub people: People,
}

/// Who users are.
#[derive(Debug)]
pub enum People {
    /// [SURGE's users](headroom_workload::users), who fetch pages with what is embedded in them.
    Surge {
        /// How they behave.
        model: Model,
        /// What they browse. A file set lies below the URL's path; of a site that is not known,
        /// [`LoadConfig::paths`] says what each object's path is.
        site: Site,
    },
    /// [Visitors of an auction site](headroom_workload::auction), whose paths begin at the URL's host. Each keeps one
    /// connection through its session, and checks that every answer is the page that it asked for.
    Auction {
        /// How they behave.
        behaviour: auction::Behaviour,
        /// The site, of the same figures as the service's.
        site: Box<auction::Site>,
    },
}

impl People {
    /// The file set that they browse, if it is one.
    fn files(&self) -> Option<&Arc<FileSet>> {
        match self {
            Self::Surge { site, .. } => site.files(),
            Self::Auction { .. } => None,
        }
    }
}

impl Pacing {
    /// An open loop over these arrivals.
    pub fn open(arrivals: Arrivals) -> Self {
        Self::Open(Box::new(arrivals))
    }

    /// Users.
    pub fn users(load: UserLoad) -> Self {
        Self::Users(Box::new(load))
    }
}

/// A load to offer. [`LoadConfig::new`] fills in everything but the URL and the pacing.
#[derive(Debug)]
pub struct LoadConfig {
    /// `http://HOST[:PORT][/PATH]`.
    pub url: String,
    /// The method of every request; GET by default.
    pub method: Method,
    /// Headers of every request. `Host` is the URL's unless it is given here.
    pub headers: HeaderMap,
    /// The body of every request; empty by default.
    pub body: Bytes,
    /// Where each request's path comes from; the URL's own path by default.
    pub paths: Paths,
    /// When requests are sent.
    pub pacing: Pacing,
    /// The most connections open at a time; 512 by default, at most 60,000.
    pub max_connections: usize,
    /// Connections opened before the first request is due; 16 by default.
    pub warm_connections: usize,
    /// How many requests may wait for a connection when all are busy; 10,000 by default. One more is dropped.
    pub queue: usize,
    /// How long after its intended send time a request is given up; 10 s by default. It is looked at every
    /// twentieth of it (between 1 and 100 ms), so a request may last that much longer.
    pub timeout: Seconds,
    /// Whether connections are used again (HTTP/1.1 keep-alive); they are by default.
    pub keep_alive: bool,
    /// The seed of the choice of paths, and of users.
    pub seed: u64,
}

impl LoadConfig {
    /// A load on a URL, with the defaults stated at each field.
    pub fn new(url: impl Into<String>, pacing: Pacing) -> Self {
        Self {
            url: url.into(),
            method: Method::GET,
            headers: HeaderMap::new(),
            body: Bytes::new(),
            paths: Paths::Url,
            pacing,
            max_connections: 512,
            warm_connections: 16,
            queue: 10_000,
            timeout: Seconds::new(10.0),
            keep_alive: true,
            seed: 1,
        }
    }
}

/// A checked load: what the engine runs.
pub(crate) struct Plan {
    pub(crate) url: String,
    pub(crate) addresses: Vec<SocketAddr>,
    pub(crate) method: Method,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    pub(crate) paths: PathChooser,
    /// The paths that a replay or a site of files names by index.
    pub(crate) files: Vec<Uri>,
    /// Of users.
    pub(crate) seed: u64,
    pub(crate) pacing: Pacing,
    pub(crate) max_connections: usize,
    pub(crate) warm_connections: usize,
    pub(crate) queue: usize,
    /// Seconds.
    pub(crate) timeout: f64,
    pub(crate) keep_alive: bool,
}

impl Plan {
    /// Checks a configuration, finds the host's addresses and raises the limit on open files if need be.
    pub(crate) fn new(mut config: LoadConfig) -> Result<Self, LoadError> {
        if let Pacing::Closed {
            connections,
            duration,
        } = config.pacing
        {
            config.max_connections = connections;
            config.warm_connections = connections;
            in_range(
                "duration",
                duration.get(),
                f64::MIN_POSITIVE,
                1e9,
                "give a positive number of seconds",
            )?;
        }
        if let Pacing::Users(load) = &config.pacing {
            config.warm_connections = 0;
            let remedy = "give a positive number of seconds";
            in_range("duration", load.duration.get(), f64::MIN_POSITIVE, 1e9, remedy)?;
            let remedy = "each user may hold a connection: allow as many connections (at most 60,000), or lower \
                          the curve's peak";
            in_range(
                "users",
                load.curve.peak(),
                0.0,
                config.max_connections as f64 + 0.5,
                remedy,
            )?;
        }
        let remedy = "give from 1 to 60,000 connections";
        in_range(
            "max_connections",
            config.max_connections as f64,
            1.0,
            MAX_CONNECTIONS as f64,
            remedy,
        )?;
        let remedy = "give room for at most 10,000,000 waiting requests";
        in_range("queue", config.queue as f64, 0.0, MAX_QUEUE as f64, remedy)?;
        let remedy = "give from 0.001 to 3,600 seconds";
        in_range("timeout", config.timeout.get(), 0.001, 3600.0, remedy)?;

        let (addresses, host, path) = find_target(&config.url)?;
        let files = match &mut config.pacing {
            Pacing::Replay(replay) => parse_all(&replay.take_paths())?,
            Pacing::Users(load) => match load.people.files() {
                Some(files) => {
                    let folder = path.split('?').next().unwrap_or_default().trim_end_matches('/');
                    let paths: Vec<String> = (0..files.len())
                        .map(|file| format!("{folder}/{}", files.name(file)))
                        .collect();
                    parse_all(&paths)?
                }
                None => Vec::new(),
            },
            Pacing::Open(_) | Pacing::Closed { .. } => Vec::new(),
        };
        let mut headers = config.headers;
        headers.entry(header::HOST).or_insert(host);
        if !config.keep_alive {
            headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        allow_files(config.max_connections)?;
        Ok(Self {
            addresses,
            method: config.method,
            headers,
            body: config.body,
            paths: PathChooser::new(config.paths, &path, config.seed)?,
            files,
            seed: config.seed,
            pacing: config.pacing,
            max_connections: config.max_connections,
            warm_connections: config.warm_connections.min(config.max_connections),
            queue: config.queue,
            timeout: config.timeout.get(),
            keep_alive: config.keep_alive,
            url: config.url,
        })
    }
}

fn in_range(
    setting: &'static str,
    value: f64,
    low: f64,
    high: f64,
    remedy: &'static str,
) -> Result<(), LoadError> {
    if (low..=high).contains(&value) {
        Ok(())
    } else {
        Err(LoadError::BadSetting {
            setting,
            value: value.to_string(),
            remedy,
        })
    }
}

/// The addresses, the `Host` header and the path of a URL.
fn find_target(url: &str) -> Result<(Vec<SocketAddr>, HeaderValue, String), LoadError> {
    let bad = |problem: String| LoadError::BadUrl {
        url: url.into(),
        problem,
    };
    let uri: Uri = url
        .parse()
        .map_err(|error: http::uri::InvalidUri| bad(error.to_string()))?;
    match uri.scheme_str() {
        Some("http") => {}
        Some(scheme) => {
            return Err(LoadError::NotHttp {
                url: url.into(),
                scheme: scheme.into(),
            });
        }
        None => return Err(bad("no scheme".into())),
    }
    let authority = uri.authority().ok_or_else(|| bad("no host".into()))?;
    if authority.as_str().contains('@') {
        return Err(bad(
            "a user name in it; give an Authorization header in its place".into(),
        ));
    }
    let name = authority.host().trim_start_matches('[').trim_end_matches(']');
    let port = authority.port_u16().unwrap_or(80);
    let unresolved = |problem: String| LoadError::Unresolved {
        host: format!("{}:{port}", authority.host()),
        problem,
    };
    let addresses: Vec<SocketAddr> = (name, port)
        .to_socket_addrs()
        .map_err(|error| unresolved(error.to_string()))?
        .collect();
    if addresses.is_empty() {
        return Err(unresolved("the resolver answered with none".into()));
    }
    let host = HeaderValue::from_str(authority.as_str()).map_err(|error| bad(error.to_string()))?;
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    Ok((addresses, host, path.into()))
}

/// Raises the soft limit on open files to the hard one where the connections need it.
fn allow_files(connections: usize) -> Result<(), LoadError> {
    let needed = connections as u64 + OTHER_FILES;
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current.is_none_or(|soft| soft >= needed) {
        return Ok(());
    }
    if let Some(limit) = maximum.filter(|&hard| hard < needed) {
        return Err(LoadError::TooManyConnections {
            wanted: connections,
            limit,
            needed,
        });
    }
    setrlimit(
        Resource::Nofile,
        Rlimit {
            current: Some(needed),
            maximum,
        },
    )
    .map_err(|error| LoadError::System(error.into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use headroom_units::PerSecond;
    use headroom_workload::{Spacing, Trace};

    fn config(url: &str) -> LoadConfig {
        let trace = Trace::constant(PerSecond::new(1.0), Seconds::new(1.0)).unwrap();
        LoadConfig::new(url, Pacing::open(Arrivals::new(trace, Spacing::Even, 0)))
    }

    fn refused(config: LoadConfig) -> String {
        Plan::new(config).err().expect("it must be refused").to_string()
    }

    #[test]
    fn https_is_refused_with_the_remedy() {
        let message = refused(config("https://127.0.0.1/"));
        assert!(
            message.contains("cleartext http:// only") && message.contains("https"),
            "{message}"
        );
    }

    #[test]
    fn bad_urls_are_refused() {
        for url in [
            "",
            "127.0.0.1:80",
            "/path",
            "http://",
            "http://a b/",
            "http://me@127.0.0.1/",
        ] {
            let message = refused(config(url));
            assert!(message.contains("http://HOST:PORT/PATH"), "{url}: {message}");
        }
        assert!(refused(config("http://nowhere.invalid:80/")).contains("nowhere.invalid:80"));
    }

    #[test]
    fn settings_out_of_range_are_named() {
        let mut none = config("http://127.0.0.1:1/");
        none.max_connections = 0;
        assert!(refused(none).contains("max_connections = 0"));
        let mut never = config("http://127.0.0.1:1/");
        never.timeout = Seconds::new(f64::NAN);
        assert!(refused(never).contains("timeout = NaN"));
        let closed = Pacing::Closed {
            connections: 1,
            duration: Seconds::ZERO,
        };
        assert!(refused(LoadConfig::new("http://127.0.0.1:1/", closed)).contains("duration = 0"));
    }

    #[test]
    fn host_path_and_port_come_from_the_url() {
        let plan = Plan::new(config("http://127.0.0.1/a?b=1")).unwrap();
        assert_eq!(plan.addresses, ["127.0.0.1:80".parse().unwrap()]);
        assert_eq!(plan.headers[header::HOST], "127.0.0.1");
        let mut six = config("http://[::1]:8080");
        six.headers
            .insert(header::HOST, HeaderValue::from_static("wiki.test"));
        six.keep_alive = false;
        let mut plan = Plan::new(six).unwrap();
        assert_eq!(plan.addresses, ["[::1]:8080".parse().unwrap()]);
        assert_eq!(plan.headers[header::HOST], "wiki.test");
        assert_eq!(plan.headers[header::CONNECTION], "close");
        assert_eq!(plan.paths.choose().path(), "/");
    }
}
