//! The gateway before backends over TLS, over HTTP/2, with gRPC, and with the PROXY protocol.

mod authority;
#[path = "../common/mod.rs"]
mod common;
mod grpc;
mod http2;
mod proxy;
mod servers;
mod tls;
