//! The service's front door: the gateway as an unprivileged process of its own, started and watched by `up`.
//!
//! `up` starts `headroom gateway --launched` and sends it its configuration. That opens the sockets and reads the keys
//! while it may, writes its `Record` into the run folder, gives up every privilege (`privileges`), and only then
//! starts threads and accepts. `up` reads its counters over the control port that gateways of other machines have too.
//!
//! If the gateway dies, `up` starts another at once (`keeper`). If `up` dies, the gateway serves on: the next `up` of
//! the same run folder finds its record, and takes it over as it is where the configuration is the same; else it starts
//! its own beside it, which is given the listening sockets (`hand_over`), and has the old one finish what it serves.

mod activation;
mod child;
pub mod hand_over;
mod keeper;
mod privileges;

pub use activation::passed;
pub use child::serve_launched;
pub use keeper::{Door, OpenError, Watched, end_now, end_strangers};
pub use privileges::{give_up, is_root, whom};

use headroom_gateway::{GatewayConfig, GatewayError};
use serde::{Deserialize, Serialize};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::SocketAddr;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// While a successor listens: how long a client's connection that waits for its next request is kept for it.
pub const IDLE_AT_HAND_OVER: Duration = Duration::from_secs(5);

/// What a gateway is launched with, as one line of JSON on its standard input.
#[derive(Debug, Serialize, Deserialize)]
struct Launch {
    gateway: GatewayConfig,
    /// See [`identity`].
    identity: String,
    /// Where its control port is to be.
    socket: PathBuf,
    /// Where a gateway that it is to replace offers its listening sockets.
    predecessor: Option<PathBuf>,
    /// Where it is to leave its [`Record`].
    record: PathBuf,
}

/// What it answers, as one line of JSON on its standard output.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Report {
    /// It serves at these addresses; a gateway that it replaces knows that already where it `handed_over` its sockets.
    Serving {
        listen: Vec<SocketAddr>,
        handed_over: bool,
    },
    /// It cannot: the key of the configuration that is to blame, and why.
    Refused { key: String, why: String },
}

/// A gateway that runs, for a successor of the `up` that started it.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Record {
    pid: u32,
    /// When it was started, in the kernel's ticks: another process may have its number by now.
    started: u64,
    socket: PathBuf,
    /// Where it offers its listening sockets; none where it cannot, as earlier versions.
    #[serde(default)]
    offer: Option<PathBuf>,
    listen: Vec<SocketAddr>,
    identity: String,
}

/// The key that the gateway's objection to its configuration is about, as a configuration file of `headroom up` has it, and the
/// objection, which does not name that key again.
pub fn gateway_objection(gateway: &GatewayConfig, error: &GatewayError) -> (String, String) {
    let key = match error {
        GatewayError::Config { key, value, allowed } => {
            // Other keys in it stand between backticks.
            let allowed = allowed
                .replace("`target_ms`", "`slo.target_ms`")
                .replace("`admission.", "`gateway.admission.")
                .replace("`batch.", "`gateway.batch.")
                .replace("`cache.", "`gateway.cache.")
                .replace("`http.", "`gateway.http.")
                .replace("`sources.", "`gateway.sources.")
                .replace("`tls.", "`gateway.tls.");
            return (
                format!("gateway.{key}"),
                format!("is {value}: allowed is {allowed}"),
            );
        }
        GatewayError::ListenTwice { key, also, .. } => {
            let text = error.to_string();
            let why = text.strip_prefix(&format!("{key}: ")).unwrap_or(&text);
            // One that a flag gave is named by it.
            let why = match also.starts_with("--") {
                true => why.to_owned(),
                false => why.replacen(&format!(", {also} has "), &format!(", gateway.{also} has "), 1),
            };
            return (format!("gateway.{key}"), why);
        }
        GatewayError::Tls { path, .. } => {
            let key = gateway.tls_key_of(path).unwrap_or_else(|| "tls".to_owned());
            return (format!("gateway.{key}"), error.to_string());
        }
        GatewayError::BackendUrl { .. } | GatewayError::Resolve { .. } => "backends",
        GatewayError::Bind { address, .. } if gateway.listen.contains(address) => "listen",
        GatewayError::Bind { address, .. } if gateway.http.iter().any(|http| http.listen == *address) => {
            "http"
        }
        GatewayError::Bind { .. } => "tls",
        _ => return ("gateway".to_owned(), error.to_string()),
    };
    (format!("gateway.{key}"), error.to_string())
}

/// Where a gateway with its control port there offers its listening sockets: beside it.
fn offer_beside(socket: &Path) -> PathBuf {
    let mut path = socket.as_os_str().to_owned();
    path.push(OFFER);
    path.into()
}

const OFFER: &str = ".fds";

/// The name of the record in a run folder.
const RECORD: &str = "gateway.json";

impl Record {
    /// The record in a run folder; `None` where there is none that can be read.
    fn read(run_dir: &Path) -> Option<Self> {
        let text = std::fs::read(run_dir.join(RECORD)).ok()?;
        serde_json::from_slice(&text)
            .inspect_err(
                |error| tracing::warn!(%error, "{RECORD} in {} is not understood", run_dir.display()),
            )
            .ok()
    }

    /// Writes it, whole or not at all.
    fn write(&self, file: &Path) -> std::io::Result<()> {
        let new = file.with_extension("json.new");
        std::fs::write(&new, serde_json::to_vec(self)?)?;
        std::fs::rename(&new, file)
    }
}

/// Where the gateways of several services of one run folder leave their records, a folder each.
const SERVICES: &str = "services";

/// The folder of the gateway of one of several services, by its control group.
pub fn dir_of(run_dir: &Path, group: &Path) -> PathBuf {
    let mut hasher = DefaultHasher::new();
    group.hash(&mut hasher);
    // Short: a socket's path has at most 108 bytes.
    run_dir.join(SERVICES).join(format!("{:016x}", hasher.finish()))
}

/// Whether a gateway that was left by a killed run of this folder serves an address.
pub fn is_left(run_dir: &Path, address: SocketAddr) -> bool {
    Record::read(run_dir)
        .is_some_and(|record| record.listen.contains(&address) && started(record.pid) == Some(record.started))
}

/// The gateway that a killed run of this folder left serving: its process, and whether the next start takes it over as it
/// is, which else starts one of its own beside it.
pub fn left(run_dir: &Path, gateway: &GatewayConfig) -> Option<(u32, bool)> {
    let record = Record::read(run_dir)?;
    let same = identity(gateway).is_ok_and(|identity| identity == record.identity);
    (started(record.pid) == Some(record.started)).then_some((record.pid, same))
}

/// All that makes one gateway another: the program's version, the configuration, the certificates as they are now.
fn identity(gateway: &GatewayConfig) -> serde_json::Result<String> {
    let files = gateway.tls.iter().flat_map(|tls| tls.files());
    let files: Vec<_> = files
        .map(|file| {
            std::fs::metadata(file).map_or((0, 0, 0), |about| (about.ino(), about.mtime(), about.size()))
        })
        .collect();
    serde_json::to_string(&(env!("CARGO_PKG_VERSION"), gateway, files))
}

/// When a process was started, in ticks since the machine was; `None` where there is none, or it has ended.
fn started(pid: u32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name, in parentheses, may hold spaces and parentheses itself; field 3 follows it, field 22 is asked for.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    if matches!(fields.next()?, "Z" | "X") {
        return None;
    }
    fields.nth(18)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use headroom_gateway::BackendConfig;

    #[test]
    fn this_process_has_a_start_and_no_process_has_none() {
        assert!(started(std::process::id()).is_some_and(|ticks| ticks > 0));
        assert_eq!(started(u32::MAX), None);
    }

    #[test]
    fn every_key_reaches_the_gateway_and_any_makes_it_another() {
        let mut gateway = GatewayConfig {
            backends: vec![BackendConfig::new("http://127.0.0.1:1")],
            ..GatewayConfig::default()
        };
        let one = identity(&gateway).unwrap();
        assert_eq!(identity(&gateway.clone()).unwrap(), one);
        let read: GatewayConfig = serde_json::from_str(&serde_json::to_string(&gateway).unwrap()).unwrap();
        assert_eq!(read, gateway);
        gateway.forwarding.via = false;
        assert_ne!(identity(&gateway).unwrap(), one);
    }

    #[test]
    fn a_record_reads_as_it_was_written_and_half_of_one_is_none() {
        let dir = tempfile::tempdir().unwrap();
        assert!(Record::read(dir.path()).is_none());
        let record = Record {
            pid: 7,
            started: 9,
            socket: "/run/a.sock".into(),
            offer: Some(offer_beside("/run/a.sock".as_ref())),
            listen: vec![SocketAddr::from(([127, 0, 0, 1], 80))],
            identity: "one".to_owned(),
        };
        let file = dir.path().join(RECORD);
        record.write(&file).unwrap();
        let read = Record::read(dir.path()).unwrap();
        assert_eq!((read.pid, read.started, read.listen), (7, 9, record.listen));
        assert_eq!(read.offer.as_deref(), Some(Path::new("/run/a.sock.fds")));
        let earlier = r#"{"pid":7,"started":9,"socket":"/run/a.sock","listen":[],"identity":"one"}"#;
        std::fs::write(&file, earlier).unwrap();
        assert_eq!(
            Record::read(dir.path()).unwrap().offer,
            None,
            "one of an earlier version"
        );
        std::fs::write(&file, "{\"pid\": 7").unwrap();
        assert!(Record::read(dir.path()).is_none());
    }
}
