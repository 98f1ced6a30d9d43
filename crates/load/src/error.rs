//! Why a load cannot be offered, and the checks that all protocols share.

use headroom_units::Seconds;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// The most connections a generator may be given.
pub(crate) const MAX_CONNECTIONS: usize = 60_000;

/// The most requests that may be given room to wait for a connection.
const MAX_QUEUE: usize = 10_000_000;

/// The most threads that may share a load.
const MAX_THREADS: usize = 64;

/// How long after its end a load waits for answers where nothing else is said.
pub(crate) const GRACE: Seconds = Seconds::new(1.0);

/// File descriptors that the rest of the process may need beside the connections.
const OTHER_FILES: u64 = 128;

/// Why a load could not be offered.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The URL cannot be read.
    #[error("`{url}` is not a URL ({problem}); write it as {form}")]
    BadUrl {
        /// The URL.
        url: String,
        /// What is wrong with it.
        problem: String,
        /// How to write it.
        form: &'static str,
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
    /// The memcached server cannot hold what is to be asked for, or did not take it.
    #[error("{url}: {problem}; {remedy}")]
    Unprepared {
        /// The server.
        url: String,
        /// What went wrong, with what the server said.
        problem: String,
        /// What to do about it.
        remedy: &'static str,
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

pub(crate) fn in_range(
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

/// Checks what every load has: connections, room to wait, seconds until a request is given up and after the load's end,
/// threads.
pub(crate) fn check_common(
    connections: usize,
    queue: usize,
    (timeout, grace): (f64, f64),
    threads: usize,
) -> Result<(), LoadError> {
    let remedy = "give from 1 to 60,000 connections";
    in_range(
        "max_connections",
        connections as f64,
        1.0,
        MAX_CONNECTIONS as f64,
        remedy,
    )?;
    let remedy = "give room for at most 10,000,000 waiting requests";
    in_range("queue", queue as f64, 0.0, MAX_QUEUE as f64, remedy)?;
    let remedy = "give from 0.001 to 3,600 seconds";
    in_range("timeout", timeout, 0.001, 3600.0, remedy)?;
    let remedy = "give from 0 to 3,600 seconds";
    in_range("grace", grace, 0.0, 3600.0, remedy)?;
    let most = MAX_THREADS.min(connections);
    let remedy = "give from 1 to 64 threads, and no more than there are connections";
    in_range("threads", threads as f64, 1.0, most as f64, remedy)
}

/// Raises the soft limit on open files to what the connections need.
pub(crate) fn allow_files(connections: usize) -> Result<(), LoadError> {
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
