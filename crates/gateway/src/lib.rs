//! The HTTP data plane: proxying, balancing, health, latency histograms.
//!
//! A reverse proxy for HTTP/1.1 and HTTP/2 (cleartext with prior knowledge, or TLS with ALPN), gRPC included, in front of
//! backends that speak either, with or without TLS. Each core thread has its own runtime, listening sockets (`SO_REUSEPORT`), connection
//! pool, balancer and counters; on the request path nothing is shared between cores but a few relaxed atomics
//! of each backend's state and, where there is one, the cache, behind locks that are held for a look-up.
//!
//! The data plane never waits on the control plane. Counters and latency histograms belong to their core;
//! [`Handle::take_period`] sends each core an empty set, the core exchanges it for its own between two
//! requests, and the control thread adds them up. If nobody asks, the counters simply go on counting: their
//! memory is fixed.
//!
//! The request path is a stack of layers (`layer.rs`): admission checks and counts a request, balancing chooses its
//! backend, the endpoint makes the exchange.
//!
//! ```
//! use headroom_gateway::{BackendConfig, Gateway, GatewayConfig};
//! use std::time::Duration;
//!
//! # fn main() -> Result<(), headroom_gateway::GatewayError> {
//! let gateway = Gateway::start(GatewayConfig {
//!     listen: vec!["127.0.0.1:0".parse().unwrap()],
//!     backends: vec![BackendConfig::new("http://127.0.0.1:9000")],
//!     ..GatewayConfig::default()
//! })?;
//! println!("serving on {}", gateway.local_addrs()[0]);
//! let period = gateway.take_period_blocking(Duration::from_secs(1));
//! let p95_us = period.histogram.value_at_percentile(95.0);
//! println!("{} requests, P95 {p95_us} us", period.service.arrivals);
//! gateway.shutdown_blocking(Duration::from_secs(30));
//! # Ok(())
//! # }
//! ```
#![deny(unsafe_code)]

mod accept;
mod account;
mod addresses;
mod admission;
mod admit;
mod ahead;
mod alarm;
mod authority;
mod backend;
mod backend_tls;
mod balance;
mod batch;
mod body;
mod buffered;
mod cache;
mod call;
mod chunked;
mod client;
mod config;
mod conn;
mod connections;
mod control;
mod core;
mod deadline;
mod descriptors;
mod dial;
mod ejection;
mod endpoint;
mod entry;
mod error;
mod exchange;
mod exchanges;
mod failing;
mod fields;
mod files;
mod folder;
#[cfg(test)]
mod fuzz_tests;
mod grpc;
mod handle;
mod headers;
mod health;
mod http1;
mod http2;
mod interim;
mod layer;
mod line_patience;
mod listeners;
mod max_forwards;
mod multiplex;
mod names;
mod outgoing;
mod pieces;
mod pool;
mod proxy;
mod queue;
mod readings;
mod received;
mod refusals;
mod relayed;
mod request_head;
mod resolve;
mod response_head;
mod retry;
mod send_proxy;
mod shortage;
mod signs;
mod sizes;
mod socket;
mod sources;
mod stats;
mod target;
mod tcp_info;
mod thread;
mod ticket;
mod tls;
mod tunnel;
mod upload;
mod upstream;
mod waiting;
mod watch;

pub use admission::MAX_ADMISSION_CLASSES;
pub use backend::{BackendChange, BackendHealth, BackendState};
pub use config::{
    AdmissionClass, AdmissionConfig, BackendConfig, BackendProtocol, BackendTlsConfig, Balance, BatchConfig,
    BatchKey, CacheConfig, CachePolicy, CertificateConfig, ForwardPolicy, ForwardingConfig, GatewayConfig,
    HeaderCondition, HealthConfig, HttpListenConfig, LimitConfig, MAX_BACKENDS, MAX_CERTIFICATES, MAX_ROUTES,
    MAX_SIZE_CLASSES, MAX_THREADS, MAX_WEIGHT, Network, ProxyVersion, ResolverConfig, RetryConfig,
    SizesConfig, SourceLimitConfig, TimeoutConfig, TlsListenConfig, UnknownName,
};
pub use control::DrainReport;
pub use ejection::EjectionCause;
pub use error::GatewayError;
pub use grpc::{FailedGrpcStatus, FailedGrpcStatusError};
pub use handle::{Bound, Gateway, Handle};
pub use listeners::SharedListeners;
pub use sizes::{COARSE_BUCKETS, ClassCounts, ClassOnBackend, ClassRoute, CoarseHistogram};
pub use sources::SourceCounts;
pub use stats::{
    BackendPeriod, BatchCounts, CacheCounts, CacheSize, ConnectCounts, Counts, PeriodStats, QueueCounts,
    RankCounts, RetryCounts, backend_histogram, service_histogram,
};
