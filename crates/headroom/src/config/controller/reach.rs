//! Where agents, gateways and an HAProxy are, and how they are reached.

use super::ControllerFile;
use super::tables::HaproxyBalancer;
use headroom_console::{ConfigError, Document};
use headroom_node::queue::QueueMethod;
use headroom_runtime::resize::distinguishing;
use headroom_telemetry::haproxy::StatisticsAddress;
use headroom_wire::Address;
use headroom_wire::client::ClientOptions;
use headroom_wire::tls::ClientTls;
use std::path::PathBuf;
use std::time::Duration;

/// How long whatever holds no lease may be silent.
const PATIENCE: Duration = Duration::from_secs(2);

impl ControllerFile {
    /// The name and the address of each node's agent, where it has one.
    ///
    /// # Errors
    /// A text that is no address, or TCP without certificates, with its line.
    pub fn agent_addresses(&self, document: &Document) -> Result<Vec<(String, Address)>, ConfigError> {
        let nodes = self.nodes.iter();
        let agents = nodes.filter_map(|(name, node)| Some((name, node.agent.as_ref()?)));
        agents
            .map(|(name, text)| {
                let address = self.address(document, &self.agent_key(name), text)?;
                Ok((name.clone(), address))
            })
            .collect()
    }

    /// The key that a node's agent is written at.
    pub(super) fn agent_key(&self, name: &str) -> String {
        match self.nodes.get(name).is_some_and(|node| node.is_table) {
            true => format!("nodes.{name}.agent"),
            false => format!("nodes.{name}"),
        }
    }

    /// Each gateway's name and address, by name.
    ///
    /// # Errors
    /// As [`ControllerFile::agent_addresses`].
    pub fn gateway_addresses(&self, document: &Document) -> Result<Vec<(String, Address)>, ConfigError> {
        let one = |(name, text): (&String, &String)| {
            let address = self.address(document, &format!("gateways.{name}"), text)?;
            Ok((name.clone(), address))
        };
        self.gateways.iter().map(one).collect()
    }

    /// How agents measure accept queues, in the order in which they try.
    pub fn agent_methods(&self) -> Vec<QueueMethod> {
        let mut methods = distinguishing(self.capacity.method).order();
        methods.retain(|method| method.through_agent().is_some());
        methods
    }

    fn address(&self, document: &Document, key: &str, text: &str) -> Result<Address, ConfigError> {
        let address: Address = text.parse().map_err(|error| document.error(key, error))?;
        if matches!(address, Address::Tcp { .. }) && self.tls.is_none() {
            let why = format!(
                "{address} is TCP, which is reached with certificates only: make them with `headroom certs` and name \
                 them under [tls]"
            );
            return Err(document.error(key, why));
        }
        Ok(address)
    }

    /// How agents and gateways are reached. Where leases are held, a peer that is silent for a third of one is taken for lost.
    ///
    /// # Errors
    /// Certificates that cannot be used, with their line.
    pub fn client(&self, document: &Document) -> Result<ClientOptions, ConfigError> {
        let tls = self.tls.as_ref().map(|tls| ClientTls::load(&tls.files()));
        let patience = match self.commands() {
            true => self.lease() / 3,
            false => PATIENCE,
        };
        Ok(ClientOptions {
            tls: tls.transpose().map_err(|error| document.error("tls", error))?,
            connect_time: patience.max(Duration::from_secs(1)),
            answer_time: patience,
            silence: patience,
            ..ClientOptions::default()
        })
    }

    /// Where HAProxy's statistics socket is.
    pub fn haproxy(&self) -> Option<(StatisticsAddress, &HaproxyBalancer)> {
        let table = self.haproxy.as_ref()?;
        let address = match table.socket.parse() {
            Ok(address) => StatisticsAddress::Tcp(address),
            Err(_) => StatisticsAddress::Unix(PathBuf::from(&table.socket)),
        };
        Some((address, table))
    }

    /// The same, as it is written.
    pub fn statistics(&self) -> Option<&str> {
        self.haproxy.as_ref().map(|table| &*table.socket)
    }
}
