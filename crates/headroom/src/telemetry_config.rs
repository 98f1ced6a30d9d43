//! `[telemetry]`: an existing HAProxy or Prometheus instead of the gateway.

use crate::check::Report;
use headroom_console::Failure;
use headroom_console::{ConfigError, Document};
use headroom_control::Slo;
use headroom_runtime::live::{Other, Telemetry};
use headroom_telemetry::haproxy::{LogFormat, LogSource, Scope, StartError, StatisticsAddress};
use headroom_telemetry::prometheus::{Credentials, TlsFiles};
use headroom_telemetry::{HaproxyConfig, HaproxyTelemetry, PrometheusConfig, PrometheusTelemetry};
use headroom_units::FailedStatus;
use serde::Deserialize;
use std::fmt::Display;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// `[telemetry]`: exactly one of its two tables.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TelemetryConfig {
    /// HAProxy's log and statistics socket.
    pub haproxy: Option<HaproxyTable>,
    /// Two queries to a Prometheus.
    pub prometheus: Option<PrometheusTable>,
}

/// `[telemetry.haproxy]`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HaproxyTable {
    /// `udp:ADDRESS`, `unix:PATH` or `file:PATH`.
    pub log: String,
    /// The line of HAProxy's configuration that sets the format.
    #[serde(default = "default_format")]
    pub log_format: String,
    /// Frontends whose requests count.
    #[serde(default)]
    pub frontends: Vec<String>,
    /// Backends whose requests count.
    #[serde(default)]
    pub backends: Vec<String>,
    /// The statistics socket: a path, or an address on loopback.
    pub statistics: Option<String>,
}

fn default_format() -> String {
    "option httplog".to_owned()
}

/// `[telemetry.prometheus]`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PrometheusTable {
    /// Base address.
    pub url: String,
    /// PromQL for the latency at the SLO's percentile, in seconds.
    pub latency: String,
    /// PromQL for the request rate, per second.
    pub rate: String,
    /// PromQL for the number of requests in flight.
    pub in_flight: Option<String>,
    /// PromQL for the rate of failed requests, per second.
    pub failure_rate: Option<String>,
    /// PromQL for the time of the newest sample.
    pub latest_sample: Option<String>,
    /// A reply older than this is stale, in seconds.
    #[serde(default = "default_max_age_s")]
    pub max_age_s: f64,
    /// The file with a token for `Authorization: Bearer`, read again each period.
    pub token_file: Option<PathBuf>,
    /// The name for `Authorization: Basic`.
    pub user: Option<String>,
    /// The file with its password, read again each period.
    pub password_file: Option<PathBuf>,
    /// Certificate authorities for https, PEM.
    pub ca_file: Option<PathBuf>,
    /// A certificate to show to the server, PEM.
    pub certificate_file: Option<PathBuf>,
    /// Its key, PEM.
    pub key_file: Option<PathBuf>,
    /// The name in the server's certificate, where that is not the address's.
    pub server_name: Option<String>,
}

const fn default_max_age_s() -> f64 {
    60.0
}

/// Permissions of a log socket that is made: its owner and group.
const SOCKET_MODE: u32 = 0o660;

/// How long a Prometheus has for its answer at the start.
const FIRST_ANSWER: Duration = Duration::from_secs(1);

/// A source that does not answer at the start is no error: it may be started later.
fn no_telemetry(why: impl Display) -> String {
    format!("warning: no telemetry yet, and nothing is saved without: {why}")
}

impl TelemetryConfig {
    /// Checks what can be checked without opening anything.
    ///
    /// # Errors
    /// Both tables or none, an address or a format that is none, with its line.
    pub fn check(&self, document: &Document) -> Result<(), ConfigError> {
        match (&self.haproxy, &self.prometheus) {
            (Some(table), None) => table.config(document).map(|_| ()),
            (None, Some(table)) if table.max_age_s > 0.0 => {
                table.credentials(document)?;
                table.tls(document).map(|_| ())
            }
            (None, Some(table)) => {
                let why = format!("is {}: it must be greater than 0", table.max_age_s);
                Err(document.error("telemetry.prometheus.max_age_s", why))
            }
            _ => {
                let why = "needs exactly one of [telemetry.haproxy] and [telemetry.prometheus]";
                Err(document.error("telemetry", why))
            }
        }
    }

    /// Starts to listen; what the user should know of this source. A statistics socket of HAProxy may be known otherwise.
    ///
    /// # Errors
    /// A log that cannot be received, an address that is none.
    pub fn open(
        &self,
        document: &Document,
        slo: Slo,
        failed_status: FailedStatus,
        statistics: Option<&str>,
    ) -> Result<(Box<dyn Telemetry>, Vec<String>), Failure> {
        if let Some(table) = &self.haproxy {
            let config = HaproxyConfig {
                failed_status,
                ..table.config(document)?
            };
            let telemetry = HaproxyTelemetry::start(config)
                .map_err(|error| document.error("telemetry.haproxy", error))?;
            let mut notes = vec![table.note()];
            notes.extend(telemetry.notes(statistics));
            let error = telemetry.start_error();
            notes.extend(error.map(|error| no_telemetry(HaproxyTable::at_its_key(error, document))));
            return Ok((
                Box::new(Other::new(Box::new(telemetry), "haproxy", slo.percentile())),
                notes,
            ));
        }
        let Some(table) = &self.prometheus else {
            self.check(document)?;
            return Err(Failure::usage(document.error("telemetry", "names no source")));
        };
        let telemetry = PrometheusTelemetry::start(table.config(document, slo)?)
            .map_err(|error| document.error("telemetry.prometheus", error))?;
        let mut notes = vec![format!(
            "requests are observed through Prometheus at {}: as old and as coarse as its scrapes",
            table.url
        )];
        notes.extend(telemetry.notes());
        notes.extend(telemetry.answers(FIRST_ANSWER).err().map(no_telemetry));
        Ok((
            Box::new(Other::new(Box::new(telemetry), "prometheus", slo.percentile())),
            notes,
        ))
    }

    /// Tries what [`TelemetryConfig::open`] opens, and lets it go. A log that the running headroom listens to cannot be
    /// tried; that is said.
    ///
    /// # Errors
    /// As there.
    pub fn try_open(
        &self,
        document: &Document,
        slo: Slo,
        failed_status: FailedStatus,
        statistics: Option<&str>,
        running: Option<u32>,
        report: &mut Report,
    ) -> Result<(), Failure> {
        let place = match (&self.haproxy, &self.prometheus) {
            (Some(table), _) => table.log.clone(),
            (None, Some(table)) => table.url.clone(),
            (None, None) => String::new(),
        };
        match (&self.haproxy, running) {
            // Its socket is taken, and to try it would take it away.
            (Some(table), Some(pid)) => {
                table.say(document, statistics, report)?;
                report.listener("telemetry", &place, Some(pid));
            }
            // To open it would take it from whoever listens there without being asked.
            (Some(table), None) if table.log.starts_with("unix:") => {
                table.say(document, statistics, report)?;
                let path = Path::new(table.log.trim_start_matches("unix:"));
                let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
                std::fs::read_dir(folder.unwrap_or(Path::new("."))).map_err(|error| {
                    let why = format!("the folder of {}: {error}", path.display());
                    document.error("telemetry.haproxy.log", why)
                })?;
                report.listener("telemetry", &place, None);
            }
            _ => {
                let (_telemetry, notes) = self.open(document, slo, failed_status, statistics)?;
                report.listener("telemetry", &place, None);
                for note in notes {
                    report.note(note);
                }
            }
        }
        Ok(())
    }
}

/// The lines of HAProxy's configuration by which it logs to an address, in this format.
pub fn log_lines(address: &str, format: &str) -> String {
    format!("`log {address} local0` in `global`, and `log global` and `{format}` in `defaults`")
}

impl HaproxyTable {
    /// Says what can be known while nothing listens to the log for it.
    fn say(
        &self,
        document: &Document,
        statistics: Option<&str>,
        report: &mut Report,
    ) -> Result<(), ConfigError> {
        let config = self.config(document)?;
        report.note(self.note());
        for note in config.notes(statistics) {
            report.note(note);
        }
        if let Some(error) = config.counters_error() {
            report.note(no_telemetry(Self::at_its_key(&error, document)));
        }
        Ok(())
    }

    /// Why there are no counters, at the key that is wrong or names what is not there.
    fn at_its_key(error: &StartError, document: &Document) -> ConfigError {
        match error {
            StartError::Statistics(why) => document.error("telemetry.haproxy.statistics", why),
            StartError::Name(name) => {
                let key = format!("telemetry.haproxy.{}s[{}]", name.kind, name.at);
                document.error(&key, name)
            }
        }
    }

    /// Where the log is taken from, and what has HAProxy send it there.
    fn note(&self) -> String {
        let (kind, place) = self.log.split_once(':').unwrap_or_default();
        let is_any = place
            .parse::<SocketAddr>()
            .is_ok_and(|address| address.ip().is_unspecified());
        let sent = match kind {
            "file" => format!(
                "; what HAProxy logs has to be written there, with `{}`",
                self.log_format
            ),
            _ if is_any => format!(
                "; HAProxy has to log to this machine's address at that port: {}",
                log_lines("ADDRESS", &self.log_format)
            ),
            _ => format!(
                "; HAProxy has to log there: {}",
                log_lines(place, &self.log_format)
            ),
        };
        format!("requests are observed through HAProxy's log ({}){sent}", self.log)
    }

    fn config(&self, document: &Document) -> Result<HaproxyConfig, ConfigError> {
        let bad_log = || {
            let why = format!(
                "{:?} is no place to receive a log from: write udp:ADDRESS, unix:PATH or file:PATH",
                self.log
            );
            document.error("telemetry.haproxy.log", why)
        };
        let (kind, place) = self.log.split_once(':').ok_or_else(bad_log)?;
        let source = match kind {
            "udp" => LogSource::Udp(place.parse().map_err(|_| bad_log())?),
            "unix" => LogSource::Unix {
                path: PathBuf::from(place),
                mode: SOCKET_MODE,
            },
            "file" => LogSource::File(PathBuf::from(place)),
            _ => return Err(bad_log()),
        };
        let format = LogFormat::compile(&self.log_format)
            .map_err(|error| document.error("telemetry.haproxy.log_format", error))?;
        Ok(HaproxyConfig {
            format,
            scope: Scope {
                frontends: self.frontends.clone(),
                backends: self.backends.clone(),
            },
            statistics: self.statistics.as_ref().map(|place| match place.parse() {
                Ok(address) => StatisticsAddress::Tcp(address),
                Err(_) => StatisticsAddress::Unix(PathBuf::from(place)),
            }),
            ..HaproxyConfig::new(source)
        })
    }
}

impl PrometheusTable {
    /// Who asks.
    fn credentials(&self, document: &Document) -> Result<Option<Credentials>, ConfigError> {
        let error = |key: &str, why: &str| Err(document.error(&format!("telemetry.prometheus.{key}"), why));
        match (&self.token_file, &self.user, &self.password_file) {
            (None, None, None) => Ok(None),
            (Some(file), None, None) => Ok(Some(Credentials::Token { file: file.clone() })),
            (None, Some(user), Some(file)) => Ok(Some(Credentials::Password {
                user: user.clone(),
                file: file.clone(),
            })),
            (Some(_), ..) => error(
                "token_file",
                "is one way to say who asks: leave out user and password_file",
            ),
            (None, Some(_), None) => error(
                "user",
                "needs a password: name the file that has it as password_file",
            ),
            (None, None, Some(_)) => error("password_file", "needs the name that goes with it: give user"),
        }
    }

    fn tls(&self, document: &Document) -> Result<TlsFiles, ConfigError> {
        let error = |key: &str, why: &str| Err(document.error(&format!("telemetry.prometheus.{key}"), why));
        Ok(TlsFiles {
            ca_file: self.ca_file.clone(),
            client: match (&self.certificate_file, &self.key_file) {
                (None, None) => None,
                (Some(certificate), Some(key)) => Some((certificate.clone(), key.clone())),
                (Some(_), None) => return error("certificate_file", "needs its key: name that as key_file"),
                (None, Some(_)) => {
                    return error("key_file", "needs the certificate: name that as certificate_file");
                }
            },
            server_name: self.server_name.clone(),
        })
    }

    fn config(&self, document: &Document, slo: Slo) -> Result<PrometheusConfig, ConfigError> {
        let percentile = slo.percentile().as_percent();
        Ok(PrometheusConfig {
            in_flight: self.in_flight.clone(),
            failure_rate: self.failure_rate.clone(),
            latest_sample: self.latest_sample.clone(),
            max_age: Duration::from_secs_f64(self.max_age_s.clamp(0.0, 1e9)),
            credentials: self.credentials(document)?,
            tls: self.tls(document)?,
            ..PrometheusConfig::new(&self.url, percentile, &self.latency, &self.rate)
        })
    }
}
