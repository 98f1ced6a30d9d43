//! What an existing proxy or monitoring system reports of the requests of a service, as one observation per
//! period.
//!
//! - [`haproxy`]: HAProxy's HTTP log (a UDP or Unix datagram socket, or a file followed across rotation) joined
//!   with its statistics socket.
//! - [`prometheus`]: two or more PromQL expressions asked once a period.
//! - [`period`]: what both are, a [`Source`], and what they give: a [`TelemetryPeriod`].
//!
//! A source that fell silent, came late or stopped making sense is said to be lost, with the reason; it is never
//! taken for a service without requests.
//!
//! ```no_run
//! use headroom_telemetry::haproxy::LogSource;
//! use headroom_telemetry::{HaproxyConfig, HaproxyTelemetry, Source};
//! use std::time::Duration;
//!
//! let log = LogSource::Udp("127.0.0.1:5514".parse()?);
//! let mut haproxy = HaproxyTelemetry::start(HaproxyConfig::new(log))?;
//! std::thread::sleep(Duration::from_secs(1));
//! let period = haproxy.take_period(Duration::from_millis(200));
//! println!("{} requests, P95 {:?}, lost: {:?}", period.arrivals, period.latency.at(95.0), period.lost);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

pub mod haproxy;
pub mod period;
pub mod prometheus;

pub use haproxy::{HaproxyConfig, HaproxyTelemetry};
pub use period::{Latency, Lost, Source, TelemetryPeriod, latency_histogram};
pub use prometheus::{PrometheusConfig, PrometheusTelemetry};
