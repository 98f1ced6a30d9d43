//! What an existing proxy or monitoring system tells about the requests of a service, as one observation per
//! period.
//!
//! - [`haproxy`]: HAProxy's HTTP log (a UDP or Unix datagram socket, or a file followed across rotation) joined
//!   with its statistics socket.
//! - [`prometheus`]: two or more PromQL expressions asked once a period.
//! - [`period`]: what both are, a [`Source`], and what they give: a [`TelemetryPeriod`].
//!
//! A source that fell silent, came late or stopped making sense is said to be lost, with the reason; it is never
//! taken for a service without requests.
#![forbid(unsafe_code)]

pub mod haproxy;
pub mod period;
pub mod prometheus;

pub use haproxy::{HaproxyConfig, HaproxyTelemetry};
pub use period::{Latency, Lost, Source, TelemetryPeriod};
pub use prometheus::{PrometheusConfig, PrometheusTelemetry};
