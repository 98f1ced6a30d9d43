//! Who sent a request.

use super::handshakes::network;
use crate::Refusal;
use crate::access::{Access, Identity, Rules};
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Who sent a request; an extension of each.
#[derive(Clone, Debug)]
pub struct Peer {
    /// Counts the connections of this process from 1: requests of one number came over one connection.
    pub connection: u64,
    /// Its address; `None` over a Unix socket.
    pub address: Option<SocketAddr>,
    /// Who it proved to be.
    pub identity: Identity,
    /// What it may do.
    pub access: Access,
    ended: Arc<AtomicBool>,
}

/// Of one connection.
impl PartialEq for Peer {
    fn eq(&self, other: &Self) -> bool {
        self.connection == other.connection
    }
}

impl Eq for Peer {}

/// A connection that is served. Dropped, it has ended.
pub(super) struct Served(Arc<AtomicBool>);

impl Drop for Served {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

impl Peer {
    pub(super) fn new(address: Option<SocketAddr>, identity: Identity, access: Access) -> Self {
        static CONNECTIONS: AtomicU64 = AtomicU64::new(0);
        let connection = CONNECTIONS.fetch_add(1, Ordering::Relaxed) + 1;
        Self {
            connection,
            address,
            identity,
            access,
            ended: Arc::default(),
        }
    }

    /// Notes that its connection is served, for as long as what is returned lives.
    pub(super) fn served(&self) -> Served {
        Served(Arc::clone(&self.ended))
    }

    /// Whether its connection still stands, as far as is known here: one that was cut without a word does until it answers no ping.
    pub fn is_connected(&self) -> bool {
        !self.ended.load(Ordering::Acquire)
    }

    /// Its address in words.
    pub fn place(&self) -> String {
        match self.address {
            Some(address) => address.to_string(),
            None => "a local process".to_owned(),
        }
    }

    /// What of it cannot be changed at will: its proven name, else its network address.
    pub fn key(&self) -> String {
        match (&self.identity, self.address) {
            (Identity::Unknown, Some(address)) => network(address.ip()).to_string(),
            (identity, _) => identity.to_string(),
        }
    }

    /// Refuses a call that is for others.
    pub fn refuse(&self, call: &str, needed: Access, rules: &Rules) -> Refusal {
        Refusal::Forbidden {
            call: call
                .chars()
                .filter(|c| c.is_ascii_alphanumeric())
                .take(40)
                .collect(),
            peer: self.identity.to_string(),
            access: self.access.as_str().into(),
            needed: needed.as_str().into(),
            remedy: rules.remedy(&self.identity),
        }
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}, {})", self.place(), self.identity, self.access)
    }
}
