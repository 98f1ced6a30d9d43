//! The gRPC contract between the controller and the agents, and the connections it travels on.
//!
//! - [`proto`] is the contract as generated from `proto/headroom/v1/agent.proto`; [`message`] has the same messages as
//!   types with units, checked on the way in; [`Refusal`] is why a request was refused.
//! - [`Address`] says where an agent listens: a Unix socket, or TCP with mutual TLS. There is no third way: a TCP
//!   listener without a client authority cannot be written down.
//! - [`certs`] makes the authority and the certificates; [`tls`] reads them and says in plain words what is wrong with
//!   them, and with a peer's.
//! - [`access`] says which peer may read and which may command; [`limiter`] bounds what peers cause in the log.
//! - [`server`] serves an implementation of the contract, [`client`] calls one.
//!
//! What a request does is decided in the agent and in the controller, not here.
//!
//! ```no_run
//! use headroom_wire::client::{Client, ClientOptions};
//! use std::time::Duration;
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let address = "unix:/run/headroom/agent.sock".parse()?;
//! let client = Client::connect(&address, &ClientOptions::default()).await?;
//! let mut samples = client.observe(Duration::from_secs(1)).await?;
//! while let Some(sample) = samples.next().await? {
//!     println!("{}: {:?}, in force {}", client.agent().node.name, sample.energy, sample.in_force);
//! }
//! # Ok(())
//! # }
//! ```
#![forbid(unsafe_code)]

pub mod access;
mod address;
pub mod certs;
mod check;
pub mod client;
pub mod limiter;
pub mod message;
mod refusal;
pub mod server;
pub mod tls;

pub use address::{Address, AddressError, without_user};
pub use check::Invalid;
pub use refusal::{Refusal, Server, TRAILER};

/// The gRPC library that the generated service is written against: an implementation of it needs the same one.
pub use tonic;

/// The revision of the contract that this version speaks.
pub const PROTOCOL: u32 = 1;

pub mod proto {
    //! The messages and the service as generated from `proto/headroom/v1/agent.proto`.
    #![allow(clippy::all, unused_qualifications)]
    tonic::include_proto!("headroom.v1");
}
