//! Whether the servers answer: a task each, on one thread.

use crate::cluster::{Network, stop_requested};
use headroom_client::Client;
use http::{Request, header};
use http_body_util::Full;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::net::TcpStream;
use tokio::sync::watch;

/// How a server is checked.
///
/// ```
/// use headroom_runtime::resize::CheckTarget;
///
/// let target = CheckTarget::parse("http://10.0.0.7:8080/health").unwrap();
/// assert_eq!((target.port, target.path.as_deref()), (8080, Some("/health")));
/// assert!(CheckTarget::parse("10.0.0.7:8080").is_none());
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckTarget {
    /// The host.
    pub host: String,
    /// The port.
    pub port: u16,
    /// The path; `None` where a connection is enough.
    pub path: Option<String>,
}

impl CheckTarget {
    /// Reads `tcp:HOST:PORT` or `http://HOST[:PORT][/PATH]`; `None` where it is neither.
    pub fn parse(text: &str) -> Option<Self> {
        let (rest, path) = match text.strip_prefix("tcp:") {
            Some(rest) => (rest, None),
            None => {
                let rest = text.strip_prefix("http://")?;
                let slash = rest.find('/').unwrap_or(rest.len());
                let path = if slash == rest.len() { "/" } else { &rest[slash..] };
                (&rest[..slash], Some(path.to_owned()))
            }
        };
        let plain = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic());
        let (host, port) = rest.rsplit_once(':').unwrap_or((rest, "80"));
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let fits = plain(host) && !host.contains(['@', '/']) && path.as_deref().is_none_or(plain);
        (fits && (path.is_some() || rest.contains(':'))).then_some(Self {
            host: host.to_owned(),
            port: port.parse().ok().filter(|port| *port > 0)?,
            path,
        })
    }
}

impl CheckTarget {
    /// Whether it may be the server at this address of a balancer: one that is only a name may be anywhere.
    pub fn may_be_of(&self, member: &str) -> bool {
        let host = member
            .split_once("://")
            .map(|(_, rest)| rest.split('/').next().unwrap_or_default());
        let host = host.map(|host| host.rsplit_once(':').map_or(host, |(host, _)| host));
        host.is_none_or(|host| host.trim_start_matches('[').trim_end_matches(']') == self.host)
    }
}

/// Why a check was not answered as it is to be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoAnswer {
    /// Nothing came within its time, which all its workers' being busy or held explains.
    #[error("{0}")]
    Silent(String),
    /// It was refused, broken off, or answered with another status.
    #[error("{0}")]
    Refused(String),
}

/// What a check showed last.
#[derive(Clone, Debug, Default)]
struct Shown {
    at: Option<Instant>,
    /// Why not.
    trouble: Option<NoAnswer>,
}

/// The checks of all servers.
#[derive(Debug)]
pub struct Checks {
    shown: Vec<Arc<Mutex<Shown>>>,
    /// How many were begun, of each.
    begun: Vec<Arc<AtomicU64>>,
    /// What is older says nothing of now.
    stale_after: Duration,
    /// Ends the tasks when it goes.
    _network: Network,
}

impl Checks {
    /// Checks each server once in `every`, each time for at most `limit`.
    ///
    /// # Errors
    /// Where the thread cannot be started.
    pub fn start(targets: Vec<CheckTarget>, every: Duration, limit: Duration) -> io::Result<Self> {
        let (stop, stopping) = watch::channel(false);
        let shown: Vec<Arc<Mutex<Shown>>> = targets.iter().map(|_| Arc::default()).collect();
        let begun: Vec<Arc<AtomicU64>> = targets.iter().map(|_| Arc::default()).collect();
        let tasks = targets
            .into_iter()
            .zip(shown.iter().zip(&begun))
            .map(|(target, (shown, begun))| {
                let told = (Arc::clone(shown), Arc::clone(begun));
                attend(target, every, limit, told, stopping.clone())
            })
            .collect();
        Ok(Self {
            shown,
            begun,
            stale_after: 3 * every + limit,
            _network: Network::start("checks", tasks, stop)?,
        })
    }

    /// Whether every server was checked at least once.
    pub fn all_checked(&self) -> bool {
        let checked =
            |one: &Arc<Mutex<Shown>>| one.lock().unwrap_or_else(PoisonError::into_inner).at.is_some();
        self.shown.iter().all(checked)
    }

    /// How many checks of a server were begun since the start.
    pub fn begun(&self, server: usize) -> u64 {
        self.begun[server].load(Ordering::Relaxed)
    }

    /// Whether a server answers; why not, where it does not.
    pub fn answers(&self, server: usize) -> Result<(), NoAnswer> {
        let shown = self.shown[server].lock().unwrap_or_else(PoisonError::into_inner);
        match (&shown.trouble, shown.at) {
            (_, None) => Err(NoAnswer::Silent("it was not checked yet".to_owned())),
            (_, Some(at)) if at.elapsed() > self.stale_after => {
                Err(NoAnswer::Silent("its check does not come back".to_owned()))
            }
            (Some(trouble), _) => Err(trouble.clone()),
            (None, _) => Ok(()),
        }
    }
}

async fn attend(
    target: CheckTarget,
    every: Duration,
    limit: Duration,
    (shown, begun): (Arc<Mutex<Shown>>, Arc<AtomicU64>),
    mut stop: watch::Receiver<bool>,
) {
    let client = Client::new(None);
    let mut due = tokio::time::interval(every);
    due.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = due.tick() => {}
            () = stop_requested(&mut stop) => return,
        }
        begun.fetch_add(1, Ordering::Relaxed);
        let trouble = match tokio::time::timeout(limit, probe(&client, &target)).await {
            Ok(Ok(())) => None,
            Ok(Err(error)) => Some(NoAnswer::Refused(error.to_string())),
            Err(_) => Some(NoAnswer::Silent(format!(
                "no answer within {} s",
                limit.as_secs_f64()
            ))),
        };
        *shown.lock().unwrap_or_else(PoisonError::into_inner) = Shown {
            at: Some(Instant::now()),
            trouble,
        };
    }
}

async fn probe(client: &Client, target: &CheckTarget) -> io::Result<()> {
    let Some(path) = &target.path else {
        return TcpStream::connect((target.host.as_str(), target.port))
            .await
            .map(drop);
    };
    let host = match target.host.contains(':') {
        true => format!("[{}]", target.host),
        false => target.host.clone(),
    };
    let request = Request::get(format!("http://{host}:{}{path}", target.port))
        .header(header::USER_AGENT, "headroom-resize")
        .header(header::CONNECTION, "close")
        .body(Full::default())
        .map_err(io::Error::other)?;
    match client
        .head(request)
        .await
        .map_err(io::Error::other)?
        .status()
        .as_u16()
    {
        200..400 => Ok(()),
        status => Err(io::Error::other(format!("status {status}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_check_of_another_host_is_none_of_the_server() {
        let check = |text: &str| CheckTarget::parse(text).unwrap();
        assert!(check("http://[::1]:81/x").may_be_of("http://[::1]:81"));
        assert!(check("tcp:10.0.0.5:80").may_be_of("http://10.0.0.5:8080/"));
        assert!(!check("http://vip:81/x").may_be_of("http://10.0.0.5:81"));
        // HAProxy's names say nothing of where.
        assert!(check("http://vip:81/x").may_be_of("web1"));
    }

    #[test]
    fn checks_are_addresses() {
        let parsed = |text: &str| CheckTarget::parse(text).map(|check| (check.host, check.port, check.path));
        assert_eq!(parsed("tcp:h:80"), Some(("h".into(), 80, None)));
        assert_eq!(parsed("tcp:[::1]:80"), Some(("::1".into(), 80, None)));
        assert_eq!(parsed("http://h"), Some(("h".into(), 80, Some("/".into()))));
        assert_eq!(
            parsed("http://h:81/x?y"),
            Some(("h".into(), 81, Some("/x?y".into())))
        );
        for text in [
            "",
            "h:80",
            "tcp:h",
            "tcp::80",
            "tcp:h:0",
            "http://:80",
            "http://u@h/",
            "http://h/a b",
            "https://h",
        ] {
            assert_eq!(parsed(text), None, "{text}");
        }
    }
}
