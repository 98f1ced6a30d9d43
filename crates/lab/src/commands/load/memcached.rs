//! What of `headroom load` is memcached's.

use super::LoadArgs;
use anyhow::anyhow;
use headroom_console::Failure;
use headroom_load::LoadHandle;
use headroom_load::http::Pacing;
use headroom_load::memcached::{self, LoadConfig};
use headroom_units::{Ratio, Seconds};

/// Connections at most where nothing else is said.
pub(super) const CONNECTIONS: usize = 64;

/// Whether a URL is a memcached's.
pub(super) fn is_memcached(url: &str) -> bool {
    url.starts_with("memcached://")
}

/// Refuses options of the other protocol.
///
/// # Errors
/// Where there is one, by its name; and where a memcached's values have no size.
pub(super) fn check(args: &LoadArgs, of_memcached: bool) -> Result<(), Failure> {
    let usage = |problem: String| Err(Failure::Usage(anyhow!(problem)));
    let given =
        |options: &[(&'static str, bool)]| options.iter().find(|option| option.1).map(|option| option.0);
    if !of_memcached {
        let other = [
            ("--value-bytes", args.value_bytes.is_some()),
            ("--keys", args.keys.is_some()),
            ("--sets", args.sets.is_some()),
        ];
        return match given(&other) {
            Some(option) => usage(format!(
                "{option} is for a memcached: give --url memcached://HOST:PORT, or leave it out"
            )),
            None => Ok(()),
        };
    }
    let other = [
        ("--users", args.users.is_some()),
        ("--replay", args.replay.is_some()),
        ("--paths", args.paths.is_some()),
        ("--new-connections", args.new_connections),
        ("--expect-bytes", args.expect_bytes.is_some()),
    ];
    match given(&other) {
        Some("--expect-bytes") => {
            usage("--expect-bytes is HTTP's: a memcached's values have --value-bytes".into())
        }
        Some(option) => usage(format!(
            "{option} is HTTP's: a memcached is loaded with --trace or --closed over kept connections"
        )),
        None if args.value_bytes.is_none() => {
            usage("a memcached's values need a size: give --value-bytes, as --value-bytes 1024".into())
        }
        None => Ok(()),
    }
}

/// Stores the values and starts the load.
///
/// # Errors
/// A setting that makes no sense; a server that is not there or cannot hold the values.
pub(super) fn start(args: &LoadArgs, url: &str, pacing: Pacing) -> Result<LoadHandle, Failure> {
    let pacing = match pacing {
        Pacing::Open(arrivals) => memcached::Pacing::Open(arrivals),
        Pacing::Bursts(bursts) => memcached::Pacing::Bursts(bursts),
        Pacing::Closed { .. } | Pacing::Replay(_) | Pacing::Users(_) => {
            return Err(Failure::Usage(anyhow!(
                "a memcached is loaded with --trace or --closed"
            )));
        }
    };
    let mut config = LoadConfig::new(url, pacing, args.value_bytes.unwrap_or_default());
    config.keys = args.keys.unwrap_or(config.keys);
    config.sets_share = Ratio::new(args.sets.unwrap_or(0.0));
    config.max_connections = args.connections.unwrap_or(CONNECTIONS);
    config.timeout = Seconds::from_millis(args.timeout_ms);
    config.grace = Seconds::new(args.grace);
    config.seed = args.seed;
    config.threads = args.threads;
    memcached::start(config).map_err(Failure::usage)
}
