//! The configuration of `headroom gateway`: a file's, with the flags that are given put on it, or of flags alone.

use super::GatewayArgs;
use super::flags::Given;
use crate::config::{EXAMPLE, leave_out_unknown_classes};
use anyhow::anyhow;
use headroom_console::{Document, Failure, fold};
use headroom_gateway::{GatewayConfig, GatewayError};
use headroom_runtime::door;
use serde::Deserialize;

/// A file of `headroom gateway`: the tables that a file of `headroom up` has for it, so that they can be moved.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GatewayFile {
    /// The gateway.
    pub gateway: GatewayConfig,
}

/// How wide the comments of an example are.
const COLUMNS: usize = 100;

/// What an example of it begins with.
const HEADER: &str = "\
# Headroom: `headroom gateway --config gateway.toml` serves as this file says; a flag goes before what is written here. With `--check` it\n\
# checks the file and serves nothing. These tables are the same in a file of `headroom up`, but for failed_status and target_ms, which are\n\
# of [slo] there. Keys that are commented out stand with their default. An unknown key is an error.\n\
\n";

/// What stands in `[slo]` in a file of `up`.
const OF_SLO: &str = "\
# Statuses of a backend's answer with which a request counts as failed.\n\
# failed_status = [\"5xx\"]\n\
# The latency that is promised, in milliseconds: whoever goes away after a longer wait was failed by the backend.\n\
# target_ms = 250\n";

/// An example with every key, its default and what it means.
pub fn example() -> String {
    let tables = EXAMPLE.find("[gateway]\n").map_or(EXAMPLE, |at| &EXAMPLE[at..]);
    // What is before the next table is about that.
    let own = tables.find("\n[service]").map_or(tables, |end| &tables[..end]);
    let own = own.rfind("\n\n").map_or(own, |end| &own[..end]);
    let keys = own.strip_prefix("[gateway]\n").unwrap_or(own);
    fold::comments(&format!("{HEADER}[gateway]\n{OF_SLO}{keys}\n"), COLUMNS)
}

/// What the gateway is to be, and of what it was made, for what is wrong with it.
pub struct Configured {
    given: Given,
    document: Option<Document>,
}

impl Configured {
    /// Reads the file, where there is one, and puts the flags on it.
    ///
    /// # Errors
    /// All that is wrong with the file; what is wrong with a flag.
    pub fn read(args: &GatewayArgs) -> Result<Self, Failure> {
        let Some(file) = &args.config else {
            let alone = GatewayConfig {
                listen: Vec::new(),
                threads: 1,
                ..GatewayConfig::default()
            };
            return Ok(Self {
                given: put(args, alone)?,
                document: None,
            });
        };
        let document = Document::read(file, "gateway")?;
        // A flag's mistake stops before any of the file's is looked for.
        put(args, GatewayConfig::default())?;
        let read: GatewayFile = document.parse_checked("gateway", |read: &GatewayFile, mistakes| {
            let mut gateway = read.gateway.clone();
            leave_out_unknown_classes(&mut gateway, &document, mistakes);
            let Ok(given) = put(args, gateway) else {
                return;
            };
            for error in given.config.mistakes() {
                let is_flags = match &error {
                    GatewayError::Config { key, .. } | GatewayError::ListenTwice { key, .. } => {
                        given.has(key)
                    }
                    _ => false,
                };
                if !is_flags {
                    let error = with_flags(&given, true, error);
                    let (key, why) = door::gateway_objection(&given.config, &error);
                    mistakes.push(document.error(&key, why));
                }
            }
        })?;
        Ok(Self {
            given: put(args, read.gateway)?,
            document: Some(document),
        })
    }

    /// The configuration.
    pub fn config(&self) -> &GatewayConfig {
        &self.given.config
    }

    /// What the gateway refuses of its configuration: in the words of the command line, or at the file's line.
    pub fn refused(&self, error: GatewayError) -> Failure {
        let error = with_flags(&self.given, self.document.is_some(), error);
        let is_flags = |key: &str| self.document.is_none() || self.given.has(key);
        match &error {
            GatewayError::ListenTwice { key, .. } if key.starts_with("--") => {
                return Failure::usage(error);
            }
            GatewayError::Tls { path, .. } => {
                let key = self.config().tls_key_of(path);
                let flag = key
                    .filter(|key| is_flags(key))
                    .and_then(|key| self.given.flag(&key));
                if let Some(flag) = flag {
                    return Failure::usage(anyhow!("{flag} {error}"));
                }
            }
            _ => {}
        }
        if let GatewayError::BackendTls { key, .. } = &error {
            let key = format!("backends.tls.{key}");
            if let Some(flag) = self
                .given
                .flag(&key)
                .filter(|_| self.document.is_none() || self.given.has(&key))
            {
                return Failure::usage(anyhow!(error.to_string().replace(&key, flag)));
            }
        }
        if let GatewayError::Config { key, value, allowed } = &error
            && (self.document.is_none() || self.given.has(key))
            && let Some(flag) = self.given.flag(key)
        {
            return Failure::usage(anyhow!(
                "{flag} {value}: allowed is {}",
                self.given.in_flags(allowed)
            ));
        }
        match &self.document {
            None => Failure::usage(error),
            Some(document) => {
                let (key, why) = door::gateway_objection(self.config(), &error);
                Failure::usage(document.error(&key, why))
            }
        }
    }
}

/// The error with flags instead of the keys of two listeners that flags gave.
fn with_flags(given: &Given, has_file: bool, error: GatewayError) -> GatewayError {
    let GatewayError::ListenTwice {
        key,
        address,
        also,
        other,
    } = error
    else {
        return error;
    };
    let named = |key: String| {
        let flag = given.flag(&key).filter(|_| !has_file || given.has(&key));
        flag.map_or(key, str::to_owned)
    };
    GatewayError::ListenTwice {
        key: named(key),
        address,
        also: named(also),
        other,
    }
}

/// The flags on a configuration.
fn put(args: &GatewayArgs, config: GatewayConfig) -> Result<Given, Failure> {
    let mut given = Given::new(config);
    args.listen
        .put(&mut given)
        .map_err(|why| Failure::usage(anyhow!(why)))?;
    args.backends.put(&mut given);
    args.limits.put(&mut given);
    args.front.put(&mut given);
    Ok(given)
}

#[cfg(test)]
#[path = "configured_tests.rs"]
mod tests;
