//! An existing Prometheus as the source of telemetry: a latency percentile and a request rate, asked by PromQL once
//! a period (`/api/v1/query`; Thanos, Mimir and VictoriaMetrics answer the same).
//!
//! Such telemetry is as old and as coarse as its scrapes: a `rate(…[1m])` looks back over a minute, so a law driven
//! by it reacts in minutes. The period's numbers are the rate times its length; there is no histogram.
//!
//! The time in an instant query's reply is that of the evaluation, not of the sample, so it shows a stale cache or
//! a wrong clock but no missing scrape. Prometheus itself leaves out a series without a sample in 5 minutes. To be
//! told earlier, give [`PrometheusConfig::latest_sample`].

mod access;
mod client;
mod endpoint;
mod reply;

use crate::Source;
use crate::period::{Failures, Latency, Lost, TelemetryPeriod};
pub use access::{Credentials, TlsFiles};
use client::QueryApi;
use headroom_client::Client;
use headroom_units::Seconds;
use http::HeaderValue;
use std::io;
use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tokio::runtime::Runtime;

/// What to ask and where.
#[derive(Clone, Debug, PartialEq)]
pub struct PrometheusConfig {
    /// Base address, such as `http://127.0.0.1:9090` or `https://monitor.example/prometheus`.
    pub url: String,
    /// The percentile that [`PrometheusConfig::latency`] gives, 0 to 100.
    pub percentile: f64,
    /// PromQL for the latency at the percentile, **in seconds**, one series: for example
    /// `histogram_quantile(0.95, sum by (le) (rate(http_request_duration_seconds_bucket[30s])))`.
    pub latency: String,
    /// PromQL for the request rate, per second, one series: for example
    /// `sum(rate(http_request_duration_seconds_count[30s]))`.
    pub rate: String,
    /// PromQL for the number of requests in flight.
    pub in_flight: Option<String>,
    /// PromQL for the rate of failed requests, per second; they must be in [`PrometheusConfig::rate`] too. Which statuses
    /// have failed is the query's to say, as in `sum(rate(http_requests_total{code=~"5.."}[30s]))`; best that the latency's
    /// query leaves them out.
    pub failure_rate: Option<String>,
    /// PromQL for the time of the newest sample, seconds since 1970: for example
    /// `max(timestamp(http_request_duration_seconds_count))`.
    pub latest_sample: Option<String>,
    /// A reply, or the newest sample, that is older than this is stale. Must be longer than the scrape interval.
    pub max_age: Duration,
    /// How the server is to know who asks; `None` where it need not.
    pub credentials: Option<Credentials>,
    /// For `https`; read once, at the start.
    pub tls: TlsFiles,
}

impl PrometheusConfig {
    /// Two expressions of a server, stale after 60 s.
    pub fn new(
        url: impl Into<String>,
        percentile: f64,
        latency: impl Into<String>,
        rate: impl Into<String>,
    ) -> Self {
        Self {
            url: url.into(),
            percentile,
            latency: latency.into(),
            rate: rate.into(),
            in_flight: None,
            failure_rate: None,
            latest_sample: None,
            max_age: Duration::from_secs(60),
            credentials: None,
            tls: TlsFiles::default(),
        }
    }
}

/// The telemetry cannot be started.
#[derive(Debug, thiserror::Error)]
pub enum PrometheusError {
    /// The address is none.
    #[error("the Prometheus address {url:?} cannot be used: {what}; for example http://127.0.0.1:9090")]
    Url {
        /// The address.
        url: String,
        /// What is wrong with it.
        what: String,
    },
    /// The percentile is none.
    #[error("a percentile of {0} is out of range: above 0 and below 100")]
    Percentile(f64),
    /// An expression is empty.
    #[error("the PromQL expression for the {0} is empty")]
    Expression(&'static str),
    /// A file of TLS cannot be used.
    #[error("{}: {what}", path.display())]
    TlsFile {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        what: String,
    },
    /// Files of TLS are named for an address without.
    #[error(
        "{0:?} is not asked by TLS, and ca_file, certificate_file, key_file or server_name are given: write https:// before the \
         address, or leave them out"
    )]
    NoTls(String),
    /// The server's name is none.
    #[error("server_name {name:?} is no name of a server: {what}")]
    ServerName {
        /// The name.
        name: String,
        /// What is wrong.
        what: String,
    },
    /// A user's name with a colon, which ends it (RFC 7617, section 2).
    #[error("user {0:?} has a colon or a control character: no name of `Authorization: Basic` has one")]
    User(String),
    /// This machine has no more files or memory.
    #[error("Prometheus cannot be asked from here: {0}")]
    Runtime(#[from] io::Error),
}

/// Which latency it is.
const MEASURED: &str =
    "what the query's histogram measures, which is for the service's own instrumentation to say";

/// What came of it.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Answers {
    latency_s: Option<f64>,
    rate_per_s: f64,
    in_flight: Option<f64>,
    failures_per_s: Option<f64>,
}

/// A Prometheus server as a source of periods.
#[derive(Debug)]
pub struct PrometheusTelemetry {
    config: PrometheusConfig,
    client: QueryApi,
    runtime: Runtime,
    taken: Instant,
    /// The fractions of a request that earlier periods left over: arrivals and failures.
    carried: (f64, f64),
}

impl PrometheusTelemetry {
    /// Checks the configuration. The server is not contacted yet: one that is down
    /// makes each period lost, with the reason.
    ///
    /// # Errors
    /// [`PrometheusError`].
    pub fn start(config: PrometheusConfig) -> Result<Self, PrometheusError> {
        let url = |what| PrometheusError::Url {
            url: endpoint::without_secret(&config.url),
            what,
        };
        let address = endpoint::address(&config.url).map_err(url)?;
        if !(config.percentile > 0.0 && config.percentile < 100.0) {
            return Err(PrometheusError::Percentile(config.percentile));
        }
        for (name, expression) in [
            ("latency", Some(&config.latency)),
            ("request rate", Some(&config.rate)),
            ("number in flight", config.in_flight.as_ref()),
            ("failure rate", config.failure_rate.as_ref()),
            ("newest sample", config.latest_sample.as_ref()),
        ] {
            if expression.is_some_and(|text| text.trim().is_empty()) {
                return Err(PrometheusError::Expression(name));
            }
        }
        if let Some(Credentials::Password { user, .. }) = &config.credentials
            && user.contains(|c: char| c == ':' || c.is_control())
        {
            return Err(PrometheusError::User(user.clone()));
        }
        let tls = match address.scheme_str() {
            Some("https") => {
                let read = config.tls.read();
                Some(read.map_err(|(path, what)| PrometheusError::TlsFile { path, what })?)
            }
            _ if config.tls.is_any() => return Err(PrometheusError::NoTls(config.url)),
            _ => None,
        };
        let name = config.tls.name().map_err(|what| PrometheusError::ServerName {
            name: config.tls.server_name.clone().unwrap_or_default(),
            what,
        })?;
        let client = QueryApi::new(Client::named(tls, name), address, config.credentials.clone());
        Ok(Self {
            config,
            client,
            runtime: tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()?,
            taken: Instant::now(),
            carried: (0.0, 0.0),
        })
    }

    /// What a user should be told at the start: which latency this source gives, and secrets that others can see.
    pub fn notes(&self) -> Vec<String> {
        let mut notes = vec![format!("latency is {MEASURED}")];
        let key = self.config.tls.client.as_ref().map(|(_, key)| key.as_path());
        let secret = self.config.credentials.as_ref().map(Credentials::file);
        notes.extend(
            [key, secret]
                .into_iter()
                .flatten()
                .filter_map(access::readable_by_all),
        );
        if self.config.credentials.is_some() && self.client.is_in_clear() {
            notes.push(
                "warning: the token or password is sent without TLS: whoever is between here and the server can read it; give an \
                 https:// address"
                    .to_owned(),
            );
        }
        notes
    }

    /// Whether the server answers every expression now, within `patience`.
    ///
    /// # Errors
    /// Why there is no telemetry.
    pub fn answers(&self, patience: Duration) -> Result<(), String> {
        self.ask(patience).map(drop)
    }

    fn ask(&self, patience: Duration) -> Result<Answers, String> {
        self.runtime
            .block_on(answers(&self.client, &self.config, patience))
    }
}

impl Source for PrometheusTelemetry {
    /// Asks, and waits up to `patience` for all answers together. It blocks: call it from a plain thread.
    fn take_period(&mut self, patience: Duration) -> TelemetryPeriod {
        let asked = self.ask(patience);
        let now = Instant::now();
        let since = now.saturating_duration_since(self.taken);
        self.taken = now;
        let latency = |value: Option<f64>| Latency::Percentile {
            percentile: self.config.percentile,
            value: value.map(Seconds::new),
        };
        let answers = match asked {
            Ok(answers) => answers,
            Err(why) => {
                return TelemetryPeriod::lost(since, latency(None), Lost::Query(why));
            }
        };
        let mut period = TelemetryPeriod::empty(since, latency(answers.latency_s));
        period.measured = MEASURED.to_owned();
        let length_s = since.as_secs_f64();
        period.arrivals = whole(answers.rate_per_s * length_s, &mut self.carried.0);
        let failed = whole(
            answers.failures_per_s.unwrap_or(0.0) * length_s,
            &mut self.carried.1,
        );
        period.failed = Failures {
            unattributed: failed.min(period.arrivals),
            ..Failures::default()
        };
        period.failures = period.failed.total();
        period.completions = period.arrivals - period.failures;
        period.in_flight = answers.in_flight.map(|number| number.round() as u64);
        period
    }
}

/// The whole requests in a number of them; the fraction is carried to the next period, so that a slow rate is not
/// rounded away.
fn whole(requests: f64, carried: &mut f64) -> u64 {
    let total = requests + *carried;
    let whole = total.floor().max(0.0);
    *carried = total - whole;
    whole as u64
}

async fn answers(
    client: &QueryApi,
    config: &PrometheusConfig,
    patience: Duration,
) -> Result<Answers, String> {
    let authorization = client.authorization();
    let authorization = authorization.map_err(|why| format!("Prometheus at {}: {why}", config.url))?;
    let asking = Asking {
        client,
        authorization,
        config,
        deadline: Instant::now() + patience,
    };
    if let Some(expression) = &config.latest_sample {
        let newest_s = asking.value("newest sample", expression).await?;
        let age_s = now_s() - newest_s;
        // NaN is no time either.
        if age_s.is_nan() || age_s > config.max_age.as_secs_f64() {
            return Err(format!(
                "the newest sample is {age_s:.0} s old, and more than {:.0} s is stale: is the target scraped? \
                 ({expression})",
                config.max_age.as_secs_f64()
            ));
        }
    }
    let rate_per_s = asking.amount("request rate", &config.rate).await?;
    let latency_s = asking.value("latency", &config.latency).await?;
    let latency_s = if latency_s.is_nan() && rate_per_s == 0.0 {
        // A quantile of no request.
        None
    } else if latency_s.is_finite() && latency_s >= 0.0 {
        Some(latency_s)
    } else {
        return Err(format!(
            "the latency is {latency_s} although the request rate is {rate_per_s}/s: a quantile in the last, unbounded \
             bucket, or of series without samples; widen the buckets or the range ({})",
            config.latency
        ));
    };
    let failures_per_s = asking.optional("failure rate", &config.failure_rate).await?;
    // The two are evaluated one after the other, so they may differ a little.
    if failures_per_s.is_some_and(|failures| failures > rate_per_s * 1.1 + 1.0) {
        return Err(format!(
            "more requests fail ({:.1}/s) than arrive ({rate_per_s:.1}/s): `failure_rate` must count a part of the requests that \
             `rate` counts, over the same range",
            failures_per_s.unwrap_or(0.0)
        ));
    }
    Ok(Answers {
        latency_s,
        rate_per_s,
        in_flight: asking.optional("number in flight", &config.in_flight).await?,
        failures_per_s,
    })
}

struct Asking<'a> {
    client: &'a QueryApi,
    authorization: Option<HeaderValue>,
    config: &'a PrometheusConfig,
    deadline: Instant,
}

impl Asking<'_> {
    /// The value of an expression, evaluated not long ago.
    async fn value(&self, name: &str, expression: &str) -> Result<f64, String> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        let asked = self
            .client
            .ask(expression, self.authorization.as_ref(), left)
            .await;
        let sample = asked.map_err(|error| {
            format!(
                "Prometheus at {}, {name}: {error} ({expression})",
                self.config.url
            )
        })?;
        let age_s = now_s() - sample.at_s;
        let max_age_s = self.config.max_age.as_secs_f64();
        if age_s.is_nan() || age_s.abs() > max_age_s {
            return Err(format!(
                "Prometheus at {}, {name}: the reply is of {age_s:.0} s ago, and more than {max_age_s:.0} s is stale: \
                 compare the clocks of the two machines, and look for a cache between them ({expression})",
                self.config.url
            ));
        }
        Ok(sample.value)
    }

    /// A value that is no less than nothing.
    async fn amount(&self, name: &str, expression: &str) -> Result<f64, String> {
        let value = self.value(name, expression).await?;
        if value.is_finite() && value >= 0.0 {
            Ok(value)
        } else {
            Err(format!(
                "Prometheus at {}, {name}: {value} is none ({expression})",
                self.config.url
            ))
        }
    }

    async fn optional(&self, name: &str, expression: &Option<String>) -> Result<Option<f64>, String> {
        match expression {
            Some(expression) => self.amount(name, expression).await.map(Some),
            None => Ok(None),
        }
    }
}

fn now_s() -> f64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0.0, |since| since.as_secs_f64())
}
