//! What to send, how fast and over how many connections; checked before anything is sent.

use super::paths::{PathChooser, Paths, parse_all};
use crate::bursts::{Bursts, MAX_DURATION_S};
use crate::error::{GRACE, LoadError, allow_files, check_common, in_range};
use crate::share::{ArrivalShare, part};
use bytes::Bytes;
use headroom_units::Seconds;
use headroom_workload::Arrivals;
use headroom_workload::access_log::Replay;
use headroom_workload::auction;
use headroom_workload::users::{FileSet, Model, Site, UserCurve};
use http::{HeaderMap, HeaderValue, Method, Uri, header};
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;

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
    /// Closed loop at a density: as [`Pacing::Closed`], but each connection sends for a share of each window only.
    Bursts(Bursts),
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
    /// How long after the end of the load answers are still waited for; 1 s by default, at most an hour. Then what is
    /// outstanding is a failure: [`Failures::unanswered`](crate::Failures::unanswered). It lengthens no timeout.
    pub grace: Seconds,
    /// Whether connections are used again (HTTP/1.1 keep-alive); they are by default.
    pub keep_alive: bool,
    /// The seed of the choice of paths, and of users.
    pub seed: u64,
    /// How many bytes each answer's body must have; of any size by default. One with another size is a failure:
    /// [`Failures::wrong_size`](crate::Failures::wrong_size).
    pub expect_bytes: Option<u64>,
    /// How many threads share the load, each with its part of the connections and of the queue; 1 by default, at most 64.
    /// In an open loop each sends every n-th request of the same arrivals. Paths in order are gone through by each thread
    /// for itself. A replay and users run on one.
    pub threads: usize,
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
            grace: GRACE,
            keep_alive: true,
            seed: 1,
            expect_bytes: None,
            threads: 1,
        }
    }
}

/// A checked load: what the engine runs, on one thread.
pub(crate) struct Plan {
    pub(crate) addresses: Vec<SocketAddr>,
    pub(crate) method: Method,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    pub(crate) paths: PathChooser,
    /// The paths that a replay or a site of files names by index.
    pub(crate) files: Vec<Uri>,
    /// Of users.
    pub(crate) seed: u64,
    pub(crate) pacing: PlannedPacing,
    pub(crate) max_connections: usize,
    pub(crate) warm_connections: usize,
    pub(crate) queue: usize,
    /// Seconds.
    pub(crate) timeout: f64,
    /// Seconds.
    pub(crate) grace: f64,
    pub(crate) keep_alive: bool,
    pub(crate) expect_bytes: Option<u64>,
}

/// What decides when one thread sends.
pub(crate) enum PlannedPacing {
    Open(ArrivalShare),
    Bursts(Bursts),
    Replay(Box<Replay>),
    Users(Box<UserLoad>),
}

impl Plan {
    /// Checks a configuration, finds the host's addresses, raises the limit on open files if need be, and divides the
    /// load over its threads.
    pub(crate) fn new(mut config: LoadConfig) -> Result<Vec<Self>, LoadError> {
        if let Pacing::Closed {
            connections,
            duration,
        } = config.pacing
        {
            config.pacing = Pacing::Bursts(Bursts::closed(connections, duration));
        }
        if let Pacing::Bursts(bursts) = config.pacing {
            bursts.check()?;
            config.max_connections = bursts.connections;
            config.warm_connections = bursts.connections;
        }
        if let Pacing::Users(load) = &config.pacing {
            config.warm_connections = 0;
            let remedy = "give a positive number of seconds";
            in_range(
                "duration",
                load.duration.get(),
                f64::MIN_POSITIVE,
                MAX_DURATION_S,
                remedy,
            )?;
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
        if config.threads > 1 && matches!(config.pacing, Pacing::Replay(_) | Pacing::Users(_)) {
            return Err(LoadError::BadSetting {
                setting: "threads",
                value: config.threads.to_string(),
                remedy: "a replay and users run on 1 thread; start several loads to use more",
            });
        }
        check_common(
            config.max_connections,
            config.queue,
            (config.timeout.get(), config.grace.get()),
            config.threads,
        )?;

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
            Pacing::Open(_) | Pacing::Closed { .. } | Pacing::Bursts(_) => Vec::new(),
        };
        let mut headers = config.headers;
        headers.entry(header::HOST).or_insert(host);
        if !config.keep_alive {
            headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        allow_files(config.max_connections)?;
        let paths = PathChooser::new(config.paths, &path, config.seed)?;
        let threads = config.threads;
        let warm = config.warm_connections.min(config.max_connections);
        Ok(split(config.pacing, threads)
            .into_iter()
            .enumerate()
            .map(|(thread, pacing)| Self {
                addresses: addresses.clone(),
                method: config.method.clone(),
                headers: headers.clone(),
                body: config.body.clone(),
                paths: paths.for_thread(thread, config.seed),
                files: files.clone(),
                seed: config.seed,
                pacing,
                max_connections: part(config.max_connections, thread, threads),
                warm_connections: part(warm, thread, threads),
                queue: part(config.queue, thread, threads),
                timeout: config.timeout.get(),
                grace: config.grace.get(),
                keep_alive: config.keep_alive,
                expect_bytes: config.expect_bytes,
            })
            .collect())
    }
}

/// What each thread sends.
fn split(pacing: Pacing, threads: usize) -> Vec<PlannedPacing> {
    let closed = |bursts| (0..threads).map(|_| PlannedPacing::Bursts(bursts)).collect();
    match pacing {
        Pacing::Open(arrivals) => (0..threads)
            .map(|thread| PlannedPacing::Open(ArrivalShare::new(arrivals.clone(), thread, threads)))
            .collect(),
        Pacing::Closed {
            connections,
            duration,
        } => closed(Bursts::closed(connections, duration)),
        Pacing::Bursts(bursts) => closed(bursts),
        Pacing::Replay(replay) => vec![PlannedPacing::Replay(replay)],
        Pacing::Users(load) => vec![PlannedPacing::Users(load)],
    }
}

/// The addresses, the `Host` header and the path of a URL.
fn find_target(url: &str) -> Result<(Vec<SocketAddr>, HeaderValue, String), LoadError> {
    let bad = |problem: String| LoadError::BadUrl {
        url: url.into(),
        problem,
        form: "http://HOST:PORT/PATH",
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

#[cfg(test)]
mod tests {
    use super::*;
    use headroom_units::PerSecond;
    use headroom_workload::{Spacing, Trace};

    fn config(url: &str) -> LoadConfig {
        let trace = Trace::constant(PerSecond::new(1.0), Seconds::new(1.0)).unwrap();
        LoadConfig::new(url, Pacing::open(Arrivals::new(trace, Spacing::Even, 0)))
    }

    fn planned(config: LoadConfig) -> Result<Plan, LoadError> {
        Ok(Plan::new(config)?.remove(0))
    }

    fn refused(config: LoadConfig) -> String {
        planned(config).err().expect("it must be refused").to_string()
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
        let plan = planned(config("http://127.0.0.1/a?b=1")).unwrap();
        assert_eq!(plan.addresses, ["127.0.0.1:80".parse().unwrap()]);
        assert_eq!(plan.headers[header::HOST], "127.0.0.1");
        let mut six = config("http://[::1]:8080");
        six.headers
            .insert(header::HOST, HeaderValue::from_static("wiki.test"));
        six.keep_alive = false;
        let mut plan = planned(six).unwrap();
        assert_eq!(plan.addresses, ["[::1]:8080".parse().unwrap()]);
        assert_eq!(plan.headers[header::HOST], "wiki.test");
        assert_eq!(plan.headers[header::CONNECTION], "close");
        assert_eq!(plan.paths.choose().path(), "/");
    }
}
